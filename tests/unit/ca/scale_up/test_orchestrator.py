"""The orchestrator: upstream's table of whole scale-ups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from builders import N0, Ran, group_options, node, pod, run_steps, template
from kscale import ca
from kscale.ca.cluster_state import ClusterStateRegistry, update_nodes
from kscale.ca.expander.types import FilterResult
from kscale.ca.quota import Quota
from kscale.effects import CreatedGroups, CreateGroup, IncreaseSize, Steps
from kscale.objects.api.core import Node, Pod
from kscale.objects.nodegroup import Groups, NodeGroup
from kscale.snapshot.cluster import Cluster

_ATOMIC = group_options(zero_or_max_node_scaling=True)


def _first(group: str) -> dict[str, Any]:
    """An expander that takes one named option."""

    def choose(options: Sequence[ca.Option], expander_input: ca.ExpanderInput) -> FilterResult:
        return FilterResult(survivors=[option for option in options if option.group == group])

    return {"expanders": ["chosen"], "filters": {"chosen": choose}}


class World:
    """Groups given as {id: nodes}; the template of a group is a copy of its first node, or the one given."""

    def __init__(self, groups: dict[str, list[Node]], placed: Sequence[Pod] = (), **more: dict[str, Any]) -> None:
        self.nodes = [item for members in groups.values() for item in members]
        self.placed = list(placed)
        for item in self.nodes:
            item.api_version, item.kind = "v1", "Node"
        described = []
        for name, members in groups.items():
            fields = {"min_size": 1, "max_size": 10, "target_size": len(members), **more.get(name, {})}
            if "template" not in fields and members:
                fields["template"] = template(members[0])
            described.append(NodeGroup(id=name, nodes=[m.metadata.name for m in members], **fields))
        self.groups = Groups(described)

    def scale_up(self, pending: Sequence[Pod], answers: Sequence[Any] = (), **more: Any) -> Ran:
        return run_steps(self.steps(pending, **more), *answers)

    def steps(self, pending: Sequence[Pod], **more: Any) -> Steps[ca.OrchestratorResult]:
        """The machine; what is given besides the options are inputs of the orchestrator."""
        options = more.pop("options", ca.AutoscalingOptions(ok_total_unready_count=0))
        candidates = more.get("candidates", ())
        templates = {g.id: g.template for g in (*self.groups, *candidates) if g.template is not None}
        state = update_nodes(ClusterStateRegistry(), self.nodes, self.groups, now=N0, options=options).state
        ground = ca.ScaleUpContext(
            groups=self.groups,
            nodes=self.nodes,
            templates=templates,
            state=state,
            options=options,
            **more,
        )
        return ca.orchestrate_steps(Cluster([*self.nodes, *self.placed]).snapshot(), pending, ground, now=N0)


def _ready(name: str, cpu_m: int, memory: int) -> Node:
    return node(name, cpu_m, memory, ready=True)


def _on(name: str, cpu_m: int, memory: int, where: str) -> Pod:
    return pod(name, cpu_m, memory, spec={"node_name": where})


def _plan(done: Any) -> dict[str, int]:
    return {info.group: info.new for info in done.status.scale_ups}


def _keys(*names: str) -> list[str]:
    return [f"default/{name}" for name in names]


def _two() -> World:
    nodes = {"ng1": [_ready("n1", 100, 100)], "ng2": [_ready("n2", 1000, 1000)]}
    return World(nodes, [_on("p1", 80, 0, "n1"), _on("p2", 800, 0, "n2")])


def test_the_chosen_group_grows() -> None:
    actions, done = _two().scale_up([pod("p-new", 500, 0)], **_first("ng2"))
    assert actions == [IncreaseSize(group="ng2", delta=1)]
    assert _plan(done) == {"ng2": 2}
    assert done.status.pods_triggered == _keys("p-new")


def test_pods_are_reported_by_outcome() -> None:
    world = World(
        {"ng1": [_ready("n1", 100, 1000)], "ng2": [_ready("n2", 1000, 100)]},
        [_on("p1", 80, 1000, "n1"), _on("p2", 800, 100, "n2")],
    )
    pending = [pod("triggering", 900, 0), pod("remaining", 2000, 0), pod("awaiting", 0, 200)]
    _, done = world.scale_up(pending, **_first("ng2"))
    assert _plan(done) == {"ng2": 2}
    assert done.status.pods_triggered == _keys("triggering")
    assert [p.pod for p in done.status.pods_remain_unschedulable] == _keys("remaining")
    assert done.status.pods_await_evaluation == _keys("awaiting")


@pytest.mark.parametrize(
    ("limits", "pending", "expected"),
    [
        ({"cpu": 9}, [pod("a", 2000, 0), pod("b", 2000, 0)], {"ng1": 2}),
        ({"cpu": 6}, [pod("a", 2000, 0)], {}),
        ({"nodes": 3}, [pod("a", 2000, 0), pod("b", 2000, 0)], {"ng1": 2}),
    ],
)
def test_limits(limits: dict[str, int], pending: list[Pod], expected: dict[str, int]) -> None:
    world = World(
        {"ng1": [_ready("n1", 2000, 100)], "ng2": [_ready("n2", 4000, 1000)]},
        [_on("p1", 1000, 0, "n1"), _on("p2", 3000, 0, "n2")],
    )
    quotas = [Quota(id="cluster-wide", limits=limits)]
    _, done = world.scale_up(pending, quotas=quotas, **_first("ng1"))
    assert _plan(done) == expected
    if expected:
        assert done.status.pods_triggered == _keys(*(p.metadata.name for p in pending))
    else:
        assert done.status.result == "ScaleUpNoOptionsAvailable"
        (event,) = [e for e in ca.build_scale_up_events(done.status) if e.about == "Pod/default/a"]
        assert 'exceeded quota: "cluster-wide"' in event.message


def test_max_nodes_total() -> None:
    world = World({"ng1": [_ready("n1", 2000, 100)], "ng2": [_ready("n2", 4000, 1000)]})
    options = ca.AutoscalingOptions(max_nodes_total=3, ok_total_unready_count=0)
    pending = [pod(name, 4000, 100) for name in "abc"]
    _, done = world.scale_up(pending, options=options, **_first("ng2"))
    assert _plan(done) == {"ng2": 2}


def test_similar_groups_share() -> None:
    world = World(
        {"ng1": [_ready("n1", 1500, 100)], "ng2": [_ready("n2", 1500, 100)]},
        [_on("p1", 1400, 0, "n1"), _on("p2", 1400, 0, "n2")],
    )
    options = ca.AutoscalingOptions(balance_similar_node_groups=True, ok_total_unready_count=0)
    pending = [pod("a", 1400, 0), pod("b", 1400, 0)]
    _, done = world.scale_up(pending, options=options, **_first("ng1"))
    assert _plan(done) == {"ng1": 2, "ng2": 2}


def test_all_or_nothing() -> None:
    world = World({"ng": [_ready("n1", 1000, 100)]}, [_on("p", 1000, 0, "n1")])
    pending = [pod(f"p{i}", 1000, 0) for i in range(11)]
    _, done = world.scale_up(pending, all_or_nothing=True)
    assert done.status.result == "ScaleUpNoOptionsAvailable"
    # An estimate that stops short is dropped without a word: nothing says that the pods remain.
    assert done.status.pods_remain_unschedulable == []
    actions, done = world.scale_up(pending[:9], all_or_nothing=True)
    assert actions == [IncreaseSize(group="ng", delta=9, atomic=True)]
    assert _plan(done) == {"ng": 10}


@pytest.mark.parametrize(
    ("limits", "reason"),
    [({}, None), ({"cpu": 3}, 'exceeded quota: "cluster-wide", resources: cpu')],
)
def test_groups_that_grow_to_their_maximum_at_once(limits: dict[str, int], reason: str | None) -> None:
    world = World(
        {"ng1": [_ready("n1", 900, 900)], "ng2": []},
        ng2={
            "min_size": 0,
            "max_size": 5,
            "options": _ATOMIC,
            "template": template(_ready("t2", 1000, 1000)),
        },
    )
    _, done = world.scale_up([pod("p", 1000, 0)], quotas=[Quota(id="cluster-wide", limits=limits)])
    assert _plan(done) == ({"ng2": 5} if reason is None else {})
    if reason is not None:
        assert done.skipped["ng2"] == [reason]


@pytest.mark.parametrize(("most", "plan"), [(5, {}), (7, {})])
def test_all_or_nothing_is_all_that_the_option_asks_for(most: int, plan: dict[str, int]) -> None:
    """A group that grows to its maximum asks for that many nodes, whatever it has: fewer are not all."""
    world = World({"ng": [_ready("n1", 1000, 1000), _ready("n2", 1000, 1000)]}, ng={"max_size": 5, "options": _ATOMIC})
    full = [_on("f1", 1000, 0, "n1"), _on("f2", 1000, 0, "n2")]
    world.placed = full
    options = ca.AutoscalingOptions(max_nodes_total=most, ok_total_unready_count=0)
    _, done = world.scale_up([pod("p", 1000, 0)], options=options, all_or_nothing=True)
    assert done.options[0].node_count == 5
    assert (_plan(done), done.status.result) == (plan, "ScaleUpNoOptionsAvailable")
    _, done = world.scale_up([pod("p", 1000, 0)], options=options)
    assert _plan(done) == {"ng": 5}


def test_groups_that_are_not_healthy_are_skipped() -> None:
    world = World({"ng2": [_ready("n2", 1000, 100)]}, ng2={"target_size": 5})
    _, done = world.scale_up([pod("p", 900, 0)])
    assert done.status.result == "ScaleUpNoOptionsAvailable"
    assert done.skipped == {"ng2": ["not ready for scale-up"]}


def test_estimates_stop_after_the_requested_number() -> None:
    world = World({"ng1": [_ready("n1", 1000, 100)], "ng2": [_ready("n2", 1000, 100)]})
    assert len(world.scale_up([pod("p", 1000, 0)]).value.options) == 2
    assert len(world.scale_up([pod("p", 1000, 0)], stop_after_options=1).value.options) == 1


@pytest.mark.parametrize(("parallel", "targets", "remaining"), [(False, 1, 2), (True, 2, 0)])
def test_pods_bound_to_a_group_that_fails(parallel: bool, targets: int, remaining: int) -> None:
    nodes = {name: [node(f"n-{name}", 1000, 100, ready=True, labels={"pool": name})] for name in ("ng1", "ng2")}
    world = World(nodes, [_on(f"full-{name}", 1000, 0, f"n-{name}") for name in nodes])
    options = ca.AutoscalingOptions(
        balance_similar_node_groups=True, parallel_scale_up=parallel, ok_total_unready_count=0
    )
    pending = [pod(f"p{i}", 1000, 0) for i in range(2)]
    failed = ca.AutoscalerError("", "provider error")
    actions, done = world.scale_up(
        pending, [failed], options=options, comparator=ca.Comparator(ignored_labels=("pool",)), **_first("ng1")
    )
    assert len(actions) == targets
    assert done.status.error is not None
    assert done.status.error.type == "cloudProviderError"
    assert len(done.status.pods_remain_unschedulable) == remaining


def test_created_group_is_scaled_up() -> None:
    world = World({"ng1": [_ready("n1", 100, 100)]})
    machine = template(_ready("t1", 4000, 1000))
    candidate = NodeGroup(id="T1", max_size=1000, template=machine, exists=False, autoprovisioned=True)
    created_groups = CreatedGroups(main=NodeGroup(id="autoprovisioned-T1", max_size=1000, template=machine))
    pending = [pod("p1", 80, 0), pod("p2", 99_999, 0)]
    actions, done = world.scale_up(pending, [created_groups], candidates=[candidate], **_first("T1"))
    assert actions == [CreateGroup(group="T1"), IncreaseSize(group="autoprovisioned-T1", delta=1)]
    created = [each for each in done.observations if each.name == "cluster_autoscaler_created_node_groups_total"]
    assert [(each.value, each.labels) for each in created] == [(1, {"group_type": ""})]
    assert [item.main for item in done.status.created_groups] == ["autoprovisioned-T1"]
    (stays,) = done.status.pods_remain_unschedulable
    assert set(stays.rejected_groups) == {"ng1", "autoprovisioned-T1"}
    actions, done = world.scale_up(
        pending, [ca.AutoscalerError("cloudProviderError", "no")], candidates=[candidate], **_first("T1")
    )
    assert len(actions) == 1
    assert done.status.failed_creation_groups == ["T1"]


def test_pods_rejected_by_the_created_group_remain() -> None:
    """With others made beside it a group is asked again; pods that nobody takes then are not of those that failed."""
    world = World({"ng1": [_ready("n1", 100, 100)]})
    candidate = NodeGroup(id="T1", max_size=9, template=template(_ready("t1", 4000, 1000)), exists=False)
    small = template(_ready("t2", 1000, 1000))
    created = CreatedGroups(
        main=NodeGroup(id="m", max_size=9, template=small), extra=[NodeGroup(id="e", max_size=9, template=small)]
    )
    pending = [pod("wide", 3000, 0), pod("slim", 500, 0)]
    failed = ca.AutoscalerError("", "no")
    _, done = world.scale_up(pending, [created, failed], candidates=[candidate], **_first("T1"))
    assert (done.status.result, done.status.failed_resize_groups) == ("ScaleUpError", ["m"])
    assert [group.schedulable for group in done.pod_groups] == [True, True]
    assert done.status.pods_remain_unschedulable == []


def test_created_group_without_size_is_an_error() -> None:
    world = World({"ng1": [_ready("n1", 100, 100)]})
    candidate = NodeGroup(id="T1", max_size=9, template=template(_ready("t1", 4000, 1000)), exists=False)
    created = CreatedGroups(main=NodeGroup(id="m", max_size=9, target_size_error="who knows"))
    _, done = world.scale_up([pod("p", 3000, 0)], [created], candidates=[candidate], **_first("T1"))
    assert done.status.error.message == "failed to get node group size: who knows"
    assert [each.main for each in done.status.created_groups] == ["m"]


def test_a_dry_run_is_the_same_call() -> None:
    world = _two()
    state = update_nodes(ClusterStateRegistry(), world.nodes, world.groups, now=N0).state
    templates = {group.id: group.template for group in world.groups if group.template is not None}
    ground = ca.ScaleUpContext(groups=world.groups, nodes=world.nodes, templates=templates, state=state)
    result = [
        ca.orchestrate(Cluster([*world.nodes, *world.placed, pod("new", 900, 0)]).snapshot(), None, ground, now=N0)
        for _ in range(2)
    ]
    assert [_plan(done) for done in result] == [{"ng2": 2}] * 2
    assert result[0].status == result[1].status
