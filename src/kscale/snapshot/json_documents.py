"""JSON texts of more than one document: one after the other, or one a line (NDJSON).

A text is gone through once to see what it is, and once more to hand out its documents, of which only one is held.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from kscale.errors import Problem
from kscale.objects.decode import syntax_problem

__all__ = ["check_syntax", "several_documents"]

_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_LINE_END = re.compile(rb"\n|\Z")
_RAW: Final = msgspec.json.Decoder(msgspec.Raw)

_Placed: TypeAlias = "tuple[str, memoryview | Problem]"
"""Where a document is (``document 3``, ``line 5``), and its text or what is wrong with it."""


def check_syntax(view: memoryview) -> None:
    """Raises DecodeError for what is no JSON text."""
    _RAW.decode(view)


def several_documents(view: memoryview, source: str, error: msgspec.DecodeError) -> Iterator[_Placed]:
    """The documents of a text that is not one document, as ``error`` says. What is damaged comes as a problem: of
    documents one after the other the last one, of lines each that is."""
    follows = _TRAILING.search(str(error)) is not None
    whole = follows and all(damage is None for _, _, damage in _places(view))
    if not whole and _is_by_line(view):
        yield from _by_line(view, source)
    elif follows:
        yield from _one_after_the_other(view, source)
    else:
        yield "", syntax_problem(error, bytes(view), source)


def _places(view: memoryview) -> Iterator[tuple[int, int, msgspec.DecodeError | None]]:
    """(begin, end, damage) of each document: the decoder says where it ends. A damaged one is the last."""
    start = 0
    while start < len(view):
        end = len(view)
        damage = None
        try:
            check_syntax(view[start:])
        except msgspec.DecodeError as error:
            match = _TRAILING.search(str(error))
            if match is None:
                damage = error
            else:
                end = start + int(match[1]) - 1  # counted from 1
        yield start, end, damage
        start = end


def _one_after_the_other(view: memoryview, source: str) -> Iterator[_Placed]:
    for number, (start, end, damage) in enumerate(_places(view), start=1):
        where = f"document {number}"
        if damage is None:
            yield where, view[start:end]
        else:
            problem = syntax_problem(damage, bytes(view[start:]), source)
            line = bytes(view[:start]).count(b"\n") + 1
            yield where, Problem(f"in the document that begins on line {line}: {problem.message}", source)


def _lines(view: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Lines that are not blank, by number from 1."""
    start = 0
    for number, end in enumerate(_LINE_END.finditer(view), start=1):
        line = view[start : end.start()]
        start = end.end()
        if bytes(line[:1]).strip() or bytes(line).strip():
            yield number, line


def _by_line(view: memoryview, source: str) -> Iterator[_Placed]:
    for number, line in _lines(view):
        where = f"line {number}"
        try:
            check_syntax(line)
        except msgspec.DecodeError as error:
            message = syntax_problem(error, bytes(line), source).message.partition(": ")[2]
            yield where, Problem(message, source, where)
        else:
            yield where, line


def _is_by_line(view: memoryview) -> bool:
    """Whether the first line, or more than half of the lines, are objects by themselves."""
    objects = others = 0
    for _, line in _lines(view):
        if _is_object(line):
            if not others:
                return True
            objects += 1
        else:
            others += 1
    return objects > others


def _is_object(line: memoryview) -> bool:
    try:
        check_syntax(line)
    except msgspec.DecodeError:
        return False
    return bytes(line[:4096]).lstrip()[:1] == b"{"
