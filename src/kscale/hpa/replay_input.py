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
_MOST_TICKS = 10_000_000
_MOST_REPLICAS = 2**31 - 1
_LARGEST = 9.2e15  # in milli-units it must fit int64


@dataclass(frozen=True, slots=True)
class Load:
    """A number over time: ``time`` int64 ns, strictly ascending; ``value`` float64 in units, over all pods.

    A value holds until the next one. Raises ``InputError`` for columns that are empty, of different lengths, not in
    order, or hold what is not a number or does not fit a quantity of milli-units.
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
        large = np.flatnonzero(np.abs(self.value) > _LARGEST)
        if len(large):
            raise InputError(f"the value {self.value[large[0]]:g} is too large: at most {_LARGEST:g}")

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
    recorded replicas. ``average``: one series, times the recorded replicas. A value holds until its series' next one,
    for a step of that series at most. Raises ``InputError`` when replicas are missing or begin after the series ends,
    or ``average`` has several series.
    """
    if kind not in SERIES_KINDS:
        raise InputError(f"{kind!r} is not one of {', '.join(SERIES_KINDS)}")
    times, total, present = _added_up(series)
    if kind == "total":
        return Load(times, total)
    if recorded is None:
        raise InputError(f"a series of kind {kind} needs the recorded replicas")
    if kind == "average" and len(series.keys) != 1:
        raise InputError(f"an average is one series, not {len(series.keys)}")
    if len(times) and times[-1] < recorded.time[0]:
        raise InputError("the recorded replicas begin after the series ends")
    return Load(times, total / present * recorded.at(times))


def _added_up(series: Series) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """(times, the values of all series added up, how many series have one).

    Series that share their times are added up by time. Others are read on a grid of the usual step: the last value of
    each, while it holds.
    """
    times, positions = np.unique(series.time, return_inverse=True)
    alone = (np.bincount(positions, series.value).astype(np.float64), np.bincount(positions).astype(np.int64))
    order = np.lexsort((series.time, series.series))
    number, time, value = series.series[order], series.time[order], series.value[order]
    following = np.append(time[1:], 0)
    last = np.append(number[1:] != number[:-1], True)[: len(number)]
    steps = np.where(last, 0, following - time)
    if not (steps > 0).any():
        return times, *alone
    usual = int(np.median(steps[~last]))
    own = np.full(len(series.keys), usual, np.int64)
    bounds = np.searchsorted(number, np.arange(len(series.keys) + 1))
    for i in range(len(series.keys)):
        if bounds[i + 1] - bounds[i] > 1:
            own[i] = int(np.median(steps[bounds[i] : bounds[i + 1] - 1]))
    # A series that ends is gone after a step; a late value, up to twice the step, is waited for.
    end = np.where(~last & (steps < 2 * own[number]), following, time + own[number])
    if (np.searchsorted(times, end) - np.searchsorted(times, time) <= 1).all():
        return times, *alone
    first = np.append(True, number[1:] != number[:-1])
    begin = np.where(first & (time - times[0] < usual), times[0], time)
    ticks = int((times[-1] - times[0]) // usual) + 1
    if ticks > _MOST_TICKS:
        raise InputError(f"{ticks:,} steps of {usual / 1e9:g} s: the times of the series are too far apart")
    grid = times[0] + np.arange(ticks, dtype=np.int64) * usual
    low, high = np.searchsorted(grid, begin), np.searchsorted(grid, end)
    count = np.maximum(high - low, 0)
    rows = np.repeat(np.arange(len(time)), count)
    at = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count) + low[rows]
    present = np.bincount(at, minlength=ticks).astype(np.int64)
    total = np.bincount(at, value[rows], minlength=ticks).astype(np.float64)
    known = present > 0
    return grid[known], total[known], present[known]


def recorded_of(series: Series) -> Load:
    """Recorded replicas. Raises ``InputError`` for what is no number of pods."""
    if not len(series):
        raise InputError("the recorded replicas are empty")
    times, counts, _ = _added_up(series)
    if (counts < 0).any():
        raise InputError("recorded replicas must not be negative")
    if (counts != np.floor(counts)).any() or (counts > _MOST_REPLICAS).any():
        raise InputError("recorded replicas must be whole numbers of pods")
    return Load(times, counts)
