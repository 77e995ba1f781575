from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kscale._native._reconcile import Rules

class Metric(Protocol):
    @property
    def mode(self) -> int: ...
    @property
    def cpu(self) -> bool: ...
    @property
    def target(self) -> int: ...
    @property
    def request(self) -> int: ...
    @property
    def time(self) -> NDArray[np.int64]: ...
    @property
    def load(self) -> NDArray[np.float64]: ...

def replay(
    ticks: int,
    metrics: Sequence[Metric],
    recorded: NDArray[np.int32] | None,
    up: Rules,
    down: Rules,
    *,
    tolerance_down: float,
    tolerance_up: float,
    cpu_initialization: int,
    initial_readiness: int,
    minimum: int,
    maximum: int,
    behavior: bool,
    scale_to_zero: bool,
    release: int,
    downscale_window: int,
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
    NDArray[np.int32],
    NDArray[np.int64],
]: ...
