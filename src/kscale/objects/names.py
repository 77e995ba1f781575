"""Validation of names, label keys and label values, and the texts of field errors (upstream:
``apimachinery/pkg/util/validation``).

Each check returns upstream's messages; an empty list means valid.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from kscale._native import _projection
from kscale.imports import lazy_pattern
from kscale.objects.api.meta import KubeObject
from kscale.objects.quantity import Quantity

__all__ = [
    "FieldError",
    "build_required_error",
    "created_pods_key",
    "dns_label_errors",
    "dns_subdomain_errors",
    "forbidden",
    "format_float",
    "go_quote",
    "internal",
    "invalid",
    "label_value_errors",
    "next_name",
    "not_supported",
    "qualified_name_errors",
    "too_many",
    "with_name",
]


def format_float(x: float) -> str:
    """Format a float64 as Go's ``%v``: the shortest text that parses back to the same number.

    Magnitudes below 1e-4 and from 1e21 on are written with an exponent.
    """
    if math.isnan(x):
        return "NaN"
    if math.isinf(x):
        return "+Inf" if x > 0 else "-Inf"
    sign = "-" if math.copysign(1.0, x) < 0 else ""
    digits, _, exponent = repr(abs(x)).partition("e")
    integer, _, fraction = digits.partition(".")
    power = int(exponent or 0) + len(integer)  # the decimal point stands after this many digits
    number = (integer + fraction).lstrip("0")
    power -= len(integer + fraction) - len(number)
    number = number.rstrip("0")
    if not number:
        return f"{sign}0"
    if -4 <= power - 1 < 21:
        if power <= 0:
            return f"{sign}0.{'0' * -power}{number}"
        if len(number) <= power:
            return f"{sign}{number.ljust(power, '0')}"
        return f"{sign}{number[:power]}.{number[power:]}"
    mantissa = number[0] + (f".{number[1:]}" if len(number) > 1 else "")
    return f"{sign}{mantissa}e{power - 1:+03d}"


_NAME_PATTERN: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE_PATTERN: Final = f"({_NAME_PATTERN})?"
_DNS_LABEL_PATTERN: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN_PATTERN: Final = rf"{_DNS_LABEL_PATTERN}(\.{_DNS_LABEL_PATTERN})*"
_NAME = lazy_pattern(_NAME_PATTERN)
_VALUE = lazy_pattern(_VALUE_PATTERN)
_DNS_LABEL = lazy_pattern(_DNS_LABEL_PATTERN)
_DNS_SUBDOMAIN = lazy_pattern(_DNS_SUBDOMAIN_PATTERN)

_ALPHANUMERIC: Final = "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
_NAME_TEXT: Final = (
    f"must consist of {_ALPHANUMERIC} "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME_PATTERN}')"
)
_VALUE_TEXT: Final = (
    f"a valid label must be an empty string or consist of {_ALPHANUMERIC} "
    f"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_VALUE_PATTERN}')"
)
_DNS_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_DNS_LABEL_PATTERN}')"
)
_DNS_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character "
    f"(e.g. 'example.com', regex used for validation is '{_DNS_SUBDOMAIN_PATTERN}')"
)
_QUOTED: Final = {
    "\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": r"\\", '"': r"\""
}  # fmt: skip


def _count_utf8_bytes(text: str) -> int:
    """Return the length in UTF-8 bytes, as Go's ``len``."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _build_length_error(limit: int, unit: str = "bytes") -> str:
    """Return upstream's error for a text of more than ``limit`` bytes.

    ``unit``: upstream's word for them in the message. For names of objects it is ``characters``.
    """
    return f"must be no more than {limit} {unit}"


def dns_label_errors(text: str) -> list[str]:
    """Return upstream's errors about a DNS label; empty if it is valid (``IsDNS1123Label``)."""
    errors = [_build_length_error(63, "characters")] if _count_utf8_bytes(text) > 63 else []
    return errors if _DNS_LABEL.fullmatch(text) else [*errors, _DNS_LABEL_TEXT]


def dns_subdomain_errors(text: str, unit: str = "characters") -> list[str]:
    """Return upstream's errors about a DNS subdomain; empty if it is valid (``IsDNS1123Subdomain``).

    ``unit``: unit of length in the message.
    """
    if _projection.is_plain_name(text):
        return []
    errors = [_build_length_error(253, unit)] if _count_utf8_bytes(text) > 253 else []
    return errors if _DNS_SUBDOMAIN.fullmatch(text) else [*errors, _DNS_SUBDOMAIN_TEXT]


@lru_cache(maxsize=1 << 12)
def _find_qualified_name_errors(text: str) -> tuple[str, ...]:
    """Return upstream's errors about a qualified name; see :func:`qualified_name_errors`."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return (f"a valid label key {_NAME_TEXT} {example}",)
    errors = []
    if slash and not prefix:
        errors.append("prefix part must be non-empty")
    elif slash:
        errors.extend(f"prefix part {error}" for error in dns_subdomain_errors(prefix, "bytes"))
    if not name:
        errors.append("name part must be non-empty")
    elif _count_utf8_bytes(name) > 63:
        errors.append(f"name part {_build_length_error(63)}")
    if not _NAME.fullmatch(name):
        errors.append(f"name part {_NAME_TEXT}")
    return tuple(errors)


def qualified_name_errors(text: str) -> list[str]:
    """Return upstream's errors about a label key or resource name; empty if valid (``IsQualifiedName``)."""
    return list(_find_qualified_name_errors(text))


