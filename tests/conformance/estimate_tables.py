"""The estimator, its fast path and its limiter (cluster-autoscaler-scale-up 17.1 to 17.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from conformance.building import Json, container, expressions, need, node, pod
from conformance.engines import Engine

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
MIB = 2**20


def sized(name: str, cpu: int, mebibytes: int, pods: int, zone: str) -> Json:
    room = {"cpu": f"{cpu}m", "memory": f"{mebibytes}Mi", "pods": str(pods)}
    return node(name, {HOSTNAME: name, ZONE: zone}, allocatable=room)


OLD = sized("oldnode", 100, 100, 10, "zone-jupiter")
APP = {"app": "estimatee"}


def copies(count: int, cpu: int, memory: int, name: str = "estimatee", **spec: Any) -> Json:
    one = pod(name, namespace="universe", labels=APP, containers=[container(cpu=f"{cpu}m", memory=str(memory))], **spec)
    return {"count": count, "pod": one}


def spread(key: str, skew: int, domains: int) -> Json:
    return {
        "topologySpreadConstraints": [
            {
                "topologyKey": key,
                "maxSkew": skew,
                "minDomains": domains,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": expressions(need("app", "In", "estimatee")),
            }
        ]
    }


def with_port(count: int, cpu: int, memory: int, port: int) -> Json:
    element = copies(count, cpu, memory)
    element["pod"]["spec"]["containers"][0]["ports"] = [{"hostPort": port, "containerPort": port}]
    return element


@dataclass(frozen=True)
class Estimated:
    """How many nodes and pods; `only` names the shape of all scheduled pods, `added` the nodes really added."""

    id: str
    template: tuple[int, int]
    groups: list[Json]
    nodes: int
    pods: int
    max_nodes: int = 0
    pods_per_node: int = 10
    only: str = ""
    added: int | None = None
    options: Json = field(default_factory=dict)
    heavy: bool = False

    def problem(self, *, fast_path: bool = False) -> Json:
        template = {"node": sized("tmpl", *self.template, self.pods_per_node, "zone-mars")}
        options = {"thresholds": ["static"], "max_nodes": self.max_nodes, "fast_path": fast_path, **self.options}
        one = {"template": template, "groups": [[group] for group in self.groups], "pods": [], "options": options}
        return {"objects": [OLD], "estimates": [one]}


ESTIMATES = [
    Estimated("resources", (1000, 2000), [copies(10, 350, 1000)], 5, 10),
    Estimated("pods per node", (10000, 20000), [copies(20, 10, 100)], 2, 20),
    Estimated("host port", (1000, 5000), [with_port(8, 200, 1000, 5555)], 8, 8),
    Estimated("limiter", (1000, 5000), [copies(20, 500, 1000)], 5, 10, max_nodes=5),
    Estimated(
        "larger first",
        (1000, 5000),
        [copies(10, 50, 1000, "small"), copies(10, 500, 1000, "large")],
        5,
        10,
        max_nodes=5,
        only="large",
    ),
    Estimated("spread over host names", (1000, 5000), [copies(8, 200, 200, **spread(HOSTNAME, 2, 1))], 4, 8),
    Estimated("spread over zones", (1000, 5000), [copies(8, 20, 100, **spread(ZONE, 2, 1))], 1, 2, added=2),
    Estimated("a real node is counted", (1000, 5000), [copies(12, 20, 100, **spread(HOSTNAME, 1, 3))], 3, 12, added=2),
    Estimated(
        "benchmark",
        (1000, 5000),
        [copies(50000, 50, 100, "small"), copies(1000, 95, 190, "large")],
        2595,
        51000,
        max_nodes=3000,
        pods_per_node=100,
        heavy=True,
    ),
]


def check(engine: Engine, row: Estimated) -> None:
    answer = engine.estimate(row.problem())["estimates"][0]
    assert (answer["node_count"], len(answer["scheduled"])) == (row.nodes, row.pods)
    if row.only:
        assert {name.split("/")[1].rpartition("-")[0] for name in answer["scheduled"]} == {row.only}
    if row.added is not None:
        assert answer["nodes_added"] == row.added
    if len(row.groups) == 1:
        fast = engine.estimate(row.problem(fast_path=True))["estimates"][0]
        assert fast["node_count"] == row.nodes
        assert fast["scheduled"] == answer["scheduled"]


@dataclass(frozen=True)
class Choice:
    """Which group the fast path takes, of (count, cpu) each; template capacity 100m, 100 MiB."""

    id: str
    groups: list[list[Json]]
    want: int


def plain(*shapes: tuple[int, int], **spec: Any) -> list[list[Json]]:
    return [[copies(1, cpu, 0, **spec)["pod"]] * count for count, cpu in shapes]


def empty(*counts: int) -> list[list[Json]]:
    return [[pod("x", containers=[])] * count for count in counts]


FAST_TEMPLATE = sized("tmpl", 100, 100, 10, "zone-mars")
CHOICES = [
    Choice("5x30, 3x50", plain((5, 30), (3, 50)), 0),
    Choice("6x30, 5x90", plain((6, 30), (5, 90)), 1),
    Choice("10x15, 5x90", plain((10, 15), (5, 90)), 0),
    Choice("3x80, 3x70, 4x50", plain((3, 80), (3, 70), (4, 50)), 2),
    Choice("both spread", plain((10, 5), (3, 8), **spread(HOSTNAME, 1, 1)), -1),
    Choice("no containers", empty(2, 4), 1),
    Choice("2x60, 100x1", plain((2, 60), (100, 1)), 0),
]


def choose(engine: Engine, row: Choice) -> None:
    assert engine.fast_path_choice is not None
    assert engine.fast_path_choice(row.groups, FAST_TEMPLATE) == row.want


@dataclass(frozen=True)
class Limited:
    """Thresholds as (nodes, seconds), the steps, and the permissions as a word of A and D."""

    id: str
    thresholds: list[Any]
    steps: list[tuple[str, float]]
    want: str


def steps(text: str, shift: float = 0) -> list[tuple[str, float]]:
    """`A A D; A`: a start, asks, a start, asks. The first start lies `shift` seconds back."""
    result: list[tuple[str, float]] = []
    for index, part in enumerate(text.split(";")):
        result.append(("start", 100 - shift if index == 0 else 100))
        result += [("ask", 100.0)] * len(part.split())
    return result


def limited(name: str, thresholds: list[Any], text: str, shift: float = 0) -> Limited:
    return Limited(name, thresholds, steps(text, shift), "".join(text.replace(";", " ").split()))


LIMITS = [
    limited("none", [], "A A A"),
    limited("time is up", [(20, 5)], "D D", 10),
    limited("three nodes", [(3, 0)], "A A A D"),
    limited("nothing allowed", [(-1, 0), (10, 0)], "D"),
    limited("no time allowed", [(100, -1), (10, 3600)], "D"),
    limited("restart", [(2, 0)], "A A D; A"),
    limited("restart after time is up", [(20, 5)], "D; A A", 10),
    limited("a growing threshold", [lambda starts: (2 + starts, 0)], "A A D; A A A D"),
    limited("time, then nodes", [(2, 60)], "D D; A A", 120),
]


def limit(engine: Engine, row: Limited) -> None:
    assert engine.limiter is not None
    granted = engine.limiter(row.thresholds, row.steps)
    assert "".join("A" if each else "D" for each in granted) == row.want


@dataclass(frozen=True)
class Room:
    """What a threshold leaves: this many one-pod nodes are added, of eighty that would be."""

    id: str
    options: Json
    want: int


def group(sizes: str) -> Json:
    most, size = sizes.split("/")
    return {"id": sizes, "max_size": int(most), "target_size": int(size)}


def sng(main: str, similar: list[str], want: int) -> Room:
    options = {"thresholds": ["sng"], "node_group": group(main), "similar_node_groups": [group(s) for s in similar]}
    return Room(f"similar {similar} + {main}", options, max(want, 0))


def total(most: int, current: int, want: int) -> Room:
    options = {"thresholds": ["cluster"], "cluster_max_nodes": most, "current_node_count": current}
    return Room(f"cluster {most}, {current}", {**options, "node_group": group("100/0")}, want)


UNLIMITED = 80
ROOMS = [
    sng("20/10", ["10/5", "100/50", "5/3"], 67),
    sng("5/10", ["10/5", "10/11", "0/5"], 5),
    sng("5/5", ["10/10", "100/100"], -1),
    sng("5/10", ["10/11", "100/111", "0/5"], -1),
    total(10, 5, 5),
    total(0, 10, UNLIMITED),
    total(5, 10, 0),
    total(-5, 0, 0),
]


def leave(engine: Engine, row: Room) -> None:
    one = Estimated("", (1000, 5000), [with_port(UNLIMITED, 1, 1, 80)], 0, 0, options=row.options)
    assert engine.estimate(one.problem())["estimates"][0]["nodes_added"] == row.want


ORDER_TEMPLATE = node("tmpl", allocatable={"cpu": "4m", "memory": "600Mi", "pods": "9"})
ORDER_PODS = {
    name: pod(name, containers=[container(cpu=f"{cpu}m", memory=f"{memory}Mi")])
    for name, cpu, memory in (("p1", 1, 1), ("p2", 2, 1), ("p3", 2, 100))
}
ORDERS = [list(order) for order in ("123", "132", "213", "231", "312", "321", "")]


def order(engine: Engine, names: list[str]) -> None:
    """Any input order comes out as p3, p2, p1."""
    groups = [[ORDER_PODS[f"p{number}"]] for number in names]
    one = {"template": {"node": ORDER_TEMPLATE}, "groups": groups, "pods": []}
    answer = engine.estimate({"objects": [], "estimates": [one]})["estimates"][0]
    assert answer["order"] == (["default/p3", "default/p2", "default/p1"] if names else None)
