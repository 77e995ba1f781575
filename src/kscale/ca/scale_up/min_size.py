"""Scale up groups below their minimum size (upstream: ``core/scaleup/orchestrator``: ScaleUpToNodeGroupMinSize)."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from datetime import datetime

import msgspec

from kscale.ca.cluster_state import ClusterStateRegistry, recalculate_ranges
from kscale.ca.errors import INTERNAL_ERROR, AutoscalerError
from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.node_group_set import ScaleUpInfo
from kscale.ca.options import AutoscalingOptions
from kscale.ca.quota import Quota, QuotaTracker, build_cluster_maximum_quota, cap_by_max_nodes_total
from kscale.ca.scale_up.executor import ExecutorAction, execute_scale_ups_steps
from kscale.ca.scale_up.node_groups import find_not_ready_reason, is_within_quotas
from kscale.ca.scale_up_status import (
    SCALE_UP_ERROR,
    SCALE_UP_NOT_NEEDED,
    SCALE_UP_SUCCESSFUL,
    ConsideredGroup,
    ScaleUpStatus,
)
from kscale.effects import Emit, Moment, Progress, StepsOf, moment
from kscale.objects.api.core import Node
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.nodegroups import Groups

__all__ = ["MinSizeScaleUpResult", "scale_up_to_min_size_steps", "scale_up_to_min_size_substeps"]


class MinSizeScaleUpResult(msgspec.Struct, kw_only=True):
    """Result of a scale-up to minimum sizes: ``status``, the cluster ``state`` afterwards, the ``groups`` with their
    targets, and the ``resized`` groups with the time.
    """

    status: ScaleUpStatus
    state: ClusterStateRegistry
    groups: Groups
    resized: Sequence[tuple[ScaleUpInfo, Moment]] = ()


@typed
def scale_up_to_min_size_steps(
    nodes: Sequence[Node],
    groups: Groups,
    *,
    templates: Mapping[str, Node],
    state: ClusterStateRegistry,
    now: datetime | Moment,
    options: AutoscalingOptions,
    quotas: Sequence[Quota] | AutoscalerError | None = None,
    known_templates: Container[str] | None = None,
    gpu_label: str = DEFAULT_GPU_LABEL,
) -> StepsOf[ExecutorAction, MinSizeScaleUpResult]:
    """Scale up every existing, healthy group to its minimum size as far as limits allow, with one action for each.

    Parameters
    ----------
    nodes : sequence of Node
        All nodes, for the quotas.
    groups : Groups
        The node groups.
    templates : mapping of str to Node
        Template nodes by group id.
    state : ClusterStateRegistry
        State of the node groups.
    now : datetime or Moment
        Start of the scale-up.
    options : AutoscalingOptions
        Options of the autoscaler.
    quotas : sequence of Quota or AutoscalerError, optional
        Default: the limits in the options. An error: the quotas could not be read.
    known_templates : container of str, optional
        Groups that had a template when the state was updated (None: all had).
    gpu_label : str
        Node label that names the type of GPU.

    Returns
    -------
    Steps of MinSizeScaleUpResult
        The step machine.
    """
    p = Progress(moment(now))
    return scale_up_to_min_size_substeps(
        p, nodes, groups, templates, state, options, quotas, known_templates, gpu_label
    )


def scale_up_to_min_size_substeps(
    p: Progress,
    nodes: Sequence[Node],
    groups: Groups,
    templates: Mapping[str, Node],
    state: ClusterStateRegistry,
    options: AutoscalingOptions,
    quotas: Sequence[Quota] | AutoscalerError | None,
    known_templates: Container[str] | None,
    gpu_label: str,
) -> StepsOf[ExecutorAction, MinSizeScaleUpResult]:
    """Scale up groups below their minimum size, as part of another step machine."""
    limits = [build_cluster_maximum_quota(options.resource_limiter)] if quotas is None else quotas
    try:
        if isinstance(limits, AutoscalerError):
            raise limits
        tracker = QuotaTracker.maximum(limits, nodes, groups, gpu_label=gpu_label)
    except AutoscalerError as error:
        failure = AutoscalerError(error.type or INTERNAL_ERROR, f"could not create quotas tracker: {error.message}")
        return MinSizeScaleUpResult(
            status=ScaleUpStatus(result=SCALE_UP_ERROR, error=failure.record), state=state, groups=groups
        )
    plan = []
    for group in groups:
        known = known_templates is None or group.id in known_templates
        if group.exists and find_not_ready_reason(group, state, p.now, options, has_template=known) is not None:
            continue
        info = yield from _plan_min_size(p, group, templates.get(group.id), tracker, options)
        if info is not None:
            plan.append(info)
    if not plan:
        return MinSizeScaleUpResult(status=ScaleUpStatus(result=SCALE_UP_NOT_NEEDED), state=state, groups=groups)
    done = yield from execute_scale_ups_steps(p, plan, groups, state, options=options, known_templates=known_templates)
    if done.error is not None:
        status = ScaleUpStatus(result=SCALE_UP_ERROR, error=done.error.record, failed_resize_groups=done.failed_groups)
        grown = groups.with_targets({info.group: info.new for info, _ in done.resized})
        return MinSizeScaleUpResult(status=status, state=done.state, groups=grown, resized=done.resized)
    status = ScaleUpStatus(
        result=SCALE_UP_SUCCESSFUL,
        scale_ups=plan,
        considered_groups=[ConsideredGroup(id=group.id, exists=group.exists) for group in groups],
    )
    grown = groups.with_targets({info.group: info.new for info in plan})
    return MinSizeScaleUpResult(
        status=status, state=recalculate_ranges(done.state, grown), groups=grown, resized=done.resized
    )


def _plan_min_size(
    p: Progress, group: NodeGroup, node: Node | None, tracker: QuotaTracker, options: AutoscalingOptions
) -> StepsOf[Emit, ScaleUpInfo | None]:
    if not group.exists or group.target_size_error is not None or group.size >= group.min_size:
        return None
    if node is None or not is_within_quotas(tracker, group, node, 1):
        return None
    try:
        want = tracker.check(group, node, group.min_size - group.size).allowed
    except AutoscalerError:
        return None
    capped = cap_by_max_nodes_total(want, group.size, options)
    yield from p.emit(*capped.events)
    if capped.error is not None:
        return None
    return ScaleUpInfo(group=group.id, current=group.size, new=group.size + capped.new_nodes, max=group.max_size)
