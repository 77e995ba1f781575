"""Carrying out a plan (``core/scaleup/orchestrator/executor.go``)."""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import partial

import msgspec

from kscale.ca.backoff import ScaleUpError
from kscale.ca.balancing import ScaleUpInfo
from kscale.ca.cluster_state import ClusterStateRegistry, register_failed_scale_up, register_scale_up
from kscale.ca.errors import CLOUD_PROVIDER_ERROR, INTERNAL_ERROR, AutoscalerError, combine
from kscale.ca.event_subjects import status_event
from kscale.ca.options import AutoscalingOptions
from kscale.effects import Emit, Event, IncreaseSize, Moment, Progress, StepsOf, Together
from kscale.objects.nodegroup import NodeGroup, is_not_implemented
from kscale.objects.nodegroups import Groups

__all__ = ["Executing", "Execution", "execute_steps"]

Executing = IncreaseSize | Together | Emit
"""What carrying out a plan asks for: the sizes, one after the other or (``--parallel-scale-up``) together."""


class Execution(msgspec.Struct, kw_only=True):
    """What came of it: the error if any, the groups that were not resized, those that were (with when), and the cluster
    state after."""

    error: AutoscalerError | None
    failed_groups: list[str]
    resized: list[tuple[ScaleUpInfo, Moment]] = []
    state: ClusterStateRegistry


class _Resize(msgspec.Struct, frozen=True):
    """What became of one line of the plan, and when: ``failure`` is what counts for the group's back-off."""

    info: ScaleUpInfo
    at: Moment
    failure: AutoscalerError | None = None
    error: AutoscalerError | None = None


class _How(msgspec.Struct, frozen=True):
    """What holds for every line of a plan."""

    options: AutoscalingOptions
    atomic: bool
    release_1_3: bool


def execute_steps(
    p: Progress,
    plan: Sequence[ScaleUpInfo],
    groups: Groups,
    state: ClusterStateRegistry,
    *,
    options: AutoscalingOptions,
    atomic: bool = False,
    known_templates: Container[str] | None = None,
    release_1_3: bool = False,
) -> StepsOf[Executing, Execution]:
    """Yields an :class:`~kscale.effects.IncreaseSize` for each line of the plan.

    One after the other, the first error ends it; with ``parallel_scale_up`` all go out together, and errors are
    combined. A provider that cannot do it atomically (``Not implemented``) is asked again. Increases are registered in
    the state when they were done; failures put the group in back-off if the state knew a template of it
    (``known_templates``; None: of all groups). ``release_1_3``: one event for each group, after it grew, as that
    release had it.
    """
    how = _How(options, atomic, release_1_3)
    if options.parallel_scale_up:
        names = [info.group for info in plan]
        twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
        if twice is not None:
            error = AutoscalerError(INTERNAL_ERROR, f"assertion failure: detected group double scaling: {twice}")
            return Execution(error=error, failed_groups=names, state=state)
        done: list[_Resize] = yield from p.together(
            [partial(_beside, info, groups.get(info.group), how) for info in plan]
        )
    else:
        done = []
        for info in plan:
            done.append((yield from _resize(p, info, groups.get(info.group), how)))
            if done[-1].error is not None:
                break
    for each in done:
        state = _registered(state, each, groups.get(each.info.group), options, known_templates)
    return Execution(
        error=combine(each.error for each in done if each.error is not None),
        failed_groups=[each.info.group for each in done if each.error is not None],
        resized=[(each.info, each.at) for each in done if each.error is None],
        state=state,
    )


def _beside(
    info: ScaleUpInfo, group: NodeGroup | None, how: _How, now: Moment
) -> StepsOf[IncreaseSize | Emit, _Resize]:
    return _resize(Progress(now), info, group, how)


def _resize(
    p: Progress, info: ScaleUpInfo, group: NodeGroup | None, how: _How
) -> StepsOf[IncreaseSize | Emit, _Resize]:
    def say(kind: str, reason: str, message: str) -> Event:
        return status_event(how.options, kind, reason, message)

    sizes = f"{info.new} instead of {info.current} (max: {info.max})"
    if not how.release_1_3:
        yield from p.emit(say("Normal", "ScaledUpGroup", f"Scale-up: setting group {info.group} size to {sizes}"))
    delta = info.new - info.current
    refusal = (yield from p.act(IncreaseSize(group=info.group, delta=delta, atomic=how.atomic))).error
    if how.atomic and refusal is not None and is_not_implemented(refusal.message):
        refusal = (yield from p.act(IncreaseSize(group=info.group, delta=delta))).error
    if refusal is not None:
        text = f"Scale-up failed for group {info.group}: {refusal.message}"
        yield from p.emit(say("Warning", "FailedToScaleUpGroup", text))
        text = f"failed to increase node group size: {refusal.message}"
        failure = AutoscalerError(refusal.reason or CLOUD_PROVIDER_ERROR, text)
        return _Resize(info, p.now, failure=failure, error=failure)
    if delta < 0:
        text = f"increase in number of nodes cannot be negative, got: {delta}"
        return _Resize(info, p.now, error=AutoscalerError(INTERNAL_ERROR, text))
    if how.release_1_3:
        yield from p.emit(say("Normal", "ScaledUpGroup", f"Scale-up: group {info.group} size set to {info.new}"))
    elif _counts(group):
        yield from p.emit(say("Normal", "ScaledUpGroup", f"Scale-up: group {info.group} size set to {sizes}"))
    return _Resize(info, p.now)


def _counts(group: NodeGroup | None) -> bool:
    """Whether nodes of the group are on their way now; one that is still being made only notes its size."""
    return group is not None and (group.exists or not group.upcoming)


def _registered(
    state: ClusterStateRegistry,
    done: _Resize,
    group: NodeGroup | None,
    options: AutoscalingOptions,
    known_templates: Container[str] | None,
) -> ClusterStateRegistry:
    delta = done.info.new - done.info.current
    if done.failure is not None:
        return register_failed_scale_up(
            state,
            done.info.group,
            ScaleUpError(class_="Other", code=done.failure.type, message=done.failure.message),
            delta,
            done.at,
            options,
            has_template=known_templates is None or done.info.group in known_templates,
        )
    if done.error is None and group is not None and _counts(group):
        return register_scale_up(state, group, delta, done.at, options)
    return state
