"""Why a plug-in says no: a status code of the scheduler framework, and reasons word for word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["ERROR", "UNRESOLVABLE", "UNSCHEDULABLE", "Status", "error", "unresolvable", "unschedulable"]

UNSCHEDULABLE: Final = "Unschedulable"
UNRESOLVABLE: Final = "UnschedulableAndUnresolvable"
ERROR: Final = "Error"


@dataclass(frozen=True, slots=True)
class Status:
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
