"""Columns of samples on their way into the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from kscale.vpa.model.aggregates import Aggregate
from kscale.vpa.model.store import Store
from kscale.vpa.quality import Quality
from kscale.vpa.resources import CPU, MEMORY

__all__ = ["add_grid", "compare"]

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


def compare(
    aggregates: npt.NDArray[np.int32],
    amounts: npt.NDArray[np.int64],
    is_oom: npt.NDArray[np.bool_],
    cpu: bool,
    known: Sequence[Aggregate],
    quality: Quality,
) -> None:
    """``observeQualityMetrics`` of samples that were taken in, in millicores or bytes.

    ``aggregates[i]``: the place in ``known`` of the aggregate that sample *i* went to.
    """
    resource = CPU if cpu else MEMORY
    modes: dict[str, int] = {}
    mode = np.full(len(known), -1, np.int64)
    recommended = np.zeros(len(known))
    for i, aggregate in enumerate(known):
        if aggregate.needs_recommendation:
            mode[i] = modes.setdefault(aggregate.update_mode or "", len(modes))
            last = (aggregate.last_recommendation or {}).get(resource)
            if last is not None:
                recommended[i] = last.milli_value() / 1000.0 if cpu else float(last.value())
    if not modes:
        return
    if (mode < 0).any():
        needed = mode[aggregates] >= 0
        aggregates, amounts, is_oom = aggregates[needed], amounts[needed], is_oom[needed]
    usage = amounts / 1000.0 if cpu else amounts.astype(np.float64)
    quality.samples(resource, list(modes), mode[aggregates], usage, recommended[aggregates], is_oom)
