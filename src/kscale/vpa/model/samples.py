"""Columns of samples on their way into the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from kscale.vpa.model.aggregates import Aggregate, Store
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
    containers: npt.NDArray[np.int32],
    amounts: npt.NDArray[np.int64],
    is_oom: npt.NDArray[np.bool_],
    cpu: bool,
    watched: Mapping[int, Aggregate],
    quality: Quality,
) -> None:
    """``observeQualityMetrics`` of samples that were taken in, in millicores or bytes."""
    resource = CPU if cpu else MEMORY
    known: dict[int, tuple[str, float]] = {}
    for index, aggregate in watched.items():
        if aggregate.needs_recommendation:
            last = (aggregate.last_recommendation or {}).get(resource)
            milli = 0 if last is None else last.milli_value() if cpu else last.value()
            known[index] = aggregate.update_mode or "", milli / 1000.0 if cpu else float(milli)
    if not known:
        return
    needed = np.isin(containers, np.fromiter(known, np.int32, len(known)))
    which = containers[needed].tolist()
    usage = amounts[needed] / 1000.0 if cpu else amounts[needed].astype(np.float64)
    recommended = np.array([known[index][1] for index in which])
    quality.samples(resource, [known[index][0] for index in which], usage, recommended, is_oom[needed])
