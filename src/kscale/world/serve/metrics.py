"""Observations as Prometheus reads them (extra ``[metrics]``).

They are kept as plain numbers; families are made when somebody asks, so that an observation costs next to nothing.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kscale.effects import Metric, Observation
from kscale.errors import KscaleError
from kscale.libraries import library

__all__ = ["MetricStore", "UnknownMetricError"]

_KINDS: Final = frozenset({"counter", "gauge", "histogram", "summary"})


class UnknownMetricError(KscaleError, ValueError):
    """An observation of a metric that nobody has described, or with other labels than it has."""


class _Histogram:
    __slots__ = ("counts", "total")

    def __init__(self, size: int) -> None:
        self.counts = [0] * size
        self.total = 0.0


class _Family:
    """One metric: its values by the values of its labels."""

    __slots__ = ("_names", "metric", "values")

    def __init__(self, metric: Metric) -> None:
        if metric.kind not in _KINDS:
            raise ValueError(f"{metric.name}: a {metric.kind} is not one of {', '.join(sorted(_KINDS))}")
        self.metric = metric
        self.values: dict[tuple[str, ...], float | _Histogram] = {}
        self._names = frozenset(metric.labels)

    def observe(self, seen: Observation) -> None:
        name, kind, labels, bounds, _, _ = self.metric
        if seen.reset:
            self.values.clear()
            return
        given, value = seen.labels, seen.value
        if given.keys() != self._names:
            raise UnknownMetricError(f"{name} has the labels {labels}, not {tuple(given)}")
        key = tuple([given[label] for label in labels])  # a list is made faster than a generator runs
        if kind == "gauge":
            self.values[key] = float(value)
            return
        held = self.values.get(key)
        if kind == "counter":
            self.values[key] = float((held if type(held) is float else 0.0) + value)  # NumPy has its own
            return
        if type(held) is not _Histogram:
            held = self.values[key] = _Histogram(len(bounds) + 1)
        held.total += value
        buckets = seen.buckets
        if buckets is None:
            held.counts[bisect.bisect_left(bounds, value)] += 1
            return
        if len(buckets) != len(held.counts):
            raise UnknownMetricError(f"{name} has {len(held.counts)} buckets, not {len(buckets)}")
        for i, count in enumerate(buckets):
            held.counts[i] += count


class MetricStore:
    """The metrics of a process. May be used from several threads.

    ``metrics`` describes them; ``process``: memory, CPU time and open files of this process stand beside them.
    """

    def __init__(self, metrics: Iterable[Metric], *, process: bool = True) -> None:
        self._lock = threading.Lock()
        self._families: dict[str, _Family] = {}
        self._process = process
        self._registry: Any = None
        for metric in metrics:
            self.describe(metric)

    def describe(self, metric: Metric) -> None:
        """Adds a metric. One of that name that is described in the same way is no matter."""
        if metric.of and metric.of not in self._families:
            raise ValueError(f"{metric.name} is of {metric.of}, which is not described")
        known = self._families.get(metric.name)
        if known is None:
            self._families[metric.name] = _Family(metric)
        elif known.metric != metric:
            raise ValueError(f"{metric.name} is described in two ways")

    def observe(self, observations: Sequence[Observation]) -> None:
        """Takes observations. Raises :class:`UnknownMetricError`."""
        families = self._families
        with self._lock:
            for seen in observations:
                family = families.get(seen.name)
                if family is None:
                    raise UnknownMetricError(f"there is no metric {seen.name}")
                family.observe(seen)

    def value(self, name: str, /, **labels: str) -> float | None:
        """What a counter or gauge stands at; None: nothing was observed."""
        with self._lock:
            family = self._families[name]
            found = family.values.get(tuple(labels[label] for label in family.metric.labels))
            return found if isinstance(found, float) else None

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Everything as text, and its content type; ``accept``: what the one who asks understands."""
        prometheus = _prometheus()
        if self._registry is None:
            self._registry = prometheus.CollectorRegistry(auto_describe=False)
            self._registry.register(_Collector(self))
            if self._process:
                prometheus.ProcessCollector(registry=self._registry)
        encode, content_type = prometheus.exposition.choose_encoder(accept)
        text: bytes = encode(self._registry)
        for name, family in self._families.items():
            if family.metric.kind == "counter" and not name.endswith("_total"):
                # prometheus-client knows no counter without that ending, and upstream has some.
                text = text.replace(b"# TYPE %b untyped\n" % name.encode(), b"# TYPE %b counter\n" % name.encode())
        return text, str(content_type)

    def collect(self) -> Iterator[Any]:
        """The families as prometheus-client has them."""
        core = _prometheus().metrics_core
        with self._lock:
            held = [
                (family.metric, [(key, _copied(value)) for key, value in seen.items()])
                for family in self._families.values()
                if (seen := self._families[family.metric.of or family.metric.name].values)
            ]
        for metric, values in held:
            yield _family(core, metric, values)


class _Collector:
    """What prometheus-client asks."""

    def __init__(self, store: MetricStore) -> None:
        self._store = store

    def collect(self) -> Iterator[Any]:
        return self._store.collect()


def _copied(value: float | _Histogram) -> float | tuple[list[int], float]:
    return value if isinstance(value, float) else (list(value.counts), value.total)


def _family(core: Any, metric: Metric, values: list[tuple[tuple[str, ...], Any]]) -> Any:
    name, labels, text = metric.name, list(metric.labels), metric.help
    if metric.kind == "counter" and not name.endswith("_total"):
        family = core.Metric(name, text, "unknown")
        for key, value in values:
            family.add_sample(name, dict(zip(labels, key, strict=True)), value)
        return family
    if metric.kind == "counter":
        family = core.CounterMetricFamily(name, text, labels=labels)
    elif metric.kind == "gauge":
        family = core.GaugeMetricFamily(name, text, labels=labels)
    elif metric.kind == "summary":
        family = core.SummaryMetricFamily(name, text, labels=labels)
        for key, (counts, total) in values:
            family.add_metric(list(key), count_value=sum(counts), sum_value=total)
        return family
    else:
        family = core.HistogramMetricFamily(name, text, labels=labels)
        for key, (counts, total) in values:
            family.add_metric(list(key), buckets=_cumulated(metric.bounds, counts), sum_value=total)
        return family
    for key, value in values:
        family.add_metric(list(key), value)
    return family


def _cumulated(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, int]]:
    as_text = _prometheus().utils.floatToGoString
    found, sum_ = [], 0
    for bound, count in zip([*bounds, float("inf")], counts, strict=True):
        sum_ += count
        found.append((str(as_text(bound)), sum_))
    return found


def _prometheus() -> Any:
    return library("prometheus_client", "serving metrics")
