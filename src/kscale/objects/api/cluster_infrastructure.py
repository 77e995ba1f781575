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
    """Which object of the infrastructure's provider machines are made by; older versions give its ``api_version``."""

    kind: str = ""
    name: str = ""
    api_group: str = ""
    api_version: str = ""


class MachineTemplateSpec(ApiStruct):
    """What machines are made by. ``metadata`` is where upstream's autoscaler looks for labels: Cluster API's own types
    have them a level above."""

    infrastructure_ref: InfrastructureReference | None = None
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    taints: list[Taint] | None = None


class MachineTemplate(ApiStruct):
    """What every machine shall be."""

    spec: MachineTemplateSpec = msgspec.field(default_factory=MachineTemplateSpec)


class MachineScale(ApiStruct):
    """How many machines there shall be, of which cluster; a pool says which there are."""

    replicas: Int32 | None = None
    cluster_name: str = ""
    template: MachineTemplate = msgspec.field(default_factory=MachineTemplate)
    provider_id_list: list[str] | None = msgspec.field(name="providerIDList", default=None)


class MachineDeployment(KubeObject):
    """Machines of one kind, replaced one by one when the kind changes."""

    spec: MachineScale = msgspec.field(default_factory=MachineScale)


class MachineSetStatus(ApiStruct):
    """How many machines there are of a set."""

    replicas: Int32 | None = None


class MachineSet(KubeObject):
    """Machines of one kind; those of a deployment belong to it."""

    spec: MachineScale = msgspec.field(default_factory=MachineScale)
    status: MachineSetStatus = msgspec.field(default_factory=MachineSetStatus)


class MachinePool(KubeObject):
    """Machines that the cloud keeps as one."""

    spec: MachineScale = msgspec.field(default_factory=MachineScale)


MachineOwner = MachineDeployment | MachineSet | MachinePool
"""What may be a node group."""


class MachineSpec(ApiStruct):
    """What the cloud calls a machine; empty: nothing yet."""

    provider_id: str = msgspec.field(name="providerID", default="")


class MachineNode(ApiStruct):
    """The node that a machine has become."""

    name: str = ""


class MachineStatus(ApiStruct):
    """How a machine is doing."""

    node_ref: MachineNode | None = None
    failure_message: str = ""


class Machine(KubeObject):
    """One machine."""

    spec: MachineSpec = msgspec.field(default_factory=MachineSpec)
    status: MachineStatus = msgspec.field(default_factory=MachineStatus)


class Infrastructure(msgspec.Struct, frozen=True, kw_only=True):
    """Resources by name, and the system; empty: it does not say."""

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


def _texts(found: object) -> dict[str, str]:
    if not isinstance(found, Mapping) or not all(isinstance(value, str) for value in found.values()):
        return {}
    return dict(found)
