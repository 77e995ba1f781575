#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kscale/numeric.hpp"

// The replica calculator: how many replicas one metric proposes. Upstream:
// pkg/controller/podautoscaler/replica_calculator.go and metrics/utilization.go. Amounts are int64 milli-units and
// wrap; quotients of integers truncate; ratios are doubles, multiplied in upstream's order.
namespace kscale::hpa {

enum class Mode : std::uint8_t {
  utilization,       // GetResourceReplicas: usage of requests, in whole percent
  usage,             // GetRawResourceReplicas, GetMetricReplicas: average of the pods
  object_value,      // GetObjectMetricReplicas
  object_per_pod,    // GetObjectPerPodMetricReplicas
  external_value,    // GetExternalMetricReplicas
  external_per_pod,  // GetExternalPerPodMetricReplicas
};
inline constexpr std::uint8_t kModes = 6;

enum class Error : std::uint8_t {
  none,
  no_metrics,       // the metrics client failed (given by the caller)
  pods_unlisted,    // the pod lister failed (given by the caller)
  no_pods,          // no pod matches the selector
  no_samples_left,  // every sample belongs to a pod that does not count
  bad_request,      // a pod has no request for the resource (which: given by the caller)
  nothing_known,    // no sample belongs to a pod with a request
};

// Errors of a row that the caller found.
inline constexpr std::uint8_t kGivenErrors = 3;

enum Path : std::uint8_t {
  path_hold_first = 1,
  path_second_pass = 2,
  path_hold_second = 4,
  path_hold_direction = 8,
};

enum class Phase : std::uint8_t { other, pending, running, failed };
enum class Ready : std::uint8_t { absent, yes, no, unknown };
enum class Group : std::uint8_t { ready, unready, missing, ignored };

// One row per pod. Times: nanoseconds since 1970, the lowest int64 = Go's zero time.
struct PodColumns {
  const std::uint8_t* phase;
  const std::uint8_t* deleting;
  const std::uint8_t* ready;
  const std::uint8_t* started;  // status.startTime is present
  const std::int64_t* start;
  const std::int64_t* transition;  // of the Ready condition
};

// Samples, in the order of their pods.
struct SampleColumns {
  const std::uint8_t* present;
  const std::int64_t* value;
  const std::int64_t* time;
  const std::int64_t* window;  // nanoseconds
};

// Release of the calculator: today's, or that of an older Kubernetes.
enum class Release : std::uint8_t {
  current,
  v1_20,  // and from 1.18.12 and 1.19.4 on
  v1_19,  // 1.17.17, 1.18.8 and 1.19.0 to 1.19.3: deleting and failed pods are skipped, and their samples count
  v1_18,  // 1.17.0 and 1.18.0: the final count is not checked either
};
inline constexpr std::uint8_t kReleases = 4;

// Inputs of a calculation besides its row.
struct Terms {
  std::int64_t now;
  std::int64_t cpu_initialization;
  std::int64_t initial_readiness;
  Release release;

