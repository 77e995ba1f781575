"""Which groups may grow at all (``core/scaleup/orchestrator``: the checks before any estimate)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final

import msgspec

from kscale.ca.cluster_state import ClusterStateRegistry, backoff_status, is_group_healthy
from kscale.ca.errors import AutoscalerError
from kscale.ca.options import AutoscalingOptions
from kscale.ca.quota import ExceededQuota, QuotaTracker
from kscale.effects import Moment
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup, ProviderError

__all__ = [
    "ATOMIC_LIMIT",
    "BACKOFF",
    "MAX_SIZE_REACHED",
    "NOT_READY",
    "FilteredGroups",
    "filter_groups",
    "is_zero_or_max",
    "not_ready_reason",
    "within_quotas",
]

NOT_READY: Final = "not ready for scale-up"
BACKOFF: Final = "in backoff after failed scale-up"
MAX_SIZE_REACHED: Final = "max node group size reached"
ATOMIC_LIMIT: Final = "atomic scale-up exceeds cluster node count limit"


class FilteredGroups(msgspec.Struct, kw_only=True):
    """Groups worth an estimate, in order, and why the others are skipped; ``exceeded``: of those that quotas hold back,
    for which resources."""

    valid: list[NodeGroup] = []
    skipped: dict[str, list[str]] = {}
    exceeded: dict[str, list[str]] = {}


def not_ready_reason(
    group: NodeGroup,
    state: ClusterStateRegistry,
    now: Moment,
    options: AutoscalingOptions,
    *,
    has_template: bool = True,
) -> str | None:
    """Why an existing group is not safe to scale up; None if it is."""
    if not is_group_healthy(state, group.id, options):
        return NOT_READY
    return BACKOFF if backoff_status(state, group.id, now, has_template=has_template) is not None else None


def within_quotas(tracker: QuotaTracker, group: NodeGroup, node: Node, count: int) -> bool:
    """Whether so many new nodes break no quota; False where that cannot be told."""
    try:
        return not tracker.check(group, node, count).exceeded
    except AutoscalerError:
        return False


def is_zero_or_max(group: NodeGroup, options: AutoscalingOptions) -> bool:
    """Whether the group grows from nothing to its maximum at once. Options that cannot be read count as ordinary."""
    try:
        return group.options_or(options.node_group_defaults).zero_or_max_node_scaling
    except ProviderError:
        return False


def filter_groups(
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
    """Sorts out groups that cannot grow; the first check that fails is the reason.

    ``templates`` are template nodes by group id; ``node_count`` counts all nodes, upcoming ones included.
    ``known_templates`` are the groups that had a template when the cluster state was updated (None: all had); the
    others are never in back-off.
    """
    result = FilteredGroups()
    for group in groups:
        known = known_templates is None or group.id in known_templates
        reason = not_ready_reason(group, state, now, options, has_template=known) if group.exists else None
        if reason is not None:
            found = [reason]
        else:
            found, quotas = _reasons(group, templates, tracker, node_count, options)
            if quotas:
                result.exceeded[group.id] = [name for quota in quotas for name in quota.resources]
        if found:
            result.skipped[group.id] = found
        else:
            result.valid.append(group)
    return result


def _reasons(
    group: NodeGroup,
    templates: Mapping[str, Node],
    tracker: QuotaTracker,
    node_count: int,
    options: AutoscalingOptions,
) -> tuple[list[str], list[ExceededQuota]]:
    node = templates.get(group.id)
    if group.target_size_error is not None:
        return [NOT_READY], []
    if group.size >= group.max_size:
        return [MAX_SIZE_REACHED], []
    count = 1
    if is_zero_or_max(group, options):
        count = group.max_size - group.size
        if options.max_nodes_total != 0 and node_count + count > options.max_nodes_total:
            return [ATOMIC_LIMIT], []
    if node is None:
        return [NOT_READY], []
    try:
        quotas = tracker.check(group, node, count).exceeded
    except AutoscalerError:
        return [NOT_READY], []
    return [quota.message for quota in quotas], list(quotas)
