"""DynamicResources (6.13)."""

from __future__ import annotations

from dataclasses import dataclass

from reference import devices, resources
from reference.cluster import (
    SKIPPED,
    Cluster,
    Json,
    NodeState,
    PreFiltered,
    Status,
    error,
    namespace_of,
    unresolvable,
)
from reference.labels import node_selector_matches
from reference.plugins import resources_fit

NAME = "DynamicResources"
MOST_CONSUMERS = 256


class ClaimError(Exception):
    """A claim of the pod cannot be used; the text is the reason."""


@dataclass
class PodClaims:
    """The pod's claims: those allocated already, and those the allocator must satisfy; extended resources by name."""

    allocated: list[Json]
    open: list[Json]
    extended: dict[str, list[tuple[str, int]]]
    stale: bool = False


def claim_name(pod: Json, entry: Json) -> tuple[str, bool] | None:
    """(name, must the pod own it) of one entry of spec.resourceClaims; None when the entry needs no claim."""
    if entry.get("resourceClaimName") is not None:
        return entry["resourceClaimName"], False
    for status in (pod.get("status") or {}).get("resourceClaimStatuses") or []:
        if status.get("name") == entry["name"]:
            name = status.get("resourceClaimName")
            return (name, True) if name is not None else None
    raise ClaimError(f'pod "{namespace_of(pod)}/{pod["metadata"]["name"]}": ResourceClaim not created yet')


def claims_of(pod: Json, cluster: Cluster) -> list[Json]:
    result = []
    namespace = namespace_of(pod)
    for entry in pod["spec"].get("resourceClaims") or []:
        named = claim_name(pod, entry)
        if named is None:
            continue
        if not cluster.options.dra:
            raise ClaimError("object not found: dra manager is disabled")
        name, owned = named
        claim = cluster.claims.get((namespace, name))
        if claim is None:
            raise ClaimError(f"claim {namespace}/{name} not found")
        if claim["metadata"].get("deletionTimestamp"):
            raise ClaimError(f'resourceclaim "{name}" is being deleted')
        owners = claim["metadata"].get("ownerReferences") or []
        mine = any(o.get("controller") and o.get("uid") == pod["metadata"].get("uid") for o in owners)
        if owned and not mine:
            pod_name = f"{namespace}/{pod['metadata']['name']}"
            raise ClaimError(f"ResourceClaim {namespace}/{name} was not created for Pod {pod_name} (Pod is not owner)")
        result.append(claim)
    return result


def is_allocated(claim: Json) -> bool:
    return (claim.get("status") or {}).get("allocation") is not None


def extended_resources(pod: Json, cluster: Cluster) -> dict[str, list[tuple[str, int]]]:
    """The extended resources of the pod that a DeviceClass stands for, with name and count of the device requests."""
    return {
        name: device_requests(pod, name)
        for name, amount in resources.demand(pod).items()
        if amount.mantissa != 0 and may_be_devices(name) and resources_fit.device_class_of(name, cluster) is not None
    }


def may_be_devices(name: str) -> bool:
    return resources.is_extended(name) or name.startswith("deviceclass.resource.kubernetes.io/")


def device_requests(pod: Json, resource: str) -> list[tuple[str, int]]:
    """One request for each container and sidecar that asks for the resource, and one for all init containers: that of
    the init container that lacks most. An init container uses the devices of containers behind it, one after the
    other, until they suffice. An amount that is no whole number asks for nothing, and neither does overhead."""
    init = pod["spec"].get("initContainers") or []
    containers = [*init, *pod["spec"]["containers"]]

    def ends(i: int) -> bool:
        return i < len(init) and containers[i].get("restartPolicy") != "Always"

    def count_of(i: int) -> int:
        amount = resources.spec_requests(containers[i]).get(resource, resources.ZERO)
        return amount.as_int64() or 0

    def name_of(i: int) -> str:
        return f"container-{i}-request-{sorted(containers[i]['resources']['requests']).index(resource)}"

    asking = [i for i in range(len(containers)) if count_of(i) != 0]
    lasting = [(name_of(i), count_of(i)) for i in asking if not ends(i)]
    greatest: tuple[str, int] | None = None
    for i in asking:
        if not ends(i):
            continue
        usable = [count_of(other) for other in asking if other > i and not ends(other)]
        used = 0
        while usable and used < count_of(i):
            used += usable.pop(0)
        if count_of(i) <= used and used != 0:
            continue
        if greatest is None or count_of(i) - used > greatest[1]:
            greatest = name_of(i), count_of(i) - used
    return lasting if greatest is None else [*lasting, greatest]


