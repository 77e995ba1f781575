"""Events as data: what upstream would tell the API server."""

from __future__ import annotations

import msgspec

__all__ = ["Event"]


class Event(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """One event. ``object`` is ``Kind/namespace/name``, of a node ``Node/name``; ``type`` is Normal or Warning."""

    object: str
    type: str
    reason: str
    message: str
