"""What the admission plugin LimitRanger fills in: requests and limits of containers that state none.

Upstream: ``plugin/pkg/admission/limitranger/admission.go`` (``mergePodResourceRequirements``). Bounds are not enforced
here: :func:`bounds` says whether there are any.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from kscale.objects.base import ResourceList
from kscale.objects.core import Container, LimitRange, PodSpec

__all__ = ["bounds", "with_limit_range_defaults"]


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


def bounds(each: LimitRange) -> bool:
    """Whether the range would refuse some pods: it has a minimum, a maximum or a largest ratio."""
    return any(
        item.type in ("Pod", "Container") and (item.min or item.max or item.max_limit_request_ratio)
        for item in each.spec.limits
    )


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