def pre_filter(pod: Json, cluster: Cluster) -> PreFiltered:
    try:
        claims = claims_of(pod, cluster)
    except ClaimError as problem:
        return PreFiltered(unresolvable(str(problem)))
    extended = extended_resources(pod, cluster)
    extended_requests = leftover(pod, cluster) if extended else None
    if not claims and not extended:
        return PreFiltered(SKIPPED)
    uid = pod["metadata"].get("uid")
    for claim in claims:
        consumers = (claim.get("status") or {}).get("reservedFor") or []
        mine = any(consumer.get("uid") == uid for consumer in consumers)
        if is_allocated(claim) and not mine and len(consumers) >= MOST_CONSUMERS:
            return PreFiltered(unresolvable("resourceclaim in use"))
    allocated = [claim for claim in claims if is_allocated(claim)]
    still_open = [claim for claim in claims if not is_allocated(claim)]
    return PreFiltered(state=PodClaims(allocated, still_open, extended, extended_requests is not None))


def leftover(pod: Json, cluster: Cluster) -> Json | None:
    """What the scheduler made for the pod's extended resources when it tried before (always with requests here)."""
    for claim in cluster.objects.get("ResourceClaim", {}).values():
        meta = claim["metadata"]
        created = (meta.get("annotations") or {}).get("resource.kubernetes.io/extended-resource-claim") == "true"
        for owner in meta.get("ownerReferences") or []:
            uid = pod["metadata"].get("uid")
            if (
                created
                and owner.get("controller")
                and owner.get("uid") == uid
                and owner["name"] == pod["metadata"]["name"]
            ):
                return claim
    return None


def has_failed(claim: Json) -> bool:
    """Whether a condition of one of its devices says that binding failed; there is no clock here."""
    for result in claim["status"]["allocation"]["devices"].get("results") or []:
        if not result.get("bindingConditions"):
            continue
        failures = [
            device
            for device in claim["status"].get("devices") or []
            if all(device[name] == result[name] for name in ("driver", "pool", "device"))
        ]
        if not failures:
            return False
        true = {c["type"] for c in failures[0].get("conditions") or [] if c["status"] == "True"}
        if true & set(result.get("bindingFailureConditions") or []):
            return True
        if set(result["bindingConditions"]) - true:
            return False
    return False


def claims_to_allocate(state: PodClaims, pod: Json, node: NodeState, cluster: Cluster) -> list[Json]:
    """The open claims, and one for the extended resources that this node does not offer itself."""
    status = node.node.get("status") or {}
    allocatable = resources.as_integers(resources.quantities(status.get("allocatable")))
    requests = []
    numbers = resources.as_integers(resources.demand(pod))
    delegated = [
        name
        for name in state.extended
        if numbers[name] != 0 and resources_fit.delegated_to_dra(name, allocatable, cluster)
    ]
    for resource in delegated:
        device_class = resources_fit.device_class_of(resource, cluster)
        assert device_class is not None
        for name, count in state.extended[resource]:
            exactly = {"deviceClassName": device_class["metadata"]["name"], "count": count}
            requests.append({"name": name, "exactly": exactly})
    if not delegated:
        return state.open
    metadata = {"name": "<extended-resources>", "namespace": namespace_of(pod)}
    requests.sort(key=lambda request: request["name"])
    return [*state.open, {"metadata": metadata, "spec": {"devices": {"requests": requests}}}]


def check(state: PodClaims, pod: Json, node: NodeState, cluster: Cluster) -> Status | None:
    if state.stale:
        return unresolvable("cannot schedule extended resource claim")
    claims = claims_to_allocate(state, pod, node, cluster)
    try:
        if claims and devices.allocate(claims, node, cluster) is None:
            return unresolvable("cannot allocate all claims")
    except devices.AllocationError as problem:
        return error(str(problem))
    for claim in state.allocated:
        selector = claim["status"]["allocation"].get("nodeSelector")
        if selector is not None and not node_selector_matches(selector, node.labels, node.name):
            return unresolvable("resourceclaim not available on the node")
        if has_failed(claim):
            return unresolvable("resourceclaim not available on the node")
    return None


def reserve(pod: Json, node: NodeState, cluster: Cluster) -> None:
    """Fixes the allocations that the Filter found when the pod is placed. A pod without claims reserves nothing, also
    if it asks for extended resources: the autoscaler looks at spec.resourceClaims."""
    state = pre_filter(pod, cluster).state
    if not isinstance(state, PodClaims) or not pod["spec"].get("resourceClaims"):
        return
    claims = claims_to_allocate(state, pod, node, cluster)
    allocations = devices.allocate(claims, node, cluster) or []
    for claim, results in zip(claims, allocations, strict=True):
        allocation: Json = {"devices": {"results": results}}
        selector = devices.where_usable(results, node, cluster)
        if selector is not None:
            allocation["nodeSelector"] = selector
        claim.setdefault("status", {})["allocation"] = allocation
        if claim["metadata"]["name"] == "<extended-resources>":
            cluster.claims[namespace_of(pod), f"<extended-resources> {pod['metadata']['name']}"] = claim
    consumer = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"].get("uid")}
    for claim in state.allocated + state.open:
        reserved = claim["status"].setdefault("reservedFor", [])
        if all(each.get("uid") != consumer["uid"] for each in reserved):
            reserved.append(consumer)
