"""Parts that pods have in common: what is made at one moment of the very same part in the same way is made once.

Nobody writes to what the simulated API server hands out, so pods may share what is equal. They take less room then, and
whoever looks at many of them looks at each part once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

__all__ = ["SharedParts"]

_Made = TypeVar("_Made")
_Source = TypeVar("_Source")


class SharedParts:
    """Remembers what was made of parts at the present moment. Single owner."""

    def __init__(self) -> None:
        self._at = ""
        self._known: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def made(self, at: str, make: Callable[..., _Made], source: _Source, *how: Hashable) -> _Made:
        """``make(source, *how)``, or what came of that before at this moment."""
        if at != self._at:
            self._at, self._known = at, {}
        key = make, id(source), *how
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = source, make(source, *how)  # which keeps the source: its identity stays its own
        found: _Made = known[1]
        return found
