"""Equivalence, similar pods, hints and filter-out-schedulable (cluster-autoscaler-scale-up 17.4 to 17.7)."""

from __future__ import annotations

from dataclasses import dataclass, field

from conformance.building import Json, container, node, owned, pod
from conformance.engines import Engine


def asking(name: str, cpu: int, **spec: object) -> Json:
    return pod(name, containers=[container(cpu=f"{cpu}m", memory="10")], **spec)


def of(controller: str, name: str, cpu: int, kind: str = "ReplicationController", **spec: object) -> Json:
    return owned(asking(name, cpu, **spec), controller, kind)


def projected(name: str) -> Json:
    return {"volumes": [{"name": name, "projected": {"sources": []}}]}


def flex(name: str) -> Json:
    return {"volumes": [{"name": name, "flexVolume": {"driver": "d"}}]}


def labelled(number: int) -> Json:
    each = of("rc", f"p{number}", 100)
    each["metadata"]["labels"] = {"number": str(number)}
    return each


@dataclass(frozen=True)
class Grouped:
    id: str
    pods: list[Json]
    want: list[list[str]]


GROUPS = [
    Grouped(
        "controllers and volumes",
        [
            asking("p1", 1500),
            of("rc1", "p2_1", 3000),
            of("rc1", "p2_2", 3000),
            of("rc2", "p3_1", 100),
            of("rc2", "p3_2", 100),
            of("rc3", "p4_1", 100, **projected("a")),
            of("rc3", "p4_2", 100, **projected("b")),
            of("rc4", "p5_1", 100, **flex("a")),
            of("rc4", "p5_2", 100, **flex("b")),
        ],
        [["p1"], ["p2_1", "p2_2"], ["p3_1", "p3_2"], ["p4_1", "p4_2"], ["p5_1"], ["p5_2"]],
    ),
    Grouped("eleven shapes", [labelled(i) for i in range(11)], [[f"p{i}"] for i in range(11)]),
    Grouped("daemon set", [of("ds", "p1", 1, "DaemonSet"), of("ds", "p2", 1, "DaemonSet")], [["p1"], ["p2"]]),
    Grouped(
        "the eleventh shape is never joined",
        [*(labelled(i) for i in range(11)), labelled(10), labelled(0)],
        [["p0", "p0"], *([f"p{i}"] for i in range(1, 11)), ["p10"]],
    ),
]


def group(engine: Engine, row: Grouped) -> None:
    assert engine.groups(row.pods) == [[f"default/{name}" for name in names] for names in row.want]


@dataclass(frozen=True)
class Similar:
    id: str
    steps: list[tuple[str, Json]]
    want: list[bool]
    overflowing: int = 0


SIMILARS = [
    Similar(
        "replicas",
        [
            ("add", of("rc1", "p1", 100)),
            ("is", of("rc1", "p2", 100)),
            ("is", of("rc1", "p3", 100, **projected("a"))),
            ("is", of("rc1", "p4", 100, **flex("a"))),
            ("is", of("rc1", "p5", 200)),
            ("is", of("rc2", "p6", 100)),
            ("add", of("rc2", "p6", 100)),
            ("is", of("rc2", "p7", 100)),
        ],
        [True, True, False, False, False, True],
    ),
    Similar("no owner", [("add", asking("p", 1)), ("is", asking("p", 1))], [False]),
    Similar(
        "overflow",
        [*(("add", labelled(i)) for i in range(11)), *(("is", labelled(i)) for i in range(11))],
        [True] * 10 + [False],
        1,
    ),
    Similar("daemon set", [("add", of("ds", "p", 1, "DaemonSet")), ("is", of("ds", "q", 1, "DaemonSet"))], [False]),
]


def similar(engine: Engine, row: Similar) -> None:
    assert engine.similar_pods is not None
    assert engine.similar_pods(row.steps) == (row.want, row.overflowing)


def nodes(**cpu: int) -> list[Json]:
    return [node(n, allocatable={"cpu": f"{c}m", "memory": "1Gi", "pods": "100"}) for n, c in cpu.items()]


