"""``kscale recommend``: requests for every workload of a dump from recorded usage.

Not in upstream; built on upstream's recommender.
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
from kscale.objects.custom_workloads import is_paused
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
from kscale.vpa.advice.workloads import UsageFeed, Workload, WorkloadKey, Workloads, feed_history
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
from kscale.vpa.options import RecommenderOptions, describe_percentiles
from kscale.vpa.recommender.checkpoints import load_checkpoints
from kscale.vpa.recommender.cluster_feeder import is_managed_vpa, load_pods, load_vpas_steps
from kscale.vpa.recommender.estimators import get_minimum_amounts
from kscale.vpa.recommender.records import VpaResult
from kscale.vpa.recommender.update_vpas import recommend_vpas
from kscale.vpa.resources import CPU, MEMORY, get_amount, get_current_resources, to_cpu_quantity, to_memory_quantity
from kscale.vpa.strategies import ContainerUsage, RecommenderStrategy, Strategy, StrategyAdvice, get_checked_advice

__all__ = ["AdviceBuilder", "recommend"]


_ContainerKey = tuple[str, str, str, str]  # namespace, kind, name, container
_CPU_FIELDS: Final = ("cpu_request", "cpu_limit", "cpu_lower", "cpu_upper", "cpu_uncapped")
_MEMORY_FIELDS: Final = ("memory_request", "memory_limit", "memory_lower", "memory_upper", "memory_uncapped")


class _WorkloadUsage(NamedTuple):
    """The recommender's data about the containers of one workload, by name."""

    cpu_samples: Counter[str]
    memory: frozenset[str]
    """Containers with a memory peak."""
    expired: frozenset[str]
    """Containers whose samples are all older than the history that upstream uses."""


class AdviceBuilder:
    """Builder of the report, with all inputs of the advice."""

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
        self._minimum = {
            key: get_minimum_amounts(len(recommendation.container_recommendations), feed.state.options)
            for key, recommendation in self._recommended.items()
            if recommendation is not None and recommendation.container_recommendations
        }
        self._horizontal = _find_horizontally_scaled(cluster)
        self._limit_ranges = LimitRanges(cluster.all("LimitRange"))
        self._killed: dict[_ContainerKey, int] = {}
        for (namespace, pod, container), _, amount in ooms:
            owner = feed.resolve(namespace, pod)
            if owner is not None:
                key = (*owner.identity, container)
                self._killed[key] = max(self._killed.get(key, 0), amount)

    def report(self, at: Moment, notes: list[str]) -> RecommendationReport:
        """Build the report for the moment ``at``, with these notes.

        Moments before 1970 count as 0, when upstream's histograms begin.
        """
        containers = [one for item in self._chosen for one in self._advise_workload(item, max(at, 0))]
        requested, change = sum_requests(containers)
        return RecommendationReport(
            strategy=self._strategy.name,
            method=_describe_strategy(self._strategy, self._feed.state.options),
            now=to_text(at),
            containers=containers,
            requested_millicores=requested[0],
            requested_bytes=requested[1],
            change_millicores=change[0],
            change_bytes=change[1],
            counts={name: count for name, count in sorted(self._feed.counts.items()) if count},
            notes=notes,
        )

    def _advise_workload(self, item: Workload, now: Moment) -> Iterable[ContainerAdvice]:
        """Yield the advice for each container of the workload ``item``, with a patch that fits the limit ranges.

        Notes say where a limit range or the container's limit changes what is advised.
        """
        recommendation = self._recommended.get((item.vpa.namespace, item.vpa.name))
        items = recommendation.container_recommendations if recommendation is not None else ()
        recommended = {one.container_name: one for one in items}
        known = self._collect_usage(item, now)
        advised_containers: dict[str, tuple[ContainerAdvice, StrategyAdvice]] = {}
        for name in item.containers:
            usage = self._feed.usage.get((*item.identity, name)) or ContainerUsage()
            usage.recommendation = recommended.get(name)
            usage.oom_memory = self._killed.get((*item.identity, name), 0)
            advised_containers[name] = self._advise_container(item, name, usage, known)
        targets = {name: _get_advised_requests(advised) for name, (_, advised) in advised_containers.items()}
        fitted = _fit_to_limit_ranges(item, targets, self._limit_ranges)
        for name, (advice, advised) in advised_containers.items():
            requests = fitted.get(name, {})
            if any(requests.get(resource) != amount for resource, amount in targets[name].items()):
                advice.info.append("LimitRange")
            advice.patch = _build_patch_amounts(item, name, advised, requests, self._limit_ranges)
            if advice.patch.cpu_request != get_amount(requests, CPU) or advice.patch.memory_request != get_amount(
                requests, MEMORY
            ):
                advice.info.append("at its limit")
            yield advice

    def _collect_usage(self, item: Workload, now: Moment) -> _WorkloadUsage:
        """Return the data that the recommender has about the workload ``item`` at the time ``now``.

        These are the number of CPU samples by container, the containers with memory data, and the containers whose
        samples are all too old.
        """
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

    def _advise_container(
        self, item: Workload, name: str, usage: ContainerUsage, known: _WorkloadUsage
    ) -> tuple[ContainerAdvice, StrategyAdvice]:
        """Return the report's entry of one container of the workload ``item``, and the strategy's advice.

        The advice is empty if there are too few samples. ``known``: the recommender's data about the workload.
        """
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
        minimum = self._minimum.get((item.vpa.namespace, item.vpa.name), {}) if _uses_recommender(strategy) else {}
        return _build_container_advice(item, name, advised, cpu, info, minimum), advised


