"""Samples and out-of-memory events as columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kscale.errors import InputError

__all__ = ["CPU_SAMPLE", "MEMORY_SAMPLE", "OOM", "ContainerName", "Usage"]

CPU_SAMPLE: Final = 0
MEMORY_SAMPLE: Final = 1
OOM: Final = 2

ContainerName = tuple[str, str, str]
"""(namespace, pod, container)."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Events in the order in which they are to be taken in.

    ``containers[container[i]]`` used ``value[i]`` at ``time[i]``. ``container`` int32[n]; ``time`` int64[n],
    nanoseconds since 1970; ``value`` int64[n], millicores or bytes (for an OOM: the memory that the container had
    requested); ``kind`` uint8[n] or one number for all: :data:`CPU_SAMPLE`, :data:`MEMORY_SAMPLE`, :data:`OOM`.
    """

    containers: Sequence[ContainerName]
    container: npt.NDArray[np.int32]
    time: npt.NDArray[np.int64]
    value: npt.NDArray[np.int64]
    kind: npt.NDArray[np.uint8] | int

    def __post_init__(self) -> None:
        n = len(self.container)
        kinds = n if isinstance(self.kind, int) else len(self.kind)
        if not n == len(self.time) == len(self.value) == kinds:
            raise InputError(f"usage columns of unequal length: {n}, {len(self.time)}, {len(self.value)}, {kinds}")
        if n and not 0 <= int(self.container.min()) <= int(self.container.max()) < len(self.containers):
            raise InputError(f"usage names a container outside the {len(self.containers)} listed ones")

    @classmethod
    def from_events(cls, events: Iterable[tuple[ContainerName, int, int, int]]) -> Usage:
        """From ``events``: (container, time, value, kind) tuples."""
        names: dict[ContainerName, int] = {}
        rows = [(names.setdefault(name, len(names)), time, value, kind) for name, time, value, kind in events]
        columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
        return cls(
            list(names),
            np.array(columns[0], np.int32),
            np.array(columns[1], np.int64),
            np.array(columns[2], np.int64),
            np.array(columns[3], np.uint8),
        )

    def __len__(self) -> int:
        return len(self.container)
