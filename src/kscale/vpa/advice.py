"""Requests for every workload of a dump from recorded usage: what ``kscale recommend`` answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from kscale._native import _histogram
from kscale.objects.autoscaling import HorizontalPodAutoscaler
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import Selector
from kscale.objects.vpa import (
    RecommendedContainerResources,
    VerticalPodAutoscaler,
    VerticalPodAutoscalerCheckpoint,
    VerticalPodAutoscalerStatus,
)
from kscale.series.columns import SeriesKey
from kscale.series.usage_reader import UsageBatch
from kscale.vpa.clock import UNSET, to_text
from kscale.vpa.model import CPU_SAMPLE, MEMORY_SAMPLE, ClusterState, Usage
from kscale.vpa.oom import last_out_of_memory, usage_of
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.recommender import RecommenderResult, Round, load_pods, load_vpas, run_once
from kscale.vpa.report import (
    CPU_STEPS,
    MEMORY_STEPS,
    SEVERITIES,
    ContainerAdvice,
    RecommendationReport,
    ResourceAdvice,
    severity_of,
)
from kscale.vpa.resources import CPU, MEMORY
from kscale.vpa.strategies import Advised, ContainerUsage, Recommender, Strategy
from kscale.vpa.target import WELL_KNOWN, Controllers
from kscale.vpa.workloads import Workload, Workloads

__all__ = ["advise"]


@dataclass(slots=True)
class _Feed:
    """Usage on its way into the model."""

    state: ClusterState
    workloads: Workloads
    strategy: Strategy
    counts: Counter[str] = field(default_factory=Counter)
    newest: int = UNSET
    usage: dict[tuple[str, str, str, str], ContainerUsage] = field(default_factory=dict)
    memory_points: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    """Memory samples taken in; those of CPU the model counts itself."""
    first_seen: dict[tuple[str, str], Workload | None] = field(default_factory=dict)

    def resolve(self, key: SeriesKey, named: str) -> Workload | None:
        """The workload of a pod; pods that are gone are added to the model."""
        pod = (key.namespace, key.pod)
        if pod in self.workloads.pod_owner:
            return self.workloads.pod_owner[pod]
        if pod not in self.first_seen:
            found = self.workloads.owner_of_gone(key.namespace, key.pod, named)
            self.first_seen[pod] = found
            self.counts["pods gone, mapped to their workload" if found else "pods of no known workload"] += 1
        return self.first_seen[pod]

    def add(self, batch: UsageBatch) -> None:
        """One batch."""
        state = self.state
        known = np.zeros(len(batch.keys), bool)
        owners: list[Workload | None] = []
        for i, (key, named) in enumerate(zip(batch.keys, batch.workloads, strict=True)):
            owner = self.resolve(key, named)
            owners.append(owner)
            if owner is None or not key.container or key.container == "POD":
                continue
            pod = state.pods.get((key.namespace, key.pod))
            if pod is None:
                pod = state.add_pod(key.namespace, key.pod, owner.labels, "Unknown", 0)
            if key.container not in pod.containers and key.container not in pod.init_containers:
                if key.container not in owner.containers:
                    self.counts["containers that their workload does not have"] += 1
                    continue
                state.add_container(pod, key.container, (0, 0), 0)
            known[i] = True
        if len(batch):
            self.newest = max(self.newest, int(batch.time.max()))
        order = None
        if not _histogram.in_order(batch.series, batch.time, len(batch.keys)):
            order = np.argsort(batch.time, kind="stable")
        for values, kind, unit in ((batch.cpu, CPU_SAMPLE, 1000.0), (batch.memory, MEMORY_SAMPLE, 1.0)):
            if values is not None:
                self._add_kind(batch, values, kind, unit, known, order)
                if kind == MEMORY_SAMPLE:
                    self._count_memory(batch, values, owners, known)
                if self.strategy.needs_samples:
                    self._keep(batch, values, kind, owners, known, order)

    def _add_kind(
        self,
        batch: UsageBatch,
        values: npt.NDArray[np.float64],
        kind: int,
        unit: float,
        known: npt.NDArray[np.bool_],
        order: npt.NDArray[np.int64] | None,
    ) -> None:
        series, time = batch.series, batch.time
        if order is not None:
            series, time, values = series[order], time[order], values[order]
        amounts = np.empty(len(values), np.int64)
        missing, infinite, negative = _histogram.amounts(np.ascontiguousarray(values), unit, amounts)
        if missing or infinite:
            self.counts["infinite values, left out"] += infinite
            self.counts["missing values"] += missing
            finite = np.isfinite(values)
            series, time, values, amounts = series[finite], time[finite], values[finite], amounts[finite]
        if not known.all():
            keep = known[series]
            self.counts["samples of no known workload"] += int(len(keep) - np.count_nonzero(keep))
            series, time, values, amounts = series[keep], time[keep], values[keep], amounts[keep]
            negative = int(np.count_nonzero(values < 0)) if negative else 0
        if len(amounts) == 0:
            return
        if negative:
            self.counts["negative samples, taken as 0"] += negative
        names = [(key.namespace, key.pod, key.container) for key in batch.keys]
        refused = self.state.add_usage(Usage(names, series, time, amounts, kind), 0)
        self.counts["samples"] += len(amounts) - len(refused)
        if refused:
            self.counts["samples that are doubled or out of order, discarded"] += len(refused)

    def _count_memory(
        self,
        batch: UsageBatch,
        values: npt.NDArray[np.float64],
        owners: Sequence[Workload | None],
        known: npt.NDArray[np.bool_],
    ) -> None:
        points = np.bincount(batch.series, weights=np.isfinite(values), minlength=len(batch.keys))
        for i, (key, owner) in enumerate(zip(batch.keys, owners, strict=True)):
            if owner is not None and known[i]:
                identity = (owner.key.namespace, owner.key.kind, owner.key.name, key.container)
                self.memory_points[identity] += int(points[i])

    def _keep(
        self,
        batch: UsageBatch,
        values: npt.NDArray[np.float64],
        kind: int,
        owners: Sequence[Workload | None],
        known: npt.NDArray[np.bool_],
        order: npt.NDArray[np.int64] | None,
    ) -> None:
        """For strategies that look at the samples themselves."""
        series = batch.series if order is None else batch.series[order]
        values = values if order is None else values[order]
        by_series = np.argsort(series, kind="stable")
        bounds = np.searchsorted(series[by_series], np.arange(len(batch.keys) + 1))
        for i, (key, owner) in enumerate(zip(batch.keys, owners, strict=True)):
            if owner is None or not known[i]:
                continue
            own = values[by_series[bounds[i] : bounds[i + 1]]]
            own = np.maximum(own[np.isfinite(own)], 0.0)
            kept = self.usage.setdefault(
                (owner.key.namespace, owner.key.kind, owner.key.name, key.container), ContainerUsage()
            )
            pods = kept.cpu if kind == CPU_SAMPLE else kept.memory
            pods[key.pod] = np.concatenate([pods[key.pod], own]) if key.pod in pods else own


# -- the dump --------------------------------------------------------------------------------------------------


def _scaled_horizontally(hpas: Iterable[Any]) -> dict[tuple[str, str, str], set[str]]:
    """Workload -> the resources whose utilisation an HPA looks at."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for hpa in hpas:
        if not isinstance(hpa, HorizontalPodAutoscaler):
            continue
        target = hpa.spec.scale_target_ref
        names = set()
        for metric in hpa.spec.metrics or ():
            for source in (metric.resource, metric.container_resource):
                if source is not None and source.target.average_utilization is not None:
                    names.add(source.name)
        found.setdefault((hpa.namespace, target.kind, target.name), set()).update(names)
    return found


