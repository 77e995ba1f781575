"""Aggregates: what containers of one name and one label set have in common (``aggregate_container_state.go``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kscale._native import _histogram
from kscale.effects import ZERO_TIME, duration
from kscale.objects.base import ResourceList
from kscale.objects.vpa import ContainerResourcePolicy
from kscale.vpa.histogram import CPU_OPTIONS, MEMORY_OPTIONS, Histograms
from kscale.vpa.options import PER_VPA_CONFIG, RecommenderOptions, gate

__all__ = ["CONTROLLED_RESOURCES", "Aggregate", "AggregateKey", "Store", "apply_policy"]

CONTROLLED_RESOURCES: Final = ("cpu", "memory")
SCALING_AUTO: Final = "Auto"
SCALING_OFF: Final = "Off"


class AggregateKey(NamedTuple):
    """``labels`` in canonical form: ``k=v`` pairs by key, joined with commas. Keys sort as we merge."""

    namespace: str
    container: str
    labels: str


@dataclass(slots=True)
class Aggregate:
    """One row of the :class:`Store`, and what VPAs say about it."""

    key: AggregateKey
    row: int
    created: int
    labels: Mapping[str, str] = field(default_factory=dict)
    last_recommendation: ResourceList | None = None
    is_under_vpa: bool = False
    update_mode: str | None = None
    scaling_mode: str | None = None
    controlled_resources: tuple[str, ...] | None = None
    alive: bool = True
    """False once garbage collection took it; containers bound to it directly go on feeding it."""
    bound: int = 0
    """How many containers are bound to it directly, not through its key."""

    @property
    def needs_recommendation(self) -> bool:
        """Under a VPA that does not leave this container alone."""
        return self.is_under_vpa and self.scaling_mode is not None and self.scaling_mode != SCALING_OFF

    def mark_not_autoscaled(self) -> None:
        """No VPA is in charge any more."""
        self.is_under_vpa = False
        self.last_recommendation = None
        self.update_mode = None
        self.scaling_mode = None
        self.controlled_resources = None


AGGREGATE_COLUMNS: Final = ("first", "last", "samples", "interval", "interval_count", "oom_ratio", "oom_min_bump")
CONTAINER_COLUMNS: Final = ("aggregate", "last_cpu", "last_memory", "window_end", "memory_peak", "oom_peak")


class Store:
    """The columns behind aggregates (two histograms each) and containers; rows are handed out and given back.

    Per aggregate: ``first``, ``last`` (times of CPU samples, :data:`~kscale.effects.ZERO_TIME` before the first),
    ``samples``, ``interval``, ``interval_count``, ``oom_ratio``, ``oom_min_bump``. Per container: ``aggregate`` (row),
    ``last_cpu``, ``last_memory``, ``window_end``, ``memory_peak``, ``oom_peak``. Times in nanoseconds, memory in bytes.
    """

    def __init__(self, options: RecommenderOptions) -> None:
        self.options = options
        self.cpu = Histograms(CPU_OPTIONS, 0, duration(options.cpu_histogram_decay_half_life))
        self.memory = Histograms(MEMORY_OPTIONS, 0, duration(options.memory_histogram_decay_half_life))
        self.first = np.empty(0, np.int64)
        self.last = np.empty(0, np.int64)
        self.samples = np.empty(0, np.int64)
        self.interval = np.empty(0, np.int64)
        self.interval_count = np.empty(0, np.int64)
        self.oom_ratio = np.empty(0, np.float64)
        self.oom_min_bump = np.empty(0, np.float64)
        self.aggregate = np.empty(0, np.int32)
        self.last_cpu = np.empty(0, np.int64)
        self.last_memory = np.empty(0, np.int64)
        self.window_end = np.empty(0, np.int64)
        self.memory_peak = np.empty(0, np.int64)
        self.oom_peak = np.empty(0, np.int64)
        self.free_rows: list[int] = []
        self.free_slots: list[int] = []
        self._native: _histogram.Usage | None = None

    def reserve(self, rows: int, slots: int) -> None:
        """Make room for this many aggregates and containers more than are free now."""
        self._grow_rows(rows - len(self.free_rows))
        self._grow_slots(slots - len(self.free_slots))

    def _grow_rows(self, more: int) -> None:
        if more <= 0:
            return
        old = len(self.first)
        self.cpu.resize(old + more)
        self.memory.resize(old + more)
        for name in AGGREGATE_COLUMNS:
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros(more, column.dtype)]))
        self.free_rows[:0] = range(old + more - 1, old - 1, -1)
        self._native = None

    def _grow_slots(self, more: int) -> None:
        if more <= 0:
            return
        old = len(self.aggregate)
        for name in CONTAINER_COLUMNS:
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros(more, column.dtype)]))
        self.free_slots[:0] = range(old + more - 1, old - 1, -1)
        self._native = None

    def take_row(self) -> int:
        """A fresh aggregate."""
        if not self.free_rows:
            self._grow_rows(max(16, len(self.first) // 4))
        row = self.free_rows.pop()
        self.cpu.clear([row])
        self.memory.clear([row])
        self.first[row] = self.last[row] = ZERO_TIME
        self.samples[row] = 0
        options = self.options
        self.interval[row] = duration(options.memory_aggregation_interval)
        self.interval_count[row] = options.memory_aggregation_interval_count
        self.oom_ratio[row] = options.oom_bump_up_ratio
        self.oom_min_bump[row] = options.oom_min_bump_up_bytes
        return row

    def give_row(self, row: int) -> None:
        """The aggregate is gone."""
        self.free_rows.append(row)

    def take_slot(self) -> int:
        """A fresh container."""
        if not self.free_slots:
            self._grow_slots(max(16, len(self.aggregate) // 4))
        slot = self.free_slots.pop()
        self.aggregate[slot] = -1
        self.last_cpu[slot] = self.last_memory[slot] = self.window_end[slot] = ZERO_TIME
        self.memory_peak[slot] = self.oom_peak[slot] = 0
        return slot

    def give_slot(self, slot: int) -> None:
        """The container is gone."""
        self.aggregate[slot] = -1
        self.free_slots.append(slot)

    @property
    def native(self) -> _histogram.Usage:
        """The columns as the kernels take them."""
        if self._native is None:
            self._native = _histogram.Usage(
                self.aggregate,
                self.last_cpu,
                self.last_memory,
                self.window_end,
                self.memory_peak,
                self.oom_peak,
                self.first,
                self.last,
                self.samples,
                self.interval,
                self.oom_ratio,
                self.oom_min_bump,
            )
        return self._native

    def is_empty(self, aggregate: Aggregate) -> bool:
        """No CPU sample yet."""
        return int(self.samples[aggregate.row]) == 0

    def is_expired(self, aggregate: Aggregate, now: int) -> bool:
        """Nothing new for the whole window (interval * count)."""
        row = aggregate.row
        since = aggregate.created if self.is_empty(aggregate) else int(self.last[row])
        return now - since >= int(self.interval[row]) * int(self.interval_count[row])

    def apply_policy(self, aggregate: Aggregate, policy: ContainerResourcePolicy | None) -> None:
        """``UpdateFromPolicy``. Overrides of the aggregation stay when the policy no longer has them, as upstream."""
        aggregate.scaling_mode, aggregate.controlled_resources = apply_policy(policy)
        if policy is None or not gate(self.options.feature_gates, PER_VPA_CONFIG):
            return
        row = aggregate.row
        if policy.oom_bump_up_ratio is not None:
            self.oom_ratio[row] = float(policy.oom_bump_up_ratio.milli_value()) / 1000.0
        if policy.oom_min_bump_up is not None:
            self.oom_min_bump[row] = float(policy.oom_min_bump_up.milli_value()) / 1000.0
        if policy.memory_aggregation_interval_seconds is not None:
            self.interval[row] = policy.memory_aggregation_interval_seconds * 10**9
        if policy.memory_aggregation_interval_count is not None:
            self.interval_count[row] = policy.memory_aggregation_interval_count

    def merge(self, into: npt.NDArray[np.int64], other: Store, rows: npt.NDArray[np.int64]) -> None:
        """Add ``rows[i]`` of ``other`` to ``into[i]``, in order: histograms, first and last sample, count."""
        self.cpu.merge(into, other.cpu, rows)
        self.memory.merge(into, other.memory, rows)
        for i, r in zip(into.tolist(), rows.tolist(), strict=True):
            first = int(other.first[r])
            if first != ZERO_TIME and (self.first[i] == ZERO_TIME or first < self.first[i]):
                self.first[i] = first
            self.last[i] = max(self.last[i], other.last[r])
            self.samples[i] += other.samples[r]


def apply_policy(policy: ContainerResourcePolicy | None) -> tuple[str, tuple[str, ...]]:
    """Scaling mode and controlled resources under a policy; names that are no resource of the VPA are dropped."""
    mode = (policy.mode if policy is not None else None) or SCALING_AUTO
    if policy is None or policy.controlled_resources is None:
        return mode, CONTROLLED_RESOURCES
    return mode, tuple(name for name in policy.controlled_resources if name in CONTROLLED_RESOURCES)
