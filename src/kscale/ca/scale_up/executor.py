"""Execute a scale-up plan, also for groups that are created in the background (upstream: ``executor.go``,
``async_initializer.go``).

While a group is being created (``--async-node-groups``), scale-ups only store the size that it shall get.
:func:`initialize_node_groups_steps` resizes the created groups afterwards.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from functools import partial

import msgspec
from msgspec.structs import replace

from kscale.ca.cluster_state import ClusterStateRegistry, register_failed_scale_up, register_scale_up
from kscale.ca.cluster_state.state import ScaleUpError
from kscale.ca.errors import CLOUD_PROVIDER_ERROR, INTERNAL_ERROR, AutoscalerError, ErrorRecord, combine_errors
from kscale.ca.events import build_status_events
from kscale.ca.loop_state import AsyncInitializer
from kscale.ca.node_group_set import ScaleUpInfo
from kscale.ca.options import AutoscalingOptions, default_options
from kscale.ca.scale_up_status import (
    SCALE_UP_ERROR,
    SCALE_UP_SUCCESSFUL,
    CreatedGroupIds,
    ScaleUpStatus,
    build_scale_up_events,
)
from kscale.effects import (
    ApiError,
    CreatedGroups,
    Emit,
    IncreaseSize,
    Moment,
    Progress,
    StepsOf,
    Together,
    moment,
)
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import Groups, NodeGroup, is_not_implemented

__all__ = [
    "ExecutionResult",
    "ExecutorAction",
    "InitializationResult",
    "execute_scale_ups_steps",
    "initialize_node_groups_steps",
    "initialize_node_groups_substeps",
]


ExecutorAction = IncreaseSize | Together | Emit
"""Actions that perform a plan: the size changes, one by one or (``--parallel-scale-up``) together."""


class ExecutionResult(msgspec.Struct, kw_only=True):
    """Result of the execution of a plan: the error if any, the groups that were not resized, those that were (with the
    time), and the cluster state afterwards.
    """

    error: AutoscalerError | None
    failed_groups: list[str]
    resized: list[tuple[ScaleUpInfo, Moment]] = []
    state: ClusterStateRegistry


class _ResizeResult(msgspec.Struct, frozen=True):
    """Result and time of one resize of a plan. ``failure`` is the error that counts for the group's back-off."""

    info: ScaleUpInfo
    at: Moment
    failure: AutoscalerError | None = None
    error: AutoscalerError | None = None


class _ExecutionSettings(msgspec.Struct, frozen=True):
    """Settings that apply to every resize of a plan."""

    options: AutoscalingOptions
    atomic: bool
    release_1_3: bool


def execute_scale_ups_steps(
    p: Progress,
    plan: Sequence[ScaleUpInfo],
    groups: Groups,
    state: ClusterStateRegistry,
    *,
    options: AutoscalingOptions,
    atomic: bool = False,
    known_templates: Container[str] | None = None,
    release_1_3: bool = False,
) -> StepsOf[ExecutorAction, ExecutionResult]:
    """Resize the groups of a plan, and return which resizes succeeded and the cluster state afterwards.

    Yields an :class:`~kscale.effects.IncreaseSize` and the events for each line of the plan: for all lines at the same
    time with ``parallel_scale_up``, otherwise one after the other until the first error. Errors are in the result and
    are not raised. With ``parallel_scale_up`` a plan that names a group twice is an error, and nothing is resized.
    ``atomic``: resize each group atomically, or in the ordinary way if its provider cannot.
    ``known_templates``: groups that had a template when ``state`` was updated (None: all had); others never enter
    back-off. ``release_1_3``: emit the events of that release.
    """
    how = _ExecutionSettings(options, atomic, release_1_3)
    if options.parallel_scale_up:
        names = [info.group for info in plan]
        twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
        if twice is not None:
            error = AutoscalerError(INTERNAL_ERROR, f"assertion failure: detected group double scaling: {twice}")
            return ExecutionResult(error=error, failed_groups=names, state=state)
        done: list[_ResizeResult] = yield from p.together(
            [partial(_resize_beside_others, info, groups.get(info.group), how) for info in plan]
        )
    else:
        done = []
        for info in plan:
            done.append((yield from _resize_group(p, info, groups.get(info.group), how)))
            if done[-1].error is not None:
                break
    for each in done:
        state = _register_result(state, each, groups.get(each.info.group), options, known_templates)
    return ExecutionResult(
        error=combine_errors(each.error for each in done if each.error is not None),
        failed_groups=[each.info.group for each in done if each.error is not None],
        resized=[(each.info, each.at) for each in done if each.error is None],
        state=state,
    )


def _resize_beside_others(
    info: ScaleUpInfo, group: NodeGroup | None, how: _ExecutionSettings, now: Moment
) -> StepsOf[IncreaseSize | Emit, _ResizeResult]:
    """Resize a group in a step machine of its own that starts at ``now``, so that resizes can run at the same time."""
    return _resize_group(Progress(now), info, group, how)


