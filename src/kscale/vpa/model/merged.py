"""What VPAs know per container name: their aggregates and loaded checkpoints, merged. Which of the containers count
for a recommendation, and with what minima, is in :mod:`kscale.vpa.logic.recommender`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kscale.vpa.model.state import RecommenderState
from kscale.vpa.model.store import Store
from kscale.vpa.model.vpa import Vpa

__all__ = ["Merged", "merge_containers"]


_PLANS: Final = 8
"""Of so many lists of VPAs it is remembered what is merged."""


class Merged(NamedTuple):
    """Row *i* of ``store`` is what is known of ``names[i]``: a VPA and one of its container names. ``names`` is the
    very same list while nothing else is to be merged of the same VPAs."""

    names: Sequence[tuple[Vpa, str]]
    store: Store


class _Plan(NamedTuple):
    """What is merged of some VPAs while no container may feed another aggregate (``placed``): ``rows[i]`` of the store
    into the row ``into[i]``."""

    vpas: list[Vpa]
    placed: int
    names: list[tuple[Vpa, str]]
    into: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]


def merge_containers(state: RecommenderState, vpas: Iterable[Vpa]) -> Merged:
    """``AggregateStateByContainerName`` of VPAs.

    Order of merging: aggregates by key, then the checkpoint. As upstream, a merge may shift the references of the
    aggregates that it reads.
    """
    names, into, rows = _planned(state, list(vpas))[2:]
    store = Store(state.options)
    store.merge(store.take_rows(len(names))[into], state.store, rows)
    return Merged(names, store)


def _planned(state: RecommenderState, vpas: list[Vpa]) -> _Plan:
    known: list[_Plan] = [plan for plan in state.merging if plan.placed == state.placed]
    for plan in known:
        if plan.vpas == vpas:
            return plan
    plan = _plan(state, vpas)
    if not any(vpa.initial_states for vpa in vpas):  # which may be exchanged
        known = [plan, *known[: _PLANS - 1]]
    state.merging = known
    return plan


def _plan(state: RecommenderState, vpas: list[Vpa]) -> _Plan:
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
    return _Plan(vpas, state.placed, names, np.array(into, np.int64), np.array(rows, np.int64))


def _key(item: tuple[tuple[str, str, str], object]) -> tuple[str, str, str]:
    return item[0]
