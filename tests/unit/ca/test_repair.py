"""Repairs of a loop: upstream's tables, and what a provider may answer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from builders import N0, node
from kscale import ca
from kscale.ca.cluster_state import ClusterStateRegistry, update_nodes
from kscale.ca.repair import Repair, repair_steps
from kscale.effects import SECOND, ApiError, DecreaseTargetSize, DeleteNodes, DryRun, run_dry
from kscale.objects.nodegroup import Groups, InstanceError, InstanceStatus, NodeGroup, NodeGroupOptions
from performing import performed

MINUTE = 60 * SECOND
LIMIT = timedelta(minutes=45)


def group(
    name: str, members: int, instances: int, target: int, least: int = 0, *, atomic: bool | None = None, **more: Any
) -> NodeGroup:
    """``instances`` of which the first ``members`` are nodes; ``atomic``: whether it may grow in parts."""
    own = None
    if atomic is not None:
        own = NodeGroupOptions(zero_or_max_node_scaling=True, allow_non_atomic_scale_up_to_max=atomic)
    return NodeGroup(
        id=name,
        min_size=least,
        max_size=10,
        target_size=target,
        nodes=[f"{name}-{i}" for i in range(members)],
        instances=[f"{name}-{i}" for i in range(instances)],
        options=own,
        **more,
    )


def known_state(groups: Groups, options: ca.AutoscalingOptions, members: list[str]) -> ClusterStateRegistry:
    """What is known an hour ago, by a first look."""
    nodes = [node(name, 1, 1, ready=True) for name in members]
    return update_nodes(ClusterStateRegistry(), nodes, groups, now=N0 - 60 * MINUTE, options=options).state


def repair(
    node_groups: list[NodeGroup], at: int = 0, answers: dict[str, str] | None = None, untold: str = "", **options: Any
) -> tuple[Repair, DryRun[Repair]]:
    """Repairs at a time from now; ``answers``: group, or ``group force``, -> the provider's refusal; ``untold``: an
    instance whose group it fails to tell."""
    groups = Groups(node_groups, {untold: "it is late"})
    chosen = ca.AutoscalingOptions(max_node_provision_time=LIMIT, **options)
    state = known_state(groups, chosen, [name for item in node_groups for name in item.nodes])

    def answer(action: Any) -> ApiError | None:
        key = f"{action.group} force" if getattr(action, "force", False) else action.group
        refusal = (answers or {}).get(key)
        return None if refusal is None else ApiError(refusal)

    ran = performed(repair_steps(state, groups, now=N0 + at, options=chosen), answer, now=N0 + at)
    return ran.value, ran


# -- instances that have not registered ------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "removed"), [(-50, []), (-15, []), (0, ["g-1"])])
def test_old_unregistered_instances(at: int, removed: list[str]) -> None:
    result, ran = repair([group("g", 1, 2, 2, 1)], at * MINUTE)
    assert result.removed == ({"g": removed} if removed else {})
    assert ran.actions == ([DeleteNodes(group="g", nodes=tuple(removed))] if removed else [])
    assert [event.message for event in ran.events] == [f"Removed unregistered node {name}" for name in removed]
    assert (result.healthy, result.error, result.fixed) == (True, None, [])


def test_instance_with_unknown_group_stays() -> None:
    assert repair([group("g", 1, 3, 3, 1)], untold="g-1")[0].removed == {"g": ["g-2"]}


def test_an_instance_of_no_group_any_more_counts_nowhere_and_keeps_its_age() -> None:
    """The provider forgets it for one loop: five minutes later it is an hour old, not new."""
    created = group("g", 1, 3, 3, 1, gone_instances=["g-1"])
    assert repair([created])[0].removed == {"g": ["g-2"]}
    options, nodes = ca.AutoscalingOptions(max_node_provision_time=LIMIT), [node("g-0", 1, 1, ready=True)]
    state = known_state(Groups([group("g", 1, 3, 3)]), options, ["g-0"])
    state = update_nodes(state, nodes, Groups([created]), now=N0 - 5 * MINUTE, options=options).state
    assert (state.total.unregistered, state.total.long_unregistered) == ([], ["g-2"])
    state = update_nodes(state, nodes, Groups([group("g", 1, 3, 3)]), now=N0, options=options).state
    assert state.total.long_unregistered == ["g-1", "g-2"]


def test_atomic_group_without_instance_list_stays() -> None:
    result, ran = repair([group("g", 1, 10, 10, atomic=False, instances_error="it is late")])
    assert (result.removed, ran.actions) == ({}, [])
    assert result.warnings == [
        "Failed to fill in nodes to delete from group g based on ZeroOrMaxNodeScaling option: it is late"
    ]


@pytest.mark.parametrize(
    ("atomic", "unregistered", "removed"), [(False, 9, 10), (True, 9, 0), (True, 10, 10), (None, 9, 9)]
)
def test_groups_that_go_whole(atomic: bool | None, unregistered: int, removed: int) -> None:
    result, _ = repair([group("g", 10 - unregistered, 10, 10, atomic=atomic)])
    assert sum(map(len, result.removed.values())) == removed


@pytest.mark.parametrize(
    ("least", "force", "removed"), [(0, False, ["g-1", "g-2"]), (2, False, ["g-1"]), (3, False, []), (3, True, None)]
)
def test_minimum_sizes(least: int, force: bool, removed: list[str] | None) -> None:
    result, ran = repair([group("g", 1, 3, 3, least)], force_delete_unregistered_nodes=force)
    want = ["g-1", "g-2"] if removed is None else removed
    assert result.removed == ({"g": want} if want else {})
    assert ran.actions == ([DeleteNodes(group="g", nodes=tuple(want), force=force)] if want else [])


def test_a_provider_that_cannot_force() -> None:
    answers = {"g force": "Not implemented"}
    result, ran = repair([group("g", 1, 2, 2, 2)], answers=answers, force_delete_unregistered_nodes=True)
    assert [item.force for item in ran.actions] == [True, False]
    assert result.removed == {"g": ["g-1"]}


def test_the_first_refusal_ends_it() -> None:
    result, ran = repair([group("a", 1, 3, 3), group("b", 1, 2, 2)], answers={"a": "no"})
    assert [item.group for item in ran.actions] == ["a"]
    assert result.removed == {}
    assert [(event.reason, event.message) for event in ran.events] == [
        ("DeleteUnregisteredFailed", "Failed to remove node a-1: no"),
        ("DeleteUnregisteredFailed", "Failed to remove node a-2: no"),
    ]
    assert result.warnings == ["Failed to remove unregistered nodes: no"]
    assert (result.healthy, result.error, result.fixed) == (True, None, [])


@pytest.mark.parametrize("field", ["target_size_error", "options_error"])
def test_groups_that_cannot_be_read(field: str) -> None:
    groups = [group("a", 1, 2, 2), group("b", 1, 2, 2)]
    chosen = ca.AutoscalingOptions(max_node_provision_time=LIMIT)
    state = known_state(Groups(groups), chosen, ["a-0", "b-0"])
    setattr(groups[0], field, "down")
    ran = run_dry(repair_steps(state, Groups(groups), now=N0, options=chosen), now=N0)
    if field == "options_error":
        text = "failed to retrieve maxNodeProvisionTime for node a-1 in nodeGroup a"
        assert ran.value.warnings[0] == f"Failed to remove unregistered nodes: {text}"
        assert ran.actions == []
    else:
        assert ran.actions == [DeleteNodes(group="b", nodes=("b-1",))]


def test_an_unhealthy_cluster_is_left_alone() -> None:
    groups = Groups([group("g", 4, 4, 4)])
    options = ca.AutoscalingOptions(max_node_provision_time=LIMIT)
    nodes = [node(f"g-{i}", 1, 1, ready=False) for i in range(4)]
    state = update_nodes(ClusterStateRegistry(), nodes, groups, now=N0, options=options).state
    ran = run_dry(repair_steps(state, groups, now=N0, options=options), now=N0)
    result, messages = ran.value, [event.message for event in ran.events]
    assert not result.healthy
    assert (messages, ran.actions) == (["Cluster is unhealthy"], [])


# -- instances that could not be made --------------------------------------------------------------------------------


def failing(codes: list[str | None], **more: Any) -> NodeGroup:
    """Instances of which those with a code failed; an empty one is still being made."""
    created = group("g", 1, len(codes), len(codes), **more)
    for name, code in zip(created.instances, codes, strict=True):
        if code is not None:
            error = InstanceError(class_="Other", code=code) if code else None
            created.instance_status[name] = InstanceStatus(state="creating", error=error)
    return created


CODES = [None, "", "RESOURCE_POOL_EXHAUSTED", "RESOURCE_POOL_EXHAUSTED", "QUOTA", "OTHER"]


@pytest.mark.parametrize(
    ("codes", "more", "options", "deleted"),
    [
        (CODES, {}, {}, ["g-2", "g-3", "g-4", "g-5"]),
        ([None, "", ""], {}, {}, []),
        (CODES, {}, {"force_delete_failed_nodes": True}, ["g-2", "g-3", "g-4", "g-5"]),
        ([None, None, "QUOTA"], {"atomic": False}, {}, ["g-0", "g-1", "g-2"]),
        ([None, None, "QUOTA"], {"atomic": True}, {}, []),
        (["QUOTA", "QUOTA", "QUOTA"], {"atomic": True}, {}, ["g-0", "g-1", "g-2"]),
        (CODES, {"options_error": "down"}, {}, []),
    ],
    ids=["failed", "coming", "forced", "whole", "in-parts", "in-parts-all", "unreadable"],
)
def test_failed_instances_are_deleted(
    codes: list[str | None], more: dict[str, Any], options: dict[str, Any], deleted: list[str]
) -> None:
    """In every loop anew, as long as the cloud shows them as failed."""
    for _ in range(2):
        result, ran = repair([failing(codes, **more)], -60 * MINUTE, **options)
        assert result.deleted == ({"g": deleted} if deleted else {})
        force = "force_delete_failed_nodes" in options
        assert ran.actions == ([DeleteNodes(group="g", nodes=tuple(deleted), force=force)] if deleted else [])
        assert (result.error is not None) is ("options_error" in more)


@pytest.mark.parametrize(
    ("force", "refusal", "forces", "deleted"),
    [
        (True, "Not implemented", [True, False], True),
        (True, "the cloud is away", [True], False),
        (False, "Not implemented", [False], False),
    ],
)
def test_failed_instances_are_deleted_without_force_as_fallback(
    force: bool, refusal: str, forces: list[bool], deleted: bool
) -> None:
    """``ForceDeleteNodes``, and ``DeleteNodes`` where it is not implemented; no other refusal is asked again."""
    answers = {"g force" if force else "g": refusal}
    result, ran = repair([failing(CODES)], -60 * MINUTE, answers, force_delete_failed_nodes=force)
    names = ("g-2", "g-3", "g-4", "g-5")
    assert ran.actions == [DeleteNodes(group="g", nodes=names, force=each) for each in forces]
    assert result.deleted == ({"g": [*names]} if deleted else {})


def test_instances_that_are_on_their_way_out() -> None:
    created = failing(CODES)
    for name in created.instance_status:
        created.instance_status[name] = InstanceStatus(state="deleting")
    assert repair([created], -60 * MINUTE)[1].actions == []


def test_failed_deletions_are_only_logged() -> None:
    result, _ = repair([failing(CODES)], -60 * MINUTE, {"g": "no"})
    assert result.deleted == {}
    assert result.warnings == ["Error while trying to delete nodes from g: no"]


# -- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "fixed"), [(-50, False), (-15, False), (0, True)])
def test_targets_that_are_too_high(at: int, fixed: bool) -> None:
    result, ran = repair([group("ng1", 1, 1, 3, 1)], at * MINUTE)
    assert ran.actions == ([DecreaseTargetSize(group="ng1", delta=-2)] if fixed else [])
    assert result.fixed == (["ng1"] if fixed else [])


def test_targets_that_are_too_low_stay() -> None:
    assert repair([group("ng1", 3, 3, 1)])[1].actions == []


def test_a_target_that_cannot_be_lowered() -> None:
    result, _ = repair([group("ng1", 1, 1, 3, 1)], answers={"ng1": "no"})
    assert result.error is not None
    assert (result.error.type, result.error.message) == ("cloudProviderError", "failed to decrease ng1: no")