@dataclass(frozen=True)
class Hinted:
    """Statuses in order, as `pod->node`."""

    id: str
    objects: list[Json]
    pods: list[Json]
    want: str
    hints: Json = field(default_factory=dict)
    acceptable: list[str] | None = None


PAIR = [*nodes(n1=1000, n2=1000), asking("p1", 300, nodeName="n1")]
P2, P3 = asking("p2", 800), asking("p3", 500)
HALVES = [asking("p2", 500), asking("p3", 500)]
RANKED = [asking("low", 800), asking("high", 800, priority=100), asking("top", 1100, priority=1000)]
HINTED = [
    Hinted("no hints", PAIR, [P2, P3], "p2->n2 p3->n1"),
    Hinted("a hint to a missing node", PAIR, [P2, P3], "p2->n2 p3->n1", {"p2": "missing"}),
    Hinted("one too many", PAIR, [P2, P3, asking("p4", 700)], "p2->n2 p3->n1"),
    Hinted("only n2", PAIR, HALVES, "p2->n2 p3->n2", acceptable=["n2"]),
    Hinted("only n1", PAIR, HALVES, "p2->n1", acceptable=["n1"]),
    Hinted(
        "a hinted pod goes before its peers",
        nodes(n1=1000),
        [asking("high", 1100, priority=100), asking("a", 800, priority=10), asking("b", 800, priority=10)],
        "b->n1",
        {"b": "n1"},
    ),
    Hinted(
        "priorities before hints",
        nodes(n1=1000, n2=1000, n3=1500),
        RANKED,
        "top->n3 high->n1 low->n2",
        {"low": "n1", "high": "n1", "top": "n1"},
    ),
    Hinted(
        "hinted first, then in order",
        nodes(n1=2100),
        [asking(f"p{i}", 500) for i in range(1, 7)],
        "p2->n1 p5->n1 p1->n1 p3->n1",
        {"p2": "n1", "p5": "n1", "p6": "n2"},
    ),
]


def hint(engine: Engine, row: Hinted) -> None:
    assert engine.try_schedule is not None
    placed = engine.try_schedule(row.objects, row.pods, row.hints, row.acceptable)
    assert " ".join(f"{name}->{on}" for name, on in placed) == row.want


@dataclass(frozen=True)
class Filtered:
    """Which pods remain, of those on a node of 2000m; a pod is (name, cpu) or (name, cpu, priority)."""

    id: str
    pods: list[tuple[str, int] | tuple[str, int, int]]
    remaining: list[str]
    existing: list[int] = field(default_factory=list)
    refused: bool = False


THREE: list[tuple[str, int] | tuple[str, int, int]] = [("a", 1000), ("b", 300), ("c", 300)]
FILTERED = [
    Filtered("nothing", [], []),
    Filtered("one", [("a", 500)], []),
    Filtered("three", [("a", 200), ("b", 500), ("c", 800)], []),
    Filtered("too large", [("a", 3000)], ["a"]),
    Filtered("one of three", [("a", 200), ("b", 500), ("c", 1800)], ["c"]),
    Filtered("by priority", [("pod1", 200), ("pod2", 500, 10), ("pod3", 1800, 20)], ["pod2"]),
    Filtered("existing 500", THREE, ["c"], [500]),
    Filtered("existing 500 and 1000", THREE, ["a", "c"], [500, 1000]),
    Filtered("no node accepted", [("a", 200)], ["a"], refused=True),
]


def filtered(engine: Engine, row: Filtered) -> None:
    room = node("n", allocatable={"cpu": "2000m", "memory": "100", "pods": "100"})
    existing = [asking(f"e{index}", cpu, nodeName="n") for index, cpu in enumerate(row.existing)]
    pending = [asking(name, cpu, **({"priority": rank[0]} if rank else {})) for name, cpu, *rank in row.pods]
    one: Json = {"objects": [room, *existing], "pods": pending}
    if row.refused:
        one["unacceptable_nodes"] = ["n"]
    answer = engine.filter_schedulable({"rounds": [one]})["rounds"][0]
    assert answer["unschedulable"] == [f"default/{name}" for name in row.remaining]
    assert sorted(answer["placement"]) == sorted(
        f"default/{name}" for name, *_ in row.pods if name not in row.remaining
    )
