"""One reconcile, slow and obvious: what is written, what is said, what is remembered, by names."""

from __future__ import annotations

from dataclasses import dataclass, field

from reference import hpa_behavior as behavior

Condition = tuple[bool, str, int]  # (status, reason, since)


@dataclass
class Target:
    """What is known of one HPA; ``metrics``: (proposal, error class) of each; ``rules`` None: without a behavior."""

    scale_error: str
    current: int
    minimum: int
    maximum: int
    object_metric: bool
    rules: tuple[behavior.Rules, behavior.Rules] | None
    selector_error: str
    refused: bool
    metrics: list[tuple[int, str]]


@dataclass
class Memory:
    """What is remembered; ``past`` None: never reconciled."""

    past: list[behavior.Recommendation] | None
    added: list[behavior.Event]
    removed: list[behavior.Event]
    conditions: dict[str, Condition]


@dataclass
class Decision:
    """What came of it."""

    branch: str
    desired: int
    error: str = "none"
    proposal: int | None = None
    stabilized: int | None = None
    best: int = -1
    invalid: int = 0
    first_invalid: int = -1
    rescaled: bool = False
    reason: str = "none"
    events: set[str] = field(default_factory=set)


def decide(target: Target, memory: Memory, now: int, window: int, *, to_zero: bool, legacy: bool) -> Decision:
    """Changes ``memory``."""
    conditions = memory.conditions

    def tell(type_: str, status: bool, reason: str) -> None:
        old = conditions.get(type_)
        since = old[2] if old is not None and old[0] == status else now
        conditions[type_] = (status, reason, since)

    current, minimum = target.current, target.minimum
    if target.scale_error != "none":
        tell("AbleToScale", False, "FailedGetScale")
        return Decision("no_scale", current, target.scale_error, events={"FailedGetScale"})
    tell("AbleToScale", True, "SucceededGetScale")
    if memory.past is None:
        memory.past = [(current, now)]
    by_itself = to_zero and not legacy and "ScaledToZero" in conditions and conditions["ScaledToZero"][0]
    may_leave = minimum == 0 if legacy else by_itself and (minimum != 0 or target.object_metric)
    if current == 0 and not may_leave:
        tell("ScalingActive", False, "ScalingDisabled")
        if not to_zero and not legacy:
            conditions.pop("ScaledToZero", None)
        return Decision("disabled", 0)
    if current != 0 and current > target.maximum:
        out = Decision("above_max", target.maximum, reason="above_max")
    elif current != 0 and current < minimum:
        out = Decision("below_min", minimum, reason="below_min")
    else:
        out = by_metrics(target, memory, now, window, by_itself, legacy, tell)
        if out.branch == "failed" or out.desired == current:
            return out
    if target.refused:
        out.error = "internal"
        out.events.add("FailedRescale")
        tell("AbleToScale", False, "FailedUpdateScale")
        return out
    out.rescaled = True
    out.events.add("SuccessfulRescale")
    tell("AbleToScale", True, "SucceededRescale")
    if target.rules is not None:
        grows = out.desired > current
        events, rules = (memory.added, target.rules[0]) if grows else (memory.removed, target.rules[1])
        behavior.store_event(events, rules[2], abs(out.desired - current), now)
    if not legacy and not to_zero:
        conditions.pop("ScaledToZero", None)
    elif not legacy:
        zero = current > 0 and out.desired == 0 and minimum == 0 and target.object_metric
        tell("ScaledToZero", zero, "ScaledToZero" if zero else "NotScaledToZero")
    return out


def by_metrics(target, memory, now, window, by_itself, legacy, tell):
    current, minimum = target.current, target.minimum
    out = Decision("metrics", current)
    if target.selector_error != "none":
        out.branch, out.error, out.events = "failed", "internal", {"FailedComputeMetricsReplicas"}
        if target.selector_error == "ambiguous":
            tell("ScalingActive", False, "AmbiguousSelector")
        elif target.selector_error in ("required", "invalid"):
            tell("ScalingActive", False, "InvalidSelector")
        if target.selector_error in ("ambiguous", "required", "invalid"):
            out.events.add("selector")
        return out
    largest = 0
    for i, (proposal, error) in enumerate(target.metrics):
        if error != "none":
            out.invalid += 1
            if out.first_invalid < 0:
                out.first_invalid, out.error = i, error
        elif largest == 0 or proposal > largest:
            largest, out.best = proposal, i
    if out.invalid:
        out.events.add("metric")
    all_failed = out.invalid >= len(target.metrics)
    if all_failed or (out.invalid and largest < current and not legacy):
        out.branch, out.best = "failed", -1
        out.events.add("FailedComputeMetricsReplicas")
        if out.invalid:
            tell("ScalingActive", False, "MetricFailed")
        return out
    if legacy:
        out.error = "none"
    tell("ScalingActive", True, "ValidMetricFound")
    out.proposal = max(largest, 0)
    if out.proposal != current:
        out.reason = "metric_above" if out.proposal > current else "all_below"
    if target.rules is None:
        out.stabilized = behavior.stabilize_plain(out.proposal, memory.past, window, now)
        out.desired, limit = behavior.limit_plain(current, out.stabilized, minimum, target.maximum)
        limited_by = "ScaleDownStabilized"
    else:
        up, down = target.rules
        out.stabilized = behavior.stabilize(current, out.proposal, memory.past, up[1], down[1], now)
        out.desired, limit = behavior.limit(
            current, out.stabilized, minimum, target.maximum, up, down, memory.added, memory.removed, now
        )
        limited_by = "ScaleDownStabilized" if out.stabilized > out.proposal else "ScaleUpStabilized"
    out.limited_by = "ReadyForNewScale" if out.stabilized == out.proposal else limited_by
    tell("AbleToScale", True, out.limited_by)
    tell("ScalingLimited", limit != "DesiredWithinRange", limit)
    if current == 0 and minimum != 0 and by_itself and out.desired < minimum:
        out.desired = minimum
        if out.reason == "none":
            out.reason = "below_min"
    return out
