"""The right-sizing report as data, and the VPA objects and workload patches built from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

import msgspec

from kscale.errors import InputError
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.decode import to_dict
from kscale.records import Record
from kscale.vpa.controllers import WELL_KNOWN_KINDS
from kscale.vpa.resources import CPU, MEMORY, ResourceTargets, explain_target, to_cpu_quantity, to_memory_quantity

__all__ = [
    "CPU_SEVERITY_STEPS",
    "MEMORY_SEVERITY_STEPS",
    "QUALITIES",
    "SEVERITIES",
    "ContainerAdvice",
    "Effect",
    "PackedPools",
    "PatchAmounts",
    "RecommendationReport",
    "ResourceAdvice",
    "build_patch",
    "build_vpa",
    "get_resource_severity",
    "get_severity",
    "is_capped",
    "sum_requests",
    "with_quality",
]


QUALITIES: Final = ("guaranteed", "burstable")
"""Guaranteed: request = limit = target. Burstable: request = lower bound, limit = upper bound."""
SEVERITIES: Final = ("unknown", "good", "ok", "warning", "critical")
"""Severities in ascending order; ``unknown`` without advice."""
CPU_SEVERITY_STEPS: Final = ((500, "critical"), (250, "warning"), (100, "ok"))
MEMORY_SEVERITY_STEPS: Final = ((500 << 20, "critical"), (250 << 20, "warning"), (100 << 20, "ok"))


class ResourceAdvice(msgspec.Struct, kw_only=True, rename="camel"):
    """One resource of one container: CPU in milli-cores, memory in bytes.

    Attributes
    ----------
    request : int or None
        Request of the first live pod, or else of the pod template. None: not set.
    requests : list of int or None
        Distinct requests of the live pods, or else of the pod template: null (not set) first, then ascending.
    requested : int
        Sum of the requests of all live pods. A pod without a request counts as 0.
    limit : int or None
        Limit of the first live pod, or else of the pod template. None: not set.
    target : int or None
        Advised request. None: no advice.
    target_limit : int or None
        Advised limit. None: no advice.
    lower_bound : int or None
        Lower bound of the recommendation. None: no advice, or the strategy has no bounds.
    upper_bound : int or None
        Upper bound of the recommendation. None: no advice, or the strategy has no bounds.
    uncapped_target : int or None
        The target before policies; only of upstream's recommender. None: unknown.
    minimum : int or None
        The container's share of the minimum of a pod; only of upstream's recommender. None: no advice.
    compare : int or None
        The target in the status of the dump's own VPA. None: none.
    severity : str
        How far the requests are from the target: ``unknown`` (no advice), ``good``, ``ok``, ``warning`` or
        ``critical``.
    """

    request: int | None = None
    requests: list[int | None] = []
    requested: int = 0
    limit: int | None = None
    target: int | None = None
    target_limit: int | None = None
    lower_bound: int | None = None
    upper_bound: int | None = None
    uncapped_target: int | None = None
    minimum: int | None = None
    compare: int | None = None
    severity: str = "unknown"


class PatchAmounts(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """Amounts that a patch of the workload sets. None: unchanged.

    A request is the target, at most the limit if the VPA controls requests only. Otherwise the limit is the one that
    the strategy advises, or it is scaled in proportion to the request as upstream does.

    Attributes
    ----------
    cpu_request : int or None
        CPU request, in milli-cores.
    cpu_limit : int or None
        CPU limit, in milli-cores.
    memory_request : int or None
        Memory request, in bytes.
    memory_limit : int or None
        Memory limit, in bytes.
    """

    cpu_request: int | None = None
    cpu_limit: int | None = None
    memory_request: int | None = None
    memory_limit: int | None = None


class ContainerAdvice(msgspec.Struct, kw_only=True, rename="camel"):
    """One container of a workload.

    Attributes
    ----------
    namespace : str
        Namespace of the workload.
    workload : str
        The workload as ``Kind/name``.
    api_version : str
        API version of the workload.
    container : str
        Name of the container.
    vpa : str
        Name of the VPA that recommends, or of the implied one.
    implied : bool
        Whether there is no such VPA in the input, and one was assumed.
    pods : int
        Number of live pods with this container.
    samples : int
        Number of CPU samples.
    cpu : ResourceAdvice
        CPU, in milli-cores.
    memory : ResourceAdvice
        Memory, in bytes.
    severity : str
        The worse severity of both resources.
    info : list of str
        Notes such as ``no data``, ``old data``, ``OOM`` or ``CPU capped``.
    patch : PatchAmounts
        Amounts that a patch of the workload sets.
    """

    namespace: str
    workload: str
    api_version: str
    container: str
    vpa: str
    implied: bool
    pods: int
    samples: int
    cpu: ResourceAdvice
    memory: ResourceAdvice
    severity: str = "unknown"
    info: list[str] = []
    patch: PatchAmounts = PatchAmounts()


class PackedPools(msgspec.Struct, kw_only=True, rename="camel"):
    """The cheapest mix found of the cluster's own node groups for all running pods, as if the cluster were built anew.

    Attributes
    ----------
    cost : float
        Price of the nodes per hour.
    bound : float or None
        Lower bound: no mix costs less per hour. None: the bound does not cover the same pods.
    nodes : dict of str to int
        Number of nodes by node group.
    unschedulable_count : int
        Number of pods that fit on none of the node groups.
    millicores : int
        CPU requests of all pods, in milli-cores.
    bytes : int
        Memory requests of all pods, in bytes.
    """

    cost: float
    bound: float | None
    nodes: dict[str, int]
    unschedulable_count: int
    millicores: int
    bytes: int


class Effect(msgspec.Struct, kw_only=True, rename="camel"):
    """Number of nodes of one shape that the running pods would need when packed, before and after the change of
    requests.

    Attributes
    ----------
    node : str
        Name of the node whose shape counts. Empty: there is no node.
    pods : int
        Number of pods.
    nodes_before, nodes_after : int
        Number of nodes.
    homeless_before, homeless_after : int
        Number of pods that fit on no empty node of that shape.
    no_longer_fit : list of str
        Pods that fit before, but not after, as ``namespace/name``.
    node_price : float or None
        Price of such a node per hour, in the currency of its source. None: unknown.
    saved_per_hour : float or None
        Decrease of the price of the nodes per hour; negative if it increases. None: the price is unknown.
    pools_before, pools_after : PackedPools or None
        The cheapest mix of the cluster's own node groups. None: some of them have no price.
    """

    node: str = ""
    pods: int = 0
    nodes_before: int = 0
    nodes_after: int = 0
    homeless_before: int = 0
    homeless_after: int = 0
    no_longer_fit: list[str] = []
    node_price: float | None = None
    saved_per_hour: float | None = None
    pools_before: PackedPools | None = None
    pools_after: PackedPools | None = None


class RecommendationReport(Record, frozen=True):
    """Recommended requests of containers, and the total change.

    Attributes
    ----------
    strategy : str
        Name of the strategy; ``vpa`` is upstream's recommender.
    now : str or None
        Time of the recommendation (RFC 3339): that of the last sample unless another was requested. None: there are no
        samples.
    containers : list of ContainerAdvice
        Containers of the selected workloads, by namespace, kind and name of the workload, with and without advice.
    requested_millicores : int
        CPU requests of their live pods, in milli-cores. A container without a request counts as 0.
    requested_bytes : int
        Memory requests of their live pods, in bytes. A container without a request counts as 0.
    change_millicores : int
        Change of ``requested_millicores``; negative: less is requested. Containers without advice count as unchanged.
    change_bytes : int
        Change of ``requested_bytes``; negative: less is requested. Containers without advice count as unchanged.
    counts : dict of str to int
        Number of samples and pods by what happened to them.
    notes : list of str
        Texts on possible problems: selected objects that do not exist, doubtful times, targets that cannot be resolved,
        what upstream logs.
    quality : str
        Quality of service of requests and limits: ``guaranteed`` or ``burstable``. Empty: not requested.
    effect : Effect or None
        Effect on the number of nodes. None: not requested.
    method : dict of str to str
        Method by which the strategy computes the target, by resource.
    """

    KIND: ClassVar[str] = "RecommendationReport"
    ROWS: ClassVar[str] = "containers"

    strategy: str
    now: str | None
    containers: list[ContainerAdvice]
    requested_millicores: int
    requested_bytes: int
    change_millicores: int
    change_bytes: int
    counts: dict[str, int]
    notes: list[str]
    quality: str = ""
    effect: Effect | None = None
    method: dict[str, str] = msgspec.field(default_factory=dict)

    def explain(self, name: str) -> str:
        """Explain in one line how the targets of a workload's containers result from percentile, minimum and policy.

        ``name``: ``namespace/Kind/name`` of the workload, or ``namespace/Kind/name/container`` for one container.
        Raises InputError if this report lacks it.
        """
        texts = [
            _explain_container(item, self)
            for item in self.containers
            if name in (place := f"{item.namespace}/{item.workload}", f"{place}/{item.container}")
        ]
        if not texts:
            raise InputError(f"no workload or container {name!r} in this report")
        return "; ".join(texts)

    def summary(self) -> str:
        """Return the number of containers, and the change of the requests of all live pods."""
        return (
            f"{len(self.containers):,} containers, cpu {self.change_millicores / 1000:+,.3g} cores of "
            f"{self.requested_millicores / 1000:,.4g}, memory {self.change_bytes / 2**30:+,.3g} GiB of "
            f"{self.requested_bytes / 2**30:,.4g}"
        )


def _explain_container(item: ContainerAdvice, report: RecommendationReport) -> str:
    """Explain the targets of one container, its samples, its VPA and its notes in one text."""
    parts = []
    burstable = report.quality == "burstable"
    for resource, advice in ((CPU, item.cpu), (MEMORY, item.memory)):
        amounts = ResourceTargets(
            target=advice.target,
            uncapped=None if burstable else advice.uncapped_target,
            lower=advice.lower_bound,
            upper=advice.upper_bound,
            minimum=None if burstable else advice.minimum,
        )
        method = report.method
        if burstable and advice.lower_bound is not None:
            method = {resource: "the lower bound, as the quality of service is burstable"}
        parts.append(explain_target(resource, amounts, method))
    parts.append(f"{item.samples:,} samples, VPA {item.vpa}{' (implied)' if item.implied else ''}")
    return f"{item.container}: {'; '.join([*parts, *item.info])}"


def get_severity(current: Iterable[int | None], target: int | None, steps: Sequence[tuple[int, str]]) -> str:
    """Return how far the ``current`` requests are from the target; of several requests the worst counts.

    ``unknown`` without target; ``warning`` if a request is missing or there are no requests. ``steps``: (minimum
    difference, severity), largest first.
    """
    if target is None:
        return "unknown"
    severities = [
        "warning" if one is None else next((name for minimum, name in steps if abs(one - target) >= minimum), "good")
        for one in current
    ]
    return max(severities, key=SEVERITIES.index, default="warning")


def get_resource_severity(
    resource: ResourceAdvice, steps: Sequence[tuple[int, str]], *, capped: bool, killed: bool
) -> str:
    """Return the severity of one resource of a container, raised by the container's state.

    ``capped``: a policy keeps the target below the usage, which is at least a warning. ``killed``: the container was
    killed for lack of this resource, so a target that is not above every current request is critical.
    """
    severity = get_severity(resource.requests, resource.target, steps)
    if resource.target is None:
        return severity
    if killed and any(one is not None and resource.target <= one for one in resource.requests):
        return "critical"
    return max(severity, "warning", key=SEVERITIES.index) if capped else severity


def is_capped(resource: ResourceAdvice) -> bool:
    """Check whether a policy keeps the target below the uncapped target. False if one of the two is unknown."""
    return None not in (resource.target, resource.uncapped_target) and resource.target < resource.uncapped_target  # type: ignore[operator]  # not None


def sum_requests(containers: Iterable[ContainerAdvice]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the current requests of all live pods, and their change by the advice, each as (millicores, bytes).

    Containers without advice count as unchanged.
    """
    requested, change = [0, 0], [0, 0]
    for one in containers:
        for i, resource in enumerate((one.cpu, one.memory)):
            requested[i] += resource.requested
            if resource.target is not None:
                change[i] += resource.target * one.pods - resource.requested
    return (requested[0], requested[1]), (change[0], change[1])


