"""Patterns as Go's ``regexp`` reads them, matched by RE2, from which Go's package descends (extra ``[regex]``).

Both answer in time linear in the text. Where the two differ, Go decides: ``\\C`` is no escape, names of groups are
ASCII, and what is wrong with a pattern is told in Go's words. What RE2 lacks is refused: the classes ``ASCII``,
``Assigned`` and ``LC`` of Go 1.25, and counts above 1000 that a count of zero takes back.
"""

from __future__ import annotations

import re
from typing import Any

from kscale.libraries import library

__all__ = ["Pattern", "PatternError"]

_MEMORY = 64 << 20
"""RE2's bound on a compiled pattern, in bytes; Go's are counts of repetitions, which RE2 has too."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_TOKEN = re.compile(
    r"\\Q.*?(?:\\E|\Z)"  # literal text
    r"|\[\^?\]?(?:\\.|\[:\^?\w*:\]|[^\]\\])*\]"  # a class
    r"|(?P<escape>\\.)"
    r"|(?P<group>\(\?P?<(?P<name>[^>=!]*)>)"
    r"|(?P<open>\((?!\?)|\(\?[^():<]*:)"
    r"|(?P<close>\))",
    re.DOTALL,
)
_DEEPEST = 1000
"""Go's limit on the height of an expression; each group that captures is one."""
_NAME = re.compile(r"[A-Za-z0-9_]+")
_NOT_CLOSED = "missing )"
_TOO_LARGE = "pattern too large - compile failed"
_IN_GO = {
    "missing ]": "missing closing ]",
    _NOT_CLOSED: "missing closing )",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    _TOO_LARGE: "expression too large",
}


class PatternError(ValueError):
    """A pattern that Go refuses, with Go's text."""


class Pattern:
    """One compiled pattern. Raises :class:`PatternError`, and MissingExtraError without the library."""

    __slots__ = ("_compiled",)

    def __init__(self, pattern: str) -> None:
        pattern = _SURROGATE.sub("\ufffd", pattern)
        found = _go_alone(pattern)
        if found is not None:  # what stands before it is told first
            error = _compiled(pattern[: found[0]])[1]
            if error is None or error[0] == _NOT_CLOSED:
                raise PatternError(f"error parsing regexp: {found[1]}")
            raise PatternError(_in_go(*error, pattern))
        self._compiled, error = _compiled(pattern)
        if error is not None:
            raise PatternError(_in_go(*error, pattern))

    def search(self, text: str) -> bool:
        """``MatchString``: whether the pattern matches anywhere in the text."""
        return self._compiled.search(_SURROGATE.sub("\ufffd", text)) is not None


def _go_alone(pattern: str) -> tuple[int, str] | None:
    """Where the pattern first holds what RE2 takes and Go does not, and what Go says of it."""
    opened: list[bool] = []
    depth = 0
    for token in _TOKEN.finditer(pattern):
        if token["escape"] == r"\C":
            return token.start(), r"invalid escape sequence: `\C`"
        if token["group"] and not _NAME.fullmatch(token["name"]):
            return token.start(), f"invalid named capture: `{token['group']}`"
        if token["group"] or token["open"]:
            opened.append(token["open"] in (None, "("))
            depth += opened[-1]
            if depth >= _DEEPEST:
                return len(pattern), f"expression nests too deeply: `{pattern}`"
        elif token["close"] and opened:
            depth -= opened.pop()
    return None


def _compiled(pattern: str) -> tuple[Any, tuple[str, str] | None]:
    """The pattern, or RE2's error: its kind and the part of the pattern that is wrong."""
    re2 = library("re2", "the priority expander")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        return re2.compile(pattern, options), None
    except re2.error as error:
        text = error.args[0]
        kind, _, part = (text.decode() if isinstance(text, bytes) else text).partition(": ")
        return None, (kind, part)


def _in_go(kind: str, part: str, pattern: str) -> str:
    if kind == "trailing \\":
        kind, part = "trailing backslash at end of expression", ""
    elif kind == _TOO_LARGE:
        part = pattern
    elif part in ("(?<=", "(?<!"):  # the beginning of a name, to Go
        rest = pattern[pattern.find(part) :]
        kind, part = "invalid named capture", rest[: rest.find(">") + 1] or rest
    return f"error parsing regexp: {_IN_GO.get(kind, kind)}: `{part}`"
