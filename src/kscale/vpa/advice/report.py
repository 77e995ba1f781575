"""``kscale recommend``: requests for every workload of a dump from recorded usage.

kscale's own, around the recommender that is upstream's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from os import PathLike, fspath
from typing import Any, Final, NamedTuple

import msgspec

from kscale.effects import SECOND, ZERO_TIME, Moment, Progress, moment, to_text
from kscale.errors import InputError
from kscale.objects.api.autoscaling import HorizontalPodAutoscalerV1
from kscale.objects.api.core import Pod, PodSpec
from kscale.objects.api.custom_workloads import is_paused
from kscale.objects.api.meta import ObjectMeta, ResourceList, object_key
from kscale.objects.api.vpa import (
    ContainerPolicies,
    RecommendedContainerResources,
    RecommendedPodResources,
    VerticalPodAutoscaler,
    VerticalPodAutoscalerCheckpoint,
    VerticalPodAutoscalerStatus,
    container_policy,
)
from kscale.objects.argument_types import typed
from kscale.objects.selectors import Selector, SelectorError, parse_selector
from kscale.series.columns import SeriesKey
from kscale.series.usage_reader import UsageBatch, read_usage
from kscale.snapshot.caches import collector_paused
from kscale.snapshot.cluster import Cluster
from kscale.vpa.advice.records import (
    CPU_SEVERITY_STEPS,
    MEMORY_SEVERITY_STEPS,
    SEVERITIES,
    ContainerAdvice,
    PatchAmounts,
    RecommendationReport,
    ResourceAdvice,
    get_resource_severity,
    is_capped,
    sum_requests,
)
from kscale.vpa.advice.usage_feed import UsageFeed, feed_history
from kscale.vpa.advice.workloads import Workload, WorkloadKey, Workloads
from kscale.vpa.capping import (
    CONTAINER_LIMIT,
    CappingError,
    LimitRangeError,
    LimitRanges,
    cap_recommendation,
    get_proportional_limits,
)
from kscale.vpa.controllers import list_custom_workloads, read_controllers, run_without_requests
from kscale.vpa.metrics import QualityObserver
from kscale.vpa.model.saved_state import RecommenderState, UsageError, add_usage
from kscale.vpa.model.usage import OutOfMemory, find_last_oom_kills, find_memory_evictions, to_usage
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.recommender.checkpoints import load_checkpoints
from kscale.vpa.recommender.cluster_feeder import is_managed_vpa, load_pods, load_vpas_steps
from kscale.vpa.recommender.records import VpaResult
from kscale.vpa.recommender.update_vpas import recommend_vpas
from kscale.vpa.resources import CPU, MEMORY, get_current_resources, to_cpu_quantity, to_memory_quantity
from kscale.vpa.strategies import ContainerUsage, RecommenderStrategy, Strategy, StrategyAdvice, get_checked_advice

__all__ = ["AdviceBuilder", "recommend"]


_ContainerKey = tuple[str, str, str, str]  # namespace, kind, name, container
_CPU_FIELDS: Final = ("cpu_request", "cpu_limit", "cpu_lower", "cpu_upper", "cpu_uncapped")
_MEMORY_FIELDS: Final = ("memory_request", "memory_limit", "memory_lower", "memory_upper", "memory_uncapped")


class _WorkloadUsage(NamedTuple):
    """What the recommender's model knows of the containers of one workload, by name."""

    cpu_samples: Counter[str]
    memory: frozenset[str]
    """Those with some memory peak."""
    expired: frozenset[str]
    """Those whose samples are all older than what upstream keeps."""


