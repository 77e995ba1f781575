"""The structured allocator: devices of resource slices for the requests of claims (6.13).

Exact counts, All, first-available alternatives, CEL selectors, attribute constraints, admin access, device taints,
shared counters and consumable capacity (whole numbers only).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference import cel
from reference.cluster import Cluster, Json, NodeState, namespace_of
from reference.labels import node_selector_matches, tolerates
from reference.resources import quantity

DeviceId = tuple[str, str, str]
MOST_DEVICES = 32
NO_DEVICE: DeviceId = ("", "", "")
# Claim index, request name, the exact request, and the device if it is given (allocationMode All).
Slot = tuple[int, str, Json, DeviceId | None]
# Identity, device, whether its pool is complete.
Offered = list[tuple[DeviceId, Json, bool]]


class AllocationError(Exception):
    """Something is wrong with a claim or a class: no verdict, but an error."""


def visible_on(holder: Json, node: NodeState) -> bool:
    """Whether a slice (or a device that says so itself) can be used from the node."""
    if holder.get("nodeName"):
        return holder["nodeName"] == node.name
    if holder.get("allNodes"):
        return True
    selector = holder.get("nodeSelector")
    return selector is not None and node_selector_matches(selector, node.labels, node.name)


def all_slices(cluster: Cluster) -> list[Json]:
    return cluster.all("ResourceSlice") + [entry for node in cluster.nodes for entry in node.slices]


def devices_of(node: NodeState, cluster: Cluster) -> Iterator[tuple[DeviceId, Json, bool]]:
    """(identity, device, is its pool complete) of the newest generation of every pool that the node sees."""
    slices = all_slices(cluster)
    for entry in slices:
        spec = entry["spec"]
        pool = spec["driver"], spec["pool"]["name"]
        siblings = [s["spec"] for s in slices if (s["spec"]["driver"], s["spec"]["pool"]["name"]) == pool]
        newest = max(sibling["pool"].get("generation", 0) for sibling in siblings)
        if spec["pool"].get("generation", 0) != newest:
            continue
        current = sum(sibling["pool"].get("generation", 0) == newest for sibling in siblings)
        for device in spec.get("devices") or []:
            if visible_on(device if spec.get("perDeviceNodeSelection") else spec, node):
                yield (*pool, device["name"]), device, current == spec["pool"].get("resourceSliceCount", 1)


def results_of(cluster: Cluster) -> Iterator[Json]:
    for claim in cluster.claims.values():
        allocation = (claim.get("status") or {}).get("allocation") or {}
        yield from (allocation.get("devices") or {}).get("results") or []


def in_use(cluster: Cluster) -> set[DeviceId]:
    """Devices that claims have for themselves; to the autoscaler admin access is no exception."""
    return {
        (result["driver"], result["pool"], result["device"])
        for result in results_of(cluster)
        if result.get("shareID") is None
    }


def shares(cluster: Cluster) -> list[tuple[DeviceId, Json]]:
    """What is taken of shared devices."""
    return [
        ((result["driver"], result["pool"], result["device"]), result.get("consumedCapacity") or {})
        for result in results_of(cluster)
        if result.get("shareID") is not None
    ]


def shareable(device: Json) -> bool:
    return bool(device.get("allowMultipleAllocations"))


def requested_amounts(exact: Json, device: Json) -> dict[str, int] | None:
    """Return what a request takes of each capacity of a device, rounded up; None if it requests a missing capacity."""
    requested = (exact.get("capacity") or {}).get("requests") or {}
    has = device.get("capacity") or {}
    if not set(requested) <= set(has):
        return None
    amounts = {}
    for name, capacity in has.items():
        policy = capacity.get("requestPolicy") or {}
        if name not in requested:
            amounts[name] = quantity(policy.get("default", capacity["value"])).value()
            continue
        amount = quantity(requested[name]).value()
        if "validRange" in policy:
            low = quantity(policy["validRange"]["min"]).value()
            step = policy["validRange"].get("step")
            if step is None:
                amount = max(low, amount)
            else:
                while low < amount:
                    low += quantity(step).value()
                amount = low
        elif "validValues" in policy:
            amount = next((v for v in (quantity(t).value() for t in policy["validValues"]) if v >= amount), amount)
        amounts[name] = amount
    return amounts


def check_signs(where: str, exact: Json, device: Json) -> None:
    """Raise AllocationError if the request would take a negative amount."""
    for name, amount in (requested_amounts(exact, device) or {}).items():
        if amount < 0:
            raise AllocationError(f'{where}: capacity "{name}": capacity value is negative')


def takes(exact: Json, device: Json, others: list[Json]) -> Json | None:
    """What a request takes of each capacity of a device beside what others take; None if there is no room."""
    amounts = requested_amounts(exact, device)
    if amounts is None:
        return None
    for name, capacity in (device.get("capacity") or {}).items():
        policy, amount = capacity.get("requestPolicy") or {}, amounts[name]
        highest = policy.get("validRange", {}).get("max")
        if highest is not None and amount > quantity(highest).value():
            return None
        if "validValues" in policy and amount not in [quantity(text).value() for text in policy["validValues"]]:
            return None
        consumed = sum(quantity(other[name]).value() for other in others if name in other)
        if amount + consumed > quantity(capacity["value"]).value():
            return None
    return {name: str(amount) for name, amount in amounts.items()}


def where_usable(results: list[Json], node: NodeState, cluster: Cluster) -> Json | None:
    """The node selector of an allocation."""
    selectors: list[Json] = []
    for result in results:
        for entry in all_slices(cluster):
            spec = entry["spec"]
            if (spec["driver"], spec["pool"]["name"]) != (result["driver"], result["pool"]):
                continue
            if any(device["name"] == result["device"] for device in spec.get("devices") or []):
                if spec.get("nodeName"):
                    name = [{"key": "metadata.name", "operator": "In", "values": [node.name]}]
                    return {"nodeSelectorTerms": [{"matchFields": name}]}
                if spec.get("nodeSelector"):
                    selectors.append(spec["nodeSelector"])
    return selectors[0] if selectors else None


def allocate(claims: list[Json], node: NodeState, cluster: Cluster) -> list[list[Json]] | None:
    """Results per claim, or None if they cannot all be satisfied on this node. Plain backtracking."""
    offered = list(devices_of(node, cluster))
    demands: list[list[list[Slot]]] = []
    for index, claim in enumerate(claims):
        expected = 0
        for request in claim["spec"]["devices"].get("requests") or []:
            alternatives = []
            counts = []
            for name, exact in alternatives_of(request):
                slots = slots_of(claim, index, name, exact, offered, cluster)
                takes_all = exact.get("allocationMode") == "All"
                counts.append(len(slots) if takes_all else count_of(exact))
                if takes_all and not slots:  # fails, but only once the requests before it have devices
                    slots = [(index, name, exact, NO_DEVICE)]
                alternatives.append(slots)
            least = min(counts)
            if least > MOST_DEVICES - expected:
                key = f"{namespace_of(claim)}/{claim['metadata']['name']}"
                raise AllocationError(
                    f"claim {key}, request {request['name']}: adding {least} devices exceeds the claim limit of "
                    f"{MOST_DEVICES}, with {expected} already accounted for"
                )
            expected += least
            demands.append(alternatives)
    assigned = assign(demands, [], [], claims, offered, cluster)
    if assigned is None:
        return None
    results: list[list[Json]] = [[] for _ in claims]
    for n, ((index, name, exact, _), (driver, pool, device), consumed) in enumerate(assigned):
        result = {"request": name, "driver": driver, "pool": pool, "device": device}
        if exact.get("adminAccess"):
            result["adminAccess"] = True
        if consumed is not None:
            result |= {"shareID": f"share-{n}", "consumedCapacity": consumed}
        results[index].append(result)
    return results


def alternatives_of(request: Json) -> list[tuple[str, Json]]:
    if request.get("firstAvailable"):
        return [(f"{request['name']}/{each['name']}", each) for each in request["firstAvailable"]]
    return [(request["name"], request.get("exactly") or request)]


def count_of(exact: Json) -> int:
    return 1 if exact.get("count") is None else int(exact["count"])


def slots_of(claim: Json, index: int, name: str, exact: Json, offered: Offered, cluster: Cluster) -> list[Slot]:
    """One slot a device; a slot of an All request is fixed to its device. None at all: there is nothing to be had."""
    where = f"claim {namespace_of(claim)}/{claim['metadata']['name']}, request {name.rpartition('/')[2]}"
    if cluster.get("DeviceClass", exact.get("deviceClassName") or "") is None:
        class_name = exact.get("deviceClassName")
        raise AllocationError(
            f'{where}: could not retrieve device class {class_name}: DeviceClass "{class_name}" not found'
        )
    if exact.get("allocationMode") != "All":
        return [(index, name, exact, None)] * min(count_of(exact), MOST_DEVICES + 1)  # more cannot be had, either
    slots: list[Slot] = []
    for identity, device, complete in offered:
        if not complete:
            pool = "/".join(identity[:2])
            raise AllocationError(f"{where}: asks for all devices, but resource pool {pool} is currently being updated")
        if not selected(claim, exact, identity, device, cluster):
            continue
        check_signs(f"{where}: checking capacity for device {identity[2]}", exact, device)
        if takes(exact, device, []) is not None:  # a device whose capacities others use is one of all, too
            slots.append((index, name, exact, identity))
    return slots


# A slot, its device, and what is taken of the device's capacities if it is a shared one.
Taken = tuple[Slot, DeviceId, Json | None]


def assign(
    demands: list[list[list[Slot]]],
    slots: list[Slot],
    assigned: list[Taken],
    claims: list[Json],
    offered: Offered,
    cluster: Cluster,
) -> list[Taken] | None:
    """Return devices for the slots after those taken, then for one alternative of each of `demands`; or None."""
    if len(assigned) == len(slots):
        if not demands:
            return assigned
        for alternative in demands[0]:
            allocated = assign(demands[1:], [*slots, *alternative], assigned, claims, offered, cluster)
            if allocated is not None:
                return allocated
        return None
    slot = slots[len(assigned)]
    index, name, exact, fixed = slot
    if sum(each[0] == index for each in slots) > MOST_DEVICES:
        return None
    used = in_use(cluster)
    for identity, device, complete in offered:
        if fixed not in (None, identity) or not complete:
            continue
        admin = bool(exact.get("adminAccess"))
        already = [each for each in assigned if each[1] == identity]
        if shareable(device):
            if identity in used and not admin:
                continue
            if any(each[0][:2] == (index, name) for each in already):
                continue  # one request takes each device once
        elif (already if not admin else any(each[0][0] == index for each in already)) or (
            identity in used and not admin
        ):
            continue
        if not selected(claims[index], exact, identity, device, cluster):
            continue
        where = (
            f"claim {namespace_of(claims[index])}/{claims[index]['metadata']['name']}, request {name.split('/')[-1]}"
        )
        check_signs(f"{where}: checking capacity for device {'/'.join(identity)}", exact, device)
        if not counters_suffice(
            {*used, *(each for each, _ in shares(cluster)), *(t[1] for t in assigned)}, identity, cluster
        ):
            continue
        if untolerated(device.get("taints") or [], exact.get("tolerations") or []):
            continue
        if not constraints_hold(slots, [*(each[1] for each in assigned), identity], claims, offered):
            if fixed is not None:
                raise AllocationError(
                    f"{where}: cannot add device {'/'.join(identity)} because a claim constraint would not be satisfied"
                )
            continue
        others = [amounts for each, amounts in shares(cluster) if each == identity]
        consumed = takes(exact, device, others + [each[2] for each in already if each[2] is not None])
        if consumed is None:
            continue
        more: list[Taken] = [*assigned, (slot, identity, consumed if shareable(device) else None)]
        rest = assign(demands, slots, more, claims, offered, cluster)
        if rest is not None:
            return rest
    return None


def untolerated(taints: list[Json], tolerations: list[Json]) -> bool:
    return any(
        taint["effect"] in ("NoSchedule", "NoExecute") and not any(tolerates(each, taint) for each in tolerations)
        for taint in taints
    )


def counters_suffice(spent: set[DeviceId], newest: DeviceId, cluster: Cluster) -> bool:
    """Whether no counter of the pool is exceeded by all devices that are given away, the newest one included."""
    devices: dict[DeviceId, Json] = {}
    remaining: dict[tuple[str, str], int] = {}
    for entry in all_slices(cluster):
        spec = entry["spec"]
        pool = spec["driver"], spec["pool"]["name"]
        if pool != newest[:2]:
            continue
        for counters in spec.get("sharedCounters") or []:
            for name, counter in counters["counters"].items():
                remaining[counters["name"], name] = quantity(counter["value"]).milli()
        devices |= {(*pool, device["name"]): device for device in spec.get("devices") or []}
    if not devices[newest].get("consumesCounters"):
        return True
    for identity in [*spent, *([] if newest in spent and shareable(devices[newest]) else [newest])]:
        for use in devices.get(identity, {}).get("consumesCounters") or []:
            for name, counter in use["counters"].items():
                remaining[use["counterSet"], name] -= quantity(counter["value"]).milli()
    return (newest in spent and shareable(devices[newest])) or all(amount >= 0 for amount in remaining.values())


def constraints_hold(slots: list[Slot], assigned: list[DeviceId], claims: list[Json], offered: Offered) -> bool:
    """matchAttribute: one value for all devices of the named requests; distinctAttribute: all different."""
    by_id = {identity: device for identity, device, _ in offered}
    for index, claim in enumerate(claims):
        for constraint in claim["spec"]["devices"].get("constraints") or []:
            names = constraint.get("requests") or []
            key = constraint.get("matchAttribute") or constraint.get("distinctAttribute")
            values = []
            for (slot_claim, name, _, _), identity in zip(slots, assigned, strict=False):
                if slot_claim == index and (not names or name in names or name.split("/")[0] in names):
                    values.append(attribute(by_id[identity], identity[0], key))
            if None in values:
                return False
            different = len(set(values))
            if constraint.get("matchAttribute") and different > 1:
                return False
            if constraint.get("distinctAttribute") and different < len(values):
                return False
    return True


def attribute(device: Json, driver: str, key: str) -> Any:
    """A device's attribute by its full name; an unqualified name belongs to the driver's domain."""
    result = device.get("attributes") or {}
    domain, _, name = key.rpartition("/")
    raw = result.get(key, result.get(name) if domain == driver else None)
    return next(iter(raw.items())) if raw else None


def selected(claim: Json, exact: Json, identity: DeviceId, device: Json, cluster: Cluster) -> bool:
    """Whether the selectors of class and request all say yes."""
    device_class = cluster.get("DeviceClass", exact["deviceClassName"])
    assert device_class is not None
    owner = f"claim {namespace_of(claim)}/{claim['metadata']['name']}"
    for title, selectors in (
        (f"class {exact['deviceClassName']}", device_class["spec"].get("selectors")),
        (owner, exact.get("selectors")),
    ):
        for index, selector in enumerate(selectors or []):
            try:
                verdict = cel.selects(selector["cel"]["expression"], identity[0], device)
            except cel.CelError as problem:
                where = f"{title}: selector #{index} on device {'/'.join(identity)}"
                raise AllocationError(f"{where}: CEL runtime error: {problem}") from problem
            if not verdict:
                return False
    return True
