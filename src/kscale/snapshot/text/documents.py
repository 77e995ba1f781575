"""Split texts into documents: concatenated JSON, NDJSON and multi-document YAML (extra ``[yaml]``).

A text is scanned once to find its form, and once more to yield its documents, one in memory at a time. Of a stream
with one document per line, only one line is in memory, until a line is not a complete document.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any, BinaryIO, ClassVar, Final, TypeAlias

import msgspec

from kscale._native import _projection
from kscale.errors import InputError, Problem
from kscale.imports import lazy_pattern, library
from kscale.objects.api.meta import shorten
from kscale.objects.decode import syntax_problem

__all__ = ["check_syntax", "documents", "object_lines", "only_document", "placed_documents", "several_documents"]


_TRAILING = lazy_pattern(r"trailing characters \(byte (\d+)\)")
_LINE_END = lazy_pattern(rb"\n|\Z")
_PIECE: Final = 1 << 20
_RAW: Final = msgspec.json.Decoder(msgspec.Raw)

_Placed: TypeAlias = "tuple[str, memoryview | Problem]"
"""The line that a document begins on (``line 5``), and its text or what is wrong with it."""


def check_syntax(view: memoryview) -> None:
    """Raise DecodeError unless the text is one JSON value. Valid values may be nested to any depth.

    A syntax error in a text that is too deep for the decoder raises RecursionError instead.
    """
    try:
        _RAW.decode(view)
    except RecursionError:
        end, _ = _projection.json_extent(view)
        if end < 0:  # a syntax error, too
            raise
        rest = bytes(view[end:])
        if rest.strip():
            place = end + len(rest) - len(rest.lstrip()) + 1
            raise msgspec.DecodeError(f"JSON is malformed: trailing characters (byte {place})") from None


def object_lines(stream: BinaryIO) -> bytearray | Iterator[tuple[int, bytes | bytearray]]:
    """Return the numbered lines (from 1) of a stream with one document per line; the full text of any other stream.

    The first line must be an object, followed by another line. Blank lines are left out, but counted. From the first
    line that is not a complete document on, the rest is one text.
    """
    first, second = stream.readline(), stream.readline()
    if second and _is_object(memoryview(first)):
        return _iterate_lines(chain([first, second], stream), stream)
    return _read_rest(first + second, stream)


def _iterate_lines(lines: Iterator[bytes], stream: BinaryIO) -> Iterator[tuple[int, bytes | bytearray]]:
    """Yield (line number, line) of each line that is not blank.

    From the first line that is not complete JSON on, the rest of the stream is yielded as one text.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            check_syntax(memoryview(line))
        except (msgspec.DecodeError, UnicodeDecodeError):
            yield number, _read_rest(line, stream)
            return
        yield number, line


def _read_rest(begun: bytes, stream: BinaryIO) -> bytearray:
    """Return the bytes ``begun``, followed by all that the stream still has."""
    text = bytearray(begun)
    while more := stream.read(_PIECE):
        text += more
    return text


def several_documents(
    view: memoryview, source: str, error: msgspec.DecodeError | UnicodeDecodeError, line: int | None = None
) -> Iterator[_Placed]:
    """Yield (place, document or Problem) of a text that is not a single JSON document (``error``: why not).

    A Problem stands for a document that cannot be read. In a text with one document per line, reading goes on with the
    next line; in concatenated documents, the Problem is the last. ``line``: number of the first line, if the text is
    the rest of a stream with one document per line.
    """
    follows = _TRAILING.search(str(error)) is not None
    all_readable = follows and all(damage is None for _, _, damage in _places(view))
    if not all_readable and (line is not None or _is_by_line(view)):
        yield from _read_lines(view, source, line or 1)
    elif follows:
        yield from _concatenated_documents(view, source, line or 1)
    else:
        yield "", syntax_problem(error, bytes(view), source)


def _places(view: memoryview) -> Iterator[tuple[int, int, msgspec.DecodeError | None]]:
    """Yield (begin, end, error) of each concatenated document, in bytes.

    The error is None for JSON. A document with an error is the last one.
    """
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


def _concatenated_documents(view: memoryview, source: str, line: int) -> Iterator[_Placed]:
    """Yield (place, document) of JSON documents that follow each other; the place is ``line N``, where it begins.

    A Problem stands for a document that cannot be read. ``line``: number of the first line of the text.
    """
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
    """Yield (number, line) for the lines that are not blank; the first line has the number ``first``."""
    start = 0
    for number, end in enumerate(_LINE_END.finditer(view), start=first):
        line = view[start : end.start()]
        start = end.end()
        if bytes(line[:1]).strip() or bytes(line).strip():
            yield number, line


