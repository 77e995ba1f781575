"""From packings of shapes to nodes and pods."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.mix.check import Planned
from kscale.capacity.mix.instance import Instance
from kscale.capacity.mix.packing import Packed

__all__ = ["give_out"]


def give_out(instance: Instance, packed: list[Packed]) -> Planned:
    """Every bin becomes a node (of the offer of its kind that has fewest so far, minima first), and every item a
    pod."""
    existing = len(instance.snapshot.nodes)
    offer_of: list[int] = []
    node = np.full(len(instance.class_of), -1, dtype=np.int64)
    used = dict.fromkeys(range(len(instance.offers)), 0)
    shape = instance.shapes.of_class[instance.class_of]
    for cell, part in enumerate(packed):
        mine = np.flatnonzero(instance.cell_of == cell)
        waiting = _by_shape(mine, shape[mine])
        free = {kind: list(source[cell].nodes) for kind, source in enumerate(instance.sources) if cell in source}
        for kind, pattern, copies in zip(part.kind.tolist(), part.pattern, part.copies.tolist(), strict=True):
            for _ in range(copies):
                source = instance.sources[kind][cell]
                if source.nodes:
                    at = free[kind].pop(0)
                else:
                    offer = min(source.offers, key=lambda i: _wanted(instance, used, i))
                    used[offer] += 1
                    at = existing + len(offer_of)
                    offer_of.append(offer)
                for s in np.flatnonzero(pattern).tolist():
                    taken = waiting[s][: int(pattern[s])]
                    del waiting[s][: int(pattern[s])]
                    node[taken] = at
    return Planned(np.array(offer_of, dtype=np.int64), node)


def _wanted(instance: Instance, used: dict[int, int], i: int) -> tuple[bool, bool, int, int]:
    offer = instance.offers[i]
    full = offer.most is not None and used[i] >= offer.most
    return full, used[i] >= offer.least, used[i], i


def _by_shape(pods: NDArray[np.int64], shape: NDArray[np.int64]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for pod, s in zip(pods.tolist(), shape.tolist(), strict=True):
        found.setdefault(s, []).append(pod)
    return found
