"""Requests for every workload of a dump from recorded usage: what ``kscale recommend`` answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kscale.effects import ZERO_TIME, to_text
from kscale.errors import InputError
from kscale.objects.autoscaling import HorizontalPodAutoscalerV1
from kscale.objects.base import ResourceList
from kscale.objects.core import Pod
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import Selector, SelectorError
from kscale.objects.vpa import (
    RecommendedContainerResources,
    VerticalPodAutoscalerCheckpoint,
    VerticalPodAutoscalerStatus,
)
from kscale.series.columns import SeriesKey
from kscale.series.usage_reader import UsageBatch
from kscale.snapshot.collector import collector_paused
from kscale.vpa.controllers import WELL_KNOWN, Controllers
from kscale.vpa.feed import Feed
from kscale.vpa.history import take_in
from kscale.vpa.model import ClusterState
from kscale.vpa.oom import OutOfMemory, evicted_for_memory, last_out_of_memory, usage_of
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.recommender import RecommenderResult, Round, in_charge, load_pods, load_vpas, run_once
from kscale.vpa.report import (
    CPU_STEPS,
    MEMORY_STEPS,
    SEVERITIES,
    ContainerAdvice,
    RecommendationReport,
    ResourceAdvice,
    severity_of,
    totals,
)
from kscale.vpa.resources import CPU, MEMORY, current_resources
from kscale.vpa.strategies import Advised, ContainerUsage, Recommender, Strategy, checked_advice
from kscale.vpa.workloads import Identity, Workload, Workloads

__all__ = ["advise"]

_LONG_AGO: Final = 946684800 * 10**9
"""2000-01-01: no container is older."""
_FAR: Final = 8 * 86400 * 10**9
"""What upstream keeps of the past."""
_DISCARDED: Final = "containers killed for memory too long ago, or unknown, discarded"


# -- the dump --------------------------------------------------------------------------------------------------


def _scaled_horizontally(hpas: Iterable[Any]) -> dict[Identity, set[tuple[str, str]]]:
    """Workload -> the resources that an HPA scales it by: (resource, container or empty for all of them).

    Without metrics an HPA scales by CPU at 80 %, which the API server fills in.
    """
    found: dict[Identity, set[tuple[str, str]]] = {}
    for hpa in hpas:
        if isinstance(hpa, HorizontalPodAutoscalerV1) or not hpa.spec.metrics:
            names = {(CPU, "")}
        else:
            names = {(one.resource.name, "") for one in hpa.spec.metrics if one.resource is not None}
            names |= {
                (one.container_resource.name, one.container_resource.container)
                for one in hpa.spec.metrics
                if one.container_resource is not None
            }
        target = hpa.spec.scale_target_ref
        found.setdefault((hpa.namespace, target.kind, target.name), set()).update(names)
    return found


def _out_of_memory(cluster: Any, pods: Iterable[Pod], feed: Feed) -> list[OutOfMemory]:
    """The kills that pods and eviction events of the dump tell of, in order of time, for the workloads asked about."""
    found = last_out_of_memory(pods)
    for event in cluster.all("Event"):
        if event.reason == "Evicted" and event.involved_object.kind == "Pod":
            for one in evicted_for_memory(event):
                if feed.place(SeriesKey(*one.container)).owner is not None:
                    found.append(one)
    return sorted(found, key=lambda one: one.time)


@collector_paused()
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
    read so far. A ``history`` that can be read twice may come in any order (see :func:`~kscale.vpa.history.take_in`).
    """
    strategy = strategy or Recommender()
    options = options or RecommenderOptions()
    try:
        wanted = parse_selector(selector) if selector else Selector()
    except SelectorError as error:
        raise InputError(f"selector {selector!r}: {error}") from None
    controllers = Controllers(item for kind in sorted(WELL_KNOWN) for item in cluster.all(kind))
    workloads = Workloads(controllers, cluster.pods(), cluster.all("VerticalPodAutoscaler"), options)
    folded = {kind.lower() for kind in kinds}
    asked = [
        item
        for item in workloads.items.values()
        if (not namespaces or item.key.namespace in namespaces)
        and (not folded or item.key.kind.lower() in folded)
        and wanted.matches(item.labels)
    ]
    notes = _asked_in_vain(workloads.items.values(), namespaces, kinds, selector, wanted)
    if workloads.items and not asked and not notes:
        notes = ["no workload is all of what was asked for"]
    chosen = [item for item in asked if in_charge(item.vpa, options)]
    pods = [pod for item in chosen for pod in (*item.pods, *item.finished)]
    vpas = [msgspec.structs.replace(item.vpa, status=VerticalPodAutoscalerStatus()) for item in chosen]

    def prepare() -> Feed:
        state = ClusterState(options, threads=threads)
        state.store.reserve(sum(len(item.containers) for item in chosen), sum(len(p.spec.containers) for p in pods))
        load_vpas(state, vpas, controllers, now or 0)
        load_pods(state, pods, now or 0)
        return Feed(state, workloads, strategy, {item.identity for item in chosen}, namespaces, now)

    feed = take_in(history, prepare, progress)
    state = feed.state
    feed.counts["workloads in namespaces that the recommender leaves alone"] += len(asked) - len(chosen)
    for (namespace, text), count in workloads.aside.items():
        if not namespaces or namespace in namespaces:
            feed.counts[text] += count
    ooms = _out_of_memory(cluster, pods, feed)
    moment = now if now is not None else feed.newest
    if moment == ZERO_TIME:
        moment = max((event.time for event in ooms), default=ZERO_TIME)
    if now is None:
        _warn_of_the_future(feed)
    if ZERO_TIME < feed.newest < _LONG_AGO:
        notes.append(f"the newest sample is of {to_text(feed.newest)}: is the unit of time right?")
    shown = to_text(moment)
    moment = max(moment, 0)
    # Upstream collects garbage after it has recommended; nothing looks at the state after this one round.
    state.last_gc = moment
    result = run_once(
        state,
        Round(
            vpas=vpas,
            pods=None,  # loaded above, those that are gone as well
            controllers=controllers,
            usage=[usage_of(ooms)] if ooms else [],
            checkpoints=checkpoints,
            write_checkpoints=False,
        ),
        now=moment,
    )
    for refused in result.errors:
        feed.counts[_DISCARDED if refused.what == "oom" else "samples discarded"] += 1
    killed: dict[tuple[str, str, str, str], int] = {}
    for (namespace, pod, container), _, amount in ooms:
        owner = feed.resolve(namespace, pod)
        if owner is not None:
            key = (*owner.identity, container)
            killed[key] = max(killed.get(key, 0), amount)
    seen = [text for place, text in workloads.unresolved if not namespaces or place in namespaces]
    notes += [*seen, *result.diagnostics]
    return _report(chosen, result, feed, moment, shown, killed, cluster, points_required, notes)


