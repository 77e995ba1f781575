"""API data as plain dicts and lists: read so that nothing is lost, and changed as a struct made of it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["NumberText", "plain", "with_changes"]


class NumberText(str):
    """A number with a fraction or an exponent, as the JSON text writes it: quantities keep their form."""

    __slots__ = ()


_PLAIN = msgspec.json.Decoder(float_hook=NumberText)


def plain(raw: msgspec.Raw | bytes | str) -> dict[str, Any]:
    """An object's JSON text as plain data."""
    found: dict[str, Any] = _PLAIN.decode(raw)
    return found


def with_changes(data: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """``data`` with what differs from ``before`` to ``after`` changed in it too.

    ``before`` is what a struct keeps of ``data``, ``after`` the struct as it is now, both as plain data: what the
    struct does not keep stays. Lists of one length are changed element by element, others replaced.
    """
    changed = {name: value for name, value in data.items() if name not in before or name in after}
    for name, value in after.items():
        if name not in before:
            changed[name] = value
        elif before[name] != value:
            changed[name] = _changed(data.get(name), before[name], value)
    return changed


def _changed(data: Any, before: Any, after: Any) -> Any:
    if before == after:
        return data
    if all(isinstance(each, Mapping) for each in (data, before, after)):
        return with_changes(data, before, after)
    if all(isinstance(each, list) for each in (data, before, after)) and len(data) == len(before) == len(after):
        return [_changed(*each) for each in zip(data, before, after, strict=True)]
    return after