class AdviceBuilder:
    """Everything that advice is made of."""

    def __init__(
        self,
        cluster: Cluster,
        chosen: Sequence[Workload],
        results: Iterable[VpaResult],
        feed: UsageFeed,
        ooms: Iterable[OutOfMemory],
        points_required: int,
    ) -> None:
        self._chosen = sorted(chosen, key=lambda w: (w.key.namespace, w.key.kind, w.key.name))
        self._recommended = {(each.namespace, each.name): each.recommendation for each in results}
        self._feed = feed
        self._strategy = feed.strategy
        self._points_required = points_required
        self._horizontal = _find_horizontally_scaled(cluster)
        self._limit_ranges = LimitRanges(cluster.all("LimitRange"))
        self._killed: dict[_ContainerKey, int] = {}
        for (namespace, pod, container), _, amount in ooms:
            owner = feed.resolve(namespace, pod)
            if owner is not None:
                key = (*owner.identity, container)
                self._killed[key] = max(self._killed.get(key, 0), amount)

    def report(self, at: Moment, notes: list[str]) -> RecommendationReport:
        """The record, for a moment (0 and before: upstream's histograms begin in 1970)."""
        containers = [one for item in self._chosen for one in self._of_workload(item, max(at, 0))]
        requested, change = sum_requests(containers)
        return RecommendationReport(
            strategy=self._strategy.name,
            now=to_text(at),
            containers=containers,
            requested_millicores=requested[0],
            requested_bytes=requested[1],
            change_millicores=change[0],
            change_bytes=change[1],
            counts={name: count for name, count in sorted(self._feed.counts.items()) if count},
            notes=notes,
        )

    def _of_workload(self, item: Workload, now: Moment) -> Iterable[ContainerAdvice]:
        recommendation = self._recommended.get((item.vpa.namespace, item.vpa.name))
        items = recommendation.container_recommendations if recommendation is not None else ()
        recommended = {one.container_name: one for one in items}
        known = self._known(item, now)
        advised_containers: dict[str, tuple[ContainerAdvice, StrategyAdvice]] = {}
        for name in item.containers:
            usage = self._feed.usage.get((*item.identity, name)) or ContainerUsage()
            usage.recommendation = recommended.get(name)
            usage.oom_memory = self._killed.get((*item.identity, name), 0)
            advised_containers[name] = self._of_container(item, name, usage, known)
        targets = {name: _requests(advised) for name, (_, advised) in advised_containers.items()}
        fitted = _fitted(item, targets, self._limit_ranges)
        for name, (advice, advised) in advised_containers.items():
            requests = fitted.get(name, {})
            if any(requests.get(resource) != amount for resource, amount in targets[name].items()):
                advice.info.append("LimitRange")
            advice.patch = _build_patch_amounts(item, name, advised, requests, self._limit_ranges)
            if advice.patch.cpu_request != _get_amount(requests, CPU) or advice.patch.memory_request != _get_amount(
                requests, MEMORY
            ):
                advice.info.append("at its limit")
            yield advice

    def _known(self, item: Workload, now: Moment) -> _WorkloadUsage:
        state = self._feed.state
        store, vpa = state.store, state.vpas[item.vpa.namespace, item.vpa.name]
        counts: Counter[str] = Counter()
        memory, fresh = set(), set()
        parts = [(key.container, aggregate) for key, aggregate in vpa.aggregates.items()]
        for name, aggregate in [*parts, *vpa.initial_states.items()]:
            counts[name] += int(store.samples[aggregate.row])
            if store.samples[aggregate.row] and not aggregate.is_expired(store, now):
                fresh.add(name)
            if not store.memory.row(aggregate.row).is_empty:
                memory.add(name)
        return _WorkloadUsage(
            counts, frozenset(memory), frozenset({name for name, count in counts.items() if count} - fresh)
        )

    def _of_container(
        self, item: Workload, name: str, usage: ContainerUsage, known: _WorkloadUsage
    ) -> tuple[ContainerAdvice, StrategyAdvice]:
        strategy, cpu = self._strategy, known.cpu_samples[name]
        memory = self._feed.memory_points[item.identity, name]
        where = f"container {name} of {item.name} in {item.key.namespace}"
        info = []
        advised = StrategyAdvice()
        if max(cpu, memory) < self._points_required:
            info.append("not enough data" if cpu or memory else "no data")
        else:
            advised = get_checked_advice(strategy, usage, where)
            advised, lacking = _drop_advice_without_data(
                advised, cpu=cpu > 0, memory=memory > 0 or name in known.memory
            )
            info += lacking
            if advised.cpu_request is None and advised.memory_request is None:
                info.append("no advice")
            if name in known.expired and not strategy.needs_samples:
                info.append("old data")
        scaled = self._horizontal.get(item.identity, set())
        if scaled & {(resource, of) for resource in _find_advised_resources(item, name, advised) for of in ("", name)}:
            info.append("HPA detected")
        if (*item.identity, name) in self._killed:
            info.append("OOM")
        return _build_container_advice(item, name, advised, cpu, info), advised


