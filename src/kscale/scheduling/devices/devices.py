"""The devices of a snapshot's nodes, and of new nodes that may come."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property

from kscale.objects.resource import ResourceSlice
from kscale.scheduling.context import Context
from kscale.scheduling.devices.allocator import Allocator
from kscale.scheduling.devices.claims import Claims
from kscale.scheduling.devices.inventory import Inventory
from kscale.scheduling.facts import NodeFacts

__all__ = ["Devices"]


class Devices:
    """``local_slices``: those of nodes that the snapshot does not have; complete before anything else is asked."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.local_slices: list[ResourceSlice] = []

    @classmethod
    def of(cls, ctx: Context) -> Devices:
        """Those of a context."""
        return ctx.memo.of(cls, lambda: cls(ctx))

    @cached_property
    def inventory(self) -> Inventory:
        """All of them, and what claims hold of them."""
        informers = self._ctx.informers
        kept = self._ctx.snapshot.memo.of(
            Inventory, lambda: Inventory(informers.resource_slices, informers.resource_claims.values())
        )
        return kept.with_slices(self.local_slices) if self.local_slices else kept

    @cached_property
    def allocator(self) -> Allocator:
        """Allocates these devices."""
        return Allocator(self.inventory, self._ctx.informers.device_classes)

    def content(self, node: NodeFacts) -> Hashable:
        """Equal for nodes that DynamicResources cannot tell apart."""
        claims = Claims.of(self._ctx)
        offered = frozenset(name for name in node.offered if claims.delegable(name))
        return self.inventory.content(self.inventory.offers(node)), offered
