"""NodeResourcesFit and the requests of pods (scheduler-predicates 8.6)."""

from __future__ import annotations

from typing import Any

from conformance.building import Json, container, node, pod
from conformance.rows import Row, Verdict

AAA, BBB, HUGE = "example.com/aaa", "example.com/bbb", "hugepages-2Mi"
NATIVE = ("kubernetes.io/something", "subdomain.kubernetes.io/something")
ROOM = {"cpu": "10m", "memory": "20", "pods": "32", AAA: "5", "ephemeral-storage": "20", HUGE: "5"}
Amount = tuple[int, int] | Json


def short(*names: str, code: str = "U") -> Verdict:
    return (code, *(f"Insufficient {name}" for name in names))


FULL: Verdict = ("U", "Too many pods")


def amounts(amount: Amount) -> Json:
    """`(milli-cpu, bytes)`, or requests by name."""
    if isinstance(amount, tuple):
        return {"cpu": f"{amount[0]}m", "memory": str(amount[1])}
    return {name: str(number) for name, number in amount.items()}


def asking(*containers: Amount, init: tuple[Amount, ...] = (), **spec: Any) -> Json:
    inits = {"initContainers": [container(f"i{n}", more=amounts(each)) for n, each in enumerate(init)]} if init else {}
    return pod(
        "new", containers=[container(f"c{n}", more=amounts(each)) for n, each in enumerate(containers)], **inits, **spec
    )


def fit(number: str, new: Json, used: Amount | None, want: Verdict, room: Json = ROOM, **more: Any) -> Row:
    placed = [] if used is None else [pod("placed", "n", containers=[container(more=amounts(used))])]
    objects = placed + more.pop("objects", [])
    return Row(f"FIT-{number}", "NodeResourcesFit", new, [node(allocatable=room)], {"n": want}, objects, **more)


def pod_level_requests(amount: Amount) -> Json:
    """Pod-level requests."""
    return {"resources": {"requests": amounts(amount)}}


ONE: Amount = (1, 1)
SIDECAR = {**container("s", more={"cpu": "1m"}), "restartPolicy": "Always"}
BIG_SIDECAR = {**container("s", more={"cpu": "2m"}), "restartPolicy": "Always"}
TIGHT = {**ROOM, "pods": "1"}
TINY = {"cpu": "2m", "pods": "1"}

