"""The admission plugin LimitRanger: what it fills in for containers that state none, and what it refuses.

Upstream: ``plugin/pkg/admission/limitranger/admission.go`` (``mergePodResourceRequirements``,
``PodValidateLimitFunc``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from kscale.objects.base import ResourceList
from kscale.objects.core import Container, LimitRange, LimitRangeItem, PodSpec, ResourceRequirements
from kscale.objects.quantity import Quantity
from kscale.objects.requests import CPU, MEMORY, container_requests

__all__ = ["refusal", "with_limit_range_defaults"]


def with_limit_range_defaults(spec: PodSpec, ranges: Iterable[LimitRange]) -> PodSpec:
    """The spec with the defaults of the limit ranges of its namespace, one range after the other."""
    for each in ranges:
        requests, limits = _defaults(each)
        if requests or limits:
            spec = replace(
                spec,
                containers=[_merged(item, requests, limits) for item in spec.containers],
                init_containers=[_merged(item, requests, limits) for item in spec.init_containers],
            )
    return spec


def refusal(spec: PodSpec, ranges: Iterable[LimitRange]) -> str:
    """Why LimitRanger would not let the pod in, of the first range (by name) that it breaks; empty where it would.

    ``spec``: with the defaults of the ranges. Several errors of one range stand in brackets, as Go joins them, by kind
    of bound and name of resource where upstream follows the order of a map.
    """
    for each in sorted(ranges, key=lambda item: item.name):
        errors: dict[str, None] = {}
        for item in each.spec.limits:
            errors |= dict.fromkeys(_broken(item, spec))
        if errors:
            return next(iter(errors)) if len(errors) == 1 else f"[{', '.join(errors)}]"
    return ""


def _broken(item: LimitRangeItem, spec: PodSpec) -> Iterator[str]:
    if item.type == "Container":
        for container in (*spec.containers, *spec.init_containers):
            yield from _errors(item, container.resources.requests or {}, container.resources.limits or {})
    elif item.type == "Pod":
        own = spec.resources or ResourceRequirements()
        requests = container_requests(spec) | _of_pod(own.requests)
        limits = container_requests(spec, lambda container: container.resources.limits) | _of_pod(own.limits)
        yield from _errors(item, requests, limits)


def _of_pod(resources: ResourceList | None) -> ResourceList:
    """What is said at the level of the pod instead of adding up its containers."""
    return {name: amount for name, amount in (resources or {}).items() if name in (CPU, MEMORY)}


def _errors(item: LimitRangeItem, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    for check, enforced in ((_minimum, item.min), (_maximum, item.max), (_ratio, item.max_limit_request_ratio)):
        for name, bound in sorted((enforced or {}).items()):
            error = check(f"{name} {{}} per {item.type} is {bound}", bound, requests.get(name), limits.get(name))
            if error:
                yield error


def _minimum(text: str, bound: Quantity, request: Quantity | None, limit: Quantity | None) -> str:
    text = f"minimum {text.format('usage')}"
    if request is None:
        return f"{text}.  No request is specified"
    if request < bound:
        return f"{text}, but request is {request}"
    return f"{text}, but limit is {limit}" if limit is not None and limit < bound else ""


def _maximum(text: str, bound: Quantity, request: Quantity | None, limit: Quantity | None) -> str:
    text = f"maximum {text.format('usage')}"
    if limit is None:
        return f"{text}.  No limit is specified"
    if bound < limit:
        return f"{text}, but limit is {limit}"
    return f"{text}, but request is {request}" if request is not None and bound < request else ""


def _ratio(text: str, bound: Quantity, request: Quantity | None, limit: Quantity | None) -> str:
    text = text.format("max limit to request ratio")
    if request is None or request.is_zero:
        return f"{text}, but no request is specified or request is 0"
    if limit is None or limit.is_zero:
        return f"{text}, but no limit is specified or limit is 0"
    ratio = limit.as_fraction() / request.as_fraction()
    return f"{text}, but provided ratio is {float(ratio):f}" if ratio > bound.as_fraction() else ""


def _defaults(each: LimitRange) -> tuple[ResourceList, ResourceList]:
    """(requests, limits) for a container; a later item of the range wins."""
    requests: ResourceList = {}
    limits: ResourceList = {}
    for item in each.spec.limits:
        if item.type == "Container":
            requests |= item.default_request or {}
            limits |= item.default or {}
    return requests, limits


def _merged(container: Container, requests: ResourceList, limits: ResourceList) -> Container:
    own = container.resources
    return replace(
        container,
        resources=replace(
            own,
            requests={**requests, **(own.requests or {})} or own.requests,
            limits={**limits, **(own.limits or {})} or own.limits,
        ),
    )
