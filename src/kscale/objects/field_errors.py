"""Errors of fields as the API server words them (upstream: ``apimachinery/pkg/util/validation/field``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from kscale.objects.go_numbers import format_float
from kscale.objects.names import go_quote
from kscale.objects.quantity import Quantity

__all__ = ["FieldError", "forbidden", "internal", "invalid", "not_supported", "required", "too_many"]

_TEXTS: Final = {
    "FieldValueRequired": "Required value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueTooMany": "Too many",
    "InternalError": "Internal error",
}


class FieldError(msgspec.Struct, frozen=True):
    """One thing that is wrong with a field: ``type`` as the API names it, the path, upstream's detail."""

    type: str
    field: str
    detail: str = ""
    value: str = ""

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"

    @property
    def body(self) -> str:
        """Without the path (``ErrorBody``)."""
        return ": ".join(part for part in (_TEXTS[self.type], self.value, self.detail) if part)


def _shown(value: str | int | float | Quantity) -> str:  # noqa: PYI041  (an int is shown as one)
    if isinstance(value, float):
        return format_float(value)
    return str(value) if isinstance(value, int) else go_quote(str(value))


def required(field: str, detail: str = "") -> FieldError:
    """A field that must be set."""
    return FieldError("FieldValueRequired", field, detail)


def invalid(field: str, value: str | int | float | Quantity, detail: str) -> FieldError:  # noqa: PYI041  (as above)
    """A value that is not allowed."""
    return FieldError("FieldValueInvalid", field, detail, _shown(value))


def forbidden(field: str, detail: str) -> FieldError:
    """A field that may not be set here."""
    return FieldError("FieldValueForbidden", field, detail)


def not_supported(field: str, value: str, supported: Sequence[str]) -> FieldError:
    """A value that is not one of the known ones."""
    known = ", ".join(go_quote(each) for each in sorted(supported))
    return FieldError("FieldValueNotSupported", field, f"supported values: {known}", go_quote(value))


def too_many(field: str, actual: int, most: int) -> FieldError:
    """A list that is too long."""
    items = "1 item" if most == 1 else f"{most} items"
    return FieldError("FieldValueTooMany", field, f"must have at most {items}", str(actual))


def internal(field: str, detail: str) -> FieldError:
    """Something went wrong while looking at the field."""
    return FieldError("InternalError", field, detail)
