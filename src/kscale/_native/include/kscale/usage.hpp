#pragma once

#include <cstddef>
#include <cstdint>

#include "kscale/histogram.hpp"

// From usage samples to histograms, for many containers at once (upstream:
// vertical-pod-autoscaler/pkg/recommender/model).

namespace kscale::usage {

using histogram::Bank;
using histogram::Buckets;
using histogram::Time;

inline constexpr double kMaxAmount = 1e14;
inline constexpr double kCpuWeight = 0.1;
inline constexpr double kMemoryWeight = 1.0;

// ResourceAmountFromFloat: truncated, not rounded.
inline std::int64_t amount(double x) noexcept {
  if (x > kMaxAmount) return 100000000000000LL;
  if (x < 0) return 0;
  return go::to_int64(x);
}
inline std::int64_t scale_amount(std::int64_t a, double f) noexcept { return amount(static_cast<double>(a) * f); }

// out[i] = table[index[i]]. -1: no entry was negative; -2: one was; else the first index out of range.
std::ptrdiff_t look_up(const std::int32_t* table, std::ptrdiff_t size, const std::int32_t* index, std::ptrdiff_t n,
                       std::int32_t* out) noexcept;
// Returns whether the times of every series ascend. latest[series] must be kUnset before.
bool in_order(const std::int32_t* series, const Time* time, std::ptrdiff_t n, Time* latest) noexcept;

struct Containers {
  const std::int32_t* aggregate;  // the row to which this container's samples belong
  Time* last_cpu;
  Time* last_memory;
  Time* window_end;
  std::int64_t* memory_peak;
  std::int64_t* oom_peak;
};

struct Aggregates {
  Time* first_sample;
  Time* last_sample;
  std::int64_t* samples;
  const std::int64_t* interval;
  const double* oom_ratio;
  const double* oom_min_bump;
};

enum Status : std::uint8_t { kAccepted = 0, kDiscarded = 1, kTooOld = 2 };

// Adds samples in arrival order. Threads divide them by aggregate, so the result does not depend on their number.
void add_cpu(const Bank& bank, const Containers& containers, const Aggregates& aggregates, std::ptrdiff_t n,
             const std::int32_t* container, const Time* time, const std::int64_t* millicores, std::uint8_t* status,
             std::ptrdiff_t threads);

// The same for memory. Where is_oom is set, `bytes` is the memory request of the killed container, and `taken` (unless
// null) receives the amount that it counts as.
void add_memory(const Bank& bank, const Containers& containers, const Aggregates& aggregates, std::ptrdiff_t n,
                const std::int32_t* container, const Time* time, const std::int64_t* bytes, const std::uint8_t* is_oom,
                std::uint8_t* status, std::int64_t* taken, std::ptrdiff_t threads);

// What became of the rows of a batch of recorded usage.
struct Fed {
  std::int64_t missing = 0;   // NaN
  std::int64_t infinite = 0;
  std::int64_t negative = 0;  // added as 0
  std::int64_t late = 0;      // after `now`, but added
  std::int64_t refused = 0;   // duplicates, or out of order
  std::int64_t behind = 0;    // of the refused: older than the last sample of their container
  Time newest = histogram::kUnset;
};

// A batch of recorded usage: value[i] cores or bytes of series[i] at time[i]. slot[s] is the container of a series:
// kUnplaced if it belongs to none, kUnasked if it is not needed.
struct Batch {
  std::ptrdiff_t rows;
  const std::int32_t* series;
  const Time* time;
  const double* value;
  std::ptrdiff_t n_series;
  const std::int32_t* slot;
  Time now;              // later samples are counted; maximum: none
  std::int64_t* finite;  // [n_series], incremented by the number of numeric values
};
inline constexpr std::int32_t kUnplaced = -1, kUnasked = -2;

// Columns of rows; cpu or memory may be null.
struct RowsIn {
  const std::int32_t* series;
  const Time* time;
  const double* cpu;
  const double* memory;
};
struct RowsOut {
  std::int32_t* series;
  Time* time;
  double* cpu;
  double* memory;
};

// How often the series changes from row to row.
std::ptrdiff_t changes(const std::int32_t* series, std::ptrdiff_t n) noexcept;

// Sorts the rows of a batch by aggregate, in their order within one, without rows that are not needed, and returns
// their number. Adding them gives the result of adding the batch, and visits each histogram once. The aggregates of
// each of `parts` threads are consecutive.
std::ptrdiff_t arrange(const Containers& containers, std::ptrdiff_t n_aggregates, std::ptrdiff_t rows, const RowsIn& in,
                       std::ptrdiff_t n_series, const std::int32_t* slot, const RowsOut& out, std::ptrdiff_t parts);

// Adds the rows of a batch in their order, with the result of add_cpu and add_memory for the same samples.
Fed feed_cpu(const Bank& bank, const Containers& containers, const Aggregates& aggregates, const Batch& batch,
             std::ptrdiff_t threads);
Fed feed_memory(const Bank& bank, const Containers& containers, const Aggregates& aggregates, const Batch& batch,
                std::ptrdiff_t threads);

// CPU samples of many containers at the same ascending times: millicores[container, time], negative = no sample. Group
// g, rows group_start[g] .. group_start[g+1] of `container`, belongs to one aggregate, with the samples of each time in
// row order. discarded[row] counts samples that are not newer than the container's last one.
void add_cpu_grid(const Bank& bank, const Containers& containers, const Aggregates& aggregates, std::ptrdiff_t n_groups,
                  const std::int64_t* group_start, const std::int32_t* container, std::ptrdiff_t n_times,
                  const Time* time, const std::int32_t* millicores, std::int64_t* discarded, std::ptrdiff_t threads);

// Returns the first sample whose container is out of range or has no aggregate; -1: there is none.
std::ptrdiff_t first_stranger(const Containers& containers, std::ptrdiff_t n_containers, std::ptrdiff_t n,
                              const std::int32_t* container) noexcept;
// Returns whether all times have the distance histogram::kFarthest from the ends of int64.
bool all_near(const Time* time, std::ptrdiff_t n) noexcept;

}  // namespace kscale::usage
