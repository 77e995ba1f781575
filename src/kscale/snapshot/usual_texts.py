"""Which of very many names and times are what the API takes; usually all are, which is found out at once."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kscale._native import _projection
from kscale.objects.names import dns_subdomain_errors
from kscale.objects.times import nanoseconds

__all__ = ["odd_names", "usual_times"]

_FORM: Final = np.frombuffer(b"0000-00-00T00:00:00Z", dtype=np.uint8)
_DIGITS: Final = np.flatnonzero(ord("0") == _FORM)
_SIGNS: Final = np.flatnonzero(ord("0") != _FORM)
_LENGTHS: Final = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_CHUNK: Final = 1 << 16
_MAX_NAME: Final = 253
_NAME_BYTES: Final = b"abcdefghijklmnopqrstuvwxyz0123456789-.\n"
# What no name has in it, nor at its ends, for which line feeds stand.
_NO_PAIRS: Final = ("\n-", "\n.", "-\n", ".\n", "..", ".-", "-.", "\n\n")


def odd_names(names: list[str]) -> list[int]:
    """Which names are none of an object."""
    if not names:
        return []
    text = "\n".join(("", *names, ""))
    clean = (
        text.isascii()
        and not text.encode().translate(None, _NAME_BYTES)
        and text.count("\n") == len(names) + 1
        and not any(pair in text for pair in _NO_PAIRS)
        and len(max(names, key=len)) <= _MAX_NAME
    )
    return [] if clean else [i for i, name in enumerate(names) if dns_subdomain_errors(name)]


def usual_times(view: memoryview, at: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool[n]: whether each text of ``view`` (``length`` -1 = absent, which is fine) is a time.

    Nearly all are as the API server prints them, in UTC and whole seconds; the others are read one by one.
    """
    fine = length < 0
    data = np.frombuffer(view, dtype=np.uint8)
    whole = np.flatnonzero(length == len(_FORM))
    for start in range(0, len(whole), _CHUNK):
        rows = whole[start : start + _CHUNK]
        fine[rows] = _printed(data[at[rows, None] + np.arange(len(_FORM))])
    odd = np.flatnonzero(~fine)
    for i, text in zip(odd.tolist(), _projection.strings(view, at[odd], length[odd]), strict=True):
        fine[i] = _is_time(text)
    return fine


def _printed(texts: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Of uint8[n, 20]; the 29th of February is left to the calendar."""
    digits = texts[:, _DIGITS] - np.uint8(ord("0"))  # what is below wraps to above
    number = (digits[:, 0::2] * np.uint8(10) + digits[:, 1::2]).T  # century, year, month, day, hour, minute, second
    _, year, month, day, hour, minute, second = number
    good = (digits <= 9).all(axis=1) & (texts[:, _SIGNS] == _FORM[_SIGNS]).all(axis=1)
    good &= (number[0] + year > 0) & (month >= 1) & (month <= 12) & (hour < 24) & (minute < 60) & (second < 60)
    days = _LENGTHS[np.minimum(month, 12)]
    answer: NDArray[np.bool_] = good & (day >= 1) & (day <= days)
    return answer


def _is_time(text: str) -> bool:
    try:
        nanoseconds(text)
    except ValueError:
        return False
    return True
