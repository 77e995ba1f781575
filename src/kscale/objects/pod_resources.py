"""Resource requests of pods, their quality of service, and extended resources that become device requests (Kubernetes
1.37).

Quantities are added exactly; rounding to integers happens once, on the sum of a pod (:func:`to_integers`).

Upstream: ``component-helpers/resource``, ``pkg/apis/core/v1/helper/qos`` and
``plugins/dynamicresources/extendeddynamicresources.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from kscale.objects.api.core import Container, ContainerStatus, Pod, PodSpec, ResourceRequirements
from kscale.objects.api.meta import ResourceList
from kscale.objects.names import qualified_name_errors
from kscale.objects.quantity import Quantity, QuantityError

__all__ = [
    "CPU",
    "DEVICE_CLASS_PREFIX",
    "EPHEMERAL_STORAGE",
    "MEMORY",
    "NON_ZERO",
    "PODS",
    "ExtendedRequest",
    "PodAmounts",
    "clamp_at_zero",
    "container_requests",
    "demand",
    "ignored_resources",
    "is_extended",
    "is_guaranteed",
    "is_hugepages",
    "is_pod_level_resource",
    "is_prefixed_native",
    "is_scalar",
    "is_sidecar",
    "list_extended_requests",
    "non_zero_occupancy",
    "occupancy",
    "pod_amounts",
    "pod_limits",
    "resize_infeasible",
    "to_integers",
    "was_never_resized",
]

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
_FIXED: Final = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
_NATIVE_DOMAIN: Final = "kubernetes.io/"

NON_ZERO: Final[Mapping[str, Quantity]] = {CPU: Quantity("100m"), MEMORY: Quantity(str(200 << 20))}
"""What a scheduler takes a container to ask for that does not say (``DefaultMilliCPURequest``,
``DefaultMemoryRequest``): nodes are compared as if it did."""


# -- names -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 12)
def is_extended(name: str) -> bool:
    """Return whether the resource is an extended resource, such as ``example.com/gpu``."""
    if "/" not in name or _NATIVE_DOMAIN in name or name.startswith("requests."):
        return False
    return not qualified_name_errors(f"requests.{name}")


def is_hugepages(name: str) -> bool:
    """Return whether the resource is huge pages, such as ``hugepages-2Mi``."""
    return name.startswith("hugepages-")


def is_prefixed_native(name: str) -> bool:
    """Return whether the resource's name contains ``kubernetes.io/``."""
    return _NATIVE_DOMAIN in name


@lru_cache(maxsize=1 << 12)
def is_scalar(name: str) -> bool:
    """Return whether the resource is one of the scheduler's scalar resources (upstream: ``IsScalarResourceName``).

    These are extended resources, huge pages, names with ``kubernetes.io/``, and attach limits of volumes. The scheduler
    counts CPU, memory, ephemeral storage and pods as well, but they are not scalar resources.
    """
    return is_extended(name) or is_hugepages(name) or is_prefixed_native(name) or name.startswith("attachable-volumes-")


def ignored_resources(spec: PodSpec) -> Iterator[tuple[str, str]]:
    """Yield (field path, name) of each requested resource that the scheduler does not count, such as ``CPU``."""
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            for name in container.resources.requests or ():
                if name not in _FIXED and not is_scalar(name):
                    yield f"spec.{field}[{index}].resources.requests", name


def is_pod_level_resource(name: str) -> bool:
    """Return whether pod-level requests may contain the resource: it is CPU, memory or huge pages."""
    return name in (CPU, MEMORY) or is_hugepages(name)


def is_sidecar(container: Container) -> bool:
    """Return whether the init container is a sidecar, that is, restartable."""
    return container.restart_policy == "Always"


# -- sums ------------------------------------------------------------------------------------------------------

_RequestsOf = Callable[[Container], Mapping[str, Quantity] | None]
_NONE: Final[Mapping[str, Quantity]] = {}
_ZERO: Final = Quantity("0")


def _add(total: ResourceList, addend: Mapping[str, Quantity] | None) -> None:
    """Add amounts to ``total`` in place."""
    if not total and addend:
        total.update(addend)
        return
    for name, quantity in (addend or {}).items():
        have = total.get(name)
        total[name] = quantity if have is None else have + quantity


