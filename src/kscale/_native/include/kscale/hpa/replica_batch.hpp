#pragma once

#include <cstddef>
#include <cstdint>

#include "kscale/hpa/replica_calculator.hpp"
#include "kscale/parallel.hpp"

// The replica calculator over columns: one row a metric of a target.
namespace kscale::hpa {

struct RowColumns {
  const std::uint8_t* mode;
  const std::uint8_t* cpu;
  const std::uint8_t* given;
  const std::int32_t* current;
  const std::int64_t* target;
  const double* down;
  const double* up;
  const std::int64_t* pods_begin;
  const std::int64_t* pods_end;
  const std::int64_t* samples;
  const std::int64_t* requests;
  const std::int32_t* bad_request;
  const std::int64_t* extra_count;
  const std::int64_t* extra_sum;
  const std::int64_t* values_begin;
  const std::int64_t* values_end;

  Row row(std::ptrdiff_t i) const noexcept {
    return {static_cast<Mode>(mode[i]), cpu[i] != 0,    static_cast<Error>(given[i]), current[i],     target[i],
            {down[i], up[i]},           pods_begin[i],  pods_end[i],                  samples[i],     requests[i],
            bad_request[i],             extra_count[i], extra_sum[i],                 values_begin[i], values_end[i]};
  }
};

// What the other columns hold: the rows may not point outside.
struct Extent {
  std::int64_t pods, samples, requests, values;
};

inline bool inside(std::int64_t begin, std::int64_t length, std::int64_t extent) noexcept {
  return begin >= 0 && length >= 0 && begin <= extent && length <= extent - begin;
}

inline bool valid(const Row& row, const Extent& extent) noexcept {
  if (static_cast<std::uint8_t>(row.mode) >= kModes || static_cast<std::uint8_t>(row.given) >= kGivenErrors)
    return false;
  const std::int64_t pods = row.pods_end - row.pods_begin;
  if (!inside(row.pods_begin, pods, extent.pods) || row.bad_request < -1 || row.bad_request >= pods ||
      row.extra_count < 0)
    return false;
  const bool answered = row.given == Error::none;
  switch (row.mode) {
    case Mode::utilization:
      return !answered || (inside(row.samples, pods, extent.samples) && inside(row.requests, pods, extent.requests));
    case Mode::usage: return !answered || inside(row.samples, pods, extent.samples);
    default: break;
  }
  const std::int64_t values = row.values_end - row.values_begin;
  const bool single = row.mode == Mode::object_value || row.mode == Mode::object_per_pod;
  return inside(row.values_begin, values, extent.values) &&
         (!single || row.given == Error::no_metrics || values == 1);
}

// The first row that points outside its columns or holds an unknown code, or n.
inline std::ptrdiff_t first_invalid(const RowColumns& rows, std::ptrdiff_t n, const Extent& extent) noexcept {
  for (std::ptrdiff_t i = 0; i < n; ++i)
    if (!valid(rows.row(i), extent)) return i;
  return n;
}

struct AnswerColumns {
  std::int32_t* replicas;
  std::int32_t* utilization;
  std::int64_t* usage;
  std::uint8_t* error;
  std::uint8_t* path;
  std::int32_t* groups;  // [n, 4]: ready, unready, missing, ignored
  double* ratios;        // [n, 2]: first and second pass

  void put(std::ptrdiff_t i, const Answer& answer) const noexcept {
    replicas[i] = answer.replicas;
    utilization[i] = answer.utilization;
    usage[i] = answer.usage;
    error[i] = static_cast<std::uint8_t>(answer.error);
    path[i] = answer.path;
    groups[4 * i] = answer.ready;
    groups[4 * i + 1] = answer.unready;
    groups[4 * i + 2] = answer.missing;
    groups[4 * i + 3] = answer.ignored;
    ratios[2 * i] = answer.ratio;
    ratios[2 * i + 1] = answer.second_ratio;
  }
};

inline void replicas_of_rows(const RowColumns& rows, std::ptrdiff_t n, const PodColumns& pods,
                             const SampleColumns& samples, const std::int64_t* requests, const std::int64_t* values,
                             const Terms& terms, std::ptrdiff_t threads, const AnswerColumns& out) {
  parallel_for(n, threads, [=](std::ptrdiff_t begin, std::ptrdiff_t end) {
    for (std::ptrdiff_t i = begin; i < end; ++i)
      out.put(i, replicas(rows.row(i), pods, samples, requests, values, terms));
  });
}

}  // namespace kscale::hpa