FIT = [
    fit("1", pod("new"), (10, 20), None),
    fit("2", asking(ONE), (10, 20), short("cpu", "memory")),
    fit("3", asking(ONE, init=((3, 1),)), (8, 19), short("cpu")),
    fit("4", asking(ONE, init=((3, 1), (2, 1))), (8, 19), short("cpu")),
    fit("5", asking(ONE, init=((1, 3),)), (9, 19), short("memory")),
    fit("6", asking(ONE, init=((1, 3), (1, 2))), (9, 19), short("memory")),
    fit("7a", asking(ONE, init=(ONE,)), (9, 19), None),
    fit("7b", asking(ONE, init=(ONE, ONE)), (9, 19), None),
    fit("8", asking(ONE), (5, 5), None),
    fit("9", asking((2, 1)), (9, 5), short("cpu")),
    fit("10", asking((1, 2)), (5, 19), short("memory")),
    fit("11", asking((5, 1)), (5, 19), None),
    fit("12", asking((4, 1), init=((5, 1),)), (5, 19), None),
    fit("13a", asking({AAA: 1}), None, None),
    fit("13b", asking({}, init=({AAA: 1},)), None, None),
    fit("14a", asking({"cpu": "1m", "memory": "1", AAA: 10}), None, short(AAA, code="UAU")),
    fit("14b", asking(ONE, init=({AAA: 10},)), None, short(AAA, code="UAU")),
    fit("15a", asking({AAA: 1}), {AAA: 5}, short(AAA)),
    fit("15b", asking({}, init=({AAA: 1},)), {AAA: 5}, short(AAA)),
    fit("16", asking({AAA: 3}, {AAA: 3}), {AAA: 2}, short(AAA, code="UAU")),
    fit("17", asking({}, init=({AAA: 3}, {AAA: 3})), {AAA: 2}, None),
    fit("18", asking({}, init=({AAA: 6}, {AAA: 3})), {AAA: 2}, short(AAA, code="UAU")),
    fit("19a", asking({BBB: 1}), None, short(BBB, code="UAU")),
    fit("19b", asking({}, init=({BBB: 1},)), None, short(BBB, code="UAU")),
    fit("20a", asking({NATIVE[0]: 10}), None, short(NATIVE[0], code="UAU")),
    fit("20b", asking({NATIVE[1]: 10}), None, short(NATIVE[1], code="UAU")),
    fit("21a", asking({HUGE: 10}), None, short(HUGE, code="UAU")),
    fit("21b", asking({}, init=({HUGE: 10},)), None, short(HUGE, code="UAU")),
    fit("22", asking({HUGE: 3}, {HUGE: 3}), {HUGE: 2}, short(HUGE, code="UAU")),
    fit("23", asking({BBB: 1}), None, None, options={"ignored_resources": [BBB]}),
    fit("24", asking(ONE, overhead=amounts((3, 13))), (5, 5), None),
    fit("25", asking(ONE, overhead=amounts((1, 15))), (5, 5), short("memory")),
    fit(
        "26",
        asking({BBB: 1, NATIVE[0]: 1}),
        None,
        short(NATIVE[0], code="UAU"),
        options={"ignored_resource_groups": ["example.com"]},
    ),
    fit("27", asking({"cpu": "1m", "memory": "1", AAA: 0}), {AAA: 6}, None),
    fit("28", asking(ONE, **pod_level_requests((1, 2))), (5, 5), None),
    fit("29", asking(ONE, **pod_level_requests((7, 1))), (5, 5), short("cpu")),
    fit("30", asking(ONE, **pod_level_requests((1, 2))), (5, 19), short("memory")),
    fit("31a", asking({}, **pod_level_requests({HUGE: 5})), None, None),
    fit("31b", asking({}, **pod_level_requests({HUGE: 10})), None, short(HUGE, code="UAU")),
    fit("32", asking({}, init=(ONE,), **pod_level_requests((3, 2))), (5, 19), short("memory")),
    fit("33a", asking({"ephemeral-storage": 25}), None, short("ephemeral-storage", code="UAU")),
    fit("33b", asking({}, init=({"ephemeral-storage": 25},)), None, short("ephemeral-storage", code="UAU")),
    fit("34", asking({"ephemeral-storage": 5}), {"ephemeral-storage": 10}, None),
    fit("35", pod("new"), (10, 20), FULL, TIGHT),
    fit("36a", asking(ONE), (5, 5), FULL, TIGHT),
    fit("36b", asking((5, 1)), (5, 19), FULL, TIGHT),
    fit("36c", asking((5, 1), init=((5, 1),)), (5, 19), FULL, TIGHT),
    fit("37", {**pod("new", containers=[container(cpu="1m")], initContainers=[SIDECAR])}, None, None, TINY),
    fit(
        "38",
        pod("new", containers=[container(cpu="1m")], initContainers=[BIG_SIDECAR]),
        None,
        short("cpu", code="UAU"),
        TINY,
    ),
    fit("39", pod("new"), None, FULL, {"cpu": "1", "memory": "1Gi"}),
    fit("40", asking((11, 1)), {}, ("UAU", "Too many pods", "Insufficient cpu"), TIGHT),
]


def halves(number: str, placed: list[Json], want: Verdict) -> Row:
    new = pod("new", containers=[container(cpu="49m")])
    return Row(
        f"FIT-{number}", "NodeResourcesFit", new, [node(allocatable={"cpu": "250m", "pods": "9"})], {"n": want}, placed
    )


HALF = container(cpu="100.5m")
ROUNDING = [
    halves("41", [pod("p1", "n", containers=[HALF]), pod("p2", "n", containers=[HALF])], short("cpu")),
    halves("42", [pod("p1", "n", containers=[HALF, {**HALF, "name": "d"}])], None),
]


def extended(number: str, room: Json, name: str, want: Verdict) -> Row:
    """An extended resource that a DeviceClass stands for is left to DynamicResources where the node has none itself."""
    metadata = {"name": "class"}
    device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": metadata}
    device_class["spec"] = {"extendedResourceName": AAA}
    return fit(number, asking({name: 1}), None, want, room, options={"dra": True}, objects=[device_class])


LACKING = {key: value for key, value in ROOM.items() if key != AAA}


def occupied(number: str, placed: Json, cpu: int) -> list[Row]:
    """The placed pod occupies exactly this many milli-CPU of a 1000m node."""
    room = {"cpu": "1000m", "memory": "1Gi", "pods": "9"}

    def row(letter: str, free: int, want: Verdict) -> Row:
        new = pod("new", containers=[container(cpu=f"{free}m")])
        return Row(f"PR-{number}{letter}", "NodeResourcesFit", new, [node(allocatable=room)], {"n": want}, [placed])

    free = 1000 - cpu
    return [row("=", free, None), row("+", free + 1, short("cpu", code="UAU" if cpu == 0 else "U"))]


def demanded(number: str, new: Json, cpu: int) -> list[Row]:
    """The pending pod asks for exactly this many milli-CPU."""

    def row(letter: str, room: int, want: Verdict) -> Row:
        allocatable = {"cpu": f"{room}m", "memory": "2Gi", "pods": "9"}
        return Row(f"PR-{number}{letter}", "NodeResourcesFit", new, [node(allocatable=allocatable)], {"n": want})

    return [row("=", cpu, None), row("-", cpu - 1, short("cpu", code="UAU"))]