def _raise_to_at_least(total: ResourceList, other: Mapping[str, Quantity] | None) -> None:
    """Raise the totals to at least the other amounts, in place."""
    for name, quantity in (other or {}).items():
        have = total.get(name)
        total[name] = quantity if have is None else have.at_least(quantity)


def _get_spec_requests(container: Container) -> ResourceList | None:
    """Return the requests in the spec of a container; None if absent."""
    return container.resources.requests


def container_requests(spec: PodSpec, requests_of: _RequestsOf = _get_spec_requests) -> ResourceList:
    """Return the containers' total request.

    It is the sum of regular containers and sidecars, or the peak while init containers run, whichever is greater per
    resource. Pod-level requests and overhead are not included. ``requests_of`` returns a container's requests.
    """
    total: ResourceList = {}
    for container in spec.containers:
        _add(total, requests_of(container))
    if not spec.init_containers:
        return total
    sidecars: ResourceList = {}
    peak: ResourceList = {}
    for container in spec.init_containers:
        requests = requests_of(container)
        if is_sidecar(container):
            _add(total, requests)
            _add(sidecars, requests)
            _raise_to_at_least(peak, sidecars)
        else:
            phase: ResourceList = {}
            _add(phase, requests)
            _add(phase, sidecars)
            _raise_to_at_least(peak, phase)
    _raise_to_at_least(total, peak)
    return total


def _filter_pod_level(requests: ResourceList | None) -> ResourceList:
    """Return the entries of pod-level ``requests`` that the scheduler counts; others are ignored."""
    return {name: quantity for name, quantity in (requests or {}).items() if is_pod_level_resource(name)}


def _fill_missing(requests_of: _RequestsOf, missing: Mapping[str, Quantity]) -> _RequestsOf:
    """Return a function that returns a container's requests, with the defaults ``missing`` for those not set."""
    if not missing:
        return requests_of
    return lambda container: {**missing, **(requests_of(container) or {})}


def demand(pod: Pod, missing: Mapping[str, Quantity] = _NONE, *, pod_level: bool = True) -> ResourceList:
    """Return the requests of a pending pod, zeros included, with its overhead. Status and limits are ignored.

    Parameters
    ----------
    pod : Pod
    missing : mapping of str to Quantity
        Default request of a container for each resource that it does not request.
    pod_level : bool
        Whether pod-level requests replace those of the containers for the resources that a pod may request as a whole:
        CPU, memory and huge pages.
    """
    spec = pod.spec
    total = container_requests(spec, _fill_missing(_get_spec_requests, missing) if missing else _get_spec_requests)
    if pod_level and spec.resources is not None:
        total.update(_filter_pod_level(spec.resources.requests))
    if spec.overhead:
        _add(total, spec.overhead)
    return total


def occupancy(pod: Pod, missing: Mapping[str, Quantity] = _NONE) -> ResourceList:
    """Return the resources that a placed pod takes from its node.

    Without an in-place resize this is :func:`demand`. After one it is the maximum of the spec's requests, the requests
    that the kubelet has granted, and the requests in effect. The spec does not count if the kubelet has refused the
    resize permanently. ``missing``: as for :func:`demand`.
    """
    if was_never_resized(pod):
        return demand(pod, missing)
    infeasible = resize_infeasible(pod)
    if not _has_status_resources(pod):
        return _get_infeasible_without_status(pod, missing)
    statuses: dict[str, ContainerStatus] = {}
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        statuses.setdefault(status.name, status)

    def granted(container: Container) -> ResourceList | None:
        status = statuses.get(container.name)
        if status is not None and status.allocated_resources is not None:
            return status.allocated_resources
        return None if infeasible else container.resources.requests

    def in_effect(container: Container) -> ResourceList | None:
        status = statuses.get(container.name)
        if status is not None and status.resources is not None and status.resources.requests is not None:
            return status.resources.requests
        return granted(container)

    resources, allocated = pod.status.resources, pod.status.allocated_resources
    total: ResourceList = {} if infeasible else container_requests(pod.spec, _fill_missing(_get_spec_requests, missing))
    # Upstream's order, which matters for amounts beyond 64 bits: a comparison may change their form.
    if allocated is not None and resources is not None and resources.requests is not None:
        _raise_to_at_least(total, resources.requests)
        _raise_to_at_least(total, allocated)
    else:
        _raise_to_at_least(total, container_requests(pod.spec, _fill_missing(in_effect, missing)))
        _raise_to_at_least(total, container_requests(pod.spec, _fill_missing(granted, missing)))
    total.update(_get_effective_pod_level(pod, infeasible))
    _add(total, pod.spec.overhead)
    return total


