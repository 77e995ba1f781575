"""Since when nodes are unneeded or unremovable, and which unneeded nodes may go now (upstream:
``core/scaledown/unneeded``, ``unremovable``).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

import msgspec

from kscale.ca import unremovable_reasons
from kscale.ca.errors import AutoscalerError
from kscale.ca.nodes import SCALE_DOWN_DISABLED_KEY, get_deletion_candidate_time, is_ready
from kscale.ca.options import AutoscalingOptions
from kscale.ca.quota import QuotaTracker
from kscale.ca.unremovable_reasons import BlockingPod
from kscale.effects import Moment, duration
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import Groups, NodeGroup, ProviderError

__all__ = [
    "NodeToRemove",
    "RemovableNodes",
    "UnneededNode",
    "UnremovableNode",
    "UnremovableNodes",
    "find_removable_nodes",
    "load_times_from_taints",
    "update_unneeded",
]


class UnremovableNode(msgspec.Struct, kw_only=True, frozen=True):
    """Reason for a node to stay; ``blocking_pod`` for the reason ``BlockedByPod``."""

    reason: str
    blocking_pod: BlockingPod | None = None


class UnremovableNodes(msgspec.Struct, kw_only=True):
    """Nodes that stay. ``until``: node -> when it may be simulated again (carried between passes); ``nodes``: reasons
    of
    this pass.

    ``nodes`` keeps the order of first insertion; a later reason replaces an earlier one in place.
    """

    until: dict[str, Moment] = {}
    nodes: dict[str, UnremovableNode] = {}

    def update(self, names: Container[str], now: Moment) -> UnremovableNodes:
        """Return the record for a new pass, without reasons.

        Times of the next attempt stay if they are still ahead and the node exists (is in ``names``).
        """
        until = {name: time for name, time in self.until.items() if name in names and time > now}
        return UnremovableNodes(until=until)

    def contains(self, name: str) -> bool:
        """Check whether this pass found a reason for the node to stay."""
        return name in self.nodes

    def add_all(self, reasons: Mapping[str, str]) -> None:
        """Add the reasons of many nodes, by name."""
        known = {reason: UnremovableNode(reason=reason) for reason in {*reasons.values()}}
        self.nodes.update(zip(reasons, map(known.__getitem__, reasons.values()), strict=True))

    def add(
        self, name: str, reason: str, *, blocking_pod: BlockingPod | None = None, until: Moment | None = None
    ) -> None:
        """Add a node's reason, and with ``until`` the time of the next attempt."""
        self.nodes[name] = UnremovableNode(reason=reason, blocking_pod=blocking_pod)
        if until is not None:
            self.until[name] = until


class NodeToRemove(msgspec.Struct, frozen=True):
    """A node that can be removed according to the simulation.

    ``drain``: it has pods that must move to another node; ``risky``: disruption budgets do not allow all of them to be
    evicted at once; ``on_completion``: it has pods that must finish first.
    """

    node: Node
    drain: bool = False
    risky: bool = False
    on_completion: bool = False


class UnneededNode(msgspec.Struct, kw_only=True, frozen=True):
    """An unneeded node: since when, and for how long (nanoseconds) it must stay unneeded before it may be deleted.

    ``threshold_error``: the group's options could not be read.
    """

    node: Node
    drain: bool
    since: Moment
    threshold: int
    threshold_error: str | None = None
    risky: bool = False
    on_completion: bool = False

    @property
    def name(self) -> str:
        """Return the node's name."""
        return self.node.metadata.name


class RemovableNodes(msgspec.Struct, kw_only=True):
    """Nodes that may be deleted now, empty ones and those to drain, and why each of the others may not."""

    empty: list[UnneededNode] = []
    drain: list[UnneededNode] = []
    unremovable: dict[str, str] = {}


def update_unneeded(
    since: Mapping[str, Moment],
    removable: Iterable[NodeToRemove],
    *,
    groups: Groups,
    options: AutoscalingOptions,
    now: Moment,
) -> list[UnneededNode]:
    """Return the unneeded nodes after a pass: the removable ones, each with its time and threshold.

    ``since`` (name -> time) is what a caller stores between passes. Nodes in it keep their time, new nodes get ``now``.
    """
    removable = [*removable]
    names = [item.node.metadata.name for item in removable]
    group_of = groups.ids_of_nodes(names)
    thresholds = {group: _Thresholds.of(None if group is None else groups[group], options) for group in {*group_of}}
    unneeded = []
    for item, name, group in zip(removable, names, group_of, strict=True):
        own = thresholds[group]
        unneeded.append(
            UnneededNode(
                node=item.node,
                drain=item.drain,
                since=since.get(name, now),
                threshold=own.ready if is_ready(item.node) else own.unready,
                threshold_error=own.error,
                risky=item.risky,
                on_completion=item.on_completion,
            )
        )
    return unneeded


