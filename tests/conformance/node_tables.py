"""Taints, unschedulable, node name, ports and node affinity (scheduler-predicates 8.3 to 8.5)."""

from __future__ import annotations

from typing import Any

from conformance.building import Json, need, node, pod
from conformance.rows import Row, Verdict

TAINTED = ("UAU", "node(s) had untolerated taint(s)")
CORDONED = ("UAU", "node(s) were unschedulable")
MISNAMED = ("UAU", "node(s) didn't match the requested node name")
NO_PORT = ("U", "node(s) didn't have free ports for the requested pod ports")
NO_MATCH = ("UAU", "node(s) didn't match Pod's node affinity/selector")
ENFORCED = ("UAU", "node(s) didn't match scheduler-enforced node affinity")


def taint(text: str) -> Json:
    """`key=value:Effect`."""
    pair, _, effect = text.partition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def tolerate(key: str, operator: str, value: str = "", effect: str = "NoSchedule") -> Json:
    fields = {"key": key, "operator": operator, "value": value, "effect": effect}
    return {name: text for name, text in fields.items() if text}


USER2 = tolerate("dedicated", "Equal", "user2")


def taint_row(number: int, tolerations: list[Json], taints: list[str], want: Verdict) -> Row:
    tainted = node(taints=[taint(each) for each in taints])
    return Row(f"TT-{number}", "TaintToleration", pod(tolerations=tolerations), [tainted], {"n": want})


BOTH = ["a:NoExecute", "b=1:NoSchedule"]
TAINTS = [
    taint_row(1, [], ["dedicated=user1:NoSchedule"], TAINTED),
    taint_row(2, [tolerate("dedicated", "Equal", "user1")], ["dedicated=user1:NoSchedule"], None),
    taint_row(3, [USER2], ["dedicated=user1:NoSchedule"], TAINTED),
    taint_row(4, [tolerate("foo", "Exists")], ["foo=bar:NoSchedule"], None),
    taint_row(5, [USER2, tolerate("foo", "Exists")], ["dedicated=user2:NoSchedule", "foo=bar:NoSchedule"], None),
    taint_row(6, [tolerate("foo", "Equal", "bar", "PreferNoSchedule")], ["foo=bar:NoSchedule"], TAINTED),
    taint_row(7, [tolerate("foo", "Equal", "bar", "")], ["foo=bar:NoSchedule"], None),
    taint_row(8, [USER2], ["dedicated=user1:PreferNoSchedule"], None),
    taint_row(9, [], ["dedicated=user1:PreferNoSchedule"], None),
    taint_row(10, [], BOTH, TAINTED),
    taint_row(11, [tolerate("a", "Exists", effect="")], BOTH, TAINTED),
    taint_row(12, [tolerate("", "Exists", effect="")], ["x=y:NoExecute", "z:NoSchedule"], None),
    taint_row(13, [tolerate("", "Exists")], ["x:NoExecute"], TAINTED),
    # Comparison operators sit behind a gate that is off: they tolerate nothing.
    taint_row(14, [tolerate("v", "Gt", "750")], ["v=950:NoSchedule"], TAINTED),
    taint_row(15, [tolerate("v", "Lt", "950")], ["v=800:NoSchedule"], TAINTED),
]

UNSCHEDULABLE_KEY = "node.kubernetes.io/unschedulable"
CORDON = [
    Row("NU-1", "NodeUnschedulable", pod(), [node(unschedulable=True)], {"n": CORDONED}),
    Row("NU-2", "NodeUnschedulable", pod(), [node(unschedulable=False)], {"n": None}),
    *(
        Row(
            f"NU-3{letter}",
            "NodeUnschedulable",
            pod(tolerations=[tolerate(UNSCHEDULABLE_KEY, operator)]),
            [node(unschedulable=True)],
            {"n": None},
        )
        for letter, operator in (("a", ""), ("b", "Exists"), ("c", "Equal"))
    ),
]
NAMES = [
    Row("NN-1a", "NodeName", pod(), [node("foo")], {"foo": None}),
    Row("NN-1b", "NodeName", pod(nodeName="foo"), [node("foo")], {"foo": None}, node_set=["foo"]),
    Row("NN-1c", "NodeName", pod(nodeName="bar"), [node("foo")], {"foo": MISNAMED}, node_set=["bar"]),
]


