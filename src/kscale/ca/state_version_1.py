"""Loop states as version 1 wrote them: moments and durations as texts, where they are nanoseconds now."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import msgspec

from kscale.effects import duration
from kscale.objects.times import nanoseconds

__all__ = ["upgraded"]


def _moment(text: Any) -> Any:
    return nanoseconds(text) if isinstance(text, str) else text


def _duration(text: Any) -> Any:
    return duration(msgspec.convert(text, timedelta)) if isinstance(text, str) else text


_EVERY: Final = "*"
_MOMENTS: Final = {_EVERY: _moment}
_TEXTS: Final = {
    "cluster": {
        "scaleUpRequests": {_EVERY: {"time": _moment, "expectedAddTime": _moment}},
        "scaleDownRequests": [{"time": _moment, "expectedDeleteTime": _moment}],
        "backoffs": {_EVERY: {"duration": _duration, "until": _moment, "lastFailed": _moment}},
        "failures": {_EVERY: [{"time": _moment}]},
        "unregistered": {_EVERY: {"since": _moment}},
        "incorrectSizes": {_EVERY: {"firstObserved": _moment}},
    },
    "scaleDown": {
        "unneededSince": _MOMENTS,
        "unremovableUntil": _MOMENTS,
        "changes": {"scaleUp": _MOMENTS, "scaleDown": _MOMENTS, "scaleDownFailure": _MOMENTS},
        "lastUpdate": _moment,
        "lastScaleUp": _moment,
        "lastScaleDown": _moment,
        "lastFailure": _moment,
        "usage": {"records": {_EVERY: {"using": _MOMENTS, "usedBy": _MOMENTS}}},
    },
    "templates": {_EVERY: {"added": _moment}},
}
"""Where the texts are: members by name or all of them, items of a list, and how each is read."""


def upgraded(state: dict[str, Any]) -> dict[str, Any]:
    """The same state in the form of version 2. Raises ValueError for a text that is no time; what has another shape
    than a state is left to whoever reads it."""
    found: dict[str, Any] = _read(state, _TEXTS)
    return found


def _read(found: Any, how: dict[str, Any] | list[Any] | Callable[[Any], Any] | None) -> Any:
    if callable(how):
        return how(found)
    if isinstance(how, list) and isinstance(found, list):
        return [_read(each, how[0]) for each in found]
    if isinstance(how, dict) and isinstance(found, dict):
        return {key: _read(value, how.get(key, how.get(_EVERY))) for key, value in found.items()}
    return found
