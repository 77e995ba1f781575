"""Upstream's tables of whole loops and of soft taints, row by row: what is deleted, marked and left alone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import kscale
from builders import N0, node, owner, pod
from kscale import ca
from kscale.ca.cluster_state import ClusterStateRegistry, register_scale_down
from kscale.ca.loop_state import GroupChanges, RememberedTemplate
from kscale.ca.nodes import DELETION_CANDIDATE_TAINT, TO_BE_DELETED_TAINT
from kscale.ca.scale_down.actuation.tainting import SoftTaints, plan_soft_taints
from kscale.effects import SECOND
from kscale.objects.api.core import Node, Pod, Taint
from kscale.objects.nodegroup import Groups, NodeGroup
from kscale.snapshot.cluster import Cluster

MINUTE = 60 * SECOND
NOW = N0 // SECOND


def worker(name: str, marked: str | None = None, *, going: bool = False) -> Node:
    """A ready node of two cores; ``marked``: the value of its soft taint; ``going``: it is being deleted."""
    created = node(name, 2000, 10, ready=True)
    if marked is not None:
        created.spec.taints.append(Taint(key=DELETION_CANDIDATE_TAINT, value=marked, effect="PreferNoSchedule"))
    if going:
        created.spec.taints.append(Taint(key=TO_BE_DELETED_TAINT, value=str(NOW), effect="NoSchedule"))
    return created


def on(name: str, cpu: int, **more: Any) -> Pod:
    created = pod(f"p-{name}", cpu, 0, owner_references=owner("ReplicaSet", "rs", "apps/v1"), **more)
    created.spec.node_name = name
    return created


def loop(objects: list[Any], groups: list[NodeGroup], **more: Any) -> kscale.ScaleDownPlan:
    options = {"skip_nodes_with_custom_controller_pods": False, **more.pop("options", {})}
    inputs = {name: more.pop(name) for name in [*more] if name in ca.ScaleDownInputs.__struct_fields__}
    return kscale.scale_down(
        Cluster(objects).snapshot(),
        Groups(groups),
        now=N0,
        options=ca.AutoscalingOptions(**options),
        inputs=ca.ScaleDownInputs(**inputs),
        **more,
    )


# -- soft taints (19.1, 23.13) ---------------------------------------------------------------------------------------

BEFORE = str(NOW - 60)


@pytest.mark.parametrize(
    ("nodes", "unneeded", "want"),
    [
        ([worker("a"), worker("b")], "a b", SoftTaints(add=["a", "b"])),
        ([worker("a", BEFORE), worker("b", BEFORE)], "", SoftTaints(remove=["a", "b"])),
        ([worker("a"), worker("b", BEFORE)], "a", SoftTaints(remove=["b"], add=["a"])),
        ([worker("a", BEFORE), worker("b")], "a", SoftTaints()),
        ([worker("a", going=True), worker("b", BEFORE, going=True)], "a", SoftTaints()),
        ([worker("loose"), worker("other", BEFORE)], "loose", SoftTaints()),
    ],
    ids=["mark", "unmark", "unmark-first", "as-it-is", "going", "loose"],
)
def test_soft_taints(nodes: list[Node], unneeded: str, want: SoftTaints) -> None:
    groups = Groups([NodeGroup(id="g", nodes=["a", "b"])], {"other": "down"})
    assert plan_soft_taints(nodes, unneeded.split(), groups) == want


@pytest.mark.parametrize("cooldown", [False, True])
def test_marks_in_a_group_at_its_minimum(cooldown: bool) -> None:
    """Nodes of a group at its minimum lose their marks, in cooldown, too; unneeded nodes of others keep theirs."""
    objects = [worker("a", BEFORE), worker("b", BEFORE), worker("c", BEFORE)]
    groups = [
        NodeGroup(id="least", min_size=1, max_size=9, target_size=1, nodes=["a"]),
        NodeGroup(id="more", min_size=0, max_size=9, target_size=2, nodes=["b", "c"]),
    ]
    state = ca.LoopState(scale_down=ca.ScaleDownState(last_scale_up=N0 - MINUTE if cooldown else None))
    result = loop(objects, groups, state=state)
    assert (result.result == "ScaleDownInCooldown") is cooldown
    assert result.soft_taints == SoftTaints(remove=["a"])


@pytest.mark.parametrize(
    ("change", "delay"),
    [
        ("last_scale_up", "scale_down_delay_after_add"),
        ("last_failure", "scale_down_delay_after_failure"),
        ("last_scale_down", "scale_down_delay_after_delete"),
    ],
)
@pytest.mark.parametrize(
    ("profile", "after"), [("current", "ScaleDownNoNodeDeleted"), ("legacy", "ScaleDownNoUnneeded")]
)
def test_a_delay_is_over_when_it_is_reached(change: str, delay: str, profile: str, after: str) -> None:
    group = NodeGroup(id="g", max_size=9, target_size=2, nodes=["a", "b"])
    options = {"profile": profile, delay: timedelta(minutes=1)}
    results = {}
    for ago in (MINUTE - 1, MINUTE):
        state = ca.LoopState(scale_down=ca.ScaleDownState(**{change: N0 - ago}, started=True))
        results[ago] = loop([worker("a"), worker("b")], [group], state=state, options=options).result
    assert list(results.values()) == ["ScaleDownInCooldown", after]


@pytest.mark.parametrize(
    ("marked", "annotations", "goes"),
    [
        (str(NOW - 120), None, True),
        (str(NOW - 600), None, False),
        (str(NOW - 120), {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}, False),
        ("soon", None, False),
        (None, None, False),
    ],
    ids=["2m", "10m", "blocked", "invalid", "none"],
)
def test_times_are_read_from_the_marks_once(marked: str | None, annotations: Any, goes: bool) -> None:
    """Nodes count as unneeded since a mark of at most five minutes; a minute is enough."""
    objects = [worker("a", marked), worker("b"), on("a", 100, annotations=annotations), on("b", 1900)]
    group = NodeGroup(id="g", min_size=0, max_size=9, target_size=2, nodes=["a", "b"])
    options = {"scale_down_unneeded_time": timedelta(minutes=1), "node_deletion_candidate_ttl": timedelta(minutes=5)}
    room = worker("c")
    first = loop([*objects, room], [group], options=options)
    assert list(first.drain) == (["a"] if goes else [])
    # A process that runs already remembers; it reads no marks.
    running = loop([*objects, room], [group], options=options, state=ca.LoopState(
        scale_down=ca.ScaleDownState(started=True)
    ))  # fmt: skip
    assert not running.drain


# -- delays ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["scale_up", "scale_down", "scale_down_failure"])
def test_a_delay_of_one_group(kind: str) -> None:
    """Something happened in ng1 three minutes ago, and groups rest for five: only the node of ng2 goes."""
    groups = [NodeGroup(id=f"ng{i}", min_size=0, max_size=9, target_size=1, nodes=[f"n{i}"]) for i in (1, 2)]
    result = loop(
        [worker("n1"), worker("n2")],
        groups,
        options={
            "scale_down_delay_type_local": True,
            "scale_down_delay_after_add": timedelta(minutes=5),
            "scale_down_delay_after_delete": timedelta(minutes=5),
            "scale_down_delay_after_failure": timedelta(minutes=5),
            "scale_down_unneeded_time": timedelta(),
        },
        state=ca.LoopState(scale_down=ca.ScaleDownState(changes=GroupChanges(**{kind: {"ng1": N0 - 3 * MINUTE}}))),
    )
    assert result.delete_empty == ["n2"]


def test_scale_down_keeps_the_state_of_other_steps() -> None:
    """One state goes through the whole loop: scale-down changes its own part and the cursor."""
    state = ca.LoopState(
        cluster=register_scale_down(ClusterStateRegistry(), "g", "n0", N0),
        scale_up=ca.ScaleUpState(hints={"pod": "n1"}, degraded_loops=2),
        templates={"g": RememberedTemplate(template={"node": {}}, added=N0)},
    )
    group = NodeGroup(id="g", min_size=0, max_size=9, target_size=1, nodes=["n1"])
    after = loop([worker("n1")], [group], state=state).state
    assert list(after.scale_down.unneeded_since) == ["n1"]
    assert (after.cluster, after.scale_up, after.templates) == (state.cluster, state.scale_up, state.templates)


# -- exhaustive -------------------------------------------------------------------------------------------------------


def test_a_node_that_is_held_after_all_takes_no_room_of_others() -> None:
    """One of a1 and a2 has to stay: b finds room that it would not have if both went."""
    objects = [worker("a1"), worker("a2"), worker("b"), worker("c"), on("a1", 1000), on("a2", 1000), on("b", 1000),
               on("c", 100)]  # fmt: skip
    groups = [
        NodeGroup(id="a", min_size=1, max_size=9, target_size=2, nodes=["a1", "a2"]),
        NodeGroup(id="b", min_size=0, max_size=9, target_size=1, nodes=["b"]),
    ]
    result = loop(objects, groups, exhaustive=True)
    assert list(result.drain) == ["a1", "b"]
    assert result.unremovable["a2"].reason == "NodeGroupMinSizeReached"
    assert set(result.alone) == {"a1", "a2", "b"}


def test_a_node_with_pods_that_are_to_finish_takes_no_room_of_others() -> None:
    waits = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "on-completion"}
    last = on("a", 100, annotations=waits)
    last.metadata.name = last.metadata.uid = "last"
    objects = [worker("a"), worker("b"), worker("c"), on("a", 600), last, on("b", 700), on("c", 1000)]
    group = NodeGroup(id="g", min_size=0, max_size=9, target_size=2, nodes=["a", "b"])
    result = loop(objects, [group], exhaustive=True)
    assert list(result.drain) == ["b"]
    assert result.unremovable["a"].reason == "BlockedByOnCompletionPod"


# -- the planner of 2019 ----------------------------------------------------------------------------------------------


def test_initial_times_of_a_first_loop_are_used() -> None:
    times = {"last_scale_up": N0 - 60 * MINUTE, "last_scale_down": N0 - 60 * MINUTE, "last_failure": N0 - 60 * MINUTE}
    group = NodeGroup(id="g", min_size=0, max_size=9, target_size=1, nodes=["n1"])
    snapshot, options = Cluster([worker("n1")]).snapshot(), ca.AutoscalingOptions.for_profile("legacy")
    for memory, result in ((times, "ScaleDownNoUnneeded"), ({**times, "last_failure": None}, "ScaleDownInCooldown")):
        state = ca.LoopState(scale_down=ca.ScaleDownState(**memory))
        result_ = kscale.scale_down(snapshot, Groups([group]), now=N0, options=options, state=state)
        assert result_.result == result


# -- times -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["current", "legacy"])
def test_summer_time_does_not_shorten_a_wait(profile: str) -> None:
    """The clock of the zone goes back by an hour between two loops that are eleven minutes apart."""
    zone = ZoneInfo("Europe/Berlin")
    before = datetime(2026, 10, 25, 2, 55, tzinfo=zone)
    after = datetime(2026, 10, 25, 2, 6, fold=1, tzinfo=zone)
    options = ca.AutoscalingOptions.for_profile(profile)
    groups = Groups([NodeGroup(id="g", min_size=0, max_size=9, target_size=1, nodes=["n1"])])
    snapshot = Cluster([worker("n1")]).snapshot()
    first = kscale.scale_down(snapshot, groups, now=before, options=options)
    restored = ca.LoopState.from_json(first.state.to_json())
    for state in (first.state, restored):
        result = kscale.scale_down(snapshot, groups, now=after, options=options, state=state)
        assert result.delete_empty == ["n1"]


@pytest.mark.parametrize("local", [False, True])
def test_times_at_the_end_of_the_calendar(local: bool) -> None:
    end = 2**63 - 1
    memory = ca.ScaleDownState(last_scale_up=end, changes=GroupChanges(scale_up={"g": end}))
    group = NodeGroup(id="g", min_size=0, max_size=9, target_size=1, nodes=["n1"])
    result = loop(
        [worker("n1")],
        [group],
        state=ca.LoopState(scale_down=memory),
        options={"scale_down_delay_type_local": local},
    )
    assert result.result == ("ScaleDownNoCandidates" if local else "ScaleDownInCooldown")


# -- loops that may not scale down ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("enabled", "degrades", "counter", "tried"),
    [(False, False, 0, False), (True, False, 5, True), (True, True, 0, True), (True, True, 5, False),
     (True, True, 8, True)],
)  # fmt: skip
def test_degraded_loops(enabled: bool, degrades: bool, counter: int, tried: bool) -> None:
    """A loop that may not scale down changes nothing that is remembered."""
    state = ca.LoopState(
        scale_up=ca.ScaleUpState(degraded_loops=counter),
        scale_down=ca.ScaleDownState(unneeded_since={"n1": N0 - 11 * MINUTE}, previous_candidates=["n1"], started=True),
    )
    group = NodeGroup(id="g", min_size=0, max_size=9, target_size=1, nodes=["n1"])
    options = {"scale_down_enabled": enabled, "enable_graceful_degradation": degrades}
    result = loop([worker("n1")], [group], options=options, state=state)
    assert (result.result != "ScaleDownNotTried") is tried
    assert result.delete_empty == (["n1"] if tried else [])
    assert (result.state == state) is not tried
