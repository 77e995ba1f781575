"""Upstream's metrics by name, and collecting what a decision adds to them (``pkg/utils/metrics``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from kscale.effects import Metric, Observation, Observe, Progress, StepsOf, Wait

__all__ = ["LEGACY_METRICS", "METRICS", "ExecutionTimer", "Labels", "Tally", "observation", "size_log2"]

Labels = Mapping[str, str | bool]
_Values = Sequence[float] | npt.NDArray[np.float64]

_STEPS: Final = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0, 120.0,
    150.0, 240.0, 300.0,
)  # fmt: skip
_REQUESTS: Final = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0,
)  # fmt: skip
_FIRST: Final = (
    1.0, 2.0, 5.0, 7.5, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 90.0, 120.0, 150.0, 180.0, 240.0, 300.0, 600.0, 900.0,
    1800.0,
)  # fmt: skip
_CORES: Final = tuple(0.01 * 2.0**k for k in range(17))
_BYTES: Final = tuple(1e6 * 2.0**k for k in range(17))
_PARTS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
_RELATIVE: Final = (*(-part for part in reversed(_PARTS)), 0.0, *_PARTS, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0)
_MODE, _SIZE, _OOM, _MISSING = "update_mode", "vpa_size_log2", "is_oom", "recommendation_missing"
_NAMED: Final = ("vpa_name", "vpa_namespace")
_MOST_LOG2: Final = 20


def _all() -> list[Metric]:
    recommender, updater, quality, admission = (
        f"vpa_{part}_" for part in ("recommender", "updater", "quality", "admission_controller")
    )
    timed = (
        (recommender, "Time spent in various parts of VPA Recommender main loop."),
        (updater, "Time spent in various parts of VPA Updater main loop."),
        (admission, "Time spent in various parts of VPA admission controller"),
    )
    found = [
        Metric(f"{prefix}execution_latency_seconds", "histogram", ("step",), _STEPS, help=text)
        for prefix, text in timed
    ]
    found += [
        Metric(
            f"{recommender}vpa_objects_count",
            "gauge",
            (_MODE, "has_recommendation", "api", "matches_pods", "unsupported_config"),
            help="Number of VPA objects present in the cluster.",
        ),
        Metric(
            f"{recommender}recommendation_latency_seconds",
            "histogram",
            (),
            _FIRST,
            help="Time elapsed from creating a valid VPA configuration to the first recommendation.",
        ),
        Metric(
            f"{recommender}aggregate_container_states_count",
            "gauge",
            help="Number of aggregate container states being tracked by the recommender",
        ),
        Metric(
            f"{recommender}metric_server_responses",
            "counter",
            ("is_error", "client_name"),
            help="Count of responses to queries to metrics server",
        ),
        Metric(
            f"{recommender}prometheus_client_api_requests_count",
            "counter",
            ("code", "method"),
            help="Number of requests to a Prometheus API",
        ),
        Metric(
            f"{recommender}prometheus_client_api_requests_duration_seconds",
            "histogram",
            ("code", "method"),
            _REQUESTS,
            help="Duration of requests to a Prometheus API",
        ),
    ]
    for name, text in (
        ("controlled_pods", "Number of Pods controlled by VPA updater."),
        ("evictable_pods", "Number of Pods matching eviction criteria."),
        ("vpas_with_evictable_pods", "Number of VPA objects with at least one Pod matching eviction criteria."),
        ("vpas_with_evicted_pods", "Number of VPA objects with at least one evicted Pod."),
    ):
        found.append(Metric(f"{updater}{name}_total", "gauge", (_SIZE, _MODE), help=text))
    updatable = "Number of VPA objects with at least one Pod matching in place update criteria."
    for name, text in (
        ("in_place_updatable_pods", "Number of Pods matching in place update criteria."),
        ("vpas_with_in_place_updatable_pods", updatable),
        ("vpas_with_in_place_updated_pods", "Number of VPA objects with at least one in-place updated Pod."),
    ):
        found.append(Metric(f"{updater}{name}_total", "gauge", (_SIZE,), help=text))
    found += [
        Metric(
            f"{updater}evicted_pods_total",
            "counter",
            (_SIZE, _MODE, *_NAMED),
            help="Number of Pods evicted by Updater to apply a new recommendation.",
        ),
        Metric(
            f"{updater}failed_eviction_attempts_total",
            "counter",
            (_SIZE, _MODE, "reason", *_NAMED),
            help="Number of failed attempts to update Pods by eviction",
        ),
        Metric(
            f"{updater}in_place_updated_pods_total",
            "counter",
            (_SIZE, *_NAMED),
            help="Number of Pods updated in-place by Updater to apply a new recommendation.",
        ),
        Metric(
            f"{updater}failed_in_place_update_attempts_total",
            "counter",
            (_SIZE, "reason", *_NAMED),
            help="Number of failed attempts to update Pods in-place.",
        ),
        Metric(
            f"{updater}in_place_infeasible_skip_pods_total",
            "counter",
            (_SIZE, *_NAMED),
            help="Number of pods that were skipped for in-place update due to cached infeasibility",
        ),
    ]
    compared = (_MODE, "resource", _OOM)
    found += [
        Metric(
            f"{quality}usage_recommendation_relative_diffs",
            "histogram",
            compared,
            _RELATIVE,
            help="Diffs between recommendation and usage, normalized by recommendation value",
        ),
        Metric(
            f"{quality}usage_sample_missing_recommendation_count",
            "counter",
            compared,
            help="Count of usage samples when a recommendation should be present but is missing",
        ),
        Metric(
            f"{quality}relative_recommendation_changes",
            "histogram",
            (_MODE, "resource", _SIZE),
            _RELATIVE,
            help="Changes between consecutive recommendation values, normalized by old value",
        ),
    ]
    for short, word, unit, bounds, own in (
        ("cpu", "CPU", "cores", _CORES, ()),
        ("mem", "memory", "bytes", _BYTES, (_OOM,)),
    ):
        title = "CPU" if short == "cpu" else "Memory"
        text = f"{title} recommendation values as observed on recorded usage sample"
        found.append(Metric(f"{quality}{short}_recommendations_{unit}", "histogram", (_MODE, *own), bounds, help=text))
        for side, sign in (("over", ">"), ("lower_equal", "<=")):
            name = f"{quality}{short}_recommendation_{side}_usage_diffs_{unit}"
            text = f"Absolute diffs between recommendation and usage for {word} when recommendation {sign} usage"
            found.append(Metric(name, "histogram", (_MODE, _MISSING, *own), bounds, help=text))
    found += [
        Metric(
            f"{admission}admission_pods_total",
            "counter",
            ("applied",),
            help="Number of Pods processed by VPA Admission Controller.",
        ),
        Metric(
            f"{admission}admission_latency_seconds",
            "histogram",
            ("status", "resource"),
            _REQUESTS,
            help="Time spent in VPA Admission Controller.",
        ),
        Metric(
            "vpa_resources_get_resources_count",
            "counter",
            ("source",),
            help="Count of calls to get the resources of a pod or container.",
        ),
    ]
    return found


METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in _all()}
"""Every metric by its name."""

LEGACY_METRICS: Final[Mapping[str, Metric]] = {
    metric.name: metric
    for metric in (
        METRICS["vpa_updater_execution_latency_seconds"],
        METRICS["vpa_updater_evicted_pods_total"]._replace(labels=()),
    )
}
"""Those of the updater of about 2020."""


def size_log2(pods: int) -> int:
    """The label ``vpa_size_log2``."""
    return 0 if pods <= 0 else min(pods.bit_length() - 1, _MOST_LOG2)


def observation(
    name: str, labels: Labels | None = None, value: float = 1.0, *, metrics: Mapping[str, Metric] = METRICS
) -> Observation:
    """One observation; raises ``ValueError`` for labels that upstream's metric does not have."""
    texts = _texts(labels or {})
    if tuple(texts) != metrics[name].labels:
        raise ValueError(f"{name} has the labels {', '.join(metrics[name].labels)}, not {', '.join(texts)}")
    return Observation(name=name, value=value, labels=texts)


