"""Observations in Prometheus' exposition format (extra ``[metrics]``).

They are kept as plain numbers; families are made when somebody asks, so that an observation costs next to nothing.
"""

from __future__ import annotations

import bisect
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from kscale.effects import Metric, Observation
from kscale.errors import KscaleError
from kscale.libraries import library

__all__ = ["MetricStore", "UnknownMetricError"]

_KINDS: Final = frozenset({"counter", "gauge", "histogram", "summary"})
_QUANTILES: Final = (0.5, 0.9, 0.99)
"""Of a summary, as component-base has them by default."""
_MAX_AGE: Final = 3600 * 10**9  # nanoseconds; all summaries of the Cluster Autoscaler have this one
_MOST_RECENT: Final = 10_000


class UnknownMetricError(KscaleError, ValueError):
    """An observation of a metric that nobody has described, or with other labels than it has."""


class _Histogram:
    __slots__ = ("counts", "total")

    def __init__(self, size: int) -> None:
        self.counts = [0] * size
        self.total = 0.0


class _Family:
    """One metric: its values by the values of its labels."""

    __slots__ = ("_names", "metric", "recent", "values")

    def __init__(self, metric: Metric) -> None:
        if metric.kind not in _KINDS:
            raise ValueError(f"{metric.name}: a {metric.kind} is not one of {', '.join(sorted(_KINDS))}")
        self.metric = metric
        self.values: dict[tuple[str, ...], float | _Histogram] = {}
        # (when, value) of what a summary is of
        self.recent: dict[tuple[str, ...], deque[tuple[int, float]]] | None = {} if metric.kind == "summary" else None
        self._names = frozenset(metric.labels)

    def observe(self, seen: Observation, now: Callable[[], int]) -> None:
        name, kind, labels, bounds, _, _ = self.metric
        if seen.reset:
            self.values.clear()
            if self.recent is not None:
                self.recent.clear()
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
            if self.recent is not None:
                self.recent.setdefault(key, deque(maxlen=_MOST_RECENT)).append((now(), value))
            held.counts[bisect.bisect_left(bounds, value)] += 1
            return
        if len(buckets) != len(held.counts):
            raise UnknownMetricError(f"{name} has {len(held.counts)} buckets, not {len(buckets)}")
        for i, count in enumerate(buckets):
            held.counts[i] += count

    def quantiles(self, key: tuple[str, ...], now: int) -> list[tuple[float, float]]:
        """Return (share, value) of what was observed within the last hour; no number where nothing was."""
        recent = None if self.recent is None else self.recent.get(key)
        while recent and recent[0][0] <= now - _MAX_AGE:
            recent.popleft()
        values = sorted(value for _, value in recent or ())
        if not values:
            return [(share, math.nan) for share in _QUANTILES]
        return [(share, values[math.ceil(share * len(values)) - 1]) for share in _QUANTILES]


class MetricStore:
    """The metrics of a process. May be used from several threads.

    ``metrics`` describes them; ``process``: memory, CPU time and open files of this process stand beside them. ``now``:
    nanoseconds of a clock that is never set, by which the values of summaries grow old.
    """

    def __init__(
        self,
        metrics: Iterable[Metric],
        *,
        process: bool = True,
        now: Callable[[], int] = time.monotonic_ns,
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
        """Adds a metric. One of that name that is described in the same way is no matter."""
        if metric.of and metric.of not in self._families:
            raise ValueError(f"{metric.name} is of {metric.of}, which is not described")
        if metric.kind == "summary" and metric.of and self._families[metric.of].recent is None:
            self._families[metric.of].recent = {}
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
                family.observe(seen, self._now)

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
        self._plain = "openmetrics" not in content_type
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
            now = self._now()
            held = []
            for family in self._families.values():
                source = self._families[family.metric.of or family.metric.name]
                is_summary = family.metric.kind == "summary"
                values = [
                    (key, _copied(value), source.quantiles(key, now) if is_summary else [])
                    for key, value in source.values.items()
                ]
                if values:
                    held.append((family.metric, values))
        for metric, values in held:
            yield _family(core, metric, values, plain=self._plain)


class _Collector:
    """What prometheus-client asks."""

    def __init__(self, store: MetricStore) -> None:
        self._store = store

    def collect(self) -> Iterator[Any]:
        return self._store.collect()


def _copied(value: float | _Histogram) -> float | tuple[list[int], float]:
    return value if isinstance(value, float) else (list(value.counts), value.total)


def _family(core: Any, metric: Metric, values: list[tuple[Any, ...]], *, plain: bool) -> Any:
    """``plain``: bounds and shares are written as Go's text format has them (``1``), not as OpenMetrics' (``1.0``)."""
    name, labels, kind, text = metric.name, list(metric.labels), metric.kind, metric.help
    if kind == "counter" and not name.endswith("_total"):
        kind = "unknown"
    elif kind in ("counter", "gauge"):
        made = core.CounterMetricFamily if kind == "counter" else core.GaugeMetricFamily
        family = made(name, text, labels=labels)
        for key, value, _ in values:
            family.add_metric(list(key), value)
        return family
    # Sample by sample: prometheus-client knows no quantiles, and of bounds below 0 neither sum nor count.
    family = core.Metric(name, text, kind)
    for key, value, quantiles in values:
        of = dict(zip(labels, key, strict=True))
        if kind == "unknown":
            family.add_sample(name, of, value)
            continue
        counts, total = value
        if kind == "histogram":
            for bound, count in _cumulated(metric.bounds, counts, plain=plain):
                family.add_sample(f"{name}_bucket", {**of, "le": bound}, count)
        for share, quantile in quantiles:
            family.add_sample(name, {**of, "quantile": _number(share, plain=plain)}, quantile)
        family.add_sample(f"{name}_count", of, sum(counts))
        family.add_sample(f"{name}_sum", of, total)
    return family


def _cumulated(bounds: Sequence[float], counts: Sequence[int], *, plain: bool) -> list[tuple[str, int]]:
    found, sum_ = [], 0
    for bound, count in zip([*bounds, float("inf")], counts, strict=True):
        sum_ += count
        found.append((_number(bound, plain=plain), sum_))
    return found


def _number(value: float, *, plain: bool) -> str:
    text = str(_prometheus().utils.floatToGoString(value))
    return text.removesuffix(".0") if plain else text


def _prometheus() -> Any:
    return library("prometheus_client", "serving metrics")
