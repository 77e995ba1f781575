"""Parts of pods and nodes. The alphabets are small on purpose: things should collide, match and repel each other."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

NAMESPACES = ("default", "prod", "lone")  # `lone` never has a Namespace object
ZONE, REGION, HOSTNAME = "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "kubernetes.io/hostname"
ZONES = ("z1", "z2")
NODE_NAMES = tuple(f"n{index}" for index in range(6))
EXTENDED = "example.com/gpu"

CPU = st.sampled_from(["100m", "250m", "500m", "1", "100.5m", "0", "1n"])
MEMORY = st.sampled_from(["64Mi", "100M", "0.1Gi", "512Mi", "1Gi", "0"])
COUNT = st.sampled_from(["0", "1", "2"])
HOSTILE = st.sampled_from(["1Ei", "9223372036854775808", "16Ei", "10E"])


@cache
def chance(one_in: int) -> st.SearchStrategy[bool]:
    """True about once in `one_in`; shrinks to False."""
    return st.integers(0, one_in - 1).map(lambda number: number == one_in - 1)


def set_sometimes(draw: st.DrawFn, target: Json, key: str, value: st.SearchStrategy[Any], one_in: int = 3) -> None:
    """Sets a key now and then; otherwise it stays absent."""
    if draw(chance(one_in)):
        target[key] = draw(value)


@cache  # one strategy object each: Hypothesis validates it once
@st.composite
def requests(draw: st.DrawFn, *, hostile: bool = False) -> Json:
    resources: Json = {}
    set_sometimes(draw, resources, "cpu", CPU, 2)
    set_sometimes(draw, resources, "memory", MEMORY, 2)
    set_sometimes(draw, resources, "ephemeral-storage", MEMORY, 6)
    set_sometimes(draw, resources, EXTENDED, COUNT, 6)
    set_sometimes(draw, resources, "hugepages-2Mi", st.sampled_from(["2Mi", "4Mi"]), 12)
    set_sometimes(draw, resources, "example.com/unknown", COUNT, 20)
    set_sometimes(draw, resources, "storage", COUNT, 20)
    if hostile:
        set_sometimes(draw, resources, "cpu", HOSTILE, 8)
        set_sometimes(draw, resources, "memory", HOSTILE, 8)
    return resources


@cache
def labels() -> st.SearchStrategy[Json]:
    values = {"app": st.sampled_from(["a", "b"]), "rev": st.sampled_from(["1", "2"]), "tier": st.just("")}
    return st.fixed_dictionaries({}, optional=values)


REQUIREMENTS = st.sampled_from(
    [
        {"key": "app", "operator": "In", "values": ["a"]},
        {"key": "app", "operator": "In", "values": ["a", "b"]},
        {"key": "app", "operator": "NotIn", "values": ["a"]},
        {"key": "app", "operator": "Exists"},
        {"key": "tier", "operator": "DoesNotExist"},
        {"key": "tier", "operator": "In", "values": [""]},
        {"key": "rev", "operator": "NotIn", "values": ["1"]},
    ]
)
BROKEN = st.sampled_from(
    [
        {"key": "app", "operator": "In", "values": []},
        {"key": "app", "operator": "In", "values": ["not valid!"]},
        {"key": "app", "operator": "Exists", "values": ["a"]},
        {"key": "app", "operator": "Near", "values": ["a"]},
    ]
)


@cache
@st.composite
def label_selectors(draw: st.DrawFn) -> Json | None:
    kind = draw(st.integers(0, 11))
    if kind == 0:
        return None
    if kind == 1:
        return {}
    selector: Json = {}
    if kind % 2:
        selector["matchLabels"] = {"app": draw(st.sampled_from(["a", "b"]))}
    if kind > 6 or kind % 2 == 0:
        selector["matchExpressions"] = draw(st.lists(REQUIREMENTS, min_size=1, max_size=2))
    if draw(chance(20)):
        selector["matchExpressions"] = [draw(BROKEN)]
    return selector


NAMESPACE_SELECTORS = st.sampled_from(
    [
        {},
        {"matchLabels": {"team": "core"}},
        {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["core"]}]},
        {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
    ]
)
TOPOLOGY_KEYS = st.sampled_from([ZONE, HOSTNAME, REGION, "rack"])


@cache
@st.composite
def affinity_terms(draw: st.DrawFn) -> Json:
    term: Json = {"topologyKey": draw(TOPOLOGY_KEYS)}
    selector = draw(label_selectors())
    if selector is not None:
        term["labelSelector"] = selector
    set_sometimes(draw, term, "namespaces", st.lists(st.sampled_from(NAMESPACES), max_size=2, unique=True), 4)
    set_sometimes(draw, term, "namespaceSelector", NAMESPACE_SELECTORS, 4)
    return term


@cache
@st.composite
def spread_constraints(draw: st.DrawFn) -> Json:
    constraint: Json = {
        "topologyKey": draw(TOPOLOGY_KEYS),
        "maxSkew": draw(st.integers(1, 2)),
        "whenUnsatisfiable": draw(st.sampled_from(["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"])),
    }
    selector = draw(label_selectors())
    if selector is not None:
        constraint["labelSelector"] = selector
    set_sometimes(draw, constraint, "minDomains", st.integers(1, 4), 4)
    set_sometimes(draw, constraint, "nodeAffinityPolicy", st.sampled_from(["Honor", "Ignore"]), 4)
    set_sometimes(draw, constraint, "nodeTaintsPolicy", st.sampled_from(["Honor", "Ignore"]), 3)
    set_sometimes(draw, constraint, "matchLabelKeys", st.just(["rev"]), 5)
    return constraint


NODE_REQUIREMENTS = st.sampled_from(
    [
        {"key": ZONE, "operator": "In", "values": ["z1"]},
        {"key": ZONE, "operator": "NotIn", "values": ["z1"]},
        {"key": "rack", "operator": "Exists"},
        {"key": "rack", "operator": "DoesNotExist"},
        {"key": "cores", "operator": "Gt", "values": ["4"]},
        {"key": "cores", "operator": "Lt", "values": ["08"]},
        {"key": "cores", "operator": "Gt", "values": ["many"]},
        {"key": HOSTNAME, "operator": "NotIn", "values": ["n0"]},
        {"key": ZONE, "operator": "In", "values": ["not valid!"]},
    ]
)


@cache
@st.composite
def node_terms(draw: st.DrawFn) -> Json:
    term: Json = {}
    set_sometimes(draw, term, "matchExpressions", st.lists(NODE_REQUIREMENTS, max_size=2), 2)
    if draw(chance(3)):
        names = draw(st.lists(st.sampled_from([*NODE_NAMES[:3], "gone"]), min_size=1, max_size=2))
        operator = draw(st.sampled_from(["In", "In", "NotIn"]))
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": names}]
    return term


@cache
@st.composite
def tolerations(draw: st.DrawFn) -> Json:
    toleration: Json = {}
    set_sometimes(draw, toleration, "key", st.sampled_from(["dedicated", "node.kubernetes.io/unschedulable"]), 2)
    toleration["operator"] = draw(st.sampled_from(["Exists", "Equal", "Gt"]))
    if toleration["operator"] != "Exists":
        toleration["value"] = draw(st.sampled_from(["", "a", "b", "5"]))
    set_sometimes(draw, toleration, "effect", st.sampled_from(["NoSchedule", "NoExecute"]), 2)
    return toleration


@cache
@st.composite
def taints(draw: st.DrawFn) -> Json:
    taint: Json = {
        "key": draw(st.sampled_from(["dedicated", "spot"])),
        "effect": draw(st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])),
    }
    set_sometimes(draw, taint, "value", st.sampled_from(["a", "b"]), 2)
    return taint


@cache
@st.composite
def host_ports(draw: st.DrawFn) -> Json:
    port: Json = {"containerPort": 80, "hostPort": draw(st.sampled_from([8080, 8081, 0]))}
    set_sometimes(draw, port, "protocol", st.sampled_from(["TCP", "UDP"]), 2)
    set_sometimes(draw, port, "hostIP", st.sampled_from(["0.0.0.0", "127.0.0.1", "::", "10.0.0.1", ""]), 2)
    return port


@cache
@st.composite
def inline_disks(draw: st.DrawFn) -> Json:
    read_only = draw(st.booleans())
    return draw(
        st.sampled_from(
            [
                {"gcePersistentDisk": {"pdName": "disk", "readOnly": read_only}},
                {"awsElasticBlockStore": {"volumeID": "vol-1", "readOnly": read_only}},
                {"iscsi": {"targetPortal": "p", "iqn": "iqn-1", "lun": 0, "readOnly": read_only}},
                {"rbd": {"monitors": ["m1", "m2"], "pool": "pool", "image": "i", "readOnly": read_only}},
                {"rbd": {"monitors": ["m2"], "pool": "pool", "image": "i", "readOnly": read_only}},
                {"emptyDir": {}},
            ]
        )
    )