def _find_advised_resources(item: Workload, name: str, advised: StrategyAdvice) -> set[str]:
    """The resources whose requests are advised; without any advice those that the VPA controls."""
    requests = {CPU: advised.cpu_request, MEMORY: advised.memory_request}
    changed = {resource for resource, amount in requests.items() if amount is not None}
    if changed:
        return changed
    policy = container_policy(name, item.vpa.spec.resource_policy)
    if policy is None:
        return set(requests)
    if policy.mode == "Off":
        return set()
    return set(requests) if policy.controlled_resources is None else set(policy.controlled_resources)


def _drop_advice_without_data(advised: StrategyAdvice, *, cpu: bool, memory: bool) -> tuple[StrategyAdvice, list[str]]:
    """The advice without that for a resource of which there is no data: upstream's recommender has its minimum then."""
    lacking = []
    if not cpu:
        lacking.append("no CPU data")
        advised = advised._replace(**dict.fromkeys(_CPU_FIELDS))
    if not memory:
        lacking.append("no memory data")
        advised = advised._replace(**dict.fromkeys(_MEMORY_FIELDS))
    return advised, lacking


def _find_horizontally_scaled(cluster: Cluster) -> dict[WorkloadKey, set[tuple[str, str]]]:
    """Workload -> the resources that an HPA scales it by: (resource, container or empty for all of them).

    Without metrics an HPA scales by CPU at 80 %, which the API server fills in. A ScaledObject stands for the HPA that
    KEDA generates, which may not be in the dump; one that is paused has none.
    """
    found: dict[WorkloadKey, set[tuple[str, str]]] = {}
    for scaled in cluster.all("ScaledObject"):
        spec = scaled.spec
        if spec is None or spec.scale_target_ref is None or is_paused(scaled.metadata.annotations):
            continue
        reference = spec.scale_target_ref
        names = {
            (trigger.type, str((trigger.metadata or {}).get("containerName") or ""))
            for trigger in spec.triggers or ()
            if trigger.type in (CPU, MEMORY)
        }
        found.setdefault((scaled.namespace, reference.kind or "Deployment", reference.name), set()).update(names)
    for hpa in cluster.all("HorizontalPodAutoscaler"):
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


def _get_amount(amounts: ResourceList | None, name: str) -> int | None:
    """Millicores or bytes."""
    found = (amounts or {}).get(name)
    return None if found is None else found.milli_value() if name == CPU else found.value()


def _build_container_advice(
    item: Workload, name: str, advised: StrategyAdvice, samples: int, info: list[str]
) -> ContainerAdvice:
    resources = item.containers[name].resources
    live = [get_current_resources(pod, name) for pod in item.pods if any(c.name == name for c in pod.spec.containers)]
    given = live or [(resources.requests, resources.limits)]
    own = {r.container_name: r for r in _get_status_recommendations(item)} if not item.implied else {}
    compared = (own[name].target or {}) if name in own else {}
    parts = {}
    for resource, fields in ((CPU, _CPU_FIELDS), (MEMORY, _MEMORY_FIELDS)):
        target, target_limit, lower, upper, uncapped = (getattr(advised, field) for field in fields)
        amounts = {_get_amount(one, resource) for one, _ in given}
        parts[resource] = ResourceAdvice(
            request=_get_amount(given[0][0], resource),
            requests=sorted(amounts, key=lambda amount: (amount is not None, amount)),
            requested=sum(_get_amount(one, resource) or 0 for one, _ in live),
            limit=_get_amount(given[0][1], resource),
            target=target,
            target_limit=target_limit,
            lower_bound=lower,
            upper_bound=upper,
            uncapped_target=uncapped,
            compare=_get_amount(compared, resource),
        )
    cpu, memory = parts[CPU], parts[MEMORY]
    if len(cpu.requests) > 1 or len(memory.requests) > 1:
        info.append("requests differ")
    if is_capped(cpu):
        info.append("CPU capped")
    if is_capped(memory):
        info.append("memory capped")
    killed = "OOM" in info
    if killed and memory.target is not None and any(one is not None and memory.target < one for one in memory.requests):
        info.append("less memory than when killed")
    cpu.severity = get_resource_severity(cpu, CPU_SEVERITY_STEPS, capped=is_capped(cpu), killed=False)
    memory.severity = get_resource_severity(memory, MEMORY_SEVERITY_STEPS, capped=is_capped(memory), killed=killed)
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