  bool legacy() const noexcept { return release != Release::current; }
  // Samples of deleting and failed pods stay in the sum, although these pods count nowhere else.
  bool keeps_ignored_samples() const noexcept { return release == Release::v1_19 || release == Release::v1_18; }
  // Whether a count that contradicts the ratio is rejected. Older calculators did so for utilization, not for averages.
  bool checks_count(bool by_request) const noexcept {
    return !legacy() || (by_request && release != Release::v1_18);
  }
};

struct Tolerances {
  double down;
  double up;
};

// Both ends included; NaN is outside. Legacy: by the distance from 1, which is rounded: that of 1.1 exceeds 0.1.
inline bool within(double ratio, Tolerances t, bool legacy) noexcept {
  if (legacy) return std::abs(1.0 - ratio) <= t.up;
  return 1.0 - t.down <= ratio && ratio <= 1.0 + t.up;
}

// Whether a time is before begin + length. As in Go, where times have a wider range, the sum does not overflow.
inline bool is_before_end(std::int64_t time, std::int64_t begin, std::int64_t length) noexcept {
  std::int64_t end;
  return __builtin_add_overflow(begin, length, &end) ? length > 0 : time < end;
}

inline Group group_of(const PodColumns& pods, std::ptrdiff_t pod, const SampleColumns& samples, std::ptrdiff_t sample,
                      bool cpu, const Terms& p) noexcept {
  // Most pods are running, ready and measured: one branch for all rules.
  const int unusual = pods.deleting[pod] | (pods.phase[pod] ^ static_cast<int>(Phase::running)) |
                      (pods.ready[pod] ^ static_cast<int>(Ready::yes)) | (pods.started[pod] ^ 1) |
                      (samples.present[sample] ^ 1);
  if (unusual == 0 && (!cpu || pods.start[pod] + p.cpu_initialization <= p.now)) [[likely]]
    return Group::ready;
  if (pods.deleting[pod] || pods.phase[pod] == static_cast<std::uint8_t>(Phase::failed)) return Group::ignored;
  if (pods.phase[pod] == static_cast<std::uint8_t>(Phase::pending)) return Group::unready;
  if (!samples.present[sample]) return Group::missing;
  if (!cpu) return Group::ready;
  const auto ready = static_cast<Ready>(pods.ready[pod]);
  if (ready == Ready::absent || !pods.started[pod]) return Group::unready;
  bool unready;
  if (pods.start[pod] + p.cpu_initialization > p.now) {
    // Starting: accept only a sample whose whole window is after the pod became ready.
    unready = ready == Ready::no || is_before_end(samples.time[sample], pods.transition[pod], samples.window[sample]);
  } else {
    // Not ready since about its start: it never was ready. A pod that became unready later keeps its sample.
    unready = ready == Ready::no && pods.start[pod] + p.initial_readiness > pods.transition[pod];
  }
  return unready ? Group::unready : Group::ready;
}

// Running and Ready=True, deleting or not: the pods among which Object and External values are divided.
inline std::int64_t ready_pods(const PodColumns& pods, std::ptrdiff_t begin, std::ptrdiff_t end) noexcept {
  std::int64_t count = 0;
  for (std::ptrdiff_t pod = begin; pod < end; ++pod)
    count += (pods.phase[pod] == static_cast<std::uint8_t>(Phase::running)) &
             (pods.ready[pod] == static_cast<std::uint8_t>(Ready::yes));
  return count;
}

// The running sum of a per-pod External metric treats a negative sum as an overflow; that of a value only a positive
// step past the end.
inline std::int64_t external_sum(const std::int64_t* values, std::ptrdiff_t n, bool per_pod) noexcept {
  std::int64_t sum = 0;
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    if (per_pod) {
      sum += values[i];
      if (sum < 0) return kInt64Max;
    } else {
      if (values[i] > 0 && sum > kInt64Max - values[i]) return kInt64Max;
      sum += values[i];
    }
  }
  return sum;
}

// One metric of one target.
struct Row {
  Mode mode;
  bool cpu;
  Error given;
  std::int32_t current;  // spec replicas; status replicas for the per-pod modes
  std::int64_t target;   // percent or milli
  Tolerances tolerances;
  std::ptrdiff_t pods_begin, pods_end;
  std::ptrdiff_t samples;   // of the first pod
  std::ptrdiff_t requests;  // of the first pod
  std::int32_t bad_request;  // position among the pods, -1: none
  std::int64_t extra_count;  // samples of pods that are not listed
  std::int64_t extra_sum;
  std::ptrdiff_t values_begin, values_end;  // Object: one, External: any number
};

struct Answer {
  std::int32_t replicas = 0;
  std::int32_t utilization = 0;
  std::int64_t usage = 0;
  Error error = Error::none;
  std::uint8_t path = 0;
  std::int32_t ready = 0, unready = 0, missing = 0, ignored = 0;
  double ratio = 0.0, second_ratio = 0.0;
};

// Sums of the samples that count.
struct Sums {
  std::int64_t value = 0, request = 0, known = 0, entries = 0;
};