def with_ports(name: str, port_names: list[str], on: str | None = None, kind: str = "containers", **more: Any) -> Json:
    """`PROTOCOL/ip/port` each."""
    ports = []
    for text in port_names:
        protocol, ip, port = text.split("/")
        ports.append({"containerPort": 80, "protocol": protocol, "hostIP": ip, "hostPort": int(port)})
    bearer = {"name": "x", "image": "i", "ports": ports, **more}
    return pod(name, on, **{kind: [bearer]})


def port_row(number: int, ports: list[str], used: list[str], want: Verdict) -> Row:
    new, placed = with_ports("new", ports), with_ports("placed", used, "n")
    return Row(f"NP-{number}", "NodePorts", new, [node()], {"n": want}, [placed])


ON_8080 = ["TCP/127.0.0.1/8080"]
PORTS = [
    Row("NP-1", "NodePorts", pod(), [node()], {"n": None}, [with_ports("placed", ON_8080, "n")], skip=True),
    port_row(2, ["UDP/127.0.0.1/8080"], ["UDP/127.0.0.1/9090"], None),
    port_row(3, ["UDP/127.0.0.1/8080"], ["UDP/127.0.0.1/8080"], NO_PORT),
    port_row(4, ON_8080, ON_8080, NO_PORT),
    port_row(5, ON_8080, ["TCP/127.0.0.2/8080"], None),
    port_row(6, ["UDP/127.0.0.1/8080"], ON_8080, None),
    port_row(7, ["UDP/127.0.0.1/8000", "UDP/127.0.0.1/8080"], ["UDP/127.0.0.1/8080"], NO_PORT),
    port_row(8, ["TCP/127.0.0.1/8001", "UDP/127.0.0.1/8080"], ["TCP/127.0.0.1/8001", "UDP/127.0.0.1/8081"], NO_PORT),
    port_row(9, ["TCP/0.0.0.0/8001"], ["TCP/127.0.0.1/8001"], NO_PORT),
    port_row(10, ["TCP/10.0.10.10/8001", "TCP/0.0.0.0/8001"], ["TCP/127.0.0.1/8001"], NO_PORT),
    port_row(11, ["TCP/127.0.0.1/8001"], ["TCP/0.0.0.0/8001"], NO_PORT),
    port_row(12, ["UDP/127.0.0.1/8001"], ["TCP/0.0.0.0/8001"], None),
    port_row(13, ["UDP/127.0.0.1/8001"], ["TCP/0.0.0.0/8001", "UDP/0.0.0.0/8001"], NO_PORT),
    port_row(14, ["TCP/::/80"], ["TCP/127.0.0.1/80"], None),
    port_row(15, ["TCP//80"], ["TCP/::/80"], NO_PORT),
    Row(
        "NP-16a",
        "NodePorts",
        with_ports("new", ON_8080, kind="initContainers"),
        [node()],
        {"n": None},
        [with_ports("placed", ON_8080, "n")],
        skip=True,
    ),
    Row(
        "NP-16b",
        "NodePorts",
        with_ports("new", ON_8080, kind="initContainers", restartPolicy="Always"),
        [node()],
        {"n": NO_PORT},
        [with_ports("placed", ON_8080, "n")],
    ),
]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def names(*values: str) -> Json:
    return need("metadata.name", "In", *values)


def term(*needs: Json, fields: list[Json] | None = None) -> Json:
    return {"matchExpressions": list(needs), **({"matchFields": fields} if fields else {})}


def affinity(*terms: Json) -> Json:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


FOO_BAR = {"foo": "bar"}
NAME_1, NAME_2 = term(fields=[names("node1")]), term(fields=[names("node2")])
IMPOSSIBLE = term(fields=[names("node1"), names("node2")])


def na(letter: str, spec: Json, labels: Json, want: Verdict, name: str = "n", **more: Any) -> Row:
    return Row(f"NA-{letter}", "NodeAffinity", pod(**spec), [node(name, labels)], {name: want}, **more)


def aff(*terms: Json) -> Json:
    return {"affinity": affinity(*terms)}