@lru_cache(maxsize=1 << 12)
def _label_value_errors(text: str) -> tuple[str, ...]:
    """Return upstream's errors about a label value; see :func:`label_value_errors`."""
    errors = [_build_length_error(63)] if _count_utf8_bytes(text) > 63 else []
    return tuple(errors if _VALUE.fullmatch(text) else [*errors, _VALUE_TEXT])


def label_value_errors(text: str) -> list[str]:
    """Return upstream's errors about a label value; empty if it is valid (``IsValidLabelValue``)."""
    return list(_label_value_errors(text))


def go_quote(text: str) -> str:
    """Format a text in double quotes as Go's ``%q`` does."""
    parts = []
    for char in text:
        code = ord(char)
        if char in _QUOTED:
            parts.append(_QUOTED[char])
        elif char.isprintable():
            parts.append(char)
        elif code < 0x80:
            parts.append(f"\\x{code:02x}")
        else:
            parts.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return '"' + "".join(parts) + '"'


_TEXTS: Final = {
    "FieldValueRequired": "Required value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueTooMany": "Too many",
    "InternalError": "Internal error",
}


class FieldError(msgspec.Struct, frozen=True):
    """An error of a field: ``type`` as the API names it, the path, upstream's detail."""

    type: str
    field: str
    detail: str = ""
    value: str = ""

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"

    @property
    def body(self) -> str:
        """Return the message without the path (``ErrorBody``)."""
        return ": ".join(part for part in (_TEXTS[self.type], self.value, self.detail) if part)


def _format_value(value: str | int | float | Quantity) -> str:  # noqa: PYI041  # integers are shown differently
    """Format a value as upstream's field errors do: texts and quantities in quotes, numbers as they are."""
    if isinstance(value, float):
        return format_float(value)
    return str(value) if isinstance(value, int) else go_quote(str(value))


def build_required_error(field: str, detail: str = "") -> FieldError:
    """Return the error of a field that must be set."""
    return FieldError("FieldValueRequired", field, detail)


def invalid(field: str, value: str | int | float | Quantity, detail: str) -> FieldError:  # noqa: PYI041  # as above
    """Return the error of a value that is not allowed."""
    return FieldError("FieldValueInvalid", field, detail, _format_value(value))


def forbidden(field: str, detail: str) -> FieldError:
    """Return the error of a field that may not be set here."""
    return FieldError("FieldValueForbidden", field, detail)


def not_supported(field: str, value: str, supported: Sequence[str]) -> FieldError:
    """Return the error of a value that is not one of the supported ones."""
    values = ", ".join(go_quote(each) for each in sorted(supported))
    return FieldError("FieldValueNotSupported", field, f"supported values: {values}", go_quote(value))


def too_many(field: str, actual: int, limit: int) -> FieldError:
    """Build the error of a field that lists ``actual`` items where at most ``limit`` are allowed."""
    items = "1 item" if limit == 1 else f"{limit} items"
    return FieldError("FieldValueTooMany", field, f"must have at most {items}", str(actual))


def internal(field: str, detail: str) -> FieldError:
    """Return the error of a field whose validation failed internally."""
    return FieldError("InternalError", field, detail)


_Object = TypeVar("_Object", bound=KubeObject)
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Those of upstream's random suffixes."""
_PAIRS: Final = tuple(low + high for high in _LETTERS for low in _LETTERS)
"""Two digits each, the lowest digit first. A suffix has five digits."""


def created_pods_key(owner: KubeObject) -> str:
    """Return the key under which :func:`with_name` counts the pods that a controller creates for an object."""
    return _get_count_key("Pod", owner.metadata.namespace, f"{owner.metadata.name}-")


def _get_count_key(kind: str, namespace: str, generate_name: str) -> str:
    """Return the key of ``name_counts`` (:func:`with_name`) for objects with this generateName."""
    return f"{kind}/{namespace}/{generate_name}"


def with_name(obj: _Object, name_counts: Counter[str]) -> _Object:
    """Return the object, or a copy with a name if the object has only a generateName.

    Upstream adds five random characters to the generateName. Here the five characters follow from the number of earlier
    objects of the same kind, namespace and generateName. ``name_counts`` has these numbers; the object is added to it.
    """
    metadata = obj.metadata
    if metadata.name or not metadata.generate_name:
        return obj
    name = next_name(obj.kind, metadata.namespace, metadata.generate_name, name_counts)
    return replace(obj, metadata=replace(metadata, name=name))


def next_name(kind: str, namespace: str, generate_name: str, name_counts: Counter[str]) -> str:
    """Return the name of the next object with a generateName, and count the object in ``name_counts``.

    The names are those of :func:`with_name`.
    """
    start = _get_count_key(kind, namespace, generate_name)
    from hashlib import blake2b  # imported here because it loads OpenSSL

    number = int.from_bytes(blake2b(f"{start}/{name_counts[start]}".encode(), digest_size=8).digest(), "big")
    name_counts[start] += 1
    low, high = number % len(_PAIRS), number // len(_PAIRS)
    last = high // len(_PAIRS) % len(_LETTERS)
    return f"{generate_name}{_PAIRS[low]}{_PAIRS[high % len(_PAIRS)]}{_LETTERS[last]}"
