"""Metrics in Prometheus' exposition format (extra ``[metrics]``).

Observations are stored as plain numbers and converted to metric families only on a scrape, so that recording them is
cheap.
"""

from __future__ import annotations

import bisect
import math
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kscale.effects import Metric, Observation
from kscale.errors import KscaleError
from kscale.imports import library

__all__ = ["MetricStore", "UnknownMetricError"]

_KINDS: Final = frozenset({"counter", "gauge", "histogram", "summary"})
_QUANTILES: Final = (0.5, 0.9, 0.99)
"""Quantiles of a summary, component-base's defaults."""
_MAX_AGE: Final = 3600 * 10**9  # nanoseconds; the same for all summaries of the Cluster Autoscaler
_MOST_RECENT: Final = 10_000


class UnknownMetricError(KscaleError, ValueError):
    """An observation names an undescribed metric, or has other labels than the metric."""


class _Histogram:
    __slots__ = ("counts", "total")

    def __init__(self, size: int) -> None:
        self.counts = [0] * size
        self.total = 0.0


class _Recent:
    """The observations of the last hour, at most ``_MOST_RECENT``, in 16 bytes each."""

    __slots__ = ("_begin", "_times", "_values")

    def __init__(self) -> None:
        self._times, self._values = array("q"), array("d")
        self._begin = 0

    def add(self, value: float, now: int) -> None:
        """Add an observation at ``now`` (nanoseconds)."""
        self._times.append(now)
        self._values.append(value)
        self._expire(now)

    def sorted(self, now: int) -> list[float]:
        """Return the values that have not expired at ``now``, in ascending order."""
        self._expire(now)
        return sorted(self._values[self._begin :])

    def _expire(self, now: int) -> None:
        """Drop the observations that are older than an hour or beyond the maximum number."""
        times = self._times
        begin = max(self._begin, len(times) - _MOST_RECENT)
        while begin < len(times) and times[begin] <= now - _MAX_AGE:
            begin += 1
        if 2 * begin > len(times):  # moves each observation once on average
            del self._times[:begin], self._values[:begin]
            begin = 0
        self._begin = begin


class _Family:
    """One metric, with its values by label values."""

    __slots__ = ("_names", "metric", "recent", "values")

    def __init__(self, metric: Metric) -> None:
        if metric.kind not in _KINDS:
            raise ValueError(f"{metric.name}: a {metric.kind} is not one of {', '.join(sorted(_KINDS))}")
        self.metric = metric
        self.values: dict[tuple[str, ...], float | _Histogram] = {}
        self.recent: dict[tuple[str, ...], _Recent] | None = {} if metric.kind == "summary" else None
        self._names = frozenset(metric.labels)

    def observe(self, seen: Observation, now: Callable[[], int]) -> None:
        """Record or reset the value of the observation ``seen``. ``now`` returns monotonic nanoseconds.

        A reset without labels removes all series, otherwise that with these labels. Raises UnknownMetricError for other
        labels, or another number of buckets, than the metric has.
        """
        if seen.reset and not seen.labels:
            self.values.clear()
            if self.recent is not None:
                self.recent.clear()
            return
        key = self.get_key(seen.labels)
        if not seen.reset:
            self.add(key, seen.value, seen.buckets, now)
            return
        self.values.pop(key, None)
        if self.recent is not None:
            self.recent.pop(key, None)

    def get_key(self, observed: Mapping[str, str]) -> tuple[str, ...]:
        """Return the label values in the metric's order. Raises UnknownMetricError for other labels."""
        labels = self.metric.labels
        if observed.keys() != self._names:
            raise UnknownMetricError(f"{self.metric.name} has the labels {labels}, not {tuple(observed)}")
        return tuple([observed[label] for label in labels])  # a list is faster than a generator here

    def add(self, key: tuple[str, ...], value: float, buckets: Sequence[int] | None, now: Callable[[], int]) -> None:
        """Record a value of the series with the label values ``key``.

        Counters and histograms add it, gauges are set. With ``buckets``, their counts are added and ``value`` is their
        sum; quantiles do not include them. Raises UnknownMetricError for another number of buckets than the metric has.
        """
        name, kind, _, bounds, _, _ = self.metric
        if kind == "gauge":
            self.values[key] = float(value)
            return
        current = self.values.get(key)
        if kind == "counter":
            self.values[key] = float((current if type(current) is float else 0.0) + value)  # convert NumPy scalars
            return
        if buckets is not None and len(buckets) != len(bounds) + 1:
            raise UnknownMetricError(f"{name} has {len(bounds) + 1} buckets, not {len(buckets)}")
        if type(current) is not _Histogram:
            current = self.values[key] = _Histogram(len(bounds) + 1)
        current.total += value
        if buckets is None:
            if self.recent is not None:
                if key not in self.recent:
                    self.recent[key] = _Recent()
                self.recent[key].add(value, now())
            current.counts[bisect.bisect_left(bounds, value)] += 1
            return
        for i, count in enumerate(buckets):
            current.counts[i] += count

    def quantiles(self, key: tuple[str, ...], now: int) -> list[tuple[float, float]]:
        """Return (quantile, value) of the last hour's observations with these label values; NaN without any."""
        recent = None if self.recent is None else self.recent.get(key)
        values = [] if recent is None else recent.sorted(now)
        if not values:
            return [(share, math.nan) for share in _QUANTILES]
        return [(share, values[math.ceil(share * len(values)) - 1]) for share in _QUANTILES]


