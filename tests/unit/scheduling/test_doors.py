"""Arguments of another kind than they should be are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kscale
from kscale.ca.estimator.options import NodeGroupSize
from kscale.objects.core import Node

Json = dict[str, Any]
AMOUNTS = {"cpu": "4", "memory": "8Gi", "pods": "10"}
NODE: Json = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "t"}, "status": {"allocatable": AMOUNTS}}
POD: Json = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "d"}}


def estimate(**given: Any) -> Any:
    return kscale.estimate(kscale.load([POD]).snapshot(), **{"template": NODE, **given})


def place(**given: Any) -> Any:
    return kscale.place(kscale.load([NODE, POD]).snapshot(), **given)


def many(**given: Any) -> Any:
    return kscale.estimate_many(kscale.load([POD]).snapshot(), **{"templates": [NODE], **given})


def options(**given: Any) -> kscale.EstimateOptions:
    return kscale.EstimateOptions(**given)


REFUSED: list[tuple[Callable[..., Any], Json, str]] = [
    (estimate, {"template": 3}, "template is 3, not a node, a node template or a node group"),
    (estimate, {"template": None}, "template is None, not"),
    (estimate, {"options": {}}, "options is {}, not EstimateOptions"),
    (estimate, {"options": options(max_nodes="x")}, r"options\.max_nodes: Expected `int`, got `str`"),
    (estimate, {"options": options(node_group=3)}, r"options\.node_group: "),
    (estimate, {"options": options(thresholds=("no",))}, "unknown threshold 'no'"),
    (estimate, {"cursor": -5}, "cursor is -5, not between 0"),
    (estimate, {"cursor": 10**30}, "cursor is 10{30}, not between 0"),
    (estimate, {"cursor": "x"}, "cursor is 'x', not a whole number"),
    (many, {"options": []}, "options has 0 entries for 1 templates"),
    (many, {"options": options()}, "options is EstimateOptions.*, not a list, one entry a template"),
    (many, {"templates": NODE}, "templates is .*, not a list"),
    (place, {"state": 3}, "state is 3, not a PlaceState"),
    (place, {"state": {}}, "state is {}, not a PlaceState"),
    (place, {"state": kscale.PlaceState(cursor=-7)}, r"state\.cursor is -7, not between 0"),
    (place, {"state": kscale.PlaceState(cursor=10**30)}, r"state\.cursor is 10{30}, not between 0"),
    (place, {"state": kscale.PlaceState(hints=[])}, r"state\.hints is \[\], not pod UIDs"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "given", "message"), REFUSED, ids=[case[2] for case in REFUSED])
def test_refused_by_name(call: Callable[..., Any], given: Json, message: str) -> None:
    with pytest.raises(kscale.InputError, match=message):
        call(**given)


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ({"options": options(max_nodes=10**15)}, 1),
        ({"options": options(max_nodes=-(10**15))}, 0),
        ({"options": options(node_group=NodeGroupSize(max_size=3), thresholds=["static", "sng"])}, 1),
        ({"options": None, "cursor": 99}, 1),
        ({"template": Node(metadata=kscale.load([NODE]).snapshot().columns.objects[0].metadata)}, 0),
    ],
)
def test_taken(given: Json, count: int) -> None:
    assert estimate(**given).node_count == count
