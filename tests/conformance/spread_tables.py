"""PodTopologySpread (scheduler-predicates 8.7)."""

from __future__ import annotations

from typing import Any

from conformance.building import Json, expressions, need, node, pod
from conformance.rows import Row, Verdict

VERDICTS: dict[str, Verdict] = {
    "S": None,
    "U": ("U", "node(s) didn't match pod topology spread constraints"),
    "X": ("UAU", "node(s) didn't match pod topology spread constraints (missing required label)"),
}
F, B = expressions(need("foo", "Exists")), expressions(need("bar", "Exists"))
FOO, BAR, BOTH = {"foo": ""}, {"bar": ""}, {"foo": "", "bar": ""}


def spread(skew: int, key: str, selector: Json | None = F, **more: Any) -> Json:
    constraint: Json = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", **more}
    if selector is not None:
        constraint["labelSelector"] = selector
    return constraint


def nodes(names: str = "abxy", labels: dict[str, Json] | None = None, taints: str = "") -> list[Json]:
    """Nodes of these one-letter names: a to c in zone1, the others in zone2; `labels` adds to or, by None, removes."""
    result = []
    for name in names:
        all_labels = {"zone": "zone1" if name < "m" else "zone2", "node": name, **(labels or {}).get(name, {})}
        own = {key: value for key, value in all_labels.items() if value is not None}
        more = {"taints": [{"key": "t", "effect": "NoSchedule"}]} if name in taints else {}
        result.append(node(name, own, **more))
    return result


def placed(names: str, counts: str | list[list[Json]]) -> list[Json]:
    """`2/1/0/3`: that many pods labelled foo on each node; or the labels of each node's pods."""
    labels = counts if isinstance(counts, list) else [[FOO] * int(number) for number in counts.split("/")]
    return [
        pod(f"{name}{index}", name, labels=each)
        for name, on_node in zip(names, labels, strict=True)
        for index, each in enumerate(on_node)
    ]


def pts(
    number: str,
    constraints: list[Json],
    counts: str | list[list[Json]],
    want: str,
    *,
    names: str = "abxy",
    labels: Json = FOO,
    on: list[Json] | None = None,
    spec: Json | None = None,
) -> Row:
    new = pod("new", labels=labels, topologySpreadConstraints=constraints, **(spec or {}))
    verdicts = {name: VERDICTS[letter] for name, letter in zip(names, want.split(), strict=True)}
    return Row(f"PTS-{number}", "PodTopologySpread", new, on or nodes(names), verdicts, placed(names, counts))


def required(*needs: Json) -> Json:
    terms = [{"matchExpressions": list(needs)}]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


NONE = "0/0/0/0"
IGNORE, HONOR = {"nodeAffinityPolicy": "Ignore"}, {"nodeTaintsPolicy": "Honor"}
LABELLED = nodes(labels=dict.fromkeys("abx", FOO))
SELECT = {"nodeSelector": FOO}
MIXED = nodes(labels=dict.fromkeys("axy", FOO), taints="y")
OTHER_NAMESPACES = [
    pod("a0", "a", labels=FOO, namespace="ns1"),
    pod("a1", "a", labels=FOO, namespace="ns2"),
    pod("x0", "x", labels=FOO),
    pod("y0", "y", labels=FOO),
]
TERMINATING = [pod("a0", "a", labels=FOO, deletionTimestamp="2026-01-01T00:00:00Z"), pod("b0", "b", labels=FOO)]


def by_hand(
    number: str, constraints: list[Json], names: str, objects: list[Json], want: str, labels: Json = FOO
) -> Row:
    new = pod("new", labels=labels, topologySpreadConstraints=constraints)
    verdicts = {name: VERDICTS[letter] for name, letter in zip(names, want.split(), strict=True)}
    return Row(f"PTS-{number}", "PodTopologySpread", new, nodes(names), verdicts, objects)


OLD_REVISION = [pod(f"a{index}", "a", labels={"foo": "", "rev": "1"}) for index in range(3)]
SOFT = {**spread(1, "zone"), "whenUnsatisfiable": "ScheduleAnyway"}

