"""Upstream's metrics by name, and collecting what a decision adds to them (``pkg/utils/metrics``).

A decision returns what it would add to counters, set gauges to and observe in histograms; times that pass outside a
decision (steps of a loop, requests) are observed by whoever has a clock, with the same names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["METRICS", "Distribution", "Metric", "Observations", "metric_key", "size_log2"]


class Metric(NamedTuple):
    """A metric: its kind (counter, gauge, histogram), its labels in order and, of a histogram, its bounds."""

    name: str
    kind: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


class Distribution(msgspec.Struct):
    """Observations of a histogram metric: ``counts[i]`` at most ``bounds[i]`` (and above the bound before), the last
    above all bounds; ``total`` is their sum."""

    bounds: Sequence[float]
    counts: list[int]
    total: float = 0.0


_STEPS: Final = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0, 120.0,
    150.0, 240.0, 300.0,
)  # fmt: skip
_REQUESTS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
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
    found = [
        Metric(f"{prefix}execution_latency_seconds", "histogram", ("step",), _STEPS)
        for prefix in (recommender, updater, admission)
    ]
    found += [
        Metric(
            f"{recommender}vpa_objects_count",
            "gauge",
            (_MODE, "has_recommendation", "api", "matches_pods", "unsupported_config"),
        ),
        Metric(f"{recommender}recommendation_latency_seconds", "histogram", (), _FIRST),
        Metric(f"{recommender}aggregate_container_states_count", "gauge"),
        Metric(f"{recommender}metric_server_responses", "counter", ("is_error", "client_name")),
        Metric(f"{recommender}prometheus_client_api_requests_count", "counter", ("code", "method")),
        Metric(
            f"{recommender}prometheus_client_api_requests_duration_seconds", "histogram", ("code", "method"), _REQUESTS
        ),
    ]
    for name in ("controlled_pods", "evictable_pods", "vpas_with_evictable_pods", "vpas_with_evicted_pods"):
        found.append(Metric(f"{updater}{name}_total", "gauge", (_SIZE, _MODE)))
    for name in ("in_place_updatable_pods", "vpas_with_in_place_updatable_pods", "vpas_with_in_place_updated_pods"):
        found.append(Metric(f"{updater}{name}_total", "gauge", (_SIZE,)))
    found += [
        Metric(f"{updater}evicted_pods_total", "counter", (_SIZE, _MODE, *_NAMED)),
        Metric(f"{updater}failed_eviction_attempts_total", "counter", (_SIZE, _MODE, "reason", *_NAMED)),
        Metric(f"{updater}in_place_updated_pods_total", "counter", (_SIZE, *_NAMED)),
        Metric(f"{updater}failed_in_place_update_attempts_total", "counter", (_SIZE, "reason", *_NAMED)),
        Metric(f"{updater}in_place_infeasible_skip_pods_total", "counter", (_SIZE, *_NAMED)),
    ]
    compared = (_MODE, "resource", _OOM)
    found += [
        Metric(f"{quality}usage_recommendation_relative_diffs", "histogram", compared, _RELATIVE),
        Metric(f"{quality}usage_sample_missing_recommendation_count", "counter", compared),
        Metric(f"{quality}relative_recommendation_changes", "histogram", (_MODE, "resource", _SIZE), _RELATIVE),
    ]
    for short, unit, bounds, own in (("cpu", "cores", _CORES, ()), ("mem", "bytes", _BYTES, (_OOM,))):
        found.append(Metric(f"{quality}{short}_recommendations_{unit}", "histogram", (_MODE, *own), bounds))
        for side in ("over", "lower_equal"):
            name = f"{quality}{short}_recommendation_{side}_usage_diffs_{unit}"
            found.append(Metric(name, "histogram", (_MODE, _MISSING, *own), bounds))
    found += [
        Metric(f"{admission}admission_pods_total", "counter", ("applied",)),
        Metric(f"{admission}admission_latency_seconds", "histogram", ("status", "resource"), _REQUESTS),
        Metric("vpa_resources_get_resources_count", "counter", ("source",)),
    ]
    return found


METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in _all()}
"""Every metric by its name. The updater's legacy profile has two of these without labels."""


def size_log2(pods: int) -> int:
    """The label ``vpa_size_log2``."""
    return 0 if pods <= 0 else min(pods.bit_length() - 1, _MOST_LOG2)


def metric_key(name: str, labels: Mapping[str, str | bool]) -> str:
    """``metric{label=value,...}``; raises ``ValueError`` for labels that upstream's metric does not have."""
    if tuple(labels) != METRICS[name].labels:
        raise ValueError(f"{name} has the labels {', '.join(METRICS[name].labels)}, not {', '.join(labels)}")
    if not labels:
        return name
    return f"{name}{{{','.join(f'{label}={_text(value)}' for label, value in labels.items())}}}"


def _text(value: str | bool) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else value


class Observations:
    """Collects; keys as of :func:`metric_key`."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        """Counters and gauges: what is added, or set."""
        self.distributions: dict[str, Distribution] = {}

    def count(self, name: str, labels: Mapping[str, str | bool], by: int = 1) -> None:
        """Add to a counter or a gauge."""
        self.counters[metric_key(name, labels)] += by

    def observe(
        self, name: str, labels: Mapping[str, str | bool], values: Sequence[float] | npt.NDArray[np.float64]
    ) -> None:
        """Observe values in a histogram."""
        seen = np.asarray(values, np.float64)
        if len(seen) == 0:
            return
        bounds, key = METRICS[name].bounds, metric_key(name, labels)
        found = self.distributions.get(key)
        if found is None:
            found = self.distributions[key] = Distribution(bounds, [0] * (len(bounds) + 1))
        counts = np.bincount(np.searchsorted(bounds, seen, side="left"), minlength=len(bounds) + 1)
        found.counts = [a + b for a, b in zip(found.counts, counts.tolist(), strict=True)]
        found.total += float(seen.sum())
