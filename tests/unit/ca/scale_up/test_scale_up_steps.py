"""Which groups are asked, how a plan is divided and carried out, and what is said about it."""

from __future__ import annotations

from typing import Any

import pytest

from builders import N0, Ran, group_options, node, run_steps
from kscale import ca
from kscale.ca.cluster_state import ClusterStateRegistry, register_failed_scale_up, update_nodes
from kscale.ca.cluster_state.state import ScaleUpError
from kscale.ca.errors import ErrorRecord
from kscale.ca.node_group_set import balance_scale_ups, filter_valid_scale_up_groups
from kscale.ca.quota import Quota, QuotaTracker
from kscale.ca.scale_up.executor import execute_scale_ups_steps
from kscale.ca.scale_up.orchestrator import MinSizeScaleUpResult, scale_up_to_min_size_steps
from kscale.ca.scale_up_status import ConsideredGroup, NoScaleUpInfo, ScaleUpStatus, build_scale_up_events
from kscale.effects import IncreaseSize, Progress
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import Groups, NodeGroup

_OPTIONS = ca.AutoscalingOptions()


def _group(name: str, target: int, max_size: int = 10, **more: Any) -> NodeGroup:
    return NodeGroup(id=name, target_size=target, max_size=max_size, **more)


def _templates(*names: str, cpu_m: int = 1000) -> dict[str, Node]:
    return {name: node(f"template-{name}", cpu_m, 10) for name in names}


def _tracker(**limits: int) -> QuotaTracker:
    return QuotaTracker.maximum([Quota(id="cluster-wide", limits=limits)], [], Groups())


def _state(*groups: NodeGroup) -> ClusterStateRegistry:
    return update_nodes(ClusterStateRegistry(), [], Groups(groups), now=N0, options=_OPTIONS).state


# -- which groups are asked ------------------------------------------------------------------------------------

_ATOMIC = group_options(zero_or_max_node_scaling=True)


@pytest.mark.parametrize(
    ("group", "limits", "options", "reason"),
    [
        (_group("g", 0), {}, {}, None),
        (_group("g", 10), {}, {}, "max node group size reached"),
        (_group("g", 11), {}, {}, "max node group size reached"),
        (_group("g", 0, target_size_error="down"), {}, {}, "not ready for scale-up"),
        (_group("g", 0), {"cpu": 0}, {}, 'exceeded quota: "cluster-wide", resources: cpu'),
        (_group("g", 5, options=_ATOMIC), {"cpu": 4}, {}, 'exceeded quota: "cluster-wide", resources: cpu'),
        (_group("g", 5, options=_ATOMIC), {"cpu": 5}, {}, None),
        (
            _group("g", 5, options=_ATOMIC),
            {},
            {"max_nodes_total": 6},
            "atomic scale-up exceeds cluster node count limit",
        ),
        (_group("g", 5, options=_ATOMIC), {}, {"max_nodes_total": 7}, None),
        (_group("g", 5, options=_ATOMIC, options_error="down"), {}, {"max_nodes_total": 6}, None),
        (_group("other", 0), {}, {}, "not ready for scale-up"),
        (_group("g", 0, exists=False), {}, {}, None),
    ],
)
def test_groups_that_are_skipped(
    group: NodeGroup, limits: dict[str, int], options: dict[str, Any], reason: str | None
) -> None:
    known = NodeGroup(id=group.id, max_size=10)
    result = filter_valid_scale_up_groups(
        [group],
        templates=_templates("g"),
        tracker=_tracker(**limits),
        state=_state(known),
        node_count=2,
        now=N0,
        options=ca.AutoscalingOptions(**options),
    )
    assert result.skipped == ({} if reason is None else {group.id: [reason]})
    assert result.valid == ([group] if reason is None else [])


def test_groups_that_are_not_safe() -> None:
    group = _group("g", 0)
    state = register_failed_scale_up(
        _state(group), "g", ScaleUpError(class_="Other", code="x", message="m"), 1, N0, _OPTIONS
    )

    def skipped(state: ClusterStateRegistry, **more: Any) -> dict[str, list[str]]:
        return filter_valid_scale_up_groups(
            [group],
            templates=_templates("g"),
            tracker=_tracker(),
            state=state,
            node_count=0,
            now=N0,
            options=_OPTIONS,
            **more,
        ).skipped

    assert skipped(ClusterStateRegistry()) == {"g": ["not ready for scale-up"]}
    assert skipped(state) == {"g": ["in backoff after failed scale-up"]}
    assert skipped(state, known_templates=[]) == {}


