"""NodeResourcesFit: pod count, cpu, memory, ephemeral storage and scalar resources (``plugins/noderesources``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.objects.requests import CPU, EPHEMERAL_STORAGE, MEMORY, is_extended
from kscale.scheduling.plugins.base import UNRESOLVABLE, UNSCHEDULABLE, Plugin, Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kscale.scheduling.context import Context
    from kscale.snapshot.interner import PodClass

__all__ = ["NodeResourcesFit", "insufficient"]

FIXED = (CPU, MEMORY, EPHEMERAL_STORAGE)


def insufficient(
    demand: Mapping[str, int], free: Mapping[str, int], allocatable: Mapping[str, int], slots: int
) -> tuple[Status | None, tuple[tuple[str, int, int], ...]]:
    """The status of the Filter, and (resource, asked, free) of everything that is short.

    ``demand`` leaves out what the profile ignores. Reasons: pod count, cpu, memory, ephemeral storage, then the scalar
    resources by name (upstream: map order).
    """
    reasons = ["Too many pods"] if slots < 1 else []
    short: list[tuple[str, int, int]] = [("pods", 1, slots)] if slots < 1 else []
    never = False
    for name in (*FIXED, *sorted(set(demand) - set(FIXED))):
        asked = demand.get(name, 0)
        if asked > 0 and asked > free.get(name, 0):
            reasons.append(f"Insufficient {name}")
            short.append((name, asked, free.get(name, 0)))
            never = never or asked > allocatable.get(name, 0)
    if not reasons:
        return None, ()
    return Status(UNRESOLVABLE if never else UNSCHEDULABLE, tuple(reasons)), tuple(short)


class NodeResourcesFit(Plugin):
    """What the pod asks for is free. The engine keeps what is free."""

    name = "NodeResourcesFit"
    ordinal = 6

    def counted(self, pod: PodClass, ctx: Context) -> dict[str, int]:
        """The pod's demand without what the profile's arguments ignore."""
        ignored, groups = ctx.profile.ignored_resources, ctx.profile.ignored_resource_groups
        if not ignored and not groups:
            return pod.demand
        return {
            name: amount
            for name, amount in pod.demand.items()
            if not (is_extended(name) and (name in ignored or name.partition("/")[0] in groups))
        }
