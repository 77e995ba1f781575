"""The estimator chain over columns: percentile, safety margin, confidence multiplier, minimum (``estimator.go``).

Percentiles are decided in C++: ``_native/src/histogram.cpp``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from kscale._native import _histogram
from kscale.effects import duration
from kscale.vpa.model.store import Store
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.resources import amount, cpu_from_cores, scale_amount

__all__ = ["LOWER", "TARGET", "UPPER", "Amounts", "estimate", "minimums"]

Amounts = npt.NDArray[np.int64]
"""int64[containers, 2, 3]: CPU in millicores and memory in bytes; target, lower bound, upper bound."""
TARGET: Final = 0
LOWER: Final = 1
UPPER: Final = 2


def minimums(containers: npt.NDArray[np.int64], options: RecommenderOptions) -> npt.NDArray[np.int64]:
    """int64[n, 2]: the least CPU and memory of a container of a pod with ``containers[i]`` containers.

    A pod's minimum is shared out evenly and cut off: 250 MiB over three containers is 87381333 bytes each.
    """
    cpu = cpu_from_cores(options.pod_recommendation_min_cpu_millicores * 0.001)
    memory = amount(options.pod_recommendation_min_memory_mb * 1024.0 * 1024.0)
    sizes, which = np.unique(containers, return_inverse=True)
    table = [(scale_amount(cpu, 1.0 / n), scale_amount(memory, 1.0 / n)) for n in sizes.tolist()]
    shares: npt.NDArray[np.int64] = np.array(table, np.int64).reshape(-1, 2)[which]
    return shares


def estimate(
    store: Store,
    containers: npt.NDArray[np.int64],
    options: RecommenderOptions,
    *,
    threads: int = 1,
) -> Amounts:
    """Target, lower and upper bound of the first ``len(containers)`` rows of a store.

    ``containers[i]`` is the number of containers that row *i*'s pod minimum is shared among. Confidence comes from CPU
    samples alone, also for memory. Where there is no history the upper bound is 1e14 and the lower one the minimum.
    """
    n = len(containers)
    percentiles = np.array(
        [
            [
                options.target_cpu_percentile,
                options.recommendation_lower_bound_cpu_percentile,
                options.recommendation_upper_bound_cpu_percentile,
            ],
            [
                options.target_memory_percentile,
                options.recommendation_lower_bound_memory_percentile,
                options.recommendation_upper_bound_memory_percentile,
            ],
        ]
    )
    intervals = np.array(
        [duration(options.confidence_interval_cpu), duration(options.confidence_interval_memory)], np.int64
    )
    out = np.empty((n, 2, 3), np.int64)
    _histogram.recommend(
        store.cpu.native,
        store.memory.native,
        store.first[:n],
        store.last[:n],
        store.samples[:n],
        minimums(containers, options),
        percentiles,
        intervals,
        options.recommendation_margin_fraction,
        out,
        threads,
    )
    return out