def _uses_recommender(strategy: Strategy) -> bool:
    """Check whether a strategy is upstream's recommender."""
    return isinstance(strategy, RecommenderStrategy)


def _describe_strategy(strategy: Strategy, options: RecommenderOptions) -> dict[str, str]:
    """Return a text per resource on how the strategy computes the target."""
    if _uses_recommender(strategy):
        return describe_percentiles(options)
    settings = msgspec.to_builtins(strategy.settings)
    text = ", ".join(f"{name}={value}" for name, value in settings.items())
    return dict.fromkeys((CPU, MEMORY), f"strategy {strategy.name}{f' ({text})' if text else ''}")


def _find_advised_resources(item: Workload, name: str, advised: StrategyAdvice) -> set[str]:
    """Return the resources of a container with advised requests.

    If there are none, returns those that the VPA controls: none if its policy for the container is Off.
    """
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
    """Drop the advice for resources without data, for which upstream's recommender returns its minimum.

    ``cpu``, ``memory``: whether there are data of the resource. Returns the advice and notes on missing data.
    """
    lacking = []
    if not cpu:
        lacking.append("no CPU data")
        advised = advised._replace(**dict.fromkeys(_CPU_FIELDS))
    if not memory:
        lacking.append("no memory data")
        advised = advised._replace(**dict.fromkeys(_MEMORY_FIELDS))
    return advised, lacking


def _find_horizontally_scaled(cluster: Cluster) -> dict[WorkloadKey, set[tuple[str, str]]]:
    """Return, by workload, the resources that an HPA scales by.

    Each is (resource, container), the container empty for all. Without metrics an HPA scales by CPU at 80 %, the API
    server's default. A ScaledObject stands for the HPA that KEDA generates, which may not be in the dump; a paused
    ScaledObject has no HPA.
    """
    scaled_resources: dict[WorkloadKey, set[tuple[str, str]]] = {}
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
        scaled_resources.setdefault((scaled.namespace, reference.kind or "Deployment", reference.name), set()).update(
            names
        )
    for hpa in cluster.all("HorizontalPodAutoscaler"):
        if isinstance(hpa, HorizontalPodAutoscalerV1) or not hpa.spec.metrics:
            names = {(CPU, "")}
        else:
            names = {(metric.resource.name, "") for metric in hpa.spec.metrics if metric.resource is not None}
            names |= {
                (metric.container_resource.name, metric.container_resource.container)
                for metric in hpa.spec.metrics
                if metric.container_resource is not None
            }
        target = hpa.spec.scale_target_ref
        scaled_resources.setdefault((hpa.namespace, target.kind, target.name), set()).update(names)
    return scaled_resources