struct Ratio {
  double ratio = 0.0;
  std::int32_t utilization = 0;
  std::int64_t usage = 0;
  bool error = false;
};

inline Ratio ratio_of(Mode mode, const Sums& sums, std::int64_t target, std::int64_t extra_sum) noexcept {
  Ratio out;
  if (mode == Mode::utilization) {
    if (sums.request == 0) {
      out.error = true;
      return out;
    }
    out.utilization = low32(quotient(sums.value * 100, sums.request));
    out.usage = quotient(sums.value, sums.known);
    out.ratio = static_cast<double>(out.utilization) / static_cast<double>(target);
  } else {
    out.usage = quotient(sums.value + extra_sum, sums.entries);
    out.ratio = static_cast<double>(out.usage) / static_cast<double>(target);
  }
  return out;
}

inline Answer replicas_of_pods(const Row& row, const PodColumns& pods, const SampleColumns& samples,
                               const std::int64_t* requests, const Terms& terms) noexcept {
  Answer out;
  const bool by_request = row.mode == Mode::utilization;
  const std::ptrdiff_t n = row.pods_end - row.pods_begin;
  const auto group = [&](std::ptrdiff_t i) {
    return group_of(pods, row.pods_begin + i, samples, row.samples + i, row.cpu, terms);
  };
  Sums sums;
  Sums missing, unready;  // their additional requests and entries
  std::int64_t ignored = 0, stale = 0;  // pods; their samples that count
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const Group which = group(i);
    const std::int64_t request = by_request ? requests[row.requests + i] : 0;
    if (which == Group::ready) [[likely]] {
      sums.value += samples.value[row.samples + i];
      sums.request += request;
      ++sums.known;
    } else if (which == Group::unready) {
      unready.request += request;
      ++unready.known;
    } else if (which == Group::missing) {
      missing.request += request;
      ++missing.known;
      // r < 1: a missing pod is assumed to use its whole request, or the target if that is more.
      const std::int64_t percent = row.target > 100 && !terms.legacy() ? row.target : 100;
      missing.value += by_request ? quotient(request * percent, 100) : row.target;
    } else {
      ++ignored;
      if (terms.keeps_ignored_samples() && samples.present[row.samples + i]) {
        sums.value += samples.value[row.samples + i];
        sums.request += request;
        ++sums.known;
        ++stale;
      }
    }
  }
  out.ready = static_cast<std::int32_t>(sums.known - stale);
  out.missing = static_cast<std::int32_t>(missing.known);
  out.unready = static_cast<std::int32_t>(unready.known);
  out.ignored = static_cast<std::int32_t>(ignored);
  sums.entries = sums.known + row.extra_count;
  if (sums.entries == 0) {
    out.error = Error::no_samples_left;
    return out;
  }
  if (by_request && row.bad_request >= 0) {
    out.error = Error::bad_request;
    return out;
  }
  const Ratio first = ratio_of(row.mode, sums, row.target, row.extra_sum);
  if (first.error) {
    out.error = Error::nothing_known;
    return out;
  }
  out.utilization = first.utilization;
  out.usage = first.usage;
  out.ratio = first.ratio;

  const bool rebalance = unready.known > 0 && first.ratio > 1.0;
  if (!rebalance && missing.known == 0) {
    if (within(first.ratio, row.tolerances, terms.legacy())) {
      out.replicas = row.current;
      out.path = path_hold_first;
    } else {
      out.replicas = to_int32(std::ceil(first.ratio * static_cast<double>(out.ready)));
    }
    return out;
  }

  const auto fill = [&sums](const Sums& pods_of, std::int64_t value) {
    sums.value += value;
    sums.request += pods_of.request;
    sums.known += pods_of.known;
    sums.entries += pods_of.known;
  };
  if (missing.known > 0) {
    if (first.ratio < 1.0) fill(missing, missing.value);
    else if (first.ratio > 1.0 || (terms.legacy() && !by_request)) fill(missing, 0);
  }
  if (rebalance) fill(unready, 0);
  const Ratio second = ratio_of(row.mode, sums, row.target, row.extra_sum);
  out.path = path_second_pass;
  if (second.error) {
    out.error = Error::nothing_known;
    return out;
  }
  out.second_ratio = second.ratio;
  out.replicas = row.current;
  if (within(second.ratio, row.tolerances, terms.legacy()) || (first.ratio < 1.0 && second.ratio > 1.0) ||
      (first.ratio > 1.0 && second.ratio < 1.0)) {
    out.path |= path_hold_second;
    return out;
  }
  const std::int32_t count = to_int32(std::ceil(second.ratio * static_cast<double>(sums.entries)));
  const bool turns = (second.ratio < 1.0 && count > row.current) || (second.ratio > 1.0 && count < row.current);
  if (turns && terms.checks_count(by_request))
    out.path |= path_hold_direction;
  else
    out.replicas = count;
  return out;
}

