"""Groups as a caller describes them are settled anew when nodes say something else that they read, and only then."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from msgspec.structs import replace

import kscale
from builders import node
from kscale.ca.group_inputs import resolve_groups
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import Groups, NodeGroup, NodeGroupOptions, NodeTemplate
from kscale.objects.quantity import Quantity


def _larger(old: Node) -> Node:
    return replace(old, status=replace(old.status, allocatable={"cpu": Quantity("640")}))


def _of_another_instance(old: Node) -> Node:
    return replace(old, spec=replace(old.spec, provider_id="another"))


def _relabelled(old: Node) -> Node:
    return replace(old, metadata=replace(old.metadata, labels={"pool": "a"}))


def _described() -> list[NodeGroup]:
    return [
        NodeGroup(id="named", max_size=9, nodes=["n0", "n1"]),
        NodeGroup(id="selected", max_size=9, node_selector={"pool": "a"}),
        NodeGroup(id="like", max_size=9, from_node="n2"),
    ]


def _instance_ids(groups: Groups) -> list[Any]:
    return [(group, group.instance_ids) for group in groups]


@pytest.mark.parametrize(
    ("name", "change", "same"),
    [
        ("n0", _larger, True),
        ("n3", _larger, True),
        ("n2", _larger, False),
        ("n0", _of_another_instance, False),
        ("n3", _relabelled, False),
    ],
)
def test_groups_are_resolved_again_only_if_read_fields_change(name: str, change: Any, same: bool) -> None:
    nodes = [node(f"n{i}", 1000, 1, labels={"pool": "b"}) for i in range(4)]
    created = kscale.Cluster(nodes)
    before = resolve_groups(created.snapshot(), _described())
    assert resolve_groups(created.snapshot(), _described()) is before
    created.apply(change(next(each for each in nodes if each.metadata.name == name)))
    result = resolve_groups(created.snapshot(), _described())
    assert (result is before) is same
    assert _instance_ids(result) == _instance_ids(Groups.of(_described(), [*created.nodes()]))


def test_added_and_removed_nodes_resolve_groups_again() -> None:
    created = kscale.Cluster([node(f"n{i}", 1000, 1) for i in range(4)])
    described = [NodeGroup(id="a", max_size=9, node_selector={"pool": "a"})]
    before = resolve_groups(created.snapshot(), described)
    created.apply(node("n4", 1000, 1, labels={"pool": "a"}))
    result = resolve_groups(created.snapshot(), described)
    assert (before["a"].nodes, result["a"].nodes) == ([], ["n4"])
    created.remove("Node", "n4")
    assert resolve_groups(created.snapshot(), described)["a"].nodes == []


def test_a_group_may_have_a_tuple_in_place_of_a_list() -> None:
    described = NodeGroup(id="named", max_size=9)
    described.nodes = ("n0",)
    (group,) = resolve_groups(kscale.Cluster([node("n0", 1000, 1)]).snapshot(), [described])
    assert list(group.nodes) == ["n0"]


def test_a_modified_group_is_checked_again() -> None:
    created = kscale.Cluster([node("n0", 1000, 1)])
    described = NodeGroup(id="named", max_size=9, nodes=["n0"])
    resolve_groups(created.snapshot(), [described])
    described.price = "cheap"
    with pytest.raises(kscale.InputError, match=r"NodeGroup.price is 'cheap'"):
        resolve_groups(created.snapshot(), [described])


def test_resolved_groups_share_no_container_with_the_description() -> None:
    """A result is cached for equal descriptions, so that the caller's changes must not show in it."""
    created = kscale.Cluster([node("n0", 1000, 1)])
    described = NodeGroup(id="named", max_size=9, nodes=["n0"])
    resolve_groups(created.snapshot(), [described])
    described.gone_instances.append("gone")
    (group,) = resolve_groups(created.snapshot(), [NodeGroup(id="named", max_size=9, nodes=["n0"])])
    assert group.gone_instances == []


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("id", 5, "NodeGroup 5: NodeGroup.id is 5"),
        ("id", [], "NodeGroup.id is []"),
        ("min_size", "1", "NodeGroup g: NodeGroup.min_size is '1'"),
        ("max_size", 2.5, "NodeGroup.max_size is 2.5"),
        ("nodes", 5, "NodeGroup.nodes is 5"),
        ("nodes", [5], "NodeGroup.nodes[0] is 5"),
        ("node_selector", 5, "NodeGroup.node_selector is 5"),
        ("labels", 5, "NodeGroup.labels is 5"),
        ("taints", ["x"], "NodeGroup.taints[0] is 'x'"),
        ("capacity", {"cpu": 5}, "NodeGroup.capacity['cpu'] is 5"),
        ("options", {}, "NodeGroup.options is {}"),
        ("options.scale_down_unneeded_time", "x", "NodeGroup g: NodeGroupOptions.scale_down_unneeded_time is 'x'"),
        (
            "options.max_node_provision_time",
            math.inf,
            "NodeGroup g: options.maxNodeProvisionTime: inf is longer than 9223372036",
        ),
        (
            "options.max_node_provision_time",
            1e300,
            "options.maxNodeProvisionTime: 1e+300 is longer than 9223372036",
        ),
        ("template", {}, "NodeGroup.template is {}"),
        ("template.node", {}, "NodeGroup g: NodeTemplate.node is {}"),
        ("template.pods", ["x"], "NodeTemplate.pods[0] is 'x'"),
        ("template.node.metadata", None, "Node.metadata is None"),
        ("template.node.metadata.name", 5, "NodeGroup g: ObjectMeta.name is 5"),
        ("template.node.spec.taints", None, "NodeSpec.taints is None"),
        ("template.node.status.allocatable", {"cpu": 4}, "NodeStatus.allocatable['cpu'] is 4"),
    ],
)
def test_a_group_that_was_modified_after_it_was_created_is_checked(path: str, value: Any, message: str) -> None:
    described = NodeGroup(id="g", options=NodeGroupOptions(), template=NodeTemplate(node=node("t", 1000, 1)))
    target: Any = described
    *parents, name = path.split(".")
    for parent in parents:
        target = getattr(target, parent)
    setattr(target, name, value)
    with pytest.raises(kscale.InputError, match=re.escape(message)):
        Groups.of([described], [node("n0", 1000, 1)])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"targetSize": -1}, "targetSize: -1 is negative"),
        (
            {"options": {"scaleDownUtilizationThreshold": -0.5}},
            "options.scaleDownUtilizationThreshold: -0.5 is negative",
        ),
    ],
)
def test_negative_numbers_of_a_description_are_refused(more: dict[str, Any], message: str) -> None:
    described = {"id": "g", "minSize": 0, "maxSize": 3, **more}
    with pytest.raises(kscale.InputError, match=re.escape(message)):
        Groups.of([described], [node("n0", 1000, 1)])
