"""Prometheus metrics of the VPA components under upstream's names, and the collection of observations.

Upstream: ``pkg/utils/metrics`` with ``quality`` and ``updater``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from operator import itemgetter
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from kscale.effects import Metric, Observation, Observe, Progress, StepsOf, Wait
from kscale.objects.api.meta import ResourceList
from kscale.objects.api.vpa import VerticalPodAutoscaler, update_mode
from kscale.vpa.resources import CPU, MEMORY

__all__ = [
    "GAUGE_RESETS",
    "LEGACY_METRICS",
    "METRICS",
    "ExecutionTimer",
    "Labels",
    "LoopGauges",
    "ObservationTally",
    "QualityObserver",
    "VpaUpdateCounters",
    "build_observation",
    "get_size_log2",
]


Labels = Mapping[str, str | bool]
_Values = Sequence[float] | npt.NDArray[np.float64]

_STEP_DURATION_BOUNDS: Final = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0, 120.0,
    150.0, 240.0, 300.0,
)  # fmt: skip
_REQUEST_DURATION_BOUNDS: Final = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0,
)  # fmt: skip
_FIRST_RECOMMENDATION_BOUNDS: Final = (
    1.0, 2.0, 5.0, 7.5, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 90.0, 120.0, 150.0, 180.0, 240.0, 300.0, 600.0, 900.0,
    1800.0,
)  # fmt: skip
_CORES_BOUNDS: Final = tuple(0.01 * 2.0**k for k in range(17))
_BYTES_BOUNDS: Final = tuple(1e6 * 2.0**k for k in range(17))
_RELATIVE_PARTS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
_RELATIVE_BOUNDS: Final = (
    *(-part for part in reversed(_RELATIVE_PARTS)), 0.0, *_RELATIVE_PARTS, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0,
)  # fmt: skip
_MODE, _SIZE, _OOM, _MISSING = "update_mode", "vpa_size_log2", "is_oom", "recommendation_missing"
_VPA: Final = ("vpa_name", "vpa_namespace")
_MAX_SIZE_LOG2: Final = 20


def _counter(name: str, labels: tuple[str, ...], text: str) -> Metric:
    """Build a counter named ``vpa_<name>`` with the help ``text``."""
    return Metric(f"vpa_{name}", "counter", labels, help=text)


def _gauge(name: str, labels: tuple[str, ...], text: str) -> Metric:
    """Build a gauge named ``vpa_<name>`` with the help ``text``."""
    return Metric(f"vpa_{name}", "gauge", labels, help=text)


def _histogram(name: str, labels: tuple[str, ...], bounds: tuple[float, ...], text: str) -> Metric:
    """Build a histogram named ``vpa_<name>`` with the help ``text`` and the upper bounds of its buckets."""
    return Metric(f"vpa_{name}", "histogram", labels, bounds, help=text)


def _build_value_metrics(short: str, title: str, word: str, unit: str) -> list[Metric]:
    """Build the quality metrics of cpu or memory, which compare recommendations and usage.

    ``short``, ``unit``: parts of the metrics' names. ``title``, ``word``: names of the resource in the help texts.
    """
    bounds, own = (_CORES_BOUNDS, ()) if short == "cpu" else (_BYTES_BOUNDS, (_OOM,))
    text = f"{title} recommendation values as observed on recorded usage sample"
    difference = f"Absolute diffs between recommendation and usage for {word} when recommendation"
    return [
        _histogram(f"quality_{short}_recommendations_{unit}", (_MODE, *own), bounds, text),
        *(
            _histogram(
                f"quality_{short}_recommendation_{side}_usage_diffs_{unit}",
                (_MODE, _MISSING, *own),
                bounds,
                f"{difference} {sign} usage",
            )
            for side, sign in (("over", ">"), ("lower_equal", "<="))
        ),
    ]


# fmt: off
_METRICS: Final = (
    _histogram("recommender_execution_latency_seconds", ("step",), _STEP_DURATION_BOUNDS,
               "Time spent in various parts of VPA Recommender main loop."),
    _histogram("updater_execution_latency_seconds", ("step",), _STEP_DURATION_BOUNDS,
               "Time spent in various parts of VPA Updater main loop."),
    _histogram("admission_controller_execution_latency_seconds", ("step",), _STEP_DURATION_BOUNDS,
               "Time spent in various parts of VPA admission controller"),
    _gauge("recommender_vpa_objects_count", (_MODE, "has_recommendation", "api", "matches_pods", "unsupported_config"),
           "Number of VPA objects present in the cluster."),
    _histogram("recommender_recommendation_latency_seconds", (), _FIRST_RECOMMENDATION_BOUNDS,
               "Time elapsed from creating a valid VPA configuration to the first recommendation."),
    _gauge("recommender_aggregate_container_states_count", (),
           "Number of aggregate container states being tracked by the recommender"),
    _counter("recommender_metric_server_responses", ("is_error", "client_name"),
             "Count of responses to queries to metrics server"),
    _counter("recommender_prometheus_client_api_requests_count", ("code", "method"),
             "Number of requests to a Prometheus API"),
    _histogram("recommender_prometheus_client_api_requests_duration_seconds", ("code", "method"),
               _REQUEST_DURATION_BOUNDS, "Duration of requests to a Prometheus API"),
    _gauge("updater_controlled_pods_total", (_SIZE, _MODE), "Number of Pods controlled by VPA updater."),
    _gauge("updater_evictable_pods_total", (_SIZE, _MODE), "Number of Pods matching eviction criteria."),
    _gauge("updater_vpas_with_evictable_pods_total", (_SIZE, _MODE),
           "Number of VPA objects with at least one Pod matching eviction criteria."),
    _gauge("updater_vpas_with_evicted_pods_total", (_SIZE, _MODE),
           "Number of VPA objects with at least one evicted Pod."),
    _gauge("updater_in_place_updatable_pods_total", (_SIZE,), "Number of Pods matching in place update criteria."),
    _gauge("updater_vpas_with_in_place_updatable_pods_total", (_SIZE,),
           "Number of VPA objects with at least one Pod matching in place update criteria."),
    _gauge("updater_vpas_with_in_place_updated_pods_total", (_SIZE,),
           "Number of VPA objects with at least one in-place updated Pod."),
    _counter("updater_evicted_pods_total", (_SIZE, _MODE, *_VPA),
             "Number of Pods evicted by Updater to apply a new recommendation."),
    _counter("updater_failed_eviction_attempts_total", (_SIZE, _MODE, "reason", *_VPA),
             "Number of failed attempts to update Pods by eviction"),
    _counter("updater_in_place_updated_pods_total", (_SIZE, *_VPA),
             "Number of Pods updated in-place by Updater to apply a new recommendation."),
    _counter("updater_failed_in_place_update_attempts_total", (_SIZE, "reason", *_VPA),
             "Number of failed attempts to update Pods in-place."),
    _counter("updater_in_place_infeasible_skip_pods_total", (_SIZE, *_VPA),
             "Number of pods that were skipped for in-place update due to cached infeasibility"),
    _histogram("quality_usage_recommendation_relative_diffs", (_MODE, "resource", _OOM), _RELATIVE_BOUNDS,
               "Diffs between recommendation and usage, normalized by recommendation value"),
    _counter("quality_usage_sample_missing_recommendation_count", (_MODE, "resource", _OOM),
             "Count of usage samples when a recommendation should be present but is missing"),
    _histogram("quality_relative_recommendation_changes", (_MODE, "resource", _SIZE), _RELATIVE_BOUNDS,
               "Changes between consecutive recommendation values, normalized by old value"),
    *_build_value_metrics("cpu", "CPU", "CPU", "cores"),
    *_build_value_metrics("mem", "Memory", "memory", "bytes"),
    _counter("admission_controller_admission_pods_total", ("applied",),
             "Number of Pods processed by VPA Admission Controller."),
    _histogram("admission_controller_admission_latency_seconds", ("status", "resource"), _REQUEST_DURATION_BOUNDS,
               "Time spent in VPA Admission Controller."),
    _counter("resources_get_resources_count", ("source",),
             "Count of calls to get the resources of a pod or container."),
)
# fmt: on

METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in _METRICS}
"""Every metric by its name."""

LEGACY_METRICS: Final[Mapping[str, Metric]] = {
    metric.name: metric
    for metric in (
        METRICS["vpa_updater_execution_latency_seconds"],
        METRICS["vpa_updater_evicted_pods_total"]._replace(labels=()),
    )
}
"""Metrics of the updater of about 2020."""


def get_size_log2(pods: int) -> int:
    """Return the number of the label ``vpa_size_log2``: log2 of the number of pods, rounded down, at most 20.

    0 if there are no pods.
    """
    return 0 if pods <= 0 else min(pods.bit_length() - 1, _MAX_SIZE_LOG2)


def build_observation(
    name: str, labels: Labels | None = None, value: float = 1.0, *, metrics: Mapping[str, Metric] = METRICS
) -> Observation:
    """Build the observation of a value for the metric ``name`` with these labels. ``metrics``: by name.

    Raises ``ValueError`` if the labels, in their order, differ from the metric's.
    """
    texts = _format_labels(labels or {})
    if tuple(texts) != metrics[name].labels:
        raise ValueError(f"{name} has the labels {', '.join(metrics[name].labels)}, not {', '.join(texts)}")
    return Observation(name=name, value=value, labels=texts)


def _format_labels(labels: Labels) -> dict[str, str]:
    """Return the labels with bools as the texts ``true`` and ``false``."""
    return {
        label: ("true" if value else "false") if isinstance(value, bool) else value for label, value in labels.items()
    }


class ObservationTally(msgspec.Struct, eq=False):
    """Sums of observations, so that each metric with its labels is observed once."""

    _counts: dict[tuple[str, ...], tuple[dict[str, str], float]] = {}
    _values: dict[tuple[str, ...], tuple[dict[str, str], list[_Values]]] = {}
    _later: list[Callable[[ObservationTally], None]] = []

    def later(self, callback: Callable[[ObservationTally], None]) -> None:
        """Schedule a callback, which is called once when the sums are read.

        ``callback`` receives this tally and adds to it. It should not hold a reference to the tally, so that unread
        sums can be freed.
        """
        self._later.append(callback)

    def count(self, name: str, labels: Labels, by: float = 1) -> None:
        """Add ``by`` to the sum of a metric with these labels.

        :meth:`observations` returns the sum: a counter is increased by it, a gauge is set to it. Raises ValueError if
        the labels differ from those of the metric.
        """
        key, texts = _build_key(name, tuple(labels), tuple(labels.values()))
        _, before = self._counts.get(key, ({}, 0.0))
        self._counts[key] = texts, before + by

    def observe(self, name: str, labels: Labels, values: _Values) -> None:
        """Add values to a histogram, in order; without values nothing happens.

        Raises ValueError if the labels differ from those of the metric.
        """
        if len(values) == 0:
            return
        key, texts = _build_key(name, tuple(labels), tuple(labels.values()))
        _, parts = self._values.setdefault(key, (texts, []))
        if parts and isinstance(values, list) and isinstance(parts[-1], list):
            parts[-1] += values
        else:
            parts.append(values if isinstance(values, np.ndarray) else list(values))

    def observations(self) -> list[Observation]:
        """Return one observation per metric and labels, sorted by both, after calling the scheduled callbacks.

        The sums stay; the callbacks are called only once.
        """
        waiting, self._later = self._later, []
        for callback in waiting:
            callback(self)
        observations = {
            key: Observation(name=key[0], value=n, labels=labels) for key, (labels, n) in self._counts.items()
        }
        for key, (labels, parts) in self._values.items():
            values = np.concatenate([np.asarray(part, np.float64) for part in parts])
            buckets = _count_buckets(key[0], values)
            observations[key] = Observation(name=key[0], value=float(np.sum(values)), labels=labels, buckets=buckets)
        return [observations[key] for key in sorted(observations)]


@lru_cache(maxsize=1 << 12)
def _build_key(
    name: str, labels: tuple[str, ...], values: tuple[str | bool, ...]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the key (metric name and label values as texts), and the labels with their values as texts.

    The result is cached because each round counts the same labels. Raises ValueError as ``build_observation`` does.
    """
    texts = build_observation(name, dict(zip(labels, values, strict=True))).labels
    return (name, *texts.values()), texts


