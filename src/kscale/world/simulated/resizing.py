"""Pods that are resized in place: what the API server allows, and what the kubelet makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from kscale.effects import PatchOperation
from kscale.objects.base import ResourceList
from kscale.objects.conditions import with_condition
from kscale.objects.core import Node, Pod
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.meta import Condition
from kscale.objects.requests import demand, occupancy
from kscale.world.simulated.api_objects import ApiObjects, RefusedError
from kscale.world.simulated.patches import PatchError, json_patch
from kscale.world.simulated.view import ClusterView

__all__ = ["resize"]

_RESOURCES = ("cpu", "memory")


def resize(api: ApiObjects, view: ClusterView, pod: Pod, patch: Sequence[PatchOperation]) -> None:
    """Changes what the containers of a pod ask for. Raises :class:`RefusedError`.

    A pod that could never fit on its node is refused; where there is no room now the kubelet puts it off, and what the
    pod takes stays as it was.
    """
    try:
        data: Any = json_patch(to_dict(pod), msgspec.to_builtins(patch))
    except PatchError as error:
        raise RefusedError(str(error), 422, "Invalid") from None
    asked = from_dict(data, Pod)
    after = replace(pod, spec=replace(pod.spec, containers=asked.spec.containers))
    node: Node | None = api.find("Node", pod.spec.node_name) if pod.spec.node_name else None
    wanted = demand(after)
    if node is not None and _exceeds(wanted, node.status.allocatable or {}):
        text = f'pods "{pod.name}" is forbidden: the node does not have enough capacity'
        raise RefusedError(text, 403, "Forbidden", ("NodeCapacity",))
    if node is None or pod.status.phase != "Running":
        api.put(after)
        return
    total = wanted
    for other in view.pods_of([node.name]):
        if other.key != pod.key:
            total = _sum(total, occupancy(other))
    if _exceeds(total, node.status.allocatable or {}):
        condition = Condition(
            type="PodResizePending", status="True", reason="Deferred", last_transition_time=api.now_text
        )
        conditions = with_condition(after.status.conditions, condition)
        api.put(replace(after, status=replace(after.status, conditions=conditions)))
        return
    containers = {each.name: each for each in after.spec.containers}
    statuses = [
        replace(
            each,
            allocated_resources=containers[each.name].resources.requests,
            resources=containers[each.name].resources,
        )
        for each in after.status.container_statuses
    ]
    conditions = [each for each in after.status.conditions if each.type != "PodResizePending"]
    api.put(replace(after, status=replace(after.status, container_statuses=statuses, conditions=conditions)))


def _sum(one: ResourceList, other: ResourceList) -> ResourceList:
    return {name: one[name] + other[name] if name in other else one[name] for name in one}


def _exceeds(amounts: ResourceList, room: ResourceList) -> bool:
    return any(name in room and name in amounts and amounts[name].cmp(room[name]) > 0 for name in _RESOURCES)
