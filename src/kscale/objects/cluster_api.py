"""What makes machines in Cluster API, as far as a node group needs it (``cluster.x-k8s.io``, any version)."""

from __future__ import annotations

import msgspec

from kscale.objects.base import ApiStruct, Int32
from kscale.objects.meta import KubeObject

__all__ = ["MachineDeployment", "MachinePool", "MachineScale", "MachineSet"]


class MachineScale(ApiStruct):
    """How many machines there shall be."""

    replicas: Int32 | None = None


class MachineDeployment(KubeObject):
    """Machines of one kind, replaced one by one when the kind changes."""

    spec: MachineScale = msgspec.field(default_factory=MachineScale)


class MachineSet(KubeObject):
    """Machines of one kind; those of a deployment belong to it."""

    spec: MachineScale = msgspec.field(default_factory=MachineScale)


class MachinePool(KubeObject):
    """Machines that the cloud keeps as one."""

    spec: MachineScale = msgspec.field(default_factory=MachineScale)
