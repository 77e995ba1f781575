"""JSON texts of more than one document: one after the other, or one a line (NDJSON).

A text is gone through once to see what it is, and once more to hand out its documents, of which only one is held. Of a
stream with a document a line only one line is held, until a line is no document by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO, Final, TypeAlias

import msgspec

from kscale._native import _projection
from kscale.errors import Problem
from kscale.objects.decode import syntax_problem

__all__ = ["check_syntax", "object_lines", "several_documents"]

_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_LINE_END = re.compile(rb"\n|\Z")
_PIECE: Final = 1 << 20
_RAW: Final = msgspec.json.Decoder(msgspec.Raw)

_Placed: TypeAlias = "tuple[str, memoryview | Problem]"
"""The line that a document begins on (``line 5``), and its text or what is wrong with it."""


def check_syntax(view: memoryview) -> None:
    """Raise DecodeError for what is no JSON text, at any depth; RecursionError for what is deep and damaged."""
    try:
        _RAW.decode(view)
    except RecursionError:
        end, _ = _projection.json_extent(view)
        if end < 0:  # damaged somewhere, too
            raise
        rest = bytes(view[end:])
        if rest.strip():
            place = end + len(rest) - len(rest.lstrip()) + 1
            raise msgspec.DecodeError(f"JSON is malformed: trailing characters (byte {place})") from None


def object_lines(stream: BinaryIO) -> bytearray | Iterator[tuple[int, bytes | bytearray]]:
    """The lines, by number from 1, of a stream whose first line is an object by itself and not all there is; of any
    other stream the whole text. From the first line on that is no document by itself, the rest comes as one text."""
    first, second = stream.readline(), stream.readline()
    if second and _is_object(memoryview(first)):
        return _lines_and_rest(chain([first, second], stream), stream)
    return _rest(first + second, stream)


def _lines_and_rest(lines: Iterator[bytes], stream: BinaryIO) -> Iterator[tuple[int, bytes | bytearray]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            check_syntax(memoryview(line))
        except (msgspec.DecodeError, UnicodeDecodeError):
            yield number, _rest(line, stream)
            return
        yield number, line


def _rest(begun: bytes, stream: BinaryIO) -> bytearray:
    text = bytearray(begun)
    while more := stream.read(_PIECE):
        text += more
    return text


def several_documents(
    view: memoryview, source: str, error: msgspec.DecodeError, line: int | None = None
) -> Iterator[_Placed]:
    """The documents of a text that is not one document, as ``error`` says. What is damaged comes as a problem: of
    documents one after the other the last one, of lines each that is.

    ``line``: of a text with a document a line, where this part of it begins.
    """
    follows = _TRAILING.search(str(error)) is not None
    whole = follows and all(damage is None for _, _, damage in _places(view))
    if not whole and (line is not None or _is_by_line(view)):
        yield from _by_line(view, source, line or 1)
    elif follows:
        yield from _one_after_the_other(view, source, line or 1)
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


def _one_after_the_other(view: memoryview, source: str, line: int) -> Iterator[_Placed]:
    counted = 0
    for start, end, damage in _places(view):
        line += bytes(view[counted:start]).count(b"\n")
        counted = start
        if damage is None:
            yield f"line {line}", view[start:end]
        else:
            problem = syntax_problem(damage, bytes(view[start:]), source)
            yield f"line {line}", Problem(f"in the document that begins on line {line}: {problem.message}", source)


def _lines(view: memoryview, first: int = 1) -> Iterator[tuple[int, memoryview]]:
    """Lines that are not blank, by number from ``first``."""
    start = 0
    for number, end in enumerate(_LINE_END.finditer(view), start=first):
        line = view[start : end.start()]
        start = end.end()
        if bytes(line[:1]).strip() or bytes(line).strip():
            yield number, line


def _by_line(view: memoryview, source: str, first: int) -> Iterator[_Placed]:
    for number, line in _lines(view, first):
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