def _warn_of_the_future(feed: Feed) -> None:
    """Of samples long after most: the newest is taken for the moment asked about, which makes all others old."""
    found = feed.from_the_future(_FAR)
    if found is None:
        return
    usual, containers = found
    shown = f" ({', '.join(containers[:3])}{', ...' if len(containers) > 3 else ''})" if containers else ""
    text = f"containers{shown or ' that are not known'} with samples of up to {to_text(feed.newest)}, more than eight "
    text += f"days after most ({to_text(usual)}): that is taken for the moment asked about (--now says another)"
    feed.counts[text] += max(len(containers), 1)


def _asked_in_vain(
    workloads: Collection[Workload], namespaces: Iterable[str], kinds: Iterable[str], selector: str, wanted: Selector
) -> list[str]:
    """What was asked for and no workload has, as texts."""
    there = {item.key.namespace for item in workloads}
    folded = {item.key.kind.lower() for item in workloads}
    found = [f"no workload in the namespace {name}" for name in namespaces if name not in there]
    found += [f"no workload of the kind {kind}" for kind in kinds if kind.lower() not in folded]
    if selector and not any(wanted.matches(item.labels) for item in workloads):
        found.append(f"no workload with the pod labels {selector}")
    return found


# -- the report ------------------------------------------------------------------------------------------------


def _samples(state: ClusterState, item: Workload, moment: int) -> tuple[Counter[str], set[str]]:
    """CPU samples per container, and the containers whose samples are all older than what upstream keeps."""
    vpa = state.vpas[item.vpa.namespace, item.vpa.name]
    counts: Counter[str] = Counter()
    fresh = set()
    parts = [(key.container, aggregate) for key, aggregate in vpa.aggregates.items()]
    for name, aggregate in [*parts, *vpa.initial_states.items()]:
        counts[name] += int(state.store.samples[aggregate.row])
        if state.store.samples[aggregate.row] and not state.store.is_expired(aggregate, moment):
            fresh.add(name)
    return counts, {name for name, count in counts.items() if count} - fresh


