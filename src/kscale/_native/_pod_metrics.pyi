from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ODD: Sequence[str]

def read(
    text: bytes | memoryview,
) -> (
    tuple[
        list[str],
        NDArray[np.int32],
        NDArray[np.int32],
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.int32],
        list[NDArray[np.int64]],
        list[NDArray[np.uint8]],
        list[str],
        list[str],
        list[str],
        list[str],
        list[tuple[str, int, int, str]],
        list[str] | None,
    ]
    | None
): ...
def sample(
    ends: NDArray[np.int64],
    time: NDArray[np.int64],
    window: NDArray[np.int64],
    container: NDArray[np.int32],
    amount: NDArray[np.int64],
    present: NDArray[np.uint8],
    named: int,
    rows: NDArray[np.int64],
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]: ...
