from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kscale._native._engine import Engine

REMOVABLE: int
BLOCKED: int
NO_PLACE: int
NOT_THERE: int
NOT_LOOKED: int

_Fates: TypeAlias = tuple[
    NDArray[np.int8],
    NDArray[np.uint8],
    NDArray[np.int32],
    NDArray[np.int64],
    NDArray[np.int32],
    NDArray[np.int32],
]

class Removals:
    engine: Engine
    def __init__(
        self,
        engine: Engine,
        runs_as: NDArray[np.int32],
        moves_as: NDArray[np.int32],
        priority: NDArray[np.int64],
        node: NDArray[np.int32],
    ) -> None: ...
    def copy(self, engine: Engine) -> Removals: ...
    def set_hints(self, hint: NDArray[np.int32]) -> None: ...
    def put(self, pod: int, node: int) -> None: ...
    def on(self, node: int) -> NDArray[np.int32]: ...
    def new_hints(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]: ...
    def run(
        self,
        candidates: NDArray[np.int32],
        destinations: NDArray[np.uint8],
        codes: NDArray[np.uint8],
        set_of: NDArray[np.int32],
        set_start: NDArray[np.int32],
        set_ids: NDArray[np.int32],
        allowed: NDArray[np.int64],
        *,
        atomic: NDArray[np.uint8] | None = None,
        limit: int | None = None,
        persist: bool = True,
        charge: bool = True,
    ) -> _Fates: ...
    def alone(
        self,
        candidates: NDArray[np.int32],
        destinations: NDArray[np.uint8],
        codes: NDArray[np.uint8],
        set_of: NDArray[np.int32],
        set_start: NDArray[np.int32],
        set_ids: NDArray[np.int32],
        allowed: NDArray[np.int64],
        *,
        threads: int = 1,
    ) -> _Fates: ...

def losses(
    engine: Engine,
    pod_class: NDArray[np.int32],
    priority: NDArray[np.int64],
    node: NDArray[np.int32],
    stays: NDArray[np.uint8],
    start: NDArray[np.int32],
    nodes: NDArray[np.int32],
    *,
    n_first: int = 3,
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]: ...
def more_of(engine: Engine, pod: int, most: int) -> int: ...