def _read_lines(view: memoryview, source: str, first: int) -> Iterator[_Placed]:
    """Yield (place, text) of each line, or (place, Problem) if the line is not JSON. Blank lines are left out.

    ``first``: number of the first line. Raises RecursionError as :func:`check_syntax` does.
    """
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
    """Check whether a text has one document per line: its first line, or most of its lines, are complete objects."""
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
    """Check whether a line is one complete JSON object."""
    try:
        check_syntax(line)
    except msgspec.DecodeError:
        return False
    return bytes(line[:4096]).lstrip()[:1] == b"{"


_READING: Final = "reading YAML"


@cache
def _loader() -> Any:
    """Return PyYAML's loader (in C if available) without the conversions that the API's JSON does not have.

    Raises MissingExtraError without PyYAML.
    """
    yaml = library("yaml", _READING)
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    numbers = {tag: re.compile(pattern) for tag, pattern in _NUMBERS.items()}

    class Loader(base):  # type: ignore[misc]  # the base class is chosen at run time
        """The C loader without the conversions that the API's JSON does not have."""

        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
            first: [(tag, numbers.get(tag, pattern)) for tag, pattern in resolvers if tag not in _NOT_JSON]
            for first, resolvers in base.yaml_implicit_resolvers.items()
        }

        def construct_yaml_int(self, node: Any) -> Any:
            """Build an integer. Raises ConstructorError for a text that is none, or has too many digits."""
            try:
                return super().construct_yaml_int(node)
            except ValueError:
                text = f"{shorten(str(node.value))} is not an integer, or too long"
                raise yaml.constructor.ConstructorError(None, None, text, node.start_mark) from None

        def construct_yaml_float(self, node: Any) -> Any:
            """Build a float; the text itself if the number is infinite or none, as JSON has no such numbers."""
            try:
                number = super().construct_yaml_float(node)
            except ValueError:
                return node.value
            return number if math.isfinite(number) else node.value

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            """Build a mapping. Raises for repeated keys, as kubectl does; PyYAML would use the last one."""
            seen = set()
            for key, _ in getattr(node, "value", ()):
                if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                    continue
                if (key.tag, key.value) in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value} comes twice", key.start_mark
                    )
                seen.add((key.tag, key.value))
            return super().construct_mapping(node, deep=deep)

    Loader.add_constructor(_INT, Loader.construct_yaml_int)
    Loader.add_constructor(_FLOAT, Loader.construct_yaml_float)
    return Loader


_MERGE = "tag:yaml.org,2002:merge"
_TOO_DEEP = "nested too deeply to be read"
_DEEPEST = 500
_PARSERS_OWN = "exceeded maximum nesting depth"
"""LibYAML's error for a depth of 1,000. LibYAML may read ahead to this depth before it emits the first collection."""
_FAR_TO_THE_RIGHT = lazy_pattern(rb"[ \t?:-]{%d}" % _DEEPEST)
_LEAST_BUDGET = 1_000_000
_PER_BYTE = 10  # allowed number of values per byte, with aliases expanded
_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_NUMBERS = {
    _INT: r"[-+]?(?:0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)\Z",
    _FLOAT: r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?\Z",
}
"""Texts that are numbers: those of YAML 1.1 without numbers of base 60, infinities and NaN, which JSON does not have.
Texts such as ``1e3`` are none, as PyYAML writes texts like that without quotes.
"""
_NOT_JSON = frozenset({"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"})


def documents(text: bytes, source: str) -> Iterator[Any | Problem]:
    """Yield every document that is not empty; a :class:`Problem` stands in for a document that cannot be read."""
    return (document for _, document in placed_documents(text, source))


def placed_documents(text: bytes, source: str) -> list[tuple[str, Any | Problem]]:
    """Return (place, document) of every document that is not empty; the place is empty if there is only one.

    A :class:`Problem` stands for a document that cannot be read. A list of objects in block style that is nested too
    deeply, as ``kubectl get -o yaml`` writes it, is read object by object, with places such as ``document 2,
    items[3]``.
    """
    budget = _Budget(len(text))
    parts: list[tuple[int, str, str, Any | Problem]] = []
    number = 0
    for line, piece in _pieces(text):
        read = [*_read_piece(piece, line, budget)]
        number += bool(read)
        parts += [(number, *part) for part in read]
    placed: list[tuple[str, Any | Problem]] = []
    for of, item, label, document in parts:
        where = ", ".join(filter(None, (f"document {of}" if number > 1 else "", item)))
        if isinstance(document, Problem):
            name = f"{where} ({label})" if where and label else where or label
            document = replace(document, source=source, object=name)
        placed.append((where, document))
    return placed


