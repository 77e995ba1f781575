"""What was noted of pods as columns, one pod at a time."""

from __future__ import annotations

from typing import Any

from reference.usual_texts import ODD, is_plain_name, printed_moment, printed_number

__all__ = ["is_usual", "key_of", "moments_of", "row_of"]

_READY = {None: 0, b"True": 1, b"False": 2}


def is_usual(
    texts: dict[str, bytes | None], looks: dict[str, Any], combined: int, size: int, listed: bool
) -> bool | None:
    """Whether columns can tell a pod; None: what it stands for is not known yet. ``looks``: of its combination."""
    class_of = looks["settled" if texts["node"] or texts["nominated"] else "waiting"]
    if not looks["known"] or class_of == -2:
        return None
    return (
        (class_of >= 0 or combined == -2)
        and (listed or not looks["bare"])
        and size < 2**31
        and is_plain_name(texts["name"] or b"")
        and (texts["version"] is None or printed_number(texts["version"]) >= 0)
    )


def key_of(texts: dict[str, bytes | None], namespace: str) -> str:
    """``namespace/name``."""
    return f"{(texts['namespace'] or namespace.encode()).decode()}/{(texts['name'] or b'').decode()}"


def moments_of(texts: dict[str, bytes | None]) -> dict[str, int | None]:
    """Its times in nanoseconds, -2**63 where there is none; None for those that are written unusually."""
    result: dict[str, int | None] = {}
    for name in ("created", "started", "deleted", "since"):
        text = texts[name]
        moment = -(2**63) if text is None else printed_moment(text)
        result[name] = None if moment == ODD else moment
    return result


def row_of(texts: dict[str, bytes | None], looks: dict[str, Any], placed: int, finished: int) -> dict[str, Any]:
    """What the columns say of a pod besides where its texts are. ``node``: the name of the node that it is on."""
    node = texts["node"] or texts["nominated"]
    kind = "settled" if node else "waiting"
    version = texts["version"]
    return {
        "class_of": looks[kind],
        "shape": looks[f"{kind}_shape"],
        "controller": looks["controller"],
        "queueing": looks["queueing"],
        "priority": looks["priority"],
        "phase": looks["phase"],
        "state": finished if looks["done"] else placed if node else looks["unplaced"],
        "bound": int(bool(texts["node"])),
        "ready": _READY.get(texts["ready"], 3),
        "version": -1 if version is None else printed_number(version),
        "node": (texts["node"] if looks["done"] else node) or None,
    }