def pod_limits(pod: Pod) -> ResourceList:
    """Return the limits of a pod, computed like :func:`demand` computes its requests (upstream: ``PodLimits``).

    Resources without a limit are left out. The overhead is added only to limits that are not zero.
    """
    total = container_requests(pod.spec, lambda container: container.resources.limits)
    if pod.spec.resources is not None:
        total.update(_filter_pod_level(pod.spec.resources.limits))
    for name, quantity in (pod.spec.overhead or {}).items():
        if name in total and not total[name].is_zero:
            total[name] = total[name] + quantity
    return total


def was_never_resized(pod: Pod) -> bool:
    """Return whether the status says that the pod was never resized in place.

    :func:`occupancy` is then :func:`demand`.
    """
    return not _has_status_resources(pod) and not resize_infeasible(pod)


def resize_infeasible(pod: Pod) -> bool:
    """Return whether the kubelet has refused a resize permanently.

    Reads the reason of the first ``PodResizePending`` condition; the status of the condition does not count.
    """
    for condition in pod.status.conditions:
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def non_zero_occupancy(pod: Pod) -> tuple[int, int]:
    """Return (CPU in milli-units, memory in bytes) that a scheduler assumes for a placed pod when it scores nodes.

    Missing requests get default values. For a pod with pod-level requests, only resources that the pod-level requests
    do not set get default values (upstream: ``CalculateResource``).
    """
    missing = NON_ZERO
    pod_level = pod.spec.resources.requests if pod.spec.resources is not None else None
    if pod_level is not None and any(map(is_pod_level_resource, pod_level)):
        nonzero = occupancy(pod)
        missing = {name: amount for name, amount in NON_ZERO.items() if name not in nonzero}
    occupied = occupancy(pod, missing)
    return occupied.get(CPU, _ZERO).milli_value(), occupied.get(MEMORY, _ZERO).value()


def _has_status_resources(pod: Pod) -> bool:
    """Return whether the status of the pod or of a container reports resources, as after a resize."""
    status = pod.status
    if status.resources is not None or status.allocated_resources is not None:
        return True
    if not status.container_statuses and not status.init_container_statuses:
        return False
    return any(
        item.resources is not None or item.allocated_resources is not None
        for item in (*status.container_statuses, *status.init_container_statuses)
    )


def _get_infeasible_without_status(pod: Pod, missing: Mapping[str, Quantity]) -> ResourceList:
    """Return the occupancy of a pod whose resize is infeasible, and whose status reports no resources.

    Each container counts with the default requests ``missing`` instead of its own. Pod-level requests and the overhead
    count as usual.
    """
    total = container_requests(pod.spec, lambda _: missing)
    total.update(_get_effective_pod_level(pod, infeasible=True))
    _add(total, pod.spec.overhead)
    return total


def _get_effective_pod_level(pod: Pod, infeasible: bool) -> ResourceList:
    """Return the pod-level requests in effect: the maximum of the spec (unless ``infeasible``) and the status.

    Returns those of the spec if they are empty or the status reports no resources.
    """
    spec = _filter_pod_level(pod.spec.resources.requests) if pod.spec.resources is not None else {}
    if not spec or pod.status.resources is None:
        return spec
    total = {} if infeasible else spec
    _raise_to_at_least(total, _filter_pod_level(pod.status.resources.requests))
    _raise_to_at_least(total, _filter_pod_level(pod.status.allocated_resources))
    return total


# -- integers --------------------------------------------------------------------------------------------------


def to_integers(resources: Mapping[str, Quantity], *, floor: bool = False) -> dict[str, int]:
    """Convert quantities to the scheduler's integers: CPU in milli-units, other resources in units.

    Fractions are rounded away from zero. ``pods`` and resources that the scheduler ignores are dropped. ``floor``
    replaces negative values by 0, as upstream does for the request of a pending pod, but not for placed pods.
    """
    values = {}
    for name, amount in resources.items():
        if name == CPU:
            values[name] = amount.milli_value()
        elif name in _FIXED or is_scalar(name):
            values[name] = amount.value()
    return clamp_at_zero(values) if floor else values