def _build_container_advice(
    item: Workload,
    name: str,
    advised: StrategyAdvice,
    samples: int,
    info: list[str],
    minimum: Mapping[str, int | None],
) -> ContainerAdvice:
    """Build the report's entry of the container ``name`` of the workload ``item``.

    ``samples``: number of CPU samples. ``info``: its notes, to which more are added in place. ``minimum``: the
    container's share of the minimum of a pod by resource, in millicores and bytes.
    """
    resources = item.containers[name].resources
    live = [get_current_resources(pod, name) for pod in item.pods if any(c.name == name for c in pod.spec.containers)]
    current_resources = live or [(resources.requests, resources.limits)]
    own = {r.container_name: r for r in _get_status_recommendations(item)} if not item.implied else {}
    compared = (own[name].target or {}) if name in own else {}
    parts = {}
    for resource, fields in ((CPU, _CPU_FIELDS), (MEMORY, _MEMORY_FIELDS)):
        target, target_limit, lower, upper, uncapped = (getattr(advised, field) for field in fields)
        amounts = {get_amount(one, resource) for one, _ in current_resources}
        parts[resource] = ResourceAdvice(
            request=get_amount(current_resources[0][0], resource),
            requests=sorted(amounts, key=lambda amount: (amount is not None, amount)),
            requested=sum(get_amount(one, resource) or 0 for one, _ in live),
            limit=get_amount(current_resources[0][1], resource),
            target=target,
            target_limit=target_limit,
            lower_bound=lower,
            upper_bound=upper,
            uncapped_target=uncapped,
            minimum=None if target is None else minimum.get(resource),
            compare=get_amount(compared, resource),
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


def _get_advised_requests(advised: StrategyAdvice) -> ResourceList:
    """Return the advised requests as quantities by resource; empty without advice."""
    requests: ResourceList = {}
    if advised.cpu_request is not None:
        requests[CPU] = to_cpu_quantity(advised.cpu_request)
    if advised.memory_request is not None:
        requests[MEMORY] = to_memory_quantity(advised.memory_request)
    return requests


def _fit_to_limit_ranges(
    item: Workload, targets: Mapping[str, ResourceList], limit_ranges: LimitRanges
) -> dict[str, ResourceList]:
    """Return the requests by container, fitted to the namespace's limit ranges as upstream's admission does.

    ``targets``: the advised requests by container, which are returned as they are if the limit range for pods cannot be
    read. The result lacks containers without advice, unless a limit range for whole pods changes them.
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
    """Build requests and limits for a container of a workload's template, as upstream's admission sets them.

    ``requests``: the advised ones, fitted to the limit ranges. A limit in ``advised`` is used, raised to the request.
    Any other limit keeps its ratio to the request. If the VPA controls requests only, no limits are set, and a request
    is at most the container's limit, or the limit range's default.
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
        return PatchAmounts(cpu_request=get_amount(capped, CPU), memory_request=get_amount(capped, MEMORY))
    scaled, _ = get_proportional_limits(resources.limits, resources.requests, requests, defaults)
    new = dict(scaled or {})
    # A limit that the strategy advises takes precedence over a proportional one.
    if advised.cpu_limit is not None:
        new[CPU] = to_cpu_quantity(max(advised.cpu_limit, get_amount(requests, CPU) or 0))
    if advised.memory_limit is not None:
        new[MEMORY] = to_memory_quantity(max(advised.memory_limit, get_amount(requests, MEMORY) or 0))
    return PatchAmounts(
        cpu_request=get_amount(requests, CPU),
        cpu_limit=get_amount(new, CPU),
        memory_request=get_amount(requests, MEMORY),
        memory_limit=get_amount(new, MEMORY),
    )


def _get_status_recommendations(item: Workload) -> list[RecommendedContainerResources]:
    """Return the recommendations in the status of the workload's VPA; empty if there are none."""
    recommendation = item.vpa.status.recommendation
    return recommendation.container_recommendations if recommendation is not None else []


_EARLIEST_TIME: Final = 946684800 * SECOND
"""2000-01-01: no container is older."""
_HISTORY_LENGTH: Final = 8 * 86400 * SECOND
"""Length of the history that upstream reads."""
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
    """Compute recommended requests for the workloads of a cluster from the usage of their containers.

    Workloads without a VPA are treated as if they had one in mode Off.

    Parameters
    ----------
    cluster : Cluster or iterable of objects
        Result of :func:`kscale.load`, or objects (structs, dicts, those of a client): workloads, their pods, VPAs,
        HPAs, eviction events.
    history : path or iterable of UsageBatch
        A file that :func:`~kscale.series.usage_reader.read_usage` reads, or batches of usage. A history that can be
        read twice may be in any order (see :func:`~kscale.vpa.advice.workloads.feed_history`).
    options : RecommenderOptions, optional
        Options of the recommender.
    strategy : Strategy, optional
        Default: upstream's recommender.
    now : datetime or Moment, optional
        Moment of the recommendation. Default: that of the newest sample or OOM kill.
    checkpoints : sequence of VerticalPodAutoscalerCheckpoint
        Checkpoints to load as well.
    namespaces, kinds : collection of str
        Restrict the workloads, kinds as ``Deployment``. Empty for all.
    selector : str
        Restricts the workloads by labels of pod templates. Empty for all.
    points_required : int
        A container with fewer samples gets no advice.
    threads : int
        Number of threads, without effect on the result.
    progress : callable, optional
        Called with the number of rows read so far.

    Returns
    -------
    RecommendationReport
        Amounts in millicores and bytes.

    Raises
    ------
    InputError
        If an input cannot be read, the selector is invalid or the strategy fails.
    NativeError
        If a compiled strategy fails.
    """
    strategy = strategy or RecommenderStrategy()
    options = options or RecommenderOptions()
    requested_moment = None if now is None else moment(now)
    loaded = cluster if isinstance(cluster, Cluster) else Cluster(cluster)
    usage = read_usage(fspath(history), threads=threads) if isinstance(history, str | PathLike) else history
    controllers = read_controllers(loaded)
    custom = list_custom_workloads(loaded)
    workloads = Workloads(controllers, loaded.pods(), loaded.all("VerticalPodAutoscaler"), options, custom)
    selected, notes = _select_workloads(workloads, namespaces, kinds, selector)
    managed = [item for item in selected if is_managed_vpa(item.vpa, options)]
    pods = [pod for item in managed for pod in (*item.pods, *item.finished)]
    start = requested_moment or 0

    def prepare() -> UsageFeed:
        state = RecommenderState(options, threads=threads)
        state.store.reserve(sum(len(item.containers) for item in managed), sum(len(p.spec.containers) for p in pods))
        vpas = [msgspec.structs.replace(item.vpa, status=VerticalPodAutoscalerStatus()) for item in managed]
        run_without_requests(load_vpas_steps(state, vpas, controllers, Progress(start)))
        load_pods(state, pods, start)
        return UsageFeed(state, workloads, strategy, {item.identity for item in managed}, namespaces, requested_moment)

    feed = feed_history(usage, prepare, progress)
    feed.counts["workloads in namespaces that the recommender leaves alone"] += len(selected) - len(managed)
    for (namespace, text), count in workloads.skipped.items():
        if not namespaces or namespace in namespaces:
            feed.counts[text] += count
    ooms = _find_dump_oom_kills(loaded, pods, feed)
    at = _choose_moment(feed, ooms, requested_moment, notes)
    diagnostics = _load_checkpoints(loaded, feed.state, checkpoints, max(at, 0))
    _add_oom_kills(feed, ooms, max(at, 0))
    results = recommend_vpas(feed.state, list(feed.state.observed_vpas()), max(at, 0), diagnostics, QualityObserver())
    notes += [text for place, text in workloads.notes() if not namespaces or place in namespaces]
    return AdviceBuilder(loaded, managed, results, feed, ooms, points_required).report(at, notes + diagnostics)


def _load_checkpoints(
    cluster: Cluster, state: RecommenderState, checkpoints: Iterable[VerticalPodAutoscalerCheckpoint], now: Moment
) -> list[str]:
    """Load checkpoints into the state. Returns texts on those that could not be loaded.

    A checkpoint whose VPA exists, but is not in the state because its workload was not selected, is left out without a
    text.
    """
    vpas = {vpa.key for vpa in cluster.all("VerticalPodAutoscaler")}
    loaded = []
    for item in checkpoints:
        key = item.namespace, item.spec.vpa_object_name
        # A VPA that exists but is not in the state has no target or was not selected, which is reported elsewhere.
        if key in state.vpas or object_key(*key) not in vpas:
            loaded.append(item)
    return load_checkpoints(state, loaded, now)


# -- selection ---------------------------------------------------------------------------------------------------


def _select_workloads(
    workloads: Workloads, namespaces: Collection[str], kinds: Collection[str], selector: str
) -> tuple[list[Workload], list[str]]:
    """Return the workloads that match the filters, and notes on filters without a match.

    Empty filters match all. Raises InputError for an invalid selector.
    """
    try:
        wanted = parse_selector(selector) if selector else Selector()
    except SelectorError as error:
        raise InputError(f"selector {selector!r}: {error}") from None
    folded = {kind.lower() for kind in kinds}
    selected = [
        item
        for item in workloads.items.values()
        if (not namespaces or item.key.namespace in namespaces)
        and (not folded or item.key.kind.lower() in folded)
        and wanted.matches(item.labels)
    ]
    notes = _describe_unmatched_filters(workloads.items.values(), namespaces, kinds, selector, wanted)
    if workloads.items and not selected and not notes:
        notes = ["no workload is all of what was asked for"]
    return selected, notes


def _describe_unmatched_filters(
    workloads: Collection[Workload],
    namespaces: Iterable[str],
    kinds: Iterable[str],
    selector: str,
    parsed_selector: Selector,
) -> list[str]:
    """Return a note for each filter that no workload matches."""
    known_namespaces = {item.key.namespace for item in workloads}
    known_kinds = {item.key.kind.lower() for item in workloads}
    notes = [f"no workload in the namespace {name}" for name in namespaces if name not in known_namespaces]
    notes += [f"no workload of the kind {kind}" for kind in kinds if kind.lower() not in known_kinds]
    if selector and not any(parsed_selector.matches(item.labels) for item in workloads):
        notes.append(f"no workload with the pod labels {selector}")
    return notes


# -- time --------------------------------------------------------------------------------------------------------


def _choose_moment(feed: UsageFeed, ooms: Sequence[OutOfMemory], now: Moment | None, notes: list[str]) -> Moment:
    """Return ``now`` if passed, else the time of the newest sample or kill, else the zero time.

    If the time of the newest sample is so early that its unit is probably wrong, a note is added to ``notes``. Without
    ``now``, samples that are much later than most are noted in ``feed.counts``.
    """
    if now is None:
        _warn_of_late_samples(feed)
    if ZERO_TIME < feed.newest < _EARLIEST_TIME:
        notes.append(f"the newest sample is of {to_text(feed.newest)}: is the unit of time right?")
    if now is not None:
        return now
    return feed.newest if feed.newest != ZERO_TIME else max((event.time for event in ooms), default=ZERO_TIME)


def _warn_of_late_samples(feed: UsageFeed) -> None:
    """Add a note to ``feed.counts`` if the newest samples are more than eight days later than most.

    By default, the time of the newest sample is the current time. One wrong time would make all other samples old.
    """
    late = feed.find_future_samples(_HISTORY_LENGTH)
    if late is None:
        return
    usual, containers = late
    shown = f" ({', '.join(containers[:3])}{', ...' if len(containers) > 3 else ''})" if containers else ""
    text = f"containers{shown or ' that are not known'} with samples of up to {to_text(feed.newest)}, more than eight "
    text += f"days after most ({to_text(usual)}): kscale uses this time as the current time (--now sets another)"
    feed.counts[text] += max(len(containers), 1)


# -- OOM kills ---------------------------------------------------------------------------------------------------


def _find_dump_oom_kills(cluster: Cluster, pods: Iterable[Pod], feed: UsageFeed) -> list[OutOfMemory]:
    """Return the selected workloads' kills in pods and eviction events of the dump, in order of time.

    Deleted pods of these events are added to the feed's state. Raises InputError for a kill with an invalid time.
    """
    kills = find_last_oom_kills(pods)
    for event in cluster.all("Event"):
        if event.reason == "Evicted" and event.involved_object.kind == "Pod":
            for kill in find_memory_evictions(event):
                if feed.place(SeriesKey(*kill.container)).owner is not None:
                    kills.append(kill)
    return sorted(kills, key=lambda kill: kill.time)


def _add_oom_kills(feed: UsageFeed, ooms: Sequence[OutOfMemory], now: Moment) -> None:
    """Add OOM kills to the feed's state, and count the rejected ones in ``feed.counts``."""
    refused: list[UsageError] = add_usage(feed.state, to_usage(ooms), now) if ooms else []
    if refused:
        feed.counts[_DISCARDED_OOMS_TEXT] += len(refused)