def _count_buckets(name: str, values: npt.NDArray[np.float64]) -> tuple[int, ...]:
    """Return how many values are in each bucket of a histogram; the last one has no upper bound."""
    bounds = METRICS[name].bounds
    places = np.searchsorted(np.array(bounds), values, side="left")
    return tuple(np.bincount(places, minlength=len(bounds) + 1).tolist())


class ExecutionTimer:
    """Timer of ``execution_latency_seconds``, which observes the duration of each step of a loop when it ends."""

    def __init__(self, progress: Progress, component: str) -> None:
        self._progress = progress
        self._name = f"vpa_{component}_execution_latency_seconds"
        self._begun = self._last = progress.now
        self.steps: dict[str, int] = {}
        """Durations of the finished steps: name of the step -> nanoseconds."""

    def step(self, name: str) -> StepsOf[Wait | Observe, None]:
        """Observe the duration of the step ``name``, from the end of the previous step to now (``ObserveStep``)."""
        now = yield from self._progress.clock()
        yield from self._observe_step(name, now - self._last)
        self._last = now

    def total(self) -> StepsOf[Wait | Observe, None]:
        """Observe the duration from the creation of the timer to now as the step ``total`` (``ObserveTotal``)."""
        now = yield from self._progress.clock()
        yield from self._observe_step("total", now - self._begun)

    def _observe_step(self, name: str, took: int) -> StepsOf[Observe, None]:
        """Store the duration ``took`` (nanoseconds) in ``steps``, and observe it in seconds."""
        self.steps[name] = took
        yield from self._progress.observe(build_observation(self._name, {"step": name}, took / 1e9))


FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]

_METRIC_NAME_PARTS: Final = {CPU: ("cpu", "cores"), MEMORY: ("mem", "bytes")}


class QualityObserver:
    """Observer of how usage and recommendations compare, which records in ``into``."""

    def __init__(self, into: ObservationTally | None = None) -> None:
        self.into = into if into is not None else ObservationTally()
        self._changes: list[_RecommendationChange] = []

    def samples(
        self,
        resource: str,
        modes: Sequence[str],
        mode: Int64Array,
        usage: FloatArray,
        recommended: FloatArray,
        is_oom: BoolArray,
    ) -> None:
        """Observe usage samples of containers and the last recommendations (0 for none), in cores or bytes.

        All arrays have one element per sample. The update mode of sample *i* is ``modes[mode[i]]``, empty if the VPA
        has none. ``is_oom``: whether the sample comes from an OOM kill.
        """
        killed = bool(is_oom.any())
        for number, name in sorted(enumerate(modes), key=itemgetter(1)):
            for oom in (False, True)[: 1 + killed]:
                chosen = (mode == number) & (is_oom == oom) if killed else mode == number
                if chosen.all():
                    self._observe_group(resource, name, oom, usage, recommended)
                elif chosen.any():
                    self._observe_group(resource, name, oom, usage[chosen], recommended[chosen])

    def _observe_group(self, resource: str, mode: str, oom: bool, usage: FloatArray, recommended: FloatArray) -> None:
        """Observe samples that have the same update mode and the same kind (OOM or not).

        Missing recommendations (0) are counted. For the others, the recommendation and the relative difference of the
        usage from it are observed. The absolute differences from usage are observed for all samples.
        """
        short, unit = _METRIC_NAME_PARTS[resource]
        own: dict[str, str | bool] = {"is_oom": oom} if resource == MEMORY else {}
        missing = recommended == 0
        by_mode: dict[str, str | bool] = {"update_mode": mode}
        relative: dict[str, str | bool] = {**by_mode, "resource": resource, "is_oom": oom}
        lacking = int(np.count_nonzero(missing))
        if lacking:
            self.into.count("vpa_quality_usage_sample_missing_recommendation_count", relative, lacking)
        known, used = (recommended[~missing], usage[~missing]) if lacking else (recommended, usage)
        self.into.observe(f"vpa_quality_{short}_recommendations_{unit}", {**by_mode, **own}, known)
        above = known > 0
        part = (used - known) / known if above.all() else (used[above] - known[above]) / known[above]
        self.into.observe("vpa_quality_usage_recommendation_relative_diffs", relative, part)
        for is_missing, use, wanted in (
            (False, used, known),
            (True, usage[missing], recommended[missing]) if lacking else (True, usage[:0], recommended[:0]),
        ):
            difference, over = np.abs(use - wanted), wanted > use
            labels = {**by_mode, "recommendation_missing": is_missing, **own}
            for side, chosen in (("over", over), ("lower_equal", ~over)):
                name = f"vpa_quality_{short}_recommendation_{side}_usage_diffs_{unit}"
                self.into.observe(name, labels, difference[chosen])

    def change(self, old: ResourceList, new: ResourceList, mode: str | None, pods: int) -> None:
        """Record a change of a container's target, which is observed when the sums of ``into`` are read.

        ``mode``: the VPA's update mode. ``pods``: number of pods of the VPA.
        """
        if not self._changes:
            self.into.later(partial(_observe_changes, self._changes))
        self._changes.append((old, new, mode, pods))


