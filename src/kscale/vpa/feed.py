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
from kscale.vpa.model import CPU_SAMPLE, MEMORY_SAMPLE, ClusterState, Usage
from kscale.vpa.strategies import ContainerUsage, Strategy
from kscale.vpa.workloads import Identity, Workload, Workloads

__all__ = ["Feed"]

_NOT_ASKED: Final = ""
_Floats = npt.NDArray[np.float64]
_Order = npt.NDArray[np.int64] | None


@dataclass(slots=True)
class _Place:
    """Where the samples of a series belong; ``reason``: why nowhere (empty: nobody asked for them)."""

    owner: Workload | None = None
    reason: str | None = None


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
    memory_points: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    """Memory samples taken in; those of CPU the model counts itself."""
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
            return _Place(reason=_NOT_ASKED)
        owner = self.resolve(key.namespace, key.pod, named, labels)
        if owner is None:
            return _Place(reason="samples of no known workload")
        if owner.identity not in self.chosen:
            return _Place(reason=_NOT_ASKED)
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
        return _Place(owner)

    def add(self, batch: UsageBatch) -> None:
        """One batch."""
        labels: Sequence[Mapping[str, str]] = batch.labels or [{}] * len(batch.keys)
        places = [self.place(*each) for each in zip(batch.keys, batch.workloads, labels, strict=True)]
        asked = np.array([place.reason != _NOT_ASKED for place in places], bool)
        if not asked.all():
            wanted = asked[batch.series]
            time = batch.time[wanted]
        else:
            wanted, time = None, batch.time
        if len(time):
            self.newest = max(self.newest, int(time.max()))
        order = None
        if not _histogram.in_order(batch.series, batch.time, len(batch.keys)):
            order = np.argsort(batch.time, kind="stable")
        for values, kind, unit in ((batch.cpu, CPU_SAMPLE, 1000.0), (batch.memory, MEMORY_SAMPLE, 1.0)):
            if values is not None:
                self._add_kind(batch, values, kind, unit, places, wanted, order)
                if kind == MEMORY_SAMPLE:
                    self._count_memory(batch, values, places)
                if self.strategy.needs_samples:
                    self._keep(batch, values, kind, places, order)

    def _add_kind(
        self,
        batch: UsageBatch,
        values: _Floats,
        kind: int,
        unit: float,
        places: Sequence[_Place],
        wanted: npt.NDArray[np.bool_] | None,
        order: _Order,
    ) -> None:
        series, time = batch.series, batch.time
        if order is not None:
            series, time, values = series[order], time[order], values[order]
            wanted = wanted[order] if wanted is not None else None
        if wanted is not None:
            series, time, values = series[wanted], time[wanted], values[wanted]
        amounts = np.empty(len(values), np.int64)
        missing, infinite, negative = _histogram.amounts(np.ascontiguousarray(values), unit, amounts)
        if missing or infinite:
            self.counts["infinite values, left out"] += infinite
            self.counts["missing values"] += missing
            finite = np.isfinite(values)
            series, time, values, amounts = series[finite], time[finite], values[finite], amounts[finite]
        known = np.array([place.owner is not None for place in places], bool)
        if not known.all():
            keep = known[series]
            lost = np.bincount(series[~keep], minlength=len(places)).tolist()
            for place, count in zip(places, lost, strict=True):
                if place.reason and count:
                    self.counts[place.reason] += count
            series, time, values, amounts = series[keep], time[keep], values[keep], amounts[keep]
            negative = int(np.count_nonzero(values < 0)) if negative else 0
        if len(amounts) == 0:
            return
        if negative:
            self.counts["negative samples, taken as 0"] += negative
        if self.now is not None:
            self.counts["samples later than the moment asked about, taken in as they are"] += int(
                np.count_nonzero(time > self.now)
            )
        names = [(key.namespace, key.pod, key.container) for key in batch.keys]
        refused = self.state.add_usage(Usage(names, series, time, amounts, kind), 0)
        self.counts["samples"] += len(amounts) - len(refused)
        if refused:
            self.counts["samples that are doubled or out of order, discarded"] += len(refused)

    def _count_memory(self, batch: UsageBatch, values: _Floats, places: Sequence[_Place]) -> None:
        points = np.bincount(batch.series, weights=np.isfinite(values), minlength=len(batch.keys))
        for i, (key, place) in enumerate(zip(batch.keys, places, strict=True)):
            if place.owner is not None:
                self.memory_points[*place.owner.identity, key.container] += int(points[i])

    def _keep(self, batch: UsageBatch, values: _Floats, kind: int, places: Sequence[_Place], order: _Order) -> None:
        """For strategies that look at the samples themselves."""
        series = batch.series if order is None else batch.series[order]
        values = values if order is None else values[order]
        by_series = np.argsort(series, kind="stable")
        bounds = np.searchsorted(series[by_series], np.arange(len(batch.keys) + 1))
        for i, (key, place) in enumerate(zip(batch.keys, places, strict=True)):
            if place.owner is None:
                continue
            own = values[by_series[bounds[i] : bounds[i + 1]]]
            own = np.maximum(own[np.isfinite(own)], 0.0)
            kept = self.usage.setdefault((*place.owner.identity, key.container), ContainerUsage())
            pods = kept.cpu if kind == CPU_SAMPLE else kept.memory
            pods[key.pod] = np.concatenate([pods[key.pod], own]) if key.pod in pods else own
