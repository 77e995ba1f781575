#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

// Reads a PodMetricsList of metrics.k8s.io from its JSON text into columns: one row per pod, and one per container.
namespace kscale::pod_metrics {

inline constexpr std::int64_t kZeroTime = INT64_MIN;

enum class Odd : std::uint8_t { time, window, amount };

// A text in a form that only the slow reader knows, and the row to which it belongs.
struct OddText {
  Odd what;
  std::int64_t row;       // of the pod; of the container for an amount
  std::int32_t resource;  // of an amount
  std::string_view text;
};

// Distinct texts, numbered in order of first appearance.
class Texts {
 public:
  std::int32_t number(std::string_view text) {
    const auto [at, fresh] = numbers_.try_emplace(text, static_cast<std::int32_t>(texts_.size()));
    if (fresh) texts_.push_back(text);
    return at->second;
  }
  const std::vector<std::string_view>& texts() const noexcept { return texts_; }

 private:
  std::unordered_map<std::string_view, std::int32_t> numbers_;
  std::vector<std::string_view> texts_;
};

// The columns of a list. All views point into the text that was read.
struct PodMetricsList {
  std::vector<std::string_view> name;
  std::vector<std::int32_t> name_space, labels;  // by number; labels are JSON objects, -1: absent
  std::vector<std::int64_t> time, window;        // nanoseconds
  std::vector<std::int64_t> container_end;
  std::vector<std::int32_t> container;             // names by number
  std::vector<std::vector<std::int64_t>> amount;   // by resource and container: milli-units, rounded away from zero
  std::vector<std::vector<std::uint8_t>> present;  // by resource and container
  Texts namespaces, label_texts, containers, resources;
  std::vector<OddText> odd;
  Texts created;  // creation times of items
  bool only_usage = true;  // all items have only fields of PodMetrics, and names, labels and creation time as metadata

  // Reads a text. Returns false if it is not plain (escapes, repeated keys, other types, no JSON). The columns are then
  // undefined.
  bool read(const char* text, std::size_t size);
};

}  // namespace kscale::pod_metrics