class _Thresholds(NamedTuple):
    """Unneeded-time thresholds of a group's nodes, in nanoseconds; ``error`` if they are unknown."""

    ready: int = 0
    unready: int = 0
    error: str | None = None

    @classmethod
    def of(cls, group: NodeGroup | None, options: AutoscalingOptions) -> _Thresholds:
        """Return the thresholds of a group; 0 for nodes without a known group (None).

        If the options of the group cannot be read, the result has the ``error`` instead.
        """
        if group is None:
            return cls()
        try:
            own = group.options_or(options.node_group_defaults)
        except ProviderError as error:
            return cls(error=error.message)
        return cls(duration(own.scale_down_unneeded_time), duration(own.scale_down_unready_time))


def load_times_from_taints(nodes: Iterable[Node], *, ttl: int, now: Moment) -> dict[str, Moment]:
    """Load the times from the soft taints of an earlier process, if not older than ``ttl`` nanoseconds.

    Unreadable taints are skipped.
    """
    times: dict[str, Moment] = {}
    for node in nodes:
        since = get_deletion_candidate_time(node)
        if since is not None and since + ttl >= now:
            times[node.metadata.name] = since
    return times


def find_removable_nodes(
    unneeded: Iterable[UnneededNode],
    *,
    groups: Groups,
    now: Moment,
    deletions_in_progress: Mapping[str, int] | None = None,
    minimum: QuotaTracker | None = None,
) -> RemovableNodes:
    """Find the unneeded nodes that may be deleted now: first all empty ones, then those to drain, in their order.

    Nodes are checked in that order, and each accepted node counts as removed for the checks of later nodes. ``minimum``
    tracks the resources that may be removed without going below the cluster-wide minima (None: no minima); those of
    accepted nodes are subtracted from it. ``deletions_in_progress`` counts nodes by group id. The result has a reason
    for each node that is not accepted.
    """
    unneeded = sorted(unneeded, key=lambda item: item.drain)
    names = [item.name for item in unneeded]
    group_of = groups.ids_of_nodes(names)
    spare = {
        group.id: group.size - (deletions_in_progress or {}).get(group.id, 0) - group.min_size
        for group in groups
        if group.target_size_error is None
    }
    early = [_find_early_reason(item, now) for item in unneeded]

    def stay(minimum: QuotaTracker | None) -> list[str | None]:
        left = dict(spare)
        return [
            reason or _find_hold_reason(item.node, None if of is None else groups[of], left, minimum)
            for item, of, reason in zip(unneeded, group_of, early, strict=True)
        ]

    why = stay(None)
    if minimum is not None:
        taken_nodes: dict[str, list[Node]] = {}
        for item, of, reason in zip(unneeded, group_of, why, strict=True):
            if reason is None and of is not None:
                taken_nodes.setdefault(of, []).append(item.node)
        if not minimum.consume_together((groups[of], nodes) for of, nodes in taken_nodes.items()):
            why = stay(minimum)
    result = RemovableNodes()
    for item, name, reason in zip(unneeded, names, why, strict=True):
        if reason is not None:
            result.unremovable[name] = reason
        else:
            (result.drain if item.drain else result.empty).append(item)
    return result


def _find_early_reason(item: UnneededNode, now: Moment) -> str | None:
    """Return why a node may not be removed yet, independent of other nodes; None if it may."""
    if item.threshold_error is not None:
        return unremovable_reasons.UNEXPECTED_ERROR
    if (item.node.metadata.annotations or {}).get(SCALE_DOWN_DISABLED_KEY) == "true":
        return unremovable_reasons.SCALE_DOWN_DISABLED_ANNOTATION
    if item.threshold > 0 and not now - item.since > item.threshold:
        return (
            unremovable_reasons.NOT_UNNEEDED_LONG_ENOUGH
            if is_ready(item.node)
            else unremovable_reasons.NOT_UNREADY_LONG_ENOUGH
        )
    return None


def _find_hold_reason(
    node: Node, group: NodeGroup | None, left: dict[str, int], minimum: QuotaTracker | None
) -> str | None:
    """Return why a node has to stay after the removal of those before it; None if it may be removed.

    ``left`` is how many more nodes may be removed, by group. If the node may be removed, ``left`` and ``minimum`` are
    reduced.
    """
    if group is None:
        return unremovable_reasons.NOT_AUTOSCALED
    if group.id not in left:
        return unremovable_reasons.UNEXPECTED_ERROR
    if left[group.id] <= 0:
        return unremovable_reasons.NODE_GROUP_MIN_SIZE_REACHED
    reason = None if minimum is None else _consume_minimum(node, group, minimum)
    if reason is None:
        left[group.id] -= 1
    return reason


def _consume_minimum(node: Node, group: NodeGroup, minimum: QuotaTracker) -> str | None:
    """Subtract the node's resources from ``minimum``. Returns the reason if they cannot be spared, or None."""
    try:
        taken = minimum.consume(group, node, 1)
    except AutoscalerError:
        return unremovable_reasons.UNEXPECTED_ERROR
    return unremovable_reasons.MINIMAL_RESOURCE_LIMIT_EXCEEDED if taken.exceeded else None
