"""The lines that upstream logs about a loop, built from its report.

Upstream: the klog calls in ``core/static_autoscaler.go``, ``core/scaleup/orchestrator/orchestrator.go``,
``core/scaledown/eligibility/eligibility.go`` and ``core/scaledown/unneeded/nodes.go``; of release 1.3 the glog calls
in ``core/static_autoscaler.go``, ``core/scale_up.go`` and ``core/scale_down.go``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from kscale.ca import unremovable_reasons
from kscale.ca.node_group_set import ScaleUpInfo
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.eligibility import Eligibility
from kscale.ca.scale_down.plan import ScaleDownPlan
from kscale.ca.scale_up.plan import ScaleUpPlan
from kscale.ca.scale_up_status import (
    SCALE_UP_IN_COOLDOWN,
    SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL,
    SCALE_UP_NO_OPTIONS_AVAILABLE,
    SCALE_UP_NOT_NEEDED,
)
from kscale.ca.static_autoscaler.report import LoopReport
from kscale.ca.status_config_map import format_go_time
from kscale.effects import ZERO_TIME, Moment, duration
from kscale.objects.go_numbers import format_fixed
from kscale.objects.times import format_duration

if TYPE_CHECKING:
    from kscale.ca.legacy.scale_up_loop import LegacyScaleUpPlan

__all__ = ["LogLine", "build_log_lines"]

_MAX_UTILIZATION_LINES: Final = 20
_INFO_LEVEL: Final = "info"
_DETAIL_LEVEL: Final = "detail"


class LogLine(NamedTuple):
    """A log line. ``level``: ``detail`` for lines that upstream logs with ``-v=4`` or more, ``info`` for others."""

    level: Literal["info", "detail"]
    text: str


def build_log_lines(
    report: LoopReport, options: AutoscalingOptions, now: Moment, *, details: bool
) -> Iterator[LogLine]:
    """Yield what upstream logs about a loop that ran at ``now``, in its order; ``details``: with the lines of ``-v=4``.

    Errors, early ends and warnings are not among them: the report has them.
    """
    lines = _iterate_lines(report, options, now)
    return lines if details else (line for line in lines if line.level != _DETAIL_LEVEL)


def _iterate_lines(report: LoopReport, options: AutoscalingOptions, now: Moment) -> Iterator[LogLine]:
    """Yield the log lines of a loop, in upstream's order."""
    if report.scale_up is not None:
        yield from _log_scale_up(report.scale_up, options)
    if report.scale_down is not None:
        yield from _log_scale_down(report.scale_down, report, options, now)


# -- scale-up --------------------------------------------------------------------------------------------------------


def _log_scale_up(plan: ScaleUpPlan, options: AutoscalingOptions) -> Iterator[LogLine]:
    """Yield the log lines of a scale-up."""
    legacy_plan = _get_legacy_plan(plan, options)
    if legacy_plan is not None:
        if legacy_plan.placed:
            yield LogLine(_INFO_LEVEL, "Schedulable pods present")
        else:
            yield LogLine(_DETAIL_LEVEL, "No schedulable pods")
    if plan.result == SCALE_UP_NOT_NEEDED:
        yield LogLine(_INFO_LEVEL, "No unschedulable pods")
    elif plan.result == SCALE_UP_IN_COOLDOWN:
        yield LogLine(_INFO_LEVEL, "Unschedulable pods are very new, waiting one iteration for more")
    elif plan.result != SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL:
        yield LogLine(_DETAIL_LEVEL, f"Upcoming {sum(plan.upcoming.values())} nodes")
        yield from _log_choice(plan, legacy_plan)


def _get_legacy_plan(plan: ScaleUpPlan, options: AutoscalingOptions) -> LegacyScaleUpPlan | None:
    """Return ``plan`` if it is a plan of release 1.3, otherwise None."""
    if not options.legacy:
        return None
    from kscale.ca.legacy.scale_up_loop import LegacyScaleUpPlan

    return plan if isinstance(plan, LegacyScaleUpPlan) else None


