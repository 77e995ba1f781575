#pragma once

#include <cstddef>
#include <cstdint>

#include "kscale/hpa/replica_calculator.hpp"
#include "kscale/parallel.hpp"

// The replica calculator over columns: one row per metric of a target.
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

// Sizes of the other columns: rows may not point outside.
struct Extent {
  std::int64_t pods, samples, requests, values;
};

// Returns the first row that points outside its columns or has an unknown code, or n.
std::ptrdiff_t first_invalid(const RowColumns& rows, std::ptrdiff_t n, const Extent& extent) noexcept;

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

void replicas_of_rows(const RowColumns& rows, std::ptrdiff_t n, const PodColumns& pods,
                      const SampleColumns& samples, const std::int64_t* requests, const std::int64_t* values,
                      const Terms& terms, std::ptrdiff_t threads, const AnswerColumns& out);

}  // namespace kscale::hpa
