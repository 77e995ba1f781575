#pragma once

#include <cstddef>
#include <cstdint>

#include "kscale/hpa/behavior.hpp"
#include "kscale/parallel.hpp"

// Normalization and histories over columns: one row per HorizontalPodAutoscaler.
namespace kscale::hpa {

// Where the entries of a row's history are, and how many fit before those of the next row.
struct Slots {
  const std::int64_t* begin;
  const std::int64_t* capacity;
  std::int64_t* size;
};

struct RecommendationColumns {
  Slots slots;
  std::int32_t* replicas;
  std::int64_t* times;
  Recommendations row(std::ptrdiff_t i) const noexcept {
    return {replicas + slots.begin[i], times + slots.begin[i], static_cast<std::ptrdiff_t>(slots.size[i])};
  }
};

struct EventColumns {
  Slots slots;
  std::int32_t* changes;
  std::int64_t* times;
  std::uint8_t* outdated;
  ScaleEvents row(std::ptrdiff_t i) const noexcept {
    const std::int64_t begin = slots.begin[i];
    return {changes + begin, times + begin, outdated + begin, static_cast<std::ptrdiff_t>(slots.size[i])};
  }
};

struct PolicyColumns {
  const std::uint8_t* type;
  const std::int32_t* value;
  const std::int32_t* period;
};

struct RulesColumns {
  const std::uint8_t* select;
  const std::int32_t* window;
  const std::int64_t* begin;
  const std::int64_t* end;
  PolicyColumns policies;
  Policies of(std::ptrdiff_t i) const noexcept {
    return {policies.type + begin[i], policies.value + begin[i], policies.period + begin[i],
            static_cast<std::ptrdiff_t>(end[i] - begin[i])};
  }
  Rules row(std::ptrdiff_t i) const noexcept { return {static_cast<SelectPolicy>(select[i]), window[i], of(i)}; }
};

struct SizeColumns {
  const std::uint8_t* active;    // rows to normalize
  const std::uint8_t* behavior;  // spec.behavior is set
  const std::int32_t* current;
  const std::int32_t* proposal;
  const std::int32_t* minimum;
  const std::int32_t* maximum;
};

struct NormalizedColumns {
  std::int32_t* stabilized;
  std::int32_t* desired;
  std::uint8_t* held;
  std::uint8_t* limit;
  std::uint8_t* limited;
};

// Each row's history must have room for two more entries: a first pass records the current size, then its proposal.
void normalize_rows(const SizeColumns& sizes, std::ptrdiff_t n, const RulesColumns& up, const RulesColumns& down,
                    const RecommendationColumns& past, const EventColumns& added, const EventColumns& removed,
                    std::int64_t downscale_window, std::int64_t now, std::ptrdiff_t threads,
                    const NormalizedColumns& out);

// Store the change of size of every row that has a behavior and was rescaled.
void store_events(const std::uint8_t* rescaled, const std::int32_t* before, const std::int32_t* after,
                  std::ptrdiff_t n, const RulesColumns& up, const RulesColumns& down, const EventColumns& added,
                  const EventColumns& removed, std::int64_t now) noexcept;

bool valid_slots(const Slots& slots, std::ptrdiff_t n, std::int64_t entries) noexcept;

bool valid_rules(const RulesColumns& rules, std::ptrdiff_t n, std::int64_t policies) noexcept;

}  // namespace kscale::hpa
