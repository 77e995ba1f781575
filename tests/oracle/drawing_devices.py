"""Devices, their classes and claims, drawn from a seeded generator."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from oracle.drawing import EXTENDED, chance, pick, some, sometimes

Json = dict[str, Any]

DEVICE_DRIVER: Final = "gpu.example.com"
DEVICE_CLAIMS: Final = ("d0", "d1")
_RESOURCE = "resource.k8s.io/v1"
_BROKEN = [{"key": "broken", "effect": "NoSchedule"}]


def devices(random: Random, node_names: Sequence[str]) -> list[Json]:
    """Return device classes, slices of most nodes, and claims that are open, allocated or missing."""
    everything = _device_class(DEVICE_DRIVER, f"device.driver == '{DEVICE_DRIVER}'")
    if chance(random, 3):
        everything["spec"]["extendedResourceName"] = EXTENDED
    objects = [everything, _device_class("small.example.com", f"device.attributes['{DEVICE_DRIVER}'].model == 'x'")]
    offering = []
    for name in node_names:
        offered = _slices(random, name)
        objects += offered
        offering += [name] if offered else []
    for name in DEVICE_CLAIMS:
        if chance(random, 6):
            continue
        claim: Json = {
            "apiVersion": _RESOURCE,
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {
                "devices": {
                    "requests": [_device_request(random, f"r{i}") for i in range(random.choice((1, 1, 2, 2, 3)))]
                }
            },
            "status": {},
        }
        if chance(random, 2):
            claim["spec"]["devices"]["constraints"] = some(random, _constraint, 1, 1 if chance(random, 2) else 2)
        if offering and chance(random, 5):
            where = offering.pop(random.randrange(len(offering)))
            field = {"key": "metadata.name", "operator": "In", "values": [where]}
            result = {"request": "r0", "driver": DEVICE_DRIVER, "pool": where, "device": "dev0"}
            selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
            claim["status"]["allocation"] = {"devices": {"results": [result]}, "nodeSelector": selector}
        objects.append(claim)
    return objects


def _constraint(random: Random) -> Json:
    kind = random.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
    names = ("model", "model", "numa", "numa", "firmware", "fast", "absent")
    result: Json = {kind: f"{DEVICE_DRIVER}/{random.choice(names)}"}
    sometimes(random, result, "requests", pick((["r0"], ["r0", "r1"], ["r1", "r2"], ["r0/or1"])), 3)
    return result


def _device_class(name: str, expression: str) -> Json:
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    return {"apiVersion": _RESOURCE, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


_A = f"device.attributes['{DEVICE_DRIVER}']"
_C = f"device.capacity['{DEVICE_DRIVER}'].memory"
_EXPRESSIONS = (
    f"{_A}.model == 'x'",
    f"{_A}.model == 'y'",
    f"{_A}.numa >= 1",
    f"{_A}.numa < 1",
    f"{_A}.fast",
    f"{_A}.firmware.isGreaterThan(semver('1.2.0'))",
    f"{_A}.firmware.compareTo(semver('1.2.0')) >= 0",
    f"{_C}.compareTo(quantity('4')) <= 0",
)
_FUNCTIONS = (
    f"{_A}.model.startsWith('x')",
    f"{_A}.model.matches('^[xz]$')",
    f"{_A}.model.size() == 1",
    f"{_A}.model.upperAscii() == 'X'",
    f"(' ' + {_A}.model + ',y').trim().split(',')[0] == 'x'",
    f"'axb'.indexOf({_A}.model) == 1",
    f"'axb'.substring(1, 2) == {_A}.model",
    f"[{_A}.model, {_A}.model].join('-') == 'x-x'",
    f"{_A}.model in ['x', 'z']",
    f"{_A}.numa in [1, 2,]",
    f"has({_A}.fast) && {_A}.fast",
    f"{_A}.?absent.orValue('x') == 'x'",
    f"{_A}[?'model'].hasValue()",
    f"{_A}.?numa.optMap(n, n + 1).orValue(0) == 2",
    f"[?{_A}.?absent, ?{_A}.?numa].size() == 1",
    f"cel.bind(d, {_A}, d.numa == 1 || d.model == 'y')",
    f"['x', 'z'].exists(m, m == {_A}.?model.orValue(''))",
    f"['x', 'z'].all(m, m != {_A}.?model.orValue(''))",
    f"['x', 'x', 'y'].exists_one(m, m == {_A}.?model.orValue(''))",
    f"['x', 'y'].exists(i, m, i == {_A}.?numa.orValue(0) && m == {_A}.?model.orValue(''))",
    f"[1, 2, 3].map(n, n > 1, n * 2).size() == {_A}.numa + 1",
    f"[1, 2, 3].filter(n, n >= 2).size() == {_A}.numa + 1",
    f"{_A}.numa + 1 >= 2 ? {_A}.fast : !{_A}.fast",
    f"-{_A}.numa % 2 == -1",
    f"{_A}.numa * 2 - 1 <= -1",
    f"string({_A}.numa) == '1'",
    f"int('1') == {_A}.numa",
    f"double({_A}.numa) < 0.5",
    f"{_C}.isGreaterThan(quantity('3'))",
    f"{_C}.isLessThan(quantity('5'))",
    f"{_C}.add(quantity('1')) == quantity('5')",
    f"{_C}.asInteger() >= 4",
    f"{_A}.firmware.minor() == 10",
    f"semver('v1.2', true).compareTo({_A}.firmware) == 0",
    f"size({_A}.model) == {_A}.numa",
    f"int({_A}.model) == 1",
    f"{_A}.firmware < {_A}.firmware",
    f"{_A}.model.contains({_A}.firmware.major() == 1 ? 'x' : 'y')",
    f"['x', 'y'].map(m, m + {_A}.model)[{_A}.numa] == 'xx'",
    f"[0, 1, 2].exists(n, n == {_A}.numa || {_A}.fast)",
    f"[0, 1, 2].all(n, n < 1 ? {_A}.fast : {_A}.model == 'x')",
    f"[0, 1].exists_one(n, n == 0 ? {_A}.fast : {_A}.numa)",
    f"[0, 1].filter(n, n == 1 || {_A}.fast).size() == 1",
    f"cel.bind(m, {_A}.model, {_A}.fast || m == 'x')",
    f"{_A}.model.?x.hasValue() || has({_A}.model.x)",
    f"[{_A}.firmware] == [{_A}.firmware] && type({_A}.numa) == int",
    "device.driver.split('.').size() == 3",
    "cidr('10.0.0.0/8').containsIP('10.1.2.3')",
    "ip('10.0.0.1').family() == 4",
)


def draw_expression(random: Random) -> str:
    """Return a CEL expression over a device, at times of two parts."""
    parts = [random.choice(_EXPRESSIONS if chance(random, 2) else _FUNCTIONS) for _ in range(2)]
    return random.choice(("{0}", "{0}", "{0}", "!({0})", "{0} && {1}", "({0}) || ({1})", "({0}) == ({1})")).format(
        *parts
    )


def _device_request(random: Random, name: str) -> Json:
    def exact() -> Json:
        classes = (*(DEVICE_DRIVER,) * 6, "small.example.com", "small.example.com", "none")
        result: Json = {"deviceClassName": random.choice(classes)}
        if chance(random, 4):
            result["allocationMode"] = "All"
        else:
            count = 33 if chance(random, 80) else random.choice((1, 1, 2, 2, 3))
            result |= {"allocationMode": "ExactCount", "count": count}
        if chance(random, 3):
            expression = draw_expression(random)
            result["selectors"] = [{"cel": {"expression": expression}}]
        sometimes(random, result, "tolerations", lambda _: [{"key": "broken", "operator": "Exists"}], 3)
        sometimes(random, result, "capacity", lambda r: {"requests": {"memory": r.choice(_REQUESTED)}}, 5)
        return result

    if chance(random, 4):
        return {
            "name": name,
            "firstAvailable": [{"name": f"or{i}", **exact()} for i in range(random.choice((1, 2, 2, 3)))],
        }
    request = exact()
    sometimes(random, request, "adminAccess", lambda _: True, 10)
    return {"name": name, "exactly": request}


def draw_attributes(random: Random) -> Json:
    """Return attributes of a device; values coincide often, and a few are absent or of another type."""
    result: Json = {
        "model": {"string": random.choice("xxy")},
        "numa": {"int": random.randint(0, 1)},
        "firmware": {"version": random.choice(("1.2.0", "1.2.0", "1.10.0", "1.2.0-rc.1"))},
        "fast": {"bool": chance(random, 2)},
    }
    if chance(random, 8):
        del result[random.choice(tuple(result))]
    if chance(random, 20):
        result[random.choice(tuple(result))] = random.choice(({"int": 1}, {"string": "x"}, {"bool": True}))
    return result


_POLICIES: tuple[Json, ...] = (
    {"default": "2"},
    {"default": "2", "validValues": ["1", "2", "4"]},
    {"default": "1", "validRange": {"min": "1", "max": "4"}},
    {"default": "2", "validRange": {"min": "2", "step": "2", "max": "6"}},
    {"default": "3", "validRange": {"min": "1", "step": "2"}},
    {"default": "1", "validRange": {"min": "500m", "step": "250m", "max": "4"}},
    {"default": "1", "validRange": {"min": "0", "step": "5E"}},
)
_REQUESTED: Final = ("1", "2", "3", "4", "5", "1500m", "1100m", "1500001u", "6E", "10E")


def _slices(random: Random, name: str) -> list[Json]:
    result = []
    counted, shared = chance(random, 4), chance(random, 3)
    several = 1 if chance(random, 2) else 2  # of the devices that may be allocated several times: all, or every second
    policy = random.choice(_POLICIES) if chance(random, 2) else None
    for i in range(random.randint(0, 4)):
        device: Json = {"name": f"dev{i}", "attributes": draw_attributes(random)}
        sometimes(random, device, "taints", lambda _: _BROKEN, 5)
        if shared:
            capacity: Json = {"value": str(random.randint(2, 8))}
            if policy is not None:
                capacity["requestPolicy"] = policy
            device["capacity"] = {"memory": capacity}
            sometimes(random, device, "allowMultipleAllocations", lambda _: True, several)
        if counted:
            counters = {"slots": {"value": str(random.randint(1, 2))}}
            device["consumesCounters"] = [{"counterSet": "board", "counters": counters}]
        result.append(device)
    if not result:
        return []
    parts: list[Json] = [{"devices": result}]
    if counted:
        slots = {"value": random.choice("1234")}
        parts.append({"sharedCounters": [{"name": "board", "counters": {"slots": slots}}]})
    pool = {"name": name, "generation": 1, "resourceSliceCount": len(parts) + chance(random, 10)}
    return [
        {
            "apiVersion": _RESOURCE,
            "kind": "ResourceSlice",
            "metadata": {"name": f"s{i}-{name}"},
            "spec": {"driver": DEVICE_DRIVER, "nodeName": name, "pool": pool, **part},
        }
        for i, part in enumerate(parts)
    ]
