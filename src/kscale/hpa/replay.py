"""One HPA over recorded load, in virtual time: replicas at every sync period.

The plant is a statement, not a guess (:class:`Plant`): usage = load / ready pods. It is kscale's own; the loop runs in
native code and decides as :mod:`kscale.hpa.decide` does; a test holds it to the step machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _replay
from kscale.effects import SECOND, to_text
from kscale.errors import InputError, Problem
from kscale.hpa.behavior import Rules
from kscale.hpa.calculation import MODES
from kscale.hpa.metric_sources import resource_target, source_of, tolerances_of, value_target
from kscale.hpa.options import HPAOptions
from kscale.hpa.replay_input import Load, Loads, metric_name
from kscale.objects.argument_types import typed
from kscale.objects.autoscaling import (
    ContainerResourceMetricSource,
    HorizontalPodAutoscaler,
    MetricSpec,
    ObjectMetricSource,
    PodsMetricSource,
    ResourceMetricSource,
)
from kscale.objects.quantity import Quantity

__all__ = ["Plant", "Replay", "common_span", "driven", "named", "replay"]

_MAX_TICKS: Final = 10_000_000


class Plant(msgspec.Struct, frozen=True, kw_only=True):
    """How the target answers; durations in seconds.

    ``startup``: from a pod's making to its readiness. ``lag``: age of a metric when it is read. ``window``: over which
    it was taken. ``request``: of each pod, for utilisation targets; by resource where there are several. ``start``:
    replicas at the beginning (None: the minimum, but at least 1: at 0 an HPA that did not scale to zero itself is
    paused). The controller is taken to have just started: its first pass remembers the size it finds.
    """

    startup: float = 30.0
    lag: float = 30.0
    window: float = 15.0
    request: Quantity | Mapping[str, Quantity] | None = None
    start: int | None = None

    def request_of(self, resource: str) -> Quantity | None:
        """What each pod requests of a resource; None: it was not said."""
        if self.request is None or isinstance(self.request, Quantity):
            return self.request
        return self.request.get(resource, self.request.get(""))


@dataclass(frozen=True, slots=True)
class Replay:
    """One row a sync: ``time`` int64 ns; ``replicas``, ``ready``, ``desired``, ``proposal`` int32; ``decided_by`` int32
    into ``metrics``, -1 where none did. One row a metric and one column a sync: ``load`` float64 (units, at that time),
    ``usage`` int64 milli (what the metric said), ``capacity`` float64: load that the ready pods take at their target.
    ``period``: seconds between syncs.
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
    """Replay one HPA (v2, defaulted) over the total load of its metrics, while all of them are known.

    ``loads``: series by metric; a single one is read by the HPA's first metric. Metrics without a load are left out, as
    if the HPA did not have them. ``recorded`` replicas open the loop: the plant follows them. ``span`` (ns): when to
    begin and to end. Raises ``InputError`` for a metric that cannot be replayed, and a utilisation target without a
    request.
    """
    options = options or HPAOptions()
    name = f"{hpa.metadata.namespace}/{hpa.metadata.name}"
    known = named(loads)
    metrics = _unambiguous([_metric(i, spec, known[load], plant, options) for i, spec, load in driven(hpa, known)])
    if not metrics:
        names = ", ".join(metric_name(spec) for spec in hpa.spec.metrics or ())
        raise InputError(Problem(f"none of its metrics has a series (metrics: {names})", object=name))
    period = options.sync_period_ns
    if period <= 0:
        raise InputError("the sync period must be greater than zero")
    begin, end = span or common_span([each.recorded for each in metrics])
    ticks = (end - begin) // period + 1
    if not 0 < ticks <= _MAX_TICKS:
        raise InputError(f"{ticks:,} syncs: the series must span between one and {_MAX_TICKS:,} sync periods")
    at = begin + np.arange(ticks, dtype=np.int64) * period
    behavior, spec = hpa.spec.behavior, hpa.spec
    minimum = 1 if spec.min_replicas is None else spec.min_replicas
    window = options.downscale_stabilization_seconds
    tolerances = tolerances_of(hpa, options)
    replicas, ready, desired, proposal, best, usage = _replay.replay(
        ticks,
        metrics,
        None if recorded is None else recorded.at(at).astype(np.int32),
        Rules.of([None if behavior is None else behavior.scale_up], 0),
        Rules.of([None if behavior is None else behavior.scale_down], window),
        tolerance_down=tolerances.scale_down,
        tolerance_up=tolerances.scale_up,
        cpu_initialization=options.cpu_initialization_ns,
        initial_readiness=options.initial_readiness_ns,
        minimum=minimum,
        maximum=spec.max_replicas,
        behavior=behavior is not None,
        scale_to_zero=options.enabled("HPAScaleToZero"),
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
        load=np.stack([each.recorded.at(at) for each in metrics]),
        replicas=replicas,
        ready=ready,
        desired=desired,
        proposal=proposal,
        decided_by=best,
        usage=np.ascontiguousarray(usage.T),
        capacity=np.stack([each.capacity(ready) for each in metrics]),
        period=period / SECOND,
    )