NUMBER = aff(term(need("v", "Gt", "5")))
NODE_AFFINITY = [
    na("1", {}, FOO_BAR, None, skip=True),
    na("2", {"nodeSelector": FOO_BAR}, {}, NO_MATCH),
    na("3", {"nodeSelector": FOO_BAR}, FOO_BAR, None),
    na("4", {"nodeSelector": FOO_BAR}, {"foo": "bar", "baz": "blah"}, None),
    na("5", {"nodeSelector": {"foo": "bar", "baz": "blah"}}, FOO_BAR, NO_MATCH),
    na("6", aff(term(need("foo", "In", "bar", "value2"))), FOO_BAR, None),
    na("7", aff(term(need("kernel-version", "Gt", "0204"))), {"kernel-version": "0206"}, None),
    na("8", aff(term(need("mem-type", "NotIn", "DDR", "DDR2"))), {"mem-type": "DDR3"}, None),
    na("9", aff(term(need("GPU", "Exists"))), {"GPU": "NVIDIA-GRID-K1"}, None),
    na("10", aff(term(need("foo", "In", "value1", "value2"))), FOO_BAR, NO_MATCH),
    na("11a", {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": None}}}}, FOO_BAR, NO_MATCH),
    na("11b", aff(), FOO_BAR, NO_MATCH),
    na("12", aff(term()), FOO_BAR, NO_MATCH),
    na("13", {"affinity": {"nodeAffinity": {}}}, FOO_BAR, None, skip=True),
    na("14", aff(term(need("GPU", "Exists"), need("GPU", "NotIn", "AMD", "INTER"))), {"GPU": "NVIDIA"}, None),
    na("15", aff(term(need("GPU", "Exists"), need("GPU", "In", "AMD", "INTER"))), {"GPU": "NVIDIA"}, NO_MATCH),
    na(
        "16",
        aff(term(need("foo", "In", "bar", "value2")), term(need("diffkey", "In", "wrong", "value2"))),
        FOO_BAR,
        None,
    ),
    na("17a", {"nodeSelector": FOO_BAR, **aff(term(need("foo", "Exists")))}, FOO_BAR, None),
    na("17b", {"nodeSelector": FOO_BAR, **aff(term(need("foo", "Exists")))}, {"foo": "barrrrrr"}, NO_MATCH),
    na("18", aff(term(need("foo", "NotIn", "invalid value: ___@#$%^"))), FOO_BAR, NO_MATCH),
    na("19a", aff(NAME_1), {}, None, "node1", node_set=["node1"]),
    na("19b", aff(NAME_1), {}, NO_MATCH, "node2", node_set=["node1"]),
    na("20", aff(NAME_1, term(need("foo", "In", "bar"))), FOO_BAR, None, "node2", node_set=[]),
    na(
        "21",
        aff(term(need("foo", "In", "bar"), fields=[names("node1")])),
        FOO_BAR,
        NO_MATCH,
        "node2",
        node_set=["node1"],
    ),
    na("22", aff(term(need("foo", "In", "bar"), fields=[names("node1")])), FOO_BAR, None, "node1"),
    na("23", aff(NAME_1, NAME_2), {}, None, "node2", node_set=["node1", "node2"]),
    na("24", aff(IMPOSSIBLE), {}, None, fails=("UAU", "pod affinity terms conflict")),
    na("25", aff(IMPOSSIBLE, term(need("foo", "In", "bar"))), FOO_BAR, None, "node2", node_set=[]),
    na(
        "26",
        {},
        {"zone": "bar"},
        ENFORCED,
        options={"added_affinity": affinity(term(need("zone", "In", "foo")))["nodeAffinity"]},
    ),
    *(
        na(
            f"27{letter}",
            aff(term(fields=[names("foo")])),
            {},
            want,
            name,
            options={"added_affinity": affinity(term(fields=[names("foo")]))["nodeAffinity"]},
        )
        for letter, name, want in (("a", "foo", None), ("b", "bar", ENFORCED))
    ),
    na("28", aff(term(fields=[names("node1", "node2")])), {}, NO_MATCH, "node1", node_set=["node1", "node2"]),
    na("29", aff(term(need("foo", "Lt", "abc")), term(need("foo", "Exists"))), {"foo": "1"}, None),
    na("30a", NUMBER, {"v": "5"}, NO_MATCH),
    na("30b", NUMBER, {"v": " 6"}, NO_MATCH),
    na("30c", NUMBER, {"v": "6.0"}, NO_MATCH),
    na("30d", NUMBER, {"v": "+6"}, None),
    na("30e", NUMBER, {}, NO_MATCH),
]

ROWS = [*TAINTS, *CORDON, *NAMES, *PORTS, *NODE_AFFINITY]
