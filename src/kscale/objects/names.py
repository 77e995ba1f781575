"""Which names, label keys and label values the API accepts (upstream: ``apimachinery/pkg/util/validation``).

Each check returns upstream's messages; an empty list means valid.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

__all__ = ["dns_label_errors", "dns_subdomain_errors", "go_quote", "label_value_errors", "qualified_name_errors"]

_NAME_PATTERN: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE_PATTERN: Final = f"({_NAME_PATTERN})?"
_DNS_LABEL_PATTERN: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN_PATTERN: Final = rf"{_DNS_LABEL_PATTERN}(\.{_DNS_LABEL_PATTERN})*"
_NAME = re.compile(_NAME_PATTERN)
_VALUE = re.compile(_VALUE_PATTERN)
_DNS_LABEL = re.compile(_DNS_LABEL_PATTERN)
_DNS_SUBDOMAIN = re.compile(_DNS_SUBDOMAIN_PATTERN)

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


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _too_long(limit: int, unit: str = "bytes") -> str:
    """Return upstream's text. It counts bytes either way; for names of objects it calls them characters."""
    return f"must be no more than {limit} {unit}"


def dns_label_errors(text: str) -> list[str]:
    """``IsDNS1123Label``."""
    errors = [_too_long(63, "characters")] if _size(text) > 63 else []
    return errors if _DNS_LABEL.fullmatch(text) else [*errors, _DNS_LABEL_TEXT]


def dns_subdomain_errors(text: str, unit: str = "characters") -> list[str]:
    """``IsDNS1123Subdomain``; ``unit``: what the text calls what it counts."""
    if len(text) <= 253 and _DNS_SUBDOMAIN.fullmatch(text):  # which matches ASCII only
        return []
    errors = [_too_long(253, unit)] if _size(text) > 253 else []
    return errors if _DNS_SUBDOMAIN.fullmatch(text) else [*errors, _DNS_SUBDOMAIN_TEXT]


@lru_cache(maxsize=1 << 14)
def _qualified_name_errors(text: str) -> tuple[str, ...]:
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
    elif _size(name) > 63:
        errors.append(f"name part {_too_long(63)}")
    if not _NAME.fullmatch(name):
        errors.append(f"name part {_NAME_TEXT}")
    return tuple(errors)


def qualified_name_errors(text: str) -> list[str]:
    """``IsQualifiedName``: label keys, resource names."""
    return list(_qualified_name_errors(text))


@lru_cache(maxsize=1 << 14)
def _label_value_errors(text: str) -> tuple[str, ...]:
    errors = [_too_long(63)] if _size(text) > 63 else []
    return tuple(errors if _VALUE.fullmatch(text) else [*errors, _VALUE_TEXT])


def label_value_errors(text: str) -> list[str]:
    """``IsValidLabelValue``."""
    return list(_label_value_errors(text))


def go_quote(text: str) -> str:
    """A text in double quotes as Go's ``%q`` writes it."""
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