inline Answer replicas_of_value(const Row& row, const PodColumns& pods, std::int64_t usage, bool legacy) noexcept {
  Answer out;
  out.usage = usage;
  out.ratio = static_cast<double>(usage) / static_cast<double>(row.target);
  if (row.current == 0) {  // leaving zero: no tolerance, no pods, no cap
    out.replicas = to_int32(std::ceil(out.ratio));
    return out;
  }
  if (within(out.ratio, row.tolerances, legacy)) {
    out.replicas = row.current;
    out.path = path_hold_first;
    return out;
  }
  if (row.given == Error::pods_unlisted || row.pods_begin == row.pods_end) {
    out.error = row.given == Error::pods_unlisted ? row.given : Error::no_pods;
    return out;
  }
  out.ready = static_cast<std::int32_t>(ready_pods(pods, row.pods_begin, row.pods_end));
  const double count = out.ratio * static_cast<double>(out.ready);
  out.replicas = count > static_cast<double>(kInt32Max) ? kInt32Max : to_int32(std::ceil(count));
  return out;
}

inline Answer replicas_per_pod(const Row& row, std::int64_t usage, bool legacy) noexcept {
  Answer out;
  const auto total = static_cast<double>(usage), target = static_cast<double>(row.target);
  const auto pods = static_cast<double>(row.current);
  out.ratio = total / (target * pods);
  if (within(out.ratio, row.tolerances, legacy)) {
    out.replicas = row.current;
  } else {
    const double count = std::ceil(total / target);
    const bool cap = row.mode == Mode::external_per_pod && count > static_cast<double>(kInt32Max);
    out.replicas = cap ? kInt32Max : to_int32(count);
  }
  const bool saturates = row.mode == Mode::external_per_pod && total >= kTwo63;
  out.usage = saturates ? kInt64Max : to_int64(std::ceil(total / pods));
  return out;
}

inline Answer replicas(const Row& row, const PodColumns& pods, const SampleColumns& samples,
                       const std::int64_t* requests, const std::int64_t* values, const Terms& terms) noexcept {
  Answer out;
  if (row.given == Error::no_metrics) {
    out.error = row.given;
    return out;
  }
  switch (row.mode) {
    case Mode::utilization:
    case Mode::usage:
      if (row.given != Error::none || row.pods_begin == row.pods_end) {
        out.error = row.given != Error::none ? row.given : Error::no_pods;
        return out;
      }
      return replicas_of_pods(row, pods, samples, requests, terms);
    case Mode::object_value:
    case Mode::external_value:
    case Mode::object_per_pod:
    case Mode::external_per_pod: break;
  }
  const bool per_pod = row.mode == Mode::object_per_pod || row.mode == Mode::external_per_pod;
  const std::int64_t usage = row.mode == Mode::object_value || row.mode == Mode::object_per_pod
                                 ? values[row.values_begin]
                                 : external_sum(values + row.values_begin, row.values_end - row.values_begin, per_pod);
  return per_pod ? replicas_per_pod(row, usage, terms.legacy()) : replicas_of_value(row, pods, usage, terms.legacy());
}

}  // namespace kscale::hpa
