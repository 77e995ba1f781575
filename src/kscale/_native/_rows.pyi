from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

def scatter(rows: NDArray[np.int64], columns: list[NDArray[Any]], values: list[NDArray[Any]]) -> None: ...
def add_amounts(
    sums: list[NDArray[np.int64]],
    amounts: list[NDArray[np.int64] | None],
    at: NDArray[np.int32],
    kind: NDArray[np.int32],
    sign: NDArray[np.int8],
) -> None: ...
def same_texts(
    buffers: list[memoryview],
    source: NDArray[np.int32],
    at: NDArray[np.int64],
    size: NDArray[np.int64],
    data: Buffer,
    other_at: NDArray[np.int64],
    other_size: NDArray[np.int64],
) -> NDArray[np.bool_]: ...
