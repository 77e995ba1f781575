#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kscale/hpa/behavior_batch.hpp"

// One reconcile over columns: the order of kscale/hpa/controller/reconcile.py, with codes in place of texts; a write succeeds
// or is refused for good. The two are held together by tests.
namespace kscale::hpa {

enum class Branch : std::uint8_t { no_scale, disabled, above_max, below_min, metrics, failed };
enum class Reason : std::uint8_t { none, above_max, below_min, metric_above, all_below };

// Condition types, in the order of the columns.
enum Condition : std::uint8_t { able_to_scale, scaling_active, scaling_limited, scaled_to_zero };
inline constexpr std::ptrdiff_t kConditions = 4;
enum Status : std::uint8_t { status_absent, status_true, status_false, status_other };

// Condition reasons; those of stabilisation and of limits keep the order of their own codes.
enum ConditionReason : std::uint8_t {
  reason_none,
  failed_get_scale,
  succeeded_get_scale,
  ready_for_new_scale,
  scale_up_stabilized,
  scale_down_stabilized,
  succeeded_rescale,
  scaling_disabled,
  invalid_selector,
  ambiguous_selector,
  metric_failed,  // which reason: that of the first failing metric
  valid_metric_found,
  desired_within_range,
  too_few_replicas,
  too_many_replicas,
  scale_up_limit,
  scale_down_limit,
  is_scaled_to_zero,
  not_scaled_to_zero,
  failed_update_scale,
};

enum class SelectorError : std::uint8_t { none, required, invalid, deleted, unlisted, ambiguous };

// Events of one pass.
enum Event : std::uint8_t {
  event_failed_get_scale = 1,
  event_selector = 2,
  event_metric_failed = 4,
  event_failed_compute = 8,
  event_rescale = 16,
  event_failed_rescale = 32,
};

enum class ErrorClass : std::uint8_t { none, internal, spec };

struct TargetColumns {
  const std::uint8_t* scale_error;  // ErrorClass
  const std::int32_t* current;
  const std::int32_t* minimum;
  const std::int32_t* maximum;
  const std::uint8_t* object_metric;  // has an Object or External metric
  const std::uint8_t* behavior;
  const std::uint8_t* selector_error;
  const std::uint8_t* refused;  // a write of the scale fails for good
  const std::uint8_t* fresh;    // never reconciled
  const std::int64_t* metrics_begin;
  const std::int64_t* metrics_end;
};

// One row a metric.
struct ProposalColumns {
  const std::int32_t* replicas;
  const std::uint8_t* error;  // ErrorClass
};

struct ConditionColumns {  // [n, 4]
  std::uint8_t* status;
  std::uint8_t* reason;
  std::int64_t* time;

