"""Candidates of scale-down and their order: upstream's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from builders import N0, pod
from kscale import ca
from kscale.ca.loop_state import GroupChanges, update_group_changes
from kscale.ca.scale_down.candidates import (
    EMPTY_TIER,
    NOT_EMPTY_TIER,
    ON_COMPLETION_TIER,
    filter_out_delayed,
    filter_out_rolling_out,
    prefilter_nodes,
    sort_by_scores,
    sort_by_tier,
)
from kscale.ca.scale_down.drainability import PodsToMove
from kscale.ca.unremovable_reasons import BlockingPod
from kscale.effects import SECOND
from kscale.objects.nodegroup import Groups, NodeGroup

MINUTE = 60 * SECOND


def test_groups_at_their_minimum_are_not_looked_at() -> None:
    groups = Groups(
        [
            NodeGroup(id="ng1", min_size=1, target_size=2, nodes=["a", "b"]),
            NodeGroup(id="ng2", min_size=1, target_size=1, nodes=["c"]),
            NodeGroup(id="ng3", target_size_error="down", nodes=["d"]),
        ],
        {"f": "down"},
    )
    assert prefilter_nodes(["a", "c", "b", "d", "loose", "f"], groups) == ["a", "b"]


def test_machines_that_are_being_replaced_stay() -> None:
    groups = Groups(
        [
            NodeGroup(id="calm", target_size=2, nodes=["a", "b"]),
            NodeGroup(id="rolling", target_size=2, nodes=["c", "d"], rolling_out=True),
            NodeGroup(id="unknown", target_size=1, nodes=["e"], rolling_out_error="who knows"),
        ],
    )
    assert filter_out_rolling_out(["d", "b", "e", "c", "a"], groups) == (["b", "a"], ["d", "c"])
    assert filter_out_rolling_out(["b", "a"], Groups([groups["calm"]])) == (["b", "a"], [])


_EMPTY = PodsToMove()
_WAITING = PodsToMove(on_completion_pods=[pod("p")])
_FULL = PodsToMove(pods=[pod("p")])
_BLOCKED = PodsToMove(blocking=BlockingPod(pod="default/p", reason="NotReplicated"))


def _sort(nodes: Mapping[str, PodsToMove | None], previous: Sequence[str]) -> list[str]:
    def tier(to_move: PodsToMove | None) -> int:
        if to_move is None or to_move.blocking is not None or to_move.pods:
            return NOT_EMPTY_TIER
        return ON_COMPLETION_TIER if to_move.on_completion_pods else EMPTY_TIER

    return sort_by_tier([*nodes], [*map(tier, nodes.values())], previous)


def test_order() -> None:
    result: dict[str, PodsToMove | None] = {
        "full": _FULL,
        "unknown": None,
        "full-before": _FULL,
        "waiting": _WAITING,
        "empty": _EMPTY,
        "waiting-before": _WAITING,
        "blocked": _BLOCKED,
        "empty-before": _EMPTY,
        "daemons": PodsToMove(daemon_set_pods=[pod("p")]),
    }
    previous = ["full-before", "waiting-before", "empty-before"]
    assert _sort(result, previous) == [
        "empty-before",
        "empty",
        "daemons",
        "waiting-before",
        "waiting",
        "full-before",
        "full",
        "unknown",
        "blocked",
    ]


@pytest.mark.parametrize(
    ("scores", "want"),
    [
        ([[], [], [], [], []], "0 1 2 3 4"),
        ([[3], [4], [1], [2], [0]], "1 0 3 2 4"),
        ([[3, 5], [4, 0], [1, 2], [2, 4], [0, 5]], "1 0 3 2 4"),
        ([[4, 5], [4, 0], [1, 2], [2, 4], [0, 5]], "0 1 3 2 4"),
        ([[1, 1, 1], [1, 1, 2], [1, 1, 3], [1, 2, 1], [2, 1, 1]], "4 3 2 1 0"),
    ],
    ids=["none", "one", "first-decides", "second-decides", "third-decides"],
)
def test_the_higher_score_goes_first(scores: list[list[int]], want: str) -> None:
    names = [str(i) for i in range(len(scores))]
    assert sort_by_scores(names, [*zip(*scores, strict=True)]) == want.split()


@pytest.mark.parametrize(
    ("first", "second", "earlier"),
    [
        (_EMPTY, _FULL, True),
        (_EMPTY, None, True),
        (_FULL, None, False),
        (None, _FULL, False),
        (_EMPTY, _EMPTY, False),
        (_EMPTY, _WAITING, True),
        (_WAITING, _EMPTY, False),
        (_WAITING, _FULL, True),
        (_EMPTY, _BLOCKED, True),
    ],
)
def test_emptier_node_is_removed_first(first: PodsToMove | None, second: PodsToMove | None, earlier: bool) -> None:
    result = {"first": first, "second": second}
    assert (_sort({name: result[name] for name in ("second", "first")}, [])[0] == "first") is earlier


@pytest.mark.parametrize("before", [[], ["a"], ["b"], ["a", "b"]])
def test_previously_unneeded_node_is_removed_first(before: list[str]) -> None:
    assert (_sort({"b": _EMPTY, "a": _EMPTY}, before)[0] == "a") is (before == ["a"])


@pytest.mark.parametrize("kind", ["scale_up", "scale_down", "scale_down_failure"])
def test_local_delays(kind: str) -> None:
    groups = Groups([NodeGroup(id=f"ng-{i}", nodes=[f"n{i}"]) for i in (1, 2, 3)], {"n4": "down"})
    options = ca.AutoscalingOptions(
        scale_down_delay_after_add=timedelta(minutes=10),
        scale_down_delay_after_delete=timedelta(minutes=10),
        scale_down_delay_after_failure=timedelta(minutes=10),
    )
    changes = update_group_changes(GroupChanges(), kind, "ng-2", N0 - 5 * MINUTE)
    changes = update_group_changes(changes, kind, "ng-3", N0 - 11 * MINUTE)
    names = ["n1", "n2", "n3", "n4", "loose"]
    assert filter_out_delayed(names, groups, changes, options=options, now=N0) == ["n1", "n3"]
    assert filter_out_delayed(["n2"], groups, changes, options=options, now=N0 + 5 * MINUTE) == ["n2"]
