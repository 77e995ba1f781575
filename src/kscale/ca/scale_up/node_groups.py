"""Which node groups may grow, which are similar, and how new nodes are divided (upstream:
``core/scaleup/orchestrator``: filterValidScaleUpNodeGroups, ComputeSimilarNodeGroups, balanceScaleUps).

:mod:`kscale.ca.node_group_set` decides whether two groups are similar; the other conditions are checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kscale.ca.cluster_state import ClusterStateRegistry, get_backoff_status, is_group_healthy
from kscale.ca.errors import AutoscalerError
from kscale.ca.node_group_set import GroupSize, ScaleUpInfo, SimilarGroups, balance_scale_up_between_groups
from kscale.ca.options import AutoscalingOptions
from kscale.ca.quota import ExceededQuota, QuotaTracker
from kscale.effects import Moment
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import Groups, NodeGroup, ProviderError

__all__ = [
    "ATOMIC_LIMIT_REASON",
    "BACKOFF_REASON",
    "MAX_LIMIT_REACHED_REASON",
    "NOT_READY_REASON",
    "FilteredGroups",
    "balance_scale_ups",
    "build_group_size",
    "compute_similar_node_groups",
    "filter_valid_scale_up_groups",
    "find_not_ready_reason",
    "find_sharing_groups",
    "is_within_quotas",
    "is_zero_or_max_group",
]


NOT_READY_REASON: Final = "not ready for scale-up"
BACKOFF_REASON: Final = "in backoff after failed scale-up"
MAX_LIMIT_REACHED_REASON: Final = "max node group size reached"
ATOMIC_LIMIT_REASON: Final = "atomic scale-up exceeds cluster node count limit"


class FilteredGroups(msgspec.Struct, kw_only=True):
    """Groups worth an estimate, in order, and why the others are skipped; ``exceeded``: of those that quotas hold back,
    for which resources.
    """

    valid: list[NodeGroup] = []
    skipped: dict[str, list[str]] = {}
    exceeded: dict[str, list[str]] = {}


def find_not_ready_reason(
    group: NodeGroup,
    state: ClusterStateRegistry,
    now: Moment,
    options: AutoscalingOptions,
    *,
    has_template: bool = True,
) -> str | None:
    """Return why an existing group is not safe to scale up; None if it is."""
    if not is_group_healthy(state, group.id, options):
        return NOT_READY_REASON
    return BACKOFF_REASON if get_backoff_status(state, group.id, now, has_template=has_template) is not None else None


def is_within_quotas(tracker: QuotaTracker, group: NodeGroup, node: Node, count: int) -> bool:
    """Check whether so many new nodes exceed no quota; False if that is unknown."""
    try:
        return not tracker.check(group, node, count).exceeded
    except AutoscalerError:
        return False


def is_zero_or_max_group(group: NodeGroup, options: AutoscalingOptions) -> bool:
    """Check whether the group is scaled only between zero and its maximum. False if the options cannot be read."""
    try:
        return group.options_or(options.node_group_defaults).zero_or_max_node_scaling
    except ProviderError:
        return False


def filter_valid_scale_up_groups(
    groups: Iterable[NodeGroup],
    *,
    templates: Mapping[str, Node],
    tracker: QuotaTracker,
    state: ClusterStateRegistry,
    node_count: int,
    now: Moment,
    options: AutoscalingOptions,
    known_templates: Container[str] | None = None,
) -> FilteredGroups:
    """Separate the groups that can grow from those that cannot. The first failed check is the reason.

    ``templates`` are template nodes by group id; ``node_count`` counts all nodes, including upcoming ones.
    ``known_templates`` are the groups that had a template when the cluster state was updated (None: all had); the
    others are never in back-off.
    """
    result = FilteredGroups()
    for group in groups:
        known = known_templates is None or group.id in known_templates
        reason = find_not_ready_reason(group, state, now, options, has_template=known) if group.exists else None
        if reason is not None:
            skip_reasons = [reason]
        else:
            skip_reasons, quotas = _find_skip_reasons(group, templates, tracker, node_count, options)
            if quotas:
                result.exceeded[group.id] = [name for quota in quotas for name in quota.resources]
        if skip_reasons:
            result.skipped[group.id] = skip_reasons
        else:
            result.valid.append(group)
    return result


def _find_skip_reasons(
    group: NodeGroup, templates: Mapping[str, Node], tracker: QuotaTracker, node_count: int, options: AutoscalingOptions
) -> tuple[list[str], list[ExceededQuota]]:
    node = templates.get(group.id)
    if group.target_size_error is not None:
        return [NOT_READY_REASON], []
    if group.size >= group.max_size:
        return [MAX_LIMIT_REACHED_REASON], []
    count = 1
    if is_zero_or_max_group(group, options):
        count = group.max_size - group.size
        if options.max_nodes_total != 0 and node_count + count > options.max_nodes_total:
            return [ATOMIC_LIMIT_REASON], []
    if node is None:
        return [NOT_READY_REASON], []
    try:
        quotas = tracker.check(group, node, count).exceeded
    except AutoscalerError:
        return [NOT_READY_REASON], []
    return [quota.message for quota in quotas], list(quotas)


def compute_similar_node_groups(
    group: NodeGroup,
    groups: Groups,
    schedulable: Mapping[str, NDArray[np.bool_]],
    alike: Callable[[], SimilarGroups],
    is_safe: Callable[[NodeGroup], bool],
    options: AutoscalingOptions,
) -> list[str]:
    """Compute the ids of groups that are similar to ``group``, safe to scale up, and take at least the same pods.

    Empty if the option is off, or if the group is one of zero or all its nodes. The order is the provider's.
    ``schedulable``: which equivalence groups of pods each node group takes, bool[P] by id; a group without entry was
    filtered out. ``alike`` computes the similar groups and is called only if needed.
    """
    mine = schedulable.get(group.id)
    if mine is None or not mine.any():
        return []
    if not options.balance_similar_node_groups or is_zero_or_max_group(group, options):
        return []

    def takes_the_same(name: str) -> bool:
        taken = schedulable.get(name)
        return taken is not None and not (mine & ~taken).any()

    return [
        name
        for name in alike().find_similar(group.id)
        if name in groups and takes_the_same(name) and is_safe(groups[name])
    ]


def build_group_size(group: NodeGroup) -> GroupSize:
    """Build the sizes that balancing reads of a group."""
    return GroupSize(id=group.id, target=group.size, max=group.max_size, target_error=group.target_size_error)


def find_sharing_groups(
    best: NodeGroup, similar: Iterable[NodeGroup], *, templates: Mapping[str, Node], tracker: QuotaTracker
) -> list[NodeGroup]:
    """Return the groups that share the new nodes: the best one, and similar ones with a template and room for a node.

    Raises :class:`AutoscalerError` if a quota cannot be checked.
    """
    targets = [best]
    for group in similar:
        node = templates.get(group.id)
        if node is not None and is_within_quotas(tracker, group, node, 1):
            targets.append(group)
    return targets


def balance_scale_ups(
    best: NodeGroup,
    similar: Iterable[NodeGroup],
    new_nodes: int,
    *,
    templates: Mapping[str, Node],
    tracker: QuotaTracker,
) -> list[ScaleUpInfo]:
    """Split the new nodes among the best group and its similar groups, and consume the quotas.

    Similar groups without template or without quota for one node take no part. Nodes that quotas deny to one group are
    not moved to another. Raises :class:`AutoscalerError` if a target size cannot be read.
    """
    targets = find_sharing_groups(best, similar, templates=templates, tracker=tracker)
    by_id = {group.id: group for group in targets}
    plan = balance_scale_up_between_groups([build_group_size(group) for group in targets], new_nodes)
    capped = (_cap_by_quotas(info, by_id[info.group], templates.get(info.group), tracker) for info in plan)
    return [info for info in capped if info.new != info.current]


def _cap_by_quotas(info: ScaleUpInfo, group: NodeGroup, node: Node | None, tracker: QuotaTracker) -> ScaleUpInfo:
    delta = info.new - info.current
    if delta <= 0 or node is None:
        return info
    try:
        allowed = tracker.check(group, node, delta).allowed
        if allowed > 0:
            tracker.consume(group, node, allowed)
    except AutoscalerError:
        return info
    return replace(info, new=info.current + allowed) if allowed < delta else info
