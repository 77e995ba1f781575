"""The first scale-up of groups that were made in the background: upstream's table, and what goes wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from builders import N0, Ran, run_steps
from kscale import ca
from kscale.ca.cluster_state import ClusterStateRegistry
from kscale.effects import ApiError, CreatedGroups, IncreaseSize
from kscale.objects.nodegroup import NodeGroup

_CREATED = CreatedGroups(main=NodeGroup(id="ng", max_size=10), extra=(NodeGroup(id="ng-1", max_size=5),))
_KNOWN = {"ng": "upcoming", "ng-1": "upcoming-1"}


def _initialize(initializer: ca.AsyncInitializer, *answers: Any, created: Any = _CREATED, known: Any = _KNOWN) -> Ran:
    steps = ca.initialize_node_groups_steps(
        initializer, created, upcoming_of=known, state=ClusterStateRegistry(), now=N0
    )
    return run_steps(steps, *answers)


@pytest.mark.parametrize(("target", "processed", "delta"), [(3, 0, 3), (5, 3, 2), (3, 3, None), (2, 3, None)])
def test_missing_size_is_added_after_creation(target: int, processed: int, delta: int | None) -> None:
    before = ca.AsyncInitializer(
        pods=["d/p"], target_sizes={"upcoming": target}, processed_sizes={"upcoming": processed}
    )
    ran = _initialize(before)
    actions, done = ran
    if delta is None:
        assert (actions, done.status, done.initializer) == ([], None, before)
        return
    assert actions == [IncreaseSize(group="ng", delta=delta)]
    assert [str(info) for info in done.status.scale_ups] == [f"{{ng {processed}->{target} (max: 10)}}"]
    assert (done.status.result, done.status.pods_triggered) == ("ScaleUpSuccessful", ["d/p"])
    assert done.initializer.processed_sizes == {"upcoming": target}
    assert done.state.scale_up_requests["ng"].increase == delta
    assert ran.events[-1].message == f"pod triggered scale-up: [{{ng {processed}->{target} (max: 10)}}]"
    assert _initialize(done.initializer).value.status is None


def test_additional_groups_get_their_sizes() -> None:
    before = ca.AsyncInitializer(atomic=True).with_target_size("upcoming", 2).with_changed_target_size("upcoming-1", 1)
    actions, _ = _initialize(before)
    assert actions == [
        IncreaseSize(group="ng", delta=2, atomic=True),
        IncreaseSize(group="ng-1", delta=1, atomic=True),
    ]


def test_sizes_do_not_go_below_nothing() -> None:
    initializer = ca.AsyncInitializer().with_changed_target_size("g", 2).with_changed_target_size("g", -5)
    assert initializer.target_size("g") == 0
    assert initializer.target_size("other") == 0


def test_unknown_group_keeps_its_size() -> None:
    before = ca.AsyncInitializer(target_sizes={"upcoming": 2, "upcoming-1": 1})
    actions, done = _initialize(before, known={"ng": "upcoming"})
    assert actions == [IncreaseSize(group="ng", delta=2)]
    assert done.warnings == ["nothing is known of new node group ng-1: it stays as it is"]


def test_a_creation_that_failed() -> None:
    before = ca.AsyncInitializer(pods=["d/p"], target_sizes={"upcoming": 2})
    actions, done = _initialize(before, created=ApiError("no quota"))
    assert (actions, done.initializer) == ([], before)
    assert (done.status.result, done.status.error.type, done.status.error.message) == (
        "ScaleUpError",
        "internalError",
        "no quota",
    )


def test_a_resize_that_failed_is_not_tried_again() -> None:
    before = ca.AsyncInitializer(pods=["d/p"], target_sizes={"upcoming": 2})
    _, done = _initialize(before, ca.AutoscalerError("", "down"))
    assert (done.status.result, done.status.failed_resize_groups) == ("ScaleUpError", ["ng"])
    assert done.status.pods_triggered == ["d/p"]
    assert [created.main for created in done.status.created_groups] == ["ng"]
    assert "ng" in done.state.backoffs
    assert done.initializer.processed_sizes == {"upcoming": 2}


def test_initializer_survives_json() -> None:
    before = ca.AsyncInitializer(pods=["d/p"], atomic=True, target_sizes={"a": 2}, processed_sizes={"a": 1})
    assert msgspec.json.decode(msgspec.json.encode(before), type=ca.AsyncInitializer) == before
