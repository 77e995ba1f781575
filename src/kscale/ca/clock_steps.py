"""What a loop keeps, after somebody has set the clock: the moments go with it, so that what is left to wait stays.

Go's times hold both clocks: differences between two of its own it takes by the one that is never set, and what the API
says it compares with the one that others see.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from kscale.effects import ZERO_TIME, Moment

__all__ = ["moved"]

_T = TypeVar("_T", bound=msgspec.Struct)
_MOMENT: Final = re.compile(r"\bMoment\b")


def moved(state: _T, by: int) -> _T:
    """The same with every moment later by ``by`` nanoseconds, at any depth: members whose type names :data:`Moment`.

    A moment that stands for none (:data:`ZERO_TIME`) stays.
    """
    changes = {}
    for name in state.__struct_fields__:
        old = getattr(state, name)
        new = _later(old, by) if name in _moments(type(state)) else _inside(old, by)
        if new is not old:
            changes[name] = new
    return msgspec.structs.replace(state, **changes) if changes else state


@cache
def _moments(of: type) -> frozenset[str]:
    """The members of a type that are moments, or hold them by key."""
    told = {name: str(text) for base in of.__mro__ for name, text in getattr(base, "__annotations__", {}).items()}
    return frozenset(name for name, text in told.items() if _MOMENT.search(text))


def _later(value: Any, by: int) -> Any:
    if isinstance(value, dict):
        return {key: _later(each, by) for key, each in value.items()} if value else value
    if value is None or value == ZERO_TIME:
        return value
    moment: Moment = value + by
    return moment


def _inside(value: Any, by: int) -> Any:
    if isinstance(value, msgspec.Struct):
        return moved(value, by)
    if isinstance(value, dict):
        made = {key: _inside(each, by) for key, each in value.items()}
        return made if any(made[key] is not value[key] for key in value) else value
    if isinstance(value, list):
        items = [_inside(each, by) for each in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value