def milli(number: int, name: str = "c", **more: Any) -> Json:
    return {**container(name, cpu=f"{number}m"), **more}


def sidecar(number: int, name: str) -> Json:
    return milli(number, name, restartPolicy="Always")


def state(name: str, actual: int | None, allocated: int | None = None) -> Json:
    """A container status."""
    entry: Json = {"name": name, "image": "i", "imageID": "i", "ready": True, "restartCount": 0}
    if actual is not None:
        entry["resources"] = {"requests": {"cpu": f"{actual}m"}}
    if allocated is not None:
        entry["allocatedResources"] = {"cpu": f"{allocated}m"}
    return entry


INFEASIBLE = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}


def placed(containers: list[Json], **more: Any) -> Json:
    return pod("placed", "n", containers=containers, **more)


def one_status(actual: int | None, allocated: int | None = None, **more: Any) -> Json:
    return {"containerStatuses": [state("c", actual, allocated)], **more}


GROWN = pod("new", containers=[milli(100)], status=one_status(300, 200))
REQUESTS = [
    *demanded("1", pod("new", containers=[milli(1)], initContainers=[milli(4, "i")]), 4),
    *demanded("2", pod("new", containers=[milli(2, "a"), milli(3, "b")], initContainers=[milli(2, "i")]), 5),
    *demanded(
        "3",
        pod("new", containers=[milli(2, "a"), milli(3, "b")], initContainers=[milli(2, "i")], overhead={"cpu": "1m"}),
        6,
    ),
    *occupied("4", placed([milli(400)], status=one_status(200, **INFEASIBLE)), 200),
    *occupied("5", placed([milli(400)], status=one_status(200)), 400),
    *occupied("6", placed([milli(400)], status=INFEASIBLE), 0),
    *demanded("7", pod("new", containers=[milli(1)], initContainers=[sidecar(1, "s")]), 2),
    *demanded(
        "8",
        pod("new", containers=[milli(1)], initContainers=[milli(5, "i"), *(sidecar(n, f"s{n}") for n in (1, 2, 3))]),
        7,
    ),
    *demanded(
        "9",
        pod(
            "new",
            containers=[milli(1)],
            initContainers=[milli(5, "i"), sidecar(1, "s1"), sidecar(2, "s2"), milli(5, "j"), sidecar(3, "s3")],
        ),
        8,
    ),
    *demanded("10", pod("new", containers=[milli(100)], initContainers=[sidecar(10, "s"), milli(200, "i")]), 210),
    Row(
        "PR-11",
        "NodeResourcesFit",
        pod("new", containers=[{"name": "c", "image": "i", "resources": {"limits": {"cpu": "5"}}}]),
        [node(allocatable={"cpu": "1m", "pods": "1"})],
        {"n": None},
    ),
    *demanded("12", pod("new", overhead={"cpu": "5m"}), 5),
    *demanded("13", pod("new", containers=[milli(1)], overhead={"cpu": "5m"}), 6),
    *demanded("14", pod("new", containers=[milli(1)], initContainers=[milli(40, "i")]), 40),
    *demanded(
        "15", pod("new", containers=[milli(5)], resources={"requests": {"cpu": "3m"}}, overhead={"cpu": "1m"}), 4
    ),
    *demanded("16", pod("new", containers=[milli(1)], resources={"requests": {"memory": "10"}}), 1),
    *occupied("17", placed([milli(100)], status=one_status(300, 200)), 300),
    *demanded("18", GROWN, 100),
    *occupied(
        "19",
        placed([milli(100)], initContainers=[milli(200, "i")], status={"initContainerStatuses": [state("i", 300)]}),
        300,
    ),
    *occupied(
        "20",
        placed([milli(100, "a"), milli(500, "b")], status={"containerStatuses": [state("a", 500), state("b", 100)]}),
        600,
    ),
    *occupied(
        "21",
        placed(
            [milli(500)],
            status=one_status(100, 100, resources={"requests": {"cpu": "700m"}}, allocatedResources={"cpu": "300m"}),
        ),
        700,
    ),
    *occupied(
        "22",
        placed([milli(500)], resources={"requests": {"cpu": "400m"}}, status={"allocatedResources": {"cpu": "750m"}}),
        400,
    ),
    *occupied(
        "23",
        placed(
            [milli(500)],
            resources={"requests": {"cpu": "800m"}},
            status={
                "resources": {"requests": {"cpu": "300m"}},
                "allocatedResources": {"cpu": "350m"},
                **INFEASIBLE,
            },
        ),
        350,
    ),
]

DELEGATED = [
    extended("DRA-1", LACKING, AAA, None),
    extended("DRA-2", {**ROOM, AAA: "0"}, AAA, None),
    extended("DRA-3", ROOM, AAA, None),
    extended("DRA-4", LACKING, BBB, short(BBB, code="UAU")),
]

ROWS = [*FIT, *ROUNDING, *DELEGATED, *REQUESTS]
