"""One HPA over recorded load, in virtual time: replicas at every sync period, and what they cost.

The plant is a statement, not a guess (:class:`Plant`): usage = load / ready pods. The loop runs in native code and
decides as :mod:`kscale.hpa.decide` does; a test holds it to the step machine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _replay
from kscale.errors import InputError, Problem
from kscale.hpa.behavior import Rules
from kscale.hpa.metric_sources import resource_target, source_of, tolerances_of, value_target
from kscale.hpa.moments import SECOND, to_text
from kscale.hpa.options import HPAOptions
from kscale.hpa.replica_calculator import MODES
from kscale.objects.autoscaling import (
    ContainerResourceMetricSource,
    HorizontalPodAutoscaler,
    ObjectMetricSource,
    PodsMetricSource,
    ResourceMetricSource,
)
from kscale.objects.quantity import Quantity
from kscale.records import Record

__all__ = ["Plant", "Replay", "ReplayReport", "ReplaySummary", "replay", "replay_report"]

_MAX_TICKS: Final = 10_000_000


class Plant(msgspec.Struct, frozen=True, kw_only=True):
    """How the target answers; durations in seconds.

    ``startup``: from a pod's making to its readiness. ``lag``: age of a metric when it is read. ``window``: over which
    it was taken. ``request``: of each pod, for utilisation targets. ``start``: replicas at the beginning (None: the
    minimum).
    """

    startup: float = 30.0
    lag: float = 30.0
    window: float = 15.0
    request: Quantity | None = None
    start: int | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """One row a sync: ``time`` int64 ns, ``load`` float64 (units, at that time), ``replicas``, ``ready``, ``desired``,
    ``proposal`` int32, ``usage`` int64 milli (what the metric said). ``capacity``: load that the ready pods take at
    their target.
    """

    name: str
    time: NDArray[np.int64]
    load: NDArray[np.float64]
    replicas: NDArray[np.int32]
    ready: NDArray[np.int32]
    desired: NDArray[np.int32]
    proposal: NDArray[np.int32]
    usage: NDArray[np.int64]
    capacity: NDArray[np.float64]
    period: float

    def summary(self) -> ReplaySummary:
        """The numbers to compare by."""
        return ReplaySummary(
            name=self.name,
            pod_hours=float(self.replicas.sum()) * self.period / 3600,
            under_provisioned_seconds=float((self.load > self.capacity).sum()) * self.period,
            rescales=int((self.desired != self.replicas).sum()),
            min_replicas=int(self.replicas.min(initial=2**31 - 1)) if len(self.replicas) else 0,
            max_replicas=int(self.replicas.max(initial=0)),
        )


class ReplaySummary(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One HPA's week: pod-hours, seconds with more load than the ready pods take at their target, rescales.

    ``agreement`` (with recorded replicas): the share of syncs at which the HPA, shown the recorded size, asks for the
    size recorded at the next one.
    """

    name: str
    pod_hours: float
    under_provisioned_seconds: float
    rescales: int
    min_replicas: int
    max_replicas: int
    agreement: float | None = None


