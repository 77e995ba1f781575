"""What is given instead of objects: answers of an API server without any, and what is no text."""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = ["why_no_object", "why_no_text"]

_ANSWERS: Final = {"Status": "v1", "Table": "meta.k8s.io/"}
"""The kind, and how its version begins."""


def why_no_object(api_version: str, kind: str, data: msgspec.Raw | dict[str, Any]) -> str | None:
    """What is wrong with an answer that holds no object; None for what is no such answer."""
    version = _ANSWERS.get(kind)
    if version is None or not api_version.startswith(version):
        return None
    if kind == "Table":
        return "a Table for people to read, not objects: dump them with -o json"
    try:
        found: Any = msgspec.json.decode(data) if isinstance(data, msgspec.Raw) else data
    except (ValueError, RecursionError):  # not UTF-8, or nested too deeply
        found = {}
    texts = (found.get(name) for name in ("message", "reason", "status"))
    said = next((text for text in texts if text and isinstance(text, str)), "no message")
    return f"the API server answered with an error, not with objects: {said}"


def why_no_text(content: bytes) -> str | None:
    """Why bytes are no text at all."""
    if b"\0" in content:
        return "binary data"
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte {error.start} is 0x{content[error.start]:02x}"
    return None
