"""A recommendation fitted to one pod: limit ranges, policy, the pod's own limits (``pkg/utils/vpa/capping.go``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kscale.errors import KscaleError
from kscale.objects.base import ResourceList
from kscale.objects.core import LimitRangeItem, Pod
from kscale.objects.quantity import Quantity
from kscale.objects.vpa import (
    ContainerPolicies,
    ContainerResourcePolicy,
    RecommendedContainerResources,
    RecommendedPodResources,
    VerticalPodAutoscaler,
)
from kscale.vpa.limit_range import CONTAINER, POD, LimitRangeError, LimitRangeLookup, NoLimitRanges
from kscale.vpa.proportional import boundary_request, limit_for, scale
from kscale.vpa.resources import CPU, MEMORY, CurrentResources, resource_order

__all__ = ["Capped", "CappingError", "apply_pod_limit_range", "cap"]

_ZERO: Final = Quantity.zero()
_FIELDS: Final = ("upper_bound", "target", "lower_bound")


class CappingError(KscaleError, ValueError):
    """A recommendation that could not be fitted, with upstream's text."""


class Capped(NamedTuple):
    """The fitted recommendation, notes per container, and what upstream would have crashed on."""

    recommendation: RecommendedPodResources | None
    notes: dict[str, list[str]]
    diagnostics: list[str]


def cap(vpa: VerticalPodAutoscaler | None, pod: Pod | None, limit_ranges: LimitRangeLookup | None = None) -> Capped:
    """``cappingRecommendationProcessor.Apply``; raises :class:`CappingError`.

    With a limit range for pods, containers without recommendation show up in the result with their own requests.
    Where upstream would write into a missing list of bounds, that container's field stays as it is and a diagnostic
    says so.
    """
    if vpa is None:
        raise CappingError("cannot process nil vpa")
    if pod is None:
        raise CappingError("cannot process nil pod")
    lookup = limit_ranges or NoLimitRanges()
    recommendation, policy = vpa.status.recommendation, vpa.spec.resource_policy
    if recommendation is None and policy is None:
        return Capped(None, {}, [])
    recommended = recommendation.container_recommendations if recommendation is not None else ()
    # A VPA may have thousands of entries, and each of its pods is a review of its own: only the pod's are copied.
    names = {container.name for container in pod.spec.containers}
    items = [_copy(item) for item in recommended if item.container_name in names]
    diagnostics: list[str] = []
    try:
        pod_item = lookup.effective(pod.namespace, POD)
    except LimitRangeError as error:
        raise CappingError(f"error obtaining limit range: {error}") from None
    if pod_item is not None:
        items += _unrecommended(pod, items)
        for field in _FIELDS:
            for resource in (CPU, MEMORY):
                diagnostics += apply_pod_limit_range(items, pod, pod_item, resource, field)
    notes: dict[str, list[str]] = {}
    current, policies = CurrentResources(pod), ContainerPolicies(policy)
    for item in items:
        try:
            container_item = lookup.effective(pod.namespace, CONTAINER)
        except LimitRangeError as error:
            diagnostics.append(f"failed to fetch LimitRange for {pod.namespace} namespace: {error}")
            container_item = None
        notes[item.container_name] = _cap_container(item, current.get(item.container_name), policies, container_item)
    return Capped(RecommendedPodResources(container_recommendations=items), notes, diagnostics)


def _copy(item: RecommendedContainerResources) -> RecommendedContainerResources:
    def copied(resources: ResourceList | None) -> ResourceList | None:
        return None if resources is None else dict(resources)

    return RecommendedContainerResources(
        container_name=item.container_name,
        target=copied(item.target),
        lower_bound=copied(item.lower_bound),
        upper_bound=copied(item.upper_bound),
        uncapped_target=copied(item.uncapped_target),
    )


# -- the limit range of the whole pod --------------------------------------------------------------------------


def _unrecommended(pod: Pod, items: Sequence[RecommendedContainerResources]) -> list[RecommendedContainerResources]:
    """Entries for the containers that have requests but no recommendation."""
    known, current = {item.container_name for item in items}, CurrentResources(pod)
    entries = []
    for container in pod.spec.containers:
        requests = current.requests(container.name)
        if container.name not in known and requests:
            entries.append(RecommendedContainerResources(container_name=container.name, target=dict(requests)))
    return entries


