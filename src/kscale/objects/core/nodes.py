"""Nodes."""

# Annotations are values here: msgspec makes decoders of them, and a text would have to be compiled first.

from functools import lru_cache
from typing import Any

import msgspec

from kscale.objects.base import ApiStruct, Int64, ResourceList
from kscale.objects.core.placement import Taint
from kscale.objects.meta import Condition, KubeObject

__all__ = [
    "ContainerImage",
    "Node",
    "NodeSpec",
    "NodeStatus",
]


class NodeSpec(ApiStruct):
    """What a node is to be."""

    provider_id: str = msgspec.field(default="", name="providerID")
    unschedulable: bool = False
    taints: list[Taint] = []
    pod_cidr: str = msgspec.field(default="", name="podCIDR")
    pod_cidrs: list[str] = msgspec.field(default_factory=list, name="podCIDRs")
    external_id: str = msgspec.field(default="", name="externalID")
    config_source: dict[str, Any] | None = None
    pod_preemption_policy: dict[str, Any] | None = None


class ContainerImage(ApiStruct):
    """An image that a node has pulled, and the names that it goes by there."""

    names: list[str] = []
    size_bytes: Int64 = 0


@lru_cache(maxsize=1 << 14)
def _shared(names: tuple[str, ...], size_bytes: int) -> ContainerImage:
    """One object for an image that many nodes have: their lists are long, and much the same."""
    return ContainerImage(names=[*names], size_bytes=size_bytes)


class NodeStatus(ApiStruct):
    """What a node has."""

    capacity: ResourceList | None = None
    allocatable: ResourceList | None = None
    conditions: list[Condition] = []
    declared_features: list[str] = []
    phase: str = ""
    node_info: dict[str, Any] | None = None
    addresses: list[dict[str, Any]] = []
    daemon_endpoints: dict[str, Any] | None = None
    images: list[ContainerImage] = []
    volumes_in_use: list[str] = []
    volumes_attached: list[dict[str, Any]] = []
    config: dict[str, Any] | None = None
    runtime_handlers: list[dict[str, Any]] = []
    features: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.images:
            self.images = [_shared(tuple(each.names), each.size_bytes) for each in self.images]


class Node(KubeObject):
    """A node."""

    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)
