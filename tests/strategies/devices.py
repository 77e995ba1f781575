"""Device classes, slices and claims, and pods that compete for devices."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from strategies import pieces
from strategies.pieces import chance, set_sometimes

Json = dict[str, Any]

API = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"
CLAIMS = ("d0", "d1")
CLAIMS_OF_COMPETITORS = ("s0", "s1")
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
    shared = not plain and draw(chance(4))
    for i in range(draw(st.integers(0, 3))):
        device: Json = {"name": f"dev{i}", "attributes": {"model": {"string": draw(st.sampled_from(MODELS))}}}
        device["attributes"]["numa"] = {"int": draw(st.integers(0, 1))}
        if not plain:
            set_sometimes(draw, device, "taints", st.just(TAINTS), 5)
        if shared:
            device["capacity"] = {"memory": draw(capacities())}
            set_sometimes(draw, device, "allowMultipleAllocations", st.just(True), 2)
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
def capacities(draw: st.DrawFn) -> Json:
    result: Json = {"value": str(draw(st.integers(2, 8)))}
    policy = draw(st.sampled_from([None, "range", "values"]))
    if policy == "range":
        result["requestPolicy"] = {"default": "1", "validRange": {"min": "1", "step": "2", "max": "5"}}
    elif policy == "values":
        result["requestPolicy"] = {"default": "2", "validValues": ["2", "4"]}
    return result


@st.composite
def exact_requests(draw: st.DrawFn) -> Json:
    exact: Json = {"deviceClassName": draw(st.sampled_from([DRIVER, DRIVER, DRIVER, "small.example.com", "none"]))}
    if draw(chance(4)):
        exact["allocationMode"] = "All"
    else:
        exact |= {"allocationMode": "ExactCount", "count": draw(st.integers(1, 2))}
    set_sometimes(draw, exact, "selectors", st.sampled_from(MODELS).map(model_is), 3)
    set_sometimes(draw, exact, "tolerations", st.just(TOLERATIONS), 3)
    amounts = st.integers(1, 5).map(lambda amount: {"requests": {"memory": str(amount)}})
    set_sometimes(draw, exact, "capacity", amounts, 6)
    return exact


@st.composite
def requests(draw: st.DrawFn, name: str) -> Json:
    if draw(chance(4)):
        either = [{"name": f"or{i}", **draw(exact_requests())} for i in range(2)]
        return {"name": name, "firstAvailable": either}
    exact = draw(exact_requests())
    set_sometimes(draw, exact, "adminAccess", st.just(True), 8)
    return {"name": name, "exactly": exact}


@st.composite
def constraints(draw: st.DrawFn) -> Json:
    kind = draw(st.sampled_from(["matchAttribute", "distinctAttribute"]))
    result: Json = {kind: f"{DRIVER}/{draw(st.sampled_from(['model', 'numa', 'absent']))}"}
    set_sometimes(draw, result, "requests", st.just(["r0"]), 3)
    return result


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
        requests_ = [draw(requests(f"r{i}")) for i in range(draw(st.integers(1, 2)))]
        more = {"constraints": [draw(constraints())]} if draw(chance(3)) else {}
        entry = claim(name, requests_, **more)
        if kind == "allocated" and free:
            node = free.pop(draw(st.integers(0, len(free) - 1)))
            field = {"key": "metadata.name", "operator": "In", "values": [node]}
            entry["status"]["allocation"] = {
                "devices": {"results": [{"request": "r0", "driver": DRIVER, "pool": node, "device": "dev0"}]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            }
            if draw(chance(3)):
                wait_for_conditions(entry, draw(st.sets(st.sampled_from(["Attached", "Broken"]))))
        objects.append(entry)
    return objects


def wait_for_conditions(entry: Json, true: set[str]) -> None:
    """The device that a claim has waits for a condition, may fail by another, and these are true."""
    (result,) = entry["status"]["allocation"]["devices"]["results"]
    result |= {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}
    conditions = [{"type": name, "status": "True" if name in true else "False"} for name in ("Attached", "Broken")]
    entry["status"]["devices"] = [{name: result[name] for name in ("driver", "pool", "device")}]
    entry["status"]["devices"][0]["conditions"] = conditions


def leftover(pod: Json, requests_: list[Json]) -> Json:
    """A claim that the scheduler made for the extended resources of a pod, and did not get to use."""
    name = pod["metadata"]["name"]
    created = claim(f"{name}-extended-resources-x", requests_)
    created["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    created["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}", "controller": True}
    ]
    return created


def competitor(name: str) -> Json:
    container: Json = {"name": "c", "image": "registry.example.com/app:1", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"containers": [container]},
        "status": {},
    }


def own_claim(pod: Json, requests_: list[Json], **more: Any) -> Json:
    """A claim that was made for a pod, which the pod is told of."""
    name = pod["metadata"]["name"]
    own = claim(f"{name}-own", requests_, **more)
    own["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}", "controller": True}
    ]
    pod["spec"].setdefault("resourceClaims", []).append({"name": "own", "resourceClaimTemplateName": "any"})
    pod["status"]["resourceClaimStatuses"] = [{"name": "own", "resourceClaimName": own["metadata"]["name"]}]
    return own


def everything_class(selectors: list[Json]) -> Json:
    result = device_class(DRIVER, selectors)
    result["spec"]["extendedResourceName"] = pieces.EXTENDED
    return result


@st.composite
def extended_init_containers(draw: st.DrawFn) -> Json:
    """An init container or a sidecar that asks for the extended resource."""
    amount = {pieces.EXTENDED: str(draw(st.integers(1, 3)))}
    sidecar = {"restartPolicy": "Always"} if draw(st.booleans()) else {}
    return {"name": "i", "image": "registry.example.com/app:1", "resources": {"requests": amount}, **sidecar}


@st.composite
def competitions(draw: st.DrawFn, node_names: list[str]) -> tuple[list[Json], list[Json]]:
    """(objects, pods): pods with claims of their own whose requests are for any device, or all by model, so that the
    sets of devices they can have are equal or disjoint; some ask for the extended resource of the class."""
    by_model = draw(st.booleans())
    objects = [everything_class([]), device_class("small.example.com", model_is("x"))]
    for name in node_names:
        objects += draw(slices(name, plain=True))
    pods = []
    for i in range(draw(st.integers(1, 6))):
        pod = competitor(f"g{i}")
        pods.append(pod)
        if not by_model and draw(chance(3)):
            requests = pod["spec"]["containers"][0]["resources"]["requests"]
            requests[pieces.EXTENDED] = str(draw(st.integers(1, 2)))
            if draw(chance(3)):
                pod["spec"]["initContainers"] = [draw(extended_init_containers())]
            continue
        requests_ = []
        for r in range(draw(st.integers(1, 2))):
            exact: Json = {"deviceClassName": DRIVER, "count": draw(st.integers(1, 2))}
            if by_model:
                exact["selectors"] = model_is(draw(st.sampled_from(MODELS)))
                if draw(chance(4)):
                    exact = {"deviceClassName": "small.example.com"}
            requests_.append({"name": f"r{r}", "exactly": exact})
        objects.append(own_claim(pod, requests_))
    return objects, pods


@st.composite
def wide_slices(draw: st.DrawFn) -> list[Json]:
    """Devices that all nodes can use, or those with a label."""
    result = draw(slices("fabric"))
    for entry in result:
        del entry["spec"]["nodeName"]
        if draw(st.booleans()):
            entry["spec"]["allNodes"] = True
        else:
            rack = {"key": "rack", "operator": "In", "values": ["r0"]}
            entry["spec"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [rack]}]}
    return result


@st.composite
def free_for_all(draw: st.DrawFn, node_names: list[str]) -> tuple[list[Json], list[Json]]:
    """(objects, pods) like :func:`competitions`, with everything that counting devices does not express: claims that
    pods share, alternatives, all devices, admin access, constraints, counters, capacities, devices of several nodes."""
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    objects = [everything_class(selectors), device_class("small.example.com", model_is("x"))]
    for name in node_names:
        objects += draw(slices(name))
    if draw(chance(3)):
        objects += draw(wide_slices())

    def draw_requests() -> tuple[list[Json], Json]:
        requests_ = [draw(requests(f"r{i}")) for i in range(draw(st.integers(1, 2)))]
        return requests_, {"constraints": [draw(constraints())]} if draw(chance(3)) else {}

    for name in CLAIMS_OF_COMPETITORS:
        requests_, more = draw_requests()
        objects.append(claim(name, requests_, **more))
    pods = []
    for i in range(draw(st.integers(1, 5))):
        pod = competitor(f"g{i}")
        pods.append(pod)
        kinds = draw(st.sets(st.sampled_from(["own", "shared", "extended"]), min_size=1))
        if "extended" in kinds:
            pod["spec"]["containers"][0]["resources"]["requests"][pieces.EXTENDED] = "1"
            if draw(chance(3)):
                pod["spec"]["initContainers"] = [draw(extended_init_containers())]
            if draw(chance(4)):
                exact = {"deviceClassName": DRIVER, "count": 1}
                objects.append(leftover(pod, [{"name": "container-0-request-0", "exactly": exact}]))
        if "shared" in kinds:
            name = draw(st.sampled_from(CLAIMS_OF_COMPETITORS))
            pod["spec"]["resourceClaims"] = [{"name": "shared", "resourceClaimName": name}]
        if "own" in kinds:
            requests_, more = draw_requests()
            objects.append(own_claim(pod, requests_, **more))
    return objects, pods


def node(name: str) -> Json:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    labels = {pieces.HOSTNAME: name, "rack": f"r{len(name) % 2}"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {"allocatable": amounts},
    }


@st.composite
def filter_problems(draw: st.DrawFn, *, countable: bool = True) -> Json:
    """One round of filter-out-schedulable."""
    names = ["n", "n1", "n2"][: draw(st.integers(1, 3))]
    objects, pods = draw(competitions(names) if countable else free_for_all(names))
    world = [*map(node, names), *objects]
    return {"options": {"dra": True}, "rounds": [{"objects": world, "pods": pods}]}


@st.composite
def estimate_problems(draw: st.DrawFn, *, countable: bool = True) -> Json:
    """Some pods are placed before; the rest go on copies of a node that brings devices of its own."""
    names = ["n", "n1"][: draw(st.integers(1, 2))]
    objects, pods = draw(competitions(names) if countable else free_for_all(names))
    template: Json = {"node": node("tmpl"), "resource_slices": draw(slices("tmpl", plain=countable))}
    before = draw(st.integers(0, len(pods) - 1))
    step: Json = {
        "schedule_before": pods[:before],
        "template": template,
        "pods": pods[before:],
        "options": {},
    }
    set_sometimes(draw, step["options"], "max_nodes", st.integers(1, 3), 3)
    if "max_nodes" in step["options"]:
        step["options"]["thresholds"] = ["static"]
    return {"objects": [*map(node, names), *objects], "options": {"dra": True}, "estimates": [step]}
