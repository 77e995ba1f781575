"""Dynamic resource allocation: claims, slices and device classes (upstream: ``k8s.io/api/resource``).

The structs have the shape of v1 and v1beta2. v1beta1 objects are folded into that shape while they are decoded: there,
the fields of ``exactly`` stand in the request itself, and those of a device under ``basic``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kscale.objects.api.core import NodeSelector, Toleration
from kscale.objects.api.meta import ApiStruct, Condition, Int64, KubeObject, ObjectMeta
from kscale.objects.quantity import Quantity

__all__ = [
    "AllocatedDeviceStatus",
    "AllocationResult",
    "BasicDevice",
    "CELDeviceSelector",
    "Counter",
    "CounterSet",
    "Device",
    "DeviceAllocationResult",
    "DeviceAttribute",
    "DeviceCapacity",
    "DeviceClaim",
    "DeviceClass",
    "DeviceClassSpec",
    "DeviceConstraint",
    "DeviceCounterConsumption",
    "DeviceRequest",
    "DeviceRequestAllocationResult",
    "DeviceSelector",
    "DeviceSubRequest",
    "DeviceTaint",
    "ExactDeviceRequest",
    "ResourceClaim",
    "ResourceClaimConsumerReference",
    "ResourceClaimSpec",
    "ResourceClaimStatus",
    "ResourceClaimTemplate",
    "ResourceClaimTemplateSpec",
    "ResourcePool",
    "ResourceSlice",
    "ResourceSliceSpec",
]


class CELDeviceSelector(ApiStruct):
    """A CEL expression over a device."""

    expression: str = ""


class DeviceSelector(ApiStruct):
    """Which devices will do."""

    cel: CELDeviceSelector | None = None


class ExactDeviceRequest(ApiStruct):
    """Devices of one class. Absent ``allocation_mode`` = ExactCount, absent ``count`` = 1 (API defaulting)."""

    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: bool | None = None
    tolerations: list[Toleration] = []
    capacity: dict[str, Any] | None = None


class DeviceSubRequest(ApiStruct):
    """One of several alternatives."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = ""
    count: Int64 = 0
    tolerations: list[Toleration] = []
    capacity: dict[str, Any] | None = None


class DeviceRequest(ApiStruct):
    """One request of a claim: exactly this, or the first that is available of several."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] = []
    # v1beta1 only; moved into ``exactly`` on decoding.
    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: bool | None = None
    tolerations: list[Toleration] = []

    def __post_init__(self) -> None:
        if self.exactly is None and self.device_class_name:
            self.exactly = ExactDeviceRequest(
                device_class_name=self.device_class_name,
                selectors=self.selectors,
                allocation_mode=self.allocation_mode,
                count=self.count,
                admin_access=self.admin_access,
                tolerations=self.tolerations,
            )
            self.device_class_name, self.allocation_mode, self.count = "", "", 0
            self.selectors, self.tolerations, self.admin_access = [], [], None


class DeviceConstraint(ApiStruct):
    """What the devices of several requests must have in common."""

    requests: list[str] = []
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(ApiStruct):
    """All device requests of a claim."""

    requests: list[DeviceRequest] = []
    constraints: list[DeviceConstraint] = []
    config: list[dict[str, Any]] = []


class ResourceClaimSpec(ApiStruct):
    """What a claim wants."""

    devices: DeviceClaim = msgspec.field(default_factory=DeviceClaim)


class DeviceRequestAllocationResult(ApiStruct):
    """A device that was given."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: list[Toleration] = []
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, Quantity] | None = None
    skip_node_operations: list[str] = []
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []


class DeviceAllocationResult(ApiStruct):
    """All devices that were given."""

    results: list[DeviceRequestAllocationResult] = []
    config: list[dict[str, Any]] = []


class AllocationResult(ApiStruct):
    """What was given, and from which nodes it can be used (absent: all)."""

    devices: DeviceAllocationResult = msgspec.field(default_factory=DeviceAllocationResult)
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(ApiStruct):
    """Who may use the claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(ApiStruct):
    """What a driver says of a device that was given."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    conditions: list[Condition] = []


class ResourceClaimStatus(ApiStruct):
    """What a claim has."""

    allocation: AllocationResult | None = None
    reserved_for: list[ResourceClaimConsumerReference] = []
    devices: list[AllocatedDeviceStatus] = []


class ResourceClaim(KubeObject):
    """A claim on devices."""

    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)


class ResourceClaimTemplateSpec(ApiStruct):
    """What the claims are made from."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)


class ResourceClaimTemplate(KubeObject):
    """A template for one claim a pod."""

    spec: ResourceClaimTemplateSpec = msgspec.field(default_factory=ResourceClaimTemplateSpec)


class DeviceAttribute(ApiStruct):
    """A value of one of four types."""

    int_: Int64 | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None


class DeviceCapacity(ApiStruct):
    """A quantity that a device has."""

    value: Quantity = msgspec.field(default_factory=Quantity.zero)
    request_policy: dict[str, Any] | None = None


class Counter(ApiStruct):
    """A quantity that several devices share."""

    value: Quantity = msgspec.field(default_factory=Quantity.zero)


class CounterSet(ApiStruct):
    """Named counters of a pool."""

    name: str = ""
    counters: dict[str, Counter] | None = None


class DeviceCounterConsumption(ApiStruct):
    """What a device takes from a counter set."""

    counter_set: str = ""
    counters: dict[str, Counter] | None = None


class DeviceTaint(ApiStruct):
    """What keeps claims off a device."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class BasicDevice(ApiStruct):
    """The v1beta1 wrapper around what a device is."""

    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    consumes_counters: list[DeviceCounterConsumption] = []
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[DeviceTaint] = []
    allow_multiple_allocations: bool | None = None
    binds_to_node: bool | None = None
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []


class Device(ApiStruct):
    """A device."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    consumes_counters: list[DeviceCounterConsumption] = []
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[DeviceTaint] = []
    allow_multiple_allocations: bool | None = None
    binds_to_node: bool | None = None
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []
    basic: BasicDevice | None = None  # v1beta1 only; moved up on decoding

    def __post_init__(self) -> None:
        if self.basic is None:
            return
        for field in BasicDevice.__struct_fields__:
            setattr(self, field, getattr(self.basic, field))
        self.basic = None


class ResourcePool(ApiStruct):
    """Which slices belong together."""

    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class ResourceSliceSpec(ApiStruct):
    """Devices of a pool, and from which nodes they can be used."""

    driver: str = ""
    pool: ResourcePool = msgspec.field(default_factory=ResourcePool)
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: list[Device] = []
    per_device_node_selection: bool | None = None
    shared_counters: list[CounterSet] = []


class ResourceSlice(KubeObject):
    """A part of a pool of devices."""

    spec: ResourceSliceSpec = msgspec.field(default_factory=ResourceSliceSpec)


class DeviceClassSpec(ApiStruct):
    """Which devices are in the class; ``extended_resource_name`` lets pods ask for them as for an extended resource."""

    selectors: list[DeviceSelector] = []
    config: list[dict[str, Any]] = []
    extended_resource_name: str | None = None


class DeviceClass(KubeObject):
    """A class of devices."""

    spec: DeviceClassSpec = msgspec.field(default_factory=DeviceClassSpec)
