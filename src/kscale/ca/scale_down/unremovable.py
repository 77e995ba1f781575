"""Nodes that could not be removed, and for how long they are not tried again (``core/scaledown/unremovable``)."""

from __future__ import annotations

from collections.abc import Container, Mapping

import msgspec

from kscale.ca.scale_down.drainability.status import BlockingPod
from kscale.effects import Moment

__all__ = ["UnremovableNode", "UnremovableNodes"]


class UnremovableNode(msgspec.Struct, kw_only=True, frozen=True):
    """Why a node stays; ``blocking_pod`` for the reason ``BlockedByPod``."""

    reason: str
    blocking_pod: BlockingPod | None = None


class UnremovableNodes(msgspec.Struct, kw_only=True):
    """``until``: node -> when it may be simulated again (this outlives a pass); ``nodes``: reasons found in this pass.

    ``nodes`` keeps the order of first insertion; a later reason replaces an earlier one in place.
    """

    until: dict[str, Moment] = {}
    nodes: dict[str, UnremovableNode] = {}

    def update(self, names: Container[str], now: Moment) -> UnremovableNodes:
        """The state at the start of a pass: no reasons; times that are not over, of nodes that still exist."""
        until = {name: time for name, time in self.until.items() if name in names and time > now}
        return UnremovableNodes(until=until)

    def is_recent(self, name: str) -> bool:
        """Whether the node is not to be simulated yet."""
        return name in self.until

    def contains(self, name: str) -> bool:
        """Whether this pass found a reason."""
        return name in self.nodes

    def add_all(self, reasons: Mapping[str, str]) -> None:
        """Records the reasons of many nodes, by name."""
        known = {reason: UnremovableNode(reason=reason) for reason in {*reasons.values()}}
        self.nodes.update(zip(reasons, map(known.__getitem__, reasons.values()), strict=True))

    def add(
        self, name: str, reason: str, *, blocking_pod: BlockingPod | None = None, until: Moment | None = None
    ) -> None:
        """Records a reason, and with ``until`` when to try again."""
        self.nodes[name] = UnremovableNode(reason=reason, blocking_pod=blocking_pod)
        if until is not None:
            self.until[name] = until