# -- dividing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "limits", "expected"),
    [
        ((1, 1, 1), {}, {"ng1": 3, "ng2": 3, "ng3": 3}),
        ((1, 2, 2), {"nodes": 1}, {"ng1": 2}),
        ((1, 1, 2), {"nodes": 4}, {"ng1": 4, "ng2": 2}),
    ],
)
def test_plans_stay_within_quotas(
    sizes: tuple[int, int, int], limits: dict[str, int], expected: dict[str, int]
) -> None:
    groups = [_group(f"ng{i}", size) for i, size in enumerate(sizes, start=1)]
    plan = balance_scale_ups(
        groups[0], groups[1:], 6, templates=_templates("ng1", "ng2", "ng3"), tracker=_tracker(**limits)
    )
    assert {info.group: info.new for info in plan if info.new} == expected


def test_similar_groups_without_template_take_no_part() -> None:
    plan = balance_scale_ups(_group("a", 1), [_group("b", 1)], 4, templates=_templates("a"), tracker=_tracker())
    assert [(info.group, info.new) for info in plan] == [("a", 5)]


# -- carrying out ----------------------------------------------------------------------------------------------

_PLAN = [
    ca.ScaleUpInfo(group="a", current=1, new=3, max=10),
    ca.ScaleUpInfo(group="b", current=1, new=2, max=10),
]
_GROUPS = Groups([_group("a", 1), _group("b", 1)])
_DOWN = ca.AutoscalerError("", "down")


def _execute(*answers: Any, **more: Any) -> Ran:
    options = ca.AutoscalingOptions(parallel_scale_up=more.pop("parallel", False))
    plan = more.pop("plan", _PLAN)
    return run_steps(
        execute_scale_ups_steps(Progress(N0), plan, _GROUPS, ClusterStateRegistry(), options=options, **more), *answers
    )


def test_success() -> None:
    ran = _execute(None, None)
    actions, done = ran
    assert actions == [IncreaseSize(group="a", delta=2), IncreaseSize(group="b", delta=1)]
    assert (done.error, done.failed_groups) == (None, [])
    assert {name: request.increase for name, request in done.state.scale_up_requests.items()} == {"a": 2, "b": 1}
    assert [event.message for event in ran.events] == [
        "Scale-up: setting group a size to 3 instead of 1 (max: 10)",
        "Scale-up: group a size set to 3 instead of 1 (max: 10)",
        "Scale-up: setting group b size to 2 instead of 1 (max: 10)",
        "Scale-up: group b size set to 2 instead of 1 (max: 10)",
    ]


def test_the_first_error_ends_it() -> None:
    ran = _execute(_DOWN)
    actions, done = ran
    assert len(actions) == 1
    assert done.error == ca.AutoscalerError("cloudProviderError", "failed to increase node group size: down")
    assert done.failed_groups == ["a"]
    assert ran.events[-1].message == "Scale-up failed for group a: down"
    assert list(done.state.backoffs) == ["a"]
    typed = ca.AutoscalerError("authError", "auth error")
    assert _execute(typed).value.error == ca.AutoscalerError(
        "authError", "failed to increase node group size: auth error"
    )


def test_in_parallel_all_are_tried() -> None:
    actions, done = _execute(_DOWN, ca.AutoscalerError("", "gone"), parallel=True)
    assert len(actions) == 2
    assert done.failed_groups == ["a", "b"]
    assert done.error is not None
    assert done.error.message == (
        'failed to increase node group size: down ...and other errors: ["failed to increase node group size: gone"]'
    )
    actions, done = _execute(plan=[_PLAN[0], _PLAN[0]], parallel=True)
    assert actions == []
    assert done.error == ca.AutoscalerError("internalError", "assertion failure: detected group double scaling: a")


def test_atomic_increases_fall_back_where_they_are_not_implemented() -> None:
    actions, done = _execute(ca.AutoscalerError("", "Not implemented"), None, atomic=True, plan=_PLAN[:1])
    assert [action.atomic for action in actions] == [True, False]
    assert done.error is None


