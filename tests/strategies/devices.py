"""Device classes, slices and claims, and pods that compete for devices."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from strategies import pieces
from strategies.pieces import chance, given_sometimes

Json = dict[str, Any]

API = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"
CLAIMS = ("d0", "d1")
MODELS = ("x", "y")
TAINTS = [{"key": "broken", "effect": "NoSchedule"}]
TOLERATIONS = [{"key": "broken", "operator": "Exists"}]


def model_is(model: str) -> list[Json]:
    return [{"cel": {"expression": f"device.attributes['{DRIVER}'].model == '{model}'"}}]


def device_class(name: str, selectors: list[Json]) -> Json:
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": {"selectors": selectors}}


def claim(name: str, requests: list[Json], **more: Any) -> Json:
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": requests, **more}},
        "status": {},
    }


@st.composite
def slices(draw: st.DrawFn, name: str, *, plain: bool = False) -> list[Json]:
    """What one node offers: up to three devices, sometimes tainted or sharing a counter; nothing at times."""
    devices = []
    counted = not plain and draw(chance(4))
    for i in range(draw(st.integers(0, 3))):
        device: Json = {"name": f"dev{i}", "attributes": {"model": {"string": draw(st.sampled_from(MODELS))}}}
        device["attributes"]["numa"] = {"int": draw(st.integers(0, 1))}
        if not plain:
            given_sometimes(draw, device, "taints", st.just(TAINTS), 5)
        if counted:
            use = {"counterSet": "board", "counters": {"slots": {"value": str(draw(st.integers(1, 2)))}}}
            device["consumesCounters"] = [use]
        devices.append(device)
    if not devices:
        return []
    parts: list[Json] = [{"devices": devices}]
    if counted:
        parts.append({"sharedCounters": [{"name": "board", "counters": {"slots": {"value": "2"}}}]})
    count = len(parts) + (not plain and draw(chance(8)))
    pool = {"name": name, "generation": 1, "resourceSliceCount": count}
    return [
        {
            "apiVersion": API,
            "kind": "ResourceSlice",
            "metadata": {"name": f"s{i}-{name}"},
            "spec": {"driver": DRIVER, "nodeName": name, "pool": pool, **part},
        }
        for i, part in enumerate(parts)
    ]


@st.composite
def exact_requests(draw: st.DrawFn) -> Json:
    exact: Json = {"deviceClassName": draw(st.sampled_from([DRIVER, DRIVER, DRIVER, "small.example.com", "none"]))}
    if draw(chance(4)):
        exact["allocationMode"] = "All"
    else:
        exact |= {"allocationMode": "ExactCount", "count": draw(st.integers(1, 2))}
    given_sometimes(draw, exact, "selectors", st.sampled_from(MODELS).map(model_is), 3)
    given_sometimes(draw, exact, "tolerations", st.just(TOLERATIONS), 3)
    return exact


@st.composite
def requests(draw: st.DrawFn, name: str) -> Json:
    if draw(chance(4)):
        either = [{"name": f"or{i}", **draw(exact_requests())} for i in range(2)]
        return {"name": name, "firstAvailable": either}
    exact = draw(exact_requests())
    given_sometimes(draw, exact, "adminAccess", st.just(True), 8)
    return {"name": name, "exactly": exact}


@st.composite
def constraints(draw: st.DrawFn) -> Json:
    kind = draw(st.sampled_from(["matchAttribute", "distinctAttribute"]))
    found: Json = {kind: f"{DRIVER}/{draw(st.sampled_from(['model', 'numa', 'absent']))}"}
    given_sometimes(draw, found, "requests", st.just(["r0"]), 3)
    return found


@st.composite
def device_objects(draw: st.DrawFn, node_names: list[str], extended: bool) -> list[Json]:
    """Two device classes, slices on most nodes, and claims that are open, allocated or missing."""
    everything = device_class(DRIVER, [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}])
    if extended and draw(chance(3)):
        everything["spec"]["extendedResourceName"] = pieces.EXTENDED
    objects = [everything, device_class("small.example.com", model_is("x"))]
    free = []
    for name in node_names:
        offered = draw(slices(name))
        objects += offered
        free += [name] if offered else []
    if draw(chance(5)):
        shared = draw(slices("fabric"))
        for entry in shared:
            del entry["spec"]["nodeName"]
            entry["spec"]["allNodes"] = True
        objects += shared
    for name in CLAIMS:
        kind = draw(st.sampled_from(["open", "open", "open", "allocated", "missing"]))
        if kind == "missing":
            continue
        asked = [draw(requests(f"r{i}")) for i in range(draw(st.integers(1, 2)))]
        more = {"constraints": [draw(constraints())]} if draw(chance(3)) else {}
        entry = claim(name, asked, **more)
        if kind == "allocated" and free:
            node = free.pop(draw(st.integers(0, len(free) - 1)))
            field = {"key": "metadata.name", "operator": "In", "values": [node]}
            entry["status"]["allocation"] = {
                "devices": {"results": [{"request": "r0", "driver": DRIVER, "pool": node, "device": "dev0"}]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            }
        objects.append(entry)
    return objects


@st.composite
def competitions(draw: st.DrawFn, node_names: list[str]) -> tuple[list[Json], list[Json]]:
    """(objects, pods): pods with claims of their own whose requests are for any device, or all by model, so that the
    sets of devices they can have are equal or disjoint; some ask for the extended resource of the class."""
    by_model = draw(st.booleans())
    everything = device_class(DRIVER, [])
    everything["spec"]["extendedResourceName"] = pieces.EXTENDED
    objects = [everything, device_class("small.example.com", model_is("x"))]
    for name in node_names:
        objects += draw(slices(name, plain=True))
    pods = []
    for i in range(draw(st.integers(1, 6))):
        name = f"g{i}"
        container: Json = {"name": "c", "image": "registry.example.com/app:1", "resources": {"requests": {"cpu": "1"}}}
        pod: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {"containers": [container]},
            "status": {},
        }
        pods.append(pod)
        if not by_model and draw(chance(3)):
            container["resources"]["requests"][pieces.EXTENDED] = str(draw(st.integers(1, 2)))
            continue
        asked = []
        for r in range(draw(st.integers(1, 2))):
            exact: Json = {"deviceClassName": DRIVER, "count": draw(st.integers(1, 2))}
            if by_model:
                exact["selectors"] = model_is(draw(st.sampled_from(MODELS)))
                if draw(chance(4)):
                    exact = {"deviceClassName": "small.example.com"}
            asked.append({"name": f"r{r}", "exactly": exact})
        own = claim(f"{name}-own", asked)
        own["metadata"]["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}", "controller": True}
        ]
        objects.append(own)
        pod["spec"]["resourceClaims"] = [{"name": "own", "resourceClaimTemplateName": "any"}]
        pod["status"]["resourceClaimStatuses"] = [{"name": "own", "resourceClaimName": f"{name}-own"}]
    return objects, pods


def node(name: str) -> Json:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    labels = {pieces.HOSTNAME: name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {"allocatable": amounts},
    }


@st.composite
def filter_problems(draw: st.DrawFn) -> Json:
    """One round of filter-out-schedulable."""
    names = [f"n{i}" for i in range(draw(st.integers(1, 3)))]
    objects, pods = draw(competitions(names))
    world = [*map(node, names), *objects]
    return {"options": {"dra": True}, "rounds": [{"objects": world, "pods": pods}]}


@st.composite
def estimate_problems(draw: st.DrawFn) -> Json:
    """Some pods are placed before; the rest go on copies of a node that brings devices of its own."""
    names = [f"n{i}" for i in range(draw(st.integers(1, 2)))]
    objects, pods = draw(competitions(names))
    template: Json = {"node": node("tmpl"), "resource_slices": draw(slices("tmpl", plain=True))}
    before = draw(st.integers(0, len(pods) - 1))
    step: Json = {
        "schedule_before": pods[:before],
        "template": template,
        "pods": pods[before:],
        "options": {},
    }
    given_sometimes(draw, step["options"], "max_nodes", st.integers(1, 3), 3)
    if "max_nodes" in step["options"]:
        step["options"]["thresholds"] = ["static"]
    return {"objects": [*map(node, names), *objects], "options": {"dra": True}, "estimates": [step]}
