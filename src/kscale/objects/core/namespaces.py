"""Namespaces, and what is in them beside pods."""

# Annotations are values here: msgspec makes decoders of them, and a text would have to be compiled first.

from typing import Any

import msgspec

from kscale.objects.base import ApiStruct, Int32, Int64, ResourceList
from kscale.objects.core.pods import PodTemplateSpec
from kscale.objects.meta import KubeObject

__all__ = [
    "ConfigMap",
    "LimitRange",
    "LimitRangeItem",
    "LimitRangeSpec",
    "Namespace",
    "ReplicationController",
    "ReplicationControllerSpec",
    "ReplicationControllerStatus",
    "Service",
    "ServiceSpec",
]


class Namespace(KubeObject):
    """A namespace; its labels are what namespace selectors select."""

    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class ServiceSpec(ApiStruct):
    """Which pods a service stands for."""

    selector: dict[str, str] | None = None
    type: str = ""
    cluster_ip: str = msgspec.field(default="", name="clusterIP")


class Service(KubeObject):
    """A service."""

    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)


class ReplicationControllerSpec(ApiStruct):
    """What a replication controller keeps alive; ``replicas`` absent = 1."""

    replicas: Int32 | None = None
    min_ready_seconds: Int32 = 0
    selector: dict[str, str] | None = None
    template: PodTemplateSpec | None = None


class ReplicationControllerStatus(ApiStruct):
    """What it has."""

    replicas: Int32 = 0
    ready_replicas: Int32 = 0
    available_replicas: Int32 = 0
    observed_generation: Int64 = 0


class ReplicationController(KubeObject):
    """A replication controller."""

    spec: ReplicationControllerSpec = msgspec.field(default_factory=ReplicationControllerSpec)
    status: ReplicationControllerStatus = msgspec.field(default_factory=ReplicationControllerStatus)


class LimitRangeItem(ApiStruct):
    """Bounds and defaults for one type of thing: Pod, Container or PersistentVolumeClaim."""

    type: str = ""
    max: ResourceList | None = None
    min: ResourceList | None = None
    default: ResourceList | None = None
    default_request: ResourceList | None = None
    max_limit_request_ratio: ResourceList | None = None


class LimitRangeSpec(ApiStruct):
    """All items of a limit range."""

    limits: list[LimitRangeItem] = []


class LimitRange(KubeObject):
    """Bounds on requests and limits in a namespace."""

    spec: LimitRangeSpec = msgspec.field(default_factory=LimitRangeSpec)


class ConfigMap(KubeObject):
    """Configuration data (read: the priorities of the priority expander)."""

    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None