  void set(std::ptrdiff_t row, Condition type, bool value, std::uint8_t why, std::int64_t now) const noexcept {
    const std::ptrdiff_t i = row * kConditions + type;
    const std::uint8_t next = value ? status_true : status_false;
    if (status[i] != next) time[i] = now;
    status[i] = next;
    reason[i] = why;
  }
  void drop(std::ptrdiff_t row, Condition type) const noexcept {
    const std::ptrdiff_t i = row * kConditions + type;
    status[i] = status_absent;
    reason[i] = reason_none;
    time[i] = 0;
  }
  bool is_true(std::ptrdiff_t row, Condition type) const noexcept {
    return status[row * kConditions + type] == status_true;
  }
};

struct DecisionColumns {
  std::uint8_t* branch;
  std::int32_t* desired;
  std::int32_t* proposal;
  std::int32_t* stabilized;
  std::int32_t* best;     // row among the metrics of the HPA that decided, -1: none
  std::int32_t* invalid;  // metrics that failed
  std::int32_t* first_invalid;
  std::uint8_t* rescaled;
  std::uint8_t* reason;
  std::uint8_t* events;
  std::uint8_t* error;  // ErrorClass
  std::uint8_t* held;   // Stabilized
};

struct Combined {
  std::int32_t best = 0, row = -1, invalid = 0, first_invalid = -1;
};

// The largest proposal; while it is 0 every later one replaces it.
inline Combined combine(const ProposalColumns& metrics, std::int64_t begin, std::int64_t end) noexcept {
  Combined out;
  for (std::int64_t i = begin; i < end; ++i) {
    if (metrics.error[i] != 0) {
      if (out.invalid++ == 0) out.first_invalid = static_cast<std::int32_t>(i - begin);
    } else if (out.best == 0 || metrics.replicas[i] > out.best) {
      out.best = metrics.replicas[i];
      out.row = static_cast<std::int32_t>(i - begin);
    }
  }
  return out;
}

// `legacy`: as Kubernetes 1.18 to 1.20 decided.
struct Settings {
  std::int64_t now;
  std::int64_t downscale_window;  // for scaling down, of HPAs without a behavior
  bool scale_to_zero;
  bool legacy;
};

struct DecideInput {
  TargetColumns targets;
  ProposalColumns metrics;
  RulesColumns up, down;
  Settings settings;
};

struct Histories {
  RecommendationColumns past;
  EventColumns added, removed;
};

inline Branch branch_of(const TargetColumns& t, std::ptrdiff_t i, bool may_leave_zero, bool legacy) noexcept {
  const std::int32_t current = t.current[i];
  if (current == 0) {
    const bool goes_on = legacy ? t.minimum[i] == 0 : may_leave_zero && (t.minimum[i] != 0 || t.object_metric[i]);
    return goes_on ? Branch::metrics : Branch::disabled;
  }
  if (current > t.maximum[i]) return Branch::above_max;
  if (current < t.minimum[i]) return Branch::below_min;
  return Branch::metrics;
}

inline void decide_row(const DecideInput& in, std::ptrdiff_t i, const Histories& histories,
                       const ConditionColumns& conditions, const DecisionColumns& out) noexcept {
  const TargetColumns& t = in.targets;
  const std::int64_t now = in.settings.now;
  const std::int32_t current = t.current[i], minimum = t.minimum[i];
  out.desired[i] = out.proposal[i] = out.stabilized[i] = current;
  out.best[i] = out.first_invalid[i] = -1;
  out.invalid[i] = 0;
  out.rescaled[i] = out.events[i] = 0;
  out.held[i] = static_cast<std::uint8_t>(Stabilized::none);
  out.reason[i] = static_cast<std::uint8_t>(Reason::none);
  out.error[i] = t.scale_error[i];
  const auto branch = [&](Branch which) { out.branch[i] = static_cast<std::uint8_t>(which); };
  const auto because = [&](Reason why) { out.reason[i] = static_cast<std::uint8_t>(why); };

  if (t.scale_error[i] != 0) {
    branch(Branch::no_scale);
    out.events[i] = event_failed_get_scale;
    conditions.set(i, able_to_scale, false, failed_get_scale, now);
    return;
  }
  conditions.set(i, able_to_scale, true, succeeded_get_scale, now);
  Recommendations past = histories.past.row(i);
  if (t.fresh[i]) past.store(-1, current, now);
  const bool legacy = in.settings.legacy;
  const bool leaves_zero = in.settings.scale_to_zero && !legacy && conditions.is_true(i, scaled_to_zero);
  const Branch path = branch_of(t, i, leaves_zero, legacy);
  branch(path);
  std::int32_t desired = current;
  switch (path) {
    case Branch::disabled:
      conditions.set(i, scaling_active, false, scaling_disabled, now);
      if (!in.settings.scale_to_zero && !legacy) conditions.drop(i, scaled_to_zero);
      break;
    case Branch::above_max:
      desired = t.maximum[i];
      because(Reason::above_max);
      break;
    case Branch::below_min:
      desired = minimum;
      because(Reason::below_min);
      break;
    default: {
      const auto selector = static_cast<SelectorError>(t.selector_error[i]);
      Combined metrics;
      bool failed = selector != SelectorError::none;
      if (failed) {
        out.error[i] = static_cast<std::uint8_t>(ErrorClass::internal);
        if (selector == SelectorError::ambiguous)
          conditions.set(i, scaling_active, false, ambiguous_selector, now);
        else if (selector == SelectorError::required || selector == SelectorError::invalid)
          conditions.set(i, scaling_active, false, invalid_selector, now);
        if (selector != SelectorError::deleted && selector != SelectorError::unlisted) out.events[i] |= event_selector;
      } else {
        const std::int64_t begin = t.metrics_begin[i], end = t.metrics_end[i];
        metrics = combine(in.metrics, begin, end);
        if (metrics.invalid > 0) {
          out.events[i] |= event_metric_failed;
          out.error[i] = in.metrics.error[begin + metrics.first_invalid];
        }
        failed = metrics.invalid >= end - begin || (metrics.invalid > 0 && metrics.best < current && !legacy);
        if (legacy && !failed) out.error[i] = static_cast<std::uint8_t>(ErrorClass::none);
        if (failed && metrics.invalid > 0) conditions.set(i, scaling_active, false, metric_failed, now);
      }
      out.invalid[i] = metrics.invalid;
      out.first_invalid[i] = metrics.first_invalid;
      if (failed) {
        branch(Branch::failed);
        out.events[i] |= event_failed_compute;
        histories.past.slots.size[i] = past.size;
        return;
      }
      conditions.set(i, scaling_active, true, valid_metric_found, now);
      const std::int32_t proposal = std::max(metrics.best, 0);
      out.best[i] = metrics.row;
      out.proposal[i] = proposal;
      if (proposal != current) because(proposal > current ? Reason::metric_above : Reason::all_below);
      const Normalized normal =
          t.behavior[i]
              ? normalize(current, proposal, minimum, t.maximum[i], past, in.up.row(i), in.down.row(i),
                          histories.added.row(i), histories.removed.row(i), now)
              : normalize_plain(current, proposal, minimum, t.maximum[i], past, in.settings.downscale_window, now);
      out.stabilized[i] = normal.stabilized;
      out.held[i] = static_cast<std::uint8_t>(normal.held);
      conditions.set(i, able_to_scale, true,
                     static_cast<std::uint8_t>(ready_for_new_scale + static_cast<std::uint8_t>(normal.held)), now);
      conditions.set(i, scaling_limited, normal.limited,
                     static_cast<std::uint8_t>(desired_within_range + static_cast<std::uint8_t>(normal.limit)), now);
      desired = normal.desired;
      if (current == 0 && minimum != 0 && leaves_zero && desired < minimum) {
        desired = minimum;
        if (out.reason[i] == static_cast<std::uint8_t>(Reason::none)) because(Reason::below_min);
      }
    }
  }
  histories.past.slots.size[i] = past.size;
  out.desired[i] = desired;
  // The paths to the limits always write; only the metrics path compares.
  if (path == Branch::disabled || (path == Branch::metrics && desired == current)) return;
  if (t.refused[i]) {
    out.error[i] = static_cast<std::uint8_t>(ErrorClass::internal);
    out.events[i] |= event_failed_rescale;
    conditions.set(i, able_to_scale, false, failed_update_scale, now);
    return;
  }
  out.rescaled[i] = 1;
  out.events[i] |= event_rescale;
  conditions.set(i, able_to_scale, true, succeeded_rescale, now);
  if (t.behavior[i]) {
    const bool grows = desired > current;
    const EventColumns& events = grows ? histories.added : histories.removed;
    ScaleEvents row = events.row(i);
    store_event(row, (grows ? in.up : in.down).of(i), grows ? desired - current : current - desired, now);
    events.slots.size[i] = row.size;
  }
  if (legacy) return;  // no such condition
  if (!in.settings.scale_to_zero) {
    conditions.drop(i, scaled_to_zero);
  } else {
    const bool zero = current > 0 && desired == 0 && minimum == 0 && t.object_metric[i];
    conditions.set(i, scaled_to_zero, zero, zero ? is_scaled_to_zero : not_scaled_to_zero, now);
  }
}

inline bool valid_targets(const TargetColumns& t, std::ptrdiff_t n, std::int64_t metrics) noexcept {
  for (std::ptrdiff_t i = 0; i < n; ++i)
    if (t.metrics_begin[i] < 0 || t.metrics_end[i] < t.metrics_begin[i] || t.metrics_end[i] > metrics ||
        t.selector_error[i] > static_cast<std::uint8_t>(SelectorError::ambiguous) || t.scale_error[i] > 2)
      return false;
  return true;
}

inline void decide_rows(const DecideInput& in, std::ptrdiff_t n, const Histories& histories,
                        const ConditionColumns& conditions, std::ptrdiff_t threads, const DecisionColumns& out) {
  parallel_for(n, threads, [&in, &histories, &conditions, &out](std::ptrdiff_t begin, std::ptrdiff_t end) {
    for (std::ptrdiff_t i = begin; i < end; ++i) decide_row(in, i, histories, conditions, out);
  });
}

}  // namespace kscale::hpa
