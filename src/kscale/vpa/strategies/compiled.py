"""Strategies whose arithmetic is compiled by numba (extra ``[plugins]``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec
import numpy as np

from kscale.errors import NativeError
from kscale.libraries import library
from kscale.vpa.strategies.base import Advised, ContainerUsage, Samples, Strategy

__all__ = ["CompiledStrategy"]


class CompiledStrategy(Strategy):
    """Base of strategies with a compiled ``kernel``; a subclass sets ``name``, ``Settings`` and ``kernel``.

    ``kernel(cpu, memory, settings)`` is a static method in the part of Python that numba compiles. ``cpu`` (cores) and
    ``memory`` (bytes) are float64 arrays of the samples of all pods, pod after pod; ``settings`` is a tuple of the
    settings in their order, or ``(0.0,)`` without any. It returns (CPU request, memory request, CPU limit, memory
    limit) in cores and bytes; NaN = no advice. Amounts are rounded up to whole millicores and bytes.
    """

    uses_recommendation: ClassVar[bool] = False
    kernel: ClassVar[Callable[..., tuple[float, float, float, float]]]

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self._compiled = library("numba", "a compiled strategy").njit(nogil=True)(type(self).kernel)
        self._numbers = tuple(map(float, msgspec.structs.astuple(self.settings))) or (0.0,)

    def advise(self, usage: ContainerUsage) -> Advised:
        """The kernel's answer; what it raises is a :class:`kscale.errors.NativeError`."""
        try:
            answer = self._compiled(_joined(usage.cpu.values()), _joined(usage.memory.values()), self._numbers)
        except Exception as error:
            raise NativeError(f"strategy {self.name}: {type(error).__name__}: {error}") from error
        try:
            cpu, memory, cpu_limit, memory_limit = map(float, answer)
        except (TypeError, ValueError):
            raise NativeError(f"strategy {self.name}: the kernel returned {answer!r}, not four numbers") from None
        return Advised(
            cpu_request=_whole(cpu * 1000),
            memory_request=_whole(memory),
            cpu_limit=_whole(cpu_limit * 1000),
            memory_limit=_whole(memory_limit),
        )


def _joined(pods: Iterable[Samples]) -> Samples:
    return np.concatenate([np.empty(0), *pods])


def _whole(amount: float) -> int | None:
    return math.ceil(amount) if math.isfinite(amount) else None
