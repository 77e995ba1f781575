"""Replay recorded load in virtual time: the load from series, the simulated target, one HPA at every sync period, the
report that compares HPAs, and the plot.

The simulated target is defined, not estimated (:class:`Plant`): usage = load / ready pods. Not in upstream. The loop
runs in native code and decides as :mod:`kscale.hpa.batch.decisions` does. A test compares it with the step machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _hpa
from kscale.effects import SECOND, to_text
from kscale.errors import InputError, Problem
from kscale.files import replacing
from kscale.hpa.controller.behavior import build_rule_columns
from kscale.hpa.controller.metric_proposals import (
    get_metric_source,
    get_resource_target,
    get_tolerances,
    get_value_target,
)
from kscale.hpa.controller.replica_calculator import CALCULATION_MODES
from kscale.hpa.options import DEFAULT_OPTIONS, HPAOptions
from kscale.imports import library
from kscale.objects.api.autoscaling import (
    ContainerResourceMetricSource,
    HorizontalPodAutoscaler,
    MetricSpec,
    ObjectMetricSource,
    PodsMetricSource,
    ResourceMetricSource,
)
from kscale.objects.argument_types import typed
from kscale.objects.quantity import Quantity
from kscale.records import Record
from kscale.series import Series

__all__ = [
    "SERIES_KINDS",
    "Load",
    "Loads",
    "Plant",
    "Replay",
    "ReplayReport",
    "ReplaySummary",
    "build_load",
    "build_recorded_replicas",
    "find_common_span",
    "find_driven_metrics",
    "get_metric_name",
    "name_loads",
    "plot_replays",
    "replay",
    "replay_report",
    "summarize_replay",
]


SERIES_KINDS: Sequence[str] = ("total", "per-pod", "average")
_MAX_GRID_STEPS = 10_000_000
_MAX_REPLICAS = 2**31 - 1
_MAX_VALUE = 9.2e15  # in milli-units it must fit int64


@dataclass(frozen=True, slots=True)
class Load:
    """Load over time, summed over all pods: ``time`` int64 ns, strictly ascending; ``value`` float64 in units.

    A value holds until the next one. Raises ``InputError`` for columns that are empty, of different lengths or out of
    order, and for values that are not numbers or do not fit a quantity of milli-units.
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
        large = np.flatnonzero(np.abs(self.value) > _MAX_VALUE)
        if len(large):
            raise InputError(f"the value {self.value[large[0]]:g} is too large: at most {_MAX_VALUE:g}")

    def get_values(self, time: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the value at each time (nanoseconds); the first value for times before the first."""
        return self.value[np.maximum(np.searchsorted(self.time, time, side="right") - 1, 0)]


Loads = Load | Mapping[str, Load]
"""Loads by metric name (:func:`get_metric_name`; the empty name: an HPA's first metric)."""


def get_metric_name(spec: MetricSpec) -> str:
    """Return the name of a metric's series.

    It is the resource (of a container: ``container/resource``), or the metric's name; for an unknown type, the type.
    Raises InputError if the metric lacks the field of its type.
    """
    source = get_metric_source(spec)
    if isinstance(source, ContainerResourceMetricSource):
        return f"{source.container}/{source.name}"
    if isinstance(source, ResourceMetricSource):
        return source.name
    return spec.type if source is None else source.metric.name


def build_load(series: Series, kind: str = "total", recorded: Load | None = None) -> Load:
    """Build the total load from series of a kind.

    - ``total``: the sum of all series;
    - ``per-pod``: one series per pod; the mean of the pods, times the recorded replicas (``recorded``);
    - ``average``: one series, times the recorded replicas.

    If the series have different times, they are read on a common grid. A value then holds until the next value of its
    series, or for one step of that series if the next one is two steps away or more.

    Raises ``InputError`` for another kind, for empty series, and for times that are too far apart for a grid; also if
    replicas are missing or begin after the series ends, or if ``average`` has several series.
    """
    if kind not in SERIES_KINDS:
        raise InputError(f"{kind!r} is not one of {', '.join(SERIES_KINDS)}")
    times, total, present = _sum_series(series)
    if kind == "total":
        return Load(times, total)
    if recorded is None:
        raise InputError(f"a series of kind {kind} needs the recorded replicas")
    if kind == "average" and len(series.keys) != 1:
        raise InputError(f"an average is one series, not {len(series.keys)}")
    if len(times) and times[-1] < recorded.time[0]:
        raise InputError("the recorded replicas begin after the series ends")
    return Load(times, total / present * recorded.get_values(times))


def _sum_series(series: Series) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Return times, the sum of all series at each time, and the number of series with a value at each time.

    Series with common times are summed by time. Other series are read on a grid of the usual step: the last value of
    each, while it holds. Raises InputError if the times are too far apart for a grid.
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
    # A series ends one step after its last value; gaps of less than two steps are bridged.
    end = np.where(~last & (steps < 2 * own[number]), following, time + own[number])
    if (np.searchsorted(times, end) - np.searchsorted(times, time) <= 1).all():
        return times, *alone
    first = np.append(True, number[1:] != number[:-1])
    begin = np.where(first & (time - times[0] < usual), times[0], time)
    ticks = int((times[-1] - times[0]) // usual) + 1
    if ticks > _MAX_GRID_STEPS:
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


def build_recorded_replicas(series: Series) -> Load:
    """Build the recorded replicas from series; several are summed as the ``total`` of :func:`build_load`.

    Raises ``InputError`` for empty series, and for values that are not numbers of pods.
    """
    if not len(series):
        raise InputError("the recorded replicas are empty")
    times, counts, _ = _sum_series(series)
    if (counts < 0).any():
        raise InputError("recorded replicas must not be negative")
    if (counts != np.floor(counts)).any() or (counts > _MAX_REPLICAS).any():
        raise InputError("recorded replicas must be whole numbers of pods")
    return Load(times, counts)


_MAX_TICKS: Final = 10_000_000


class Plant(msgspec.Struct, frozen=True, kw_only=True):
    """Behavior of the simulated target; durations in seconds.

    ``startup``: from a pod's creation to its readiness. ``lag``: age of a metric when it is read. ``window``: window of
    a metric. ``request``: request of each pod, for utilization targets, by resource if there are several. ``start``:
    initial replicas (None: the minimum, but at least 1, as an HPA at 0 that did not scale to zero itself is paused).
    The controller is assumed to have just started: its first pass records the current replicas.
    """

    startup: float = 30.0
    lag: float = 30.0
    window: float = 15.0
    request: Quantity | Mapping[str, Quantity] | None = None
    start: int | None = None

    def request_of(self, resource: str) -> Quantity | None:
        """Return each pod's request of a resource; None if none was set.

        A request that is not set by resource applies to every resource.
        """
        if self.request is None or isinstance(self.request, Quantity):
            return self.request
        return self.request.get(resource, self.request.get(""))


@dataclass(frozen=True, slots=True)
class Replay:
    """Recorded columns of a replay.

    One entry per sync: ``time`` int64 ns; ``replicas``, ``ready``, ``desired``, ``proposal`` int32; ``decided_by``
    int32 into ``metrics``, -1 if none decided. One row per metric and one column per sync: ``load`` float64 (units, at
    that time), ``usage`` int64 milli (the metric's value), ``capacity`` float64: load that the ready pods take at their
    target. ``period``: seconds between syncs.
    """

    name: str
    metrics: tuple[str, ...]
    time: NDArray[np.int64]
    load: NDArray[np.float64]
    replicas: NDArray[np.int32]
    ready: NDArray[np.int32]
    desired: NDArray[np.int32]
    proposal: NDArray[np.int32]
    decided_by: NDArray[np.int32]
    usage: NDArray[np.int64]
    capacity: NDArray[np.float64]
    period: float


@typed
def replay(
    hpa: HorizontalPodAutoscaler,
    loads: Loads,
    plant: Plant,
    *,
    options: HPAOptions | None = None,
    recorded: Load | None = None,
    span: tuple[int, int] | None = None,
) -> Replay:
    """Replay one HPA over the total load of its metrics, while all of them are known.

    Parameters
    ----------
    hpa : HorizontalPodAutoscaler
        A defaulted v2 object.
    loads : Loads
        Series by metric; a single one is that of the HPA's first metric. Metrics without a load are left out, as if the
        HPA did not have them.
    plant : Plant
        The simulated target.
    options : HPAOptions, optional
        Options of the controller.
    recorded : Load, optional
        Recorded replicas. The simulated target then follows them instead of the decisions (open loop).
    span : tuple of int, optional
        Begin and end in nanoseconds. Default: the common span of the loads.

    Returns
    -------
    Replay
        The columns of the replay.

    Raises
    ------
    InputError
        If no metric has a load, a metric cannot be replayed, a utilization target has no request, the loads do not
        overlap, or there are more than 10 million syncs.
    """
    options = options or DEFAULT_OPTIONS
    name = f"{hpa.metadata.namespace}/{hpa.metadata.name}"
    known = name_loads(loads)
    metrics = _disambiguate_names(
        [
            _build_replay_metric(i, spec, known[load], plant, options)
            for i, spec, load in find_driven_metrics(hpa, known)
        ]
    )
    if not metrics:
        names = ", ".join(get_metric_name(spec) for spec in hpa.spec.metrics or ())
        raise InputError(Problem(f"none of its metrics has a series (metrics: {names})", object=name))
    period = options.sync_period_ns
    if period <= 0:
        raise InputError("the sync period must be greater than zero")
    begin, end = span or find_common_span([each.recorded for each in metrics])
    ticks = (end - begin) // period + 1
    if not 0 < ticks <= _MAX_TICKS:
        raise InputError(f"{ticks:,} syncs: the series must span between one and {_MAX_TICKS:,} sync periods")
    at = begin + np.arange(ticks, dtype=np.int64) * period
    behavior, spec = hpa.spec.behavior, hpa.spec
    minimum = 1 if spec.min_replicas is None else spec.min_replicas
    tolerances = get_tolerances(hpa, options)
    replicas, ready, desired, proposal, best, usage = _hpa.replay(
        ticks,
        metrics,
        None if recorded is None else recorded.get_values(at).astype(np.int32),
        *build_rule_columns([behavior], options),
        tolerance_down=tolerances.scale_down,
        tolerance_up=tolerances.scale_up,
        cpu_initialization=options.cpu_initialization_ns,
        initial_readiness=options.initial_readiness_ns,
        minimum=minimum,
        maximum=spec.max_replicas,
        behavior=behavior is not None,
        scale_to_zero=options.gates["HPAScaleToZero"],
        release=options.release,
        downscale_window=options.downscale_stabilization_ns,
        startup=round(plant.startup * SECOND),
        lag=round(plant.lag * SECOND),
        period=period,
        window=round(plant.window * SECOND),
        begin=begin,
        start=max(1, minimum) if plant.start is None else plant.start,
    )
    return Replay(
        name=name,
        metrics=tuple(each.name for each in metrics),
        time=at,
        load=np.stack([each.recorded.get_values(at) for each in metrics]),
        replicas=replicas,
        ready=ready,
        desired=desired,
        proposal=proposal,
        decided_by=best,
        usage=np.ascontiguousarray(usage.T),
        capacity=np.stack([each.capacity(ready) for each in metrics]),
        period=period / SECOND,
    )


def find_common_span(loads: Collection[Load]) -> tuple[int, int]:
    """Return the first and last time (nanoseconds) at which all loads are known.

    Raises InputError if the series do not overlap.
    """
    begin, end = max(int(each.time[0]) for each in loads), min(int(each.time[-1]) for each in loads)
    if begin > end:
        raise InputError(f"the series do not overlap: one begins at {to_text(begin)}, another ends at {to_text(end)}")
    return begin, end


def name_loads(loads: Loads) -> Mapping[str, Load]:
    """Return loads by metric name. A single load gets the empty name, which stands for the first metric."""
    return {"": loads} if isinstance(loads, Load) else loads


def find_driven_metrics(hpa: HorizontalPodAutoscaler, loads: Mapping[str, Load]) -> list[tuple[int, MetricSpec, str]]:
    """Return (position in the spec, metric, load name) of the metrics that have a load.

    The first metric gets the load with the empty name if there is none of its own name.
    """
    driven = []
    for i, spec in enumerate(hpa.spec.metrics or ()):
        name = get_metric_name(spec)
        if name not in loads and i == 0:
            name = ""
        if name in loads:
            driven.append((i, spec, name))
    return driven


@dataclass(frozen=True, slots=True)
class _ReplayMetric:
    """Metric as the kernel reads it."""

    position: int
    name: str
    mode: int
    cpu: bool
    target: int
    request: int
    recorded: Load

    @property
    def time(self) -> NDArray[np.int64]:
        """Return the recorded times in nanoseconds: int64[n]."""
        return np.ascontiguousarray(self.recorded.time, np.int64)

    @property
    def load(self) -> NDArray[np.float64]:
        """Return the recorded values: float64[n]."""
        return np.ascontiguousarray(self.recorded.value, np.float64)

    def capacity(self, ready: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the load (units) that ``ready`` pods take at the target: float64, one entry per item.

        It does not depend on the pods if the target is a value instead of an average.
        """
        mode = CALCULATION_MODES[self.mode]
        each = self.target * self.request / 100_000 if mode == "utilization" else self.target / 1000
        return np.full(len(ready), each) if mode.endswith("_value") else ready.astype(np.float64) * each


def _disambiguate_names(metrics: list[_ReplayMetric]) -> list[_ReplayMetric]:
    """Return the metrics with their positions added to names that occur more than once."""
    names = Counter(each.name for each in metrics)
    return [
        replace(each, name=f"{each.name} (metrics[{each.position}])") if names[each.name] > 1 else each
        for each in metrics
    ]


def _build_replay_metric(
    position: int, spec: MetricSpec, load: Load, plant: Plant, options: HPAOptions
) -> _ReplayMetric:
    """Build the metric at a position of the spec. Raises InputError if it cannot be replayed."""
    field, source = f"spec.metrics[{position}]", get_metric_source(spec, options)
    resource = ""
    if isinstance(source, (ResourceMetricSource, ContainerResourceMetricSource)):
        mode, target = get_resource_target(source.target)
        resource = source.name
    elif isinstance(source, PodsMetricSource):
        average = source.target.average_value
        mode, target = "usage", None if average is None else average.milli_value()
    elif source is not None:
        mode, target = get_value_target(source)
        if isinstance(source, ObjectMetricSource) and target is None:
            raise InputError(Problem("a target whose type and field agree is needed", field=f"{field}.object"))
    else:
        raise InputError(Problem("a metric that can be replayed is needed", field=f"{field}.type"))
    if target is None:
        raise InputError(Problem("a target is needed", field=field))
    request = plant.request_of(resource)
    if mode == "utilization" and request is None:
        raise InputError(f"a utilization target needs the request of a pod ({resource})")
    milli = 0 if request is None else request.milli_value()
    if resource and (load.value < 0).any():
        raise InputError(Problem(f"the usage of {resource} is negative", field=field))
    return _ReplayMetric(
        position, get_metric_name(spec), CALCULATION_MODES.index(mode), resource == "cpu", target, milli, load
    )


class ReplaySummary(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Result of one HPA.

    Attributes
    ----------
    name : str
        Name of the HPA, with a number as suffix if another HPA has the same name.
    pod_hours : float
        Running time of all pods together, in hours.
    under_provisioned_seconds : float
        How long the load of any metric was more than the ready pods take at their target, in seconds.
    rescales : int
        Number of changes of the replicas.
    min_replicas : int
        Lowest number of replicas.
    max_replicas : int
        Highest number of replicas.
    decided_by : dict of str to int
        At how many syncs each metric decided.
    start : int
        Replicas at the first sync.
    agreement : float or None
        With recorded replicas: share of syncs (0 to 1) at which the HPA, given the recorded replicas, decides for the
        replicas recorded at the next sync, from the first record on. None: no recorded replicas.
    """

    name: str
    pod_hours: float
    under_provisioned_seconds: float
    rescales: int
    min_replicas: int
    max_replicas: int
    decided_by: dict[str, int]
    start: int
    agreement: float | None = None


class PlantText(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Parameters of the simulated target.

    Attributes
    ----------
    startup : float
        Time from the creation of a pod until it is ready, in seconds.
    metrics_lag : float
        Age of a metric when the HPA reads it, in seconds.
    window : float
        Time over which a metric is averaged, in seconds.
    requests : dict of str to str
        Request of each pod by resource, as a quantity. The empty name stands for every resource.
    start : int or None
        Replicas at the beginning. None: the minimum of the HPA, but at least 1.
    usage : str
        Rule for the usage of a pod.
    controller : str
        State of the controller at the first sync.
    """

    startup: float
    metrics_lag: float
    window: float
    requests: dict[str, str]
    start: int | None
    usage: str = "load / ready pods"
    controller: str = "has just started at the first sync"


class ReplayReport(Record, frozen=True):
    """Decisions of HPAs for the same recorded load. Times are RFC 3339.

    Attributes
    ----------
    begin : str or None
        Time of the first sync. None: the API's zero time.
    end : str or None
        Time of the last sync. None: the API's zero time.
    syncs : int
        Number of syncs.
    period_seconds : float
        Seconds between two syncs.
    plant : PlantText
        Parameters of the simulated target.
    summaries : list of ReplaySummary
        Result of each HPA, in input order.
    replicas : dict of str to list of int
        The replicas that each HPA finds at each sync, before it changes them, by name of the HPA. HPAs of the same name
        get a number as suffix.
    unmodelled : list of str
        Metrics without a series, which were left out.
    """

    KIND = "ReplayReport"
    ROWS = "summaries"
    begin: str | None
    end: str | None
    syncs: int
    period_seconds: float
    plant: PlantText
    summaries: list[ReplaySummary]
    replicas: dict[str, list[int]]
    unmodelled: list[str]


def summarize_replay(run: Replay) -> ReplaySummary:
    """Summarize a replay in comparable numbers."""
    decided = np.bincount(run.decided_by[run.decided_by >= 0], minlength=len(run.metrics))
    return ReplaySummary(
        name=run.name,
        pod_hours=float(run.replicas.sum()) * run.period / 3600,
        under_provisioned_seconds=float((run.load > run.capacity).any(axis=0).sum()) * run.period,
        rescales=int((run.desired != run.replicas).sum()),
        min_replicas=int(run.replicas.min()),
        max_replicas=int(run.replicas.max()),
        start=int(run.replicas[0]),
        decided_by=dict(zip(run.metrics, decided.tolist(), strict=True)),
    )


@typed
def replay_report(
    hpas: Sequence[HorizontalPodAutoscaler],
    loads: Loads,
    plant: Plant,
    *,
    options: HPAOptions | None = None,
    recorded: Load | None = None,
) -> tuple[ReplayReport, list[Replay]]:
    """Replay HPAs side by side, each on its own ``plant``, while all loads are known.

    Parameters
    ----------
    hpas : sequence of HorizontalPodAutoscaler
        Defaulted v2 objects.
    loads : Loads
        Series by metric.
    plant : Plant
        The simulated target.
    options : HPAOptions, optional
        Options of the controller.
    recorded : Load, optional
        Recorded replicas, which add the open-loop check.

    Returns
    -------
    tuple of ReplayReport and list of Replay
        The comparison, and the columns of each HPA.

    Raises
    ------
    InputError
        If there is no HPA, for a load that no HPA has a metric for, for recorded replicas that do not overlap the
        load, and as :func:`~kscale.hpa.replay.replay` does.
    """
    if not hpas:
        raise InputError("no HorizontalPodAutoscaler to replay")
    options, loads = options or DEFAULT_OPTIONS, name_loads(loads)
    _check_load_names(hpas, loads)
    span = find_common_span(loads.values())
    runs = [replay(hpa, loads, plant, options=options, span=span) for hpa in hpas]
    seen: Counter[str] = Counter()
    for i, run in enumerate(runs):
        seen[run.name] += 1
        if seen[run.name] > 1:
            runs[i] = replace(run, name=f"{run.name} ({seen[run.name]})")
    summaries = [summarize_replay(run) for run in runs]
    if recorded is not None:
        at = runs[0].time
        sizes, begin, end = recorded.get_values(at).astype(np.int32), recorded.time[0], recorded.time[-1]
        known = at[:-1] >= begin
        if not known.any() or (end < at[0] and end > begin):  # a single recorded size applies to all times
            raise InputError(
                f"the recorded replicas, from {to_text(int(begin))} to {to_text(int(end))}, do not overlap the load, "
                f"from {to_text(int(at[0]))} to {to_text(int(at[-1]))}"
            )
        for i, hpa in enumerate(hpas):
            opened = replay(hpa, loads, plant, options=options, recorded=recorded, span=span)
            agreement = float((opened.desired[:-1] == sizes[1:])[known].mean())
            summaries[i] = msgspec.structs.replace(summaries[i], agreement=agreement)
    first = runs[0]
    report = ReplayReport(
        begin=to_text(int(first.time[0])),
        end=to_text(int(first.time[-1])),
        syncs=len(first.time),
        period_seconds=first.period,
        plant=PlantText(
            startup=plant.startup,
            metrics_lag=plant.lag,
            window=plant.window,
            requests=_format_requests(plant.request),
            start=plant.start,
        ),
        summaries=summaries,
        replicas={run.name: run.replicas.tolist() for run in runs},
        unmodelled=[
            f"{run.name}: {get_metric_name(spec)} ({spec.type}) has no series and was left out"
            for hpa, run in zip(hpas, runs, strict=True)
            for i, spec in enumerate(hpa.spec.metrics or ())
            if i not in {position for position, _, _ in find_driven_metrics(hpa, loads)}
        ],
    )
    return report, runs


def _check_load_names(hpas: Sequence[HorizontalPodAutoscaler], loads: Mapping[str, Load]) -> None:
    """Raise ``InputError`` if no HPA has a metric for a load."""
    read = {name for hpa in hpas for _, _, name in find_driven_metrics(hpa, loads)}
    unread = ", ".join(repr(name) if name else "the first metric" for name in loads if name not in read)
    if unread:
        known = dict.fromkeys(get_metric_name(spec) for hpa in hpas for spec in hpa.spec.metrics or ())
        raise InputError(f"no HPA reads the series of {unread} (metrics: {', '.join(known)})")


def _format_requests(request: Quantity | Mapping[str, Quantity] | None) -> dict[str, str]:
    """Return the requests as texts by resource; a single request has an empty name, for any resource."""
    if request is None:
        return {}
    if isinstance(request, Quantity):
        return {"": str(request)}
    return {name: str(each) for name, each in request.items()}


def plot_replays(runs: Sequence[Replay], path: Path) -> None:
    """Write a plot of each metric's load and capacity, and of replicas, over hours (PNG or SVG by suffix).

    Raises InputError for another suffix, or if the file cannot be written.
    """
    if path.suffix not in (".png", ".svg"):
        raise InputError(f"{path}: a plot is written as .png or .svg")
    metrics = list(dict.fromkeys(name for run in runs for name in run.metrics))
    figure = library("matplotlib.figure", "plotting").Figure(figsize=(10, 3 * (len(metrics) + 1)), layout="constrained")
    panels = figure.subplots(len(metrics) + 1, 1, sharex=True)
    for run in runs:
        hours = (run.time - runs[0].time[0]) / (3600 * SECOND)
        for name, load, capacity in zip(run.metrics, run.load, run.capacity, strict=True):
            axes = panels[metrics.index(name)]
            if not axes.lines:
                axes.plot(hours, load, color="black", linewidth=0.8, label="load")
                axes.set_ylabel(name)
            axes.plot(hours, capacity, linewidth=0.8, label=f"{run.name}: capacity at target")
        panels[-1].step(hours, run.replicas, where="post", linewidth=0.8, label=run.name)
    panels[-1].set_ylabel("replicas")
    panels[-1].set_xlabel("hours")
    for axes in panels:
        axes.legend(loc="upper left", fontsize="small")
        axes.set_ylim(bottom=0)
    try:
        with replacing(path) as file:
            figure.savefig(file, format=path.suffix[1:])
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
