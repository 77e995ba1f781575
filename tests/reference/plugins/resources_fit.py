"""NodeResourcesFit (6.6)."""

from __future__ import annotations

from typing import Any

from reference import resources
from reference.cluster import Cluster, Json, NodeState, PreFiltered, Status, unresolvable, unschedulable

NAME = "NodeResourcesFit"


def pre_filter(pod: Json, cluster: Cluster) -> PreFiltered:
    return PreFiltered()


def delegated_to_dra(name: str, allocatable: dict[str, int], cluster: Cluster) -> bool:
    """Whether a DeviceClass stands for this resource and the node does not offer it itself."""
    return allocatable.get(name, 0) <= 0 and device_class_of(name, cluster) is not None


def device_class_of(name: str, cluster: Cluster) -> Json | None:
    """The DeviceClass behind an extended resource name, while dynamic resource allocation is on."""
    if not cluster.options.dra:
        return None
    for device_class in cluster.all("DeviceClass"):
        implicit = "deviceclass.resource.kubernetes.io/" + device_class["metadata"]["name"]
        if name in (device_class["spec"].get("extendedResourceName"), implicit):
            return device_class
    return None


def is_ignored(name: str, cluster: Cluster) -> bool:
    if not resources.is_extended(name):
        return False
    group = name.split("/", maxsplit=1)[0]
    return name in cluster.options.ignored_resources or group in cluster.options.ignored_resource_groups


def check(state: Any, pod: Json, node: NodeState, cluster: Cluster) -> Status | None:
    requests = {name: max(0, number) for name, number in resources.as_integers(resources.demand(pod)).items()}
    status = node.node.get("status") or {}
    allocatable = resources.as_integers(resources.quantities(status.get("allocatable")), with_pods=True)
    used = resources.total_occupied(node.pods)

    reasons = []
    never = False
    if len(node.pods) + 1 > allocatable.get("pods", 0):
        reasons.append("Too many pods")
    scalars = sorted(name for name in requests if name not in resources.NATIVE)
    for name in [*resources.NATIVE, *scalars]:
        amount = requests.get(name, 0)
        if amount == 0:
            continue
        if name in scalars and (is_ignored(name, cluster) or delegated_to_dra(name, allocatable, cluster)):
            continue
        if amount > resources.wrap(allocatable.get(name, 0) - used.get(name, 0)):
            reasons.append(f"Insufficient {name}")
            never = never or amount > allocatable.get(name, 0)
    if not reasons:
        return None
    return unresolvable(*reasons) if never else unschedulable(*reasons)
