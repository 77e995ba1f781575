"""Extended resources that pods request, and the device requests that they become if a device class provides them.

Upstream: ``plugins/dynamicresources/extendeddynamicresources.go`` (Kubernetes 1.37).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kscale.objects.api.core import Container, Pod, PodSpec
from kscale.objects.pod_resources import CPU, EPHEMERAL_STORAGE, MEMORY, is_extended, is_sidecar
from kscale.objects.quantity import Quantity

__all__ = ["DEVICE_CLASS_PREFIX", "ExtendedRequest", "list_extended_requests"]


DEVICE_CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of a device class's implicit resource name."""

_ORDINARY: Final = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})


class ExtendedRequest(NamedTuple):
    """An extended resource that a pod requests.

    ``amount`` is the pod's total as the scheduler's integer, including overhead. ``devices`` are the names and counts
    of the device requests, in no particular order. They may be empty: overhead and amounts that are no plain integers
    request no device.
    """

    resource: str
    amount: int
    devices: tuple[tuple[str, int], ...]


def list_extended_requests(pod: Pod, totals: Mapping[str, Quantity]) -> tuple[ExtendedRequest, ...]:
    """Return the extended resources that a pod requests, sorted by name. ``totals``: the pod's requests."""
    if totals.keys() <= _ORDINARY:
        return ()
    names = [name for name in totals if _may_be_devices(name) and not totals[name].is_zero]
    return tuple(
        ExtendedRequest(name, totals[name].value(), tuple(_list_device_requests(pod.spec, name)))
        for name in sorted(names)
    )


def _may_be_devices(resource: str) -> bool:
    return is_extended(resource) or resource.startswith(DEVICE_CLASS_PREFIX)


def _list_device_requests(spec: PodSpec, resource: str) -> list[tuple[str, int]]:
    """Return (name, count) of the device requests for one resource.

    Regular containers and sidecars have requests of their own. Init containers run one after the other, so they share
    one request, for the devices that they need beyond those of the containers that start later.
    """
    containers = [*spec.init_containers, *spec.containers]
    counts = [_get_count(container, resource) for container in containers]
    ends = [i < len(spec.init_containers) and not is_sidecar(each) for i, each in enumerate(containers)]
    requests = [
        (_get_request_name(i, containers[i], resource), count)
        for i, count in enumerate(counts)
        if count and not ends[i]
    ]
    largest = None
    for i, count in enumerate(counts):
        if not count or not ends[i]:
            continue
        missing = count
        for later in range(i + 1, len(containers)):
            if missing > 0 and not ends[later]:
                missing -= counts[later]
        if missing > 0 and (largest is None or missing > largest[1]):
            largest = _get_request_name(i, containers[i], resource), missing
    return requests if largest is None else [*requests, largest]


def _get_count(container: Container, resource: str) -> int:
    """Return how many devices a container requests; 0 if its amount is not a plain integer."""
    amount = (container.resources.requests or {}).get(resource)
    return (amount.as_int64() or 0) if amount is not None else 0


def _get_request_name(number: int, container: Container, resource: str) -> str:
    return f"container-{number}-request-{sorted(container.resources.requests or {}).index(resource)}"
