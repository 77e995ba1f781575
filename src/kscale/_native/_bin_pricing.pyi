import numpy as np
from numpy.typing import NDArray

def price(
    value: NDArray[np.float64],
    demand: NDArray[np.int64],
    most: NDArray[np.int32],
    count: NDArray[np.int64],
    capacity: NDArray[np.int64],
    wanted: NDArray[np.float64],
    *,
    swaps: int,
    threads: int = 1,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int32]]: ...
def fill_around(
    value: NDArray[np.float64],
    demand: NDArray[np.int64],
    most: NDArray[np.int32],
    count: NDArray[np.int64],
    capacity: NDArray[np.int64],
    kind: NDArray[np.int32],
    item: NDArray[np.int32],
    *,
    swaps: int,
    threads: int = 1,
) -> NDArray[np.int32]: ...
def surrogate_bounds(
    value: NDArray[np.int64],
    demand: NDArray[np.int64],
    most: NDArray[np.int32],
    count: NDArray[np.int64],
    capacity: NDArray[np.int64],
    weight: NDArray[np.float64],
) -> NDArray[np.int64]: ...
def fill_tables(
    value: NDArray[np.int32],
    units: NDArray[np.int32],
    parts: NDArray[np.int32],
    limit: NDArray[np.int64],
    out: NDArray[np.int32],
    *,
    all_parts: int,
    threads: int = 1,
) -> None: ...
def most_of_tables(
    value: NDArray[np.int32],
    units: NDArray[np.int32],
    parts: NDArray[np.int32],
    limit: NDArray[np.int64],
    *,
    all_units: int,
    all_parts: int,
) -> float: ...
def search(
    value: NDArray[np.int64],
    units: NDArray[np.int32],
    parts: NDArray[np.int32],
    demand: NDArray[np.int64],
    weight: NDArray[np.float64],
    tables: NDArray[np.int32],
    worth: NDArray[np.float64],
    *,
    all_parts: int,
    limit: NDArray[np.int64],
    capacity: NDArray[np.int64],
    bin_units: NDArray[np.int64],
    bin_parts: NDArray[np.int64],
    at_least: NDArray[np.int64],
    node_limit: int,
    keep: int = 1,
    threads: int = 1,
) -> list[tuple[int, int, int, NDArray[np.int64]]]: ...
