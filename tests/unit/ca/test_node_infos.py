"""Which template a node group gets, and groups as the user describes them: upstream's tables."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from builders import N0, at, node, span
from kscale import ca
from kscale.ca.node_infos import CachedTemplate, TemplateCache, build_node_templates, build_provider_template
from kscale.ca.templates import TaintConfig
from kscale.errors import InputError
from kscale.objects.api.core import Node, Taint
from kscale.objects.api.meta import Condition
from kscale.objects.nodegroup import Groups, NodeGroup, NodeGroupOptions, NodeTemplate
from kscale.objects.quantity import Quantity


def test_provider_without_template() -> None:
    with pytest.raises(ca.AutoscalerError) as failed:
        build_provider_template(NodeGroup(id="ng", template_error="down"), [], suffix="7", taints=TaintConfig())
    text = 'failed to obtain template NodeInfo from node group "ng": down'
    assert failed.value == ca.AutoscalerError("cloudProviderError", text)


# -- which template a group gets -------------------------------------------------------------------------------


def _state(name: str, *, ready: bool = True, since: float = -2, **changes: Any) -> Node:
    created = node(name, 1000, 1)
    status = "True" if ready else "False"
    created.status.conditions = [Condition(type="Ready", status=status, last_transition_time=at(minutes=since))]
    for field, value in changes.items():
        setattr(created.spec, field, value)
    return created


_DOOMED = [Taint(key="ToBeDeletedByClusterAutoscaler", effect="NoSchedule")]
_OFFERED = NodeTemplate(node=node("offered", 5000, 1))


@pytest.mark.parametrize(
    ("nodes", "offered", "cached_s", "expected", "cached_after"),
    [
        ([_state("good")], False, None, "good", True),
        ([], True, None, "offered", False),
        ([_state("bad", ready=False)], False, None, "bad", False),
        ([_state("bad", ready=False), _state("good")], False, None, "good", True),
        ([_state("good")], True, None, "good", True),
        ([_state("bad", ready=False)], True, None, "offered", False),
        ([_state("doomed", taints=_DOOMED)], True, None, "offered", False),
        ([_state("cordoned", unschedulable=True)], True, None, "offered", False),
        ([_state("young", since=-1)], True, None, "offered", False),
        ([], False, 30, "cached", True),
        ([], False, 120, None, False),
        ([_state("good")], False, 30, "good", True),
        ([_state("bad", ready=False)], True, 30, "cached", True),
    ],
)
def test_mixed_provider(
    nodes: list[Node], offered: bool, cached_s: int | None, expected: str | None, cached_after: bool
) -> None:
    group = NodeGroup(id="ng", nodes=[n.metadata.name for n in nodes], template=_OFFERED if offered else None)
    cache = {}
    if cached_s is not None:
        cached = NodeTemplate(node=node("cached", 3000, 1))
        cache["ng"] = CachedTemplate(template=cached, added=N0 - span(seconds=cached_s))
    built = build_node_templates(
        nodes,
        lambda built: [NodeTemplate(node=n) for n in built],
        [],
        Groups([group]),
        now=N0,
        cache=cache,
        options=ca.AutoscalingOptions(node_info_cache_expire_time=timedelta(minutes=1)),
    )
    provider_ids = {name: template.node.spec.provider_id for name, template in built.templates.items()}
    assert provider_ids == ({} if expected is None else {"ng": expected})
    assert ("ng" in built.cache) is cached_after
    if cached_after and expected == "good":
        assert built.cache["ng"].added == N0


def test_mixed_provider_errors() -> None:
    groups = Groups([NodeGroup(id="ng", nodes=["n"])], {"n": "down"})
    built = build_node_templates([_state("n")], lambda built: [NodeTemplate(node=n) for n in built], [], groups, now=N0)
    assert built.templates == {}
    assert built.warnings == ["Failed to get node group for node n: down"] * 1
    with pytest.raises(ca.AutoscalerError, match="error while retrieving node n from cluster snapshot"):
        build_node_templates(
            [_state("n")], lambda built: [None] * len(built), [], Groups([NodeGroup(id="ng", nodes=["n"])]), now=N0
        )


def _with_resources(name: str, **more: str) -> NodeTemplate:
    created = node(name, 1000, 1)
    for amounts in (created.status.capacity, created.status.allocatable):
        assert amounts is not None
        amounts |= {key: Quantity(text) for key, text in more.items()}
    return NodeTemplate(node=created)


def test_resources_that_only_the_provider_has_are_added_to_templates_from_nodes() -> None:
    offered = _with_resources("offered", cpu="9", disk="3")
    example = _with_resources("good", ram="7")
    groups = Groups([NodeGroup(id="ng", nodes=["good"], template=offered)])
    stored, completed, daemonsets = TemplateCache(), TemplateCache(), list[Any]()

    def build(**more: Any) -> NodeTemplate:
        return build_node_templates(
            [_state("good")],
            lambda nodes_: [example] * len(nodes_),
            daemonsets,
            groups,
            now=N0,
            example_cache=stored,
            **more,
        ).templates["ng"]

    assert "disk" not in (build().node.status.capacity or {})
    template = build(completed=completed)
    for amounts in (template.node.status.capacity, template.node.status.allocatable):
        assert amounts is not None
        assert {name: str(amounts[name]) for name in ("cpu", "disk", "ram")} == {"cpu": "1", "disk": "3", "ram": "7"}
    assert build(completed=completed) is template  # later loops compare templates by identity
    assert "disk" not in (example.node.status.capacity or {})


def test_cache_drops_deleted_groups() -> None:
    cache = {"old": CachedTemplate(template=_OFFERED, added=N0)}
    assert build_node_templates([], lambda nodes_: [None] * len(nodes_), [], Groups(), now=N0, cache=cache).cache == {}


# -- groups as the user describes them -------------------------------------------------------------------------


def test_groups_of() -> None:
    nodes = [node("a1", 1, 1, labels={"pool": "a"}), node("a2", 1, 1, labels={"pool": "a"}), node("b1", 1, 1)]
    described = [
        NodeGroup(id="a", min_size=1, max_size=5, node_selector={"pool": "a"}),
        NodeGroup(
            id="b",
            nodes=["b1"],
            target_size=3,
            unregistered_instances=["b2"],
            from_node="b1",
            labels={"x": "y"},
            taints=[Taint(key="t", effect="NoSchedule")],
            options=NodeGroupOptions(scale_down_unneeded_time=60),
        ),
    ]
    defaults = ca.AutoscalingOptions().node_group_defaults
    groups = Groups.of(described, nodes)
    assert (groups["a"].nodes, groups["a"].target_size, groups["a"].template) == (["a1", "a2"], 2, None)
    second = groups["b"]
    assert (second.target_size, second.instances) == (3, ["b1", "b2"])
    assert second.node_template.node.metadata.labels == {"x": "y"}
    assert [taint.key for taint in second.node_template.node.spec.taints] == ["t"]
    assert second.options_or(defaults).scale_down_unneeded_time == timedelta(minutes=1)
    assert second.options_or(defaults).scale_down_unready_time == timedelta(minutes=20)
    assert groups.find_group_of_node("a2") is groups["a"]
    assert groups.find_group_of_node("zz") is None


def test_groups_that_cannot_be() -> None:
    wrong = [
        NodeGroup(id="a", min_size=3, max_size=1),
        NodeGroup(id="b"),
        NodeGroup(id="b"),
        NodeGroup(id="c", from_node="nowhere"),
    ]
    with pytest.raises(InputError) as refused:
        Groups.of(wrong, [])
    assert [str(problem) for problem in refused.value.problems] == [
        "NodeGroup a: minSize: minSize 3 and maxSize 1 exclude each other",
        "NodeGroup b: id: two groups have this id",
        "NodeGroup c: fromNode: there is no node nowhere",
    ]
