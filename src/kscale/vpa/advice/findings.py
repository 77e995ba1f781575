"""From what a history said about workloads to advice per container."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kscale.effects import Moment, to_text
from kscale.objects.autoscaling import HorizontalPodAutoscalerV1
from kscale.objects.base import ResourceList
from kscale.objects.core import Pod, PodSpec
from kscale.objects.keda import is_paused
from kscale.objects.meta import ObjectMeta
from kscale.objects.vpa import (
    ContainerPolicies,
    RecommendedContainerResources,
    RecommendedPodResources,
    VerticalPodAutoscaler,
    VerticalPodAutoscalerStatus,
    container_policy,
)
from kscale.snapshot.cluster import Cluster
from kscale.vpa.advice.feed import Feed
from kscale.vpa.advice.records import (
    CPU_STEPS,
    MEMORY_STEPS,
    SEVERITIES,
    ContainerAdvice,
    PatchAmounts,
    RecommendationReport,
    ResourceAdvice,
    is_capped,
    resource_severity,
    totals,
)
from kscale.vpa.advice.workloads import Identity, Workload
from kscale.vpa.capping import CappingError, cap
from kscale.vpa.limit_range import CONTAINER, LimitRangeError, LimitRanges
from kscale.vpa.oom import OutOfMemory
from kscale.vpa.proportional import proportional_limits
from kscale.vpa.recommender.records import VpaResult
from kscale.vpa.resources import CPU, MEMORY, cpu_quantity, current_resources, memory_quantity
from kscale.vpa.strategies import Advised, ContainerUsage, checked_advice

__all__ = ["Findings"]

_Container = tuple[str, str, str, str]  # namespace, kind, name, container
_OF_CPU: Final = ("cpu_request", "cpu_limit", "cpu_lower", "cpu_upper", "cpu_uncapped")
_OF_MEMORY: Final = ("memory_request", "memory_limit", "memory_lower", "memory_upper", "memory_uncapped")


class _Known(NamedTuple):
    """What the recommender's model knows of the containers of one workload, by name."""

    cpu_samples: Counter[str]
    memory: frozenset[str]
    """Those with some memory peak."""
    expired: frozenset[str]
    """Those whose samples are all older than what upstream keeps."""


class Findings:
    """Everything that advice is made of."""

    def __init__(
        self,
        cluster: Cluster,
        chosen: Sequence[Workload],
        results: Iterable[VpaResult],
        feed: Feed,
        ooms: Iterable[OutOfMemory],
        points_required: int,
    ) -> None:
        self._chosen = sorted(chosen, key=lambda w: (w.key.namespace, w.key.kind, w.key.name))
        self._recommended = {(each.namespace, each.name): each.recommendation for each in results}
        self._feed = feed
        self._strategy = feed.strategy
        self._points_required = points_required
        self._horizontal = _scaled_horizontally(cluster)
        self._limit_ranges = LimitRanges(cluster.all("LimitRange"))
        self._killed: dict[_Container, int] = {}
        for (namespace, pod, container), _, amount in ooms:
            owner = feed.resolve(namespace, pod)
            if owner is not None:
                key = (*owner.identity, container)
                self._killed[key] = max(self._killed.get(key, 0), amount)

    def report(self, at: Moment, notes: list[str]) -> RecommendationReport:
        """The record, for a moment (0 and before: upstream's histograms begin in 1970)."""
        containers = [one for item in self._chosen for one in self._of_workload(item, max(at, 0))]
        requested, change = totals(containers)
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
        found: dict[str, tuple[ContainerAdvice, Advised]] = {}
        for name in item.containers:
            usage = self._feed.usage.get((*item.identity, name)) or ContainerUsage()
            usage.recommendation = recommended.get(name)
            usage.oom_memory = self._killed.get((*item.identity, name), 0)
            found[name] = self._of_container(item, name, usage, known)
        targets = {name: _requests(advised) for name, (_, advised) in found.items()}
        fitted = _fitted(item, targets, self._limit_ranges)
        for name, (advice, advised) in found.items():
            requests = fitted.get(name, {})
            if any(requests.get(resource) != amount for resource, amount in targets[name].items()):
                advice.info.append("LimitRange")
            advice.patch = _patch(item, name, advised, requests, self._limit_ranges)
            if advice.patch.cpu_request != _amount(requests, CPU) or advice.patch.memory_request != _amount(
                requests, MEMORY
            ):
                advice.info.append("at its limit")
            yield advice

    def _known(self, item: Workload, now: Moment) -> _Known:
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
        return _Known(counts, frozenset(memory), frozenset({name for name, count in counts.items() if count} - fresh))

    def _of_container(
        self, item: Workload, name: str, usage: ContainerUsage, known: _Known
    ) -> tuple[ContainerAdvice, Advised]:
        strategy, cpu = self._strategy, known.cpu_samples[name]
        memory = self._feed.memory_points[item.identity, name]
        where = f"container {name} of {item.name} in {item.key.namespace}"
        info = []
        advised = Advised()
        if max(cpu, memory) < self._points_required:
            info.append("not enough data" if cpu or memory else "no data")
        else:
            advised = checked_advice(strategy, usage, where)
            advised, lacking = _without_data(advised, cpu=cpu > 0, memory=memory > 0 or name in known.memory)
            info += lacking
            if advised.cpu_request is None and advised.memory_request is None:
                info.append("no advice")
            if name in known.expired and not strategy.needs_samples:
                info.append("old data")
        scaled = self._horizontal.get(item.identity, set())
        if scaled & {(resource, of) for resource in _changed(item, name, advised) for of in ("", name)}:
            info.append("HPA detected")
        if (*item.identity, name) in self._killed:
            info.append("OOM")
        return _container_advice(item, name, advised, cpu, info), advised


