"""Recorded usage on its way into the recommender's model: what belongs where, and counts of what does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from kscale._native import _histogram
from kscale.series.columns import SeriesKey
from kscale.series.usage_reader import UsageBatch
from kscale.vpa.clock import UNSET
from kscale.vpa.model import CPU_SAMPLE, MEMORY_SAMPLE, ClusterState
from kscale.vpa.strategies import ContainerUsage, Strategy
from kscale.vpa.workloads import Identity, Workload, Workloads

__all__ = ["Feed"]

_NOT_ASKED: Final = ""
_Floats = npt.NDArray[np.float64]
_FOREVER: Final = (1 << 63) - 1


@dataclass(slots=True)
class _Place:
    """Where the samples of a series belong; ``reason``: why nowhere (empty: nobody asked for them)."""

    owner: Workload | None = None
    reason: str | None = None
    container: str = ""
    slot: int = _histogram.UNPLACED


_NOWHERE: Final = _Place(reason=_NOT_ASKED, slot=_histogram.UNASKED)


@dataclass(slots=True)
class Feed:
    """Takes in batches of usage. ``chosen``: the workloads asked about; ``namespaces``: empty = all; ``now``: if given,
    samples later than that are counted (and taken in, as upstream does)."""

    state: ClusterState
    workloads: Workloads
    strategy: Strategy
    chosen: Collection[Identity]
    namespaces: Collection[str] = ()
    now: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    newest: int = UNSET
    usage: dict[tuple[str, str, str, str], ContainerUsage] = field(default_factory=dict)
    memory_points: Counter[tuple[Identity, str]] = field(default_factory=Counter)
    """Memory samples taken in; those of CPU the model counts itself."""
    behind: int = 0
    """Samples that are older than one that was taken in before; doubled ones are not counted."""
    places: dict[tuple[SeriesKey, str], _Place] = field(default_factory=dict)
    first_seen: dict[tuple[str, str], Workload | None] = field(default_factory=dict)

    def resolve(
        self, namespace: str, pod: str, named: str = "", labels: Mapping[str, str] | None = None
    ) -> Workload | None:
        """The workload of a pod: by the dump's objects, else by its labels if it has no ``named`` one, else by name."""
        known = self.workloads.pod_owner.get((namespace, pod))
        if known is not None:
            return known
        if (namespace, pod) not in self.first_seen:
            found = self.workloads.owner_by_labels(namespace, labels) if labels and not named else None
            found = found or self.workloads.owner_of_gone(namespace, pod, named)
            self.first_seen[namespace, pod] = found
            if found is None:
                self.counts["pods of no known workload"] += 1
            elif found.identity in self.chosen:
                self.counts["pods gone, mapped to their workload"] += 1
        return self.first_seen[namespace, pod]

    def place(self, key: SeriesKey, named: str = "", labels: Mapping[str, str] | None = None) -> _Place:
        """Where a series belongs; pods that are gone, and their containers, are added to the model."""
        if self.namespaces and key.namespace not in self.namespaces:
            return _NOWHERE
        owner = self.resolve(key.namespace, key.pod, named, labels)
        if owner is None:
            return _Place(reason="samples of no known workload")
        if owner.identity not in self.chosen:
            return _NOWHERE
        if key.container in ("", "POD"):
            return _Place(reason="samples of whole pods or their pause containers, left out")
        pod = self.state.pods.get((key.namespace, key.pod))
        if pod is None:
            pod = self.state.add_pod(key.namespace, key.pod, owner.labels, "Unknown", 0)
            pod.init_containers = owner.init_containers
        if key.container in pod.init_containers:
            return _Place(reason="samples of init containers, left out")
        if key.container not in owner.containers:
            return _Place(reason="samples of containers that their workload does not have")
        if key.container not in pod.containers:
            self.state.add_container(pod, key.container, (0, 0), 0)
        name = (key.namespace, key.pod, key.container)
        return _Place(owner, container=key.container, slot=self.state.slot_of(name, 0))

    def _placed(self, batch: UsageBatch) -> list[_Place]:
        if batch.labels:
            return [self.place(*each) for each in zip(batch.keys, batch.workloads, batch.labels, strict=True)]
        found = []
        for key, named in zip(batch.keys, batch.workloads, strict=True):
            place = self.places.get((key, named))
            if place is None:
                place = self.places[key, named] = self.place(key, named)
            found.append(place)
        return found

    def add(self, batch: UsageBatch) -> None:
        """One batch."""
        if not len(batch):
            return
        places = self._placed(batch)
        series, time, order = batch.series, batch.time, None
        if not _histogram.in_order(series, time, len(batch.keys)):
            order = np.argsort(time, kind="stable")
            series, time = series[order], time[order]
        slots = np.array([place.slot for place in places], np.int32)
        for given, kind in ((batch.cpu, CPU_SAMPLE), (batch.memory, MEMORY_SAMPLE)):
            if given is not None:
                values = given if order is None else given[order]
                self._add_kind(kind, series, time, np.ascontiguousarray(values), places, slots)
                if self.strategy.needs_samples:
                    self._keep(batch.keys, series, values, kind, places)

    def _add_kind(
        self,
        kind: int,
        series: npt.NDArray[np.int32],
        time: npt.NDArray[np.int64],
        values: _Floats,
        places: Sequence[_Place],
        slots: npt.NDArray[np.int32],
    ) -> None:
        finite = np.zeros(len(places), np.int64)
        latest = _FOREVER if self.now is None else self.now
        fed = self.state.feed(kind == CPU_SAMPLE, series, time, values, slots, finite, latest)
        self.newest = max(self.newest, fed["newest"])
        self.behind += fed["behind"]
        taken = 0
        for place, count in zip(places, finite.tolist(), strict=True):
            if place.owner is not None:
                taken += count
                if kind == MEMORY_SAMPLE:
                    self.memory_points[place.owner.identity, place.container] += count
            elif place.reason:
                self.counts[place.reason] += count
        self.counts["samples"] += taken - fed["refused"]
        self.counts["samples that are doubled or out of order, discarded"] += fed["refused"]
        self.counts["samples later than the moment asked about, taken in as they are"] += fed["late"]
        self.counts["negative samples, taken as 0"] += fed["negative"]
        self.counts["infinite values, left out"] += fed["infinite"]
        self.counts["missing values"] += fed["missing"]

    def _keep(
        self,
        keys: Sequence[SeriesKey],
        series: npt.NDArray[np.int32],
        values: _Floats,
        kind: int,
        places: Sequence[_Place],
    ) -> None:
        """For strategies that look at the samples themselves."""
        by_series = np.argsort(series, kind="stable")
        bounds = np.searchsorted(series[by_series], np.arange(len(keys) + 1))
        for i, (key, place) in enumerate(zip(keys, places, strict=True)):
            if place.owner is None:
                continue
            own = values[by_series[bounds[i] : bounds[i + 1]]]
            own = np.maximum(own[np.isfinite(own)], 0.0)
            kept = self.usage.setdefault((*place.owner.identity, key.container), ContainerUsage())
            pods = kept.cpu if kind == CPU_SAMPLE else kept.memory
            pods[key.pod] = np.concatenate([pods[key.pod], own]) if key.pod in pods else own
