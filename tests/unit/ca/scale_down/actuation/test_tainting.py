"""Marks on nodes: writing them, conflicts, limits of a loop, what a process finds (``taints.go``, ``softtaint.go``)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from builders import N0, node, span
from ca_world import World
from kscale import ca
from kscale.ca.nodes import DELETION_CANDIDATE_TAINT, TO_BE_DELETED_TAINT
from kscale.ca.scale_down.actuation.tainting import (
    SoftTaints,
    SoftTaintsResult,
    TaintLatencyHistory,
    UpdateLatencyTracker,
    clean_to_be_deleted,
    clean_up_taints,
    mark_to_be_deleted,
    taint_nodes_sync,
    update_soft_taints,
)
from kscale.effects import (
    SECOND,
    Action,
    ApiError,
    Machine,
    Moment,
    Outcome,
    Patch,
    Progress,
    VirtualTime,
    run_virtually,
)
from kscale.objects.api.core import Node, Taint
from kscale.objects.nodegroup import Groups, NodeGroup

NOW = N0 // SECOND


def marked(name: str, hard: str | None = None, soft: str | None = None) -> Node:
    created = node(name, 1000, 1000, ready=True)
    if hard is not None:
        created.spec.taints.append(Taint(key=TO_BE_DELETED_TAINT, value=hard, effect="NoSchedule"))
    if soft is not None:
        created.spec.taints.append(Taint(key=DELETION_CANDIDATE_TAINT, value=soft, effect="PreferNoSchedule"))
    return created


def marking(item: Node, *, cordon: bool = True) -> Machine:
    return lambda now: mark_to_be_deleted(Progress(now), item, cordon=cordon)


def changed(item: Node) -> Node:
    """The same node as somebody else has changed it."""
    labels = {"changed": "yes"}
    return replace(item, metadata=replace(item.metadata, resource_version="7", labels=labels))


# -- one node --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cordon", [False, True])
def test_a_mark(cordon: bool) -> None:
    original = node("n", 1, 1)
    original.spec.taints.append(Taint(key="other", value="", effect="NoSchedule"))
    world = World([original])
    assert run_virtually(marking(original, cordon=cordon), world.perform, now=N0 + span(seconds=0.7)) is None
    taints = world.nodes["n"].spec.taints
    assert [(taint.key, taint.value, taint.effect) for taint in taints] == [
        ("other", "", "NoSchedule"),
        (TO_BE_DELETED_TAINT, str(NOW), "NoSchedule"),
    ]
    assert world.nodes["n"].spec.unschedulable is cordon


def test_a_mark_that_is_there_already_is_left_alone() -> None:
    """It is believed of a fresh node only; then nothing is written, and the node is not cordoned."""
    world = World([marked("n", "5")])
    assert run_virtually(marking(world.nodes["n"]), world.perform, now=N0) is None
    assert (world.marks, world.cordons) == ({}, {})
    stale = marked("n", "5")
    world = World([node("n", 1, 1)])
    assert run_virtually(marking(stale), world.perform, now=N0) is None
    assert world.marks == {"n": ["+T"]}


def test_a_conflict_is_resolved() -> None:
    original = node("n", 1, 1)
    world = World([changed(original)])
    ends: list[Any] = []
    simulation = VirtualTime(world.perform, now=N0)
    simulation.start(marking(original), lambda value, at: ends.append((value, at - N0)))
    simulation.run()
    assert ends == [(None, span(milliseconds=750))]
    assert world.nodes["n"].metadata.labels == {"changed": "yes"}
    assert world.marks == {"n": ["+T"]}


def test_conflicts_do_not_go_on_for_ever() -> None:
    original = node("n", 1, 1)
    tries: list[int] = []

    def perform(action: Action, now: Moment) -> Outcome:
        if isinstance(action, Patch):
            tries.append(now - N0)
            return Outcome(at=now, error=ApiError("again", reason="Conflict"))
        return Outcome(at=now, value=original)

    error = run_virtually(marking(original), perform, now=N0)
    assert error == ApiError("again", reason="Conflict")
    assert tries == [span(milliseconds=750 * i) for i in range(8)]


def test_tainting_a_deleted_node_is_an_error() -> None:
    world = World([])
    error = run_virtually(marking(marked("n", "5")), world.perform, now=N0)
    assert error.message == "failed to get node n: not found"


@pytest.mark.parametrize(("uncordon", "unschedulable"), [(True, False), (False, True)])
def test_a_mark_is_taken_away(uncordon: bool, unschedulable: bool) -> None:
    """And any cordon with it, whoever set it."""
    tainted = marked("n", "5", soft="6")
    tainted.spec.unschedulable = True
    world = World([tainted])
    result = run_virtually(
        lambda now: clean_to_be_deleted(Progress(now), tainted, uncordon=uncordon), world.perform, now=N0
    )
    assert result == (None, True)
    assert [taint.key for taint in world.nodes["n"].spec.taints] == [DELETION_CANDIDATE_TAINT]
    assert world.nodes["n"].spec.unschedulable is unschedulable
    again = run_virtually(
        lambda now: clean_to_be_deleted(Progress(now), world.nodes["n"], uncordon=uncordon), world.perform, now=N0
    )
    assert again == (None, False)


# -- soft taints: limits of a loop -----------------------------------------------------------------------------------


def softly(world: World, taints: SoftTaints, **options: Any) -> SoftTaintsResult:
    settings = ca.AutoscalingOptions(**{"max_bulk_soft_taint_time": timedelta(seconds=1), **options})
    nodes = dict(world.nodes)
    result: SoftTaintsResult = run_virtually(
        lambda now: update_soft_taints(taints, nodes, settings, now), world.perform, now=N0
    )
    return result


@pytest.mark.parametrize("takes", [0, 1])
def test_both_nodes_fit_if_there_is_time(takes: int) -> None:
    world = World([marked("a"), marked("b")])
    world.takes = {Patch: takes * SECOND}
    result = softly(world, SoftTaints(add=["a", "b"]))
    assert world.marks == ({"a": ["+S"]} if takes else {"a": ["+S"], "b": ["+S"]})
    assert result == SoftTaintsResult(tried=2 - takes, skipped=takes)
    world.marks.clear()
    untainted = [name for name in ("a", "b") if not world.nodes[name].spec.taints]
    softly(world, SoftTaints(add=untainted))
    assert world.marks == ({"b": ["+S"]} if takes else {})
    world.marks.clear()
    softly(world, SoftTaints(remove=["a", "b"]))
    assert world.marks == ({"a": ["-S"]} if takes else {"a": ["-S"], "b": ["-S"]})


@pytest.mark.parametrize(("most", "marks"), [(0, {}), (1, {"b": ["-S"]}), (2, {"b": ["-S"], "a": ["+S"]})])
def test_attempts_are_counted(most: int, marks: dict[str, list[str]]) -> None:
    world = World([marked("a"), marked("b", soft="1")])
    result = softly(world, SoftTaints(remove=["b"], add=["a"]), max_bulk_soft_taint_count=most)
    assert world.marks == marks
    assert (result.tried, result.skipped) == (most, 2 - most)


def test_an_attempt_that_fails_stops_nothing() -> None:
    world = World([marked("a"), marked("b"), marked("c")])
    world.no_taint = {"a"}
    result = softly(world, SoftTaints(add=["a", "b", "c"]), max_bulk_soft_taint_count=2)
    assert world.marks == {"b": ["+S"]}
    assert result == SoftTaintsResult(tried=2, skipped=1, errors=[ApiError("no taint")])


# -- what a new process finds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "ttl", "cleaned"),
    [
        (10, 0, {"going": ["-T"]}),
        (0, 0, {"going": ["-T"], "young": ["-S"], "old": ["-S"], "odd": ["-S"], "loose": ["-S"]}),
        (0, 300, {"going": ["-T"], "old": ["-S"], "odd": ["-S"], "loose": ["-S"]}),
        (10, 300, {"going": ["-T"]}),
    ],
)
def test_marks_of_an_earlier_process(count: int, ttl: int, cleaned: dict[str, list[str]]) -> None:
    """Nodes of no group keep the hard taint; soft ones go only where there are to be none."""
    nodes = [
        marked("going", str(NOW)),
        marked("young", soft=str(NOW - 120)),
        marked("old", soft=str(NOW - 600)),
        marked("odd", soft="soon"),
        marked("loose", str(NOW), soft=str(NOW - 600)),
        marked("plain"),
    ]
    world = World(nodes)
    groups = Groups([NodeGroup(id="g", nodes=["going", "young", "old", "odd", "plain"])], {"down": "down"})
    options = ca.AutoscalingOptions(max_bulk_soft_taint_count=count, node_deletion_candidate_ttl=timedelta(seconds=ttl))
    result = run_virtually(lambda now: clean_up_taints(nodes, groups, options, now), world.perform, now=N0)
    assert world.marks == cleaned
    assert result == list(cleaned)
    assert {event.reason for event in world.events} == {"ClusterAutoscalerCleanup"}
    assert world.events[0].message == f"removed {TO_BE_DELETED_TAINT} taint from node going"


def test_a_mark_that_cannot_be_cleaned() -> None:
    world = World([marked("a", "1")])
    world.no_taint = {"a"}
    groups = Groups([NodeGroup(id="g", nodes=["a"])])
    nodes = list(world.nodes.values())
    assert (
        run_virtually(lambda now: clean_up_taints(nodes, groups, ca.AutoscalingOptions(), now), world.perform, now=N0)
        == []
    )
    (event,) = world.events
    assert (event.type, event.message) == ("Warning", f"failed to clean {TO_BE_DELETED_TAINT} on node a: no taint")


# -- how long taints take to be seen ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("latencies", "latency"),
    [({"n1": 100}, 100), ({"n1": 100, "n2": 150}, 150), ({"n1": None}, None), ({"n1": 100, "n2": None}, None)],
)
def test_the_longest_latency_counts(latencies: dict[str, int | None], latency: int | None) -> None:
    world = World([marked(name, "1") for name in latencies])
    world.written = dict.fromkeys(latencies, N0)
    lags = {name: None if ms is None else span(milliseconds=ms) for name, ms in latencies.items()}
    world.lag = lags.__getitem__
    tracker = UpdateLatencyTracker()
    tracker.started = dict.fromkeys(latencies, N0)
    tracker.wait_for_all()
    result = run_virtually(tracker.follow, world.perform, now=N0)
    assert result == (None if latency is None else span(milliseconds=latency))


def test_a_node_that_waits_for_its_turn_counts_from_the_beginning() -> None:
    """Five nodes are tainted at a time, a second each: the taint of the sixth is written after the first second."""
    nodes = [marked(f"n{i}") for i in range(6)]
    world = World(nodes)
    world.takes = {Patch: SECOND}
    options = ca.AutoscalingOptions(dynamic_node_delete_delay_after_taint_enabled=True)
    past = TaintLatencyHistory()
    result = run_virtually(lambda now: taint_nodes_sync(Progress(now), nodes, options, past), world.perform, now=N0)
    assert result.error is None
    assert world.written["n5"] == N0 + SECOND
    assert result.delay == 2 * span(milliseconds=1050)  # it is seen by the next look


def test_latencies_are_kept_for_an_hour() -> None:
    past = TaintLatencyHistory()
    assert past.delay_after(3 * SECOND, N0) == 6 * SECOND
    assert past.delay_after(SECOND, N0 + span(minutes=59)) == 6 * SECOND
    assert past.delay_after(SECOND, N0 + span(minutes=60)) == 2 * SECOND