def _changed(item: Workload, name: str, advised: Advised) -> set[str]:
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


def _without_data(advised: Advised, *, cpu: bool, memory: bool) -> tuple[Advised, list[str]]:
    """The advice without that for a resource of which there is no data: upstream's recommender has its minimum then."""
    lacking = []
    if not cpu:
        lacking.append("no CPU data")
        advised = advised._replace(**dict.fromkeys(_OF_CPU))
    if not memory:
        lacking.append("no memory data")
        advised = advised._replace(**dict.fromkeys(_OF_MEMORY))
    return advised, lacking


def _scaled_horizontally(cluster: Cluster) -> dict[Identity, set[tuple[str, str]]]:
    """Workload -> the resources that an HPA scales it by: (resource, container or empty for all of them).

    Without metrics an HPA scales by CPU at 80 %, which the API server fills in. A ScaledObject stands for the HPA that
    KEDA generates, which may not be in the dump; one that is paused has none.
    """
    found: dict[Identity, set[tuple[str, str]]] = {}
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


def _amount(amounts: ResourceList | None, name: str) -> int | None:
    """Millicores or bytes."""
    found = (amounts or {}).get(name)
    return None if found is None else found.milli_value() if name == CPU else found.value()


def _container_advice(item: Workload, name: str, advised: Advised, samples: int, info: list[str]) -> ContainerAdvice:
    resources = item.containers[name].resources
    live = [current_resources(pod, name) for pod in item.pods if any(c.name == name for c in pod.spec.containers)]
    given = live or [(resources.requests, resources.limits)]
    own = {r.container_name: r for r in _status_recommendations(item)} if not item.implied else {}
    compared = (own[name].target or {}) if name in own else {}
    parts = {}
    for resource, fields in ((CPU, _OF_CPU), (MEMORY, _OF_MEMORY)):
        target, target_limit, lower, upper, uncapped = (getattr(advised, field) for field in fields)
        amounts = {_amount(one, resource) for one, _ in given}
        parts[resource] = ResourceAdvice(
            request=_amount(given[0][0], resource),
            requests=sorted(amounts, key=lambda amount: (amount is not None, amount)),
            requested=sum(_amount(one, resource) or 0 for one, _ in live),
            limit=_amount(given[0][1], resource),
            target=target,
            target_limit=target_limit,
            lower_bound=lower,
            upper_bound=upper,
            uncapped_target=uncapped,
            compare=_amount(compared, resource),
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
    cpu.severity = resource_severity(cpu, CPU_STEPS, capped=is_capped(cpu), killed=False)
    memory.severity = resource_severity(memory, MEMORY_STEPS, capped=is_capped(memory), killed=killed)
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


def _requests(advised: Advised) -> ResourceList:
    """Return the requests that are advised."""
    requests: ResourceList = {}
    if advised.cpu_request is not None:
        requests[CPU] = cpu_quantity(advised.cpu_request)
    if advised.memory_request is not None:
        requests[MEMORY] = memory_quantity(advised.memory_request)
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
        capped = cap(vpa, pod, limit_ranges).recommendation
    except CappingError:
        return dict(targets)
    items = () if capped is None else capped.container_recommendations
    return {one.container_name: one.target or {} for one in items}


def _patch(
    item: Workload, name: str, advised: Advised, requests: ResourceList, limit_ranges: LimitRanges
) -> PatchAmounts:
    """The requests and limits of the workload's template that an API server takes, as upstream's admission sets them.

    ``requests``: those that are advised, fitted to the limit ranges. Limits keep their ratio to requests; if the VPA
    controls requests only, a request is at most its limit.
    """
    resources = item.containers[name].resources
    try:
        limit_range = limit_ranges.effective(item.key.namespace, CONTAINER)
    except LimitRangeError:
        limit_range = None
    defaults = None if limit_range is None else limit_range.default
    limits = {**(defaults or {}), **(resources.limits or {})}
    if ContainerPolicies(item.vpa.spec.resource_policy).controlled_values(name) == "RequestsOnly":
        capped = {
            resource: limits[resource] if resource in limits and limits[resource] < amount else amount
            for resource, amount in requests.items()
        }
        return PatchAmounts(cpu_request=_amount(capped, CPU), memory_request=_amount(capped, MEMORY))
    scaled, _ = proportional_limits(resources.limits, resources.requests, requests, defaults)
    new = dict(scaled or {})
    # A limit that the strategy advises goes before one in proportion.
    if advised.cpu_limit is not None:
        new[CPU] = cpu_quantity(max(advised.cpu_limit, _amount(requests, CPU) or 0))
    if advised.memory_limit is not None:
        new[MEMORY] = memory_quantity(max(advised.memory_limit, _amount(requests, MEMORY) or 0))
    return PatchAmounts(
        cpu_request=_amount(requests, CPU),
        cpu_limit=_amount(new, CPU),
        memory_request=_amount(requests, MEMORY),
        memory_limit=_amount(new, MEMORY),
    )


def _status_recommendations(item: Workload) -> list[RecommendedContainerResources]:
    recommendation = item.vpa.status.recommendation
    return recommendation.container_recommendations if recommendation is not None else []
