"""Why a plug-in says no: a status code of the scheduler framework, and reasons word for word."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["ERROR", "UNRESOLVABLE", "UNSCHEDULABLE", "Status", "error", "unresolvable", "unschedulable"]

UNSCHEDULABLE: Final = "Unschedulable"
UNRESOLVABLE: Final = "UnschedulableAndUnresolvable"
ERROR: Final = "Error"


class Status(msgspec.Struct, frozen=True):
    """A status code and all reasons."""

    code: str
    reasons: tuple[str, ...]


def unschedulable(*reasons: str) -> Status:
    """Removing pods might help."""
    return Status(UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    """Removing pods would not help."""
    return Status(UNRESOLVABLE, reasons)


def error(reason: str) -> Status:
    """The plug-in could not decide."""
    return Status(ERROR, (reason,))