def _log_choice(plan: ScaleUpPlan, legacy_plan: LegacyScaleUpPlan | None) -> Iterator[LogLine]:
    """Yield the log lines about the chosen group and its new size."""
    if legacy_plan is not None:
        done = legacy_plan.done
        if done is None:
            return
        for text in done.left_out.values():
            yield LogLine(_DETAIL_LEVEL, text)
        best = None if done.best is None else (done.best.group, done.best.node_count, done.best.debug)
        yield from _log_best_option(best, done.sharing, done.plan, bool(done.options))
        return
    for each in plan.rounds:
        best = None if each.best is None else (each.best.group, each.best.node_count, "")
        yield from _log_best_option(best, each.sharing, each.status.scale_ups, bool(each.options))
    if not plan.rounds and plan.result == SCALE_UP_NO_OPTIONS_AVAILABLE:
        yield LogLine(_INFO_LEVEL, "No expansion options")


def _log_best_option(
    best: tuple[str, int, str] | None, sharing: Sequence[str], plan: Sequence[ScaleUpInfo], had_options: bool
) -> Iterator[LogLine]:
    """Yield the lines about a choice. ``best``: (group, node count, debug text), None if no option was chosen.

    ``sharing``: groups among which the nodes are split; ``plan``: the resizes; ``had_options``: there was an option.
    """
    if best is None:
        if not had_options:
            yield LogLine(_INFO_LEVEL, "No expansion options")
        return
    group, count, debug = best
    yield LogLine(_INFO_LEVEL, f"Best option to resize: {group}")
    if debug:
        yield LogLine(_INFO_LEVEL, debug)
    yield LogLine(_INFO_LEVEL, f"Estimated {count} nodes needed in {group}")
    if len(sharing) > 1:
        yield LogLine(
            _INFO_LEVEL, f"Splitting scale-up between {len(sharing)} similar node groups: {{{', '.join(sharing)}}}"
        )
    if plan:
        yield LogLine(_INFO_LEVEL, f"Final scale-up plan: [{' '.join(map(str, plan))}]")
    for info in plan:
        yield LogLine(_INFO_LEVEL, f"Scale-up: setting group {info.group} size to {info.new}")


# -- scale-down ------------------------------------------------------------------------------------------------------


def _log_scale_down(
    plan: ScaleDownPlan, report: LoopReport, options: AutoscalingOptions, now: Moment
) -> Iterator[LogLine]:
    """Yield the log lines of a scale-down."""
    yield LogLine(_DETAIL_LEVEL, "Calculating unneeded nodes")
    yield from (_log_legacy_candidates if options.legacy else _log_candidates)(plan, options)
    for each in plan.unneeded:
        waited = format_duration(now - each.since)
        yield LogLine(_DETAIL_LEVEL, f"{each.name} is unneeded since {format_go_time(each.since)} duration {waited}")
    yield LogLine(_DETAIL_LEVEL, _format_scale_down_status(plan, report, options))
    if plan.chosen is None:
        return
    yield LogLine(_DETAIL_LEVEL, "Starting scale down")
    for each in plan.unneeded:
        yield LogLine(_INFO_LEVEL, f"{each.name} was unneeded for {format_duration(now - each.since)}")
    if not options.legacy:
        return
    if plan.result == "ScaleDownNoUnneeded":
        yield LogLine(_INFO_LEVEL, "No candidates for scale down")
    elif plan.result == "ScaleDownNoNodeDeleted":
        yield LogLine(_INFO_LEVEL, "No node to remove")
    for name in plan.chosen.empty:
        yield LogLine(_INFO_LEVEL, f"Scale-down: removing empty node {name}")


def _format_scale_down_status(plan: ScaleDownPlan, report: LoopReport, options: AutoscalingOptions) -> str:
    """Format upstream's summary of the scale-down's cooldowns and deletions."""
    memory = plan.state.scale_down
    up, down, failure = (
        format_go_time(ZERO_TIME if at is None else at)
        for at in (memory.last_scale_up, memory.last_scale_down, memory.last_failure)
    )
    forbidden = _format_go_bool(report.scale_up is not None and report.scale_up.scale_down_disabled)
    if options.legacy:
        only = _format_go_bool(plan.chosen is None)
        in_progress = _format_go_bool(report.deletions_under_way)
        return (
            f"Scale down status: unneededOnly={only} lastScaleUpTime={up} lastScaleDownDeleteTime={down} "
            f"lastScaleDownFailTime={failure} scaleDownForbidden={forbidden} isDeleteInProgress={in_progress}"
        )
    cooldown = _format_go_bool(plan.result == "ScaleDownInCooldown")
    return (
        f"Scale down status: lastScaleUpTime={up} lastScaleDownDeleteTime={down} lastScaleDownFailTime={failure} "
        f"scaleDownForbidden={forbidden} scaleDownInCooldown={cooldown}"
    )


