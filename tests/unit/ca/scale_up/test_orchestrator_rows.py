"""Further rows of upstream's table of whole scale-ups: limits, time, failures, groups made in the background."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from builders import N0, node, pod, span, template
from kscale import ca
from kscale.ca.loop_state import AsyncInitializer
from kscale.ca.quota import Quota
from kscale.ca.scale_up.expansion import GroupSchedulability, PodGroups
from kscale.effects import CreatedGroups, CreateGroup, IncreaseSize, Outcome, Wait, duration
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import NodeGroup
from kscale.scheduling.status import Verdict
from unit.ca.scale_up.test_orchestrator import World, _first, _keys, _on, _plan, _ready

_MIB = 1 << 20


def _options(**flags: Any) -> ca.AutoscalingOptions:
    return ca.AutoscalingOptions(ok_total_unready_count=0, **flags)


# -- limits of the whole cluster ---------------------------------------------------------------------------------------


def _two(first: Node, second: Node, grouped: bool, used: tuple[int, int]) -> World:
    """Two nodes, the second in a group of its own or in none."""
    world = World({"ng1": [first], "ng2": [second]} if grouped else {"ng1": [first]})
    if not grouped:
        second.api_version, second.kind = "v1", "Node"
        world.nodes.append(second)
    world.placed = [_on("p1", used[0], 0, first.name), _on("p2", used[1], 0, second.name)]
    return world


@pytest.mark.parametrize("grouped", [True, False])
def test_max_cores(grouped: bool) -> None:
    world = _two(_ready("n1", 2000, 100 * _MIB), _ready("n2", 4000, 1000 * _MIB), grouped, (1000, 3000))
    pending = [pod(name, 2000, 0) for name in "ab"]
    quotas = [Quota(id="cluster-wide", limits={"cpu": 9})]
    _, done = world.scale_up(pending, quotas=quotas, **_first("ng1"))
    assert _plan(done) == {"ng1": 2}
    assert sorted(done.status.pods_triggered) == _keys("a", "b")


@pytest.mark.parametrize("grouped", [True, False])
def test_max_memory(grouped: bool) -> None:
    world = _two(_ready("n1", 2000, 100 * _MIB), _ready("n2", 4000, 1000 * _MIB), grouped, (1000, 3000))
    pending = [pod(name, 2000, 100 * _MIB) for name in "abc"]
    quotas = [Quota(id="cluster-wide", limits={"memory": 1300 * _MIB})]
    _, done = world.scale_up(pending, quotas=quotas, **_first("ng1"))
    assert [option.node_count for option in done.options if option.group == "ng1"] == [3]
    assert _plan(done) == {"ng1": 3}
    assert sorted(done.status.pods_triggered) == _keys("a", "b", "c")


@pytest.mark.parametrize("which", ["ng1", "ng2"])
def test_max_nodes(which: str) -> None:
    """Two nodes of three are there, one of them perhaps of no group."""
    machines = {"ng1": _ready("n1", 2000, 100 * _MIB), "ng2": _ready("n2", 4000, 1000 * _MIB)}
    world = World({"ng2": [machines["ng2"]]} if which == "ng2" else {name: [m] for name, m in machines.items()})
    if which == "ng2":
        machines["ng1"].api_version, machines["ng1"].kind = "v1", "Node"
        world.nodes.append(machines["ng1"])
    pending = [pod(name, 4000, 100 * _MIB) for name in "abc"]
    _, done = world.scale_up(pending, options=_options(max_nodes_total=3), **_first("ng2"))
    assert _plan(done) == {"ng2": 2}


@pytest.mark.parametrize("limits", [{"cpu": 7}, {"memory": 1150 * _MIB}])
def test_limits_that_allow_nothing(limits: dict[str, int]) -> None:
    world = World(
        {"ng1": [_ready("n1", 2000, 100 * _MIB)], "ng2": [_ready("n2", 4000, 1000 * _MIB)]},
        [_on("p1", 2000, 0, "n1"), _on("p2", 4000, 0, "n2")],
    )
    quotas = [Quota(id="cluster-wide", limits=limits)]
    _, done = world.scale_up([pod("a", 2000, 100 * _MIB), pod("b", 2000, 0)], quotas=quotas)
    assert done.status.result == "ScaleUpNoOptionsAvailable"
    messages = [event.message for event in ca.build_scale_up_events(done.status)]
    assert len(messages) == 2
    assert all('exceeded quota: "cluster-wide"' in message for message in messages)


def test_reasons_of_missing_groups_are_not_reported() -> None:
    world = World({"ng-small": [_ready("n1", 2000, 100)]})
    large = NodeGroup(id="large", max_size=9, template=template(_ready("t", 8000, 100)), exists=False)
    quotas = [Quota(id="cluster-wide", limits={"cpu": 7})]
    _, done = world.scale_up([pod("p", 8000, 0)], quotas=quotas, candidates=[large])
    assert done.status.result == "ScaleUpNoOptionsAvailable"
    assert done.skipped == {"large": ['exceeded quota: "cluster-wide", resources: cpu']}
    (event,) = ca.build_scale_up_events(done.status)
    assert event.message == "pod didn't trigger scale-up: 1 Insufficient cpu"


# -- time --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "took", "stopped"),
    [
        (timedelta(seconds=10), timedelta(seconds=5), False),
        (timedelta(seconds=10), timedelta(seconds=10), False),
        (timedelta(seconds=10), timedelta(seconds=15), True),
        (timedelta(), timedelta(milliseconds=1), True),
        (timedelta(), timedelta(), False),
    ],
)
def test_time_for_estimates(most: timedelta, took: timedelta, stopped: bool) -> None:
    world = World({name: [_ready(f"n-{name}", 1000, 100)] for name in ("ng1", "ng2")})
    steps = world.steps([pod("p", 1000, 0)], options=_options(max_binpacking_time=most))
    late = iter([span(minutes=7), *[span(minutes=7) + duration(took)] * 2])
    action = next(steps)
    try:
        while True:  # what is worked out between two looks at the clock takes its time
            action = steps.send(Outcome(at=N0 + next(late) if isinstance(action, Wait) else N0))
    except StopIteration as stop:
        done = stop.value
    assert [option.group for option in done.options] == (["ng1"] if stopped else ["ng1", "ng2"])


def test_no_time_for_one_estimate_allows_no_node() -> None:
    world = World({"ng1": [_ready("n1", 1000, 100)]}, [_on("full", 1000, 0, "n1")])
    options = _options(max_nodegroup_binpacking_duration=timedelta(seconds=-1))
    _, done = world.scale_up([pod("p", 1000, 0)], options=options)
    assert done.status.result == "ScaleUpNoOptionsAvailable"


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallel", [False, True])
def test_only_pods_that_had_no_other_group_remain(parallel: bool) -> None:
    """Pods that fit both groups, and pods bound to the one whose turn fails."""
    nodes = {name: [node(f"n-{name}", 1000, 100, ready=True, labels={"pool": name})] for name in ("ng1", "ng2")}
    world = World(nodes, [_on(f"full-{name}", 1000, 0, f"n-{name}") for name in nodes])
    bound = {name: pod(f"only-{name}", 1000, 0, spec={"node_selector": {"pool": name}}) for name in nodes}
    pending = [*(pod(f"any{i}", 1000, 0) for i in range(4)), bound["ng2"]]

    options = _options(balance_similar_node_groups=True, parallel_scale_up=parallel)
    actions, done = world.scale_up(
        pending, [None, ca.AutoscalerError("", "no capacity")],
        options=options, comparator=ca.Comparator(ignored_labels=("pool",)), **_first("ng1"),
    )  # fmt: skip
    assert [action.group for action in actions] == ["ng1", "ng2"]
    assert done.status.result == "ScaleUpError"
    assert done.status.failed_resize_groups == ["ng2"]
    assert [item.pod for item in done.status.pods_remain_unschedulable] == _keys("only-ng2")
    (unplaced,) = done.status.pods_remain_unschedulable
    assert unplaced.rejected_groups["ng2"] == ["scale-up execution failed"]
    assert {group.id: group.target_size for group in done.groups} == {"ng1": 3, "ng2": 1}


def _pod_groups(**taken_by: list[int]) -> PodGroups:
    """Three equivalence groups and which of them each node group takes."""
    groups = PodGroups(np.arange(3, dtype=np.int32), lambda number: [f"default/p{number}"])
    for name, numbers in taken_by.items():
        fits = np.isin(np.arange(3), numbers)
        groups.judge(
            name, GroupSchedulability(fits, groups.exemplar_of, lambda exemplars: dict.fromkeys(exemplars, _NO))
        )
    return groups


_NO = Verdict(pod="p", ok=False, node="n", plugin="NodeResourcesFit", reasons=("Insufficient cpu",))


def test_failed_groups_are_marked() -> None:
    groups = _pod_groups(ng1=[0, 2], ng2=[1, 2])
    groups.fail({"ng2"}, "failed")
    assert [item.schedulable for item in groups] == [True, False, True]
    assert [item.errors.get("ng2") for item in groups] == [["Insufficient cpu"], ["failed"], ["failed"]]
    assert [item.errors.get("ng1") for item in groups] == [None, ["Insufficient cpu"], None]


def test_blank_copy_has_no_results() -> None:
    groups = _pod_groups(ng1=[0])
    copy = groups.copy_without_results()
    groups.fail({"ng1"}, "failed")
    assert [(item.schedulable, item.schedulable_groups, item.errors) for item in copy] == [(False, [], {})] * 3
    assert [item.pods for item in copy] == [item.pods for item in groups]


# -- groups that are made in the background ----------------------------------------------------------------------------


def test_async_group_creation_is_started() -> None:
    world = World({"ng1": [_ready("n1", 10, 10)]})
    machine = template(_ready("t1", 100, 1000))
    candidate = NodeGroup(id="T1", max_size=1000, template=machine, exists=False, autoprovisioned=True)
    main, extra = (
        NodeGroup(id=name, max_size=1000, template=machine, exists=False, upcoming=True, autoprovisioned=True)
        for name in ("autoprovisioned-T1", "autoprovisioned-T1-1")
    )
    ran = world.scale_up(
        [pod("p", 80, 0)],
        [CreatedGroups(main=main, extra=(extra,))],
        candidates=[candidate],
        options=_options(async_node_groups=True),
        **_first("T1"),
    )
    done = ran.value
    both = ["autoprovisioned-T1", "autoprovisioned-T1-1"]
    later = AsyncInitializer(groups=both, pods=["default/p"], target_sizes={"autoprovisioned-T1": 1})
    assert done.initializers == {"autoprovisioned-T1": later}
    assert ran.actions == [
        CreateGroup(group="T1", asynchronous=True),
        IncreaseSize(group="autoprovisioned-T1", delta=1),
    ]
    assert {group.id for group in done.status.considered_groups} >= {"autoprovisioned-T1", "autoprovisioned-T1-1"}
    assert done.state.scale_up_requests == {}
    assert [event.message for event in ran.events] == [
        "Scale-up: setting group autoprovisioned-T1 size to 1 instead of 0 (max: 1000)"
    ]


def test_a_dry_run_begins_to_make_groups_too() -> None:
    world = World({"ng1": [_ready("n1", 10, 10)]})
    machine = template(_ready("t1", 100, 1000))
    candidate = NodeGroup(id="T1", max_size=1000, template=machine, exists=False)
    _, done = world.scale_up([pod("p", 80, 0)], candidates=[candidate], options=_options(async_node_groups=True))
    created = done.groups["T1"]
    assert (created.exists, created.upcoming, created.target_size) == (False, True, 1)


# -- similar groups ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("balanced", "second", "similar"),
    [
        (False, {}, []),
        (True, {}, ["ng2"]),
        (True, {"pool": "other"}, []),
    ],
)
def test_groups_that_may_share(balanced: bool, second: dict[str, str], similar: list[str]) -> None:
    """One kind of pod wants a label that the second group has or lacks; another kind fits the second group alone."""
    nodes = {
        "ng1": [node("n1", 1000, 100, ready=True, labels={"pool": "mine", "ng": "1"})],
        "ng2": [node("n2", 1000, 100, ready=True, labels={"pool": "mine", "ng": "2", **second})],
    }
    world = World(nodes, [_on(f"full-{i}", 1000, 0, f"n{i}") for i in (1, 2)])
    pending = [
        pod("any", 900, 0),
        pod("bound", 900, 0, spec={"node_selector": {"pool": "mine"}}),
        pod("only", 900, 0, spec={"node_selector": {"ng": "2"}}),
    ]
    options = _options(balance_similar_node_groups=balanced)
    _, done = world.scale_up(
        pending, options=options, comparator=ca.Comparator(ignored_labels=("pool", "ng")), **_first("ng1")
    )
    assert {option.group: option.similar for option in done.options}["ng1"] == similar


def test_a_group_that_takes_no_pod_shares_with_none() -> None:
    world = World({name: [_ready(f"n-{name}", 1000, 100)] for name in ("ng1", "ng2")})
    _, done = world.scale_up([pod("p", 9000, 0)], options=_options(balance_similar_node_groups=True))
    assert done.options == []
    assert done.status.result == "ScaleUpNoOptionsAvailable"
