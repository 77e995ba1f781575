"""Feed recorded usage into the recommender's state, in order of time, and count samples that belong to no workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from kscale._native import _histogram
from kscale.effects import ZERO_TIME
from kscale.series.columns import SeriesKey
from kscale.series.usage_reader import UsageBatch
from kscale.vpa.advice.workloads import Workload, WorkloadKey, Workloads
from kscale.vpa.model.saved_state import CPU_SAMPLE, MEMORY_SAMPLE, RecommenderState, find_slot
from kscale.vpa.strategies import ContainerUsage, Strategy

__all__ = ["UsageFeed", "feed_history"]


_NOT_REQUESTED: Final = ""
_Floats = npt.NDArray[np.float64]
_MAX_TIME: Final = (1 << 63) - 1


@dataclass(slots=True)
class _SeriesDestination:
    """Container to which the samples of a series belong. ``reason``: why they belong to none (empty: not selected)."""

    owner: Workload | None = None
    reason: str | None = None
    container: str = ""
    slot: int = _histogram.UNPLACED


_NO_DESTINATION: Final = _SeriesDestination(reason=_NOT_REQUESTED, slot=_histogram.UNASKED)


@dataclass(slots=True)
class UsageFeed:
    """Consumer of usage batches.

    ``chosen``: the selected workloads. ``namespaces``: empty for all. ``now``: if set, later samples are counted (and
    added, as upstream does).
    """

    state: RecommenderState
    workloads: Workloads
    strategy: Strategy
    chosen: Collection[WorkloadKey]
    namespaces: Collection[str] = ()
    now: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    newest: int = ZERO_TIME
    usage: dict[tuple[str, str, str, str], ContainerUsage] = field(default_factory=dict)
    memory_points: Counter[tuple[WorkloadKey, str]] = field(default_factory=Counter)
    """Memory samples taken in; those of CPU the model counts itself."""
    behind: int = 0
    """Samples that are older than one that was taken in before; doubled ones are not counted."""
    places: dict[tuple[SeriesKey, str], _SeriesDestination] = field(default_factory=dict)
    first_seen: dict[tuple[str, str], Workload | None] = field(default_factory=dict)
    _times: list[npt.NDArray[np.int64]] = field(default_factory=list)
    """Of some samples of each batch."""
    # Caches for the series of the last batches:
    _keys: Sequence[SeriesKey] = ()
    _places: list[_SeriesDestination] = field(default_factory=list)
    _slots: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    _finite: dict[int, npt.NDArray[np.int64]] = field(
        default_factory=lambda: {kind: np.zeros(0, np.int64) for kind in (CPU_SAMPLE, MEMORY_SAMPLE)}
    )
    """Numbers among the values of each series, by kind."""

    def resolve(
        self, namespace: str, pod: str, named: str = "", labels: Mapping[str, str] | None = None
    ) -> Workload | None:
        """Find the workload of a pod by the dump's objects, then by labels (unless ``named``), then by name."""
        known = self.workloads.pod_owner.get((namespace, pod))
        if known is not None:
            return known
        if (namespace, pod) not in self.first_seen:
            workload = self.workloads.owner_by_labels(namespace, labels) if labels and not named else None
            workload = workload or self.workloads.owner_of_gone(namespace, pod, named)
            self.first_seen[namespace, pod] = workload
            if workload is None:
                self.counts["pods of no known workload"] += 1
            elif workload.identity in self.chosen:
                self.counts["pods gone, mapped to their workload"] += 1
        return self.first_seen[namespace, pod]

    def place(self, key: SeriesKey, named: str = "", labels: Mapping[str, str] | None = None) -> _SeriesDestination:
        """Return the destination of a series. Removed pods and their containers are added to the model."""
        if self.namespaces and key.namespace not in self.namespaces:
            return _NO_DESTINATION
        owner = self.resolve(key.namespace, key.pod, named, labels)
        if owner is None:
            return _SeriesDestination(reason="samples of no known workload")
        if owner.identity not in self.chosen:
            return _NO_DESTINATION
        if key.container in ("", "POD"):
            return _SeriesDestination(reason="samples of whole pods or their pause containers, left out")
        pod = self.state.pods.get((key.namespace, key.pod))
        if pod is None:
            pod = self.state.add_pod(key.namespace, key.pod, owner.labels, "Unknown", 0)
            pod.init_containers = owner.init_containers
        if key.container in pod.init_containers:
            return _SeriesDestination(reason="samples of init containers, left out")
        if key.container not in owner.containers:
            return _SeriesDestination(reason="samples of containers that their workload does not have")
        if key.container not in pod.containers:
            self.state.add_container(pod, key.container, 0)
        name = (key.namespace, key.pod, key.container)
        return _SeriesDestination(owner, container=key.container, slot=find_slot(self.state, name, 0))

    def _resolve_destinations(self, batch: UsageBatch) -> None:
        """Resolve the destinations of a batch's series, reusing those of earlier batches with the same keys."""
        if batch.labels or batch.keys is not self._keys:
            self.settle()
            self._keys, self._places = batch.keys, []
        done = len(self._places)
        for i in range(done, len(batch.keys)):
            key, named = batch.keys[i], batch.workloads[i]
            if batch.labels:
                self._places.append(self.place(key, named, batch.labels[i]))
                continue
            place = self.places.get((key, named))
            if place is None:
                place = self.places[key, named] = self.place(key, named)
            self._places.append(place)
        if len(self._places) > done:
            slots = [place.slot for place in self._places[done:]]
            self._slots = np.concatenate([self._slots[:done], np.array(slots, np.int32)])
            more = np.zeros(len(slots), np.int64)
            self._finite = {kind: np.concatenate([counts[:done], more]) for kind, counts in self._finite.items()}

    def add(self, batch: UsageBatch) -> None:
        """Add one batch."""
        self.counts.update(f"warnings of the source: {text}" for text in batch.warnings)
        if not len(batch):
            return
        self._resolve_destinations(batch)
        self._times.append(batch.time[:: max(1, len(batch) // 1000)].copy())
        series, time, cpu, memory = batch.series, batch.time, batch.cpu, batch.memory
        if not _histogram.in_order(series, time, len(batch.keys)):
            order = np.argsort(time, kind="stable")
            series, time = series[order], time[order]
            cpu, memory = (None if values is None else values[order] for values in (cpu, memory))
        cpu, memory = (None if values is None else np.ascontiguousarray(values) for values in (cpu, memory))
        if self.strategy.needs_samples:
            self._store_samples(batch.keys, series, cpu, memory)
        store, threads = self.state.store, self.state.threads
        arranged = store.group_rows(series, time, cpu, memory, self._slots, threads)
        if arranged is not None:
            series, time, cpu, memory = arranged
        for values, kind in ((cpu, CPU_SAMPLE), (memory, MEMORY_SAMPLE)):
            if values is not None:
                self._add_kind(kind, series, time, values)

    def _add_kind(self, kind: int, series: npt.NDArray[np.int32], time: npt.NDArray[np.int64], values: _Floats) -> None:
        latest = _MAX_TIME if self.now is None else self.now
        is_cpu, finite, threads = kind == CPU_SAMPLE, self._finite[kind], self.state.threads
        fed = self.state.store.add_history(is_cpu, series, time, values, self._slots, finite, latest, threads)
        self.newest = max(self.newest, fed["newest"])
        self.behind += fed["behind"]
        self.counts["samples"] -= fed["refused"]
        self.counts["samples that are doubled or out of order, discarded"] += fed["refused"]
        self.counts["samples later than the moment asked about, taken in as they are"] += fed["late"]
        self.counts["negative samples, taken as 0"] += fed["negative"]
        self.counts["infinite values, left out"] += fed["infinite"]
        self.counts["missing values"] += fed["missing"]

    def from_the_future(self, far: int) -> tuple[int, list[str]] | None:
        """Return the usual end of samples if the newest one is more than ``far`` later, with the affected containers.

        None otherwise. The usual end is that of most samples and of most containers.
        """
        store = self.state.store
        last = np.maximum(store.last_cpu, store.last_memory)
        last[store.free_slots] = ZERO_TIME
        ends = np.sort(last[last != ZERO_TIME])
        times = np.sort(np.concatenate(self._times)) if self._times else ends
        if len(times) < 2:
            return None
        usual = int(times[len(times) - 1 - max(1, len(times) // 1000)])
        if len(ends):
            usual = min(usual, int(ends[(len(ends) - 1) // 2]))
        if self.newest - usual <= far:
            return None
        late = set(np.flatnonzero(last > usual + far).tolist())
        return usual, [
            f"{pod.namespace}/{pod.name}/{name}"
            for pod in (self.state.pods.values() if late else ())
            for name, container in pod.containers.items()
            if container.slot in late
        ]

    def settle(self) -> None:
        """Count what the series of the batches so far had: once nothing more comes, and before other ones come."""
        for kind, finite in self._finite.items():
            for place, count in zip(self._places, finite.tolist(), strict=True):
                if place.owner is not None:
                    self.counts["samples"] += count
                    if kind == MEMORY_SAMPLE:
                        self.memory_points[place.owner.identity, place.container] += count
                elif place.reason:
                    self.counts[place.reason] += count
            finite[:] = 0

    def _store_samples(
        self, keys: Sequence[SeriesKey], series: npt.NDArray[np.int32], cpu: _Floats | None, memory: _Floats | None
    ) -> None:
        """Store the samples for strategies that need them."""
        by_series = np.argsort(series, kind="stable")
        bounds = np.searchsorted(series[by_series], np.arange(len(keys) + 1))
        for i in np.flatnonzero(np.diff(bounds)).tolist():
            key, place = keys[i], self._places[i]
            if place.owner is None:
                continue
            rows = by_series[bounds[i] : bounds[i + 1]]
            usage = self.usage.setdefault((*place.owner.identity, key.container), ContainerUsage())
            for values, pods in ((cpu, usage.cpu), (memory, usage.memory)):
                if values is not None:
                    own = values[rows]
                    own = np.maximum(own[np.isfinite(own)], 0.0)
                    pods[key.pod] = np.concatenate([pods[key.pod], own]) if key.pod in pods else own


_MAX_SORTED_ROWS: Final = 10_000_000
"""Maximum number of rows of a history that are sorted in memory: 0.4 GB."""
_BATCH_ROWS: Final = 1 << 20
"""Sorted rows that are fed together."""


def feed_history(
    history: Iterable[UsageBatch], prepare: Callable[[], UsageFeed], progress: Callable[[int], None] | None = None
) -> UsageFeed:
    """Read a history batch by batch, in its order, into the feed that ``prepare`` creates. Returns the feed.

    A container rejects samples older than its last one, as in upstream. If batches go back in time, a history that can
    be read again and is not too long is therefore fed again, sorted. ``progress`` is called with the number of rows
    read so far.
    """
    feed, rows = prepare(), 0
    for batch in history:
        feed.add(batch)
        rows += len(batch)
        if progress is not None:
            progress(rows)
    feed.settle()
    if not feed.behind or rows > _MAX_SORTED_ROWS or iter(history) is history:
        return feed
    feed = prepare()
    for batch in _sort_by_time(history, rows):
        feed.add(batch)
    feed.settle()
    return feed


def _sort_by_time(history: Iterable[UsageBatch], rows: int) -> Iterator[UsageBatch]:
    """Sort all ``rows`` by time, first CPU and then memory; equal times stay in the order of the history.

    The history is read once for each resource, so that only one is in memory.
    """
    for memory in (False, True):
        yield from _sort_resource_by_time(history, rows, memory)


def _sort_resource_by_time(history: Iterable[UsageBatch], rows: int, memory: bool) -> Iterator[UsageBatch]:
    """Sort the rows of CPU or of memory by time."""
    numbers: dict[tuple[object, ...], int] = {}
    keys: list[SeriesKey] = []
    workloads: list[str] = []
    labels: list[Mapping[str, str]] = []
    series, time, values = np.empty(rows, np.int32), np.empty(rows, np.int64), np.empty(rows)
    count = 0
    for batch in history:
        amounts_of_batch = batch.memory if memory else batch.cpu
        if amounts_of_batch is None:
            continue
        own = np.empty(len(batch.keys), np.int32)
        for i, key in enumerate(batch.keys):
            series_labels = batch.labels[i] if batch.labels else {}
            number = own[i] = numbers.setdefault(
                (key, batch.workloads[i], tuple(sorted(series_labels.items()))), len(numbers)
            )
            if number == len(keys):
                keys.append(key)
                workloads.append(batch.workloads[i])
                labels.append(series_labels)
        here = slice(count, count + len(batch))
        series[here], time[here], values[here] = own[batch.series], batch.time, amounts_of_batch
        count += len(batch)
    order = np.argsort(time[:count], kind="stable")
    shown = labels if any(labels) else ()
    for at in range(0, count, _BATCH_ROWS):
        part = order[at : at + _BATCH_ROWS]
        amounts = values[part]
        yield UsageBatch(
            keys,
            workloads,
            series[part],
            time[part],
            None if memory else amounts,
            amounts if memory else None,
            shown,
        )
