"""What a loop keeps goes with the clock."""

from __future__ import annotations

import json
from typing import Any

from kscale import ca
from kscale.ca.cluster_state.state import (
    Backoff,
    ClusterStateRegistry,
    IncorrectSize,
    ScaleDownRequest,
    ScaleUpError,
    ScaleUpRequest,
    UnregisteredNode,
)
from kscale.ca.loop_state import GroupChanges, LoopState, RememberedTemplate, ScaleDownState, shift_moments
from kscale.effects import ZERO_TIME

NOW = 1_795_387_796 * 10**9
HOUR = 3600 * 10**9
FULL = ScaleUpError(class_="Other", code="x", message="full")

STATE = LoopState(
    cursor=3,
    cluster=ClusterStateRegistry(
        scale_up_requests={"a": ScaleUpRequest(increase=2, time=NOW, expected_add_time=NOW + 5)},
        scale_down_requests=[ScaleDownRequest(group="a", node="n", time=NOW, expected_delete_time=NOW + 9)],
        backoffs={
            "a": Backoff(
                duration=HOUR,
                until=NOW + HOUR,
                last_failed=NOW,
                error=FULL,
            )
        },
        unregistered={"i": UnregisteredNode(group="a", since=NOW - 1)},
        incorrect_sizes={"a": IncorrectSize(current=1, expected=2, first_observed=NOW)},
        last_update=NOW,
    ),
    scale_down=ScaleDownState(
        unneeded_since={"n": NOW - 7, "m": NOW},
        unremovable_until={"m": NOW + 300},
        update_interval=10**10,
        changes=GroupChanges(scale_up={"a": NOW}),
        last_scale_up=ZERO_TIME,
        last_scale_down=NOW,
    ),
    templates={"a": RememberedTemplate(template={"n": 1}, added=NOW)},
)


def numbers(data: Any, path: str = "") -> dict[str, Any]:
    if isinstance(data, dict):
        return {at: each for key, value in data.items() for at, each in numbers(value, f"{path}/{key}").items()}
    if isinstance(data, list):
        return {at: each for i, value in enumerate(data) for at, each in numbers(value, f"{path}/{i}").items()}
    return {path: data}


def test_every_moment_moves_and_nothing_else_does() -> None:
    before, after = (numbers(json.loads(state.to_json())) for state in (STATE, shift_moments(STATE, HOUR)))
    assert before.keys() == after.keys()
    result = {path: after[path] - value for path, value in before.items() if after[path] != value}
    assert result == {path: HOUR for path, value in before.items() if isinstance(value, int) and value >= NOW - 10**9}
    assert len(result) == 15
    assert shift_moments(shift_moments(STATE, HOUR), -HOUR) == STATE


def test_state_without_times_is_returned_unchanged() -> None:
    state = ca.LoopState(cursor=7)
    assert shift_moments(state, HOUR) is state
