"""From a node group to the template of its new nodes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kscale import InputError, Quantity
from kscale.capacity.groups import group_template, groups_from, members_of
from kscale.objects.api.apps import DaemonSet
from kscale.objects.api.core import Node, Pod, Taint
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import Groups, NodeGroup, NodeTemplate


def node(name: str, *, labels=None, taints=(), ready="True", cpu="4") -> Node:
    return from_dict(
        {
            "metadata": {"name": name, "labels": {"pool": "a", **(labels or {})}},
            "spec": {"taints": list(taints)},
            "status": {
                "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"},
                "conditions": [{"type": "Ready", "status": ready}],
            },
        },
        Node,
    )


def pod(name: str, kind: str) -> Pod:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": True}
    return from_dict({"metadata": {"name": name, "uid": name, "ownerReferences": [owner]}, "spec": {}}, Pod)


def daemonset(name: str, *, priority: str = "", selector=None, tolerations=()) -> DaemonSet:
    spec = {"priorityClassName": priority, "nodeSelector": selector or {}, "tolerations": list(tolerations)}
    return from_dict(
        {"metadata": {"name": name, "uid": name}, "spec": {"selector": {}, "template": {"spec": spec}}}, DaemonSet
    )


def group(**entry):
    (result,) = groups_from([{"id": "g", **entry}])
    return result


def test_a_copy_of_a_node_keeps_its_daemons_only() -> None:
    result = group_template(
        group(fromNode="n2"),
        nodes=[
            node("n1"),
            node("n2", cpu="7", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]),
        ],
        pods_on=lambda name: [pod(f"daemon-{name}", "DaemonSet"), pod(f"web-{name}", "ReplicaSet")],
        suffix="5",
    )
    assert result.node.metadata.name == "template-node-for-g-5"
    assert result.node.status.allocatable is not None
    assert result.node.status.allocatable["cpu"] == Quantity("7")
    assert result.node.spec.taints == []
    assert [one.metadata.name for one in result.pods] == ["daemon-n2-5"]


def test_the_first_good_member_is_the_model() -> None:
    nodes = [node("out", labels={"pool": "b"}), node("bad", ready="False", cpu="1"), node("good", cpu="2")]
    for entry in ({"nodeSelector": {"pool": "a"}}, {"nodes": ["good", "bad"]}):
        assert [one.metadata.name for one in members_of(group(**entry), nodes)] == ["bad", "good"]
        result = group_template(group(**entry), nodes=nodes)
        assert result.node.status.allocatable is not None
        assert result.node.status.allocatable["cpu"] == Quantity("2")
    assert members_of(group(fromNode="x"), nodes) == []


def test_additions_decide_what_runs_there() -> None:
    entry = {
        "template": {"metadata": {"labels": {"a": "1"}}, "status": {"allocatable": {"cpu": "4"}}},
        "labels": {"gpu": "yes"},
        "taints": [{"key": "dedicated", "effect": "NoSchedule"}],
        "capacity": {"nvidia.com/gpu": 2},
    }
    tolerant = [{"operator": "Exists"}]
    result = group_template(
        group(**entry),
        daemonsets=[
            daemonset("on-gpu", selector={"gpu": "yes"}, tolerations=tolerant),
            daemonset("kept-off"),
            daemonset("elsewhere", selector={"gpu": "no"}, tolerations=tolerant),
        ],
    )
    assert [one.metadata.name for one in result.pods] == ["on-gpu-pod-0"]
    assert (result.node.metadata.labels or {})["gpu"] == "yes"
    assert [taint.key for taint in result.node.spec.taints] == ["dedicated"]
    assert result.node.status.allocatable == {"cpu": Quantity("4"), "nvidia.com/gpu": Quantity("2")}
    assert result.node.status.capacity == {"nvidia.com/gpu": Quantity("2")}


def test_a_taint_replaces_its_like() -> None:
    old = node("n1", taints=[{"key": "a", "value": "1", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}])
    new = {"key": "a", "value": "2", "effect": "NoSchedule"}
    result = group_template(group(fromNode="n1", taints=[new]), nodes=[old])
    assert [(taint.effect, taint.value) for taint in result.node.spec.taints] == [
        ("NoExecute", ""),
        ("NoSchedule", "2"),
    ]
    assert [taint.value for taint in old.spec.taints] == ["1", ""], "the node itself is untouched"


def test_without_a_model_there_is_no_template() -> None:
    with pytest.raises(InputError, match='node group g: fromNode: there is no node "n1"'):
        group_template(group(fromNode="n1"))
    with pytest.raises(InputError, match="node group g: no template, and no node"):
        group_template(group(nodeSelector={"pool": "z"}), nodes=[node("n1")])


def test_a_taint_on_top_leaves_others_of_its_key() -> None:
    """Whoever puts it there: the command line, or the loop of a scale-up."""
    example = node("n1")
    old = Taint(key="k", value="v", effect="NoExecute")
    example = replace(example, spec=replace(example.spec, taints=[old]))
    new = Taint(key="k", value="w", effect="NoSchedule")
    described = NodeGroup(id="a", max_size=1, template=NodeTemplate(node=example), taints=[new])
    (group,) = Groups.of([described], [])
    assert group.template is not None
    assert group.template.node.spec.taints == group_template(described).node.spec.taints == [old, new]
