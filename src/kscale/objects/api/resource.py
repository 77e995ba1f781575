"""Dynamic resource allocation: claims, slices and device classes (upstream: ``k8s.io/api/resource``).

The structs have the shape of v1 and v1beta2. v1beta1 objects are folded into that shape while they are decoded: there,
the fields of ``exactly`` stand in the request itself, and those of a device under ``basic``.
"""

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
    """A condition on devices."""

    cel: CELDeviceSelector | None = None


class ExactDeviceRequest(ApiStruct):
    """A request for devices of one class. ``allocation_mode`` defaults to ExactCount, ``count`` to 1 (API defaults)."""

    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: bool | None = None
    tolerations: list[Toleration] = []
    capacity: dict[str, Any] | None = None


class DeviceSubRequest(ApiStruct):
    """One of several alternative requests."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = ""
    count: Int64 = 0
    tolerations: list[Toleration] = []
    capacity: dict[str, Any] | None = None


class DeviceRequest(ApiStruct):
    """One request of a claim: an exact one, or the first available of several alternatives."""

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
        """Move the fields of v1beta1 to ``exactly``."""
        if self.exactly is None and self.device_class_name:
            names = ExactDeviceRequest.__struct_fields__
            self.exactly = ExactDeviceRequest(**{name: getattr(self, name) for name in names if hasattr(self, name)})
            self.device_class_name, self.allocation_mode, self.count = "", "", 0
            self.selectors, self.tolerations, self.admin_access = [], [], None


class DeviceConstraint(ApiStruct):
    """An attribute that the devices of several requests must have in common."""

    requests: list[str] = []
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(ApiStruct):
    """All device requests of a claim."""

    requests: list[DeviceRequest] = []
    constraints: list[DeviceConstraint] = []
    config: list[dict[str, Any]] = []


class ResourceClaimSpec(ApiStruct):
    """Spec of a claim."""

    devices: DeviceClaim = msgspec.field(default_factory=DeviceClaim)


class DeviceRequestAllocationResult(ApiStruct):
    """An allocated device."""

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
    """All allocated devices of a claim."""

    results: list[DeviceRequestAllocationResult] = []
    config: list[dict[str, Any]] = []


class AllocationResult(ApiStruct):
    """The allocated devices, and the nodes from which they can be used (absent means all)."""

    devices: DeviceAllocationResult = msgspec.field(default_factory=DeviceAllocationResult)
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(ApiStruct):
    """A user of a claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(ApiStruct):
    """A driver's status of an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    conditions: list[Condition] = []


class ResourceClaimStatus(ApiStruct):
    """Status of a claim."""

    allocation: AllocationResult | None = None
    reserved_for: list[ResourceClaimConsumerReference] = []
    devices: list[AllocatedDeviceStatus] = []


class ResourceClaim(KubeObject):
    """A claim of devices."""

    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)


class ResourceClaimTemplateSpec(ApiStruct):
    """Spec of claims created from a template."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)


class ResourceClaimTemplate(KubeObject):
    """A template of one claim per pod."""

    spec: ResourceClaimTemplateSpec = msgspec.field(default_factory=ResourceClaimTemplateSpec)


class DeviceAttribute(ApiStruct):
    """An attribute of a device, with a value of one of four types."""

    int_: Int64 | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None


class DeviceCapacity(ApiStruct):
    """A quantity of a device."""

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
    """A taint of a device, which keeps claims off it."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class BasicDevice(ApiStruct):
    """The v1beta1 wrapper around a device's properties."""

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


class Device(BasicDevice):
    """A device."""

    name: str = ""
    basic: BasicDevice | None = None  # v1beta1 only; moved up on decoding

    def __post_init__(self) -> None:
        """Move the fields of the v1beta1 wrapper to the device."""
        if self.basic is None:
            return
        for field in BasicDevice.__struct_fields__:
            setattr(self, field, getattr(self.basic, field))
        self.basic = None


class ResourcePool(ApiStruct):
    """The pool that slices belong to."""

    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class ResourceSliceSpec(ApiStruct):
    """Devices of a pool, and the nodes from which they can be used."""

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
    """Selectors of a class' devices.

    With ``extended_resource_name`` pods can request them as an extended resource.
    """

    selectors: list[DeviceSelector] = []
    config: list[dict[str, Any]] = []
    extended_resource_name: str | None = None


class DeviceClass(KubeObject):
    """A class of devices."""

    spec: DeviceClassSpec = msgspec.field(default_factory=DeviceClassSpec)
