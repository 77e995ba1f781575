#include "kscale/hpa/replica_batch.hpp"

#include "kscale/parallel.hpp"

namespace kscale::hpa {
namespace {

bool inside(std::int64_t begin, std::int64_t length, std::int64_t extent) noexcept {
  return begin >= 0 && length >= 0 && begin <= extent && length <= extent - begin;
}

bool valid(const Row& row, const Extent& extent) noexcept {
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

}  // namespace

std::ptrdiff_t first_invalid(const RowColumns& rows, std::ptrdiff_t n, const Extent& extent) noexcept {
  for (std::ptrdiff_t i = 0; i < n; ++i)
    if (!valid(rows.row(i), extent)) return i;
  return n;
}

void replicas_of_rows(const RowColumns& rows, std::ptrdiff_t n, const PodColumns& pods,
                      const SampleColumns& samples, const std::int64_t* requests, const std::int64_t* values,
                      const Terms& terms, std::ptrdiff_t threads, const AnswerColumns& out) {
  parallel_for(n, threads, [=](std::ptrdiff_t begin, std::ptrdiff_t end) {
    for (std::ptrdiff_t i = begin; i < end; ++i)
      out.put(i, replicas(rows.row(i), pods, samples, requests, values, terms));
  });
}

}  // namespace kscale::hpa