def advise(
    cluster: Any,
    history: Iterable[UsageBatch],
    *,
    options: RecommenderOptions | None = None,
    strategy: Strategy | None = None,
    now: int | None = None,
    checkpoints: Sequence[VerticalPodAutoscalerCheckpoint] = (),
    namespaces: Collection[str] = (),
    kinds: Collection[str] = (),
    selector: str = "",
    points_required: int = 1,
    threads: int = 1,
    progress: Callable[[int], None] | None = None,
) -> RecommendationReport:
    """Recommend requests for the workloads of a cluster (what :func:`kscale.load` returns).

    ``namespaces``, ``kinds`` (``Deployment``, ...) and ``selector`` (labels of pod templates) choose workloads.
    A container with fewer CPU samples than ``points_required`` gets no advice. ``progress`` is told the number of rows
    read so far.
    """
    strategy = strategy or Recommender()
    wanted = parse_selector(selector) if selector else Selector()
    objects = [item for kind in sorted(WELL_KNOWN) for item in cluster.all(kind)]
    pods = [pod for pod in cluster.pods() if pod.status.phase not in ("Pending", "Succeeded", "Failed")]
    controllers = Controllers(objects)
    own_vpas: list[VerticalPodAutoscaler] = list(cluster.all("VerticalPodAutoscaler"))
    workloads = Workloads(controllers, pods, own_vpas)
    chosen = [
        item
        for item in workloads.items.values()
        if (not namespaces or item.key.namespace in namespaces)
        and (not kinds or item.key.kind.lower() in {kind.lower() for kind in kinds})
        and wanted.matches(item.labels)
    ]
    workloads.items = {(w.key.namespace, w.key.kind, w.key.name): w for w in chosen}
    state = ClusterState(options, threads=threads)
    live = [pod for item in chosen for pod in item.pods]
    vpas = [msgspec.structs.replace(item.vpa, status=VerticalPodAutoscalerStatus()) for item in chosen]
    state.store.reserve(sum(len(item.containers) for item in chosen), sum(len(p.spec.containers) for p in live))
    load_vpas(state, vpas, controllers, now or 0)
    load_pods(state, live, now or 0)
    feed = _Feed(state, workloads, strategy)
    rows = 0
    for batch in history:
        feed.add(batch)
        rows += len(batch)
        if progress is not None:
            progress(rows)
    ooms = last_out_of_memory(live)
    moment = now if now is not None else feed.newest
    if moment == UNSET:
        moment = max((event.time for event in ooms), default=0)
    if now is not None and feed.newest > now:
        feed.counts["samples later than the moment asked about: the newest is taken in as it is"] += 1
    result = run_once(
        state,
        Round(
            vpas=vpas,
            pods=live,
            controllers=controllers,
            usage=[usage_of(ooms)] if ooms else [],
            checkpoints=checkpoints,
            write_checkpoints=False,
        ),
        now=moment,
    )
    killed = {(workloads.pod_owner[name[:2]].name, name[0], name[2]): amount for name, _, amount in ooms}
    return _report(chosen, state, result, feed, strategy, moment, killed, cluster, points_required, workloads)


