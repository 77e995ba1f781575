import numpy as np
from numpy.typing import NDArray

from kscale._native._engine import Engine, Template

FAKE: int
NOWHERE: int
NOT_TRIED: int

def estimate(
    engine: Engine,
    pod_class: NDArray[np.int32],
    group_start: NDArray[np.int32],
    template: Template,
    *,
    max_nodes: int = 0,
    fast_last: bool = False,
    clash: int = -1,
) -> tuple[NDArray[np.int32], NDArray[np.int32], int, int, int, int]: ...
def try_schedule(
    engine: Engine,
    pod_class: NDArray[np.int32],
    hint: NDArray[np.int32],
    similar: NDArray[np.int32],
    controller: NDArray[np.int32],
    group_start: NDArray[np.int32],
    *,
    acceptable: NDArray[np.uint8] | None = None,
    break_on_failure: bool = False,
    max_looks: int = -1,
) -> tuple[NDArray[np.int32], NDArray[np.int32], int]: ...