def with_quality(report: RecommendationReport, quality: str) -> RecommendationReport:
    """Return the report with the requests and limits of a quality of service, one of :data:`QUALITIES`.

    Guaranteed uses the target as request and limit. Burstable uses the bounds: the lower one as the request, the upper
    one as the limit. Without bounds (a strategy other than ``vpa``) it keeps the target and its limit. Severities,
    patches and sums are computed again.
    """
    containers = []
    for one in report.containers:
        both = []
        for resource, steps in ((one.cpu, CPU_SEVERITY_STEPS), (one.memory, MEMORY_SEVERITY_STEPS)):
            target, limit = resource.target, resource.target
            if quality == "burstable":
                target = resource.target if resource.lower_bound is None else resource.lower_bound
                limit = resource.target_limit if resource.upper_bound is None else resource.upper_bound
            replaced = msgspec.structs.replace(
                resource,
                target=target,
                target_limit=limit,
            )
            killed = resource is one.memory and "OOM" in one.info
            replaced.severity = get_resource_severity(replaced, steps, capped=is_capped(resource), killed=killed)
            both.append(replaced)
        worst = max((both[0].severity, both[1].severity), key=SEVERITIES.index)
        patch = _build_quality_patch(both[0], both[1], one.patch)
        containers.append(msgspec.structs.replace(one, cpu=both[0], memory=both[1], severity=worst, patch=patch))
    _, change = sum_requests(containers)
    return msgspec.structs.replace(
        report, containers=containers, quality=quality, change_millicores=change[0], change_bytes=change[1]
    )


