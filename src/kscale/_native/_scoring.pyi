from typing import Protocol

import numpy as np
from numpy.typing import NDArray

class _Plugin(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def address(self) -> int: ...

def score_all(
    request: NDArray[np.int64], free: NDArray[np.int64], plugin: _Plugin, *, threads: int = 1
) -> NDArray[np.float64]: ...