def common_span(loads: Collection[Load]) -> tuple[int, int]:
    """From when and until when all loads are known."""
    begin, end = max(int(each.time[0]) for each in loads), min(int(each.time[-1]) for each in loads)
    if begin > end:
        raise InputError(f"the series do not overlap: one begins at {to_text(begin)}, another ends at {to_text(end)}")
    return begin, end


def named(loads: Loads) -> Mapping[str, Load]:
    """Loads by name; a single one is that of the first metric."""
    return {"": loads} if isinstance(loads, Load) else loads


def driven(hpa: HorizontalPodAutoscaler, loads: Mapping[str, Load]) -> list[tuple[int, MetricSpec, str]]:
    """(position, metric, name of what it reads) of the metrics that have a load."""
    found = []
    for i, spec in enumerate(hpa.spec.metrics or ()):
        name = metric_name(spec)
        if name not in loads and i == 0:
            name = ""
        if name in loads:
            found.append((i, spec, name))
    return found


@dataclass(frozen=True, slots=True)
class _Metric:
    """What the kernel takes of a metric."""

    position: int
    name: str
    mode: int
    cpu: bool
    target: int
    request: int
    recorded: Load

    @property
    def time(self) -> NDArray[np.int64]:
        return np.ascontiguousarray(self.recorded.time, np.int64)

    @property
    def load(self) -> NDArray[np.float64]:
        return np.ascontiguousarray(self.recorded.value, np.float64)

    def capacity(self, ready: NDArray[np.int32]) -> NDArray[np.float64]:
        """The load that ready pods take at the target; a value's target does not depend on them."""
        mode = MODES[self.mode]
        each = self.target * self.request / 100_000 if mode == "utilization" else self.target / 1000
        return np.full(len(ready), each) if mode.endswith("_value") else ready.astype(np.float64) * each


def _unambiguous(metrics: list[_Metric]) -> list[_Metric]:
    """Metrics of one name are told apart by their positions."""
    names = Counter(each.name for each in metrics)
    return [
        replace(each, name=f"{each.name} (metrics[{each.position}])") if names[each.name] > 1 else each
        for each in metrics
    ]


def _metric(position: int, spec: MetricSpec, load: Load, plant: Plant, options: HPAOptions) -> _Metric:
    field, source = f"spec.metrics[{position}]", source_of(spec, options)
    resource = ""
    if isinstance(source, (ResourceMetricSource, ContainerResourceMetricSource)):
        mode, target = resource_target(source.target)
        resource = source.name
    elif isinstance(source, PodsMetricSource):
        average = source.target.average_value
        mode, target = "usage", None if average is None else average.milli_value()
    elif source is not None:
        mode, target = value_target(source)
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
    return _Metric(position, metric_name(spec), MODES.index(mode), resource == "cpu", target, milli, load)
