"""What is wrong with a pattern."""

from __future__ import annotations

__all__ = ["RE2Error"]


class RE2Error(ValueError):
    """A text that is not an RE2 pattern; the message is that of Go's ``regexp``."""

    def __init__(self, problem: str, where: str = "") -> None:
        super().__init__(f"error parsing regexp: {problem}: `{where}`")