def test_negative_increases_are_found_out_afterwards() -> None:
    actions, done = _execute(None, plan=[ca.ScaleUpInfo(group="a", current=3, new=1, max=10)])
    assert actions == [IncreaseSize(group="a", delta=-2)]
    assert done.error == ca.AutoscalerError("internalError", "increase in number of nodes cannot be negative, got: -2")


# -- minimum sizes ---------------------------------------------------------------------------------------------


def test_groups_below_their_minimum() -> None:
    groups = Groups([_group("ng1", 1, min_size=3, nodes=["a"]), _group("ng2", 1, min_size=1, nodes=["b"])])
    nodes = [node("a", 16_000, 10, ready=True), node("b", 16_000, 10, ready=True)]
    steps = scale_up_to_min_size_steps(
        nodes,
        groups,
        templates=_templates("ng1", "ng2", cpu_m=16_000),
        state=update_nodes(ClusterStateRegistry(), nodes, groups, now=N0, options=_OPTIONS).state,
        now=N0,
        options=_OPTIONS,
        quotas=[Quota(id="cluster-wide", limits={"cpu": 48})],
    )
    actions, done = run_steps(steps, None)
    assert isinstance(done, MinSizeScaleUpResult)
    assert actions == [IncreaseSize(group="ng1", delta=1)]
    assert [(info.group, info.new) for info in done.status.scale_ups] == [("ng1", 2)]
    assert done.state.ranges["ng1"].current_target == 2
    assert groups["ng1"].target_size == 1


def test_unknown_usage_blocks_the_minimum_size_scale_up() -> None:
    groups = Groups([], {"a": "down"})
    steps = scale_up_to_min_size_steps(
        [node("a", 1, 1)], groups, templates={}, state=ClusterStateRegistry(), now=N0, options=_OPTIONS
    )
    _, done = run_steps(steps)
    message = 'could not create quotas tracker: failed to get node group for node "a": down'
    assert done.status.error == ErrorRecord(type="internalError", message=message)


# -- what is said ----------------------------------------------------------------------------------------------


def test_reasons_are_counted_over_groups_that_exist() -> None:
    status = ScaleUpStatus(
        result="ScaleUpNoOptionsAvailable",
        pods_remain_unschedulable=[
            NoScaleUpInfo(
                pod="default/p",
                rejected_groups={
                    "g1": ["not schedulable"],
                    "g2": ["not schedulable"],
                    "g3": ["also not schedulable"],
                    "tmp": ["never shown"],
                },
                skipped_groups={"g4": ["max limit reached"], "g5": ["not ready"], "g6": ["max limit reached"]},
            )
        ],
        considered_groups=[
            *(ConsideredGroup(id=f"g{i}") for i in range(1, 7)),
            ConsideredGroup(id="tmp", exists=False),
        ],
    )
    (event,) = build_scale_up_events(status)
    assert (event.about, event.reason) == ("Pod/default/p", "NotTriggerScaleUp")
    assert event.message == (
        "pod didn't trigger scale-up: 1 also not schedulable, 1 not ready, 2 max limit reached, 2 not schedulable"
    )


@pytest.mark.parametrize(
    ("result", "remaining", "triggered", "expected"),
    [
        ("ScaleUpNoOptionsAvailable", 2, 0, ["NotTriggerScaleUp"] * 2),
        ("ScaleUpSuccessful", 2, 1, ["TriggeredScaleUp"]),
        ("ScaleUpError", 3, 0, []),
        ("ScaleUpLimitedByMaxNodesTotal", 3, 0, ["NotTriggerScaleUp"] * 3),
    ],
)
def test_events_by_result(result: str, remaining: int, triggered: int, expected: list[str]) -> None:
    status = ScaleUpStatus(
        result=result,
        scale_ups=_PLAN if triggered else [],
        pods_triggered=[f"d/t{i}" for i in range(triggered)],
        pods_remain_unschedulable=[NoScaleUpInfo(pod=f"d/r{i}") for i in range(remaining)],
    )
    events = build_scale_up_events(status)
    assert [event.reason for event in events] == expected
    if result == "ScaleUpLimitedByMaxNodesTotal":
        assert events[0].message == "pod didn't trigger scale-up: max total nodes in cluster reached"
    if triggered:
        assert events[0].message == "pod triggered scale-up: [{a 1->3 (max: 10)} {b 1->2 (max: 10)}]"
