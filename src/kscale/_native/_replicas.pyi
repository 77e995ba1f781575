"""The replica calculator over columns. All arrays are C-contiguous; n rows, one a metric of a target."""

import numpy as np
from numpy.typing import NDArray

def calculate(
    mode: NDArray[np.uint8],
    cpu: NDArray[np.uint8],
    given: NDArray[np.uint8],
    current: NDArray[np.int32],
    target: NDArray[np.int64],
    down: NDArray[np.float64],
    up: NDArray[np.float64],
    pods_begin: NDArray[np.int64],
    pods_end: NDArray[np.int64],
    samples: NDArray[np.int64],
    requests: NDArray[np.int64],
    bad_request: NDArray[np.int32],
    extra_count: NDArray[np.int64],
    extra_sum: NDArray[np.int64],
    values_begin: NDArray[np.int64],
    values_end: NDArray[np.int64],
    phase: NDArray[np.uint8],
    deleting: NDArray[np.uint8],
    ready: NDArray[np.uint8],
    started: NDArray[np.uint8],
    start: NDArray[np.int64],
    transition: NDArray[np.int64],
    sample_present: NDArray[np.uint8],
    sample_value: NDArray[np.int64],
    sample_time: NDArray[np.int64],
    sample_window: NDArray[np.int64],
    request: NDArray[np.int64],
    value: NDArray[np.int64],
    now: int,
    cpu_initialization: int,
    initial_readiness: int,
    threads: int = 1,
) -> tuple[
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int64],
    NDArray[np.uint8],
    NDArray[np.uint8],
    NDArray[np.int32],
    NDArray[np.float64],
]:
    """Replicas, utilization (percent), usage (milli), error, path, groups [n, 4] and ratios [n, 2] of every row.

    Times and periods in nanoseconds, amounts in milli-units. Raises ``NativeError`` when the columns of a family
    differ in length or a row holds an unknown code or points outside its columns. The result does not depend on
    ``threads``.
    """

def groups(
    phase: NDArray[np.uint8],
    deleting: NDArray[np.uint8],
    ready: NDArray[np.uint8],
    started: NDArray[np.uint8],
    start: NDArray[np.int64],
    transition: NDArray[np.int64],
    sample_present: NDArray[np.uint8],
    sample_value: NDArray[np.int64],
    sample_time: NDArray[np.int64],
    sample_window: NDArray[np.int64],
    cpu: bool,
    now: int,
    cpu_initialization: int,
    initial_readiness: int,
) -> NDArray[np.uint8]:
    """The group of every pod: 0 ready, 1 unready, 2 missing, 3 ignored. One sample row a pod."""
