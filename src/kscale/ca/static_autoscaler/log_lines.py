"""The lines that upstream logs about a loop, made from its report.

Upstream: the calls of klog in ``core/static_autoscaler.go``, ``core/scaleup/orchestrator/orchestrator.go``,
``core/scaledown/eligibility/eligibility.go`` and ``core/scaledown/unneeded/nodes.go``; of release 1.3 those of glog in
``core/static_autoscaler.go``, ``core/scale_up.go`` and ``core/scale_down.go``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

from kscale.ca.balancing import ScaleUpInfo
from kscale.ca.go_math import format_fixed
from kscale.ca.legacy.scale_up_loop import LegacyScaleUpPlan
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down import reasons
from kscale.ca.scale_down.eligibility import Eligibility
from kscale.ca.scale_down.plan import ScaleDownPlan
from kscale.ca.scale_up.plan import ScaleUpPlan
from kscale.ca.scale_up.status import IN_COOLDOWN, LIMITED_BY_MAX_NODES_TOTAL, NO_OPTIONS_AVAILABLE, NOT_NEEDED
from kscale.ca.static_autoscaler.report import LoopReport
from kscale.ca.status_config_map import time_text
from kscale.effects import ZERO_TIME, Moment, duration
from kscale.objects.durations import format_duration

__all__ = ["LogLine", "log_lines"]

_UTILIZATION_LINES: Final = 20
_INFO: Final = "info"
_DETAIL: Final = "detail"


class LogLine(NamedTuple):
    """One line. ``level``: ``detail`` is what upstream logs from ``-v=4`` on, ``info`` what it logs below that."""

    level: Literal["info", "detail"]
    text: str


def log_lines(report: LoopReport, options: AutoscalingOptions, now: Moment, *, details: bool) -> Iterator[LogLine]:
    """Yield what upstream logs about a loop that ran at ``now``, in its order; ``details``: with the lines of ``-v=4``.

    Errors, early ends and warnings are not among them: the report has them.
    """
    lines = _lines(report, options, now)
    return lines if details else (line for line in lines if line.level != _DETAIL)


def _lines(report: LoopReport, options: AutoscalingOptions, now: Moment) -> Iterator[LogLine]:
    if report.scale_up is not None:
        yield from _of_scale_up(report.scale_up)
    if report.scale_down is not None:
        yield from _of_scale_down(report.scale_down, report, options, now)


# -- scale-up --------------------------------------------------------------------------------------------------------


def _of_scale_up(plan: ScaleUpPlan) -> Iterator[LogLine]:
    if isinstance(plan, LegacyScaleUpPlan):
        if plan.existing:
            yield LogLine(_INFO, "Schedulable pods present")
        else:
            yield LogLine(_DETAIL, "No schedulable pods")
    if plan.result == NOT_NEEDED:
        yield LogLine(_INFO, "No unschedulable pods")
    elif plan.result == IN_COOLDOWN:
        yield LogLine(_INFO, "Unschedulable pods are very new, waiting one iteration for more")
    elif plan.result != LIMITED_BY_MAX_NODES_TOTAL:
        yield LogLine(_DETAIL, f"Upcoming {sum(plan.upcoming.values())} nodes")
        yield from _of_choice(plan)


def _of_choice(plan: ScaleUpPlan) -> Iterator[LogLine]:
    if isinstance(plan, LegacyScaleUpPlan):
        done = plan.done
        if done is None:
            return
        for text in done.left_out.values():
            yield LogLine(_DETAIL, text)
        best = None if done.best is None else (done.best.group, done.best.node_count, done.best.debug)
        yield from _of_best(best, done.sharing, done.plan, bool(done.options))
        return
    for each in plan.rounds:
        best = None if each.best is None else (each.best.group, each.best.node_count, "")
        yield from _of_best(best, each.sharing, each.status.scale_ups, bool(each.options))
    if not plan.rounds and plan.result == NO_OPTIONS_AVAILABLE:
        yield LogLine(_INFO, "No expansion options")


def _of_best(
    best: tuple[str, int, str] | None, sharing: Sequence[str], plan: Sequence[ScaleUpInfo], had_options: bool
) -> Iterator[LogLine]:
    if best is None:
        if not had_options:
            yield LogLine(_INFO, "No expansion options")
        return
    group, count, debug = best
    yield LogLine(_INFO, f"Best option to resize: {group}")
    if debug:
        yield LogLine(_INFO, debug)
    yield LogLine(_INFO, f"Estimated {count} nodes needed in {group}")
    if len(sharing) > 1:
        yield LogLine(_INFO, f"Splitting scale-up between {len(sharing)} similar node groups: {{{', '.join(sharing)}}}")
    if plan:
        yield LogLine(_INFO, f"Final scale-up plan: [{' '.join(map(str, plan))}]")
    for info in plan:
        yield LogLine(_INFO, f"Scale-up: setting group {info.group} size to {info.new}")


# -- scale-down ------------------------------------------------------------------------------------------------------


def _of_scale_down(
    plan: ScaleDownPlan, report: LoopReport, options: AutoscalingOptions, now: Moment
) -> Iterator[LogLine]:
    yield LogLine(_DETAIL, "Calculating unneeded nodes")
    yield from (_of_candidates_1_3 if options.legacy else _of_candidates)(plan, options)
    for each in plan.unneeded:
        waited = format_duration(now - each.since)
        yield LogLine(_DETAIL, f"{each.name} is unneeded since {time_text(each.since)} duration {waited}")
    yield LogLine(_DETAIL, _status(plan, report, options))
    if plan.chosen is None:
        return
    yield LogLine(_DETAIL, "Starting scale down")
    for each in plan.unneeded:
        yield LogLine(_INFO, f"{each.name} was unneeded for {format_duration(now - each.since)}")
    if not options.legacy:
        return
    if plan.result == "ScaleDownNoUnneeded":
        yield LogLine(_INFO, "No candidates for scale down")
    elif plan.result == "ScaleDownNoNodeDeleted":
        yield LogLine(_INFO, "No node to remove")
    for name in plan.chosen.empty:
        yield LogLine(_INFO, f"Scale-down: removing empty node {name}")


def _status(plan: ScaleDownPlan, report: LoopReport, options: AutoscalingOptions) -> str:
    memory = plan.state.scale_down
    up, down, failure = (
        time_text(ZERO_TIME if at is None else at)
        for at in (memory.last_scale_up, memory.last_scale_down, memory.last_failure)
    )
    forbidden = _go_bool(report.scale_up is not None and report.scale_up.scale_down_disabled)
    if options.legacy:
        only = _go_bool(plan.chosen is None)
        going = _go_bool(report.deletions_under_way)
        return (
            f"Scale down status: unneededOnly={only} lastScaleUpTime={up} lastScaleDownDeleteTime={down} "
            f"lastScaleDownFailTime={failure} scaleDownForbidden={forbidden} isDeleteInProgress={going}"
        )
    cooldown = _go_bool(plan.result == "ScaleDownInCooldown")
    return (
        f"Scale down status: lastScaleUpTime={up} lastScaleDownDeleteTime={down} lastScaleDownFailTime={failure} "
        f"scaleDownForbidden={forbidden} scaleDownInCooldown={cooldown}"
    )


def _of_candidates(plan: ScaleDownPlan, options: AutoscalingOptions) -> Iterator[LogLine]:
    fit = 0
    for name, verdict in plan.eligibility.items():
        used = verdict.utilization
        share = "" if used is None else f"{used.resource_name} requested"
        percent = "" if used is None else f"{used.utilization * 100:.6g}%"
        if verdict.reason == reasons.NOT_UNDERUTILIZED and used is not None:
            text = f"({percent} of allocatable) is above the scale-down utilization threshold"
            yield LogLine(_DETAIL, f"Node {name} unremovable: {share} {text}")
        elif verdict.eligible and used is not None:
            fit += 1
            if fit <= _UTILIZATION_LINES:
                yield LogLine(_DETAIL, f"Node {name} - {share} is {percent} of allocatable")
        elif verdict.reason == reasons.CURRENTLY_BEING_DELETED:
            yield LogLine(_INFO, f"Skipping {name} from delete consideration - the node is currently being deleted")
        elif verdict.reason == reasons.SCALE_DOWN_DISABLED_ANNOTATION:
            yield LogLine(_INFO, f"Skipping {name} from delete consideration - the node is marked as no scale down")
        elif verdict.reason == reasons.SCALE_DOWN_UNREADY_DISABLED:
            text = "from delete consideration - scale-down of unready nodes is disabled"
            yield LogLine(_DETAIL, f"Skipping unready node {name} {text}")
    if fit > _UTILIZATION_LINES:
        yield LogLine(_DETAIL, f"Skipped logging utilization for {fit - _UTILIZATION_LINES} other nodes")
    interval = format_duration(duration(options.unremovable_node_recheck_timeout))
    yield from _of_rechecks(plan.eligibility.values(), interval)


def _of_candidates_1_3(plan: ScaleDownPlan, options: AutoscalingOptions) -> Iterator[LogLine]:
    del options
    for name, verdict in plan.eligibility.items():
        if verdict.reason == reasons.CURRENTLY_BEING_DELETED:
            yield LogLine(_INFO, f"Skipping {name} from delete considerations - the node is currently being deleted")
        elif verdict.reason == reasons.SCALE_DOWN_DISABLED_ANNOTATION:
            yield LogLine(_INFO, f"Skipping {name} from delete consideration - the node is marked as no scale down")
        elif verdict.utilization is not None:
            share = format_fixed(verdict.utilization.utilization)
            yield LogLine(_DETAIL, f"Node {name} - utilization {share}")
            if verdict.reason == reasons.NOT_UNDERUTILIZED:
                yield LogLine(_DETAIL, f"Node {name} is not suitable for removal - utilization too big ({share})")
    yield from _of_rechecks(plan.eligibility.values(), "5m0s")


def _of_rechecks(verdicts: Iterable[Eligibility], interval: str) -> Iterator[LogLine]:
    ignored = sum(verdict.reason == reasons.RECENTLY_UNREMOVABLE for verdict in verdicts)
    if ignored:
        text = f"Scale-down calculation: ignoring {ignored} nodes unremovable in the last {interval}"
        yield LogLine(_INFO, text)


def _go_bool(value: bool) -> str:
    return "true" if value else "false"
