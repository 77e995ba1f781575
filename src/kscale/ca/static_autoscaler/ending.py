"""How a loop ends before its end."""

from __future__ import annotations

from kscale.ca.errors import AutoscalerError

__all__ = ["EndedError"]


class EndedError(Exception):
    """The loop ends here. ``why``: without an error; ``error``: what it returns."""

    def __init__(self, why: str = "", error: AutoscalerError | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.error = error
