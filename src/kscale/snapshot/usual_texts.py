"""Which of very many names and times are what the API takes; usually all are, which is found out at once."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kscale._native import _projection
from kscale.objects.times import ZERO_TIME, moment_of, nanoseconds

__all__ = ["usual_moments", "usual_names"]

_ODD: Final = ZERO_TIME + 1


def usual_names(view: memoryview, at: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool[n]: whether each text of ``view`` is a name that an object may have."""
    return _projection.plain_names(view, np.ascontiguousarray(at), np.ascontiguousarray(length))


def usual_moments(
    view: memoryview, at: NDArray[np.int64], length: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(nanoseconds since 1970 of each text of ``view``, whether it is a time): int64[n], bool[n]. ``length`` -1 =
    absent, which is fine, and the zero time.

    Nearly all are as the API server prints them, in UTC and whole seconds; the others are read one by one.
    """
    at, length = np.ascontiguousarray(at), np.ascontiguousarray(length)
    found = _projection.printed_moments(view, at, length)
    odd = np.flatnonzero(found == _ODD)
    fine = np.ones(len(found), dtype=np.bool_)
    for i, text in zip(odd.tolist(), _projection.strings(view, at[odd], length[odd]), strict=True):
        try:
            nanoseconds(text)
            found[i] = moment_of(text)
        except ValueError:
            fine[i] = False
    return found, fine
