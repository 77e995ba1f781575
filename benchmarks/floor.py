"""What the machine can do, measured in the same run: a physical floor for every figure."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import numpy as np

__all__ = ["bandwidth", "floor"]


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


def floor(benchmark: Any, touched: int, *, checks: int = 0) -> None:
    """Print, and keep with the result, how far the best round is from reading the ``touched`` bytes once.

    ``checks``: how many pod x node checks a round makes, for the time of one. Without timing (``--benchmark-disable``)
    there is nothing to say.
    """
    if benchmark.stats is None:
        return
    least, best = touched / bandwidth(), benchmark.stats.stats.min
    benchmark.extra_info |= {"bytes": touched, "floor_seconds": least, "ratio_to_floor": best / least}
    line = f"{best * 1e3:.4g} ms; floor {least * 1e3:.4g} ms ({touched:,} bytes), ratio {best / least:.1f}"
    if checks:
        benchmark.extra_info["ns_per_check"] = best * 1e9 / checks
        line += f"; {best * 1e9 / checks:.3g} ns a check"
    print(f"\n{line}")
