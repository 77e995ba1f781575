"""How long nodes stayed past their unneeded-time threshold, and how long nodes were skipped (upstream:
``core/scaledown/latencytracker``, ``nodeevaltracker``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from kscale.ca.scale_down import reasons
from kscale.ca.scale_down.unneeded import UnneededNode
from kscale.effects import Moment
from kscale.effects.moments import Nanoseconds

__all__ = ["MaxNodeSkipEvalTime", "NodeLatency", "NodeLatencyTracker", "TrackedNode"]


class MaxNodeSkipEvalTime(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """How long nodes have been skipped. ``last``: time of the previous pass; ``since``: skipped node -> its last
    evaluation."""

    last: Moment
    since: dict[str, Moment] = {}

    def update(self, skipped: Iterable[str], now: Moment) -> tuple[MaxNodeSkipEvalTime, int]:
        """Return the record after a pass that skipped these nodes, and the longest skip time in nanoseconds."""
        since = {name: self.since.get(name, self.last) for name in skipped}
        return MaxNodeSkipEvalTime(last=now, since=since), now - min([now, *since.values()])


_WAITING_REASONS: Final = frozenset(
    (reasons.NO_REASON, reasons.NOT_UNNEEDED_LONG_ENOUGH, reasons.NOT_UNREADY_LONG_ENOUGH)
)


class TrackedNode(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """An unneeded node: since when, its unneeded-time threshold in nanoseconds, and the last other reason of its delay
    (empty if there is none)."""

    since: Moment
    threshold: Nanoseconds
    delay_reason: str = ""


class NodeLatency(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """One observation of ``node_removal_latency_seconds``: the node went, or is needed again."""

    node: str
    deleted: bool
    delay_reason: str
    latency: int
    """Nanoseconds."""


class NodeLatencyTracker(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Unneeded nodes, each with its start time. Methods return a new tracker and the latencies to observe."""

    nodes: dict[str, TrackedNode] = {}

    def update(self, unneeded: Iterable[UnneededNode], now: Moment) -> tuple[NodeLatencyTracker, list[NodeLatency]]:
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