def _build_quality_patch(cpu: ResourceAdvice, memory: ResourceAdvice, before: PatchAmounts) -> PatchAmounts:
    """Build the patch of a quality of service from its requests and limits.

    ``before``: the patch with the strategy's amounts; its limit is used for a resource without a limit. Limits are at
    least the requests.
    """

    def limit(resource: ResourceAdvice, otherwise: int | None) -> int | None:
        """Return the limit of a resource (``otherwise`` without one), at least the request."""
        limit = resource.target_limit if resource.target_limit is not None else otherwise
        return limit if limit is None or resource.target is None else max(limit, resource.target)

    return PatchAmounts(
        cpu_request=cpu.target,
        cpu_limit=limit(cpu, before.cpu_limit),
        memory_request=memory.target,
        memory_limit=limit(memory, before.memory_limit),
    )


def _format_amounts(millicores: int | None, size: int | None) -> dict[str, str]:
    """Return the amounts (millicores, bytes) as quantity texts by resource, without those that are None."""
    amounts = {}
    if millicores is not None:
        amounts[CPU] = str(to_cpu_quantity(millicores))
    if size is not None:
        amounts[MEMORY] = str(to_memory_quantity(size))
    return amounts


def build_vpa(advice: Sequence[ContainerAdvice], own: VerticalPodAutoscaler | None = None) -> dict[str, Any] | None:
    """Build a VerticalPodAutoscaler with the advice for one workload's containers in its status.

    None if no entry has a target. ``advice``: at least one entry; those without a target are left out. ``own``: the
    workload's VPA in the cluster, whose spec is kept, so that applying the object does not disable it. Without one the
    object has update mode Off.
    """
    first = advice[0]
    kind, _, name = first.workload.partition("/")
    recommendations = []
    for one in advice:
        lists = {
            "target": _format_amounts(one.cpu.target, one.memory.target),
            "lowerBound": _format_amounts(one.cpu.lower_bound, one.memory.lower_bound),
            "upperBound": _format_amounts(one.cpu.upper_bound, one.memory.upper_bound),
            "uncappedTarget": _format_amounts(one.cpu.uncapped_target, one.memory.uncapped_target),
        }
        if lists["target"]:
            filled = {field: values for field, values in lists.items() if values}
            recommendations.append({"containerName": one.container, **filled})
    if not recommendations:
        return None
    spec: dict[str, Any] = {
        "targetRef": {"apiVersion": first.api_version, "kind": kind, "name": name},
        "updatePolicy": {"updateMode": "Off"},
    }
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": first.vpa, "namespace": first.namespace},
        "spec": spec if own is None else to_dict(own.spec),
        "status": {"recommendation": {"containerRecommendations": recommendations}},
    }


def build_patch(advice: Sequence[ContainerAdvice]) -> dict[str, Any] | None:
    """Build a strategic merge patch with the requests and matching limits of one workload's containers.

    ``advice``: at least one entry; those without amounts to patch are left out. None if no entry is left, and for a
    custom kind, whose lists would be replaced instead of merged.
    """
    if advice[0].workload.partition("/")[0] not in WELL_KNOWN_KINDS:
        return None
    first = advice[0]
    kind, _, name = first.workload.partition("/")
    containers = []
    for one in advice:
        requests = _format_amounts(one.patch.cpu_request, one.patch.memory_request)
        limits = _format_amounts(one.patch.cpu_limit, one.patch.memory_limit)
        resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
        if resources:
            containers.append({"name": one.container, "resources": resources})
    if not containers:
        return None
    template: dict[str, Any] = {"template": {"spec": {"containers": containers}}}
    spec = {"jobTemplate": {"spec": template}} if kind == "CronJob" else template
    return {
        "apiVersion": first.api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": first.namespace},
        "spec": spec,
    }