# -- the report ------------------------------------------------------------------------------------------------


def _samples(state: ClusterState, item: Workload) -> Counter[str]:
    vpa = state.vpas[item.vpa.namespace, item.vpa.name]
    counts: Counter[str] = Counter()
    for key, aggregate in vpa.aggregates.items():
        counts[key.container] += int(state.store.samples[aggregate.row])
    for name, aggregate in vpa.initial_states.items():
        counts[name] += int(state.store.samples[aggregate.row])
    return counts


def _report(
    chosen: Sequence[Workload],
    state: ClusterState,
    result: RecommenderResult,
    feed: _Feed,
    strategy: Strategy,
    moment: int,
    killed: Mapping[tuple[str, str, str], int],
    cluster: Any,
    points_required: int,
    workloads: Workloads,
) -> RecommendationReport:
    horizontal = _scaled_horizontally(cluster.all("HorizontalPodAutoscaler"))
    by_vpa = {(v.namespace, v.name): v.recommendation for v in result.vpas}
    containers: list[ContainerAdvice] = []
    totals = [0, 0, 0, 0]
    for item in sorted(chosen, key=lambda w: (w.key.namespace, w.key.kind, w.key.name)):
        recommendation = by_vpa.get((item.vpa.namespace, item.vpa.name))
        recommended = {
            r.container_name: r
            for r in (recommendation.container_recommendations if recommendation is not None else ())
        }
        samples = _samples(state, item)
        for name in item.containers:
            identity = (item.key.namespace, item.key.kind, item.key.name)
            usage = feed.usage.get((*identity, name)) or ContainerUsage()
            usage.recommendation = recommended.get(name)
            oom = killed.get((item.name, item.key.namespace, name))
            usage.oom_memory = oom or 0
            memory = feed.memory_points[*identity, name]
            # The recommender's confidence comes from CPU samples alone; other strategies look at each resource itself.
            points = max(samples[name], memory) if strategy.needs_samples else samples[name]
            enough = points >= points_required
            advised = strategy.advise(usage) if enough else Advised()
            info = [] if enough else [_too_little(samples[name], memory)]
            if horizontal.get(identity, set()) & {CPU, MEMORY}:
                info.append("HPA detected")
            if oom is not None:
                info.append("OOM")
            advice = _container_advice(item, name, advised, samples[name], info)
            containers.append(advice)
            for i, one in enumerate((advice.cpu, advice.memory)):
                totals[i] += (one.request or 0) * advice.pods
                if one.target is not None:
                    totals[i + 2] += (one.target - (one.request or 0)) * advice.pods
    notes = [*workloads.unresolved, *result.diagnostics]
    if workloads.bare_pods:
        feed.counts["pods without a workload that is asked about"] += workloads.bare_pods
    return RecommendationReport(
        strategy=strategy.name,
        now=to_text(moment),
        containers=containers,
        requested_millicores=totals[0],
        requested_bytes=totals[1],
        change_millicores=totals[2],
        change_bytes=totals[3],
        counts={name: count for name, count in sorted(feed.counts.items()) if count},
        notes=notes,
    )


