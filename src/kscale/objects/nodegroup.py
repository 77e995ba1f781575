"""Node groups and templates of their nodes: plain data, no cloud (upstream: ``cloudprovider.NodeGroup``)."""

from __future__ import annotations

import msgspec

from kscale.objects.base import ApiStruct, ResourceList
from kscale.objects.core import Node, Pod, Taint
from kscale.objects.resource import ResourceSlice
from kscale.objects.storage import CSINode

__all__ = ["NodeGroup", "NodeGroupOptions", "NodeTemplate"]


class NodeTemplate(ApiStruct):
    """What a new node of a group would be: the node, the pods that come with it, its CSI drivers, its own devices."""

    node: Node = msgspec.field(default_factory=Node)
    pods: list[Pod] = []
    csi_node: CSINode | None = None
    resource_slices: list[ResourceSlice] = []


class NodeGroupOptions(ApiStruct):
    """``NodeGroupAutoscalingOptions``: what differs from the autoscaler's own options. Durations are seconds."""

    scale_down_utilization_threshold: float | None = None
    scale_down_gpu_utilization_threshold: float | None = None
    scale_down_unneeded_time: float | None = None
    scale_down_unready_time: float | None = None
    max_node_provision_time: float | None = None
    max_node_startup_time: float | None = None
    zero_or_max_node_scaling: bool | None = None
    ignore_daemon_sets_utilization: bool | None = None
    allow_non_atomic_scale_up_to_max: bool | None = None


class NodeGroup(ApiStruct):
    """A group of like nodes that can grow and shrink.

    Its template is ``template``, else (named by ``from_node``) a copy of a node of the cluster, else the first good
    node among ``nodes``; then ``labels``, ``taints``, ``capacity`` are put on top. ``nodes`` lists names; without it a
    node belongs to the group if it carries all of ``node_selector``.
    """

    id: str
    min_size: int = 0
    max_size: int = 1000
    target_size: int | None = None
    """None = as many as there are nodes of the group."""
    nodes: list[str] = []
    node_selector: dict[str, str] | None = None
    unregistered_instances: list[str] = []
    template: NodeTemplate | None = None
    from_node: str | None = None
    labels: dict[str, str] | None = None
    taints: list[Taint] = []
    capacity: ResourceList | None = None
    price: float | None = None
    """Of one node for one hour, in any currency."""
    options: NodeGroupOptions | None = None
    exists: bool = True
    autoprovisioned: bool = False
    upcoming: bool = False
    """The group is being created asynchronously."""
