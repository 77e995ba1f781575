"""What the machine can do, measured in the same run: a physical floor for every figure."""

from __future__ import annotations

import time
from functools import cache

import numpy as np

__all__ = ["bandwidth", "floor_note"]


@cache
def bandwidth() -> float:
    """Bytes a second that one core reads from memory: the best of five sums over 256 MiB."""
    data = np.ones(32 << 20, dtype=np.int64)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        data.sum()
        best = min(best, time.perf_counter() - start)
    return data.nbytes / best


def floor_note(bytes_touched: int, seconds: float) -> dict[str, float]:
    """The time that reading the touched columns once takes, and how far above it the measured time is."""
    floor = bytes_touched / bandwidth()
    return {"floor_us": floor * 1e6, "ratio_to_floor": seconds / floor if floor else float("nan")}
