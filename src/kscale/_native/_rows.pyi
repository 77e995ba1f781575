from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

def changes(rows: NDArray[np.int64], columns: list[NDArray[Any]], values: NDArray[np.int64]) -> NDArray[np.int64]: ...
def scatter(rows: NDArray[np.int64], columns: list[NDArray[Any]], values: NDArray[np.int64]) -> None: ...
def release_texts(
    rows: NDArray[np.int64],
    source: NDArray[np.int32],
    size: NDArray[np.int32],
    uid_size: NDArray[np.int32],
    live: Buffer,
    whole: Buffer,
) -> list[int]: ...
def add_placed(
    rows: NDArray[np.int64],
    state: NDArray[np.int8],
    placed: int,
    class_of: NDArray[np.int32],
    at: NDArray[np.int32],
    sign: int,
    known: NDArray[np.uint8],
    count: NDArray[np.int64],
    sums: list[NDArray[np.int64] | None],
    amounts: list[NDArray[np.int64]],
) -> list[int] | None: ...
def same_texts(
    buffers: list[memoryview],
    source: NDArray[np.int32],
    at: NDArray[np.int64],
    size: NDArray[np.int64],
    data: Buffer,
    other_at: NDArray[np.int64],
    other_size: NDArray[np.int64],
) -> NDArray[np.bool_]: ...
