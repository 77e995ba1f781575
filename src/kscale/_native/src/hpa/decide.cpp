#include "kscale/hpa/decide.hpp"

#include <algorithm>

#include "kscale/parallel.hpp"

namespace kscale::hpa {
namespace {

// The largest proposal; while it is 0, every later one replaces it.
Combined combine(const ProposalColumns& metrics, std::int64_t begin, std::int64_t end) noexcept {
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

}  // namespace

Branch branch_of(const TargetColumns& t, std::ptrdiff_t i, bool may_leave_zero, bool legacy) noexcept {
  const std::int32_t current = t.current[i];
  if (current == 0) {
    const bool goes_on = legacy ? t.minimum[i] == 0 : may_leave_zero && (t.minimum[i] != 0 || t.object_metric[i]);
    return goes_on ? Branch::metrics : Branch::disabled;
  }
  if (current > t.maximum[i]) return Branch::above_max;
  if (current < t.minimum[i]) return Branch::below_min;
  return Branch::metrics;
}

void decide_row(const DecideInput& in, std::ptrdiff_t i, const Histories& histories,
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
  // The branches above_max and below_min always write; the metrics branch writes only a change.
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

bool valid_targets(const TargetColumns& t, std::ptrdiff_t n, std::int64_t metrics) noexcept {
  for (std::ptrdiff_t i = 0; i < n; ++i)
    if (t.metrics_begin[i] < 0 || t.metrics_end[i] < t.metrics_begin[i] || t.metrics_end[i] > metrics ||
        t.selector_error[i] > static_cast<std::uint8_t>(SelectorError::ambiguous) || t.scale_error[i] > 2)
      return false;
  return true;
}

void decide_rows(const DecideInput& in, std::ptrdiff_t n, const Histories& histories,
                 const ConditionColumns& conditions, std::ptrdiff_t threads, const DecisionColumns& out) {
  parallel_for(n, threads, [&in, &histories, &conditions, &out](std::ptrdiff_t begin, std::ptrdiff_t end) {
    for (std::ptrdiff_t i = begin; i < end; ++i) decide_row(in, i, histories, conditions, out);
  });
}

}  // namespace kscale::hpa
