from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscale._native._engine import Engine

PLUGINS: tuple[str, ...]
STRATEGIES: tuple[str, ...]

def enough_nodes(nodes: int, percentage: int) -> int: ...
def broken_line(shape: Iterable[tuple[int, int]], at: int) -> int: ...

class Scorer:
    def __init__(self, nodes: int) -> None: ...
    def add_column(
        self,
        allocatable: NDArray[np.int64],
        used: NDArray[np.int64],
        non_zero: NDArray[np.int64],
        *,
        scalar: bool = False,
    ) -> int: ...
    def add_row(
        self, domain: NDArray[np.int32], count: NDArray[np.int64], counts: NDArray[np.uint8] | None = None
    ) -> int: ...
    def add_static(self, scores: NDArray[np.int64]) -> int: ...
    def add_class(
        self,
        *,
        non_zero: Iterable[int],
        requested: Iterable[int],
        takes_non_zero: Iterable[int],
        takes: Iterable[int],
        taints: int = -1,
        affinity: int = -1,
        images: int = -1,
        volumes: int = -1,
        broken: bool = False,
        whole: bool = False,
        spread: Iterable[tuple[int, int, bool]] = (),
        terms: Iterable[tuple[int, int]] = (),
        touch: Iterable[tuple[int, int]] = (),
    ) -> int: ...
    def set_weights(self, weights: Sequence[int]) -> None: ...
    def set_fit(
        self, strategy: int, columns: Iterable[tuple[int, int]], shape: Iterable[tuple[int, int]] = ()
    ) -> None: ...
    def set_balanced(self, columns: Iterable[int]) -> None: ...
    def add_user(self, plugin: Any, columns: Iterable[int], weight: int) -> None: ...
    def score(self, pod: int, nodes: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...

def select(
    engine: Engine,
    scorer: Scorer,
    pod_class: NDArray[np.int32],
    score_class: NDArray[np.int32],
    node_set: NDArray[np.int32],
    set_start: NDArray[np.int32],
    set_nodes: NDArray[np.int32],
    *,
    acceptable: NDArray[np.uint8] | None = None,
    percentage: int = 0,
    start: int = 0,
) -> tuple[NDArray[np.int32], NDArray[np.int32], int]: ...
