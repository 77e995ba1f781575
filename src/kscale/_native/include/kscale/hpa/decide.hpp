#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kscale/hpa/behavior_batch.hpp"

// One reconcile over columns: the order of kscale/hpa/controller/reconcile.py, with codes instead of texts. A write
// succeeds or is refused permanently. Tests compare the two.
namespace kscale::hpa {

enum class Branch : std::uint8_t { no_scale, disabled, above_max, below_min, metrics, failed };
enum class Reason : std::uint8_t { none, above_max, below_min, metric_above, all_below };

// Condition types, in the order of the columns.
enum Condition : std::uint8_t { able_to_scale, scaling_active, scaling_limited, scaled_to_zero };
inline constexpr std::ptrdiff_t kConditions = 4;
enum Status : std::uint8_t { status_absent, status_true, status_false, status_other };

// Condition reasons; those of stabilization and of limits have the order of their own codes.
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
  metric_failed,  // the reason is that of the first failing metric
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
  const std::uint8_t* refused;  // a write of the scale fails permanently
  const std::uint8_t* fresh;    // never reconciled
  const std::int64_t* metrics_begin;
  const std::int64_t* metrics_end;
};

// One row per metric.
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
  std::int32_t* best;     // row of the deciding metric among the HPA's metrics, -1: none
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

// `legacy`: decide as Kubernetes 1.18 to 1.20 did.
struct Settings {
  std::int64_t now;
  std::int64_t downscale_window;  // for scaling down HPAs without a behavior
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

Branch branch_of(const TargetColumns& t, std::ptrdiff_t i, bool may_leave_zero, bool legacy) noexcept;

void decide_row(const DecideInput& in, std::ptrdiff_t i, const Histories& histories,
                const ConditionColumns& conditions, const DecisionColumns& out) noexcept;

bool valid_targets(const TargetColumns& t, std::ptrdiff_t n, std::int64_t metrics) noexcept;

void decide_rows(const DecideInput& in, std::ptrdiff_t n, const Histories& histories,
                 const ConditionColumns& conditions, std::ptrdiff_t threads, const DecisionColumns& out);

}  // namespace kscale::hpa
