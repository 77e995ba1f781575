"""Errors of fields as the API server words them (upstream: ``apimachinery/pkg/util/validation/field``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from kscale.objects.names import go_quote
from kscale.objects.quantity import Quantity

__all__ = ["FieldError", "forbidden", "invalid", "not_supported", "required"]

_TEXTS: Final = {
    "FieldValueRequired": "Required value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
}


class FieldError(msgspec.Struct, frozen=True):
    """One thing that is wrong with a field: ``type`` as the API names it, the path, upstream's detail."""

    type: str
    field: str
    detail: str = ""
    value: str = ""

    def __str__(self) -> str:
        parts = [self.field, _TEXTS[self.type]]
        if self.value:
            parts.append(self.value)
        if self.detail:
            parts.append(self.detail)
        return ": ".join(parts)


def _shown(value: str | int | Quantity) -> str:
    return str(value) if isinstance(value, int) else go_quote(str(value))


def required(field: str, detail: str = "") -> FieldError:
    """A field that must be set."""
    return FieldError("FieldValueRequired", field, detail)


def invalid(field: str, value: str | int | Quantity, detail: str) -> FieldError:
    """A value that is not allowed."""
    return FieldError("FieldValueInvalid", field, detail, _shown(value))


def forbidden(field: str, detail: str) -> FieldError:
    """A field that may not be set here."""
    return FieldError("FieldValueForbidden", field, detail)


def not_supported(field: str, value: str, supported: Sequence[str]) -> FieldError:
    """A value that is not one of the known ones."""
    known = ", ".join(go_quote(each) for each in sorted(supported))
    return FieldError("FieldValueNotSupported", field, f"supported values: {known}", go_quote(value))
