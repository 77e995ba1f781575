"""InterPodAffinity (scheduler-predicates 8.8)."""

from __future__ import annotations

from typing import Any

from conformance.building import Json, expressions, namespace, need, node, pod
from conformance.rows import Row, Verdict

AFF: Verdict = ("UAU", "node(s) didn't match pod affinity rules")
ANTI: Verdict = ("U", "node(s) didn't match pod anti-affinity rules")
EXIST: Verdict = ("U", "node(s) didn't satisfy existing pods anti-affinity rules")
L1, L2 = {"service": "securityscan"}, {"security": "S1"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def term(key: str, *needs: Json, **more: Any) -> Json:
    return {"labelSelector": expressions(*needs), "topologyKey": key, **more}


def terms(near: list[Json] | None = None, away: list[Json] | None = None) -> Json:
    """The affinity of a pod: required terms of both kinds."""
    affinity = {}
    if near:
        affinity["podAffinity"] = {REQUIRED: near}
    if away:
        affinity["podAntiAffinity"] = {REQUIRED: away}
    return {"affinity": affinity} if affinity else {}


def service(operator: str, *values: str, key: str = "region", **more: Any) -> Json:
    return term(key, need("service", operator, *values), **more)


def exists(name: str, key: str) -> Json:
    return term(key, need(name, "Exists"))


NODE_1 = [node("node1", {"region": "r1", "zone": "z11", "node": "node1"})]
NAMESPACES = [
    namespace("default"),
    namespace("subteam1.team1", team="team1"),
    namespace("subteam2.team1", team="team1"),
    namespace("subteam1.team2", team="team2"),
]
E = pod("e", "node1", labels=L1)
SCAN = service("In", "securityscan", "value2")


def ipa(number: str, new: Json, placed: list[Json], want: Verdict, **more: Any) -> Row:
    return Row(f"IPA-{number}", "InterPodAffinity", new, NODE_1, {"node1": want}, [*placed, *NAMESPACES], **more)


def incoming(labels: Json, near: list[Json] | None = None, away: list[Json] | None = None, **more: Any) -> Json:
    return pod("new", labels=labels, **terms(near, away), **more)


def existing(labels: Json, away: list[Json] | None = None, on: str = "node1", **more: Any) -> Json:
    return pod(more.pop("name", f"e-{on}"), on, labels=labels, **terms(None, away), **more)


TWO = [
    term("region", need("service", "Exists"), need("wrongkey", "DoesNotExist")),
    term("region", need("service", "In", "securityscan"), need("service", "NotIn", "WrongValue")),
]
TWO_WRONG = [TWO[0], term("region", need("service", "In", "securityscan2"), need("service", "NotIn", "WrongValue"))]
ANTIVIRUS = service("In", "antivirusscan", "value2", key="node")
IN_ZONE = service("In", "securityscan", "value2", key="zone")
SERVICE, SECURITY = exists("service", "zone"), exists("security", "zone")
ABC_DEF = [exists("abc", "zone"), exists("def", "zone")]
TEAM_1 = expressions(need("team", "In", "team1"))
BAD = term("region", need("service", "In", "{{.bad-value.}}"))


def teams(selector: Json) -> Json:
    return service("In", "securityscan", "value2", key="zone", namespaceSelector=selector)


NEAR_TEAM = service("In", "securityscan", "value2", namespaceSelector=TEAM_1)
FROM_TEAM_1 = {"namespace": "subteam1.team1"}
SINGLE = [
    ipa("1", pod("new"), [], None, skip=True),
    ipa("2", incoming(L2, [SCAN]), [E], None),
    ipa("3", incoming(L2, [service("NotIn", "securityscan3", "value3")]), [E], None),
    ipa(
        "4",
        incoming(L2, [service("In", "securityscan", "value2", key="", namespaces=["DiffNameSpace"])]),
        [existing(L1, namespace="ns")],
        AFF,
    ),
    ipa("5", incoming(L1, [service("In", "antivirusscan", "value2")]), [E], AFF),
    ipa("6", incoming(L2, TWO), [E], None),
    ipa("7", incoming(L2, TWO_WRONG), [E], AFF),
    ipa("8", incoming(L2, [SCAN], [ANTIVIRUS]), [E], None),
    ipa("9", incoming(L2, [SCAN], [ANTIVIRUS]), [existing(L1, [ANTIVIRUS])], None),
    ipa("10", incoming(L2, [SCAN], [IN_ZONE]), [E], ANTI),
    ipa("11", incoming(L1, [SCAN], [ANTIVIRUS]), [existing(L1, [IN_ZONE])], EXIST),
    ipa("12", incoming(L1, [service("NotIn", "securityscan", "value2")]), [existing(L1, on="node2")], AFF),
    ipa("13", incoming(L1), [existing(L1, [IN_ZONE])], EXIST),
    ipa(
        "14",
        incoming(L1),
        [existing(L1, [service("NotIn", "securityscan", "value2", key="zone")])],
        None,
        skip=True,
    ),
    ipa(
        "15",
        incoming(L1, None, [exists("service", "region"), exists("security", "region")]),
        [existing(L2, [SECURITY])],
        ANTI,
    ),
    ipa("16", incoming(L1, None, [SERVICE, SECURITY]), [existing(L2, [SECURITY])], ANTI),
    ipa("17", incoming(L2, None, [SECURITY]), [existing(L1, [SERVICE, SECURITY])], EXIST),
    ipa("18", incoming({"abc": "", "xyz": ""}, None, ABC_DEF), [existing({"def": "", "xyz": ""}, ABC_DEF)], ANTI),
    ipa("19", incoming({"def": "", "xyz": ""}, None, ABC_DEF), [existing({"abc": "", "xyz": ""}, ABC_DEF)], ANTI),
    ipa(
        "20",
        incoming(L1, [BAD]),
        [],
        None,
        fails=("UAU", "parsing pod: requiredAffinityTerms: values[0][service]: Invalid value:…"),
    ),
    ipa("21", incoming(L2, [NEAR_TEAM]), [existing(L1, namespace="subteam1.team1")], None),
    ipa("22", incoming(L2, [NEAR_TEAM]), [existing(L1, namespace="subteam1.team2")], AFF),
    ipa("23", incoming({}, None, [teams(TEAM_1)], **FROM_TEAM_1), [existing(L1, namespace="subteam2.team1")], ANTI),
    ipa("24", incoming({}, None, [teams({})], **FROM_TEAM_1), [existing(L1, namespace="subteam2.team1")], ANTI),
    ipa("25", incoming({}, None, [teams(TEAM_1)], **FROM_TEAM_1), [existing(L1, namespace="subteam1.team2")], None),
    ipa(
        "26",
        incoming({}, None, [teams(expressions(need("team", "NotIn", "team1")))]),
        [existing(L1, namespace="subteam1.team1")],
        None,
    ),
]

CHINA, CHINA_1, INDIA = {"region": "China"}, {"region": "China", "az": "az1"}, {"region": "India"}
Z1, Z2 = {"region": "r1", "zone": "z1"}, {"region": "r1", "zone": "z2"}


def ipm(number: str, new: Json, on: list[Json], placed: list[Json], *want: Verdict, **more: Any) -> Row:
    """`on`: the labels of nodes A, B, C …"""
    nodes = [node(name, labels) for name, labels in zip("ABCD", on, strict=False)]
    verdicts = {each["metadata"]["name"]: verdict for each, verdict in zip(nodes, want, strict=True)}
    return Row(f"IPM-{number}", "InterPodAffinity", new, nodes, verdicts, placed, **more)


FOO_BAR = {"foo": "bar"}
BOTH = {"foo": "bar", "service": "securityscan"}
SELF = [term("zone", need("foo", "In", "bar")), term("zone", need("service", "In", "securityscan"))]
NOT_ABC = term("region", need("foo", "In", "abc"))
NO_LABEL = "invalid-node-label"
FOO, BAR, FOO_AND_BAR = {"foo": ""}, {"bar": ""}, {"foo": "", "bar": ""}
NEAR_BAR_ZONE = [term("zone", need("foo", "In", "bar"))]


def two(first: str, second: str) -> list[Json]:
    """foo within one topology and bar within another."""
    return [exists("foo", first), exists("bar", second)]


MANY = [
    ipm(
        "1",
        incoming({}, [term("region", need("foo", "In", "bar"))]),
        [CHINA, CHINA_1, INDIA],
        [existing(FOO_BAR, on="A")],
        None,
        None,
        AFF,
    ),
    ipm("2", incoming(BOTH, SELF), [{"zone": "az1"}, {"zone": "az2"}], [existing(FOO_BAR, on="A")], None, None),
    ipm("3", incoming(BOTH, SELF), [{"zoneLabel": "az1"}, {"zoneLabel": "az2"}], [existing(FOO_BAR, on="A")], AFF, AFF),
    ipm(
        "4",
        incoming({}, None, [NOT_ABC]),
        [{"region": "r1"}, {"region": "r1"}],
        [existing({"foo": "abc"}, on="A")],
        ANTI,
        ANTI,
    ),
    ipm(
        "5",
        incoming({}, None, [NOT_ABC, term("zone", need("service", "In", "securityscan"))]),
        [Z1, Z2],
        [existing({"foo": "abc", "service": "securityscan"}, on="A")],
        ANTI,
        ANTI,
    ),
    ipm(
        "6",
        incoming({}, None, [NOT_ABC]),
        [CHINA, CHINA_1, INDIA],
        [existing({"foo": "abc"}, on="A")],
        ANTI,
        ANTI,
        None,
    ),
    ipm(
        "7",
        incoming({"foo": "123"}, None, [term("region", need("foo", "In", "bar"))], namespace="NS1"),
        [CHINA, CHINA_1, INDIA],
        [
            existing(FOO_BAR, on="A", namespace="NS1"),
            existing({}, [term("region", need("foo", "In", "123"))], on="C", namespace="NS2"),
        ],
        ANTI,
        ANTI,
        None,
    ),
    ipm("8", incoming(FOO), [Z1, Z1], [existing({}, [exists("foo", NO_LABEL)], on="A")], None, None, skip=True),
    ipm("9", incoming({}, None, [exists("foo", NO_LABEL)]), [Z1, Z1], [existing(FOO, on="A")], None, None),
    ipm(
        "10",
        incoming(FOO_AND_BAR),
        [Z1, Z2],
        [
            existing({}, [exists("foo", "zone")], on="A", name="e1"),
            existing({}, [exists("bar", "region")], on="A", name="e2"),
        ],
        EXIST,
        EXIST,
    ),
    ipm(
        "11",
        incoming({}, None, two("zone", "region")),
        [Z1, Z2],
        [existing(FOO, on="A"), existing(BAR, on="B")],
        ANTI,
        ANTI,
    ),
    ipm("12", incoming(FOO_AND_BAR), [Z1, Z2], [existing({}, two(NO_LABEL, "zone"), on="A")], EXIST, None),
    ipm("13", incoming({}, None, two(NO_LABEL, "zone")), [Z1, Z2], [existing(FOO_AND_BAR, on="A")], ANTI, None),
    ipm("14", incoming(FOO_AND_BAR), [Z1, Z2], [existing({}, two("region", "zone"), on="A")], EXIST, EXIST),
    ipm("15", incoming({}, None, two("region", "zone")), [Z1, Z2], [existing(FOO_AND_BAR, on="A")], ANTI, ANTI),
    ipm(
        "16",
        incoming(FOO_AND_BAR),
        [{"zone": "z1"}, {"zone": "z2"}, {"zone": "z3"}],
        [
            existing({}, [exists("foo", "zone"), exists("labelA", "zone")], on="A"),
            existing({}, [exists("bar", "zone"), exists("labelB", "zone")], on="B"),
        ],
        EXIST,
        EXIST,
        None,
    ),
    ipm("17", incoming({}, two("region", "zone")), [Z1, Z1], [existing(FOO_AND_BAR, on="A")], None, None),
    ipm(
        "18",
        incoming({}, two("region", "zone")),
        [Z1, Z2],
        [existing(FOO, on="A"), existing(BAR, on="B")],
        AFF,
        AFF,
    ),
    ipm("19", incoming(FOO_BAR, NEAR_BAR_ZONE), [{}, {"zone": "z1"}], [existing(FOO_BAR, on="A")], AFF, None),
    ipm(
        "20",
        incoming(FOO_BAR, NEAR_BAR_ZONE),
        [{"zone": "z1"}, {"zone": "z2"}],
        [existing(FOO_BAR, on="A", deletionTimestamp="2026-01-01T00:00:00Z")],
        None,
        AFF,
    ),
]

ROWS = [*SINGLE, *MANY]
