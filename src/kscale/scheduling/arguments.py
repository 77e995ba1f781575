"""What callers hand to a decision, checked at the door: an error here names the argument."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError

__all__ = ["MOST", "mask_of", "position_of", "short"]

MOST = 2**31 - 1
"""The largest number that a kernel takes for a position."""


def position_of(value: Any, what: str, most: int = MOST) -> int:
    """A whole number between 0 and ``most``. Raises InputError."""
    try:
        number = index(value)
    except TypeError:
        raise InputError(f"{what} is {short(value)}, not a whole number") from None
    if not 0 <= number <= most:
        raise InputError(f"{what} is {number}, not between 0 and {most}")
    return number


def mask_of(values: Any, what: str, length: int) -> NDArray[np.uint8]:
    """A mask, one entry a node, of whatever holds truth values or whole numbers: uint8[length]. Raises InputError."""
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.zeros(0, dtype=object)
    if array.shape != (length,) or (length and array.dtype.kind not in "biu"):
        raise InputError(f"{what} is not a column of {length} truth values, one a node")
    return np.ascontiguousarray(array != 0).view(np.uint8)


def short(value: Any) -> str:
    """A value as an error shows it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
