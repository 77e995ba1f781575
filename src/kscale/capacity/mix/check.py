"""Checks a plan exactly: schedules every pod on its planned node if the predicates allow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.mix.offers import Offer
from kscale.scheduling.fork import Fork, fork
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["CheckedPlacement", "NewNode", "PlannedPlacement", "RemainingNodes", "check"]


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node to create: its name in the plan, and the index of its offer."""

    name: str
    offer: int


@dataclass(frozen=True, slots=True)
class PlannedPlacement:
    """A plan: ``offer`` int64[M] of each new node; ``node`` int64[n] of each pod in the order of placing.

    Nodes are numbered: existing nodes first, then new ones; -1 = none.
    """

    offer: NDArray[np.int64]
    node: NDArray[np.int64]


@dataclass(slots=True)
class CheckedPlacement:
    """A plan after the check by the predicates.

    ``node`` as in :class:`PlannedPlacement`; ``moved`` counts pods on another node than planned, ``added`` the new
    nodes that were not planned; ``left`` holds the indices of pods that were not placed.
    """

    nodes: list[NewNode]
    node: NDArray[np.int64]
    moved: int = 0
    added: int = 0
    left: list[int] = field(default_factory=list)
    unmodelled: list[str] = field(default_factory=list)


class RemainingNodes:
    """Count of the nodes that are still allowed.

    ``most``: limit of each offer, None = no limit. The numbers of new nodes, multiplied by ``rows`` int64[Q, offers],
    must not exceed ``high`` float64[Q].
    """

    def __init__(self, most: Sequence[int | None], rows: NDArray[np.int64], high: NDArray[np.float64]) -> None:
        self._most, self._rows, self._high = list(most), rows, high
        self._sums = np.zeros(len(rows), dtype=np.int64)

    def has(self, offer: int) -> bool:
        """Check whether one more node of the offer at index ``offer`` is allowed."""
        limit = self._most[offer]
        weights = self._rows[:, offer]
        over = (weights > 0) & (self._sums + weights > self._high)
        return (limit is None or limit > 0) and not over.any()

    def add_node(self, offer: int) -> None:
        """Count one more node of the offer at index ``offer``."""
        limit = self._most[offer]
        self._most[offer] = None if limit is None else limit - 1
        self._sums = self._sums + self._rows[:, offer]


def check(
    snapshot: Snapshot,
    records: Sequence[PodRecord],
    class_of: NDArray[np.int64],
    offers: Sequence[Offer],
    planned: PlannedPlacement,
    room: RemainingNodes,
    *,
    existing: bool = True,
) -> CheckedPlacement:
    """Schedule the pods of a plan in order by the exact predicates, and return their nodes and what differs from it.

    A pod that does not fit its planned node is tried on any other node (on existing nodes only if ``existing``), then
    on a new node of the cheapest offer that is still allowed. ``class_of`` int64[n]: class of each pod; once no new
    node takes a pod, none is tried for the other pods of its class. ``room``: how many more nodes of each offer are
    allowed; added nodes are subtracted from it.
    """
    used = sorted({*planned.offer.tolist()})
    every = sorted({*used, *(i for i in range(len(offers)) if room.has(i))})
    arguments = snapshot, records, class_of, offers, planned, room
    # Most plans need no other offers. A catalogue has thousands, whose templates take time to prepare.
    checked = _check_with(used, *arguments, existing=existing, complete=used == every)
    checked = checked or _check_with(every, *arguments, existing=existing, complete=True)
    assert checked is not None  # only an incomplete list of templates gives no result
    return checked


def _check_with(
    templates: Sequence[int],
    snapshot: Snapshot,
    records: Sequence[PodRecord],
    class_of: NDArray[np.int64],
    offers: Sequence[Offer],
    planned: PlannedPlacement,
    room: RemainingNodes,
    *,
    existing: bool,
    complete: bool,
) -> CheckedPlacement | None:
    """Check a plan like :func:`check`, with new nodes of the offers at the indices ``templates`` only.

    ``complete``: whether these are all allowed offers. If they are not, the result is None as soon as a pod needs a new
    node beyond the plan, because another offer may take the pod.
    """
    place_of = {offer: i for i, offer in enumerate(templates)}
    world = fork(snapshot, records, templates=[offers[i].template for i in templates])
    existing_count = len(snapshot.nodes)
    number = [world.add(place_of[offer]) for offer in planned.offer.tolist()]
    new = [NewNode(world.node_name(n), offer) for n, offer in zip(number, planned.offer.tolist(), strict=True)]
    result = CheckedPlacement(new, planned.node.copy())
    classes = world.session.classes_of(snapshot.classify(records)).tolist()
    number_of = np.array([*range(existing_count), *number, -1], dtype=np.int64)  # -1: the last entry, no node
    refused = world.schedule_each(classes, number_of[planned.node].tolist())
    acceptable = None
    if not existing and existing_count:
        acceptable = np.ones(existing_count + len(number), dtype=np.uint8)
        acceptable[:existing_count] = 0
    cheapest = sorted(place_of, key=lambda offer: (offers[offer].price, offer))
    unplaceable: set[int] = set()
    for i in refused:
        node = world.schedule_anywhere(classes[i], acceptable)
        if node is None and not complete:
            return None
        if node is None and int(class_of[i]) not in unplaceable:
            node = _on_new_node(world, classes[i], cheapest, place_of, room, result, number)
            if node is None:
                unplaceable.add(int(class_of[i]))
            elif acceptable is not None:
                acceptable = np.append(acceptable, np.uint8(1))
        if node is None:
            result.node[i] = -1
            result.left.append(i)
            continue
        result.moved += planned.node[i] >= 0
        result.node[i] = node if node < existing_count else existing_count + number.index(node)
    result.unmodelled = world.session.unmodelled
    return result


def _on_new_node(
    world: Fork,
    pod: int,
    cheapest: Sequence[int],
    place_of: dict[int, int],
    room: RemainingNodes,
    result: CheckedPlacement,
    number: list[int],
) -> int | None:
    """Place a pod on a new node of the first offer in ``cheapest`` that takes it; return the node's number.

    ``pod``: number of its class. ``place_of``: template of each offer. Returns None if no allowed offer's node takes
    the pod. The node is added to ``number``, ``room`` and ``result``.
    """
    for offer in cheapest:
        if not room.has(offer):
            continue
        world.fork()
        node: int = world.add(place_of[offer])
        if world.schedule(pod, node):
            world.commit()
            number.append(node)
            result.nodes.append(NewNode(world.node_name(node), offer))
            result.added += 1
            room.add_node(offer)
            return node
        world.revert()
    return None
