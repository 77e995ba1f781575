"""Resource claims of pods: which are allocated, which need devices, and whether allocated devices suit a node; the
devices of nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from datetime import timedelta
from functools import cached_property

import msgspec

from kscale.objects.api.meta import Condition, ObjectMeta
from kscale.objects.api.resource import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceRequestAllocationResult,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceSlice,
)
from kscale.objects.node_selectors import compile_node_selector
from kscale.objects.pod_resources import DEVICE_CLASS_PREFIX, ExtendedRequest
from kscale.objects.times import duration, moment_in
from kscale.scheduling.devices.allocator import Allocator
from kscale.scheduling.devices.inventory import Inventory
from kscale.scheduling.profile import Context, NodeFacts
from kscale.snapshot.classes.interner import PodClass

__all__ = [
    "EXTENDED_CLAIM",
    "MAX_CONSUMERS",
    "ClaimError",
    "ClaimRequests",
    "Claims",
    "Devices",
    "available",
    "binding_failed",
    "device_class_of",
    "extended_claim",
    "skips_operations",
    "to_allocate",
]


MAX_CONSUMERS = 256
"""Maximum number of consumers of a claim (``ResourceClaimReservedForMaxSize``)."""

EXTENDED_CLAIM = "<extended-resources>"
"""Name of the claim that stands for a pod's extended resources while it is scheduled."""


class ClaimError(Exception):
    """A claim cannot be used; the text is the reason."""


class ClaimRequests(msgspec.Struct, frozen=True):
    """Claims and extended resources that a pod requests. ``allocated``: claims with devices; ``open``: claims that need
    devices; ``extended``: extended resources that a device class provides. ``namespace``: the pod's, of its claim for
    extended resources. ``stale``: an earlier claim for these resources is in the way.
    """

    allocated: tuple[ResourceClaim, ...] = ()
    open: tuple[ResourceClaim, ...] = ()
    extended: tuple[ExtendedRequest, ...] = ()
    stale: bool = False
    namespace: str = ""

    @property
    def is_empty(self) -> bool:
        """Return whether the pod needs no devices, allocated or not."""
        return not (self.allocated or self.open or self.extended or self.stale)


def device_class_of(resource: str, classes: Mapping[str, DeviceClass]) -> DeviceClass | None:
    """Return the device class that provides an extended resource; None if there is none.

    The first class counts that declares the resource, or whose implicit resource name is the resource.
    """
    for device_class in classes.values():
        if resource in (device_class.spec.extended_resource_name, DEVICE_CLASS_PREFIX + device_class.name):
            return device_class
    return None


