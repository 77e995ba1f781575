"""Texts as upstream's YAML has them (``go.yaml.in/yaml/v2``): bare where that says the same, else quoted."""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from json import dumps
from typing import Final

__all__ = ["yaml_scalar"]

_WORDS: Final = frozenset(
    word
    for each in ("y", "yes", "true", "on", "n", "no", "false", "off", "null")
    for word in (each, each.capitalize(), each.upper())
) | frozenset(
    {"", "~", "<<"} | {f"{sign}.{word}" for sign in ("", "+", "-") for word in ("inf", "Inf", "INF")}
    | {".nan", ".NaN", ".NAN"}
)  # fmt: skip
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BASE_60: Final = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_DATE: Final = re.compile(
    r"(\d{4})-(\d\d?)-(\d\d?)([Tt]\d\d?:\d\d?:\d\d?([.,]\d+)?(Z|[+-]\d\d:\d\d)| \d\d?:\d\d?:\d\d?([.,]\d+)?)?"
)
_UNPRINTABLE: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")
_ESCAPED: Final = re.compile(f'{_UNPRINTABLE.pattern[:-1]}\\n\x85\u2028\u2029"\\\\]')
_ESCAPES: Final = dict(zip('\0\a\b\t\n\v\f\r\x1b"\\\x85\u2028\u2029', '0abtnvfre"\\NLP', strict=True))
_NOT_BARE: Final = re.compile(r"""[#,\[\]{}&*!|>'"%@`]|[?:-](\s|$)|---|\.\.\.|\s""")
_ENDS_BARE: Final = re.compile(r":(\s|$)|\s#|\s$|\n")


@lru_cache(4096)
def yaml_scalar(value: str | float | None, indent: str = "") -> str:
    """A scalar that is a member of a mapping which is indented like this."""
    if not isinstance(value, str):
        return dumps(value)
    if _UNPRINTABLE.search(value) or " \n" in value or ("\n" in value and value.endswith(" ")):
        return _quoted(value)
    if "\n" in value:
        return _literal(value, indent)
    if _is_something_else(value):
        return _quoted(value)
    if _NOT_BARE.match(value) or _ENDS_BARE.search(value):
        return "'" + value.replace("'", "''") + "'"
    return value


def _quoted(text: str) -> str:
    def escaped(found: re.Match[str]) -> str:
        number = ord(found[0])
        return "\\" + (_ESCAPES.get(found[0]) or (f"x{number:02X}" if number < 256 else f"u{number:04X}"))

    return '"' + _ESCAPED.sub(escaped, text) + '"'


def _is_something_else(text: str) -> bool:
    """Whether it would be read as another thing than a text."""
    if text in _WORDS or _BASE_60.fullmatch(text):
        return True
    if text[0] not in "0123456789+-.":
        return False
    found = _DATE.fullmatch(text)
    if found:
        try:
            year, month, day = map(int, found.groups()[:3])
            date(year, month, day)
        except ValueError:
            return False
        return True
    plain = text.replace("_", "")
    if _FLOAT.fullmatch(plain):
        return True
    try:
        int(re.sub(r"^([-+]?)0(?=[0-9])", r"\g<1>0o", plain), 0)
    except ValueError:
        return False
    return True


def _literal(text: str, indent: str) -> str:
    """Line by line."""
    hint = "2" if text[0] in " \n" else ""
    if not text.endswith("\n"):
        hint += "-"
    elif text.endswith("\n\n") or text == "\n":
        hint += "+"
    lines = text.removesuffix("\n").split("\n")
    return "\n".join([f"|{hint}", *(line and f"{indent}  {line}" for line in lines)])
