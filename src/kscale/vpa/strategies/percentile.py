"""Exact percentiles of what was used (KRR's ``simple`` and ``simple_limit``)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Final

import msgspec
import numpy as np

from kscale.vpa.strategies.base import Advised, ContainerUsage, Samples, Strategy, register

__all__ = ["Percentile", "PercentileLimit"]

_MEBIBYTE: Final = 1024**2

Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]
Buffer = Annotated[float, msgspec.Meta(ge=0, le=10_000)]
Least = Annotated[int, msgspec.Meta(ge=0, le=10**9)]


def _millicores(cores: float, least: int) -> int:
    return max(math.ceil(cores * 1000), least)


def _bytes(size: float, least: int) -> int:
    return max(math.ceil(size / _MEBIBYTE) * _MEBIBYTE, least * _MEBIBYTE)


def _filled(pods: Iterable[Samples]) -> list[Samples]:
    return [samples for samples in pods if len(samples)]


class PercentileSettings(msgspec.Struct, frozen=True):
    """``cpu_percentile`` in percent; memory is the peak and ``memory_buffer_percentage`` on top; least requests."""

    cpu_percentile: Percent = 95.0
    memory_buffer_percentage: Buffer = 15.0
    oom_memory_buffer_percentage: Buffer = 25.0
    cpu_min_millicores: Least = 10
    memory_min_mib: Least = 100


@register
class Percentile(Strategy):
    """CPU request = the largest pod's percentile, no CPU limit; memory request = limit = peak plus a buffer."""

    name: ClassVar[str] = "percentile"
    uses_recommendation: ClassVar[bool] = False
    Settings: ClassVar[type[msgspec.Struct]] = PercentileSettings

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self.settings: PercentileSettings

    def advise(self, usage: ContainerUsage) -> Advised:
        """From the samples of each pod."""
        how = self.settings
        cpu = _filled(usage.cpu.values())
        memory = _filled(usage.memory.values())
        millicores = None
        if cpu:
            share = round(how.cpu_percentile / 100, 2)
            cores = max(float(np.quantile(samples, share)) for samples in cpu)
            millicores = _millicores(cores, how.cpu_min_millicores)
        size = None
        if memory:
            peak = max(float(samples.max()) for samples in memory) * (1 + how.memory_buffer_percentage / 100)
            peak = max(peak, usage.oom_memory * (1 + how.oom_memory_buffer_percentage / 100))
            size = _bytes(peak, how.memory_min_mib)
        return Advised(cpu_request=millicores, memory_request=size, memory_limit=size)


class PercentileLimitSettings(msgspec.Struct, frozen=True):
    """Percentiles in percent, the buffer on the memory peak, and least requests."""

    cpu_request_percentile: Percent = 66.0
    cpu_limit_percentile: Percent = 96.0
    memory_buffer_percentage: Buffer = 15.0
    oom_memory_buffer_percentage: Buffer = 25.0
    cpu_min_millicores: Least = 10
    memory_min_mib: Least = 100


@register
class PercentileLimit(Strategy):
    """CPU request and limit = two percentiles over the samples of all pods together; memory as ``percentile``."""

    name: ClassVar[str] = "percentile-limit"
    uses_recommendation: ClassVar[bool] = False
    Settings: ClassVar[type[msgspec.Struct]] = PercentileLimitSettings

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self.settings: PercentileLimitSettings

    def advise(self, usage: ContainerUsage) -> Advised:
        """From the samples of all pods."""
        how = self.settings
        memory = Percentile(
            PercentileSettings(
                memory_buffer_percentage=how.memory_buffer_percentage,
                oom_memory_buffer_percentage=how.oom_memory_buffer_percentage,
                memory_min_mib=how.memory_min_mib,
            )
        ).advise(ContainerUsage(memory=usage.memory, oom_memory=usage.oom_memory))
        cpu = _filled(usage.cpu.values())
        if not cpu:
            return memory
        request, limit = np.percentile(
            np.concatenate(cpu), [how.cpu_request_percentile, how.cpu_limit_percentile]
        ).tolist()
        return memory._replace(
            cpu_request=_millicores(request, how.cpu_min_millicores),
            cpu_limit=_millicores(limit, how.cpu_min_millicores),
        )