def _texts(labels: Labels) -> dict[str, str]:
    return {
        label: ("true" if value else "false") if isinstance(value, bool) else value for label, value in labels.items()
    }


class Tally:
    """Adds up what is observed, so that each metric and its labels are said once."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], tuple[dict[str, str], float]] = {}
        self._values: dict[tuple[str, ...], tuple[dict[str, str], list[_Values]]] = {}
        self._known: dict[tuple[str | bool, ...], tuple[tuple[str, ...], dict[str, str]]] = {}
        self._later: list[Callable[[Tally], None]] = []

    def later(self, tell: Callable[[Tally], None]) -> None:
        """Has something added up only if somebody asks what came together: ``tell`` is given this tally then, and had
        better not hold it before, so that what nobody asks for is gone with it."""
        self._later.append(tell)

    def count(self, name: str, labels: Labels, by: float = 1) -> None:
        """Adds to a counter, or to what a gauge will be set to."""
        key, texts = self._said(name, labels)
        _, before = self._counts.get(key, ({}, 0.0))
        self._counts[key] = texts, before + by

    def observe(self, name: str, labels: Labels, values: _Values) -> None:
        """Observes values in a histogram, in their order; none says nothing."""
        if len(values) == 0:
            return
        key, texts = self._said(name, labels)
        _, parts = self._values.setdefault(key, (texts, []))
        if parts and isinstance(values, list) and isinstance(parts[-1], list):
            parts[-1] += values
        else:
            parts.append(values if isinstance(values, np.ndarray) else list(values))

    def observations(self) -> list[Observation]:
        """What came together, by metric and labels."""
        waiting, self._later = self._later, []
        for tell in waiting:
            tell(self)
        found = {key: Observation(name=key[0], value=n, labels=labels) for key, (labels, n) in self._counts.items()}
        for key, (labels, parts) in self._values.items():
            values = np.concatenate([np.asarray(part, np.float64) for part in parts])
            buckets = _buckets(key[0], values)
            found[key] = Observation(name=key[0], value=float(np.sum(values)), labels=labels, buckets=buckets)
        return [found[key] for key in sorted(found)]

    def _said(self, name: str, labels: Labels) -> tuple[tuple[str, ...], dict[str, str]]:
        """What a metric with its labels is kept under, and the labels as texts."""
        given = (name, *labels, *labels.values())
        known = self._known.get(given)
        if known is None:
            texts = observation(name, labels).labels
            known = self._known[given] = (name, *texts.values()), texts
        return known


def _buckets(name: str, values: npt.NDArray[np.float64]) -> tuple[int, ...]:
    bounds = METRICS[name].bounds
    places = np.searchsorted(np.array(bounds), values, side="left")
    return tuple(np.bincount(places, minlength=len(bounds) + 1).tolist())


class ExecutionTimer:
    """``execution_latency_seconds``: how long each step of a loop took, told as soon as it is over."""

    def __init__(self, progress: Progress, component: str) -> None:
        self._progress = progress
        self._name = f"vpa_{component}_execution_latency_seconds"
        self._begun = self._last = progress.now
        self.steps: dict[str, int] = {}
        """Step -> nanoseconds, of those that are over."""

    def step(self, name: str) -> StepsOf[Wait | Observe, None]:
        """What was done since the last step, or the beginning, was this one (``ObserveStep``)."""
        now = yield from self._progress.clock()
        yield from self._tell(name, now - self._last)
        self._last = now

    def total(self) -> StepsOf[Wait | Observe, None]:
        """The loop is over (``ObserveTotal``)."""
        now = yield from self._progress.clock()
        yield from self._tell("total", now - self._begun)

    def _tell(self, name: str, took: int) -> StepsOf[Observe, None]:
        self.steps[name] = took
        yield from self._progress.observe(observation(self._name, {"step": name}, took / 1e9))
