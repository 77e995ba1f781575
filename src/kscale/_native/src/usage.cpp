#include "kscale/usage.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kscale/dispatch.hpp"
#include "kscale/parallel.hpp"
#include "kscale/usage_feed.hpp"
#include "kscale/usage_owners.hpp"

// Adds memory samples to histograms. CPU samples: usage_cpu.cpp.

namespace kscale::usage {
namespace {

using histogram::kUnset;

std::int64_t next_window(Time window_end, Time t, std::int64_t interval) noexcept {
  const std::int64_t late = t - window_end;
  return window_end + (interval > 0 ? late / interval * interval : late) + interval;
}

// The state that the samples of one container change, cached outside the columns during a run.
struct MemoryOfContainer {
  Time last;
  Time window_end;
  std::int64_t peak;
  std::int64_t oom_peak;
  std::int64_t behind = 0;  // samples older than the last one
};

// Adds the samples [i, end) of one container.
void add_memory_run(const Bank& bank, std::ptrdiff_t row, const Aggregates& aggregates, MemoryOfContainer& c,
                    std::ptrdiff_t i, std::ptrdiff_t end, const Time* time, const std::int64_t* bytes,
                    const std::uint8_t* is_oom, std::uint8_t* status, std::int64_t* taken) noexcept {
  const std::int64_t interval = aggregates.interval[row];
  const auto weight_at = [&](Time t) { return kMemoryWeight * histogram::factor(bank, row, t); };
  const auto bucket_of = [&](std::int64_t amount) { return bank.buckets->find(static_cast<double>(amount)); };
  for (; i < end; ++i) {
    const Time t = time[i];
    const bool oom = is_oom != nullptr && is_oom[i] != 0;
    std::int64_t used = bytes[i];
    if (oom) {
      if (c.last != kUnset && t < c.last - interval) {
        status[i] = kTooOld;
        continue;
      }
      used = std::max(used, c.peak);
      used = std::max(used + amount(aggregates.oom_min_bump[row]), scale_amount(used, aggregates.oom_ratio[row]));
    }
    if (used < 0 || (!oom && t < c.last)) {
      c.behind += static_cast<std::int64_t>(used >= 0);
      status[i] = kDiscarded;
      continue;
    }
    status[i] = kAccepted;
    if (oom && taken != nullptr) taken[i] = used;
    c.last = t;
    if (c.window_end == kUnset) c.window_end = t;
    if (t < c.window_end) {
      const std::int64_t old = std::max(c.peak, c.oom_peak);
      if (old == 0 || used <= old) continue;
      const double weight = weight_at(c.window_end);
      histogram::subtract(bank, row, bucket_of(old), weight);
    } else {
      c.window_end = next_window(c.window_end, t, interval);
      c.peak = 0;
      c.oom_peak = 0;
    }
    const double weight = weight_at(c.window_end);
    histogram::add(bank, row, bucket_of(used), weight);
    (oom ? c.oom_peak : c.peak) = used;
  }
}

// Adds memory samples in one thread.
class MemorySamples {
 public:
  MemorySamples(const Bank& bank, const Containers& containers, const Aggregates& aggregates)
      : bank_(bank), containers_(containers), aggregates_(aggregates) {}

  // Number of samples that were refused because they were older than the last one of their container.
  std::int64_t behind() const noexcept { return behind_; }

  void add(std::int32_t c, const Time* time, const std::int64_t* bytes, std::ptrdiff_t n, std::uint8_t* status,
           const std::uint8_t* is_oom = nullptr, std::int64_t* taken = nullptr) noexcept {
    MemoryOfContainer state{containers_.last_memory[c], containers_.window_end[c], containers_.memory_peak[c],
                            containers_.oom_peak[c]};
    add_memory_run(bank_, containers_.aggregate[c], aggregates_, state, 0, n, time, bytes, is_oom, status, taken);
    containers_.last_memory[c] = state.last;
    containers_.window_end[c] = state.window_end;
    containers_.memory_peak[c] = state.peak;
    containers_.oom_peak[c] = state.oom_peak;
    behind_ += state.behind;
  }

  void finish() noexcept {}

 private:
  const Bank& bank_;
  const Containers& containers_;
  const Aggregates& aggregates_;
  std::int64_t behind_ = 0;
};

}  // namespace

void add_memory(const Bank& bank, const Containers& containers, const Aggregates& aggregates, std::ptrdiff_t n,
                const std::int32_t* container, const Time* time, const std::int64_t* bytes, const std::uint8_t* is_oom,
                std::uint8_t* status, std::int64_t* taken, std::ptrdiff_t threads) {
  const std::ptrdiff_t parts = std::clamp<std::ptrdiff_t>(threads, 1, kMostThreads);
  const Owners owners(containers, n, container, parts);
  const auto from = [](auto* column, std::ptrdiff_t i) { return column == nullptr ? column : column + i; };
  parallel_for(parts, parts, [&](std::ptrdiff_t part, std::ptrdiff_t end) {
    MemorySamples samples(bank, containers, aggregates);
    for (; part < end; ++part) {
      std::ptrdiff_t next = 0;
      for (std::ptrdiff_t i = 0; i < n; i = next) {
        const std::int32_t c = container[i];
        next = run_end(container, i, n);
        if (owners.other(c, part)) continue;
        samples.add(c, time + i, bytes + i, next - i, status + i, from(is_oom, i), from(taken, i));
      }
    }
  });
}

Fed feed_memory(const Bank& bank, const Containers& containers, const Aggregates& aggregates, const Batch& batch,
                std::ptrdiff_t threads) {
  return feed<MemorySamples>(bank, containers, aggregates, batch, 1.0, threads);
}

std::ptrdiff_t look_up(const std::int32_t* table, std::ptrdiff_t size, const std::int32_t* index, std::ptrdiff_t n,
                       std::int32_t* out) noexcept {
  std::int32_t negative = 0;
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    if (index[i] < 0 || index[i] >= size) return i;
    out[i] = table[index[i]];
    negative |= out[i];
  }
  return negative < 0 ? -2 : -1;
}

bool in_order(const std::int32_t* series, const Time* time, std::ptrdiff_t n, Time* latest) noexcept {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    Time& last = latest[series[i]];
    if (time[i] < last) return false;
    last = time[i];
  }
  return true;
}

// Returns the first sample whose container is out of range or has no aggregate; -1: there is none.
std::ptrdiff_t first_stranger(const Containers& containers, std::ptrdiff_t n_containers, std::ptrdiff_t n,
                              const std::int32_t* container) noexcept {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    if (i > 0 && container[i] == container[i - 1]) continue;
    if (container[i] < 0 || container[i] >= n_containers || containers.aggregate[container[i]] < 0) return i;
  }
  return -1;
}

namespace {

KSCALE_CLONED bool none_far(const Time* time, std::ptrdiff_t n) noexcept {
  std::int64_t far = 0;
  for (std::ptrdiff_t i = 0; i < n; ++i)
    far |= static_cast<std::int64_t>(time[i] < -histogram::kFarthest) |
           static_cast<std::int64_t>(time[i] > histogram::kFarthest);
  return far == 0;
}

}  // namespace

bool all_near(const Time* time, std::ptrdiff_t n) noexcept { return at_cpu_level<none_far>(time, n); }

}  // namespace kscale::usage
