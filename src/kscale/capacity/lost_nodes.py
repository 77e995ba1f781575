"""Pods and groups once their nodes are gone."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from kscale.objects.core import Pod, PodStatus
from kscale.objects.meta import Condition
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.owners import is_daemonset_pod, is_mirror_pod

__all__ = ["goes_with_its_node", "smaller", "waiting"]


def waiting(pod: Pod) -> Pod:
    """The pod without a node: the scheduler has looked at it and found none."""
    unschedulable = Condition(type="PodScheduled", status="False", reason="Unschedulable")
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(pod.spec, node_name=""),
        status=PodStatus(phase="Pending", conditions=[unschedulable]),
    )


def goes_with_its_node(pod: Pod) -> bool:
    """Nobody makes it anew elsewhere: pods of DaemonSets and of the kubelet, and those that have ended."""
    return is_daemonset_pod(pod) or is_mirror_pod(pod) or pod.status.phase in ("Succeeded", "Failed")


def smaller(group: NodeGroup, count: int, gone: Collection[str]) -> NodeGroup:
    """The group without ``count`` nodes, among those that are ``gone``: the cloud does not make them by itself."""
    if not count:
        return group
    target = group.target_size
    return msgspec.structs.replace(
        group,
        target_size=None if target is None else max(0, target - count),
        nodes=[name for name in group.nodes if name not in gone],
        from_node=None if group.from_node in gone else group.from_node,
    )
