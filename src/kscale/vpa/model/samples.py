"""Columns of samples on their way into the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kscale.objects.base import ResourceList
from kscale.vpa.model.aggregates import Aggregate
from kscale.vpa.model.store import Store
from kscale.vpa.quality import Quality
from kscale.vpa.resources import CPU, MEMORY

__all__ = ["KeptRecommendation", "Recommended", "add_grid", "compare", "kept_recommendations"]

SHORTEST_GRID: Final = 32
"""Samples of each container; below, looking whether they share their times is not worth it."""


def add_grid(
    store: Store,
    container: npt.NDArray[np.int32],
    time: npt.NDArray[np.int64],
    value: npt.NDArray[np.int64],
    status: npt.NDArray[np.uint8],
    threads: int,
) -> bool:
    """Take in CPU samples of many containers at the same times, container after container, if they are that.

    Only where each has an aggregate of its own and nothing is refused: then the answer is the same to the last bit.
    """
    rows = 1 + int(np.count_nonzero(container[1:] != container[:-1]))
    length, rest = divmod(len(container), rows)
    if rest or length < SHORTEST_GRID:
        return False
    table, slots = time.reshape(rows, length), container[::length]
    times = table[0]
    if not (
        bool((container.reshape(rows, length) == slots[:, None]).all())
        and bool((times[1:] > times[:-1]).all())
        and bool((table == times).all())
        and 0 <= int(value.min()) <= int(value.max()) < 2**31
        and int(store.last_cpu[slots].max()) < int(times[0])
        and len(np.unique(store.aggregate[slots])) == rows
    ):
        return False
    store.native.add_cpu_grid(
        store.cpu.native,
        np.arange(rows + 1),
        np.ascontiguousarray(slots),
        np.ascontiguousarray(times),
        value.astype(np.int32).reshape(rows, length),
        np.zeros(rows, np.int64),
        threads,
    )
    status[:] = 0
    return True


class Recommended(NamedTuple):
    """What aggregates were recommended last. Of each, in cores or bytes, ``amount`` float64[n] (0: nothing), and
    ``mode`` int64[n]: its update mode in ``modes``; -1: it needs no recommendation."""

    modes: list[str]
    mode: npt.NDArray[np.int64]
    amount: npt.NDArray[np.float64]

    @classmethod
    def of(cls, known: Sequence[KeptRecommendation], cpu: bool) -> Recommended:
        """Of what was kept of aggregates."""
        resource = CPU if cpu else MEMORY
        modes: dict[str, int] = {}
        mode = [-1] * len(known)
        amount = [0.0] * len(known)
        for i, kept in enumerate(known):
            if kept is not None:
                mode[i] = modes.setdefault(kept[0] or "", len(modes))
                last = (kept[1] or {}).get(resource)
                if last is not None:
                    amount[i] = last.milli_value() / 1000.0 if cpu else float(last.value())
        return cls(list(modes), np.array(mode, np.int64), np.array(amount, np.float64))


KeptRecommendation = tuple[str | None, ResourceList | None] | None
"""The update mode and the last recommendation of an aggregate; None: it needs no recommendation."""


def kept_recommendations(known: Sequence[Aggregate]) -> list[KeptRecommendation]:
    """What is known of aggregates at this moment."""
    return [(each.update_mode, each.last_recommendation) if each.needs_recommendation else None for each in known]


def compare(
    aggregates: npt.NDArray[np.int32],
    amounts: npt.NDArray[np.int64],
    is_oom: npt.NDArray[np.bool_],
    cpu: bool,
    recommended: Recommended,
    quality: Quality,
) -> None:
    """``observeQualityMetrics`` of samples that were taken in, in millicores or bytes.

    ``aggregates[i]``: the place in ``recommended`` of the aggregate that sample *i* went to.
    """
    if (recommended.mode < 0).any():
        needed = recommended.mode[aggregates] >= 0
        aggregates, amounts, is_oom = aggregates[needed], amounts[needed], is_oom[needed]
    usage = amounts / 1000.0 if cpu else amounts.astype(np.float64)
    mode, amount = recommended.mode[aggregates], recommended.amount[aggregates]
    quality.samples(CPU if cpu else MEMORY, recommended.modes, mode, usage, amount, is_oom)
