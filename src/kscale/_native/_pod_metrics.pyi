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
    ]
    | None
): ...