_RecommendationChange = tuple[ResourceList, ResourceList, str | None, int]
"""Two recommendations, the update mode, and the number of pods."""


def _observe_changes(changes: list[_RecommendationChange], into: ObservationTally) -> None:
    """Observe the relative changes of targets in ``into``, and empty the list ``changes``.

    Only cpu and memory count, and only if the old target is positive.
    """
    pending, changes[:] = changes[:], []
    for old, new, mode, pods in pending:
        for resource, amount in new.items():
            if resource not in _METRIC_NAME_PARTS or resource not in old:
                continue
            before = old[resource].milli_value() if resource == CPU else old[resource].value()
            after = amount.milli_value() if resource == CPU else amount.value()
            if before > 0:
                labels = {"update_mode": mode or "", "resource": resource, "vpa_size_log2": str(get_size_log2(pods))}
                change = [float(after) / float(before) - 1.0]
                into.observe("vpa_quality_relative_recommendation_changes", labels, change)


_PREFIX: Final = "vpa_updater_"
_GAUGES_BY_MODE: Final = (
    "controlled_pods_total",
    "evictable_pods_total",
    "vpas_with_evictable_pods_total",
    "vpas_with_evicted_pods_total",
)
_GAUGES_BY_MODE_AND_SIZE: Final = (
    "in_place_updatable_pods_total",
    "vpas_with_in_place_updatable_pods_total",
    "vpas_with_in_place_updated_pods_total",
)
_SIZE_COUNT: Final = 20
GAUGE_RESETS: Final = tuple(
    Observation(name=_PREFIX + name, reset=True) for name in (*_GAUGES_BY_MODE, *_GAUGES_BY_MODE_AND_SIZE)
)
"""Observations at the start of a loop, which remove the values of the last loop's gauges."""


