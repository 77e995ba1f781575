"""HPAs over the same recorded load, side by side: what each would have cost. kscale's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace as replace_fields

import msgspec
import numpy as np

from kscale.effects import to_text
from kscale.errors import InputError
from kscale.hpa.options import HPAOptions
from kscale.hpa.replay import Plant, Replay, common_span, driven, named, replay
from kscale.hpa.replay_input import Load, Loads, metric_name
from kscale.objects.argument_types import typed
from kscale.objects.autoscaling import HorizontalPodAutoscaler
from kscale.objects.quantity import Quantity
from kscale.records import Record

__all__ = ["ReplayReport", "ReplaySummary", "replay_report", "summary_of"]


class ReplaySummary(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One HPA's week: pod-hours, seconds with more load of any metric than the ready pods take at their target,
    rescales, and at how many syncs each metric decided.

    ``agreement`` (with recorded replicas): the share of syncs at which the HPA, shown the recorded size, asks for the
    size recorded at the next one, from when it is recorded on. ``start``: replicas at the first sync.
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
    """What was taken for the plant; durations in seconds, requests by resource (empty: of any)."""

    startup: float
    metrics_lag: float
    window: float
    requests: dict[str, str]
    start: int | None
    usage: str = "load / ready pods"
    controller: str = "has just started at the first sync"


class ReplayReport(Record, frozen=True):
    """HPAs over the same recorded load, side by side. Times are RFC 3339; series are by HPA name.

    - ``begin``, ``end``: when the first and the last sync are (absent: at the API's zero time); ``syncs``: how many
      there are, ``period_seconds`` apart.
    - ``plant``: what was taken for the way in which the target answers.
    - ``summaries``: the numbers to compare by, an HPA each, in the order given.
    - ``replicas``: the size that each HPA finds at each sync, before it changes it. HPAs of one name are told apart by
      a number behind it.
    - ``unmodelled``: metrics without a series, which were left out.
    """

    KIND = "ReplayReport"
    begin: str | None
    end: str | None
    syncs: int
    period_seconds: float
    plant: PlantText
    summaries: list[ReplaySummary]
    replicas: dict[str, list[int]]
    unmodelled: list[str]


def summary_of(run: Replay) -> ReplaySummary:
    """The numbers to compare by."""
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
    """Replay HPAs side by side, each on its own ``plant``, while all loads are known. ``recorded`` replicas add the
    open-loop check.

    Raises ``InputError`` for a load that no HPA has a metric for, and whatever :func:`~kscale.hpa.replay.replay` does.
    """
    if not hpas:
        raise InputError("no HorizontalPodAutoscaler to replay")
    options, loads = options or HPAOptions(), named(loads)
    _check_names(hpas, loads)
    span = common_span(loads.values())
    runs = [replay(hpa, loads, plant, options=options, span=span) for hpa in hpas]
    seen: Counter[str] = Counter()
    for i, run in enumerate(runs):
        seen[run.name] += 1
        if seen[run.name] > 1:
            runs[i] = replace_fields(run, name=f"{run.name} ({seen[run.name]})")
    summaries = [summary_of(run) for run in runs]
    if recorded is not None:
        at = runs[0].time
        sizes, begin, end = recorded.at(at).astype(np.int32), recorded.time[0], recorded.time[-1]
        known = at[:-1] >= begin
        if not known.any() or (end < at[0] and end > begin):  # a single size holds for good
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
            requests=_requests(plant.request),
            start=plant.start,
        ),
        summaries=summaries,
        replicas={run.name: run.replicas.tolist() for run in runs},
        unmodelled=[
            f"{run.name}: {metric_name(spec)} ({spec.type}) has no series and was left out"
            for hpa, run in zip(hpas, runs, strict=True)
            for i, spec in enumerate(hpa.spec.metrics or ())
            if i not in {position for position, _, _ in driven(hpa, loads)}
        ],
    )
    return report, runs


def _check_names(hpas: Sequence[HorizontalPodAutoscaler], loads: Mapping[str, Load]) -> None:
    """Every load must be read by someone."""
    read = {name for hpa in hpas for _, _, name in driven(hpa, loads)}
    unread = ", ".join(repr(name) if name else "the first metric" for name in loads if name not in read)
    if unread:
        known = dict.fromkeys(metric_name(spec) for hpa in hpas for spec in hpa.spec.metrics or ())
        raise InputError(f"no HPA reads the series of {unread} (metrics: {', '.join(known)})")


def _requests(request: Quantity | Mapping[str, Quantity] | None) -> dict[str, str]:
    if request is None:
        return {}
    if isinstance(request, Quantity):
        return {"": str(request)}
    return {name: str(each) for name, each in request.items()}
