"""Cluster-wide limits of release 1.3 (``core/scale_up.go``): what is left, what a node takes, how many nodes fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kscale.ca.errors import CLOUD_PROVIDER_ERROR, INTERNAL_ERROR, AutoscalerError
from kscale.ca.gpu import DEFAULT_GPU_LABEL, gpu_target
from kscale.ca.options import ResourceLimiter
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.quantity import Quantity
from kscale.objects.requests import CPU, MEMORY

__all__ = ["UNKNOWN", "apply_limits", "exceeded", "left_limits", "resources_delta"]

UNKNOWN: Final = 2**63 - 1
"""The limit is there but nobody knows what is left of it: it blocks."""

_NOTHING = Quantity.zero()


def _cores_and_bytes(node: Node) -> tuple[int, int]:
    capacity = node.status.capacity or {}
    return capacity.get(CPU, _NOTHING).value(), capacity.get(MEMORY, _NOTHING).value()


def left_limits(
    limiter: ResourceLimiter,
    groups: Iterable[NodeGroup],
    templates: Mapping[str, Node],
    nodes_without_group: Iterable[Node],
    gpu_label: str = DEFAULT_GPU_LABEL,
) -> dict[str, int]:
    """What may still be added of each limited resource (computeScaleUpResourcesLeftLimits).

    A group counts with its target size, so nodes on their way count. A resource whose maximum is 0 or less is not
    limited; one that only has a minimum is, by the largest number there is. Raises :class:`AutoscalerError` for a group
    of unknown size, or with nodes and no template.
    """
    cores = memory = 0
    devices: dict[str, int] = {}
    devices_known = True
    for group in groups:
        if group.target_size_error is not None:
            text = f"Failed to get node group size of {group.id}:{group.target_size_error}"
            raise AutoscalerError(CLOUD_PROVIDER_ERROR, text)
        if group.size <= 0:
            continue
        node = templates.get(group.id)
        if node is None:
            raise AutoscalerError(CLOUD_PROVIDER_ERROR, f"No node info for: {group.id}")
        own = _cores_and_bytes(node)
        cores, memory = cores + own[0] * group.size, memory + own[1] * group.size
        devices_known &= _count(devices, node, group, group.size, gpu_label)
    for node in nodes_without_group:
        own = _cores_and_bytes(node)
        cores, memory = cores + own[0], memory + own[1]
        devices_known &= _count(devices, node, None, 1, gpu_label)
    left: dict[str, int] = {}
    for name in dict.fromkeys([*limiter.max, *limiter.min]):
        limit = limiter.max.get(name, UNKNOWN)
        if limit <= 0:
            continue
        total = {CPU: cores, MEMORY: memory}.get(name, devices.get(name, 0) if devices_known else None)
        left[name] = UNKNOWN if total is None else max(0, limit - total)
    return left


def _count(devices: dict[str, int], node: Node, group: NodeGroup | None, times: int, gpu_label: str) -> bool:
    target = _gpu_of(node, group, gpu_label)
    if target is None:
        return False
    if target[0]:
        devices[target[0]] = devices.get(target[0], 0) + target[1] * times
    return True


def _gpu_of(node: Node, group: NodeGroup | None, gpu_label: str) -> tuple[str, int] | None:
    """(type, count) of a node's GPUs, ("", 0) without; None where they cannot be told."""
    try:
        found = gpu_target(
            gpu_label,
            node,
            group=None if group is None else group.id,
            template=None if group is None or group.template is None else group.template.node,
            template_error=None if group is None else group.template_error,
        )
    except AutoscalerError:
        return None
    return ("", 0) if found is None else found


def resources_delta(
    limiter: ResourceLimiter, group: NodeGroup, node: Node, gpu_label: str = DEFAULT_GPU_LABEL
) -> dict[str, int]:
    """What one more node of the group takes (computeScaleUpResourcesDelta); devices only where something limits them.

    Raises :class:`AutoscalerError` if its devices cannot be told.
    """
    cores, memory = _cores_and_bytes(node)
    delta = {CPU: cores, MEMORY: memory}
    if any(name not in (CPU, MEMORY) for name in (*limiter.max, *limiter.min)):
        target = _gpu_of(node, group, gpu_label)
        if target is None:
            raise AutoscalerError(CLOUD_PROVIDER_ERROR, f"Failed to get GPUs of node group {group.id}")
        if target[0]:
            delta[target[0]] = target[1]
    return delta


def exceeded(left: Mapping[str, int], delta: Mapping[str, int]) -> list[str]:
    """The resources of which that much is not left, sorted (checkScaleUpDeltaWithinLimits)."""
    return sorted(
        name
        for name, more in delta.items()
        if more > 0 and name in left and (left[name] == UNKNOWN or more > left[name])
    )


def apply_limits(new_nodes: int, left: Mapping[str, int], delta: Mapping[str, int]) -> int:
    """How many of the nodes the limits allow. Raises :class:`AutoscalerError` if none (applyScaleUpResourcesLimits)."""
    for name, more in delta.items():
        limit = left.get(name)
        if limit is None:
            continue
        if limit == UNKNOWN:
            raise AutoscalerError(INTERNAL_ERROR, f"limit unknown for resource {name}")
        if new_nodes * more > limit:
            new_nodes = limit // more
            if new_nodes < 1:
                text = f"cannot create any node; max limit for resource {name} reached"
                raise AutoscalerError(INTERNAL_ERROR, text)
    return new_nodes