def _too_little(cpu: int, memory: int) -> str:
    if cpu:
        return "not enough data"
    return "no CPU data" if memory else "no data"


def _container_advice(item: Workload, name: str, advised: Advised, samples: int, info: list[str]) -> ContainerAdvice:
    resources = item.containers[name].resources
    live = next((c.resources for pod in item.pods for c in pod.spec.containers if c.name == name), resources)
    own = {r.container_name: r for r in _status_recommendations(item)} if not item.implied else {}
    compared = (own[name].target or {}) if name in own else {}
    requests, limits = live.requests or {}, live.limits or {}
    cpu = ResourceAdvice(
        request=requests[CPU].milli_value() if CPU in requests else None,
        limit=limits[CPU].milli_value() if CPU in limits else None,
        target=advised.cpu_request,
        target_limit=advised.cpu_limit,
        lower_bound=advised.cpu_lower,
        upper_bound=advised.cpu_upper,
        compare=compared[CPU].milli_value() if CPU in compared else None,
    )
    memory = ResourceAdvice(
        request=requests[MEMORY].value() if MEMORY in requests else None,
        limit=limits[MEMORY].value() if MEMORY in limits else None,
        target=advised.memory_request,
        target_limit=advised.memory_limit,
        lower_bound=advised.memory_lower,
        upper_bound=advised.memory_upper,
        compare=compared[MEMORY].value() if MEMORY in compared else None,
    )
    cpu.severity = severity_of(cpu.request, cpu.target, CPU_STEPS)
    memory.severity = severity_of(memory.request, memory.target, MEMORY_STEPS)
    return ContainerAdvice(
        namespace=item.key.namespace,
        workload=item.name,
        api_version=item.key.api_version,
        container=name,
        vpa=item.vpa.name,
        implied=item.implied,
        pods=sum(1 for pod in item.pods if any(c.name == name for c in pod.spec.containers)),
        samples=samples,
        cpu=cpu,
        memory=memory,
        severity=max((cpu.severity, memory.severity), key=SEVERITIES.index),
        info=info,
    )


def _status_recommendations(item: Workload) -> list[RecommendedContainerResources]:
    recommendation = item.vpa.status.recommendation
    return recommendation.container_recommendations if recommendation is not None else []