class Claims:
    """Resource claims of the pods of a context."""

    def __init__(self, ctx: Context) -> None:
        self._dra, self._informers = ctx.dra, ctx.informers  # not the context: no reference cycle
        self._requests: dict[int, ClaimRequests] = {}
        self._delegable: dict[str, bool] = {}

    @classmethod
    def of(cls, ctx: Context) -> Claims:
        """Return the claims of a context, cached in it."""
        return ctx.memo.get(cls, lambda: cls(ctx))

    def delegable(self, resource: str) -> bool:
        """Check whether a device class provides the resource on nodes that do not offer it themselves.

        False without dynamic resource allocation.
        """
        delegable = self._delegable.get(resource)
        if delegable is None:
            classes = self._informers.device_classes
            delegable = self._dra and device_class_of(resource, classes) is not None
            self._delegable[resource] = delegable
        return delegable

    def get_extended_requests(self, pod: PodClass) -> tuple[ExtendedRequest, ...]:
        """Return the extended resources that the pod requests and a device class provides, sorted by name."""
        if not pod.extended or not self._dra or not self._informers.device_classes:
            return ()
        return tuple(request for request in pod.extended if self.delegable(request.resource))

    def any_request_devices(self, pods: Iterable[PodClass]) -> bool:
        """Check whether any of the pods may request devices."""
        return self._dra and any(pod.claims or self.get_extended_requests(pod) for pod in pods)

    def list_pod_claims(self, pod: PodClass) -> list[ResourceClaim]:
        """Return the claims of a pod, in the order of its ``resourceClaims``.

        Raises ClaimError if the pod has claims without dynamic resource allocation, or if a claim does not exist, is
        being deleted, or was created from a template for another pod. An entry whose template requests nothing is left
        out.
        """
        claims = []
        statuses = dict(reversed(pod.claim_statuses))  # the first status of a name wins
        for entry, claim_name, _ in pod.claims:
            name = claim_name
            if name is None:
                if entry not in statuses:
                    raise ClaimError(f'pod "{pod.namespace}/{pod.pod_name}": ResourceClaim not created yet')
                name = statuses[entry]
                if name is None:  # the template requests nothing
                    continue
            if not self._dra:
                raise ClaimError("object not found: dra manager is disabled")
            claim = self._informers.resource_claims.get((pod.namespace, name))
            if claim is None:
                raise ClaimError(f"claim {pod.namespace}/{name} not found")
            if claim.metadata.deletion_timestamp is not None:
                raise ClaimError(f'resourceclaim "{name}" is being deleted')
            owners = claim.metadata.owner_references
            if claim_name is None and not any(owner.controller and owner.uid == pod.pod_uid for owner in owners):
                pod_key = f"{pod.namespace}/{pod.pod_name}"
                raise ClaimError(
                    f"ResourceClaim {pod.namespace}/{name} was not created for Pod {pod_key} (Pod is not owner)"
                )
            claims.append(claim)
        return claims

    def get_requests(self, pod: PodClass) -> ClaimRequests:
        """Return what the pod requests. Raises ClaimError if a claim cannot be used."""
        requests = self._requests.get(pod.index)
        if requests is None:
            requests = self._requests[pod.index] = self._find_requests(pod)
        return requests

    def get_checked_requests(self, pod: PodClass) -> ClaimRequests:
        """Return what the pod requests; no requests if its PreFilter fails, as no node is checked for it then."""
        if not pod.claims and not self._dra:
            return ClaimRequests()
        try:
            return self.get_requests(pod)
        except ClaimError:
            return ClaimRequests()

    def _find_requests(self, pod: PodClass) -> ClaimRequests:
        """Compute what the pod requests. Raises ClaimError if a claim cannot be used."""
        allocated, still_open = [], []
        for claim in self.list_pod_claims(pod):
            if claim.status.allocation is None:
                still_open.append(claim)
                continue
            consumers = claim.status.reserved_for
            is_consumer = any(consumer.uid == pod.pod_uid for consumer in consumers)
            if not is_consumer and len(consumers) >= MAX_CONSUMERS:
                raise ClaimError("resourceclaim in use")
            allocated.append(claim)
        return ClaimRequests(tuple(allocated), tuple(still_open), *self.get_special_requests(pod), pod.namespace)

    def get_special_requests(self, pod: PodClass) -> tuple[tuple[ExtendedRequest, ...], bool]:
        """Return (extended resources to allocate for a pod, whether an earlier claim for them prevents the allocation).

        The earlier claim is one that the scheduler created for the pod before. If it is allocated, nothing is left to
        allocate. Raises ClaimError if it is in use by too many pods.
        """
        extended = self.get_extended_requests(pod)
        left = self._leftover(pod) if extended else None
        if left is None:
            return extended, False
        return () if left.status.allocation else extended, bool(left.spec.devices.requests)

    def _leftover(self, pod: PodClass) -> ResourceClaim | None:
        """Return the claim that an earlier attempt of the scheduler created for the pod's extended resources.

        None if there is none. Raises ClaimError if the claim is in use by too many pods.
        """
        claim = self._informers.leftovers.get(pod.pod_uid) if pod.pod_uid else None
        if claim is None or all(owner.name != pod.pod_name for owner in claim.metadata.owner_references):
            return None
        consumers = claim.status.reserved_for
        is_consumer = any(consumer.uid == pod.pod_uid for consumer in consumers)
        if claim.status.allocation is not None and not is_consumer and len(consumers) >= MAX_CONSUMERS:
            raise ClaimError("resourceclaim in use")
        return claim


def extended_claim(
    namespace: str, extended: Iterable[ExtendedRequest], classes: Mapping[str, DeviceClass]
) -> ResourceClaim:
    """Build a claim that requests devices for extended resources, with its requests sorted by name.

    ``classes``: the device classes by name, of which one provides each resource.
    """
    requests = []
    for resource, _, devices in extended:
        device_class = device_class_of(resource, classes)
        class_name = device_class.name if device_class else ""
        for name, count in devices:
            exact = ExactDeviceRequest(device_class_name=class_name, count=count)
            requests.append(DeviceRequest(name=name, exactly=exact))
    requests.sort(key=lambda request: request.name)
    return ResourceClaim(
        metadata=ObjectMeta(name=EXTENDED_CLAIM, namespace=namespace),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)),
    )