def _requests(advised: StrategyAdvice) -> ResourceList:
    """Return the requests that are advised."""
    requests: ResourceList = {}
    if advised.cpu_request is not None:
        requests[CPU] = to_cpu_quantity(advised.cpu_request)
    if advised.memory_request is not None:
        requests[MEMORY] = to_memory_quantity(advised.memory_request)
    return requests


def _fitted(item: Workload, targets: Mapping[str, ResourceList], limit_ranges: LimitRanges) -> dict[str, ResourceList]:
    """Return the requests of each container, fitted to the namespace's limit ranges as upstream's admission does.

    A limit range of whole pods also changes containers without advice.
    """
    recommendation = RecommendedPodResources(
        container_recommendations=[
            RecommendedContainerResources(container_name=name, target=requests)
            for name, requests in targets.items()
            if requests
        ]
    )
    pod = Pod(metadata=ObjectMeta(namespace=item.key.namespace), spec=PodSpec(containers=[*item.containers.values()]))
    vpa = VerticalPodAutoscaler(status=VerticalPodAutoscalerStatus(recommendation=recommendation))
    try:
        capped = cap_recommendation(vpa, pod, limit_ranges).recommendation
    except CappingError:
        return dict(targets)
    items = () if capped is None else capped.container_recommendations
    return {one.container_name: one.target or {} for one in items}


def _build_patch_amounts(
    item: Workload, name: str, advised: StrategyAdvice, requests: ResourceList, limit_ranges: LimitRanges
) -> PatchAmounts:
    """The requests and limits of the workload's template that an API server takes, as upstream's admission sets them.

    ``requests``: those that are advised, fitted to the limit ranges. Limits keep their ratio to requests; if the VPA
    controls requests only, a request is at most its limit.
    """
    resources = item.containers[name].resources
    try:
        limit_range = limit_ranges.effective(item.key.namespace, CONTAINER_LIMIT)
    except LimitRangeError:
        limit_range = None
    defaults = None if limit_range is None else limit_range.default
    limits = {**(defaults or {}), **(resources.limits or {})}
    if ContainerPolicies(item.vpa.spec.resource_policy).controlled_values(name) == "RequestsOnly":
        capped = {
            resource: limits[resource] if resource in limits and limits[resource] < amount else amount
            for resource, amount in requests.items()
        }
        return PatchAmounts(cpu_request=_get_amount(capped, CPU), memory_request=_get_amount(capped, MEMORY))
    scaled, _ = get_proportional_limits(resources.limits, resources.requests, requests, defaults)
    new = dict(scaled or {})
    # A limit that the strategy advises goes before one in proportion.
    if advised.cpu_limit is not None:
        new[CPU] = to_cpu_quantity(max(advised.cpu_limit, _get_amount(requests, CPU) or 0))
    if advised.memory_limit is not None:
        new[MEMORY] = to_memory_quantity(max(advised.memory_limit, _get_amount(requests, MEMORY) or 0))
    return PatchAmounts(
        cpu_request=_get_amount(requests, CPU),
        cpu_limit=_get_amount(new, CPU),
        memory_request=_get_amount(requests, MEMORY),
        memory_limit=_get_amount(new, MEMORY),
    )


def _get_status_recommendations(item: Workload) -> list[RecommendedContainerResources]:
    recommendation = item.vpa.status.recommendation
    return recommendation.container_recommendations if recommendation is not None else []