def _report(
    chosen: Sequence[Workload],
    result: RecommenderResult,
    feed: Feed,
    moment: int,
    shown: str | None,
    killed: Mapping[tuple[str, str, str, str], int],
    cluster: Any,
    points_required: int,
    notes: list[str],
) -> RecommendationReport:
    horizontal = _scaled_horizontally(cluster.all("HorizontalPodAutoscaler"))
    by_vpa = {(v.namespace, v.name): v.recommendation for v in result.vpas}
    strategy = feed.strategy
    containers: list[ContainerAdvice] = []
    for item in sorted(chosen, key=lambda w: (w.key.namespace, w.key.kind, w.key.name)):
        recommendation = by_vpa.get((item.vpa.namespace, item.vpa.name))
        recommended = {
            r.container_name: r
            for r in (recommendation.container_recommendations if recommendation is not None else ())
        }
        samples, expired = _samples(feed.state, item, moment)
        scaled = horizontal.get(item.identity, set())
        for name in item.containers:
            usage = feed.usage.get((*item.identity, name)) or ContainerUsage()
            usage.recommendation = recommended.get(name)
            oom = killed.get((*item.identity, name))
            usage.oom_memory = oom or 0
            memory = feed.memory_points[item.identity, name]
            # The recommender's confidence comes from CPU samples alone; other strategies look at each resource itself.
            points = max(samples[name], memory) if strategy.needs_samples else samples[name]
            enough = points >= points_required
            where = f"container {name} of {item.name} in {item.key.namespace}"
            advised = checked_advice(strategy, usage, where) if enough else Advised()
            info = [] if enough else [_too_little(samples[name], memory)]
            if enough and advised.cpu_request is None and advised.memory_request is None:
                info.append("no advice")
            if enough and name in expired and not strategy.needs_samples:
                info.append("old data")
            if scaled & {(resource, of) for resource in (CPU, MEMORY) for of in ("", name)}:
                info.append("HPA detected")
            if oom is not None:
                info.append("OOM")
            containers.append(_container_advice(item, name, advised, samples[name], info))
    requested, change = totals(containers)
    return RecommendationReport(
        strategy=strategy.name,
        now=shown,
        containers=containers,
        requested_millicores=requested[0],
        requested_bytes=requested[1],
        change_millicores=change[0],
        change_bytes=change[1],
        counts={name: count for name, count in sorted(feed.counts.items()) if count},
        notes=notes,
    )


def _too_little(cpu: int, memory: int) -> str:
    if cpu:
        return "not enough data"
    return "no CPU data" if memory else "no data"


def _amount(amounts: ResourceList | None, name: str) -> int | None:
    """Millicores or bytes."""
    found = (amounts or {}).get(name)
    return None if found is None else found.milli_value() if name == CPU else found.value()


def _container_advice(item: Workload, name: str, advised: Advised, samples: int, info: list[str]) -> ContainerAdvice:
    resources = item.containers[name].resources
    live = [current_resources(pod, name) for pod in item.pods if any(c.name == name for c in pod.spec.containers)]
    given = live or [(resources.requests, resources.limits)]
    distinct = {
        resource: sorted({_amount(one, resource) for one, _ in given}, key=lambda amount: (amount is not None, amount))
        for resource in (CPU, MEMORY)
    }
    if any(len(amounts) > 1 for amounts in distinct.values()):
        info.append("requests differ")
    requests, limits = given[0]
    own = {r.container_name: r for r in _status_recommendations(item)} if not item.implied else {}
    compared = (own[name].target or {}) if name in own else {}
    cpu = ResourceAdvice(
        request=_amount(requests, CPU),
        requests=distinct[CPU],
        requested=sum(_amount(one, CPU) or 0 for one, _ in live),
        limit=_amount(limits, CPU),
        target=advised.cpu_request,
        target_limit=advised.cpu_limit,
        lower_bound=advised.cpu_lower,
        upper_bound=advised.cpu_upper,
        uncapped_target=advised.cpu_uncapped,
        compare=_amount(compared, CPU),
    )
    memory = ResourceAdvice(
        request=_amount(requests, MEMORY),
        requests=distinct[MEMORY],
        requested=sum(_amount(one, MEMORY) or 0 for one, _ in live),
        limit=_amount(limits, MEMORY),
        target=advised.memory_request,
        target_limit=advised.memory_limit,
        lower_bound=advised.memory_lower,
        upper_bound=advised.memory_upper,
        uncapped_target=advised.memory_uncapped,
        compare=_amount(compared, MEMORY),
    )
    cpu.severity = severity_of(cpu.requests, cpu.target, CPU_STEPS)
    memory.severity = severity_of(memory.requests, memory.target, MEMORY_STEPS)
    return ContainerAdvice(
        namespace=item.key.namespace,
        workload=item.name,
        api_version=item.key.api_version,
        container=name,
        vpa=item.vpa.name,
        implied=item.implied,
        pods=len(live),
        samples=samples,
        cpu=cpu,
        memory=memory,
        severity=max((cpu.severity, memory.severity), key=SEVERITIES.index),
        info=info,
    )


def _status_recommendations(item: Workload) -> list[RecommendedContainerResources]:
    recommendation = item.vpa.status.recommendation
    return recommendation.container_recommendations if recommendation is not None else []