def _resize_group(
    p: Progress, info: ScaleUpInfo, group: NodeGroup | None, how: _ExecutionSettings
) -> StepsOf[IncreaseSize | Emit, _ResizeResult]:
    """Resize a group by one line of the plan, and emit events about the attempt and its outcome.

    If the provider does not implement atomic resizes, an ordinary one follows. An error is in the result.
    """

    def emit(kind: str, reason: str, message: str) -> StepsOf[Emit, None]:
        return p.emit(*build_status_events(how.options, kind, reason, message))

    sizes = f"{info.new} instead of {info.current} (max: {info.max})"
    if not how.release_1_3:
        yield from emit("Normal", "ScaledUpGroup", f"Scale-up: setting group {info.group} size to {sizes}")
    delta = info.new - info.current
    refusal = (yield from p.act(IncreaseSize(group=info.group, delta=delta, atomic=how.atomic))).error
    if how.atomic and refusal is not None and is_not_implemented(refusal.message):
        refusal = (yield from p.act(IncreaseSize(group=info.group, delta=delta))).error
    if refusal is not None:
        text = f"Scale-up failed for group {info.group}: {refusal.message}"
        yield from emit("Warning", "FailedToScaleUpGroup", text)
        text = f"failed to increase node group size: {refusal.message}"
        failure = AutoscalerError(refusal.reason or CLOUD_PROVIDER_ERROR, text)
        return _ResizeResult(info, p.now, failure=failure, error=failure)
    if delta < 0:
        text = f"increase in number of nodes cannot be negative, got: {delta}"
        return _ResizeResult(info, p.now, error=AutoscalerError(INTERNAL_ERROR, text))
    if how.release_1_3:
        yield from emit("Normal", "ScaledUpGroup", f"Scale-up: group {info.group} size set to {info.new}")
    elif _has_coming_nodes(group):
        yield from emit("Normal", "ScaledUpGroup", f"Scale-up: group {info.group} size set to {sizes}")
    return _ResizeResult(info, p.now)


def _has_coming_nodes(group: NodeGroup | None) -> bool:
    """Check whether a resize of the group adds nodes now; False for an unknown group (None).

    A group that is still being created only stores its size.
    """
    return group is not None and (group.exists or not group.upcoming)


def _register_result(
    state: ClusterStateRegistry,
    done: _ResizeResult,
    group: NodeGroup | None,
    options: AutoscalingOptions,
    known_templates: Container[str] | None,
) -> ClusterStateRegistry:
    """Return the state with the result of a resize: a scale-up request or, after a failure, the failed scale-up.

    ``known_templates``: as in :func:`execute_scale_ups_steps`.
    """
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
    if done.error is None and group is not None and _has_coming_nodes(group):
        return register_scale_up(state, group, delta, done.at, options)
    return state


class InitializationResult(msgspec.Struct, kw_only=True):
    """Result of the initialization of created groups: the new ``initializer`` and cluster ``state``.

    ``status`` is None if nothing was to be done; ``warnings`` are what upstream would log.
    """

    initializer: AsyncInitializer
    state: ClusterStateRegistry
    status: ScaleUpStatus | None = None
    warnings: list[str] = []


@typed
def initialize_node_groups_steps(
    initializer: AsyncInitializer,
    outcome: CreatedGroups | ApiError,
    *,
    upcoming_of: Mapping[str, str],
    state: ClusterStateRegistry,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
) -> StepsOf[ExecutorAction, InitializationResult]:
    """Scale up each created group to the size that was requested from ``initializer`` meanwhile.

    Parameters
    ----------
    initializer : AsyncInitializer
        Sizes requested while the groups were being created.
    outcome : CreatedGroups or ApiError
        The created groups, or why they could not be created.
    upcoming_of : mapping of str to str
        Created group -> its id while it was being created. A group that is not in there is not resized.
    state : ClusterStateRegistry
        State of the node groups.
    now : datetime or Moment
        Start of the initialization.
    options : AutoscalingOptions, optional
        Default: upstream's defaults.

    Returns
    -------
    Steps of InitializationResult
        The step machine. Requested sizes count as processed even if the resize fails.
    """
    options = options or default_options()
    return initialize_node_groups_substeps(Progress(moment(now)), initializer, outcome, upcoming_of, state, options)


def initialize_node_groups_substeps(
    p: Progress,
    initializer: AsyncInitializer,
    outcome: CreatedGroups | ApiError,
    upcoming_of: Mapping[str, str],
    state: ClusterStateRegistry,
    options: AutoscalingOptions,
) -> StepsOf[ExecutorAction, InitializationResult]:
    """Scale up created groups as part of another step machine. Parameters: :func:`initialize_node_groups_steps`."""
    if isinstance(outcome, ApiError):
        error = ErrorRecord(type=outcome.reason or INTERNAL_ERROR, message=outcome.message)
        status = ScaleUpStatus(result=SCALE_UP_ERROR, error=error)
        return InitializationResult(initializer=initializer, state=state, status=status)
    plan: list[ScaleUpInfo] = []
    warnings: list[str] = []
    processed = dict(initializer.processed_sizes)
    for group in (outcome.main, *outcome.extra):
        upcoming = upcoming_of.get(group.id)
        if upcoming is None:
            warnings.append(f"nothing is known of new node group {group.id}: it stays as it is")
            continue
        target, done = initializer.target_size(upcoming), processed.get(upcoming, 0)
        if target > done:
            plan.append(ScaleUpInfo(group=group.id, current=done, new=target, max=group.max_size))
            processed[upcoming] = target
    initializer = replace(initializer, processed_sizes=processed)
    if not plan:
        return InitializationResult(initializer=initializer, state=state, warnings=warnings)
    execution = yield from execute_scale_ups_steps(
        p, plan, Groups([outcome.main, *outcome.extra]), state, options=options, atomic=initializer.atomic
    )
    created = [CreatedGroupIds(main=outcome.main.id, extra=[group.id for group in outcome.extra])]
    if execution.error is not None:
        status = ScaleUpStatus(
            result=SCALE_UP_ERROR,
            error=execution.error.record,
            pods_triggered=initializer.pods,
            failed_resize_groups=execution.failed_groups,
            created_groups=created,
        )
    else:
        status = ScaleUpStatus(
            result=SCALE_UP_SUCCESSFUL, scale_ups=plan, pods_triggered=initializer.pods, created_groups=created
        )
    yield from p.emit(*build_scale_up_events(status))
    return InitializationResult(initializer=initializer, state=execution.state, status=status, warnings=warnings)
