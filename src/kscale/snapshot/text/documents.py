"""Split texts into documents: concatenated JSON, NDJSON and multi-document YAML (extra ``[yaml]``).

A text is scanned once to find its form, and once more to yield its documents, one in memory at a time. Of a stream
with one document per line, only one line is in memory, until a line is not a complete document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any, BinaryIO, ClassVar, Final, TypeAlias

import msgspec

from kscale._native import _projection
from kscale.errors import InputError, Problem
from kscale.libraries import library
from kscale.objects.decode import syntax_problem

__all__ = ["check_syntax", "documents", "object_lines", "only_document", "placed_documents", "several_documents"]


_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_LINE_END = re.compile(rb"\n|\Z")
_PIECE: Final = 1 << 20
_RAW: Final = msgspec.json.Decoder(msgspec.Raw)

_Placed: TypeAlias = "tuple[str, memoryview | Problem]"
"""The line that a document begins on (``line 5``), and its text or what is wrong with it."""


def check_syntax(view: memoryview) -> None:
    """Raise DecodeError for a text that is not JSON, at any depth.

    Raises RecursionError for a damaged text that is nested deeply.
    """
    try:
        _RAW.decode(view)
    except RecursionError:
        end, _ = _projection.json_extent(view)
        if end < 0:  # also damaged elsewhere
            raise
        rest = bytes(view[end:])
        if rest.strip():
            place = end + len(rest) - len(rest.lstrip()) + 1
            raise msgspec.DecodeError(f"JSON is malformed: trailing characters (byte {place})") from None


def object_lines(stream: BinaryIO) -> bytearray | Iterator[tuple[int, bytes | bytearray]]:
    """Return the numbered lines (from 1) of a stream with one document per line; the full text of any other stream.

    The first line must be an object, followed by another line. From the first line that is not a complete document on,
    the rest is one text.
    """
    first, second = stream.readline(), stream.readline()
    if second and _is_object(memoryview(first)):
        return _lines_and_rest(chain([first, second], stream), stream)
    return _read_rest(first + second, stream)


def _lines_and_rest(lines: Iterator[bytes], stream: BinaryIO) -> Iterator[tuple[int, bytes | bytearray]]:
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
    """Return a line together with all that follows it in the stream."""
    text = bytearray(begun)
    while more := stream.read(_PIECE):
        text += more
    return text


def several_documents(
    view: memoryview, source: str, error: msgspec.DecodeError | UnicodeDecodeError, line: int | None = None
) -> Iterator[_Placed]:
    """Yield the documents of a text that ``error`` shows not to be a single document.

    Damaged documents are yielded as problems: only the last one of concatenated documents, but any number of lines.
    ``line`` is the number of the first line, for part of a text with one document per line.
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
    """Yield (begin, end, damage) of each document, where the decoder says that it ends. A damaged one is the last."""
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
    """Yield JSON documents that follow each other, each with its line; a damaged one as a Problem."""
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
    """Yield lines that are not blank with their numbers, from ``first``."""
    start = 0
    for number, end in enumerate(_LINE_END.finditer(view), start=first):
        line = view[start : end.start()]
        start = end.end()
        if bytes(line[:1]).strip() or bytes(line).strip():
            yield number, line


def _read_lines(view: memoryview, source: str, first: int) -> Iterator[_Placed]:
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


_READING: Final = "reading YAML"


@cache
def _loader() -> Any:
    yaml = library("yaml", _READING)
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]  # the base is chosen at run time
        """The C loader without the conversions that the API's JSON does not have."""

        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
            first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NOT_JSON]
            for first, resolvers in base.yaml_implicit_resolvers.items()
        }

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

    return Loader


_MERGE = "tag:yaml.org,2002:merge"
_TOO_DEEP = "nested too deeply to be read"
_DEEPEST = 500
_PARSERS_OWN = "exceeded maximum nesting depth"
"""LibYAML's error for a depth of 1,000. LibYAML may read ahead to this depth before it emits the first collection."""
_FAR_TO_THE_RIGHT = re.compile(rb"[ \t?:-]{%d}" % _DEEPEST)
_LEAST_BUDGET = 1_000_000
_PER_BYTE = 10  # allowed number of values per byte, with aliases expanded
_NOT_JSON = frozenset({"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"})


def documents(text: bytes, source: str) -> Iterator[Any | Problem]:
    """Yield every document that is not empty; a :class:`Problem` stands in for a document that cannot be read."""
    return (document for _, document in placed_documents(text, source))


