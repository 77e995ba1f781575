"""Autoscaler errors: type, message, and upstream's rules for prefixes and combinations (upstream: ``utils/errors``)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kscale.errors import KscaleError
from kscale.objects.argument_types import typed
from kscale.objects.names import go_quote

__all__ = [
    "API_CALL_ERROR",
    "CLOUD_PROVIDER_ERROR",
    "CONFIGURATION_ERROR",
    "ERROR_TYPES",
    "INTERNAL_ERROR",
    "NODE_GROUP_DOES_NOT_EXIST_ERROR",
    "TRANSIENT_ERROR",
    "UNEXPECTED_SCALE_DOWN_STATE_ERROR",
    "AutoscalerError",
    "ErrorRecord",
    "combine_errors",
]

CLOUD_PROVIDER_ERROR = "cloudProviderError"
API_CALL_ERROR = "apiCallError"
INTERNAL_ERROR = "internalError"
TRANSIENT_ERROR = "transientError"
CONFIGURATION_ERROR = "configurationError"
NODE_GROUP_DOES_NOT_EXIST_ERROR = "nodeGroupDoesNotExistError"
UNEXPECTED_SCALE_DOWN_STATE_ERROR = "unexpectedScaleDownStateError"
ERROR_TYPES = (
    CLOUD_PROVIDER_ERROR,
    API_CALL_ERROR,
    INTERNAL_ERROR,
    TRANSIENT_ERROR,
    CONFIGURATION_ERROR,
    NODE_GROUP_DOES_NOT_EXIST_ERROR,
    UNEXPECTED_SCALE_DOWN_STATE_ERROR,
)


class ErrorRecord(msgspec.Struct, kw_only=True, frozen=True):
    """An error of the Cluster Autoscaler.

    Attributes
    ----------
    type : str
        Upstream's type of the error, such as ``cloudProviderError``.
    message : str
        Text of the error.
    """

    type: str
    message: str


class AutoscalerError(KscaleError):
    """An error of the autoscaler itself: ``type`` is one of the constants of this module, ``message`` is upstream's."""

    def __init__(self, type_: str, message: str) -> None:
        super().__init__(message)
        self.type = type_
        self.message = message

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AutoscalerError):
            return NotImplemented
        return (self.type, self.message) == (other.type, other.message)

    def __hash__(self) -> int:
        return hash((self.type, self.message))

    def __repr__(self) -> str:
        return f"AutoscalerError({self.type!r}, {self.message!r})"

    def with_prefix(self, prefix: str) -> AutoscalerError:
        """Return a copy of the error whose message begins with ``prefix``."""
        return AutoscalerError(self.type, prefix + self.message)

    @property
    def record(self) -> ErrorRecord:
        """Return the type and the message as a record."""
        return ErrorRecord(type=self.type, message=self.message)


@typed
def combine_errors(errors: Iterable[AutoscalerError]) -> AutoscalerError | None:
    """Return one error for several ``errors``; None without errors.

    A single distinct error is returned itself. Otherwise the first by (type, message) determines the type; its message
    comes first, then the others quoted, with their types if these differ.
    """
    distinct = sorted(set(errors), key=lambda error: (error.type, error.message))
    if len(distinct) < 2:
        return distinct[0] if distinct else None
    typed = len({error.type for error in distinct}) > 1
    first, *rest = distinct
    others = ", ".join(go_quote(f"[{e.type}] {e.message}" if typed else e.message) for e in rest)
    return AutoscalerError(first.type, f"{first.message} ...and other errors: [{others}]")
