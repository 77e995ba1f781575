"""From a number of nodes to sizes of groups (``core/scaleup/orchestrator``: balanceScaleUps)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from kscale.ca.balancing import GroupSize, ScaleUpInfo, balance
from kscale.ca.errors import AutoscalerError
from kscale.ca.quota import QuotaTracker
from kscale.ca.scale_up.group_filter import within_quotas
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup

__all__ = ["balance_scale_ups", "group_size", "sharing_groups"]


def group_size(group: NodeGroup) -> GroupSize:
    """What balancing reads of a group."""
    return GroupSize(id=group.id, target=group.size, max=group.max_size, target_error=group.target_size_error)


def sharing_groups(
    best: NodeGroup, similar: Iterable[NodeGroup], *, templates: Mapping[str, Node], tracker: QuotaTracker
) -> list[NodeGroup]:
    """Return the groups that share the new nodes: the best one, and similar ones with a template and room for a node.

    Raises :class:`AutoscalerError` if a quota cannot be checked.
    """
    targets = [best]
    for group in similar:
        node = templates.get(group.id)
        if node is not None and within_quotas(tracker, group, node, 1):
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
    """Divides the nodes among the best group and those similar to it, within quotas, which are consumed.

    Similar groups without template or without room for one node take no part. What quotas take from one group is not
    given to another. Raises :class:`AutoscalerError` if a target size cannot be read.
    """
    targets = sharing_groups(best, similar, templates=templates, tracker=tracker)
    by_id = {group.id: group for group in targets}
    plan = balance([group_size(group) for group in targets], new_nodes)
    capped = (_cap(info, by_id[info.group], templates.get(info.group), tracker) for info in plan)
    return [info for info in capped if info.new != info.current]


def _cap(info: ScaleUpInfo, group: NodeGroup, node: Node | None, tracker: QuotaTracker) -> ScaleUpInfo:
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
