"""The loop state as JSON, and the values that public functions accept as a time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
import pytest

import kscale
from kscale import ca
from kscale.effects import Moment, from_text
from kscale.errors import InputError, StateError
from kscale.objects.nodegroup import Groups

TIME = "2026-05-04T12:00:00.250000Z"
LATER = "2026-05-04T12:15:00.250000Z"
ERROR = {"class": "Other", "code": "quota", "message": "no"}


def _saved_state() -> dict[str, Any]:
    """Return a saved state in which every member that holds a time is set."""
    now, then, duration = from_text(TIME), from_text(LATER), 300_001_000_000
    return {
        "kind": "LoopState",
        "version": 2,
        "cluster": {
            "scaleUpRequests": {"g": {"increase": 2, "time": now, "expectedAddTime": then}},
            "scaleDownRequests": [{"group": "g", "node": "n", "time": now, "expectedDeleteTime": then}],
            "backoffs": {"g": {"duration": duration, "until": then, "lastFailed": now, "error": ERROR}},
            "failures": {"g": [{"time": now, "delta": 2, "error": ERROR}]},
            "unregistered": {"i": {"group": "g", "since": now}},
            "incorrectSizes": {"g": {"current": 1, "expected": 2, "firstObserved": now}},
        },
        "scaleDown": {
            "unneededSince": {"n": now},
            "unremovableUntil": {"m": now},
            "updateInterval": 7,
            "lastUpdate": now,
            "changes": {"scaleUp": {"g": now}, "scaleDown": {"g": now}, "scaleDownFailure": {"g": now}},
            "lastScaleUp": now,
            "lastScaleDown": now,
            "lastFailure": now,
            "started": True,
            "usage": {"records": {"n": {"using": {"m": now}, "usedBy": {"k": then}}}},
        },
        "templates": {"g": {"template": {"node": {"metadata": {"name": "t"}}}, "added": now}},
    }


def test_every_time_survives_the_round_trip() -> None:
    saved = _saved_state()
    state = ca.LoopState.from_json(msgspec.json.encode(saved))
    assert state.cluster.backoffs["g"].duration == 300_001_000_000
    assert state.scale_down.last_update == from_text(TIME)
    written = msgspec.json.decode(state.to_json())
    assert written["version"] == 2
    assert ca.LoopState.from_json(state.to_json()) == state
    for part in ("scaleDown", "templates"):
        assert written[part] == saved[part]


def test_nothing_is_a_state_too() -> None:
    assert ca.LoopState.from_json(ca.LoopState().to_json()) == ca.LoopState()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a saved loop state"),
        ("[]", "not a saved loop state"),
        (None, "not a saved loop state"),
        ('{"kind": "Other", "version": 2}', "not a saved loop state: its kind is 'Other'"),
        ('{"kind": "LoopState", "version": 3}', "a loop state of version 3; this is version 2"),
        ('{"kind": "LoopState", "version": 0}', "a loop state of version 0; this is version 2"),
        ('{"kind": "LoopState", "version": true}', "a loop state of version True; this is version 2"),
        ('{"kind": "LoopState"}', "a loop state of version None; this is version 2"),
        (f'{{"kind": "LoopState", "version": 2, "scaleDown": {{"lastUpdate": "{TIME}"}}}}', "Expected `int"),
        ('{"kind": "LoopState", "version": 1}', "a loop state of version 1; this is version 2"),
    ],
)
def test_invalid_state_is_refused(text: Any, message: str) -> None:
    with pytest.raises(StateError) as refused:
        ca.LoopState.from_json(text)
    assert message in str(refused.value)


_EMPTY = kscale.Cluster([]).snapshot()
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "scale_up": lambda now: kscale.scale_up(kscale.Cluster([]), [], now=now),
    "scale_up_steps": lambda now: next(ca.scale_up_steps(kscale.Cluster([]), [], now=now)),
    "scale_down": lambda now: kscale.scale_down(_EMPTY, [], now=now),
    "orchestrate": lambda now: ca.orchestrate(
        _EMPTY, [], ca.ScaleUpContext(groups=Groups(), nodes=[], templates={}, state=ca.LoopState().cluster), now=now
    ),
    "repair_steps": lambda now: next(ca.repair_steps(ca.LoopState().cluster, Groups(), now=now)),
    "simulate_removals": lambda now: ca.simulate_removals(_EMPTY, [], now=now),
    "drainability": lambda now: ca.check_drainability([], now=now),
    "register_group_change": lambda now: ca.register_group_change(ca.LoopState(), "scale_up", "g", now),
}


@pytest.mark.parametrize("function", _FUNCTIONS)
@pytest.mark.parametrize("now", [datetime(2026, 5, 4), TIME, 1777896000.0, True, None])  # noqa: DTZ001  # a time without a zone is refused
def test_a_time_without_zone_a_text_or_a_float_is_refused_by_name(function: str, now: Moment) -> None:
    with pytest.raises(InputError, match=r"^(now|time): "):
        _FUNCTIONS[function](now)
