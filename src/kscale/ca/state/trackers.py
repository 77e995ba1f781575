"""Trackers that loops keep: how long nodes stayed past their unneeded-time threshold, how long nodes were skipped
(upstream: ``core/scaledown/latencytracker``, ``nodeevaltracker``), and which nodes the pods of release 1.3 counted on
(``simulator/tracker.go``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from kscale.ca import unremovable_reasons
from kscale.effects import Moment
from kscale.effects.moments import Nanoseconds

__all__ = [
    "MAX_USAGE_RECORDED",
    "MaxNodeSkipEvalTime",
    "NodeLatency",
    "NodeLatencyTracker",
    "TrackedNode",
    "UsageRecord",
    "UsageTracker",
]


class MaxNodeSkipEvalTime(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Times for which nodes have been skipped. ``last``: time of the previous pass; ``since``: skipped node -> its last
    evaluation.
    """

    last: Moment
    since: dict[str, Moment] = {}

    def update(self, skipped: Iterable[str], now: Moment) -> tuple[MaxNodeSkipEvalTime, int]:
        """Return the record after a pass that skipped these nodes, and the longest skip time in nanoseconds."""
        since = {name: self.since.get(name, self.last) for name in skipped}
        return MaxNodeSkipEvalTime(last=now, since=since), now - min([now, *since.values()])


_WAITING_REASONS: Final = frozenset(
    (
        unremovable_reasons.NO_REASON,
        unremovable_reasons.NOT_UNNEEDED_LONG_ENOUGH,
        unremovable_reasons.NOT_UNREADY_LONG_ENOUGH,
    )
)


class TrackedNode(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """An unneeded node: since when, its unneeded-time threshold in nanoseconds, and the last other reason of its delay
    (empty if there is none).
    """

    since: Moment
    threshold: Nanoseconds
    delay_reason: str = ""


class NodeLatency(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """One observation of ``node_removal_latency_seconds``: the node was deleted or is needed again."""

    node: str
    deleted: bool
    delay_reason: str
    latency: int
    """Nanoseconds."""


class _Unneeded(Protocol):
    """An unneeded node, as the planner lists it."""

    @property
    def name(self) -> str: ...
    @property
    def threshold(self) -> int: ...


class NodeLatencyTracker(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Unneeded nodes, each with its start time. Methods return a new tracker and the latencies to observe."""

    nodes: dict[str, TrackedNode] = {}

    def update(self, unneeded: Iterable[_Unneeded], now: Moment) -> tuple[NodeLatencyTracker, list[NodeLatency]]:
        """Return the tracker after a pass, and the latencies of nodes that are needed again.

        New nodes count from ``now``; nodes that are needed again are removed.
        """
        nodes = {}
        for item in unneeded:
            known = self.nodes.get(item.name, TrackedNode(since=now, threshold=item.threshold))
            nodes[item.name] = msgspec.structs.replace(known, threshold=item.threshold)
        ended = [name for name in self.nodes if name not in nodes]
        return NodeLatencyTracker(nodes=nodes), self._observe(ended, now, deleted=False)

    def process(
        self, unremovable: Mapping[str, str], started: Iterable[str], now: Moment
    ) -> tuple[NodeLatencyTracker, list[NodeLatency]]:
        """Return the tracker after a loop, and the latencies of nodes whose deletion started.

        ``unremovable`` (node -> reason) sets the delay reason of nodes.
        """
        nodes = dict(self.nodes)
        for name, reason in unremovable.items():
            if name in nodes and reason not in _WAITING_REASONS:
                nodes[name] = msgspec.structs.replace(nodes[name], delay_reason=reason)
        marked = NodeLatencyTracker(nodes=nodes)
        deleting = [name for name in dict.fromkeys(started) if name in nodes]
        left = {name: item for name, item in nodes.items() if name not in deleting}
        return NodeLatencyTracker(nodes=left), marked._observe(deleting, now, deleted=True)

    def _observe(self, names: Iterable[str], now: Moment, *, deleted: bool) -> list[NodeLatency]:
        latencies = []
        for name in names:
            item = self.nodes[name]
            latency = now - item.since - item.threshold
            if latency > 0:
                reason = item.delay_reason or "none"
                latencies.append(NodeLatency(node=name, deleted=deleted, delay_reason=reason, latency=latency))
        return latencies


MAX_USAGE_RECORDED: Final = 50


class UsageRecord(msgspec.Struct, rename="camel", omit_defaults=True):
    """Relations of one node: the nodes that its pods would move to, and the nodes whose pods would move here, with the
    last time of each.

    At most :data:`MAX_USAGE_RECORDED` of either are stored; beyond that only the fact that there are too many.
    """

    using: dict[str, Moment] = {}
    used_by: dict[str, Moment] = {}
    using_too_many: bool = False
    used_by_too_many: bool = False


class UsageTracker(msgspec.Struct, rename="camel", omit_defaults=True):
    """Usage relations between nodes, by node name."""

    records: dict[str, UsageRecord] = {}

    def copy(self) -> UsageTracker:
        """Return an independent copy."""
        replace = msgspec.structs.replace
        return UsageTracker(
            {
                node: replace(record, using=dict(record.using), used_by=dict(record.used_by))
                for node, record in self.records.items()
            }
        )

    def register(self, node: str, destination: str, time: Moment) -> None:
        """Register that a pod of ``node`` would move to ``destination``."""
        record = self.records.setdefault(node, UsageRecord())
        if len(record.using) >= MAX_USAGE_RECORDED:
            record.using_too_many = True
        else:
            record.using[destination] = time
        record = self.records.setdefault(destination, UsageRecord())
        if len(record.used_by) >= MAX_USAGE_RECORDED:
            record.used_by_too_many = True
        else:
            record.used_by[node] = time

    def clean_up(self, cutoff: Moment) -> None:
        """Remove relations older than ``cutoff``, except those of nodes that had too many relations to record."""
        for node, record in list(self.records.items()):
            if not record.using_too_many:
                record.using = {name: time for name, time in record.using.items() if time >= cutoff}
            if not record.used_by_too_many:
                record.used_by = {name: time for name, time in record.used_by.items() if time >= cutoff}
            if not (record.using or record.used_by or record.using_too_many or record.used_by_too_many):
                del self.records[node]

    def remove(self, node: str, unneeded: Collection[str]) -> set[str]:
        """Forget the relations of a removed node, and return the unneeded nodes that lose their unneeded time.

        These are the node itself, and every node that relied on one of its destinations, where there is less room now.
        If a record has too many relations to be complete, all unneeded nodes lose their time.
        """
        names = {node}
        record = self.records.pop(node, UsageRecord())
        destination_records = [self.records.get(name, UsageRecord()) for name in record.using]
        if record.using_too_many or any(each.used_by_too_many for each in destination_records):
            names.update(unneeded)
        else:
            names.update(name for each in destination_records for name in each.used_by)
        for each in self.records.values():
            each.using.pop(node, None)
            each.used_by.pop(node, None)
        return names & set(unneeded)
