"""The load of a replay from series: which number means what."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError
from kscale.series import Series

__all__ = ["SERIES_KINDS", "load_of"]

SERIES_KINDS: Sequence[str] = ("total", "per-pod", "average")


def load_of(
    series: Series, kind: str, recorded: Series | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64] | None]:
    """(times, total load, recorded replicas at these times or None).

    ``total``: the values of all series added up. ``per-pod``: one series a pod; the mean of the pods, times the
    recorded replicas. ``average``: one series, times the recorded replicas. Recorded replicas hold until the next one.
    Raises ``InputError`` when replicas are missing, or ``average`` has several series.
    """
    if kind not in SERIES_KINDS:
        raise InputError(f"{kind!r} is not one of {', '.join(SERIES_KINDS)}")
    times, total = series.total()
    sizes = None
    if recorded is not None:
        at, counts = recorded.total()
        if not len(at):
            raise InputError("the recorded replicas are empty")
        sizes = counts[np.maximum(np.searchsorted(at, times, side="right") - 1, 0)]
        if (sizes < 0).any():
            raise InputError("recorded replicas must not be negative")
    if kind == "total":
        return times, total, sizes
    if sizes is None:
        raise InputError(f"a series of kind {kind} needs the recorded replicas")
    if kind == "average":
        if len(series.keys) != 1:
            raise InputError(f"an average is one series, not {len(series.keys)}")
        return times, total * sizes, sizes
    positions = np.searchsorted(times, series.time)
    pods = np.bincount(positions, minlength=len(times))
    return times, total / pods * sizes, sizes
