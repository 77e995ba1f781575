"""Claims of a pod: which have devices, which need some, whether allocated devices suit a node, and the devices of
nodes.
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
from kscale.objects.pod_resources import is_scalar
from kscale.objects.times import duration, moment_of
from kscale.scheduling.devices.allocator import Allocator
from kscale.scheduling.devices.inventory import Inventory
from kscale.scheduling.profile import Context, NodeFacts
from kscale.snapshot.classes.interner import PodClass

__all__ = [
    "MOST_CONSUMERS",
    "ClaimError",
    "Claims",
    "Devices",
    "Wanted",
    "available",
    "binding_failed",
    "device_class_of",
    "extended_claim",
    "skips_operations",
    "to_allocate",
]


MOST_CONSUMERS = 256
"""Consumers that a claim may be reserved for (``ResourceClaimReservedForMaxSize``)."""

_IMPLICIT = "deviceclass.resource.kubernetes.io/"
_EXTENDED_CLAIM = "<extended-resources>"


class ClaimError(Exception):
    """A claim cannot be used; the text is the reason."""


class Wanted(msgspec.Struct, frozen=True):
    """``allocated``: claims that have their devices; ``open``: claims that need some; ``extended``: amounts of extended
    resources that a device class stands for. ``stale``: a claim that was made for these before is in the way."""

    allocated: tuple[ResourceClaim, ...] = ()
    open: tuple[ResourceClaim, ...] = ()
    extended: tuple[tuple[str, int], ...] = ()
    stale: bool = False

    @property
    def nothing(self) -> bool:
        """Nothing to look at."""
        return not (self.allocated or self.open or self.extended or self.stale)


def device_class_of(resource: str, classes: Mapping[str, DeviceClass]) -> DeviceClass | None:
    """The device class behind a name of an extended resource: the first that declares it, or is named in it."""
    for device_class in classes.values():
        if resource in (device_class.spec.extended_resource_name, _IMPLICIT + device_class.name):
            return device_class
    return None


class Claims:
    """What pods of a context claim."""

    def __init__(self, ctx: Context) -> None:
        self._dra, self._informers = ctx.dra, ctx.informers  # not the context, which keeps this: they would be a cycle
        self._wanted: dict[int, Wanted] = {}
        self._delegable: dict[str, bool] = {}

    @classmethod
    def of(cls, ctx: Context) -> Claims:
        """Those of a context."""
        return ctx.memo.of(cls, lambda: cls(ctx))

    def delegable(self, resource: str) -> bool:
        """Whether a device class stands for the resource on nodes that have none of it themselves."""
        found = self._delegable.get(resource)
        if found is None:
            classes = self._informers.device_classes
            found = self._dra and device_class_of(resource, classes) is not None
            self._delegable[resource] = found
        return found

    def extended(self, pod: PodClass) -> tuple[tuple[str, int], ...]:
        """(resource, amount) of what the pod asks for and a device class stands for, by name."""
        if not self._dra or not self._informers.device_classes:
            return ()
        return tuple(
            (name, amount)
            for name, amount in sorted(pod.demand.items())
            if amount > 0 and is_scalar(name) and self.delegable(name)
        )

    def concern(self, pods: Iterable[PodClass]) -> bool:
        """Whether any of the pods may want devices."""
        return self._dra and any(pod.claims or self.extended(pod) for pod in pods)

    def of_pod(self, pod: PodClass) -> list[ResourceClaim]:
        """The claims of a pod, in its order. Raises ClaimError."""
        found = []
        statuses = dict(reversed(pod.claim_statuses))  # the first of a name counts
        for entry, given, _ in pod.claims:
            name = given
            if name is None:
                if entry not in statuses:
                    raise ClaimError(f'pod "{pod.namespace}/{pod.pod_name}": ResourceClaim not created yet')
                name = statuses[entry]
                if name is None:  # the template asked for nothing
                    continue
            if not self._dra:
                raise ClaimError("object not found: dra manager is disabled")
            claim = self._informers.resource_claims.get((pod.namespace, name))
            if claim is None:
                raise ClaimError(f"claim {pod.namespace}/{name} not found")
            if claim.metadata.deletion_timestamp is not None:
                raise ClaimError(f'resourceclaim "{name}" is being deleted')
            owners = claim.metadata.owner_references
            if given is None and not any(owner.controller and owner.uid == pod.pod_uid for owner in owners):
                whose = f"{pod.namespace}/{pod.pod_name}"
                raise ClaimError(
                    f"ResourceClaim {pod.namespace}/{name} was not created for Pod {whose} (Pod is not owner)"
                )
            found.append(claim)
        return found

    def wanted(self, pod: PodClass) -> Wanted:
        """What the plug-in has to see to. Raises ClaimError."""
        found = self._wanted.get(pod.index)
        if found is None:
            found = self._wanted[pod.index] = self._find_wanted(pod)
        return found

    def settled(self, pod: PodClass) -> Wanted:
        """The same; nothing of a pod whose PreFilter fails: no node is asked for it."""
        if not pod.claims and not self._dra:
            return Wanted()
        try:
            return self.wanted(pod)
        except ClaimError:
            return Wanted()

    def _find_wanted(self, pod: PodClass) -> Wanted:
        allocated, still_open = [], []
        for claim in self.of_pod(pod):
            if claim.status.allocation is None:
                still_open.append(claim)
                continue
            consumers = claim.status.reserved_for
            mine = any(consumer.uid == pod.pod_uid for consumer in consumers)
            if not mine and len(consumers) >= MOST_CONSUMERS:
                raise ClaimError("resourceclaim in use")
            allocated.append(claim)
        return Wanted(tuple(allocated), tuple(still_open), *self.special(pod))

    def special(self, pod: PodClass) -> tuple[tuple[tuple[str, int], ...], bool]:
        """(extended resources to allocate, whether an older claim for them is in the way). Raises ClaimError."""
        extended = self.extended(pod)
        left = self._leftover(pod) if extended else None
        if left is None:
            return extended, False
        return () if left.status.allocation else extended, bool(left.spec.devices.requests)

    def _leftover(self, pod: PodClass) -> ResourceClaim | None:
        """What the scheduler made for the extended resources of the pod when it tried before. Raises ClaimError."""
        claim = self._informers.leftovers.get(pod.pod_uid) if pod.pod_uid else None
        if claim is None or all(owner.name != pod.pod_name for owner in claim.metadata.owner_references):
            return None
        consumers = claim.status.reserved_for
        mine = any(consumer.uid == pod.pod_uid for consumer in consumers)
        if claim.status.allocation is not None and not mine and len(consumers) >= MOST_CONSUMERS:
            raise ClaimError("resourceclaim in use")
        return claim


def extended_claim(amounts: tuple[tuple[str, int], ...], classes: Mapping[str, DeviceClass]) -> ResourceClaim:
    """The claim that stands for extended resources."""
    requests = []
    for i, (name, amount) in enumerate(amounts):
        device_class = device_class_of(name, classes)
        exact = ExactDeviceRequest(device_class_name=device_class.name if device_class else "", count=amount)
        requests.append(DeviceRequest(name=f"request-{i}", exactly=exact))
    return ResourceClaim(
        metadata=ObjectMeta(name=_EXTENDED_CLAIM), spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests))
    )


def to_allocate(need: Wanted, node: NodeFacts, classes: Mapping[str, DeviceClass]) -> tuple[ResourceClaim, ...]:
    """The open claims, and one for the extended resources that the node does not offer itself."""
    amounts = tuple((name, amount) for name, amount in need.extended if name not in node.offered)
    return (*need.open, extended_claim(amounts, classes)) if amounts else need.open


_OPTIONAL_OPERATIONS = "DRAOptionalNodeOperations"
"""What a node declares that can do without the operations which a device says it may skip."""


def available(claim: ResourceClaim, node: NodeFacts, now: int | None, timeout: timedelta) -> bool:
    """Whether an allocated claim can be used from the node; ``now`` and ``timeout``: see :func:`binding_failed`."""
    given = claim.status.allocation
    if given is None:
        return True
    selector = given.node_selector
    if selector is not None and not compile_node_selector(selector).matches(node.labels, node.name):
        return False
    if skips_operations(claim) and _OPTIONAL_OPERATIONS not in node.features:
        return False
    return not binding_failed(claim, now, timeout)


def skips_operations(claim: ResourceClaim) -> bool:
    """Whether a node must be able to do without some operation."""
    given = claim.status.allocation
    return given is not None and any(result.skip_node_operations for result in given.devices.results)


def binding_failed(claim: ResourceClaim, now: int | None, timeout: timedelta) -> bool:
    """Whether the devices of an allocated claim will not do: a condition says that binding failed, or what they wait
    for did not come within ``timeout`` of their allocation (``now`` None: they may take any time)."""
    given = claim.status.allocation
    if given is None:
        return False
    for result in given.devices.results:
        if not result.binding_conditions:
            continue
        conditions = _conditions(claim, result)
        if conditions is None:
            return _late(claim, now, timeout)
        if any(_true(conditions, name) for name in result.binding_failure_conditions):
            return True
        if not all(_true(conditions, name) for name in result.binding_conditions):
            return _late(claim, now, timeout)
    return False


def _conditions(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> dict[str, Condition] | None:
    """What the driver says of the device, the first of each type; None = nothing."""
    for device in claim.status.devices:
        if (device.driver, device.pool, device.device) == (result.driver, result.pool, result.device):
            return {condition.type: condition for condition in reversed(device.conditions)}
    return None


def _true(conditions: dict[str, Condition], name: str) -> bool:
    return name in conditions and conditions[name].status == "True"


def _late(claim: ResourceClaim, now: int | None, timeout: timedelta) -> bool:
    given = claim.status.allocation
    if now is None or given is None or not given.allocation_timestamp:
        return False
    return moment_of(given.allocation_timestamp) + duration(timeout) < now


class Devices:
    """``local_slices``: those of nodes that the snapshot does not have; complete before anything else is asked."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.local_slices: list[ResourceSlice] = []

    @classmethod
    def of(cls, ctx: Context) -> Devices:
        """Those of a context."""
        return ctx.memo.of(cls, lambda: cls(ctx))

    @cached_property
    def inventory(self) -> Inventory:
        """All of them, and what claims hold of them."""
        informers = self._ctx.informers
        kept = self._ctx.snapshot.memo.of(
            Inventory, lambda: Inventory(informers.resource_slices, informers.resource_claims.values())
        )
        return kept.with_slices(self.local_slices) if self.local_slices else kept

    @cached_property
    def allocator(self) -> Allocator:
        """Allocates these devices."""
        return Allocator(self.inventory, self._ctx.informers.device_classes)

    def content(self, node: NodeFacts) -> Hashable:
        """Equal for nodes that DynamicResources cannot tell apart."""
        claims = Claims.of(self._ctx)
        offered = frozenset(name for name in node.offered if claims.delegable(name))
        return self.inventory.content(self.inventory.offers(node)), offered
