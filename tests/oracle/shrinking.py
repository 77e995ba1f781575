"""Makes a case small by its structure, as long as it shows the same difference.

Works on any JSON value, whoever drew or recorded it. Candidates are tried in batches, since asking many cases at once
costs little more than asking one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

__all__ = ["candidates", "shrink"]

_BATCH = 64

Path = tuple[Any, ...]


def shrink(
    value: Any,
    differs: Callable[[Sequence[Any]], Sequence[bool]],
    *,
    fixed: frozenset[str] = frozenset(),
    seconds: float = 30.0,
) -> Any:
    """Return a smaller value that still differs.

    ``differs`` tells for each of several values whether it shows the difference. What stands under a ``fixed`` key is
    left alone. Ends when no candidate differs, or when the time is over.
    """
    end = time.monotonic() + seconds
    skip = 0
    while time.monotonic() < end:
        position = skip
        better = None
        remaining = islice(candidates(value, fixed), skip, None)
        while better is None and time.monotonic() < end:
            batch = list(islice(remaining, _BATCH))
            if not batch:
                break
            verdicts = differs(batch)
            for candidate, verdict in zip(batch, verdicts, strict=True):
                if verdict:
                    better = candidate
                    break
                position += 1
        if better is not None:
            value, skip = better, position
        elif skip:
            skip = 0  # what failed before may do now
        else:
            break
    return value


def candidates(value: Any, fixed: frozenset[str] = frozenset()) -> Iterator[Any]:
    """Yield simpler values, the ones that remove most first."""
    for path, part in _parts(value, fixed):
        for simpler in _simpler(part, fixed):
            yield _replaced(value, path, simpler)


def _parts(value: Any, fixed: frozenset[str]) -> Iterator[tuple[Path, Any]]:
    """Yield every part of a value with its path, outer parts first."""
    level: list[tuple[Path, Any]] = [((), value)]
    while level:
        yield from level
        level = [
            ((*path, key), child)
            for path, part in level
            for key, child in (
                part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
            )
            if key not in fixed or isinstance(child, dict)
        ]


def _simpler(part: Any, fixed: frozenset[str]) -> Iterator[Any]:
    if isinstance(part, list):
        size = len(part)
        while size:
            for start in range(0, len(part), size):
                yield part[:start] + part[start + size :]
            size //= 2
    elif isinstance(part, dict):
        for key in part.keys() - fixed:
            yield {name: child for name, child in part.items() if name != key}
    elif isinstance(part, bool):
        if part:
            yield False
    elif isinstance(part, int):
        for number in (0, 1, part // 2 if part > 0 else -(-part // 2)):
            if abs(number) < abs(part):
                yield number
    elif isinstance(part, str) and part:
        for text in ("", part[: len(part) // 2], part[:-1], part[1:]):
            if len(text) < len(part):
                yield text


def _replaced(value: Any, path: Path, part: Any) -> Any:
    """Return a copy of a value with another part; what lies beside the path is shared."""
    if not path:
        return part
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _replaced(value[path[0]], path[1:], part)
    return copy
