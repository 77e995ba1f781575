"""Outcomes of actions and their errors."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kscale.effects.moments import SECOND, Moment

__all__ = [
    "ALREADY_EXISTS",
    "CANCELED",
    "CONFLICT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "TOO_MANY_REQUESTS",
    "ApiError",
    "Outcome",
]

CONFLICT: Final = "Conflict"
NOT_FOUND: Final = "NotFound"
ALREADY_EXISTS: Final = "AlreadyExists"
TOO_MANY_REQUESTS: Final = "TooManyRequests"


class ApiError(msgspec.Struct, frozen=True, omit_defaults=True):
    """Error of the API server or of a cloud.

    - ``message``: text for a person.
    - ``code``: the HTTP status, 0 without one (a cloud, a broken connection).
    - ``reason``: reason of the API's status (``Conflict``, ``NotFound``, ``TooManyRequests``, ...); of a cloud the type
      of its error.
    - ``causes``: the types of the status's causes, in order.
    - ``retry_after``: nanoseconds after which the server asks for a retry, or None.
    """

    message: str
    code: int = 0
    reason: str = ""
    causes: tuple[str, ...] = ()
    retry_after: int | None = None

    @property
    def is_conflict(self) -> bool:
        return self.reason == CONFLICT

    @property
    def is_not_found(self) -> bool:
        return self.reason == NOT_FOUND

    @property
    def is_already_exists(self) -> bool:
        return self.reason == ALREADY_EXISTS

    @property
    def retry_after_seconds(self) -> int | None:
        """Return ``retry_after`` in seconds, as in the ``Retry-After`` header, or None."""
        return None if self.retry_after is None else self.retry_after // SECOND


DEADLINE_EXCEEDED: Final = ApiError("context deadline exceeded")
"""Error of an action that exceeds its timeout (:class:`~kscale.effects.Within`)."""
CANCELED: Final = ApiError("context canceled")
"""Error of an action that was interrupted because its runner stops."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Outcome of an action: the time at which it ended (``at``), and its ``value`` or ``error``.

    :data:`kscale.effects.LEGAL_OUTCOMES` lists the legal values of each action.
    """

    at: Moment
    value: Any = None
    error: ApiError | None = None
