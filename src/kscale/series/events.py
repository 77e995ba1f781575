"""Lists of events (arrivals) as a series: how many, or how much, in each bin. kscale's own."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError

__all__ = ["bin_events"]

_MOST_BINS: Final = 10_000_000


def bin_events(
    time: NDArray[np.int64], width: int, value: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(begin of each bin, events per second or ``value`` per second in it); ``width`` in nanoseconds.

    ``time``: of each event, in nanoseconds, in any order. Bins begin at the first and leave none out.

    Raises InputError without events, for a width below 1, and for more bins than a recording could mean.
    """
    if width <= 0:
        raise InputError("the width of a bin must be greater than zero")
    if not len(time):
        raise InputError("no events")
    first = int(time.min())
    bins = (int(time.max()) - first) // width + 1
    if bins > _MOST_BINS:
        raise InputError(f"{bins:,} bins of {width / 1e9:g} s: at most {_MOST_BINS:,}; bins must be wider")
    position = (time - first) // width
    total = np.bincount(position, weights=value).astype(np.float64)
    return first + np.arange(len(total), dtype=np.int64) * width, total / (width / 1e9)