def clamp_at_zero(values: dict[str, int]) -> dict[str, int]:
    """Return the values with 0 in place of negative ones; ``values`` itself if none is negative."""
    if not values or min(values.values()) >= 0:
        return values
    return {name: max(0, value) for name, value in values.items()}


_COUNTED: Final = (CPU, MEMORY)


def is_guaranteed(pod: Pod) -> bool:
    """Return whether the pod's QoS class is ``Guaranteed``: it has CPU and memory limits, and requests equal to them.

    Uses the class in the status if it is set, else the pod-level resources if the pod has any, else the resources of
    all containers and init containers (``GetPodQOS``).
    """
    if pod.status.qos_class:
        return pod.status.qos_class == "Guaranteed"
    pod_level = pod.spec.resources
    if pod_level is not None and (pod_level.requests or pod_level.limits):
        return _is_fixed(pod_level)
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    return bool(containers) and all(_is_fixed(each.resources) for each in containers)


def _is_fixed(resources: ResourceRequirements) -> bool:
    """Return whether CPU and memory have non-zero limits and equal requests. A missing request equals the limit."""
    limits, requests = resources.limits or {}, resources.requests or {}
    return all(
        name in limits and not limits[name].is_zero and requests.get(name, limits[name]) == limits[name]
        for name in _COUNTED
    )


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
    """Return the extended resources of which a pod requests more than 0, sorted by name.

    ``totals``: the pod's requests.
    """
    if totals.keys() <= _ORDINARY:
        return ()
    names = [name for name in totals if _may_be_devices(name) and not totals[name].is_zero]
    return tuple(
        ExtendedRequest(name, totals[name].value(), tuple(_list_device_requests(pod.spec, name)))
        for name in sorted(names)
    )


def _may_be_devices(resource: str) -> bool:
    """Return whether a device class may provide the resource."""
    return is_extended(resource) or resource.startswith(DEVICE_CLASS_PREFIX)


def _list_device_requests(spec: PodSpec, resource: str) -> list[tuple[str, int]]:
    """Return (name, count) of the device requests for one resource.

    Each regular container and sidecar that requests devices has its own request. Init containers run one after the
    other, so they share one request. Its count is the largest that an init container needs in addition to the devices
    of the sidecars and regular containers after it.
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
    """Return how many devices of the resource a container requests; 0 if the amount is not a plain integer."""
    amount = (container.resources.requests or {}).get(resource)
    return (amount.as_int64() or 0) if amount is not None else 0


def _get_request_name(number: int, container: Container, resource: str) -> str:
    """Return upstream's name of the device request of container number ``number``."""
    return f"container-{number}-request-{sorted(container.resources.requests or {}).index(resource)}"


# -- amounts of a pod ------------------------------------------------------------------------------------------


class PodAmounts(msgspec.Struct, frozen=True, gc=False):
    """The amounts of a pod that predicates and the autoscaler read, in the scheduler's integers.

    - ``demand``: of the pending pod; ``occupancy``: what the placed pod takes from its node.
    - ``extended``: requests of extended resources.
    - ``first_request``: the first container's requests of CPU (cores) and memory (bytes) as floats, as upstream reads
      them; None if the pod has no containers, or the first one no requests.
    - ``requested``: CPU and memory of the occupancy in billionths of a core and of a byte.
    """

    demand: dict[str, int]
    extended: tuple[ExtendedRequest, ...]
    occupancy: dict[str, int]
    first_request: tuple[float, float] | None
    requested: tuple[int, int]


def pod_amounts(pod: Pod) -> PodAmounts:
    """Return all amounts of a pod."""
    requests = demand(pod)
    occupied = requests if was_never_resized(pod) else occupancy(pod)
    integers = to_integers(occupied)
    try:
        requested = occupied.get(CPU, _ZERO).billionths(), occupied.get(MEMORY, _ZERO).billionths()
    except QuantityError:  # too large for billionths
        requested = integers.get(CPU, 0) * 10**6, integers.get(MEMORY, 0) * 10**9
    first = pod.spec.containers[0].resources.requests if pod.spec.containers else None
    first_request = None
    if first is not None:
        first_request = first.get(CPU, _ZERO).approximate_float(), first.get(MEMORY, _ZERO).approximate_float()
    return PodAmounts(
        clamp_at_zero(integers) if occupied is requests else to_integers(requests, floor=True),
        list_extended_requests(pod, requests),
        integers,
        first_request,
        requested,
    )