class PlantText(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What was taken for the plant; durations in seconds."""

    startup: float
    metrics_lag: float
    request: str | None
    start: int | None
    usage: str = "load / ready pods"


class ReplayReport(Record, frozen=True):
    """HPAs over the same recorded load, side by side. Times are RFC 3339; series are by HPA name."""

    KIND = "ReplayReport"
    begin: str | None
    end: str | None
    syncs: int
    period_seconds: float
    plant: PlantText
    summaries: list[ReplaySummary]
    replicas: dict[str, list[int]]
    unmodelled: list[str]


def replay(
    hpa: HorizontalPodAutoscaler,
    time: NDArray[np.int64],
    load: NDArray[np.float64],
    plant: Plant,
    *,
    options: HPAOptions | None = None,
    recorded: NDArray[np.int32] | None = None,
    end: int | None = None,
) -> Replay:
    """Replay one HPA (v2, defaulted) over a total load (units; ``time`` ns, strictly ascending).

    The HPA's first metric reads the load. ``recorded`` (one number a sync) opens the loop: the plant follows it.
    Raises ``InputError`` for a metric that cannot be read from one series, and a utilisation target without a request.
    """
    options = options or HPAOptions()
    if not len(time):
        raise InputError("the series is empty")
    mode, target, cpu = _reads(hpa)
    if mode == "utilization" and plant.request is None:
        raise InputError("a utilization target needs the request of a pod")
    request = 0 if plant.request is None else plant.request.milli_value()
    period = round(options.horizontal_pod_autoscaler_sync_period * SECOND)
    begin = int(time[0])
    ticks = (int(time[-1] if end is None else end) - begin) // period + 1
    if not 0 < ticks <= _MAX_TICKS:
        raise InputError(f"{ticks:,} syncs: the series must span between one and {_MAX_TICKS:,} sync periods")
    behavior, spec = hpa.spec.behavior, hpa.spec
    minimum = 1 if spec.min_replicas is None else spec.min_replicas
    window = int(options.horizontal_pod_autoscaler_downscale_stabilization)
    tolerances = tolerances_of(hpa, options)
    replicas, ready, desired, proposal, usage, _ = _replay.replay(
        ticks,
        np.ascontiguousarray(time, np.int64),
        np.ascontiguousarray(load, np.float64),
        recorded,
        Rules.of([None if behavior is None else behavior.scale_up], 0),
        Rules.of([None if behavior is None else behavior.scale_down], window),
        mode=MODES.index(mode),
        cpu=cpu,
        target=target,
        tolerance_down=tolerances.scale_down,
        tolerance_up=tolerances.scale_up,
        cpu_initialization=options.cpu_initialization_ns,
        initial_readiness=options.initial_readiness_ns,
        minimum=minimum,
        maximum=spec.max_replicas,
        behavior=behavior is not None,
        scale_to_zero=options.enabled("HPAScaleToZero"),
        legacy_window=options.downscale_stabilization_ns,
        request=request,
        startup=round(plant.startup * SECOND),
        lag=round(plant.lag * SECOND),
        period=period,
        window=round(plant.window * SECOND),
        begin=begin,
        start=minimum if plant.start is None else plant.start,
    )
    ticks_at = begin + np.arange(ticks, dtype=np.int64) * period
    at = np.maximum(np.searchsorted(time, ticks_at, side="right") - 1, 0)
    each = target * request / 100_000 if mode == "utilization" else target / 1000
    capacity = np.full(ticks, each) if mode.endswith("_value") else ready.astype(np.float64) * each
    return Replay(
        f"{hpa.metadata.namespace}/{hpa.metadata.name}",
        ticks_at,
        load[at],
        replicas,
        ready,
        desired,
        proposal,
        usage,
        capacity,
        period / SECOND,
    )


def _reads(hpa: HorizontalPodAutoscaler) -> tuple[str, int, bool]:
    """(mode, target, whether the start-up rules of cpu apply) of the first metric."""
    specs = hpa.spec.metrics or []
    source = source_of(specs[0]) if specs else None
    cpu = False
    if isinstance(source, (ResourceMetricSource, ContainerResourceMetricSource)):
        mode, target = resource_target(source.target)
        cpu = source.name == "cpu"
    elif isinstance(source, PodsMetricSource):
        average = source.target.average_value
        mode, target = "usage", None if average is None else average.milli_value()
    elif source is not None:
        mode, target = value_target(source)
        if isinstance(source, ObjectMetricSource) and target is None:
            raise InputError(Problem("a target whose type and field agree is needed", field="spec.metrics[0].object"))
    else:
        raise InputError(Problem("a metric that can be replayed is needed", field="spec.metrics[0].type"))
    if target is None:
        raise InputError(Problem("a target is needed", field="spec.metrics[0]"))
    return mode, target, cpu


def replay_report(
    hpas: list[HorizontalPodAutoscaler],
    time: NDArray[np.int64],
    load: NDArray[np.float64],
    plant: Plant,
    *,
    options: HPAOptions | None = None,
    recorded: NDArray[np.float64] | None = None,
) -> tuple[ReplayReport, list[Replay]]:
    """Replay HPAs side by side. ``recorded`` (replicas, one a row of ``time``) adds the open-loop check."""
    options = options or HPAOptions()
    runs = [replay(hpa, time, load, plant, options=options) for hpa in hpas]
    seen: Counter[str] = Counter()
    for i, run in enumerate(runs):
        seen[run.name] += 1
        if seen[run.name] > 1:
            runs[i] = replace(run, name=f"{run.name} ({seen[run.name]})")
    summaries = []
    for hpa, run in zip(hpas, runs, strict=True):
        summary = run.summary()
        if recorded is not None:
            at = np.maximum(np.searchsorted(time, run.time, side="right") - 1, 0)
            sizes = recorded[at].astype(np.int32)
            opened = replay(hpa, time, load, plant, options=options, recorded=sizes)
            agreement = float((opened.desired[:-1] == sizes[1:]).mean()) if len(sizes) > 1 else 1.0
            summary = msgspec.structs.replace(summary, agreement=agreement)
        summaries.append(summary)
    first = runs[0]
    report = ReplayReport(
        begin=to_text(int(first.time[0])),
        end=to_text(int(first.time[-1])),
        syncs=len(first.time),
        period_seconds=first.period,
        plant=PlantText(
            startup=plant.startup,
            metrics_lag=plant.lag,
            request=None if plant.request is None else str(plant.request),
            start=plant.start,
        ),
        summaries=summaries,
        replicas={run.name: run.replicas.tolist() for run in runs},
        unmodelled=[
            f"{run.name}: metric {i} of {len(hpa.spec.metrics or ())} ({spec.type})"
            for hpa, run in zip(hpas, runs, strict=True)
            for i, spec in enumerate(hpa.spec.metrics or ())
            if i
        ],
    )
    return report, runs
