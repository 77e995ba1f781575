"""Groups that go whole or not at all, and calls to the cloud (``group_deletion_scheduler_test.go``,
``delete_in_batch_test.go``)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from builders import N0, node, span
from ca_world import World
from kscale import ca
from kscale.ca.errors import AutoscalerError, ErrorRecord
from kscale.ca.scale_down.actuation.batch_deletion import DeletionRecorder, GroupDeletionScheduler, NodeDeletionBatcher
from kscale.ca.scale_down.actuation.deletion_tracker import NodeDeleteResult, NodeDeletionTracker
from kscale.ca.scale_down.actuation.drain import Evictor
from kscale.effects import Machine, Moment, Progress, Steps, VirtualTime
from kscale.objects.nodegroup import Groups, NodeGroup, NodeGroupOptions

FAILED = "NodeDeleteErrorFailedToDelete"
ABORTED = NodeDeleteResult(result=FAILED, error=ErrorRecord(type="", message="aborted"))


class Scene:
    """Groups by letter, capitals are atomic; nodes ``a0``, ``a1``, ... of each."""

    def __init__(self, sizes: dict[str, int], **options: Any) -> None:
        self.sizes = sizes
        self.options = ca.AutoscalingOptions(**options)
        names = [f"{letter}{i}" for letter, count in sizes.items() for i in range(count)]
        self.world = World([node(name, 1000, 1000, ready=True) for name in names])
        self.nodes = dict(self.world.nodes)
        self.groups = Groups(self._group(letter) for letter in sizes)
        self.tracker = NodeDeletionTracker()
        ending = DeletionRecorder(self.options, self.tracker)
        self.batcher = NodeDeletionBatcher(self.options, ending)
        evictor = Evictor(self.options, self.tracker.register_eviction)
        self.scheduler = GroupDeletionScheduler(self.options, evictor, self.batcher, ending)
        self.simulation = VirtualTime(self.world.perform, now=N0)

    def _group(self, letter: str) -> NodeGroup:
        members = [f"{letter}{i}" for i in range(self.sizes[letter])]
        own = NodeGroupOptions(zero_or_max_node_scaling=True)
        return NodeGroup(id=letter, max_size=9, nodes=members, options=own if letter.isupper() else None)

    def schedule(self, names: str, *, drain: bool = False) -> None:
        for name in names.split():
            self.tracker.start_deletion(name[0], name, drain=drain)
            self.simulation.start(self._scheduling(name, drain))
        self.simulation.run()

    def _scheduling(self, name: str, drain: bool) -> Machine:
        group, size = self.groups[name[0]], self.sizes[name[0]]
        return lambda now: self.scheduler.schedule_deletion(
            self.nodes[name], [], group, size, now, drain=drain, groups=self.groups
        )

    def abort(self, names: str) -> None:
        for name in names.split():
            self.tracker.start_deletion(name[0], name, drain=False)
            self.simulation.start(
                lambda now, name=name: self.scheduler.abort(Progress(now), self.nodes[name], name[0], False, ABORTED)
            )
        self.simulation.run()

    def passed_on(self) -> list[str]:
        return [name for _, names in self.world.deleted for name in names]

    def failed(self) -> list[str]:
        results, _ = self.tracker.results(N0)
        return sorted(name for name, item in results.items() if item.result == FAILED)


@pytest.mark.parametrize(
    ("sizes", "first", "abort", "then", "passed", "failed"),
    [
        ({"a": 9}, "a0 a1 a2", "a3 a4 a5", "a6 a7 a8", "a0 a1 a2 a6 a7 a8", "a3 a4 a5"),
        ({"A": 4, "B": 2}, "A0 B0 A1", "", "A2 B1 A3", "B0 B1 A0 A1 A2 A3", ""),
        ({"A": 4, "B": 2}, "A0 A1 B0", "A2", "B1 A3", "B0 B1", "A0 A1 A2 A3"),
    ],
    ids=["individual", "complete", "aborted"],
)
def test_phases(sizes: dict[str, int], first: str, abort: str, then: str, passed: str, failed: str) -> None:
    scene = Scene(sizes)
    scene.scheduler.reset()
    scene.schedule(first)
    scene.abort(abort)
    scene.schedule(then)
    assert scene.passed_on() == passed.split()
    assert scene.failed() == failed.split()
    assert scene.tracker.in_progress() == ca.DeletionsInProgress()


def test_after_a_reset_a_group_is_tried_again() -> None:
    scene = Scene({"A": 4})
    scene.schedule("A0 A1")
    scene.abort("A2")
    scene.schedule("A3")
    assert (scene.passed_on(), scene.failed()) == ([], ["A0", "A1", "A2", "A3"])
    text = "couldn't scale down other nodes in this node group"
    results, _ = scene.tracker.results(N0)
    assert [results[f"A{i}"].error for i in (0, 1, 3)] == [ErrorRecord(type="transientError", message=text)] * 3
    assert results["A2"].error == ABORTED.error
    scene.tracker.clear_results_not_newer_than(N0)
    assert scene.scheduler.reset() == 0
    scene.schedule("A0 A1 A2 A3")
    assert scene.world.deleted == [("A", ["A0", "A1", "A2", "A3"])]
    assert scene.failed() == []


def test_a_group_that_is_not_complete_waits() -> None:
    scene = Scene({"A": 4})
    scene.schedule("A0 A1 A2")
    assert scene.passed_on() == []
    assert scene.scheduler.reset() == 3
    assert scene.tracker.status(N0).deletions == {"A": 3}


def test_last_deletion_of_a_group_reports_whether_all_were_drained() -> None:
    scene = Scene({"A": 2})
    scene.schedule("A0")
    scene.schedule("A1", drain=True)
    messages = [event.message for event in scene.world.events if event.regarding.kind == "ConfigMap"]
    assert messages == ["Scale-down: node A0 removed with drain", "Scale-down: node A1 removed with drain"]


def test_a_group_whose_options_cannot_be_read() -> None:
    scene = Scene({"a": 1})
    scene.groups["a"].options_error = "down"
    scene.schedule("a0")
    result = scene.tracker.results(N0)[0]["a0"]
    assert result.result == "NodeDeleteErrorInternal"
    assert result.error == ErrorRecord(type="internalError", message="GetOptions returned error down")


# -- calls to the cloud ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("groups", "count"), [("a", 1), ("a", 5), ("a b c", 5)])
def test_first_node_of_a_group_is_reported(groups: str, count: int) -> None:
    scene = Scene(dict.fromkeys(groups.split(), count), node_deletion_batcher_interval=timedelta(seconds=9))
    first = [
        scene.batcher.collect([scene.nodes[f"{letter}{i}"]], letter, False)
        for i in range(count)
        for letter in scene.sizes
    ]
    assert sum(first) == len(scene.sizes)
    assert all(first[: len(scene.sizes)])


def test_nodes_of_a_while_go_together() -> None:
    scene = Scene({"a": 4, "b": 1}, node_deletion_batcher_interval=timedelta(seconds=10))
    for second, names in ((0, "a0"), (4, "a1 b0"), (9, "a2"), (10.5, "a3")):
        scene.simulation.run(N0 + span(seconds=second))
        for name in names.split():
            scene.tracker.start_deletion(name[0], name, drain=False)
            scene.simulation.start(scene._scheduling(name, drain=False))
    scene.simulation.run()
    assert scene.world.deleted == [("a", ["a0", "a1", "a2"]), ("b", ["b0"]), ("a", ["a3"])]
    assert scene.simulation.now == N0 + span(seconds=20.5)


def test_one_node_that_is_refused_fails_the_call() -> None:
    scene = Scene({"a": 3}, node_deletion_batcher_interval=timedelta(seconds=10))
    scene.world.cloud_refuses = {"a1"}
    scene.schedule("a0 a1 a2")
    assert scene.failed() == ["a0", "a1", "a2"]
    error = scene.tracker.results(N0)[0]["a0"].error
    assert error == ErrorRecord(type="cloudProviderError", message="failed to delete nodes from group a: cloud says no")
    registered = [(item.group, item.node) for item in scene.tracker.take_registered()]
    assert registered == [("a", None)]
    assert scene.batcher.collect([scene.nodes["a0"]], "a", False)  # the bucket is empty


def test_a_group_that_collected_nothing() -> None:
    scene = Scene({"a": 1}, node_deletion_batcher_interval=timedelta(seconds=10))
    with pytest.raises(AutoscalerError, match="Node Group a is not present in the batch deleter"):
        next(scene.batcher.remove(Progress(N0), "a", scene.groups))


@pytest.mark.parametrize(
    ("groups", "type_", "text"),
    [
        (Groups(), "internalError", "picked node that doesn't belong to a node group: a0"),
        (Groups((), {"a0": "down"}), "cloudProviderError", "failed to find node group for a0: down"),
    ],
)
def test_node_without_group_is_a_failed_deletion(groups: Groups, type_: str, text: str) -> None:
    scene = Scene({"a": 1})

    def machine(now: Moment) -> Steps[None]:
        yield from scene.batcher.add(Progress(now), [scene.nodes["a0"]], "a", False, groups)

    scene.simulation.start(machine)
    scene.simulation.run()
    assert scene.tracker.results(N0)[0]["a0"].error == ErrorRecord(type=type_, message=text)