def apply_pod_limit_range(
    items: Sequence[RecommendedContainerResources], pod: Pod, limits: LimitRangeItem, resource: str, field: str
) -> list[str]:
    """Scale one resource of one field (``target``, ``lower_bound``, ``upper_bound``) of all containers, in place.

    The sum of their limits is brought between minimum and maximum of the pod's limit range, the sum of their requests
    above the minimum. Diagnostics come back.
    """
    low = (limits.min or {}).get(resource, _ZERO)
    high = (limits.max or {}).get(resource, _ZERO)
    default = (limits.default or {}).get(resource, _ZERO)
    by_name: dict[str, RecommendedContainerResources] = {}
    for item in items:
        by_name.setdefault(item.container_name, item)
    sum_limit = sum_recommended = _ZERO
    current = CurrentResources(pod)
    for container in pod.spec.containers:
        requests, container_limits = current.get(container.name)
        request = (requests or {}).get(resource, _ZERO)
        found = by_name.get(container.name)
        recommended = request if found is None else (getattr(found, field) or {}).get(resource, _ZERO)
        own = (container_limits or {}).get(resource, _ZERO)
        limit, _ = limit_for(resource, own, request, recommended, default)
        if limit is not None:
            sum_limit = sum_limit + limit
        sum_recommended = sum_recommended + recommended
    enough = not sum_limit < low and not sum_recommended < low
    if enough and (high.is_zero or not high < sum_limit):
        return []
    if sum_recommended < low and not sum_limit.is_zero:
        return _scale_all(by_name, pod, resource, field, sum_recommended, low, "up")
    if sum_limit.is_zero:
        return []
    wanted = low if sum_limit < low else _ZERO
    if not high.is_zero and high < sum_limit:
        wanted = high
    return _scale_all(by_name, pod, resource, field, sum_limit, wanted, "down")


def _scale_all(
    by_name: dict[str, RecommendedContainerResources],
    pod: Pod,
    resource: str,
    field: str,
    base: Quantity,
    wanted: Quantity,
    mode: str,
) -> list[str]:
    diagnostics = []
    for container in pod.spec.containers:
        item = by_name.get(container.name)
        values: ResourceList | None = None if item is None else getattr(item, field)
        if values is None:
            what = "no recommendation" if item is None else f"no {field}"
            diagnostics.append(
                f"container {container.name} has {what} to fit into the limit range of the pod ({resource}); left out"
            )
            continue
        values[resource] = scale(resource, values.get(resource, _ZERO), base, wanted, mode)[0]
    return diagnostics


# -- one container ---------------------------------------------------------------------------------------------


def _cap_container(
    item: RecommendedContainerResources,
    current: tuple[ResourceList | None, ResourceList | None],
    policies: ContainerPolicies,
    limits: LimitRangeItem | None,
) -> list[str]:
    own_policy = policies.get(item.container_name)
    requests_only = policies.controlled_values(item.container_name) == "RequestsOnly"
    bounds = _container_bounds(current, limits)
    notes: list[str] = []
    for values in (item.target, item.lower_bound, item.upper_bound):
        if values is None:
            continue
        said = _apply_container_limit_range(values, bounds)
        said += _apply_policy(values, own_policy)
        if requests_only:
            said += _cap_to_limit(values, current[1])
        if values is item.target:
            notes = said
    return notes


def _container_bounds(
    current: tuple[ResourceList | None, ResourceList | None], limits: LimitRangeItem | None
) -> dict[str, tuple[Quantity, Quantity]]:
    """Resource -> (least, most) request that the limit range of containers allows; zero = no bound."""
    if limits is None:
        return {}
    bounds = {}
    for name in (CPU, MEMORY):
        request, limit = ((values or {}).get(name, _ZERO) for values in current)
        default = (limits.default or {}).get(name, _ZERO)

        def boundary(
            given: ResourceList | None,
            name: str = name,
            request: Quantity = request,
            limit: Quantity = limit,
            default: Quantity = default,
        ) -> Quantity:
            if given is None:
                return _ZERO
            return boundary_request(name, request, limit, given.get(name, _ZERO), default)

        least, most = boundary(limits.min), boundary(limits.max)
        plain = (limits.min or {}).get(name, _ZERO)
        bounds[name] = (max(least, plain), most)
    return bounds


def _apply_container_limit_range(values: ResourceList, bounds: dict[str, tuple[Quantity, Quantity]]) -> list[str]:
    notes = []
    for name in resource_order(values):
        least, most = bounds.get(name, (_ZERO, _ZERO))
        if not least.is_zero and values[name] < least:
            values[name] = least
            notes.append(f"{name} capped to fit Min in container LimitRange")
        if not most.is_zero and most < values[name]:
            values[name] = most
            notes.append(f"{name} capped to fit Max in container LimitRange")
    return notes


def _apply_policy(values: ResourceList, policy: ContainerResourcePolicy | None) -> list[str]:
    if policy is None:
        return []
    notes = []
    for name in resource_order(values):
        least, most = (policy.min_allowed or {}).get(name, _ZERO), (policy.max_allowed or {}).get(name, _ZERO)
        if not least.is_zero and values[name] < least:
            values[name] = least
            notes.append(f"{name} capped to minAllowed")
        if not most.is_zero and most < values[name]:
            values[name] = most
            notes.append(f"{name} capped to maxAllowed")
    return notes


def _cap_to_limit(values: ResourceList, limits: ResourceList | None) -> list[str]:
    notes = []
    for name in resource_order(limits or {}):
        limit = (limits or {})[name]
        if name in values and values[name].milli_value() > limit.milli_value():
            values[name] = limit
            notes.append(f"{name} capped to container limit")
    return notes
