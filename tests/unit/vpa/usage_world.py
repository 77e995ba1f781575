"""A few containers and their aggregates as the usage kernels take them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kscale._native import _histogram as native
from kscale.effects import ZERO_TIME
from kscale.vpa.model.histogram import CPU_HISTOGRAM_OPTIONS, MEMORY_HISTOGRAM_OPTIONS, Histograms

HOUR = 3600 * 10**9
DAY = 24 * HOUR
START = 1767582000 * 10**9
AGGREGATE_OF = [0, 1, 1, 2, 0, 3, 4, 5, 6]  # container -> aggregate


@dataclass
class World:
    half_life: int = DAY
    interval: int = DAY
    cpu: Histograms = field(init=False)
    memory: Histograms = field(init=False)
    columns: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        n, m = len(AGGREGATE_OF), max(AGGREGATE_OF) + 1
        self.cpu = Histograms(CPU_HISTOGRAM_OPTIONS, m, self.half_life)
        self.memory = Histograms(MEMORY_HISTOGRAM_OPTIONS, m, self.half_life)
        unset = {
            name: np.full(k, ZERO_TIME, np.int64)
            for name, k in (("last_cpu", n), ("last_memory", n), ("window_end", n), ("first", m), ("last", m))
        }
        self.columns = {
            "aggregate": np.array(AGGREGATE_OF, np.int32),
            **{name: unset[name] for name in ("last_cpu", "last_memory", "window_end")},
            "memory_peak": np.zeros(n, np.int64),
            "oom_peak": np.zeros(n, np.int64),
            "first": unset["first"],
            "last": unset["last"],
            "samples": np.zeros(m, np.int64),
            "interval": np.full(m, self.interval, np.int64),
            "oom_ratio": np.full(m, 1.2),
            "oom_min_bump": np.full(m, 104857600.0),
        }
        self.usage = native.Usage(*self.columns.values())

    def same(self, other: World) -> None:
        for mine, theirs in zip(self.columns.values(), other.columns.values(), strict=True):
            assert np.array_equal(mine, theirs)
        for a, b in ((self.cpu, other.cpu), (self.memory, other.memory)):
            for name in ("weights", "total", "min_bucket", "max_bucket", "reference"):
                assert np.array_equal(getattr(a, name), getattr(b, name)), name

    def add(self, samples: list[tuple[int, int, int, int]], threads: int = 1) -> tuple[list[int], list[int]]:
        """(container, time, value, kind): kind 0 = CPU, 1 = memory, 2 = OOM."""
        statuses = []
        for kinds in ((0,), (1, 2)):
            chosen = [s for s in samples if s[3] in kinds]
            status = np.full(len(chosen), 9, np.uint8)
            container = np.array([s[0] for s in chosen], np.int32)
            time = np.array([s[1] for s in chosen], np.int64)
            value = np.array([s[2] for s in chosen], np.int64)
            if kinds == (0,):
                self.usage.add_cpu(self.cpu.native, container, time, value, status, threads)
            else:
                oom = np.array([s[3] == 2 for s in chosen], np.uint8)
                self.usage.add_memory(self.memory.native, container, time, value, status, oom, threads)
            statuses.append(status.tolist())
        return statuses[0], statuses[1]
