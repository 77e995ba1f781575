"""Until when a loop finds what the one before it found."""

from __future__ import annotations

import pytest

from kscale.ca import AutoscalingOptions, LoopState
from kscale.ca.backoff import Backoff, ScaleUpError
from kscale.ca.cluster_state import (
    ClusterStateRegistry,
    IncorrectSize,
    ScaleDownRequest,
    ScaleUpFailure,
    ScaleUpRequest,
    UnregisteredNode,
)
from kscale.ca.state import ScaleDownState
from kscale.ca.static_autoscaler.steady import moments_of_nodes, next_difference
from kscale.effects import SECOND
from kscale.objects.core import Node, NodeSpec, Taint
from kscale.objects.meta import ObjectMeta
from kscale.objects.nodegroups import Groups

NOW = 1_790_000_000 * SECOND
SOON, PAST = NOW + 1234 * SECOND + 5, NOW - 10**8 * SECOND
_ERROR = ScaleUpError(class_="Other", code="x", message="y")


@pytest.mark.parametrize(
    "state",
    [
        LoopState(cluster=ClusterStateRegistry(scale_up_requests={
            "g": ScaleUpRequest(increase=1, time=PAST, expected_add_time=SOON)
        })),
        LoopState(cluster=ClusterStateRegistry(scale_down_requests=[
            ScaleDownRequest(group="g", node="n", time=PAST, expected_delete_time=SOON)
        ])),
        LoopState(cluster=ClusterStateRegistry(backoffs={
            "g": Backoff(duration=1, until=SOON, last_failed=PAST, error=_ERROR)
        })),
        LoopState(cluster=ClusterStateRegistry(failures={"g": [ScaleUpFailure(time=SOON, delta=1, error=_ERROR)]})),
        LoopState(cluster=ClusterStateRegistry(unregistered={"i": UnregisteredNode(group="g", since=SOON)})),
        LoopState(cluster=ClusterStateRegistry(incorrect_sizes={
            "g": IncorrectSize(current=1, expected=2, first_observed=SOON)
        })),
        LoopState(scale_down=ScaleDownState(unneeded_since={"n": SOON})),
        LoopState(scale_down=ScaleDownState(unremovable_until={"m": PAST, "n": SOON})),
        LoopState(scale_down=ScaleDownState(last_failure=SOON)),
    ],
)  # fmt: skip
def test_every_moment_that_is_kept_makes_a_difference(state: LoopState) -> None:
    found = next_difference(state, (), Groups(), AutoscalingOptions(), begun=PAST, now=NOW)
    assert found == SOON


def test_what_has_been_is_compared_with_durations() -> None:
    state = LoopState(scale_down=ScaleDownState(unneeded_since={"n": NOW - 590 * SECOND}))
    found = next_difference(state, (), Groups(), AutoscalingOptions(), begun=PAST, now=NOW)
    assert found == NOW + 10 * SECOND  # ten minutes unneeded


@pytest.mark.parametrize("value", ["20261128120000", "9" * 60, "9223372036", "1790000300"])
def test_numbers_of_taints_need_not_be_seconds(value: str) -> None:
    held = tainted("a", value)
    moments = moments_of_nodes([held])
    assert moments == ({int(value) * SECOND} if len(value) == 10 else set())
    found = next_difference(LoopState(), moments, Groups(), AutoscalingOptions(), begun=NOW, now=NOW)
    assert found == NOW + 2 * SECOND


def tainted(name: str, value: str) -> Node:
    return Node(metadata=ObjectMeta(name=name), spec=NodeSpec(taints=[Taint("upgraded", value, "NoSchedule")]))
