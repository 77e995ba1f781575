"""Groups below their minimum size (``core/scaleup/orchestrator``: ScaleUpToNodeGroupMinSize)."""

from __future__ import annotations

from collections.abc import Container, Generator, Mapping, Sequence
from datetime import datetime

import msgspec

from kscale.ca.balancing import ScaleUpInfo
from kscale.ca.cluster_state import ClusterState, recalculate
from kscale.ca.errors import INTERNAL_ERROR, AutoscalerError
from kscale.ca.events import Event
from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.options import AutoscalingOptions
from kscale.ca.quota import Quota, QuotaTracker, cap_by_max_nodes_total, cluster_maximum
from kscale.ca.scale_up.executor import IncreaseSize, execute_steps
from kscale.ca.scale_up.group_filter import not_ready_reason, quota_reasons
from kscale.ca.scale_up.status import ERROR, NOT_NEEDED, SUCCESSFUL, ConsideredGroup, ScaleUpStatus
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.nodegroups import Groups

__all__ = ["MinSizeScaleUp", "scale_up_to_min_size_steps"]


class MinSizeScaleUp(msgspec.Struct, kw_only=True):
    """The outcome, the events of the way there, and the cluster state after."""

    status: ScaleUpStatus
    events: list[Event]
    state: ClusterState


def scale_up_to_min_size_steps(
    nodes: Sequence[Node],
    groups: Groups,
    *,
    templates: Mapping[str, Node],
    state: ClusterState,
    now: datetime,
    options: AutoscalingOptions,
    quotas: Sequence[Quota] | AutoscalerError | None = None,
    known_templates: Container[str] | None = None,
    gpu_label: str = DEFAULT_GPU_LABEL,
) -> Generator[IncreaseSize, AutoscalerError | None, MinSizeScaleUp]:
    """Raises every existing, healthy group to its minimum size as far as limits allow; an action for each.

    ``quotas`` default to the cluster-wide maxima of the options; ``known_templates`` as in
    :func:`kscale.ca.scale_up.group_filter.filter_groups`. Upstream compares ``--max-nodes-total`` with the
    *group's* size here, asks quotas for each group as if it were the only one, and does not look at the maximum size.
    """
    limits = [cluster_maximum(options.resource_limiter)] if quotas is None else quotas
    events: list[Event] = []
    try:
        if isinstance(limits, AutoscalerError):
            raise limits
        tracker = QuotaTracker.maximum(limits, nodes, groups, gpu_label=gpu_label)
    except AutoscalerError as error:
        failure = AutoscalerError(error.type or INTERNAL_ERROR, f"could not create quotas tracker: {error.message}")
        return MinSizeScaleUp(status=ScaleUpStatus(result=ERROR, error=failure.record), events=events, state=state)
    plan = []
    for group in groups:
        known = known_templates is None or group.id in known_templates
        if group.exists and not_ready_reason(group, state, now, options, has_template=known) is not None:
            continue
        info = _wanted(group, templates.get(group.id), tracker, options, events)
        if info is not None:
            plan.append(info)
    if not plan:
        return MinSizeScaleUp(status=ScaleUpStatus(result=NOT_NEEDED), events=events, state=state)
    done = yield from execute_steps(plan, groups, state, now=now, options=options, known_templates=known_templates)
    events += done.events
    if done.error is not None:
        status = ScaleUpStatus(result=ERROR, error=done.error.record, failed_resize_groups=done.failed_groups)
        return MinSizeScaleUp(status=status, events=events, state=done.state)
    status = ScaleUpStatus(
        result=SUCCESSFUL,
        scale_ups=plan,
        considered_groups=[ConsideredGroup(id=group.id, exists=group.exists) for group in groups],
    )
    grown = groups.with_targets({info.group: info.new for info in plan})
    return MinSizeScaleUp(status=status, events=events, state=recalculate(done.state, grown))


def _wanted(
    group: NodeGroup,
    node: Node | None,
    tracker: QuotaTracker,
    options: AutoscalingOptions,
    events: list[Event],
) -> ScaleUpInfo | None:
    if not group.exists or group.target_size_error is not None or group.size >= group.min_size:
        return None
    if node is None or quota_reasons(tracker, group, node, 1):
        return None
    try:
        want = tracker.check(group, node, group.min_size - group.size).allowed
    except AutoscalerError:
        return None
    capped = cap_by_max_nodes_total(
        want,
        group.size,
        options.max_nodes_total,
        status_config_map=f"{options.namespace}/{options.status_config_map_name}",
    )
    events += capped.events
    if capped.error is not None:
        return None
    return ScaleUpInfo(group=group.id, current=group.size, new=group.size + capped.new_nodes, max=group.max_size)
