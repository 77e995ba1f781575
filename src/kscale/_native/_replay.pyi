import numpy as np
from numpy.typing import NDArray

from kscale._native._reconcile import Rules

def replay(
    ticks: int,
    times: NDArray[np.int64],
    load: NDArray[np.float64],
    recorded: NDArray[np.int32] | None,
    up: Rules,
    down: Rules,
    *,
    mode: int,
    cpu: bool,
    target: int,
    tolerance_down: float,
    tolerance_up: float,
    cpu_initialization: int,
    initial_readiness: int,
    minimum: int,
    maximum: int,
    behavior: bool,
    scale_to_zero: bool,
    legacy_window: int,
    request: int,
    startup: int,
    lag: int,
    period: int,
    window: int,
    begin: int,
    start: int,
) -> tuple[
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int64],
    NDArray[np.uint8],
]: ...
