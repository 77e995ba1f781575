"""What VPAs know per container name: their aggregates and loaded checkpoints, merged. Which of the containers count
for a recommendation, and with what minima, is in :mod:`kscale.vpa.logic.recommender`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from kscale.vpa.model.state import RecommenderState
from kscale.vpa.model.store import Store
from kscale.vpa.model.vpa import Vpa

__all__ = ["Merged", "merge_containers"]


class Merged(NamedTuple):
    """Row *i* of ``store`` is what is known of ``names[i]``: a VPA and one of its container names."""

    names: list[tuple[Vpa, str]]
    store: Store


def merge_containers(state: RecommenderState, vpas: Iterable[Vpa]) -> Merged:
    """``AggregateStateByContainerName`` of VPAs.

    Order of merging: aggregates by key, then the checkpoint. As upstream, a merge may shift the references of the
    aggregates that it reads.
    """
    names: list[tuple[Vpa, str]] = []
    into: list[int] = []
    rows: list[int] = []
    for vpa in vpas:
        local: dict[str, int] = {}
        own = vpa.aggregates.items() if len(vpa.aggregates) < 2 else sorted(vpa.aggregates.items(), key=_key)
        parts = [(key.container, aggregate.row) for key, aggregate in own]
        if vpa.initial_states:
            parts += [(name, vpa.initial_states[name].row) for name in sorted(vpa.initial_states)]
        for name, row in parts:
            if name not in local:
                local[name] = len(names)
                names.append((vpa, name))
            into.append(local[name])
            rows.append(row)
    store = Store(state.options)
    taken = store.take_rows(len(names))
    store.merge(taken[np.array(into, np.int64)], state.store, np.array(rows, np.int64))
    return Merged(names, store)


def _key(item: tuple[tuple[str, str, str], object]) -> tuple[str, str, str]:
    return item[0]