def placed_documents(text: bytes, source: str) -> list[tuple[str, Any | Problem]]:
    """Every document that is not empty, and where it is: ``document 2``, or empty if it is the only one. A
    :class:`Problem` stands for one that cannot be read.

    Of a list of objects in block style that is nested too deeply, as ``kubectl get -o yaml`` writes one, each object is
    read by itself (``items[3]``).
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


_BOUNDARY: Final = re.compile(rb"^(?=---[ \t\r\n]|---\Z)|(?<=^\.\.\.\n)|(?<=^\.\.\.\r\n)", re.MULTILINE)


def _pieces(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Split a stream where documents begin: the lines before each, and its text. A line that begins with ``---`` can be
    nothing else, whatever is before it, and ``...`` ends one.
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
    """Whether a line is blank, a comment, a directive, or the end of another document."""
    return line.lstrip()[:1] in (b"", b"#", b"%") or line.startswith(b"...")


class _Budget:
    """Number of values that the aliases of a stream may still expand to."""

    def __init__(self, size: int) -> None:
        self._left = max(_LEAST_BUDGET, _PER_BYTE * size)

    def take(self, values: int) -> bool:
        """Take so many, if as many are left."""
        if values > self._left:
            return False
        self._left -= values
        return True


_Part: TypeAlias = "tuple[str, str, Any | Problem]"
"""Where a part of a document is, what object it is if that is known, and the part."""


def _read_piece(text: bytes, line: int, budget: _Budget) -> Iterator[_Part]:
    """Read one document, item by item if it is a list that is nested too deeply."""
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
    """Load the document of a text that is not nested too deeply, and begins after so many lines."""
    yaml = library("yaml", _READING)
    try:
        for document in yaml.load_all(text, Loader=_loader()):
            if document is None:
                continue
            if b"*" in text and not budget.take(_size(document, {})):
                yield Problem("the aliases stand for too many values")
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


def only_document(text: bytes, source: str) -> Any:
    """Return the only document of a text; None if it is empty. Raises InputError for damage or several documents."""
    all_documents = list(documents(text, source))
    for document in all_documents:
        if isinstance(document, Problem):
            raise InputError(document)
    if len(all_documents) > 1:
        raise InputError(Problem(f"one YAML document expected, {len(all_documents)} found", source))
    return all_documents[0] if all_documents else None


def _too_deep(text: bytes, *, inside: int = 0) -> str | None:
    """Whether collections nest deeper than objects of an API do: the object as far as it was read before (``Pod
    team-a/web``, or empty); None if they do not. ``inside``: how many collections are around the object.

    The C loader builds them by recursion, and there is no Python frame that could raise RecursionError before its stack
    is full: so it is asked event by event first, where the text has as many brackets, or a line begins so far to the
    right.
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
        return names.label if error.problem == _PARSERS_OWN else None  # of another fault the loader says what it is
    except yaml.YAMLError:
        return None
    return None


class _Names:
    """Kind, namespace and name of the object whose events are seen. ``inside``: the collections around it."""

    def __init__(self, inside: int) -> None:
        self._inside = inside
        self._depth = 0
        self._keys: list[str | None] = []
        """Last key without a value so far, of the object and of the mapping in it; None if no value is expected."""
        self._values: dict[str, str] = {}

    @property
    def label(self) -> str:
        names = (self._values.get("metadata.namespace", ""), self._values.get("metadata.name", ""))
        return f"{self._values.get('kind', '')} {'/'.join(filter(None, names))}".strip()

    def begin(self, is_mapping: bool) -> int:
        """Begin a collection; return the depth."""
        self._depth += 1
        if self._inside < self._depth <= self._inside + 2:
            self._keys.append(None if is_mapping else "")
        return self._depth

    def end(self) -> None:
        """Handle the end of a collection."""
        if self._inside < self._depth <= self._inside + 2:
            self._keys.pop()
        self._depth -= 1
        self._have_value()

    def scalar(self, value: str) -> None:
        if not self._is_near:
            return
        if self._keys[-1] is None:
            self._keys[-1] = value
            return
        self._values.setdefault(".".join(key or "" for key in self._keys), value)
        self._have_value()

    @property
    def _is_near(self) -> bool:
        return self._inside < self._depth <= self._inside + 2

    def _have_value(self) -> None:
        if self._is_near:
            self._keys[-1] = None


_ITEMS: Final = re.compile(rb"^items:[ \t]*(?:#.*)?\r?\n", re.MULTILINE)
_ITEM: Final = re.compile(rb"[ ]*(?=- )")


def _block_items(text: bytes) -> list[tuple[int, bytes]]:
    """Split a list of objects in block style into its items, each as a sequence of one: lines before it, and its text.

    Return an empty list if the text is something else.
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
    """Return the number of values with every alias expanded. ``known`` caches sizes by object identity."""
    if not isinstance(value, (dict, list)):
        return 1
    size = known.get(id(value))
    if size is None:
        inner = value.values() if isinstance(value, dict) else value
        size = known[id(value)] = 1 + sum(_size(each, known) for each in inner)
    return size
