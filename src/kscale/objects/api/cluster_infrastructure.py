"""Machines, their owners and infrastructure templates of Cluster API (``cluster.x-k8s.io``).

Upstream: ``cloudprovider/clusterapi/clusterapi_unstructured.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kscale.objects.api.core import Taint
from kscale.objects.api.meta import ApiStruct, Int32, KubeObject, ObjectMeta
from kscale.objects.quantity import Quantity, QuantityError

__all__ = [
    "Infrastructure",
    "InfrastructureReference",
    "Machine",
    "MachineDeployment",
    "MachineNode",
    "MachineOwner",
    "MachinePool",
    "MachineScale",
    "MachineSet",
    "MachineSetStatus",
    "MachineSpec",
    "MachineStatus",
    "MachineTemplate",
    "MachineTemplateSpec",
    "read_infrastructure",
]


class InfrastructureReference(ApiStruct):
    """The infrastructure object that machines are created from. Older versions have its ``api_version``."""

    kind: str = ""
    name: str = ""
    api_group: str = ""
    api_version: str = ""


class MachineTemplateSpec(ApiStruct):
    """Template of machines.

    Upstream's autoscaler reads labels from ``metadata`` here; Cluster API's own types have them one level above.
    """

    infrastructure_ref: InfrastructureReference | None = None
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    taints: list[Taint] | None = None


class MachineTemplate(ApiStruct):
    """Template of machines."""

    spec: MachineTemplateSpec = msgspec.field(default_factory=MachineTemplateSpec)


class MachineScale(ApiStruct):
    """Number of machines and their cluster. A pool also lists its machines."""

    replicas: Int32 | None = None
    cluster_name: str = ""
    template: MachineTemplate = msgspec.field(default_factory=MachineTemplate)
    provider_id_list: list[str] | None = msgspec.field(name="providerIDList", default=None)


class MachineDeployment(KubeObject):
    """Machines of one template, replaced one by one when the template changes."""

    spec: MachineScale = msgspec.field(default_factory=MachineScale)


class MachineSetStatus(ApiStruct):
    """Status of a MachineSet."""

    replicas: Int32 | None = None


class MachineSet(KubeObject):
    """Machines of one template. It may belong to a MachineDeployment."""

    spec: MachineScale = msgspec.field(default_factory=MachineScale)
    status: MachineSetStatus = msgspec.field(default_factory=MachineSetStatus)


class MachinePool(KubeObject):
    """Machines that the cloud manages as one group."""

    spec: MachineScale = msgspec.field(default_factory=MachineScale)


MachineOwner = MachineDeployment | MachineSet | MachinePool
"""What may be a node group."""


class MachineSpec(ApiStruct):
    """The cloud's id of a machine; empty while it has none."""

    provider_id: str = msgspec.field(name="providerID", default="")


class MachineNode(ApiStruct):
    """The node of a machine."""

    name: str = ""


class MachineStatus(ApiStruct):
    """Status of a machine."""

    node_ref: MachineNode | None = None
    failure_message: str = ""


class Machine(KubeObject):
    """A machine."""

    spec: MachineSpec = msgspec.field(default_factory=MachineSpec)
    status: MachineStatus = msgspec.field(default_factory=MachineStatus)


class Infrastructure(msgspec.Struct, frozen=True, kw_only=True):
    """Resources, architecture and operating system of a machine; empty if unknown."""

    capacity: dict[str, Quantity] = {}
    architecture: str = ""
    operating_system: str = ""


def read_infrastructure(content: Mapping[str, Any]) -> Infrastructure:
    """Read ``status.capacity`` and ``status.nodeInfo`` of an object as plain data.

    As upstream, leaves out malformed amounts, and treats a map with a value that is not text as empty.
    """
    status = content.get("status")
    status_fields = status if isinstance(status, Mapping) else {}
    capacity = {}
    for name, text in _texts(status_fields.get("capacity")).items():
        try:
            capacity[name] = Quantity(text)
        except QuantityError:
            continue
    system = _texts(status_fields.get("nodeInfo"))
    return Infrastructure(
        capacity=capacity,
        architecture=system.get("architecture", ""),
        operating_system=system.get("operatingSystem", ""),
    )


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(value, str) for value in value.values()):
        return {}
    return dict(value)