def to_allocate(need: ClaimRequests, node: NodeFacts, classes: Mapping[str, DeviceClass]) -> tuple[ResourceClaim, ...]:
    """Return the claims of a pod to allocate on a node: those that are not allocated, and a new one.

    The new claim requests devices for the extended resources that the node does not offer itself. It is left out if
    there are no such resources.
    """
    extended = [request for request in need.extended if request.amount and request.resource not in node.offered]
    return (*need.open, extended_claim(need.namespace, extended, classes)) if extended else need.open


_OPTIONAL_OPERATIONS = "DRAOptionalNodeOperations"
"""The feature that a node declares if it can skip the operations that a device allows to skip."""


def available(claim: ResourceClaim, node: NodeFacts, now: int | None, timeout: timedelta) -> bool:
    """Check whether a claim's allocation can be used from the node; True for a claim without allocation.

    False if the allocation's node selector does not match, if the node cannot skip operations that a device requires to
    be skipped, or if binding the devices failed. ``now``, ``timeout`` and what is raised: see :func:`binding_failed`.
    """
    allocation = claim.status.allocation
    if allocation is None:
        return True
    selector = allocation.node_selector
    if selector is not None and not compile_node_selector(selector).matches(node.labels, node.name):
        return False
    if skips_operations(claim) and _OPTIONAL_OPERATIONS not in node.features:
        return False
    return not binding_failed(claim, now, timeout)


def skips_operations(claim: ResourceClaim) -> bool:
    """Check whether an allocated device requires a node that supports skipping node operations."""
    allocation = claim.status.allocation
    return allocation is not None and any(result.skip_node_operations for result in allocation.devices.results)


def binding_failed(claim: ResourceClaim, now: int | None, timeout: timedelta) -> bool:
    """Check whether binding the devices of an allocated claim failed.

    It failed if a failure condition is true, or if binding conditions are not true within ``timeout`` of the
    allocation. ``now``: nanoseconds since 1970; None: there is no time limit. Raises InputError if the time of the
    allocation cannot be read.
    """
    allocation = claim.status.allocation
    if allocation is None:
        return False
    for result in allocation.devices.results:
        if not result.binding_conditions:
            continue
        conditions = _conditions(claim, result)
        if conditions is None:
            return _is_binding_overdue(claim, now, timeout)
        if any(_is_condition_true(conditions, name) for name in result.binding_failure_conditions):
            return True
        if not all(_is_condition_true(conditions, name) for name in result.binding_conditions):
            return _is_binding_overdue(claim, now, timeout)
    return False


def _conditions(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> dict[str, Condition] | None:
    """Return the driver's conditions of the allocated device, the first of each type; None without a status."""
    for device in claim.status.devices:
        if (device.driver, device.pool, device.device) == (result.driver, result.pool, result.device):
            return {condition.type: condition for condition in reversed(device.conditions)}
    return None


def _is_condition_true(conditions: dict[str, Condition], name: str) -> bool:
    """Return whether the condition exists and its status is ``True``."""
    return name in conditions and conditions[name].status == "True"


def _is_binding_overdue(claim: ResourceClaim, now: int | None, timeout: timedelta) -> bool:
    """Check whether, at ``now`` (nanoseconds since 1970), ``timeout`` has passed since the claim's allocation.

    False if ``now`` or the time of the allocation is missing. Raises InputError if that time cannot be read.
    """
    allocation = claim.status.allocation
    if now is None or allocation is None or not allocation.allocation_timestamp:
        return False
    allocated = moment_in(claim, allocation.allocation_timestamp, "status.allocation.allocationTimestamp")
    return allocated + duration(timeout) < now


class Devices:
    """Devices of a context. ``local_slices``: slices of nodes that the snapshot does not have; set them before any
    query.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.local_slices: list[ResourceSlice] = []

    @classmethod
    def of(cls, ctx: Context) -> Devices:
        """Return the devices of a context, cached in it."""
        return ctx.memo.get(cls, lambda: cls(ctx))

    @cached_property
    def inventory(self) -> Inventory:
        """Return all devices and the claims' holds on them."""
        informers = self._ctx.informers
        inventory = self._ctx.snapshot.memo.get(
            Inventory, lambda: Inventory(informers.resource_slices, informers.resource_claims.values())
        )
        return inventory.with_slices(self.local_slices) if self.local_slices else inventory

    @cached_property
    def allocator(self) -> Allocator:
        """Return an allocator for the devices of the inventory."""
        return Allocator(self.inventory, self._ctx.informers.device_classes)

    def content(self, node: NodeFacts) -> Hashable:
        """Return a key that is equal for nodes that DynamicResources cannot distinguish."""
        claims = Claims.of(self._ctx)
        offered = frozenset(name for name in node.offered if claims.delegable(name))
        return self.inventory.content(self.inventory.offers(node)), offered