_EARLIEST_TIME: Final = 946684800 * SECOND
"""2000-01-01: no container is older."""
_HISTORY_LENGTH: Final = 8 * 86400 * SECOND
"""What upstream keeps of the past."""
_DISCARDED_OOMS_TEXT: Final = "containers killed for memory too long ago, or unknown, discarded"


@collector_paused()
@typed
def recommend(
    cluster: Cluster | Iterable[Any],
    history: str | PathLike[str] | Iterable[UsageBatch],
    *,
    options: RecommenderOptions | None = None,
    strategy: Strategy | None = None,
    now: datetime | Moment | None = None,
    checkpoints: Sequence[VerticalPodAutoscalerCheckpoint] = (),
    namespaces: Collection[str] = (),
    kinds: Collection[str] = (),
    selector: str = "",
    points_required: int = 1,
    threads: int = 1,
    progress: Callable[[int], None] | None = None,
) -> RecommendationReport:
    """What the workloads of a cluster should request, from what their containers used.

    - ``cluster``: what :func:`kscale.load` returns, or objects (structs, dicts, those of a client): workloads, their
      pods, VPAs, HPAs, eviction events.
    - ``history``: a file that :func:`~kscale.series.usage_reader.read_usage` reads, or batches of usage. One that can
      be read twice may come in any order (see :func:`~kscale.vpa.advice.usage_feed.feed_history`).
    - ``options``: of the recommender; ``strategy``: upstream's recommender unless given.
    - ``now``: the moment asked about; None: the newest sample.
    - ``checkpoints``: VPA checkpoints that are taken in as well.
    - ``namespaces``, ``kinds`` (``Deployment``, ...), ``selector`` (labels of pod templates): which workloads; all
      where they are empty.
    - ``points_required``: a container with fewer samples gets no advice.
    - ``threads``: the answer does not depend on it; ``progress`` is told the number of rows read so far.

    Workloads without a VPA are treated as if they had one in mode Off. Amounts in the record are millicores and bytes.
    Raises :class:`~kscale.errors.InputError` for what cannot be read, a selector that is none, a strategy that fails.
    """
    strategy = strategy or RecommenderStrategy()
    options = options or RecommenderOptions()
    asked_about = None if now is None else moment(now)
    seen = cluster if isinstance(cluster, Cluster) else Cluster(cluster)
    usage = read_usage(fspath(history), threads=threads) if isinstance(history, str | PathLike) else history
    controllers = read_controllers(seen)
    custom = list_custom_workloads(seen)
    workloads = Workloads(controllers, seen.pods(), seen.all("VerticalPodAutoscaler"), options, custom)
    asked, notes = _select_workloads(workloads, namespaces, kinds, selector)
    chosen = [item for item in asked if is_managed_vpa(item.vpa, options)]
    pods = [pod for item in chosen for pod in (*item.pods, *item.finished)]
    begun = asked_about or 0

    def prepare() -> UsageFeed:
        state = RecommenderState(options, threads=threads)
        state.store.reserve(sum(len(item.containers) for item in chosen), sum(len(p.spec.containers) for p in pods))
        vpas = [msgspec.structs.replace(item.vpa, status=VerticalPodAutoscalerStatus()) for item in chosen]
        run_without_requests(load_vpas_steps(state, vpas, controllers, Progress(begun)))
        load_pods(state, pods, begun)
        return UsageFeed(state, workloads, strategy, {item.identity for item in chosen}, namespaces, asked_about)

    feed = feed_history(usage, prepare, progress)
    feed.counts["workloads in namespaces that the recommender leaves alone"] += len(asked) - len(chosen)
    for (namespace, text), count in workloads.aside.items():
        if not namespaces or namespace in namespaces:
            feed.counts[text] += count
    ooms = _find_dump_oom_kills(seen, pods, feed)
    at = _choose_moment(feed, ooms, asked_about, notes)
    diagnostics = _load_checkpoints(seen, feed.state, checkpoints, max(at, 0))
    _add_oom_kills(feed, ooms, max(at, 0))
    results = recommend_vpas(feed.state, list(feed.state.observed_vpas()), max(at, 0), diagnostics, QualityObserver())
    notes += [text for place, text in workloads.notes() if not namespaces or place in namespaces]
    return AdviceBuilder(seen, chosen, results, feed, ooms, points_required).report(at, notes + diagnostics)


