"""How long nodes stayed past their unneeded-time threshold, and how long nodes were skipped (upstream:
``core/scaledown/latencytracker``, ``nodeevaltracker``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from kscale.ca import unremovable_reasons
from kscale.ca.scale_down.unneeded import UnneededNode
from kscale.effects import Moment
from kscale.effects.moments import Nanoseconds

__all__ = ["MaxNodeSkipEvalTime", "NodeLatency", "NodeLatencyTracker", "TrackedNode"]


class MaxNodeSkipEvalTime(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """``last``: the pass before; ``since``: skipped node -> when it was last looked at."""

    last: Moment
    since: dict[str, Moment] = {}

    def update(self, skipped: Iterable[str], now: Moment) -> tuple[MaxNodeSkipEvalTime, int]:
        """After a pass that skipped these nodes: what to remember, and the longest time in nanoseconds."""
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
    """A node that is unneeded: since when, for how many nanoseconds it has to be, and what else last kept it (empty:
    nothing)."""

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
    """Nodes that are unneeded. Functions give a new tracker, and what is to be observed."""

    nodes: dict[str, TrackedNode] = {}

    def update(self, unneeded: Iterable[UnneededNode], now: Moment) -> tuple[NodeLatencyTracker, list[NodeLatency]]:
        """After a pass: new nodes count from now, nodes that are needed again are observed and forgotten."""
        nodes = {}
        for item in unneeded:
            known = self.nodes.get(item.name, TrackedNode(since=now, threshold=item.threshold))
            nodes[item.name] = msgspec.structs.replace(known, threshold=item.threshold)
        ended = [name for name in self.nodes if name not in nodes]
        return NodeLatencyTracker(nodes=nodes), self._observe(ended, now, deleted=False)

    def process(
        self, unremovable: Mapping[str, str], started: Iterable[str], now: Moment
    ) -> tuple[NodeLatencyTracker, list[NodeLatency]]:
        """After a loop: ``unremovable`` (node -> reason) is kept in mind, nodes being deleted are observed."""
        nodes = dict(self.nodes)
        for name, reason in unremovable.items():
            if name in nodes and reason not in _WAITING_REASONS:
                nodes[name] = msgspec.structs.replace(nodes[name], delay_reason=reason)
        marked = NodeLatencyTracker(nodes=nodes)
        gone = [name for name in dict.fromkeys(started) if name in nodes]
        left = {name: item for name, item in nodes.items() if name not in gone}
        return NodeLatencyTracker(nodes=left), marked._observe(gone, now, deleted=True)

    def _observe(self, names: Iterable[str], now: Moment, *, deleted: bool) -> list[NodeLatency]:
        found = []
        for name in names:
            item = self.nodes[name]
            latency = now - item.since - item.threshold
            if latency > 0:
                reason = item.delay_reason or "none"
                found.append(NodeLatency(node=name, deleted=deleted, delay_reason=reason, latency=latency))
        return found
