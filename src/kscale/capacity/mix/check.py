"""Check a plan exactly: place every pod where it is planned if the predicates allow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.mix.offers import Offer
from kscale.scheduling.fork import Fork, fork
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["Checked", "NewNode", "Planned", "Room", "check"]


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node that is to be made: its name in the plan, and the offer by number."""

    name: str
    offer: int


@dataclass(frozen=True, slots=True)
class Planned:
    """``offer`` int64[M] of each new node; ``node`` int64[n] of each pod in the order of placing: nodes that exist by
    number, new ones behind them, -1 = none."""

    offer: NDArray[np.int64]
    node: NDArray[np.int64]


@dataclass(slots=True)
class Checked:
    """What the predicates made of a plan. ``node`` as in :class:`Planned`; ``moved``: pods that are elsewhere than
    planned, ``added``: new nodes that were not planned, ``left``: pods by number that found no place."""

    nodes: list[NewNode]
    node: NDArray[np.int64]
    moved: int = 0
    added: int = 0
    left: list[int] = field(default_factory=list)
    unmodelled: list[str] = field(default_factory=list)


class Room:
    """How many more nodes there may be. ``most``: of each offer, None = any number; ``rows`` int64[Q, offers] times
    their numbers is at most ``high`` float64[Q]."""

    def __init__(self, most: Sequence[int | None], rows: NDArray[np.int64], high: NDArray[np.float64]) -> None:
        self._most, self._rows, self._high = list(most), rows, high
        self._sums = np.zeros(len(rows), dtype=np.int64)

    def has(self, offer: int) -> bool:
        """Whether there may be one more of the offer."""
        most = self._most[offer]
        weights = self._rows[:, offer]
        over = (weights > 0) & (self._sums + weights > self._high)
        return (most is None or most > 0) and not over.any()

    def take(self, offer: int) -> None:
        """One more is there."""
        most = self._most[offer]
        self._most[offer] = None if most is None else most - 1
        self._sums = self._sums + self._rows[:, offer]


def check(
    snapshot: Snapshot,
    records: Sequence[PodRecord],
    class_of: NDArray[np.int64],
    offers: Sequence[Offer],
    planned: Planned,
    room: Room,
    *,
    existing: bool = True,
) -> Checked:
    """Place ``records`` in their order. What does not fit where it is planned looks for a place on any other node
    (those that exist only if ``existing``), then on a new one of the cheapest offer of which there is one more.

    ``class_of`` int64[n]: pods of one class are refused alike; ``room``: how many more nodes there may be of each
    offer.
    """
    templates = sorted({*planned.offer.tolist(), *(i for i in range(len(offers)) if room.has(i))})
    place_of = {offer: i for i, offer in enumerate(templates)}
    world = fork(snapshot, records, templates=[offers[i].template for i in templates])
    first = len(snapshot.nodes)
    number = [world.add(place_of[offer]) for offer in planned.offer.tolist()]
    new = [NewNode(world.node_name(n), offer) for n, offer in zip(number, planned.offer.tolist(), strict=True)]
    found = Checked(new, planned.node.copy())
    classes = world.session.classes_of(snapshot.classify(records)).tolist()
    refused = []
    for i, at in enumerate(planned.node.tolist()):
        if at < 0 or not world.schedule(classes[i], at if at < first else number[at - first]):
            refused.append(i)
    acceptable = None
    if not existing and first:
        acceptable = np.ones(first + len(number), dtype=np.uint8)
        acceptable[:first] = 0
    cheapest = sorted(place_of, key=lambda offer: (offers[offer].price, offer))
    hopeless: set[int] = set()
    for i in refused:
        at = world.schedule_anywhere(classes[i], acceptable)
        if at is None and int(class_of[i]) not in hopeless:
            at = _on_new_node(world, classes[i], cheapest, place_of, room, found, number)
            if at is None:
                hopeless.add(int(class_of[i]))
            elif acceptable is not None:
                acceptable = np.append(acceptable, np.uint8(1))
        if at is None:
            found.node[i] = -1
            found.left.append(i)
            continue
        found.moved += planned.node[i] >= 0
        found.node[i] = at if at < first else first + number.index(at)
    found.unmodelled = world.session.unmodelled
    return found


def _on_new_node(
    world: Fork,
    pod: int,
    cheapest: Sequence[int],
    place_of: dict[int, int],
    room: Room,
    found: Checked,
    number: list[int],
) -> int | None:
    """The number of a new node that takes the pod; None if no offer's does."""
    for offer in cheapest:
        if not room.has(offer):
            continue
        world.fork()
        at: int = world.add(place_of[offer])
        if world.schedule(pod, at):
            world.commit()
            number.append(at)
            found.nodes.append(NewNode(world.node_name(at), offer))
            found.added += 1
            room.take(offer)
            return at
        world.revert()
    return None