_BOUNDARY: Final = lazy_pattern(rb"^(?=---[ \t\r\n]|---\Z)|(?<=^\.\.\.\n)|(?<=^\.\.\.\r\n)", re.MULTILINE)


def _pieces(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Split a YAML stream into documents; yield (number of lines before the document, its text).

    A document begins at each line that starts with ``---``, and after a line ``...``.
    """
    start, line = 0, 0
    for match in _BOUNDARY.finditer(text):
        piece = text[start : match.start()]
        if not all(_is_before_document(each) for each in piece.splitlines()):
            yield line, piece
            line += piece.count(b"\n")
            start = match.start()
    yield line, text[start:]


def _is_before_document(line: bytes) -> bool:
    """Check whether a line is blank, a comment, a directive, or the end of another document."""
    return line.lstrip()[:1] in (b"", b"#", b"%") or line.startswith(b"...")


class _Budget:
    """Number of values that the aliases of a stream may still expand to."""

    def __init__(self, size: int) -> None:
        self._left = max(_LEAST_BUDGET, _PER_BYTE * size)

    def take(self, values: int) -> bool:
        """Subtract ``values`` if as many are left; return whether they were."""
        if values > self._left:
            return False
        self._left -= values
        return True


_Part: TypeAlias = "tuple[str, str, Any | Problem]"
"""Where a part of a document is, what object it is if that is known, and the part."""


def _read_piece(text: bytes, line: int, budget: _Budget) -> Iterator[_Part]:
    """Yield a document, or the items of a list that is nested too deeply. ``line``: number of lines before the text.

    ``budget``: number of values that aliases may still expand to; it is reduced.
    """
    label = _too_deep(text)
    if label is None:
        yield from (("", "", document) for document in _loaded(text, line, budget))
        return
    items = _block_items(text)
    if not items:
        yield "", label, Problem(_TOO_DEEP)
    for index, (place, item) in enumerate(items):
        where = f"items[{index}]"
        label = _too_deep(item, inside=1)
        if label is not None:
            yield where, label, Problem(_TOO_DEEP)
            continue
        for document in _loaded(item, line + place, budget):
            yield where, "", document if isinstance(document, Problem) else document[0]


def _loaded(text: bytes, line: int, budget: _Budget) -> Iterator[Any | Problem]:
    """Parse the YAML of one document and yield its value, or a Problem if it is malformed or nested too deeply.

    Yields nothing for an empty text. ``line``: number of lines before the text, for messages; ``budget``: how many
    values aliases may still expand to.
    """
    yaml = library("yaml", _READING)
    try:
        for document in yaml.load_all(text, Loader=_loader()):
            if document is None:
                continue
            if b"*" in text and not budget.take(_size(document, {})):
                yield Problem("the aliases expand to too many values")
                return
            yield document
    except RecursionError:  # also an alias that contains itself
        yield Problem(_TOO_DEEP)
    except yaml.MarkedYAMLError as error:
        if error.problem == _PARSERS_OWN:
            yield Problem(_TOO_DEEP)
            return
        mark = error.problem_mark or error.context_mark
        place = f"line {line + mark.line + 1}, column {mark.column + 1}: " if mark else ""
        cause = error.problem or error.context
        if b"{{" in text:
            cause = "it looks like a template: render it first (helm template)"
        yield Problem(f"{place}malformed YAML: {cause}")
    except (yaml.YAMLError, ValueError) as error:
        yield Problem(f"malformed YAML: {error}")
    except (LookupError, AttributeError, TypeError):  # PyYAML's own conversions of values with an explicit tag
        yield Problem("malformed YAML: a value does not fit its tag")


def only_document(text: bytes, source: str) -> Any:
    """Return the only document of a text; None if it is empty.

    Raises InputError if the document cannot be read, or if there are several.
    """
    all_documents = list(documents(text, source))
    for document in all_documents:
        if isinstance(document, Problem):
            raise InputError(document)
    if len(all_documents) > 1:
        raise InputError(Problem(f"one YAML document expected, {len(all_documents)} found", source))
    return all_documents[0] if all_documents else None


def _too_deep(text: bytes, *, inside: int = 0) -> str | None:
    """Return the name of an object that is nested deeper than objects of an API are; None if it is not.

    The name is ``Pod team-a/web``, or empty if it was not read before that depth. ``inside``: number of collections
    around the object.

    The C loader recurses for each collection. It may overflow the stack, where Python raises no RecursionError. So the
    parser's events are checked first, if the text has that many brackets or a line begins that far to the right.
    """
    if text.count(b"[") + text.count(b"{") <= _DEEPEST and _FAR_TO_THE_RIGHT.search(text) is None:
        return None
    yaml = library("yaml", _READING)
    names = _Names(inside)
    try:
        for event in yaml.parse(text, Loader=_loader()):
            if isinstance(event, yaml.CollectionStartEvent):
                if names.begin(isinstance(event, yaml.MappingStartEvent)) > _DEEPEST:
                    return names.label
            elif isinstance(event, yaml.CollectionEndEvent):
                names.end()
            elif isinstance(event, (yaml.ScalarEvent, yaml.AliasEvent)):
                names.scalar(getattr(event, "value", ""))
    except yaml.MarkedYAMLError as error:
        return names.label if error.problem == _PARSERS_OWN else None  # the loader describes all other errors
    except yaml.YAMLError:
        return None
    return None


class _Names:
    """Collect kind, namespace and name of an object from the parser's events.

    ``inside``: number of collections around the object.
    """

    def __init__(self, inside: int) -> None:
        self._inside = inside
        self._depth = 0
        self._keys: list[str | None] = []
        """Last key without a value so far, of the object and of the mapping in it; None if no value is expected."""
        self._values: dict[str, str] = {}

    @property
    def label(self) -> str:
        """Return ``KIND NAMESPACE/NAME``, without the parts that were not read so far."""
        names = (self._values.get("metadata.namespace", ""), self._values.get("metadata.name", ""))
        return f"{self._values.get('kind', '')} {'/'.join(filter(None, names))}".strip()

    def begin(self, is_mapping: bool) -> int:
        """Enter a collection; return how many collections are open."""
        self._depth += 1
        if self._inside < self._depth <= self._inside + 2:
            self._keys.append(None if is_mapping else "")
        return self._depth

    def end(self) -> None:
        """Leave the innermost collection."""
        if self._inside < self._depth <= self._inside + 2:
            self._keys.pop()
        self._depth -= 1
        self._have_value()

    def scalar(self, value: str) -> None:
        """Read a scalar: a key of the current mapping, or the value of its last key."""
        if not self._is_near:
            return
        if self._keys[-1] is None:
            self._keys[-1] = value
            return
        self._values.setdefault(".".join(key or "" for key in self._keys), value)
        self._have_value()

    @property
    def _is_near(self) -> bool:
        """Check whether the current collection is the object itself, or a collection directly in it."""
        return self._inside < self._depth <= self._inside + 2

    def _have_value(self) -> None:
        """Mark the last key as having its value, so that the next scalar is read as a key."""
        if self._is_near:
            self._keys[-1] = None


_ITEMS: Final = lazy_pattern(rb"^items:[ \t]*(?:#.*)?\r?\n", re.MULTILINE)
_ITEM: Final = lazy_pattern(rb"[ ]*(?=- )")


def _block_items(text: bytes) -> list[tuple[int, bytes]]:
    """Split the YAML text of a list of objects into (number of lines before the item, item as a sequence of one).

    Empty if the text has no ``items`` in block style (one ``- `` per item).
    """
    match = _ITEMS.search(text)
    first = match and _ITEM.match(text, match.end())
    if match is None or not first:
        return []
    indent = first.end() - first.start()
    begins = re.compile(rb"^ {%d}- " % indent, re.MULTILINE)
    after = re.compile(rb"^ {0,%d}[^ \n\r#-]" % indent, re.MULTILINE).search(text, match.end())
    end = after.start() if after else len(text)
    starts = [each.start() for each in begins.finditer(text, match.end(), end)]
    items, line, before = [], 0, 0
    for start, following in zip(starts, [*starts[1:], end], strict=True):
        line += text.count(b"\n", before, start)
        before = start
        items.append((line, text[start:following]))
    return items


def _size(value: Any, known: dict[int, int]) -> int:
    """Return how many scalars and collections a value contains, with every alias expanded.

    ``known`` caches sizes by object identity; it is updated.
    """
    if not isinstance(value, (dict, list)):
        return 1
    size = known.get(id(value))
    if size is None:
        inner = value.values() if isinstance(value, dict) else value
        size = known[id(value)] = 1 + sum(_size(each, known) for each in inner)
    return size
