"""The syntax errors of Go's ``encoding/json``, for the texts that upstream shows its users."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["GoJSONError", "check"]

_BLANK: Final = " \t\r\n"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_END: Final = "unexpected end of JSON input"
_ESCAPES: Final = 'bfnrt\\/"'


class GoJSONError(ValueError):
    """A text that is not JSON, in the words of Go's decoder."""


def _quote(char: str) -> str:
    """A character as Go's decoder shows it."""
    special = {"'": r"'\''", '"': "'\"'"}
    if char in special:
        return special[char]
    escapes = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\\": r"\\", "\a": r"\a", "\b": r"\b", "\f": r"\f", "\v": r"\v"}
    if char in escapes:
        return f"'{escapes[char]}'"
    code = ord(char)
    return f"'{char}'" if 32 <= code < 127 or code > 160 else f"'\\x{code:02x}'"


def _invalid(char: str, context: str) -> GoJSONError:
    return GoJSONError(f"invalid character {_quote(char)} {context}")


def check(raw: bytes) -> str:
    """The one JSON value in ``raw`` without surrounding blanks, still as JSON text.

    Scalars are checked in Go's order and refused in Go's words; for objects and arrays only the verdict is Go's.
    """
    # Go's scanner reads bytes and shows a byte as the character of that code.
    text = raw.decode("latin-1").lstrip(_BLANK)
    if not text:
        raise GoJSONError(_END)
    if text[0] in "{[":
        import json

        try:
            json.loads(raw)
        except ValueError as error:
            raise GoJSONError(f"invalid JSON: {error}") from None
        return raw.decode("utf-8", "replace").strip(_BLANK)
    end = _scalar_end(text)
    rest = text[end:].lstrip(_BLANK)
    if rest:
        raise _invalid(rest[0], "after top-level value")
    return raw.decode("utf-8", "replace").strip(_BLANK)


def _scalar_end(text: str) -> int:
    first = text[0]
    if first == '"':
        return _string_end(text)
    for literal in ("true", "false", "null"):
        if first == literal[0]:
            return _literal_end(text, literal)
    if first == "-" or first.isdigit():
        return _number_end(text)
    raise _invalid(first, "looking for beginning of value")


def _at(text: str, position: int) -> str:
    """Return a character. Go's scanner takes a text to end with a blank."""
    return text[position] if position < len(text) else " "


def _literal_end(text: str, literal: str) -> int:
    for position in range(1, len(literal)):
        if text[position : position + 1] != literal[position]:
            raise _invalid(_at(text, position), f"in literal {literal} (expecting {_quote(literal[position])})")
    return len(literal)


def _number_end(text: str) -> int:
    match = _NUMBER.match(text)
    end = match.end() if match else 1
    # What the pattern left over may be the start of a fraction or an exponent that then breaks off.
    for pattern, context in (
        (r"-", "in numeric literal"),
        (r"-?(?:0|[1-9][0-9]*)\.", "after decimal point in numeric literal"),
        (r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?[eE][+-]?", "in exponent of numeric literal"),
    ):
        broken = re.match(pattern, text)
        if broken and broken.end() > end - (match is None):
            raise _invalid(_at(text, broken.end()), context)
    return end


def _string_end(text: str) -> int:
    position = 1
    while position < len(text):
        char = text[position]
        if char == '"':
            return position + 1
        if char == "\\":
            position = _escape_end(text, position + 1)
            continue
        if ord(char) < 0x20:
            raise _invalid(char, "in string literal")
        position += 1
    raise GoJSONError(_END)


def _escape_end(text: str, position: int) -> int:
    """The position behind the escape whose letter stands at ``position``."""
    letter = _at(text, position)
    if letter in _ESCAPES:
        return position + 1
    if letter != "u":
        raise _invalid(letter, "in string escape code")
    for offset in range(1, 5):
        digit = _at(text, position + offset)
        if digit not in "0123456789abcdefABCDEF":
            raise _invalid(digit, "in \\u hexadecimal character escape")
    return position + 5
