"""Further rows of upstream's table of whole scale-ups: quotas, devices, balance, failures, groups that are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from builders import group_options, node, pod, template
from kscale import ca
from kscale.ca.quota import Quota
from kscale.effects import CreatedGroups, CreateGroup, IncreaseSize
from kscale.objects.api.core import Node, Pod, Taint, Toleration
from kscale.objects.api.meta import LabelSelector, LabelSelectorRequirement
from kscale.objects.nodegroup import Groups, NodeGroup
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import compile_selector, from_label_map
from unit.ca.scale_up.test_orchestrator import World, _first, _keys, _on, _plan, _ready

_ATOMIC = group_options(zero_or_max_node_scaling=True)
_TWO_AND_THREE = compile_selector(
    LabelSelector(match_expressions=[LabelSelectorRequirement(key="ng", operator="In", values=["ng2", "ng3"])])
)
_POOL = ca.Comparator(ignored_labels=("ng",))


def _labelled(name: str, group: str, cpu_m: int, memory: int = 1000) -> Node:
    return node(name, cpu_m, memory, ready=True, labels={"ng": group})


def _only(group: str, **limits: int) -> Quota:
    return Quota(id=group, limits=limits, selector=from_label_map({"ng": group}))


def _options(**flags: Any) -> ca.AutoscalingOptions:
    return ca.AutoscalingOptions(ok_total_unready_count=0, **flags)


def _balanced(sizes: dict[str, tuple[int, int]], cpu_m: int = 100, used: int = 80) -> World:
    """Groups of (size, maximum) full nodes alike but for the label ``ng``."""
    nodes = {name: [_labelled(f"{name}-n{i}", name, cpu_m) for i in range(size)] for name, (size, _) in sizes.items()}
    placed = [_on(f"full-{n.name}", used, 0, n.name) for members in nodes.values() for n in members]
    return World(nodes, placed, **{name: {"max_size": most, "min_size": 0} for name, (_, most) in sizes.items()})


# -- quotas ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quotas", "options"),
    [
        ([Quota(id="global", limits={"cpu": 8}), _only("ng2", cpu=4)], {"ng1": 1, "ng2": 1}),
        ([Quota(id="global", limits={"cpu": 8}), _only("ng2", cpu=2)], {"ng1": 1}),
        ([_only("ng1", cpu=2), _only("ng2", cpu=2)], {}),
    ],
)
def test_quotas_of_some_nodes(quotas: list[Quota], options: dict[str, int]) -> None:
    world = World({name: [_labelled(f"n-{name}", name, 2000)] for name in ("ng1", "ng2")})
    world.placed = [_on(f"full-{name}", 2000, 0, f"n-{name}") for name in ("ng1", "ng2")]
    _, done = world.scale_up([pod("p1", 1000, 0)], quotas=quotas)
    assert {item.group: item.node_count for item in done.options} == options
    if not options:
        assert done.status.result == "ScaleUpNoOptionsAvailable"
        assert [item.pod for item in done.status.pods_remain_unschedulable] == _keys("p1")


def test_quota_caps_the_executed_size_not_the_estimate() -> None:
    world = World({"ng1": [_labelled("n1", "ng1", 2000)]})
    world.placed = [_on("full", 2000, 0, "n1")]
    pending = [pod(f"p{i}", 2000, 0) for i in range(3)]
    _, done = world.scale_up(pending, quotas=[_only("ng1", cpu=6)], **_first("ng1"))
    assert [item.node_count for item in done.options] == [3]
    assert _plan(done) == {"ng1": 3}
    assert sorted(done.status.pods_triggered) == _keys("p0", "p1", "p2")


@pytest.mark.parametrize(
    ("sizes", "quotas", "targets"),
    [
        (
            {"ng1": (1, 5), "ng2": (1, 5), "ng3": (1, 5)},
            [_only("ng2", cpu=2)],
            {"ng1": 3, "ng2": 2, "ng3": 3},
        ),
        (
            {"ng1": (1, 10), "ng2": (2, 10), "ng3": (2, 10)},
            [Quota(id="shared", limits={"nodes": 6})],
            {"ng1": 2, "ng2": 2, "ng3": 2},
        ),
        (
            {"ng1": (1, 10), "ng2": (1, 10), "ng3": (2, 10)},
            [Quota(id="two", limits={"nodes": 4}, selector=_TWO_AND_THREE)],
            {"ng1": 4, "ng2": 2, "ng3": 2},
        ),
        (
            {"ng1": (1, 5), "ng2": (1, 5), "ng3": (1, 5)},
            [_only("ng2", cpu=1)],
            {"ng1": 4, "ng2": 1, "ng3": 4},
        ),
    ],
)
def test_balance_within_quotas(sizes: dict[str, tuple[int, int]], quotas: list[Quota], targets: dict[str, int]) -> None:
    world = _balanced(sizes)
    options = _options(balance_similar_node_groups=True)
    pending = [pod(f"p{i}", 80, 0) for i in range(6)]
    _, done = world.scale_up(pending, options=options, quotas=quotas, comparator=_POOL, **_first("ng1"))
    assert {name: size for name, (size, _) in sizes.items()} | _plan(done) == targets


@pytest.mark.parametrize("drops_similar", [False, True])
def test_balancing_ignores_similar_groups_of_the_expander(drops_similar: bool) -> None:
    world = _balanced({"ng1": (1, 1), "ng2": (1, 2), "ng3": (1, 5), "ng4": (3, 5)})

    def choose(options: Sequence[ca.Option], expander_input: ca.ExpanderInput) -> Any:
        result = [option for option in options if option.group == "ng2"]
        from kscale.ca.expander.types import FilterResult

        return FilterResult(survivors=[replace(item, similar=[]) if drops_similar else item for item in result])

    _, done = world.scale_up(
        [pod(f"p{i}", 80, 0) for i in range(2)],
        options=_options(balance_similar_node_groups=True),
        comparator=_POOL,
        expanders=["mine"],
        filters={"mine": choose},
    )
    assert _plan(done) == {"ng2": 2, "ng3": 2}


# -- groups from zero to their maximum ---------------------------------------------------------------------------------


def _atomic_world(maxima: dict[str, int]) -> World:
    empty: dict[str, list[Node]] = {name: [] for name in maxima}
    more = {
        name: {
            "min_size": 0,
            "max_size": most,
            "options": _ATOMIC,
            "template": template(_ready(f"t-{name}", 1000, 1000)),
        }
        for name, most in maxima.items()
    }
    return World({"ng1": [_ready("n1", 900, 900)], **empty}, [_on("full", 900, 0, "n1")], **more)


def test_a_group_goes_to_its_maximum_and_shares_with_none() -> None:
    world = _atomic_world({"ng2": 5, "ng3": 4})
    options = _options(balance_similar_node_groups=True)
    _, done = world.scale_up([pod(f"p{i}", 1000, 0) for i in range(4)], options=options, **_first("ng3"))
    assert _plan(done) == {"ng3": 4}


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"cpu": 3}, 'exceeded quota: "cluster-wide", resources: cpu'),
        ({"memory": 3000}, 'exceeded quota: "cluster-wide", resources: memory'),
    ],
)
def test_the_maximum_must_fit_the_limits(limits: dict[str, int], reason: str) -> None:
    world = _atomic_world({"ng2": 3})
    _, done = world.scale_up([pod("p", 1000, 0)], quotas=[Quota(id="cluster-wide", limits=limits)])
    assert done.status.result == "ScaleUpNoOptionsAvailable"
    assert done.skipped["ng2"] == [reason]


def test_the_maximum_must_fit_the_cluster() -> None:
    world = _atomic_world({"ng2": 5})
    _, done = world.scale_up([pod("p", 1000, 0)], options=_options(max_nodes_total=5))
    assert done.skipped["ng2"] == ["atomic scale-up exceeds cluster node count limit"]


def test_mixed_pods_for_a_group_that_goes_to_its_maximum() -> None:
    world = _atomic_world({"ng3": 5})
    world.groups = Groups(
        [
            NodeGroup(
                id="ng1",
                min_size=0,
                max_size=10,
                nodes=["n1"],
                target_size=1,
                template=template(_ready("t1", 500, 2000)),
            ),
            *(group for group in world.groups if group.id == "ng3"),
        ]
    )
    pending = [pod("triggering", 1000, 1000), pod("remaining", 2000, 2000), pod("awaiting", 100, 1800)]
    _, done = world.scale_up(pending, **_first("ng3"))
    assert _plan(done) == {"ng3": 5}
    assert done.status.pods_triggered == _keys("triggering")
    assert [item.pod for item in done.status.pods_remain_unschedulable] == _keys("remaining")
    assert done.status.pods_await_evaluation == _keys("awaiting")


# -- devices -----------------------------------------------------------------------------------------------------------

_GPU = "nvidia.com/gpu"


def _gpu_node(name: str, gpus: int) -> Node:
    created = node(name, 4000, 4000, ready=True)
    amounts = {**(created.status.allocatable or {}), _GPU: Quantity(str(gpus))}
    tainted = replace(created.spec, taints=[Taint(key=_GPU, value="present", effect="NoSchedule")])
    return replace(created, spec=tainted, status=replace(created.status, capacity=amounts, allocatable=amounts))


def _tolerant(name: str, gpus: int = 0) -> Pod:
    created = pod(name, 1, 1, spec={"tolerations": [Toleration(key=_GPU, operator="Exists")]})
    if gpus:
        (container,) = created.spec.containers
        requests = {**(container.resources.requests or {}), _GPU: Quantity(str(gpus))}
        container = replace(container, resources=replace(container.resources, requests=requests))
        created = replace(created, spec=replace(created.spec, containers=[container]))
    return created


def test_pools_of_devices() -> None:
    pools = {f"gpu-{n}": [_gpu_node(f"gpu-node-{n}", n)] for n in (1, 2, 4)}
    world = World({**pools, "std": [_ready("std-node", 4000, 4000)]})
    world.placed = [
        replace(_tolerant(f"full-{n}", n), spec=replace(_tolerant(f"full-{n}", n).spec, node_name=f"gpu-node-{n}"))
        for n in (1, 2, 4)
    ]
    _, done = world.scale_up([_tolerant(f"p{i}", 1) for i in range(3)])
    assert {item.group: item.node_count for item in done.options} == {"gpu-1": 3, "gpu-2": 2, "gpu-4": 1}


def test_a_plain_pod_that_tolerates_devices_may_go_anywhere() -> None:
    world = World({"gpu-pool": [_gpu_node("gpu-node", 1)], "std-pool": [_ready("std-node", 2000, 1000)]})
    _, done = world.scale_up([_tolerant("p")])
    assert {item.group: item.node_count for item in done.options} == {"gpu-pool": 1, "std-pool": 1}


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parallel", "failures", "action_count", "remain", "message"),
    [
        (False, 2, 1, 2, ""),
        (True, 2, 2, 2, "...and other errors"),
        (False, 1, 1, 2, ""),
        (True, 1, 2, 0, ""),
    ],
)
def test_a_provider_that_fails(parallel: bool, failures: int, action_count: int, remain: int, message: str) -> None:
    world = World(
        {name: [_ready(f"n-{name}", 1500, 100)] for name in ("ng1", "ng2")},
        [_on(f"full-{name}", 1400, 0, f"n-{name}") for name in ("ng1", "ng2")],
        ng1={"max_size": 2},
        ng2={"max_size": 2},
    )
    options = _options(balance_similar_node_groups=True, parallel_scale_up=parallel)
    answers = [ca.AutoscalerError("", f"provider error for {i}") for i in range(failures)]
    actions, done = world.scale_up([pod("a", 1400, 0), pod("b", 1400, 0)], answers, options=options, **_first("ng1"))
    assert len(actions) == action_count
    assert done.status.result == "ScaleUpError"
    assert done.status.error.type == "cloudProviderError"
    assert message in done.status.error.message
    assert len(done.status.pods_remain_unschedulable) == remain


def test_an_error_keeps_its_type() -> None:
    world = World({"ng1": [_ready("n1", 1500, 100)]}, [_on("full", 1400, 0, "n1")])
    _, done = world.scale_up([pod("p", 1400, 0)], [ca.AutoscalerError("authError", "auth error")])
    assert (done.status.error.type, done.status.error.message) == (
        "authError",
        "failed to increase node group size: auth error",
    )


# -- groups that are made ----------------------------------------------------------------------------------------------


def _candidate(**fields: Any) -> NodeGroup:
    machine = template(_ready("t1", 100, 1000))
    return NodeGroup(id="T1", max_size=1000, template=machine, exists=False, autoprovisioned=True, **fields)


def _created_group(name: str, **fields: Any) -> NodeGroup:
    return NodeGroup(id=name, max_size=1000, template=template(_ready("t1", 100, 1000)), autoprovisioned=True, **fields)


def test_created_group_shares_nodes_with_additional_groups() -> None:
    world = World({"ng1": [_ready("n1", 10, 10)]})
    created = CreatedGroups(main=_created_group("made"), extra=(_created_group("made-1"), _created_group("made-2")))
    pending = [*(pod(f"p{i}", 80, 0) for i in range(3)), pod("big", 99_999, 0)]
    actions, done = world.scale_up(
        pending,
        [created],
        candidates=[_candidate()],
        options=_options(balance_similar_node_groups=True),
        **_first("T1"),
    )
    assert actions[0] == CreateGroup(group="T1")
    assert _plan(done) == {"made": 1, "made-1": 1, "made-2": 1}
    assert {group.id for group in done.status.considered_groups} >= {"made", "made-1", "made-2"}


def test_upcoming_group_is_not_created_again() -> None:
    world = World({"ng1": [_ready("n1", 10, 10)]})
    coming = replace(_candidate(), id="coming", upcoming=True)
    world.groups = Groups([*world.groups, coming])
    options = _options(async_node_groups=True)
    actions, done = world.scale_up([pod(f"p{i}", 80, 0) for i in range(2)], options=options, **_first("coming"))
    assert actions == [IncreaseSize(group="coming", delta=2)]
    assert _plan(done) == {"coming": 2}


# -- what is said ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("simulated", [False, True])
def test_reasons_of_skipped_groups_are_recorded(simulated: bool) -> None:
    world = World(
        {name: [_ready(f"n-{name}", cpu, 1000)] for name, cpu in (("ng1", 2000), ("ng2", 1000), ("ng3", 1000))},
        ng1={"max_size": 1},
        ng2={"max_size": 2},
        ng3={"max_size": 1},
    )
    options = _options(scaleup_simulation_for_skipped_node_groups_enabled=simulated)
    _, done = world.scale_up([pod("p1", 1500, 0), pod("p2", 3000, 0)], options=options)
    timed = [each.labels.get("function") for each in done.observations]
    assert timed.count("scaleUp:skippedNodeGroupsSimulation") == simulated
    reasons = {
        item.pod: (set(item.rejected_groups), set(item.skipped_groups))
        for item in done.status.pods_remain_unschedulable
    }
    if simulated:
        assert reasons["default/p1"] == ({"ng2", "ng3"}, {"ng1"})
        assert reasons["default/p2"] == ({"ng1", "ng2", "ng3"}, set())
    else:
        assert reasons["default/p1"] == reasons["default/p2"] == ({"ng2"}, {"ng1", "ng3"})
    _, done = world.scale_up([pod("p1", 1500, 0), pod("p2", 3000, 0), pod("p3", 500, 0)], options=options)
    assert done.status.result == "ScaleUpSuccessful"
    again = {
        item.pod: (set(item.rejected_groups), set(item.skipped_groups))
        for item in done.status.pods_remain_unschedulable
    }
    assert again == reasons
    assert done.status.pods_await_evaluation == []
