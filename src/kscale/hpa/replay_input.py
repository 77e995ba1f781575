"""The load of a replay from series: which number means what, and which metric reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError
from kscale.hpa.metric_sources import source_of
from kscale.objects.autoscaling import ContainerResourceMetricSource, MetricSpec, ResourceMetricSource
from kscale.series import Series

__all__ = ["SERIES_KINDS", "Load", "Loads", "load_of", "metric_name", "recorded_of"]

SERIES_KINDS: Sequence[str] = ("total", "per-pod", "average")
_MOST_REPLICAS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Load:
    """A number over time: ``time`` int64 ns, strictly ascending; ``value`` float64 in units, over all pods.

    A value holds until the next one. Raises ``InputError`` for columns that are empty, of different lengths, not in
    order, or hold what is not a number.
    """

    time: NDArray[np.int64]
    value: NDArray[np.float64]

    def __post_init__(self) -> None:
        if len(self.time) != len(self.value):
            raise InputError(f"{len(self.time)} times, but {len(self.value)} values")
        if not len(self.time):
            raise InputError("the series is empty")
        if (self.time[1:] <= self.time[:-1]).any():
            raise InputError("times must ascend")
        if not np.isfinite(self.value).all():
            raise InputError("a value is not a number")

    def at(self, time: NDArray[np.int64]) -> NDArray[np.float64]:
        """The values at times; before the first one, the first."""
        return self.value[np.maximum(np.searchsorted(self.time, time, side="right") - 1, 0)]


Loads = Load | Mapping[str, Load]
"""What is recorded of each metric by its name (:func:`metric_name`; the empty name: an HPA's first metric)."""


def metric_name(spec: MetricSpec) -> str:
    """What a metric's series is called: the resource (of a container: ``container/resource``), or the metric's name."""
    source = source_of(spec)
    if isinstance(source, ContainerResourceMetricSource):
        return f"{source.container}/{source.name}"
    if isinstance(source, ResourceMetricSource):
        return source.name
    return spec.type if source is None else source.metric.name


def load_of(series: Series, kind: str = "total", recorded: Load | None = None) -> Load:
    """The total load from series of a kind.

    ``total``: the values of all series added up. ``per-pod``: one series a pod; the mean of the pods, times the
    recorded replicas. ``average``: one series, times the recorded replicas. Raises ``InputError`` when replicas are
    missing, or ``average`` has several series.
    """
    if kind not in SERIES_KINDS:
        raise InputError(f"{kind!r} is not one of {', '.join(SERIES_KINDS)}")
    times, total = series.total()
    if kind == "total":
        return Load(times, total)
    if recorded is None:
        raise InputError(f"a series of kind {kind} needs the recorded replicas")
    if kind == "average" and len(series.keys) != 1:
        raise InputError(f"an average is one series, not {len(series.keys)}")
    pods = np.bincount(np.searchsorted(times, series.time), minlength=len(times))
    return Load(times, total / pods * recorded.at(times))


def recorded_of(series: Series) -> Load:
    """Recorded replicas. Raises ``InputError`` for what is no number of pods."""
    times, counts = series.total()
    if not len(times):
        raise InputError("the recorded replicas are empty")
    if (counts < 0).any():
        raise InputError("recorded replicas must not be negative")
    if (counts != np.floor(counts)).any() or (counts > _MOST_REPLICAS).any():
        raise InputError("recorded replicas must be whole numbers of pods")
    return Load(times, counts)
