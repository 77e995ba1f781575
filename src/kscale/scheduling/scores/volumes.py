"""What nodes get for the room that their storage has left (upstream: ``volumebinding/scorer.go``; the feature
``StorageCapacityScoring``: alpha in 1.33, on by default since 1.37)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kscale._native import _selecting
from kscale.scheduling.facts import NodeFacts
from kscale.scheduling.waiting_claims import PodVolumes, WaitingClaims, room_of, size_of

__all__ = ["capacity_score"]

_FULL: Final = 100

Shape = Sequence[tuple[int, int]]


def capacity_score(claims: WaitingClaims, shape: Shape, node: NodeFacts) -> int:
    """What a node gets for what these claims would take of its storage classes, each by the share in use (percent ->
    score, ``shape``), the mean of all, half up. 0 where nothing is known, and where a claim gets nothing."""
    found = claims.on(node)
    if isinstance(found, str):
        return 0
    scores = [_selecting.broken_line(shape, _percent(*each)) for each in _classes(found).values()]
    return (2 * sum(scores) + len(scores)) // (2 * len(scores)) if scores else 0


def _percent(requested: int, capacity: int) -> int:
    return _FULL if capacity == 0 or requested > capacity else requested * _FULL // capacity


def _classes(found: PodVolumes) -> dict[str, tuple[int, int]]:
    """By storage class, (asked for, there is): of volumes that are there for claims, and only if there are none of what
    drivers publish. Several volumes add up, while what is published is one room for all claims of the class."""
    sums: dict[str, tuple[int, int]] = {}
    for claim, volume in found.bindings:
        name = volume.spec.storage_class_name
        asked, there = sums.get(name, (0, 0))
        sums[name] = asked + size_of(claim).value(), there + room_of(volume).value()
    if sums:
        return sums
    for claim, capacity in found.provisions:
        if capacity is not None:
            name = capacity.storage_class_name
            asked, _ = sums.get(name, (0, 0))
            # Without `capacity`, upstream's scheduler crashes here.
            there = 0 if capacity.capacity is None else capacity.capacity.value()
            sums[name] = asked + size_of(claim).value(), there
    return sums