def _log_candidates(plan: ScaleDownPlan, options: AutoscalingOptions) -> Iterator[LogLine]:
    """Yield the lines about the utilization and removability of candidates."""
    fit = 0
    for name, verdict in plan.eligibility.items():
        used = verdict.utilization
        share = "" if used is None else f"{used.resource_name} requested"
        percent = "" if used is None else f"{used.utilization * 100:.6g}%"
        if verdict.reason == unremovable_reasons.NOT_UNDERUTILIZED and used is not None:
            text = f"({percent} of allocatable) is above the scale-down utilization threshold"
            yield LogLine(_DETAIL_LEVEL, f"Node {name} unremovable: {share} {text}")
        elif verdict.eligible and used is not None:
            fit += 1
            if fit <= _MAX_UTILIZATION_LINES:
                yield LogLine(_DETAIL_LEVEL, f"Node {name} - {share} is {percent} of allocatable")
        elif verdict.reason == unremovable_reasons.CURRENTLY_BEING_DELETED:
            yield LogLine(
                _INFO_LEVEL, f"Skipping {name} from delete consideration - the node is currently being deleted"
            )
        elif verdict.reason == unremovable_reasons.SCALE_DOWN_DISABLED_ANNOTATION:
            yield LogLine(
                _INFO_LEVEL, f"Skipping {name} from delete consideration - the node is marked as no scale down"
            )
        elif verdict.reason == unremovable_reasons.SCALE_DOWN_UNREADY_DISABLED:
            text = "from delete consideration - scale-down of unready nodes is disabled"
            yield LogLine(_DETAIL_LEVEL, f"Skipping unready node {name} {text}")
    if fit > _MAX_UTILIZATION_LINES:
        yield LogLine(_DETAIL_LEVEL, f"Skipped logging utilization for {fit - _MAX_UTILIZATION_LINES} other nodes")
    interval = format_duration(duration(options.unremovable_node_recheck_timeout))
    yield from _log_rechecks(plan.eligibility.values(), interval)


def _log_legacy_candidates(plan: ScaleDownPlan, options: AutoscalingOptions) -> Iterator[LogLine]:
    """Yield the lines of release 1.3 about each node that was checked as a candidate for removal."""
    del options
    for name, verdict in plan.eligibility.items():
        if verdict.reason == unremovable_reasons.CURRENTLY_BEING_DELETED:
            yield LogLine(
                _INFO_LEVEL, f"Skipping {name} from delete considerations - the node is currently being deleted"
            )
        elif verdict.reason == unremovable_reasons.SCALE_DOWN_DISABLED_ANNOTATION:
            yield LogLine(
                _INFO_LEVEL, f"Skipping {name} from delete consideration - the node is marked as no scale down"
            )
        elif verdict.utilization is not None:
            share = format_fixed(verdict.utilization.utilization)
            yield LogLine(_DETAIL_LEVEL, f"Node {name} - utilization {share}")
            if verdict.reason == unremovable_reasons.NOT_UNDERUTILIZED:
                yield LogLine(_DETAIL_LEVEL, f"Node {name} is not suitable for removal - utilization too big ({share})")
    yield from _log_rechecks(plan.eligibility.values(), "5m0s")


def _log_rechecks(verdicts: Iterable[Eligibility], interval: str) -> Iterator[LogLine]:
    """Yield a line with the number of recently unremovable nodes, if there are any.

    ``interval``: formatted recheck timeout.
    """
    ignored = sum(verdict.reason == unremovable_reasons.RECENTLY_UNREMOVABLE for verdict in verdicts)
    if ignored:
        text = f"Scale-down calculation: ignoring {ignored} nodes unremovable in the last {interval}"
        yield LogLine(_INFO_LEVEL, text)


def _format_go_bool(value: bool) -> str:
    """Format a boolean as Go prints it."""
    return "true" if value else "false"
