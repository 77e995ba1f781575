"""How a loop ends before its end."""

from __future__ import annotations

from kscale.ca.errors import INTERNAL_ERROR, AutoscalerError
from kscale.errors import UnreadableObjectError

__all__ = ["EndedError", "unreadable"]


class EndedError(Exception):
    """The loop ends here. ``why``: without an error; ``error``: what it returns."""

    def __init__(self, why: str = "", error: AutoscalerError | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.error = error


def unreadable(error: UnreadableObjectError) -> AutoscalerError:
    """What a loop returns that comes upon an object which cannot be read: where nothing that decisions read is wrong,
    that is found when the object is needed whole."""
    return AutoscalerError(INTERNAL_ERROR, f"failed to read an object of the cluster: {error}")