class LoopGauges:
    """Gauges of one loop, set when it ends, also by an error."""

    def __init__(self) -> None:
        self._by_mode: dict[str, dict[tuple[int, str], int]] = {name: {} for name in _GAUGES_BY_MODE}
        self._by_size: dict[str, list[int]] = {name: [0] * _SIZE_COUNT for name in _GAUGES_BY_MODE_AND_SIZE}

    def add(self, name: str, vpa: VerticalPodAutoscaler, pods: int, by: int) -> None:
        """Add ``by`` to the gauge ``vpa_updater_<name>_total`` of a VPA that controls ``pods`` pods."""
        name, size = f"{name}_total", get_size_log2(pods)
        if name in self._by_mode:
            cells, key = self._by_mode[name], (size, update_mode(vpa))
            cells[key] = cells.get(key, 0) + by
        else:
            self._by_size[name][min(size, _SIZE_COUNT - 1)] += by  # upstream crashes beyond 2^20 pods

    def observations(self) -> list[Observation]:
        """Return the values of the gauges as observations.

        A gauge without the label ``update_mode`` has a value for each ``vpa_size_log2``, even if it is 0. A gauge with
        ``update_mode`` has values only for the label values that :meth:`add` was called with.
        """
        by_mode = [
            build_observation(_PREFIX + name, {"vpa_size_log2": str(size), "update_mode": mode}, value)
            for name, cells in self._by_mode.items()
            for (size, mode), value in cells.items()
        ]
        return by_mode + [
            build_observation(_PREFIX + name, {"vpa_size_log2": str(size)}, value)
            for name, cells in self._by_size.items()
            for size, value in enumerate(cells)
        ]


class VpaUpdateCounters:
    """Counters of one VPA as observations, labelled with its number of pods."""

    def __init__(self, vpa: VerticalPodAutoscaler, pods: int) -> None:
        self._size = {"vpa_size_log2": str(get_size_log2(pods))}
        self._mode = {"update_mode": update_mode(vpa)}
        self._name = {"vpa_name": vpa.name, "vpa_namespace": vpa.namespace}

    def present(self) -> tuple[Observation, Observation]:
        """Return observations of 0 evicted and 0 resized pods, so that both counters exist (``InitCounters``)."""
        return self.count_evicted(0), self.updated_in_place(0)

    def count_evicted(self, by: int = 1) -> Observation:
        """Build the observation that counts ``by`` evicted pods."""
        return build_observation(f"{_PREFIX}evicted_pods_total", {**self._size, **self._mode, **self._name}, by)

    def not_evicted(self, reason: str) -> Observation:
        """Build the observation that counts one failed eviction."""
        labels = {**self._size, **self._mode, "reason": reason, **self._name}
        return build_observation(f"{_PREFIX}failed_eviction_attempts_total", labels)

    def updated_in_place(self, by: int = 1) -> Observation:
        """Build the observation that counts ``by`` pods resized in place."""
        return build_observation(f"{_PREFIX}in_place_updated_pods_total", {**self._size, **self._name}, by)

    def not_updated_in_place(self, reason: str) -> Observation:
        """Build the observation that counts one failed resize in place."""
        labels = {**self._size, "reason": reason, **self._name}
        return build_observation(f"{_PREFIX}failed_in_place_update_attempts_total", labels)

    def count_skipped(self) -> Observation:
        """Build the observation that counts one pod that is skipped because its resize was infeasible."""
        return build_observation(f"{_PREFIX}in_place_infeasible_skip_pods_total", {**self._size, **self._name})
