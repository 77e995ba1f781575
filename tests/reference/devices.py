"""The structured allocator: devices of resource slices for the requests of claims (6.13).

Exact counts, All, first-available alternatives, CEL selectors, attribute constraints, admin access, device taints and
shared counters. Consumable capacity is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import celpy
from celpy import celtypes

from reference.cluster import Cluster, Json, NodeState, namespace_of
from reference.labels import node_selector_matches, tolerates
from reference.resources import quantity

CEL = celpy.Environment()  # here and not later: it raises the recursion limit

DeviceId = tuple[str, str, str]
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


def in_use(cluster: Cluster) -> set[DeviceId]:
    used = set()
    for claim in cluster.claims.values():
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or []:
            if not result.get("adminAccess"):
                used.add((result["driver"], result["pool"], result["device"]))
    return used


def allocate(claims: list[Json], node: NodeState, cluster: Cluster) -> list[list[Json]] | None:
    """Results per claim, or None if they cannot all be satisfied on this node. Plain backtracking."""
    offered = list(devices_of(node, cluster))
    demands: list[list[list[Slot]]] = [[]]
    for index, claim in enumerate(claims):
        for request in claim["spec"]["devices"].get("requests") or []:
            alternatives = []
            for name, exact in alternatives_of(request):
                slots = slots_of(claim, index, name, exact, offered, cluster)
                if slots is not None:
                    alternatives.append(slots)
            demands = [[*before, slots] for before in demands for slots in alternatives]
    used = in_use(cluster)
    for choice in demands:
        flat = [slot for slots in choice for slot in slots]
        taken = assign(flat, [], claims, offered, used, cluster)
        if taken is not None:
            results: list[list[Json]] = [[] for _ in claims]
            for (index, name, exact, _), (driver, pool, device) in zip(flat, taken, strict=True):
                result = {"request": name, "driver": driver, "pool": pool, "device": device}
                if exact.get("adminAccess"):
                    result["adminAccess"] = True
                results[index].append(result)
            return results
    return None


def alternatives_of(request: Json) -> list[tuple[str, Json]]:
    if request.get("firstAvailable"):
        return [(f"{request['name']}/{each['name']}", each) for each in request["firstAvailable"]]
    return [(request["name"], request.get("exactly") or request)]


def slots_of(claim: Json, index: int, name: str, exact: Json, offered: Offered, cluster: Cluster) -> list[Slot] | None:
    """One slot a device; a slot of an All request is fixed to its device. None if it cannot be satisfied."""
    if cluster.get("DeviceClass", exact.get("deviceClassName") or "") is None:
        wanted = exact.get("deviceClassName")
        where = f"claim {namespace_of(claim)}/{claim['metadata']['name']}, request {name}"
        raise AllocationError(f'{where}: could not retrieve device class {wanted}: DeviceClass "{wanted}" not found')
    if exact.get("allocationMode") != "All":
        return [(index, name, exact, None)] * (1 if exact.get("count") is None else exact["count"])
    slots: list[Slot] = []
    for identity, device, complete in offered:
        if selected(claim, exact, identity, device, cluster):
            if not complete:
                return None
            slots.append((index, name, exact, identity))
    return slots or None


def assign(
    slots: list[Slot],
    taken: list[DeviceId],
    claims: list[Json],
    offered: Offered,
    used: set[DeviceId],
    cluster: Cluster,
) -> list[DeviceId] | None:
    """A device for every slot after those taken, or None."""
    if len(taken) == len(slots):
        return taken
    index, _, exact, fixed = slots[len(taken)]
    for identity, device, complete in offered:
        if fixed not in (None, identity) or not complete:
            continue
        admin = bool(exact.get("adminAccess"))
        if admin and any(slot[0] == index and each == identity for slot, each in zip(slots, taken, strict=False)):
            continue
        if not admin and identity in used | set(taken):
            continue
        if not selected(claims[index], exact, identity, device, cluster):
            continue
        if untolerated(device.get("taints") or [], exact.get("tolerations") or []):
            continue
        spending = [each for slot, each in zip(slots, taken, strict=False) if not slot[2].get("adminAccess")]
        if not admin and not counters_suffice({*used, *spending, identity}, identity, cluster):
            continue
        if not constraints_hold(slots, [*taken, identity], claims, offered):
            continue
        rest = assign(slots, [*taken, identity], claims, offered, used, cluster)
        if rest is not None:
            return rest
    return None


def untolerated(taints: list[Json], tolerations: list[Json]) -> bool:
    return any(
        taint["effect"] in ("NoSchedule", "NoExecute") and not any(tolerates(each, taint) for each in tolerations)
        for taint in taints
    )


def counters_suffice(spent: set[DeviceId], newest: DeviceId, cluster: Cluster) -> bool:
    """Whether the counters that the newest device takes of are not exceeded by all devices that are given away."""
    available: dict[tuple[str, str], Any] = {}
    consumed: dict[tuple[str, str], Any] = {}
    touched = set()
    for entry in all_slices(cluster):
        spec = entry["spec"]
        pool = spec["driver"], spec["pool"]["name"]
        if pool != newest[:2]:
            continue
        for counters in spec.get("sharedCounters") or []:
            for name, counter in counters["counters"].items():
                available[counters["name"], name] = quantity(counter["value"]).milli()
        for device in spec.get("devices") or []:
            for use in device.get("consumesCounters") or []:
                for name, counter in use["counters"].items():
                    key = use["counterSet"], name
                    if (*pool, device["name"]) == newest:
                        touched.add(key)
                    if (*pool, device["name"]) in spent:
                        consumed[key] = consumed.get(key, 0) + quantity(counter["value"]).milli()
    return all(key in available and consumed[key] <= available[key] for key in touched)


def constraints_hold(slots: list[Slot], taken: list[DeviceId], claims: list[Json], offered: Offered) -> bool:
    """matchAttribute: one value for all devices of the named requests; distinctAttribute: all different."""
    by_id = {identity: device for identity, device, _ in offered}
    for index, claim in enumerate(claims):
        for constraint in claim["spec"]["devices"].get("constraints") or []:
            names = constraint.get("requests") or []
            key = constraint.get("matchAttribute") or constraint.get("distinctAttribute")
            values = []
            for (slot_claim, name, _, _), identity in zip(slots, taken, strict=False):
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
    found = device.get("attributes") or {}
    domain, _, name = key.rpartition("/")
    raw = found.get(key, found.get(name) if domain == driver else None)
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
                verdict = evaluate(selector["cel"]["expression"], identity[0], device)
            except celpy.CELEvalError as problem:
                raise AllocationError(f"{title}: selector #{index}: runtime error: {problem.args[0]}") from problem
            if not verdict:
                return False
    return True


def evaluate(expression: str, driver: str, device: Json) -> bool:
    """A CEL selector over `device.driver`, `device.attributes[domain].name` and `device.capacity[domain].name`."""

    def by_domain(entries: Json, convert: Callable[[Json], Any]) -> Any:
        domains: dict[str, dict[str, Any]] = {driver: {}}
        for key, raw in entries.items():
            domain, _, name = key.rpartition("/")
            domains.setdefault(domain or driver, {})[name] = convert(raw)
        return domains

    view = {
        "driver": driver,
        "attributes": by_domain(device.get("attributes") or {}, lambda raw: next(iter(raw.values()))),
        # Thousandths stand for a quantity: CEL integers are 64 bits wide.
        "capacity": by_domain(device.get("capacity") or {}, lambda raw: quantity(raw["value"]).milli()),
    }
    functions = {
        "quantity": lambda text: celtypes.IntType(quantity(str(text)).milli()),
        "compareTo": lambda a, b: celtypes.IntType((a > b) - (a < b)),
        "isGreaterThan": lambda a, b: celtypes.BoolType(a > b),
        "isLessThan": lambda a, b: celtypes.BoolType(a < b),
    }
    program = CEL.program(compiled(expression), functions=functions)
    return bool(program.evaluate({"device": celpy.json_to_cel(view)}))


@cache
def compiled(expression: str) -> Any:
    return CEL.compile(expression)
