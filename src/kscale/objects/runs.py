"""Which parts of what was joined were parts before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Run", "runs_of"]


class Run(NamedTuple):
    """Parts from ``first`` up to ``end`` which were parts before, from ``before`` on, in the same order; -1: they were
    not."""

    first: int
    end: int
    before: int


def runs_of(parts: Sequence[object], before: Sequence[object]) -> list[Run]:
    """All parts, in runs as long as can be: which are the very same as before, and where these were."""
    where = {id(part): i for i, part in enumerate(before)}
    found: list[Run] = []
    for i, part in enumerate(parts):
        at = where.get(id(part), -1)
        last = found[-1] if found else None
        if last is not None and at == (-1 if last.before < 0 else last.before + i - last.first):
            found[-1] = Run(last.first, i + 1, last.before)
        else:
            found.append(Run(i, i + 1, at))
    return found
