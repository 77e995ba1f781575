"""How the plug-ins are run (scheduler-predicates 8.1, 8.9 end; cluster-autoscaler-scale-up 17.8).

The FW rows that need made-up plug-ins are posed with real ones wherever two real ones can show the rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from conformance.building import Json, container, node, pod
from conformance.engines import Engine
from conformance.node_tables import CORDONED, NAME_1, NAME_2, UNSCHEDULABLE_KEY, aff, term, tolerate
from conformance.volume_tables import CLASSES, by_claim, claim, using

OUTSIDE = "PreFilter filtered the Node out"
FAILED = "PreFilter failed"
NOWHERE = "couldn't find a matching Node with passing predicates"


@dataclass(frozen=True)
class Check:
    """CheckPredicates per node: None, or (plugin, reasons, unexpected)."""

    id: str
    objects: list[Json]
    pod: Json
    want: dict[str, tuple[str, list[str], str] | None]
    options: Json = field(default_factory=dict)

    @property
    def problem(self) -> Json:
        return {"objects": self.objects, "pod": self.pod, "options": self.options}


def check(engine: Engine, row: Check) -> None:
    for name, want in row.want.items():
        have = engine.check_predicates(row.problem, name)
        if want is None:
            assert have == {"ok": True}
        else:
            assert (have["plugin"], have["reasons"], have["unexpected"]) == want
            prefix = f"can't schedule pod default/{row.pod['metadata']['name']}: predicate \"{want[0]}\" didn't pass"
            assert have["message"].startswith(f"{prefix} (predicateReasons=[{', '.join(want[1])}]")


def asking(cpu: int, memory: str = "500000", name: str = "new", on: str | None = None, **spec: Any) -> Json:
    return pod(name, on, containers=[container(cpu=f"{cpu}m", memory=memory)], **spec)


def sized(name: str, cpu: int, **more: Any) -> Json:
    return node(name, allocatable={"cpu": f"{cpu}m", "memory": "2000000", "pods": "100"}, **more)


N1000 = [sized("n1000", 1000), asking(450, name="p450", on="n1000")]
EMPTY = [sized("n1000", 1000)]
SHORT = ("NodeResourcesFit", ["Insufficient cpu"], "")
NO_FIT = {"disabled_filters": ["NodeResourcesFit"]}
MISSING_AND_LOST = [claim("lost", "pv", phase="Lost"), *CLASSES]
TWO = [node("node1"), node("node2")]
CONFLICT = "node(s) didn't satisfy plugin(s) [NodeAffinity NodeName] simultaneously"

CHECKS = [
    Check(
        "FW-4 the first failing PreFilter ends the phase",
        [node(), *MISSING_AND_LOST],
        using(by_claim("absent"), by_claim("lost")),
        {"n": ("VolumeRestrictions", ['persistentvolumeclaim "absent" not found'], FAILED)},
    ),
    Check(
        "FW-6 node sets without overlap", TWO, pod(nodeName="node2", **aff(NAME_1)), {"node1": ("", [CONFLICT], FAILED)}
    ),
    Check(
        "FW-7 node sets intersect",
        TWO,
        pod(nodeName="node2", **aff(NAME_1, NAME_2)),
        {"node1": ("NodeAffinity, NodeName", [], OUTSIDE), "node2": None},
    ),
    Check(
        "FW-9 the first failing Filter speaks",
        [node(unschedulable=True, taints=[{"key": "t", "effect": "NoSchedule"}])],
        pod(nodeSelector={"a": "b"}),
        {"n": ("NodeUnschedulable", [CORDONED[1]], "")},
    ),
    Check(
        "FW-10 an Error of a PreFilter carries the framework's prefix",
        [node(), claim("c", None, "modeless"), *CLASSES],
        using(by_claim("c")),
        {
            "n": (
                "VolumeBinding",
                ['running PreFilter plugin "VolumeBinding": VolumeBindingMode not set for StorageClass "modeless"'],
                FAILED,
            )
        },
    ),
    Check(
        "VB-8 in the profile: VolumeZone speaks first",
        [node(), claim("c", "pv-a"), *CLASSES],
        using(by_claim("c")),
        {"n": ("VolumeZone", ['persistentvolume "pv-a" not found'], FAILED)},
    ),
    Check("CA-1", N1000, asking(600), {"n1000": SHORT}),
    Check("CA-2", N1000, asking(500), {"n1000": None}),
    Check(
        "CA-3",
        [node("node1")],
        pod(**aff(term(fields=[{"key": "metadata.name", "operator": "In", "values": ["missing-node"]}]))),
        {"node1": ("NodeAffinity", [], OUTSIDE)},
    ),
    Check("CA-4", N1000, asking(600), {"n1000": None}, NO_FIT),
    Check(
        "CA-6",
        [node(unschedulable=True)],
        pod(tolerations=[tolerate(UNSCHEDULABLE_KEY, "Exists")]),
        {"n": None},
    ),
    Check("CA-8 a node of another name", [node("foo")], pod(nodeName="bar"), {"foo": ("NodeName", [], OUTSIDE)}),
    Check("17.8 empty node, too much", EMPTY, asking(8000), {"n1000": SHORT}),
    Check("17.8 empty node, fits", EMPTY, asking(600), {"n1000": None}),
    Check("17.8 too much without the Filter", EMPTY, asking(8000), {"n1000": None}, NO_FIT),
]


@dataclass(frozen=True)
class Search:
    """The any-node search: the node it takes and the cursor after it, or None."""

    id: str
    nodes: list[Json]
    pod: Json
    cursor: int
    want: tuple[str, int] | None


def search(engine: Engine, row: Search) -> None:
    have = engine.any_node({"objects": row.nodes, "pod": row.pod, "options": {"cursor": row.cursor}})
    if row.want is None:
        assert have["type"] == "NoNodesPassingPredicatesFoundError"
        assert have["message"].endswith(NOWHERE)
    else:
        assert (have["node"], have["cursor"]) == row.want


PAIR = [sized("n1000", 1000), sized("n2000", 2000)]
TRIPLE = [node("n0"), node("n1"), node("n2")]
FIT_ON = {index: [sized(f"n{i}", 1000 if i in index else 10) for i in range(3)] for index in ((0,), (0, 1), (1, 2))}

SEARCHES = [
    Search("CA-5a either, the scan starts at index 1", PAIR, asking(900), 0, ("n2000", 1)),
    Search("CA-5b", PAIR, asking(900), 1, ("n1000", 0)),
    Search("CA-5c", PAIR, asking(1900), 1, ("n2000", 1)),
    Search("CA-5d", PAIR, asking(2100), 0, None),
    Search(
        "CA-6 the search skips cordoned nodes",
        [node(unschedulable=True)],
        pod(tolerations=[tolerate(UNSCHEDULABLE_KEY, "Exists")]),
        0,
        None,
    ),
    # (1, 0) -> 1, 2, 0;  (1, 1) -> 2, 0, 1;  (1, 2) -> 0, 1, 2
    Search("CA-7a", TRIPLE, pod(), 1, ("n2", 2)),
    Search("CA-7b", FIT_ON[0, 1], asking(500), 1, ("n0", 0)),
    Search("17.8 (1,0) first", TRIPLE, pod(), 0, ("n1", 1)),
    Search("17.8 (1,0) last", FIT_ON[0,], asking(500), 0, ("n0", 0)),
    Search("17.8 (1,2) first", TRIPLE, pod(), 2, ("n0", 0)),
    Search("17.8 (1,2) second", FIT_ON[1, 2], asking(500), 2, ("n1", 1)),
    Search("17.8 a cursor beyond the list", TRIPLE, pod(), 7, ("n2", 2)),
]
