import numpy as np
from numpy.typing import NDArray

def solve(
    value: NDArray[np.int64],
    demand: NDArray[np.int64],
    limit: NDArray[np.int64],
    capacity: NDArray[np.int64],
    multipliers: NDArray[np.float64],
    *,
    at_least: int,
    node_limit: int,
    patience: int,
    keep: int,
) -> tuple[int, int, int, NDArray[np.int64]]: ...
