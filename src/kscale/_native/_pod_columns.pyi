from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

SLOTS: tuple[str, ...]
COLUMNS: tuple[str, ...]
LOOKS: np.dtype[Any]

def read_pods(
    data: Buffer,
    listed: bool,
    first: int,
    begin: NDArray[np.int64],
    size: NDArray[np.int64],
    combined: NDArray[np.int32],
    at: NDArray[np.int64],
    length: NDArray[np.int64],
    looks: NDArray[Any],
    states: tuple[int, int],
    namespace: str,
) -> tuple[NDArray[np.bool_], list[str], NDArray[np.int64], list[tuple[int, int]]] | None: ...
