"""The requests and limits that a pod's containers are to get (``admission-controller/resource/pod/recommendation``)."""

from __future__ import annotations

from typing import NamedTuple

from kscale.errors import KscaleError
from kscale.objects.base import ResourceList
from kscale.objects.core import LimitRangeItem, Pod
from kscale.objects.vpa import (
    ContainerPolicies,
    PodResourcePolicy,
    RecommendedPodResources,
    VerticalPodAutoscaler,
    update_mode,
)
from kscale.vpa.capping import cap
from kscale.vpa.limit_range import CONTAINER, LimitRangeError, LimitRangeLookup, NoLimitRanges
from kscale.vpa.proportional import proportional_limits
from kscale.vpa.resources import CPU, MEMORY, CurrentResources

__all__ = ["ContainerResources", "ContainersResources", "ProviderError", "containers_resources", "resources_of"]


class ProviderError(KscaleError, ValueError):
    """No answer, with upstream's text."""


class ContainerResources(NamedTuple):
    """What one container is to get; None = nothing is said."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None


class ContainersResources(NamedTuple):
    """One entry for each container of the pod in its order, notes per container, and diagnostics."""

    containers: list[ContainerResources]
    notes: dict[str, list[str]]
    diagnostics: list[str]


def containers_resources(
    pod: Pod, vpa: VerticalPodAutoscaler, limit_ranges: LimitRangeLookup | None = None
) -> ContainersResources:
    """``GetContainersResourcesForPod``: the recommendation fitted to the pod, with the limits that go with it.

    Raises :class:`kscale.vpa.capping.CappingError` and :class:`ProviderError`.
    """
    lookup = limit_ranges or NoLimitRanges()
    recommendation: RecommendedPodResources | None = RecommendedPodResources()
    notes: dict[str, list[str]] = {}
    diagnostics: list[str] = []
    if vpa.status.recommendation is not None:
        recommendation, notes, diagnostics = cap(vpa, pod, lookup)
    try:
        item = lookup.effective(pod.namespace, CONTAINER)
    except LimitRangeError as error:
        raise ProviderError(f"error getting containerLimitRange: {error}") from None
    policy = None if update_mode(vpa) == "Off" else vpa.spec.resource_policy
    containers = resources_of(pod, policy, recommendation or RecommendedPodResources(), item, notes)
    return ContainersResources(containers, notes, diagnostics)


def resources_of(
    pod: Pod,
    policy: PodResourcePolicy | None,
    recommendation: RecommendedPodResources,
    limits: LimitRangeItem | None,
    notes: dict[str, list[str]],
    *,
    add_all: bool = False,
) -> list[ContainerResources]:
    """``GetContainersResources``: nothing is capped here; notes on limits are added to ``notes``.

    ``add_all``: also containers without recommendation, and what a recommendation does not name is filled in from the
    container.
    """
    targets: dict[str, ResourceList | None] = {}
    for item in recommendation.container_recommendations:
        targets.setdefault(item.container_name, item.target)
    current, policies = CurrentResources(pod), ContainerPolicies(policy)
    result = []
    for container in pod.spec.containers:
        if container.name not in targets and not add_all:
            result.append(ContainerResources())
            continue
        current_requests, current_limits = current.get(container.name)
        target = targets.get(container.name, current_requests)
        requests = None if target is None else {name: amount for name, amount in target.items() if name}
        own_limits: ResourceList | None = None
        if policies.controlled_values(container.name) == "RequestsAndLimits":
            defaults = limits.default if limits is not None else None
            own_limits, said = proportional_limits(current_limits, current_requests, requests, defaults)
            if own_limits is not None and said:
                notes.setdefault(container.name, []).extend(said)
        if add_all:
            requests = _filled(requests, current_requests)
            own_limits = _filled(own_limits, current_limits)
        result.append(ContainerResources(requests, own_limits))
    return result


def _filled(values: ResourceList | None, current: ResourceList | None) -> ResourceList | None:
    missing: ResourceList = {name: (current or {})[name] for name in (CPU, MEMORY) if name in (current or {})}
    if not missing:
        return values
    return {**missing, **(values or {})}
