"""Priority and runtime classes: what a pod inherits by name (upstream: ``scheduling.k8s.io`` and ``node.k8s.io``)."""

from __future__ import annotations

import msgspec

from kscale.objects.base import ApiStruct, Int32, ResourceList
from kscale.objects.core import Toleration
from kscale.objects.meta import KubeObject

__all__ = ["PriorityClass", "RuntimeClass", "RuntimeClassOverhead", "RuntimeClassScheduling"]


class PriorityClass(KubeObject):
    """A named priority; one class may be what pods without a class get."""

    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str | None = None
    description: str = ""


class RuntimeClassOverhead(ApiStruct):
    """What the runtime itself takes for each pod."""

    pod_fixed: ResourceList | None = None


class RuntimeClassScheduling(ApiStruct):
    """On which nodes the runtime is."""

    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] = []


class RuntimeClass(KubeObject):
    """A container runtime."""

    handler: str = ""
    overhead: RuntimeClassOverhead | None = None
    scheduling: RuntimeClassScheduling = msgspec.field(default_factory=RuntimeClassScheduling)
