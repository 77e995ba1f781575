"""Dividing a number of new nodes among similar groups (``processors/nodegroupset/balancing_processor.go``)."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import msgspec

from kscale.ca.errors import CLOUD_PROVIDER_ERROR, INTERNAL_ERROR, AutoscalerError
from kscale.objects.argument_types import typed

__all__ = ["GroupSize", "ScaleUpInfo", "balance"]


class GroupSize(msgspec.Struct, kw_only=True, frozen=True):
    """What balancing needs of a group: its id, ``target`` size and ``max`` size.

    ``target_error``: the provider's error text where it could not tell the target size; None: it could.
    """

    id: str
    target: int = 0
    max: int = 0
    target_error: str | None = None


class ScaleUpInfo(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """One line of a plan: a group goes from ``current`` to ``new`` nodes; it may have ``max``."""

    group: str
    current: int
    new: int
    max: int

    def __str__(self) -> str:
        return f"{{{self.group} {self.current}->{self.new} (max: {self.max})}}"


@typed
def balance(groups: Sequence[GroupSize], new_nodes: int) -> list[ScaleUpInfo]:
    """Gives each of ``new_nodes`` to the smallest group that has room.

    Groups at their maximum are left out; a group above it stays in the order but has no room. Groups of equal size
    keep the order they were given in (upstream's sort is unstable beyond twelve groups; this is the stable choice).
    The result has the order of upstream's array, in which full groups drift to the front, without unchanged groups.

    Raises :class:`AutoscalerError` when there is no group, or when a group's target size could not be read.
    """
    if not groups:
        raise AutoscalerError(INTERNAL_ERROR, "Can't balance scale up between 0 groups")
    for group in groups:
        if group.target_error is not None:
            raise AutoscalerError(CLOUD_PROVIDER_ERROR, f"failed to get node group size: {group.target_error}")
    # [size so far, limit, group]
    slots: list[list[Any]] = sorted(([g.target, g.max, g] for g in groups if g.target != g.max), key=itemgetter(0))
    left = min(new_nodes, sum(max(0, limit - size) for size, limit, _ in slots))
    start = current = 0
    if len(slots) == 1 and left > 0:  # a group that grows to a huge maximum at once is not walked node by node
        slots[0][0] += left
        left = 0
    while left > 0:
        if slots[current][0] < slots[current][1]:
            slots[current][0] += 1
            left -= 1
        else:
            slots[start], slots[current] = slots[current], slots[start]
            start += 1
        # After a swap this compares the group that came from the front, as upstream does.
        following = current + 1
        current = following if following < len(slots) and slots[current][0] > slots[following][0] else start
    return [
        ScaleUpInfo(group=group.id, current=group.target, new=size, max=group.max)
        for size, _, group in slots
        if size != group.target
    ]
