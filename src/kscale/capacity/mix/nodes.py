"""From packings of shapes to nodes and pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.mix.check import Planned
from kscale.capacity.mix.instance import Instance, Source
from kscale.capacity.mix.offers import Offer
from kscale.capacity.mix.packing import Packed

__all__ = ["give_out"]


def give_out(
    instance: Instance,
    packed: list[Packed],
    cell_of: NDArray[np.int64] | None = None,
    sources: Sequence[Mapping[int, Source]] | None = None,
) -> Planned:
    """Make every bin a node and every item a pod. ``cell_of`` int64[n], ``sources``: other cells than the instance's.

    Of a kind's offers the one with the fewest nodes so far gets the next node. Minimum nodes that no bin uses come
    last, empty.
    """
    cell_of = instance.cell_of if cell_of is None else cell_of
    sources = instance.sources if sources is None else sources
    existing = len(instance.snapshot.nodes)
    offers = instance.offers
    offer_of: list[int] = []
    node = np.full(len(instance.class_of), -1, dtype=np.int64)
    minimum = [0] * len(offers)  # nodes of each offer that count for its minimum
    beyond = [0] * len(offers)
    shape = instance.shapes.of_class[instance.class_of]
    for cell, part in enumerate(packed):
        mine = np.flatnonzero(cell_of == cell)
        waiting = _by_shape(mine, shape[mine])
        free = {kind: list(source[cell].nodes) for kind, source in enumerate(sources) if cell in source}
        for kind, pattern, copies in zip(part.kind.tolist(), part.pattern, part.copies.tolist(), strict=True):
            source = sources[kind][cell]
            used = minimum if source.minimum else beyond
            for _ in range(copies):
                if source.nodes:
                    at = free[kind].pop(0)
                else:
                    offer = _next_offer(offers, source, used)
                    used[offer] += 1
                    at = existing + len(offer_of)
                    offer_of.append(offer)
                for s in np.flatnonzero(pattern).tolist():
                    taken = waiting[s][: int(pattern[s])]
                    del waiting[s][: int(pattern[s])]
                    node[taken] = at
    for i, used_of_minimum in enumerate(minimum):
        offer_of += [i] * (offers[i].least - used_of_minimum)
    return Planned(np.array(offer_of, dtype=np.int64), node)


def _next_offer(offers: Sequence[Offer], source: Source, used: Sequence[int]) -> int:
    """Return the offer that the next node of a kind is from: one that has nodes left, then the one used least."""

    def is_full(i: int) -> bool:
        offer = offers[i]
        if source.minimum:
            return used[i] >= offer.least
        return offer.most is not None and used[i] >= offer.most - offer.least

    return min(source.offers, key=lambda i: (is_full(i), used[i], i))


def _by_shape(pods: NDArray[np.int64], shape: NDArray[np.int64]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for pod, s in zip(pods.tolist(), shape.tolist(), strict=True):
        found.setdefault(s, []).append(pod)
    return found
