"""What is kept of deletions and of nodes that wait for theirs (``deletiontracker``, ``latencytracker``,
``nodeevaltracker``)."""

from __future__ import annotations

import msgspec
import pytest

from builders import N0, node, pod
from kscale.ca.loop_state import MaxNodeSkipEvalTime, NodeLatency, NodeLatencyTracker
from kscale.ca.scale_down.actuation.deletion_tracker import ActuationStatus, NodeDeleteResult, NodeDeletionTracker
from kscale.ca.scale_down.candidates import DeletionsInProgress, NodeInGroup
from kscale.ca.scale_down.unneeded import UnneededNode
from kscale.effects import SECOND

MINUTE = 60 * SECOND
OK = NodeDeleteResult(result="NodeDeleteOk")
BAD = NodeDeleteResult(result="NodeDeleteErrorInternal")


# -- deletions -------------------------------------------------------------------------------------------------------


def test_deletions_under_way() -> None:
    tracker = NodeDeletionTracker()
    tracker.start_deletion("g", "a", drain=False)
    tracker.start_deletion("g", "b", drain=True)
    tracker.start_deletion("h", "c", drain=False)
    assert tracker.in_progress() == DeletionsInProgress(empty=2, drained=1)
    before = tracker.status(N0)
    tracker.end_deletion("g", "a", OK, N0)
    tracker.end_deletion("h", "c", BAD, N0 + SECOND)
    assert before == ActuationStatus(
        deleting=[NodeInGroup(node="a", group="g"), NodeInGroup(node="c", group="h")],
        draining=[NodeInGroup(node="b", group="g")],
        deletions={"g": 2, "h": 1},
    )
    assert tracker.status(N0).deletions == {"g": 1}
    assert tracker.results(N0) == ({"a": OK, "c": BAD}, N0 + SECOND)


def test_result_without_a_started_deletion_is_recorded() -> None:
    tracker = NodeDeletionTracker()
    tracker.start_deletion("g", "a", drain=False)
    tracker.end_deletion("other", "a", OK, N0)
    assert tracker.in_progress() == DeletionsInProgress(empty=1)
    assert tracker.results(N0)[0] == {"a": OK}


def test_results_are_reported_once() -> None:
    tracker = NodeDeletionTracker()
    assert tracker.results(N0) == ({}, N0)
    tracker.end_deletion("g", "a", BAD, N0)
    tracker.end_deletion("g", "a", OK, N0 + SECOND)
    tracker.end_deletion("g", "b", OK, N0 + 2 * SECOND)
    assert tracker.results(N0)[0] == {"a": OK, "b": OK}
    tracker.clear_results_not_newer_than(N0 + SECOND)
    assert tracker.results(N0)[0] == {"b": OK}


@pytest.mark.parametrize(("ttl", "after", "evicted"), [(0, 0, []), (10, 9, ["p"]), (10, 10, [])])
def test_evictions_are_recent_for_a_while(ttl: int, after: int, evicted: list[str]) -> None:
    """Upstream's time is 0: none is ever recent."""
    tracker = NodeDeletionTracker(ttl * SECOND)
    tracker.register_eviction(pod("p"), N0)
    assert [item.metadata.name for item in tracker.recent_evictions(N0 + after * SECOND)] == evicted


# -- nodes that nobody looked at -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("skipped", "longest"),
    [
        (["", "1", "", ""], [0, 1, 0, 0]),
        (["", "1 2", "2 3", ""], [0, 1, 2, 0]),
        (["1 2", "1 2", "2 3", ""], [1, 2, 3, 0]),
        (["", "1 2", "1", "2", ""], [0, 1, 2, 1, 0]),
        (["1", "2", "3", "4", ""], [1, 1, 1, 1, 0]),
    ],
)
def test_longest_time_without_a_look(skipped: list[str], longest: list[int]) -> None:
    tracker = MaxNodeSkipEvalTime(last=N0)
    for i, (names, want) in enumerate(zip(skipped, longest, strict=True), 1):
        tracker, result = tracker.update(names.split(), N0 + i * SECOND)
        assert result == want * SECOND
        tracker = msgspec.json.decode(msgspec.json.encode(tracker), type=MaxNodeSkipEvalTime)


# -- nodes that waited longer than they had to -----------------------------------------------------------------------


def unneeded(name: str, threshold: int = 10 * MINUTE) -> UnneededNode:
    return UnneededNode(node=node(name, 1, 1), drain=False, since=N0, threshold=threshold)


def test_delay_reason_is_the_last_reason_other_than_time() -> None:
    tracker, latencies = NodeLatencyTracker().update([unneeded("a")], N0)
    assert latencies == []
    for reason in ("BlockedByPod", "AtomicScaleDownFailed", "NotUnneededLongEnough", "NotUnreadyLongEnough"):
        tracker, latencies = tracker.process({"a": reason, "other": reason}, [], N0 + MINUTE)
        assert latencies == []
    assert tracker.nodes["a"].delay_reason == "AtomicScaleDownFailed"
    tracker = msgspec.json.decode(msgspec.json.encode(tracker), type=NodeLatencyTracker)
    tracker, latencies = tracker.process({}, ["a", "other"], N0 + 15 * MINUTE)
    assert latencies == [NodeLatency(node="a", deleted=True, delay_reason="AtomicScaleDownFailed", latency=5 * MINUTE)]
    assert tracker.nodes == {}


@pytest.mark.parametrize(("after", "latency"), [(10, None), (11, 1)])
def test_a_node_that_is_needed_again(after: int, latency: int | None) -> None:
    tracker, _ = NodeLatencyTracker().update([unneeded("a"), unneeded("b")], N0)
    tracker, latencies = tracker.update([unneeded("b")], N0 + after * MINUTE)
    want = [] if latency is None else [
        NodeLatency(node="a", deleted=False, delay_reason="none", latency=latency * MINUTE)
    ]  # fmt: skip
    assert latencies == want
    assert list(tracker.nodes) == ["b"]


def test_the_threshold_may_change() -> None:
    tracker, _ = NodeLatencyTracker().update([unneeded("a")], N0)
    tracker, _ = tracker.update([unneeded("a", MINUTE)], N0 + MINUTE)
    _, latencies = tracker.process({}, ["a"], N0 + 3 * MINUTE)
    assert [item.latency for item in latencies] == [2 * MINUTE]
