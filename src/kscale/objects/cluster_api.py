"""What makes machines in Cluster API, as far as a node group needs it (``cluster.x-k8s.io``, any version)."""

from __future__ import annotations

import msgspec

from kscale.objects.base import ApiStruct, Int32
from kscale.objects.core import Taint
from kscale.objects.meta import KubeObject, ObjectMeta

__all__ = [
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
