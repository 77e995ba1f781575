"""Aggregates of the containers that share a name and a label set, and the columns that store them (upstream:
``aggregate_container_state.go``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kscale._native import _histogram
from kscale.effects import SECOND, ZERO_TIME, Moment, duration
from kscale.objects.api.meta import ResourceList
from kscale.objects.api.vpa import ContainerResourcePolicy
from kscale.vpa.model.histogram import CPU_HISTOGRAM_OPTIONS, MEMORY_HISTOGRAM_OPTIONS, Histograms
from kscale.vpa.options import PER_VPA_CONFIG_GATE, RecommenderOptions, is_gate_enabled

__all__ = [
    "AGGREGATE_COLUMNS",
    "CONTAINER_COLUMNS",
    "CONTROLLED_RESOURCES",
    "SCALING_OFF",
    "Aggregate",
    "AggregateKey",
    "AggregateStore",
    "get_scaling_policy",
    "update_from_policy",
]


AGGREGATE_COLUMNS: Final[Mapping[str, type[Any]]] = {
    "first": np.int64,
    "last": np.int64,
    "samples": np.int64,
    "interval": np.int64,
    "interval_count": np.int64,
    "oom_ratio": np.float64,
    "oom_min_bump": np.float64,
}
CONTAINER_COLUMNS: Final[Mapping[str, type[Any]]] = {
    "aggregate": np.int32,
    "last_cpu": np.int64,
    "last_memory": np.int64,
    "window_end": np.int64,
    "memory_peak": np.int64,
    "oom_peak": np.int64,
}
_Times = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Slots = npt.NDArray[np.int32]


class AggregateStore:
    """Columns behind aggregates (two histograms each) and containers. Rows are allocated and freed; free ones are
    reset.

    Per aggregate: ``first``, ``last`` (times of CPU samples, :data:`~kscale.effects.ZERO_TIME` before the first),
    ``samples``, ``interval``, ``interval_count``, ``oom_ratio``, ``oom_min_bump``. Per container: ``aggregate`` (row),
    ``last_cpu``, ``last_memory``, ``window_end``, ``memory_peak``, ``oom_peak``. Times in nanoseconds, memory in bytes.
    """

    first: _Times
    last: _Times
    samples: _Times
    interval: _Times
    interval_count: _Times
    oom_ratio: _Floats
    oom_min_bump: _Floats
    aggregate: _Slots
    last_cpu: _Times
    last_memory: _Times
    window_end: _Times
    memory_peak: _Times
    oom_peak: _Times

    def __init__(self, options: RecommenderOptions, rows: int = 0) -> None:
        """Create a store without containers, with ``rows`` allocated rows for aggregates."""
        self.options = options
        self.cpu = Histograms(CPU_HISTOGRAM_OPTIONS, rows, duration(options.cpu_histogram_decay_half_life))
        self.memory = Histograms(MEMORY_HISTOGRAM_OPTIONS, rows, duration(options.memory_histogram_decay_half_life))
        for name, type_ in AGGREGATE_COLUMNS.items():
            setattr(self, name, np.zeros(rows, type_))
        for name, type_ in CONTAINER_COLUMNS.items():
            setattr(self, name, np.empty(0, type_))
        if rows:
            self._begin_rows(slice(None))
        self.free_rows: list[int] = []
        self.free_slots: list[int] = []
        self._native: _histogram.Usage | None = None

    def __repr__(self) -> str:
        rows, slots = len(self.first) - len(self.free_rows), len(self.aggregate) - len(self.free_slots)
        return f"<Store: {rows} aggregates, {slots} containers>"

    def reserve(self, rows: int, slots: int) -> None:
        """Extend the store so that this many more aggregates and containers fit."""
        self._grow_rows(rows - len(self.free_rows))
        self._grow_slots(slots - len(self.free_slots))

    def _grow_rows(self, more: int) -> None:
        """Add free rows for ``more`` aggregates; nothing for 0 or less."""
        if more <= 0:
            return
        old = len(self.first)
        self.cpu.resize(old + more)
        self.memory.resize(old + more)
        self._extend(AGGREGATE_COLUMNS, more)
        self._begin_rows(slice(old, old + more))
        self.free_rows[:0] = range(old + more - 1, old - 1, -1)

    def _grow_slots(self, more: int) -> None:
        """Add free slots for ``more`` containers; nothing for 0 or less."""
        if more <= 0:
            return
        old = len(self.aggregate)
        self._extend(CONTAINER_COLUMNS, more)
        self.free_slots[:0] = range(old + more - 1, old - 1, -1)

    def _extend(self, columns: Mapping[str, type[Any]], more: int) -> None:
        """Append ``more`` zeros to each of the columns."""
        for name in columns:
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros(more, column.dtype)]))
        self._native = None

    def take_row(self) -> int:
        """Allocate a row for an aggregate and return its number."""
        if not self.free_rows:
            self._grow_rows(max(16, len(self.first) // 4))
        return self.free_rows.pop()

    def _begin_rows(self, rows: int | slice | _Times) -> None:
        """Set the columns of rows to those of a new aggregate, with the options' settings; histograms stay."""
        self.first[rows] = self.last[rows] = ZERO_TIME
        self.samples[rows] = 0
        options = self.options
        self.interval[rows] = duration(options.memory_aggregation_interval)
        self.interval_count[rows] = options.memory_aggregation_interval_count
        self.oom_ratio[rows] = options.oom_bump_up_ratio
        self.oom_min_bump[rows] = options.oom_min_bump_up_bytes

    def give_row(self, row: int) -> None:
        """Release the row of an aggregate, and reset the row and its histograms."""
        self._clear_rows(row)
        self.free_rows.append(row)

    def _clear_rows(self, rows: int | _Times) -> None:
        """Reset rows and their histograms."""
        self.cpu.clear(rows)
        self.memory.clear(rows)
        self._begin_rows(rows)

    def take_slot(self) -> int:
        """Allocate a slot for a container and return its number."""
        if not self.free_slots:
            self._grow_slots(max(16, len(self.aggregate) // 4))
        slot = self.free_slots.pop()
        self.aggregate[slot] = -1
        self.last_cpu[slot] = self.last_memory[slot] = self.window_end[slot] = ZERO_TIME
        self.memory_peak[slot] = self.oom_peak[slot] = 0
        return slot

    def give_slot(self, slot: int) -> None:
        """Release the slot of a container."""
        self.aggregate[slot] = -1
        self.free_slots.append(slot)

    def set_free(self, rows: _Times, slots: _Times) -> None:
        """Replace the lists of free rows and free slots, and reset these rows."""
        self._clear_rows(rows)
        self.free_rows, self.free_slots = rows.tolist(), slots.tolist()

    @property
    def native(self) -> _histogram.Usage:
        """Return the columns as an object of the kernels. It is built again after the columns were extended."""
        if self._native is None:
            self._native = _histogram.Usage(
                *(getattr(self, name) for name in CONTAINER_COLUMNS),
                *(getattr(self, name) for name in AGGREGATE_COLUMNS if name != "interval_count"),
            )
        return self._native

    def merge(self, into: _Times, other: AggregateStore, rows: _Times) -> None:
        """Add ``rows[i]`` of ``other`` to ``into[i]``, in order: histograms, first and last sample, number of samples.

        As upstream, this may move the reference times of histograms in ``other``. Raises HistogramError if half-lives
        differ.
        """
        self.cpu.merge(into, other.cpu, rows)
        self.memory.merge(into, other.memory, rows)
        known = other.first[rows] != ZERO_TIME
        first = np.full(len(self.first), _NEVER_TIME)
        np.minimum.at(first, into[known], other.first[rows[known]])
        mine = self.first != ZERO_TIME
        first[mine] = np.minimum(first[mine], self.first[mine])
        self.first = np.where(first == _NEVER_TIME, ZERO_TIME, first)
        np.maximum.at(self.last, into, other.last[rows])
        np.add.at(self.samples, into, other.samples[rows])
        self._native = None

    def add_history(
        self,
        cpu: bool,
        series: _Slots,
        time: _Times,
        values: _Floats,
        slots: _Slots,
        finite: _Times,
        now: int,
        threads: int,
    ) -> _histogram.Fed:
        """Add rows of recorded CPU (``cpu``, in cores) or memory (bytes) in order, without recording each rejection.

        ``slots[s]``: the slot of the container of series *s*; -1 for no container, counted in ``finite`` only; -2 for
        skipped. ``finite[s]`` is increased by the number of finite values. Returns the time of the newest sample, and
        the numbers of samples that are rejected, older than an earlier one, later than ``now``, negative, infinite and
        missing.
        """
        resource_histograms = self.cpu.native if cpu else self.memory.native
        return self.native.feed(resource_histograms, cpu, series, time, values, slots, finite, now, threads)

    def group_rows(
        self,
        series: _Slots,
        time: _Times,
        cpu: _Floats | None,
        memory: _Floats | None,
        slots: _Slots,
        threads: int,
    ) -> tuple[_Slots, _Times, _Floats | None, _Floats | None] | None:
        """Group rows for :meth:`add_history` by aggregate, each in its order; None if grouping does not pay off.

        Returns series, time, cpu and memory in the new order. Adding them gives equal results, and histograms are
        loaded from memory once per batch instead of once per row.
        """
        return self.native.arranged(series, time, cpu, memory, slots, threads)


_NEVER_TIME: Final = np.iinfo(np.int64).max


CONTROLLED_RESOURCES: Final = ("cpu", "memory")
SCALING_AUTO: Final = "Auto"
SCALING_OFF: Final = "Off"


class AggregateKey(NamedTuple):
    """Key of an aggregate. ``labels`` are in canonical form: ``k=v`` pairs sorted by key, joined with commas.

    The order of keys is the order of merges.
    """

    namespace: str
    container: str
    labels: str


@dataclass(slots=True, eq=False)
class Aggregate:
    """One row of a :class:`~kscale.vpa.model.aggregates.AggregateStore`, with the VPA's settings for it."""

    key: AggregateKey
    row: int
    created: Moment
    labels: Mapping[str, str] = field(default_factory=dict)
    last_recommendation: ResourceList | None = None
    is_under_vpa: bool = False
    update_mode: str | None = None
    scaling_mode: str | None = None
    controlled_resources: tuple[str, ...] | None = None
    alive: bool = True
    """False after garbage collection removed the aggregate. Containers that are bound directly still feed it."""
    bound: int = 0
    """Number of containers that are bound to the aggregate directly, not through its key."""

    @property
    def needs_recommendation(self) -> bool:
        """Return True if a VPA scales this container."""
        return self.is_under_vpa and self.scaling_mode is not None and self.scaling_mode != SCALING_OFF

    def mark_not_autoscaled(self) -> None:
        """Reset the VPA's settings when no VPA controls the aggregate any more."""
        self.is_under_vpa = False
        self.last_recommendation = None
        self.update_mode = None
        self.scaling_mode = None
        self.controlled_resources = None

    def is_empty(self, store: AggregateStore) -> bool:
        """Check whether there is no CPU sample yet."""
        return int(store.samples[self.row]) == 0

    def is_expired(self, store: AggregateStore, now: Moment) -> bool:
        """Check whether an aggregate is at least as old as its interval times its interval count.

        The age counts from the last sample, or from the creation if there is no CPU sample.
        """
        since = self.created if self.is_empty(store) else int(store.last[self.row])
        return now - since >= int(store.interval[self.row]) * int(store.interval_count[self.row])


def get_scaling_policy(policy: ContainerResourcePolicy | None) -> tuple[str, tuple[str, ...]]:
    """Return the scaling mode and the controlled resources of a container under its policy.

    Without a policy they are Auto and (cpu, memory). Unknown resources are left out.
    """
    mode = (policy.mode if policy is not None else None) or SCALING_AUTO
    if policy is None or policy.controlled_resources is None:
        return mode, CONTROLLED_RESOURCES
    return mode, tuple(name for name in policy.controlled_resources if name in CONTROLLED_RESOURCES)


def update_from_policy(store: AggregateStore, aggregate: Aggregate, policy: ContainerResourcePolicy | None) -> None:
    """Set an aggregate's scaling mode and controlled resources from a policy (``UpdateFromPolicy``).

    With the gate PerVPAConfig, also set its OOM bump and memory intervals in the store. These stay when the policy no
    longer has them, as in upstream.
    """
    aggregate.scaling_mode, aggregate.controlled_resources = get_scaling_policy(policy)
    if policy is None or not is_gate_enabled(store.options.feature_gates, PER_VPA_CONFIG_GATE):
        return
    row = aggregate.row
    if policy.oom_bump_up_ratio is not None:
        store.oom_ratio[row] = float(policy.oom_bump_up_ratio.milli_value()) / 1000.0
    if policy.oom_min_bump_up is not None:
        store.oom_min_bump[row] = float(policy.oom_min_bump_up.milli_value()) / 1000.0
    if policy.memory_aggregation_interval_seconds is not None:
        store.interval[row] = policy.memory_aggregation_interval_seconds * SECOND
    if policy.memory_aggregation_interval_count is not None:
        store.interval_count[row] = policy.memory_aggregation_interval_count