ROWS = [
    pts("1", [spread(1, "zone")], NONE, "S S S S"),
    pts("2", [spread(1, "zone", B)], NONE, "S S S S"),
    by_hand("3", [spread(1, "zone")], "abxy", OTHER_NAMESPACES, "S S U U"),
    pts("4", [spread(1, "zone", None)], "0/0/1/1", "S S S S"),
    pts("5", [spread(1, "zone")], "2/1/0/3", "S S S S"),
    pts("6", [spread(1, "zone")], "1/1/1/1", "S X U U", on=nodes(labels={"b": {"zone": None, "zon": "zone1"}})),
    pts("7", [spread(1, "rack")], NONE, "X X X X"),
    pts("8", [spread(1, "node")], "2/1/0/3", "U U S U"),
    pts("9", [spread(2, "node")], "2/1/0/3", "U S S U"),
    pts("10", [spread(1, "node")], "2/1/0/3", "U S S U", labels=BAR),
    pts("11", [spread(1, "node")], "2/1/0/3", "S S S U", spec=required(need("node", "In", "a", "y"))),
    by_hand("12", [spread(1, "node")], "ab", TERMINATING, "S U"),
    pts("13", [spread(1, "zone")], "0/2/0/1", "S S U U", spec=required(need("node", "NotIn", "b"))),
    pts("14", [spread(2, "node", minDomains=4)], "2/2/1", "U U S", names="abc"),
    pts("15", [spread(2, "node", minDomains=2)], "2/2/1", "S S S", names="abc"),
    pts("16", [spread(2, "zone", minDomains=3)], "1/1/0/1", "U U S S"),
    pts("17", [spread(2, "zone", minDomains=1)], "1/1/0/1", "S S S S"),
    pts("18", [spread(1, "node")], "1/1/0/1", "U U S S", on=LABELLED, spec=SELECT),
    pts("19", [spread(1, "node", **IGNORE)], "1/1/0/1", "U U S U", on=LABELLED, spec=SELECT),
    pts("20a", [spread(1, "node")], "1/1/0/1", "U U S S", on=LABELLED, spec=required(need("foo", "In", ""))),
    pts("20b", [spread(1, "node", **IGNORE)], "1/1/0/1", "U U S U", on=LABELLED, spec=required(need("foo", "In", ""))),
    pts("21", [spread(1, "node", **HONOR)], "1/1/0/1", "U U S S", on=nodes(taints="y")),
    pts("22", [spread(1, "node")], "1/1/0/1", "U U S U", on=nodes(taints="y")),
    pts("23", [spread(1, "zone"), spread(1, "node")], "2/1/0/3", "U U S U"),
    pts("24", [spread(1, "zone"), spread(1, "node")], "2/1/0/4", "U U U U"),
    pts("25", [spread(1, "zone"), spread(1, "node", B)], [[FOO], [], [], [BAR]], "U U S U", labels=BOTH),
    pts("26", [spread(1, "zone"), spread(1, "node", B)], [[FOO], [], [BAR], [BAR]], "U U U U", labels=BOTH),
    pts(
        "27",
        [spread(1, "zone"), spread(1, "node", B)],
        [[FOO, BOTH], [], [], [FOO, BOTH, FOO]],
        "U S U U",
        labels=BOTH,
    ),
    pts("28", [spread(1, "zone"), spread(1, "node", B)], [[FOO], [], [BAR], [BAR]], "S S U U", labels=BAR),
    pts("29", [spread(1, "zone"), spread(1, "node")], "1/0/0/1", "U S X U", on=nodes(labels={"x": {"node": None}})),
    pts("30", [spread(1, "zone"), spread(1, "node", **IGNORE)], "1/1/0/1", "U U S U", on=LABELLED, spec=SELECT),
    pts("31", [spread(1, "zone", **HONOR), spread(1, "node")], "1/1/0/1", "U U S U", on=nodes(taints="y")),
    pts("32", [spread(1, "zone"), spread(1, "node")], "1/1/0/1", "U S S U", on=MIXED, spec=SELECT),
    pts(
        "33",
        [spread(1, "zone", **HONOR), spread(1, "node", **IGNORE)],
        "1/1/0/1",
        "U U S U",
        on=MIXED,
        spec=SELECT,
    ),
    pts("34", [spread(1, "zone", {})], "5/0/0/0", "S S S S"),
    Row(
        "PTS-35", "PodTopologySpread", pod(topologySpreadConstraints=[SOFT]), nodes(), dict.fromkeys("abxy"), skip=True
    ),
    by_hand(
        "36",
        [spread(1, "zone", matchLabelKeys=["rev"])],
        "abxy",
        OLD_REVISION,
        "S S S S",
        {"foo": "", "rev": "2"},
    ),
]
