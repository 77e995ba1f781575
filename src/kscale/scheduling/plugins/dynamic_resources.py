"""DynamicResources: devices that claims ask for (``plugins/dynamicresources``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.scheduling.plugins.base import NOTHING, SKIP, Plugin, PreFilter, unresolvable

if TYPE_CHECKING:
    from kscale.scheduling.context import Context
    from kscale.snapshot.interner import PodClass

__all__ = ["DynamicResources"]


class DynamicResources(Plugin):
    """Claims can be satisfied on the node. Without DRA the autoscaler's manager finds no claim at all."""

    name = "DynamicResources"
    ordinal = 13

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        if not pod.claims:
            return SKIP
        if not ctx.dra:
            return PreFilter(failure=unresolvable("object not found: dra manager is disabled"))
        return NOTHING