def _load_checkpoints(
    cluster: Cluster, state: RecommenderState, checkpoints: Iterable[VerticalPodAutoscalerCheckpoint], now: Moment
) -> list[str]:
    """Load checkpoints; texts of those that are left out for another reason than the choice of workloads."""
    vpas = {vpa.key for vpa in cluster.all("VerticalPodAutoscaler")}
    loaded = []
    for item in checkpoints:
        key = item.namespace, item.spec.vpa_object_name
        # A VPA that is there but not in the state has no target, or is not asked about: that is said of the VPA.
        if key in state.vpas or object_key(*key) not in vpas:
            loaded.append(item)
    return load_checkpoints(state, loaded, now)


# -- what is asked about ---------------------------------------------------------------------------------------


def _select_workloads(
    workloads: Workloads, namespaces: Collection[str], kinds: Collection[str], selector: str
) -> tuple[list[Workload], list[str]]:
    """The workloads that are asked about, and notes on what was asked for in vain."""
    try:
        wanted = parse_selector(selector) if selector else Selector()
    except SelectorError as error:
        raise InputError(f"selector {selector!r}: {error}") from None
    folded = {kind.lower() for kind in kinds}
    found = [
        item
        for item in workloads.items.values()
        if (not namespaces or item.key.namespace in namespaces)
        and (not folded or item.key.kind.lower() in folded)
        and wanted.matches(item.labels)
    ]
    notes = _describe_unmatched_filters(workloads.items.values(), namespaces, kinds, selector, wanted)
    if workloads.items and not found and not notes:
        notes = ["no workload is all of what was asked for"]
    return found, notes


def _describe_unmatched_filters(
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


# -- when ------------------------------------------------------------------------------------------------------


def _choose_moment(feed: UsageFeed, ooms: Sequence[OutOfMemory], now: Moment | None, notes: list[str]) -> Moment:
    """The moment asked about: the newest sample unless given, else the newest kill; may be unknown."""
    if now is None:
        _warn_of_late_samples(feed)
    if ZERO_TIME < feed.newest < _EARLIEST_TIME:
        notes.append(f"the newest sample is of {to_text(feed.newest)}: is the unit of time right?")
    if now is not None:
        return now
    return feed.newest if feed.newest != ZERO_TIME else max((event.time for event in ooms), default=ZERO_TIME)


def _warn_of_late_samples(feed: UsageFeed) -> None:
    """Of samples long after most: the newest is taken for the moment asked about, which makes all others old."""
    found = feed.from_the_future(_HISTORY_LENGTH)
    if found is None:
        return
    usual, containers = found
    shown = f" ({', '.join(containers[:3])}{', ...' if len(containers) > 3 else ''})" if containers else ""
    text = f"containers{shown or ' that are not known'} with samples of up to {to_text(feed.newest)}, more than eight "
    text += f"days after most ({to_text(usual)}): that is taken for the moment asked about (--now says another)"
    feed.counts[text] += max(len(containers), 1)


# -- kills for memory ------------------------------------------------------------------------------------------


def _find_dump_oom_kills(cluster: Cluster, pods: Iterable[Pod], feed: UsageFeed) -> list[OutOfMemory]:
    """The kills that pods and eviction events of the dump tell of, in order of time, for the workloads asked about."""
    found = find_last_oom_kills(pods)
    for event in cluster.all("Event"):
        if event.reason == "Evicted" and event.involved_object.kind == "Pod":
            for one in find_memory_evictions(event):
                if feed.place(SeriesKey(*one.container)).owner is not None:
                    found.append(one)
    return sorted(found, key=lambda one: one.time)


def _add_oom_kills(feed: UsageFeed, ooms: Sequence[OutOfMemory], now: Moment) -> None:
    refused: list[UsageError] = add_usage(feed.state, to_usage(ooms), now) if ooms else []
    if refused:
        feed.counts[_DISCARDED_OOMS_TEXT] += len(refused)
