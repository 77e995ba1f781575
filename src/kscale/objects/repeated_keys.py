"""Keys that come twice in one JSON object: readers disagree on which one counts, so that none is taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kscale._native import _projection
from kscale.errors import InputError, Problem
from kscale.objects.object_head import deep_field

__all__ = ["refuse_repeated_keys"]


class _Pairs(list[tuple[str, Any]]):
    """An object as it is written."""


def refuse_repeated_keys(text: bytes | memoryview | Any) -> None:
    """Raises InputError, with the field path of the key, for a JSON text that decodes but has a key twice."""
    if not _projection.repeats_a_key(text):
        return
    import json

    readable = bytes(text).decode("utf-8", "replace")  # parts that nobody decodes may be no UTF-8
    try:
        written = json.loads(readable, object_pairs_hook=_Pairs, parse_int=str, parse_float=str, parse_constant=str)
        path, key = next(_repeated(written, ""))
    except RecursionError:
        raise InputError(Problem("a key comes twice", field=deep_field(memoryview(text)))) from None
    raise InputError(Problem(f"the key {key} comes twice", field=path))


def _repeated(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """(path, key) of each, in the order of the text."""
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, item in value:
            here = f"{path}[{key}]" if "." in key or "/" in key else f"{path}.{key}".removeprefix(".")
            if key in seen:
                yield here, key
            seen.add(key)
            yield from _repeated(item, here)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _repeated(item, f"{path}[{index}]")
