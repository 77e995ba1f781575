"""What an API server does with patches, on plain data.

Upstream: ``apimachinery/pkg/util/strategicpatch``, ``evanphx/json-patch``; of the former the lists that are written
here: those with a merge key below.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["PatchError", "json_patch", "merge", "strategic"]

_MERGE_KEYS: Final = {
    "conditions": "type", "containers": "name", "ownerReferences": "uid", "webhooks": "name", "env": "name"
}  # fmt: skip
_NOTHING: Final = object()


class PatchError(ValueError):
    """A JSON patch that does not apply."""


def merge(value: Any, patch: Any) -> Any:
    """A merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    found = dict(value) if isinstance(value, dict) else {}
    for key, part in patch.items():
        if part is None:
            found.pop(key, None)
        else:
            found[key] = merge(found.get(key), part)
    return found


def strategic(value: Any, patch: Any, field: str = "") -> Any:
    """Maps merge; lists of known fields merge by their key, all others are replaced."""
    if isinstance(patch, dict):
        found = dict(value) if isinstance(value, dict) else {}
        for key, part in patch.items():
            if part is None:
                found.pop(key, None)
            else:
                found[key] = strategic(found.get(key), part, key)
        return found
    if isinstance(patch, list) and field in _MERGE_KEYS:
        name = _MERGE_KEYS[field]
        found_list = list(value or [])
        for part in patch:
            at = next((i for i, each in enumerate(found_list) if each.get(name) == part.get(name)), None)
            if at is None:
                found_list.append(copy.deepcopy(part))
            else:
                found_list[at] = strategic(found_list[at], part)
        return found_list
    return copy.deepcopy(patch)


def json_patch(value: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """A JSON patch (RFC 6902) without move and copy. Raises :class:`PatchError`.

    What it changes is copied, the rest is shared with what was given.
    """
    for each in operations:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in each["path"].split("/")[1:]]
        value = _patched(value, parts, each)
    return value


def _patched(target: Any, parts: Sequence[str], each: Mapping[str, Any]) -> Any:
    """A map or a list after one operation further down, or in it."""
    target = target.copy()
    if len(parts) == 1:
        _apply(target, parts[0], each)
        return target
    part = parts[0]
    below = _at(target, part)
    if not isinstance(below, list | dict):
        raise PatchError(f"{each['op']} operation does not apply: doc is missing path: {each['path']}")
    target[int(part) if isinstance(target, list) else part] = _patched(below, parts[1:], each)
    return target


def _apply(target: Any, last: str, each: Mapping[str, Any]) -> None:
    here, key = _at(target, last), int(last) if isinstance(target, list) and last.isdigit() else last
    match each["op"]:
        case "test":
            if here != each.get("value"):
                raise PatchError(f"testing value {each['path']} failed")
        case "remove":
            if here is _NOTHING:
                raise PatchError(f"remove operation does not apply: doc is missing key: {each['path']}")
            del target[key]
        case "add" if isinstance(target, list):
            target.insert(len(target) if last == "-" else int(last), each["value"])
        case "replace" if here is _NOTHING:
            raise PatchError(f"replace operation does not apply: doc is missing key: {each['path']}")
        case _:
            target[key] = each["value"]


def _at(target: Any, key: str) -> Any:
    if isinstance(target, list):
        return target[int(key)] if key.isdigit() and int(key) < len(target) else _NOTHING
    return target.get(key, _NOTHING) if isinstance(target, dict) else _NOTHING