class MetricStore:
    """Metrics of a process. Thread-safe.

    ``metrics`` describes them. ``process``: include memory, CPU time and open files of this process. ``now``: monotonic
    nanoseconds by which the values of summaries age.
    """

    def __init__(
        self, metrics: Iterable[Metric], *, process: bool = True, now: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._families: dict[str, _Family] = {}
        self._process = process
        self._registry: Any = None
        self._plain = True
        for metric in metrics:
            self.describe(metric)

    def describe(self, metric: Metric) -> None:
        """Add a metric. Adding an identical description again has no effect.

        Raises ValueError for a different description of the same name, for a summary of an undescribed metric, and for
        an unknown kind.
        """
        if metric.of and metric.of not in self._families:
            raise ValueError(f"{metric.name} is of {metric.of}, which is not described")
        if metric.kind == "summary" and metric.of and self._families[metric.of].recent is None:
            self._families[metric.of].recent = {}
        existing = self._families.get(metric.name)
        if existing is None:
            self._families[metric.name] = _Family(metric)
        elif existing.metric != metric:
            raise ValueError(f"{metric.name} is described in two ways")

    def observe(self, observations: Sequence[Observation]) -> None:
        """Record observations in order.

        Raises :class:`UnknownMetricError` at the first one whose metric is not described, or has other labels or
        buckets. Those before it are recorded.
        """
        with self._lock:
            for observation in observations:
                self._get_family(observation.name).observe(observation, self._now)

    def recorder(self, series: Iterable[tuple[str, Mapping[str, str]]]) -> Callable[[Sequence[float]], None]:
        """Return a function that records one value for each of the ``series`` (name and labels), in their order.

        Faster than :meth:`observe` for the same series again and again, because names and labels are checked only here.

        Raises UnknownMetricError for a metric that is not described, or has other labels. The function raises
        ValueError for another number of values, after it has recorded those that have a series.
        """
        places: list[tuple[_Family, tuple[str, ...]]] = []
        for name, labels in series:
            family = self._get_family(name)
            places.append((family, family.get_key(labels)))
        lock, now = self._lock, self._now

        def record(values: Sequence[float]) -> None:
            with lock:
                for (family, key), value in zip(places, values, strict=True):
                    family.add(key, value, None, now)

        return record

    def _get_family(self, name: str) -> _Family:
        """Return a described metric. Raises UnknownMetricError if it is not described."""
        family = self._families.get(name)
        if family is None:
            raise UnknownMetricError(f"there is no metric {name}")
        return family

    def value(self, name: str, /, **labels: str) -> float | None:
        """Return the value of a counter or gauge; None if nothing was observed, and for histograms and summaries.

        Raises KeyError for an undescribed metric or a missing label.
        """
        with self._lock:
            family = self._families[name]
            value = family.values.get(tuple(labels[label] for label in family.metric.labels))
            return value if isinstance(value, float) else None

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Return (text, content type) of all metrics.

        ``accept`` is the client's Accept header, which selects the format. Raises MissingExtraError without
        prometheus-client.
        """
        prometheus = _prometheus()
        if self._registry is None:
            self._registry = prometheus.CollectorRegistry(auto_describe=False)
            self._registry.register(_Collector(self))
            if self._process:
                prometheus.ProcessCollector(registry=self._registry)
        encode, content_type = prometheus.exposition.choose_encoder(accept)
        self._plain = "openmetrics" not in content_type
        text: bytes = encode(self._registry)
        for name, family in self._families.items():
            if family.metric.kind == "counter" and not name.endswith("_total"):
                # prometheus-client rejects counters without this suffix, but upstream has some.
                text = text.replace(b"# TYPE %b untyped\n" % name.encode(), b"# TYPE %b counter\n" % name.encode())
        return text, str(content_type)

    def collect(self) -> Iterator[Any]:
        """Yield the metric families for prometheus-client; metrics without values are left out."""
        core = _prometheus().metrics_core
        with self._lock:
            now = self._now()
            families = []
            for family in self._families.values():
                source = self._families[family.metric.of or family.metric.name]
                is_summary = family.metric.kind == "summary"
                values = [
                    (key, _copy_value(value), source.quantiles(key, now) if is_summary else [])
                    for key, value in source.values.items()
                ]
                if values:
                    families.append((family.metric, values))
        for metric, values in families:
            yield _family(core, metric, values, plain=self._plain)


class _Collector(msgspec.Struct, eq=False):
    """Prometheus collector that builds metric families when the registry is scraped."""

    _store: MetricStore

    def collect(self) -> Iterator[Any]:
        """Yield the metric families of the store."""
        return self._store.collect()


def _copy_value(value: float | _Histogram) -> float | tuple[list[int], float]:
    """Return a number, or of a histogram (copy of the counts, total)."""
    return value if isinstance(value, float) else (list(value.counts), value.total)


def _family(core: Any, metric: Metric, values: list[tuple[Any, ...]], *, plain: bool) -> Any:
    """Build prometheus-client's metric family.

    ``values``: (label values, value, quantiles) of each series; the value of a histogram or summary is (counts, total).
    ``plain``: bounds and quantiles are formatted as in Go's text format (``1``), not as in OpenMetrics (``1.0``).
    """
    name, labels, kind, text = metric.name, list(metric.labels), metric.kind, metric.help
    if kind == "counter" and not name.endswith("_total"):
        kind = "unknown"
    elif kind in ("counter", "gauge"):
        family_class = core.CounterMetricFamily if kind == "counter" else core.GaugeMetricFamily
        family = family_class(name, text, labels=labels)
        for key, value, _ in values:
            family.add_metric(list(key), value)
        return family
    # Add single samples: prometheus-client has no quantiles, and omits sum and count with bounds below 0.
    family = core.Metric(name, text, kind)
    for key, value, quantiles in values:
        label_values = dict(zip(labels, key, strict=True))
        if kind == "unknown":
            family.add_sample(name, label_values, value)
            continue
        counts, total = value
        if kind == "histogram":
            for bound, count in _cumulate_buckets(metric.bounds, counts, plain=plain):
                family.add_sample(f"{name}_bucket", {**label_values, "le": bound}, count)
        for share, quantile in quantiles:
            family.add_sample(name, {**label_values, "quantile": _number(share, plain=plain)}, quantile)
        family.add_sample(f"{name}_count", label_values, sum(counts))
        family.add_sample(f"{name}_sum", label_values, total)
    return family


def _cumulate_buckets(bounds: Sequence[float], counts: Sequence[int], *, plain: bool) -> list[tuple[str, int]]:
    """Return (upper bound, cumulative count) of each bucket, the last one with the bound ``+Inf``.

    ``plain``: as in :func:`_family`.
    """
    buckets, sum_ = [], 0
    for bound, count in zip([*bounds, float("inf")], counts, strict=True):
        sum_ += count
        buckets.append((_number(bound, plain=plain), sum_))
    return buckets


def _number(value: float, *, plain: bool) -> str:
    """Format a number as Go does. ``plain``: whole numbers without ``.0``."""
    text = str(_prometheus().utils.floatToGoString(value))
    return text.removesuffix(".0") if plain else text


def _prometheus() -> Any:
    """Return the module prometheus_client. Raises MissingExtraError if it is not installed."""
    return library("prometheus_client", "serving metrics")
