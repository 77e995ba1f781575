"""Which of very many names and times are what the API takes; usually all are, which is found out at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kscale._native import _projection
from kscale.objects.times import nanoseconds

__all__ = ["usual_names", "usual_times"]


def usual_names(view: memoryview, at: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool[n]: whether each text of ``view`` is a name that an object may have."""
    return _projection.plain_names(view, np.ascontiguousarray(at), np.ascontiguousarray(length))


def usual_times(view: memoryview, at: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool[n]: whether each text of ``view`` (``length`` -1 = absent, which is fine) is a time.

    Nearly all are as the API server prints them, in UTC and whole seconds; the others are read one by one.
    """
    at, length = np.ascontiguousarray(at), np.ascontiguousarray(length)
    fine = (length < 0) | _projection.printed_times(view, at, length)
    odd = np.flatnonzero(~fine)
    for i, text in zip(odd.tolist(), _projection.strings(view, at[odd], length[odd]), strict=True):
        fine[i] = _is_time(text)
    return fine


def _is_time(text: str) -> bool:
    try:
        nanoseconds(text)
    except ValueError:
        return False
    return True
