"""Arguments of another kind than they should be are refused by name."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import kscale
from kscale.ca.estimator.result import NodeGroupSize
from kscale.errors import StateError
from kscale.objects.api.core import Node

Json = dict[str, Any]
AMOUNTS = {"cpu": "4", "memory": "8Gi", "pods": "10"}
NODE: Json = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "t"}, "status": {"allocatable": AMOUNTS}}
POD: Json = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "d"}}


def estimate(**options: Any) -> Any:
    return kscale.estimate(kscale.load([POD]).snapshot(), **{"template": NODE, **options})


def place(**options: Any) -> Any:
    return kscale.place(kscale.load([NODE, POD]).snapshot(), **options)


def many(**options: Any) -> Any:
    return kscale.estimate_many(kscale.load([POD]).snapshot(), **{"templates": [NODE], **options})


def options(**fields: Any) -> kscale.EstimateOptions:
    return kscale.EstimateOptions(**fields)


REFUSED: list[tuple[Callable[..., Any], Json, str]] = [
    (estimate, {"template": 3}, "template is 3, not a node, a node template or a node group"),
    (estimate, {"template": None}, "template is None, not"),
    (estimate, {"template": {"id": "g", "min": 1, "template": NODE}}, "node group: min: there is no such member"),
    (estimate, {"template": {"id": "g", "template": {"node": NODE, "pod": []}}}, r"template\.pod: there is no such"),
    (estimate, {"template": {"id": "g", "template": NODE, "options": {"x": 1}}}, r"options\.x: there is no such"),
    (estimate, {"template": {"nodes": NODE}}, "template: nodes: there is no such member"),
    (estimate, {"options": {}}, "options is {}, not EstimateOptions"),
    (estimate, {"options": options(max_nodes="x")}, r"options\.max_nodes: Expected `int`, got `str`"),
    (estimate, {"options": options(node_group=3)}, r"options\.node_group: "),
    (estimate, {"options": options(thresholds=("no",))}, "unknown threshold 'no'"),
    (estimate, {"cursor": -5}, "cursor is -5, not between 0"),
    (estimate, {"cursor": 10**30}, "cursor is 10{30}, not between 0"),
    (estimate, {"cursor": "x"}, "cursor is 'x', not a whole number"),
    (many, {"options": []}, "options has 0 entries for 1 templates"),
    (many, {"options": options()}, "options is EstimateOptions.*, not a list of EstimateOptions"),
    (many, {"templates": NODE}, "templates is .*, not a list"),
    (many, {"threads": 0, "fresh_cursor": True}, "threads is 0, less than one thread"),
    (many, {"threads": "x"}, "threads is 'x', not a whole number"),
    (many, {"threads": 2}, "threads needs fresh_cursor"),
    (place, {"state": 3}, "state is 3, not a PlaceState"),
    (place, {"state": {}}, "state is {}, not a PlaceState"),
    (place, {"state": kscale.PlaceState(cursor=-7)}, r"state\.cursor is -7, not between 0"),
    (place, {"state": kscale.PlaceState(cursor=10**30)}, r"state\.cursor is 10{30}, not between 0"),
    (place, {"state": kscale.PlaceState(hints=[])}, r"state\.hints is \[\], not pod UIDs"),
]


@pytest.mark.parametrize(("call", "arguments", "message"), REFUSED, ids=[case[2] for case in REFUSED])
def test_invalid_arguments_are_refused_by_name(call: Callable[..., Any], arguments: Json, message: str) -> None:
    with pytest.raises(kscale.InputError, match=message):
        call(**arguments)


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ({"options": options(max_nodes=10**15)}, 1),
        ({"options": options(max_nodes=-(10**15))}, 0),
        ({"options": options(node_group=NodeGroupSize(max_size=3), thresholds=["static", "sng"])}, 1),
        ({"options": None, "cursor": 99}, 1),
        ({"template": Node(metadata=kscale.load([NODE]).snapshot().columns.objects[0].metadata)}, 0),
    ],
)
def test_valid_arguments_are_accepted(arguments: Json, count: int) -> None:
    assert estimate(**arguments).node_count == count


CLUSTER = kscale.Cluster([NODE, POD])
GROUP: Json = {"id": "g", "maxSize": 3}


class V1Node:
    """A node as a client library has it."""

    def to_dict(self) -> Json:
        return NODE


class V1Pod:
    """A pod as a client library has it."""

    def to_dict(self) -> Json:
        return {**POD, "metadata": {"name": "c", "namespace": "d"}}


@pytest.mark.parametrize("pods", [None, ["d/a"], [{**POD, "metadata": {"name": "b"}}], [V1Pod()], [CLUSTER.pod("d/a")]])
@pytest.mark.parametrize("cluster", [CLUSTER, CLUSTER.snapshot()], ids=["cluster", "snapshot"])
def test_every_function_accepts_clusters_and_pods_of_any_kind(cluster: Any, pods: Any) -> None:
    assert kscale.fit(cluster, pods).ok.all()
    assert kscale.place(cluster, pods).placed_count == 1
    assert kscale.estimate(cluster, pods, template=NODE).node_count == 1
    assert "added" in repr(kscale.fork(cluster, pods, templates=[NODE]))


@pytest.mark.parametrize(
    "template",
    [
        NODE,
        {"node": NODE},
        V1Node(),
        CLUSTER.snapshot().columns.objects[0],
        {**GROUP, "fromNode": "t"},
        {**GROUP, "template": {"node": NODE}},
        kscale.NodeGroup(id="g", from_node="t"),
        kscale.NodeTemplate(node=CLUSTER.snapshot().columns.objects[0]),
    ],
)
def test_templates_of_any_kind(template: Any) -> None:
    assert kscale.estimate(CLUSTER, template=template).node_count == 1
    assert kscale.fork(CLUSTER, templates=[template]).add() == 1


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: kscale.fit(None), "snapshot is None, not a snapshot or a cluster"),
        (lambda: kscale.place(3), "snapshot is 3, not"),
        (lambda: kscale.fork("x"), "snapshot is 'x', not"),
        (lambda: kscale.fit(CLUSTER, nodes="t"), "nodes is 't', not a list of strings"),
        (lambda: kscale.fit(CLUSTER, [3]), "a pod is 3, not a pod's name or a pod"),
        (lambda: kscale.estimate(CLUSTER, template=GROUP), "node group 'g' has no template: give it one, or fromNode"),
        (lambda: kscale.estimate(CLUSTER, template={**GROUP, "fromNode": "no"}), "there is no node no"),
    ],
)  # the wrong types are the point
def test_wrong_arguments_have_names(call: Callable[[], Any], problem: str) -> None:
    with pytest.raises(kscale.InputError, match=problem):
        call()


BIG: Json = {**POD, "metadata": {"name": "big", "namespace": "d"},
             "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "9"}}}]}}  # fmt: skip


def test_results_have_a_repr_and_can_be_pickled() -> None:
    cluster = kscale.Cluster([NODE, POD, BIG])
    fit, placed = kscale.fit(cluster), kscale.place(cluster)
    needed = kscale.estimate(cluster, template=NODE)
    assert repr(fit) == "<FitResult: 1 of 2 pods fit some node; 1 nodes>"
    assert repr(placed) == "<PlaceResult: 1 of 2 pods placed on 1 nodes, 1 fit nowhere>"
    assert repr(needed) == "<EstimateResult: 1 nodes like t for 1 pods, 1 unschedulable>"
    for result in (fit, placed, needed):
        assert repr(pickle.loads(pickle.dumps(result))) == repr(result)
    again = pickle.loads(pickle.dumps(needed))
    assert (again.placed, again.reasons, again.lower_bound) == (
        needed.placed, needed.reasons, needed.lower_bound,
    )  # fmt: skip
    assert pickle.loads(pickle.dumps(fit)).verdict("d/big", "t") == fit.verdict("d/big", "t")
    assert pickle.loads(pickle.dumps(placed)).placed == {"d/a": "t"}


@pytest.mark.parametrize(
    "template",
    [NODE, {"node": NODE}, {"id": "g", "template": NODE}, {"id": "g", "template": {"node": NODE, "pods": []}}],
    ids=["node", "template", "group of a node", "group of a template"],
)
def test_template_is_accepted_in_every_form(template: Json) -> None:
    assert estimate(template=template).node_count == 1


@pytest.mark.parametrize("text", ["[1]", "1", "{}", "[", "[" * 100_000, b"\xff", '{"version": 1, "cursor": "a"}'])
def test_text_that_is_no_place_state_is_a_state_error(text: str | bytes) -> None:
    with pytest.raises(StateError, match="not a place state"):
        kscale.PlaceState.from_json(text)
