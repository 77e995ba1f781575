"""Read single objects from files, directories, streams, plain data, structs and objects of client libraries.

Supported client libraries: the official client and its asyncio variant (models with ``attribute_map``), lightkube and
kr8s (``to_dict()``), and any other object with ``to_dict()`` or ``raw``. Only the kind is decoded here: the items of
a JSON list are views into the (memory-mapped) file.
"""

from __future__ import annotations

import codecs
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np

from kscale._native import _projection
from kscale.errors import InputError, Problem
from kscale.files import ENDLESS, is_endless, open_file
from kscale.imports import lazy_pattern
from kscale.objects.api.meta import KubeObject
from kscale.objects.decode import ObjectHead, encoding_error, json_members, object_head
from kscale.objects.kinds import KINDS, item_kind
from kscale.snapshot.text.documents import check_syntax, object_lines, several_documents
from kscale.snapshot.text.files import Buffer, MappedFile, decompress, file_of

if TYPE_CHECKING:
    from kscale.snapshot.text.pod_reader import DecodedObject, PodRun, ScannedList

__all__ = [
    "STDIN",
    "DecodedItems",
    "NamedText",
    "RawObject",
    "Scan",
    "Source",
    "explain_no_object",
    "explain_no_text",
    "head_of",
    "is_client_object",
    "read",
    "read_scanned",
    "to_plain",
]


_RESPONSES_WITHOUT_OBJECTS: Final = {"Status": "v1", "Table": "meta.k8s.io/"}
"""The kind, and how its version begins."""


def explain_no_object(api_version: str, kind: str, data: msgspec.Raw | dict[str, Any]) -> str | None:
    """Return a message for an API response that has no objects: a Table, or a Status with an error.

    None for data of any other kind.
    """
    version = _RESPONSES_WITHOUT_OBJECTS.get(kind)
    if version is None or not api_version.startswith(version):
        return None
    if kind == "Table":
        return "a Table for people to read, not objects: dump them with -o json"
    try:
        content: Any = msgspec.json.decode(data) if isinstance(data, msgspec.Raw) else data
    except (ValueError, RecursionError):  # not UTF-8, or nested too deeply
        content = {}
    texts = (content.get(name) for name in ("message", "reason", "status"))
    text = next((text for text in texts if text and isinstance(text, str)), "no message")
    return f"the API server answered with an error, not with objects: {text}"


def explain_no_text(content: bytes) -> str | None:
    """Return why bytes are not text; None if they are UTF-8."""
    if b"\0" in content:
        return "binary data"
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte {error.start} is 0x{content[error.start]:02x}"
    return None


_MODEL_NAME = lazy_pattern(r"^(?:[A-Z][a-z]+)?(V[0-9]+(?:(?:alpha|beta)[0-9]+)?)([A-Z].*)$")


def is_client_object(value: Any) -> bool:
    """Return whether :func:`to_plain` can convert the value."""
    if isinstance(value, (type, Mapping, str, bytes)):
        return False
    if hasattr(value, "attribute_map") or callable(getattr(value, "to_dict", None)):
        return True
    return isinstance(getattr(value, "raw", None), Mapping)


def to_plain(value: Any) -> dict[str, Any]:
    """Convert a client library's object to the API's form, with camelCase keys and RFC 3339 times.

    ``kind`` is set from the class name if the object has none.
    """
    if hasattr(value, "attribute_map") and hasattr(value, "openapi_types"):
        data: dict[str, Any] = _model(value)
        match = _MODEL_NAME.match(type(value).__name__)
        version, kind = (match[1].lower(), match[2]) if match else ("", type(value).__name__)
        # List items have no kind or version. The class name has both, without the group.
        if version and "apiVersion" not in data and (api_version := _api_version(version, kind)):
            data["apiVersion"] = api_version
    else:
        data = _to_plain_data(value.to_dict() if callable(getattr(value, "to_dict", None)) else value.raw)
        kind = type(value).__name__
    data.setdefault("kind", kind)
    return data


def _api_version(version: str, kind: str) -> str:
    """Return ``apps/v1`` for v1 and Deployment (or DeploymentList); empty for a kind that kscale does not read."""
    groups = [group for group, name in KINDS if name in (kind, item_kind(kind)) and "/" not in group]
    return "/".join(part for part in (groups[0], version) if part) if groups else ""


def _model(value: Any) -> Any:
    """Return the JSON members of a model of the official client, without those that are None."""
    fields = ((json_name, getattr(value, name)) for name, json_name in value.attribute_map.items())
    return {json_name: _to_plain_data(item) for json_name, item in fields if item is not None}


def _to_plain_data(value: Any) -> Any:
    """Convert the models and times in a value to plain JSON data. A time without a zone is UTC."""
    if hasattr(value, "attribute_map") and hasattr(value, "openapi_types"):
        return _model(value)
    if isinstance(value, Mapping):
        return {str(key): _to_plain_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain_data(item) for item in value]
    if isinstance(value, datetime):
        if value.tzinfo is None:
            value = value.replace(tzinfo=UTC)
        text = value.astimezone(UTC).isoformat(timespec="microseconds" if value.microsecond else "seconds")
        return text.replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value


class NamedText(msgspec.Struct, frozen=True):
    """Text with objects that does not come from a file, and its name for messages."""

    name: str
    data: bytes


Source: TypeAlias = (
    "str | os.PathLike[str] | bytes | bytearray | memoryview | NamedText | Mapping[str, Any] | KubeObject | Any"
)
"""A path, a directory, ``-``, bytes, bytes with a name, an open file, a dict, a struct, a client object, or an iterable
of these."""

STDIN: Final = "-"
_SUFFIXES: Final = tuple(f"{kind}{packing}" for kind in (".json", ".yaml", ".yml") for packing in ("", ".gz", ".zst"))
_BOM: Final = b"\xef\xbb\xbf"
_HEAD = lazy_pattern(
    rb'\s*\{\s*(?:"apiVersion"\s*:\s*"([^"\\]*)"\s*,\s*"kind"\s*:\s*"([^"\\]*)"'
    rb'|"kind"\s*:\s*"([^"\\]*)"\s*,\s*"apiVersion"\s*:\s*"([^"\\]*)")'
)
_HEAD_SIZE: Final = 256


class RawObject(msgspec.Struct, frozen=True):
    """One object, not yet decoded.

    ``data`` is JSON text (:class:`msgspec.Raw`), plain data, or a struct. ``source`` names the file (``-`` standard
    input, ``<bytes>``, empty for data given in Python); ``where`` the place in it (``items[17]``, ``line 5``).
    ``in_directory``: the file was found in a directory, where files without objects are no errors. ``empty``: the
    record stands for an empty list, which is yielded only on request.
    """

    api_version: str
    kind: str
    data: msgspec.Raw | dict[str, Any] | KubeObject
    source: str = ""
    where: str = ""
    in_directory: bool = False
    empty: bool = False


Scan: TypeAlias = "Callable[[memoryview, str, str], ScannedList | None]"
"""(text, source, place of the items) -> the list with its pods as columns; None: read item by item."""


class DecodedItems(NamedTuple):
    """Consecutive items of a list that were decoded without problems.

    ``objects``: the decoded items; ``spans``: begin and size of each item's text in ``view``; ``source``, ``place``:
    name of the input and path of the list in it; ``first``: number of the first item in the list.
    """

    objects: list[DecodedObject]
    view: memoryview
    spans: list[tuple[int, int]]
    source: str
    place: str
    first: int

    def record(self, i: int) -> RawObject:
        """Return one of the objects as a record, for messages."""
        obj, (at, size) = self.objects[i][1], self.spans[i]
        obj = obj if isinstance(obj, KubeObject) else obj.get()
        raw = msgspec.Raw(self.view[at : at + size])
        return RawObject(obj.api_version, obj.kind, raw, self.source, f"{self.place}[{self.first + i}]")


_Item: TypeAlias = "RawObject | Problem | PodRun | DecodedItems"


class _Head(msgspec.Struct, rename="camel"):
    api_version: str | None = None
    kind: str | None = None


class _Envelope(msgspec.Struct, rename="camel"):
    """An object or a list of objects; ``items`` stays absent for an object."""

    api_version: str | None = None
    kind: str | None = None
    items: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_HEADS: Final = msgspec.json.Decoder(_Head)
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])


def read(*sources: Source, empty_lists: bool = False) -> Iterator[RawObject | Problem]:
    """Yield all objects of all sources in order; a :class:`Problem` stands for data that cannot be read at all.

    ``empty_lists``: also yield empty lists of a kind (``PodMetricsList``), as records of the list. Raises InputError
    for a source of a type that is not supported.
    """
    for item in read_scanned(*sources, scan=None, empty_lists=empty_lists):
        assert isinstance(item, (RawObject, Problem))  # there are runs of pods only with a scan
        yield item


def read_scanned(*sources: Source, scan: Scan | None, empty_lists: bool = False) -> Iterator[_Item]:
    """Yield objects as :func:`read` does, with the pods of JSON lists in runs as ``scan`` reads them.

    Other items that the scan has decoded are yielded as :class:`DecodedItems`. ``scan`` None: no list is scanned.
    ``empty_lists``: yield a record for each list without items, too.
    """
    for source in sources:
        for item in _read(source, scan):
            if not isinstance(item, RawObject):
                yield item
            elif item.kind in _RESPONSES_WITHOUT_OBJECTS:
                yield _find_problem(item) or item
            elif empty_lists or not item.empty:
                yield item


def _find_problem(item: RawObject) -> Problem | None:
    """Return the problem of an API response without objects (:func:`explain_no_object`); None for other items."""
    if isinstance(item.data, KubeObject):
        return None
    why = explain_no_object(item.api_version, item.kind, item.data)
    return None if why is None else Problem(why, item.source, item.where)


_NESTED_SOURCES: Final = 50
"""Levels of lists of sources."""


def _read(source: Source, scan: Scan | None, depth: int = 0) -> Iterator[_Item]:
    """Yield the items of one source. ``scan``: reads JSON lists (None: they are read item by item).

    Raises InputError for a type that ``Source`` does not have, and for too deeply nested sequences of sources
    (``depth``: sequences around this source).
    """
    if isinstance(source, KubeObject):
        yield RawObject(source.api_version, source.kind or type(source).__name__, source)
    elif isinstance(source, Mapping):
        yield from _from_data(dict(source), "", "")
    elif isinstance(source, (bytes, bytearray, memoryview)):
        yield from _from_buffer(bytes(source), "<bytes>", False, scan)  # pods are read later: it must not change
    elif isinstance(source, NamedText):
        yield from _from_buffer(source.data, source.name, False, scan)
    elif isinstance(source, (str, os.PathLike)):
        yield from _from_path(source, scan)
    elif is_client_object(source):
        yield from _from_data(to_plain(source), "", "")
    elif callable(getattr(source, "read", None)):
        yield from _from_open_file(source, scan)
    elif isinstance(source, Iterable):
        if depth >= _NESTED_SOURCES:
            raise InputError(f"sources: lists are nested more than {_NESTED_SOURCES} deep")
        for item in source:
            yield from _read(item, scan, depth + 1)
    else:
        raise InputError(f"cannot read objects from {type(source).__name__}")


# -- files -----------------------------------------------------------------------------------------------------


def _from_open_file(source: Any, scan: Scan | None) -> Iterator[_Item]:
    """Yield the objects of a file that the caller opened, binary or text, from its current position.

    Raises InputError if ``read()`` returns neither bytes nor str.
    """
    name = getattr(source, "name", "")
    name = name if isinstance(name, str) and name else f"<{type(source).__name__}>"
    try:
        data = source.read()
    except (OSError, ValueError) as error:  # closed, not opened for reading, or not UTF-8
        yield Problem(f"cannot be read: {error}", name)
        return
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    if not isinstance(data, (bytes, bytearray)):
        raise InputError(f"{name}: read() returned {type(data).__name__}, not bytes or str")
    yield from _from_buffer(bytes(data), name, False, scan)


def _from_path(source: str | os.PathLike[str], scan: Scan | None) -> Iterator[_Item]:
    """Yield the items of standard input (``-``), of a file, or of the JSON and YAML files in a directory, by path."""
    if source == STDIN:
        yield from _from_stream(sys.stdin.buffer, STDIN, False, scan)
        return
    text = os.fspath(source)
    if "\n" in text or "\0" in text or text.lstrip()[:1] in ("{", "["):
        yield Problem(f"{text[:30]!r}... is no path; give the text of objects as bytes")
        return
    path = Path(source)
    if not os.path.isdir(path):
        yield from _from_file(path, False, scan)
        return
    closed: list[OSError] = []
    files = sorted(
        Path(folder, name)
        for folder, _, names in os.walk(path, onerror=closed.append)
        for name in names
        if name.endswith(_SUFFIXES) and not name.startswith(".") and Path(folder, name).is_file()
    )
    for error in closed:
        yield Problem(error.strerror or str(error), str(error.filename))
    if not files and not closed:
        yield Problem(f"no file with suffix {', '.join(_SUFFIXES)} in this directory", str(path))
    for file in files:
        yield from _from_file(file, True, scan)


def _from_file(path: Path, in_directory: bool, scan: Scan | None) -> Iterator[_Item]:
    """Yield the items of a file, which is memory-mapped if possible; a Problem if it cannot be read.

    ``in_directory``: see :class:`RawObject`.
    """
    try:
        with open_file(path) as file:
            status = os.fstat(file.fileno())
            size = status.st_size
            if is_endless(status) and not file.isatty():
                yield Problem(ENDLESS, str(path))
                return
            try:
                # The mapping outlives the file object; the views into it keep it alive.
                buffer: Buffer = MappedFile.of(file, str(path)) if size else file.read()
            except (ValueError, OSError):  # a pipe or a device
                yield from _from_stream(file, str(path), in_directory, scan)
                return
    except OSError as error:
        yield Problem(error.strerror or str(error), str(path))
        return
    yield from _from_buffer(buffer, str(path), in_directory, scan)


def _from_stream(stream: BinaryIO, source: str, in_directory: bool, scan: Scan | None) -> Iterator[_Item]:
    """Yield the objects of a stream. A stream with one document per line is read line by line, any other at once."""
    try:
        lines = object_lines(stream)
        if isinstance(lines, bytearray):
            yield from _from_buffer(lines, source, in_directory, scan)
            return
        for number, text in lines:
            yield from _from_json(text, source, in_directory, scan, number)
    except RecursionError:
        yield Problem("nested too deeply to be read", source)


def _from_buffer(buffer: Buffer, source: str, in_directory: bool, scan: Scan | None) -> Iterator[_Item]:
    """Yield the items of a file's content; a Problem if it is nested too deeply."""
    try:
        yield from _from_text(buffer, source, in_directory, scan)
    except RecursionError:
        yield Problem("nested too deeply to be read", source)


def _from_text(buffer: Buffer, source: str, in_directory: bool, scan: Scan | None) -> Iterator[_Item]:
    """Yield the items of JSON or YAML text, possibly compressed or in UTF-16 or UTF-32; a Problem for anything else."""
    text = decompress(buffer, source)
    if isinstance(text, Problem):
        yield text
        return
    buffer = text
    start = bytes(memoryview(buffer)[:4])
    if start in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE):
        buffer = bytes(buffer).decode("utf-32", "replace").encode()
    elif start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):  # as written by a Windows shell
        buffer = bytes(buffer).decode("utf-16", "replace").encode()
    if start[:3] == _BOM:
        buffer = bytes(buffer)[3:]
    head = bytes(memoryview(buffer)[:4096]).lstrip()
    if not head and not bytes(buffer).strip():
        yield Problem("the file is empty", source)
    elif head[:4] == b"null" and bytes(buffer).strip() == b"null":  # as printed by a JSON filter without a result
        yield Problem("not a Kubernetes object: expected a mapping, got null", source)
    elif head[:1] in (b"{", b"["):
        records = _from_json(buffer, source, in_directory, scan)
        if source.removesuffix(".gz").removesuffix(".zst").endswith((".yaml", ".yml")):
            all_records = list(records)
            damaged = [isinstance(record, Problem) for record in all_records]
            # YAML flow style that is not JSON, or documents in JSON with separators of YAML (no JSON has such a line)
            if all(damaged) or (any(damaged) and re.search(rb"\n---", buffer)):
                records = _from_yaml(bytes(buffer), source, in_directory)
            else:
                records = iter(all_records)
        yield from records
    elif (strange := explain_no_text(bytes(buffer))) is not None:
        yield Problem(f"neither JSON nor YAML: {strange}", source)
    else:
        yield from _from_yaml(bytes(buffer), source, in_directory)


# -- JSON ------------------------------------------------------------------------------------------------------


def _from_json(
    buffer: Buffer, source: str, in_directory: bool, scan: Scan | None, line: int | None = None
) -> Iterator[_Item]:
    """Yield the objects of JSON text: one document, several concatenated ones, or one per line.

    ``line`` is the number of the first line, for part of a text with one document per line.
    """
    view = memoryview(buffer)
    try:
        yield from _from_json_document(view, source, f"line {line}" if line else "", in_directory, scan)
        return
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        encoding = encoding_error(error, view)
        if encoding is not None:
            yield Problem(f"not UTF-8: {encoding}", source)
            return
        several = several_documents(view, source, error, line)
    for where, document in several:
        if isinstance(document, Problem):
            yield document
            continue
        try:
            yield from _from_json_document(document, source, where, in_directory, scan)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            yield Problem(str(error), source, where)


def _from_json_document(
    view: memoryview, source: str, where: str, in_directory: bool, scan: Scan | None
) -> Iterator[_Item]:
    """Yield the items of one JSON document: an array, a list of objects, or an object. ``where``: its place."""
    first = bytes(view[:4096]).lstrip()[:1]
    if first == b"[":
        yield from _from_items(_array(view), source, _join_places(where, ""), "", "", in_directory)
        return
    scanned = scan(view, source, _join_places(where, "items")) if scan is not None else None
    if scanned is not None and (scanned.kind.endswith("List") or not scanned.kind):
        yield from _from_scanned(scanned, view, source, in_directory)
        return
    try:
        envelope = _envelope(view)
    except msgspec.ValidationError as error:
        check_syntax(view)  # a syntax error is reported first
        yield Problem(f"not a Kubernetes object: {error}", source, where)
        return
    kind, api_version = envelope.kind or "", envelope.api_version or ""
    if isinstance(envelope.items, msgspec.UnsetType) or not (kind.endswith("List") or not kind):
        yield RawObject(api_version, kind, msgspec.Raw(view), source, where, in_directory)
        return
    if _projection.repeats_a_key(view, 1):
        yield Problem("a key of the list comes twice", source, where)
        return
    own = item_kind(kind)
    place = _join_places(where, "items")
    if own and not envelope.items:
        yield RawObject(api_version, kind, msgspec.Raw(view), source, where, in_directory, empty=True)
    yield from _from_items(envelope.items or (), source, place, own, api_version if own else "", in_directory)


def _array(view: memoryview) -> list[msgspec.Raw]:
    """Return the elements of a JSON array, nested to any depth. Raises DecodeError for a text that is not JSON."""
    try:
        return _ARRAY.decode(view)
    except RecursionError:
        check_syntax(view)
        places = _projection.json_elements(view)
        return [] if places is None else [msgspec.Raw(view[at : at + size]) for at, size in places.tolist()]


def _envelope(view: memoryview) -> _Envelope:
    """Return the head and the items of an object or a list, nested to any depth.

    Raises DecodeError for a text that is not JSON.
    """
    try:
        return _ENVELOPE.decode(view)
    except RecursionError:
        check_syntax(view)
        members = json_members(view)
        head = object_head(view)
        items = members.get("items", memoryview(b""))
        listed = bytes(items[:1]) == b"["
        return _Envelope(head.api_version, head.kind, _array(items) if listed else msgspec.UNSET)


def _from_scanned(scanned: ScannedList, view: memoryview, source: str, in_directory: bool) -> Iterator[_Item]:
    """Yield the items of a scanned list, in order.

    Consecutive pods are a PodRun, and consecutive other items that the scan has decoded are a DecodedItems. Items that
    the scan has not decoded are yielded one by one.
    """
    from kscale.snapshot.text.pod_reader import PodRun

    own = item_kind(scanned.kind)
    version = scanned.api_version if own else ""
    file = file_of(view)
    for part in scanned.parts():
        if file is not None:  # the scan, or the reader of the part before, has touched more of it than is needed again
            file.release()
        pods, pods_done = part.pods, 0
        others = np.flatnonzero(~part.fast)
        # Others that follow each other are a run, if they were decoded or not.
        is_decoded = np.fromiter(((part.first + i) in scanned.objects for i in others.tolist()), np.bool_, len(others))
        ends = (np.flatnonzero((np.diff(others, append=-1) != 1) | np.diff(is_decoded, append=False)) + 1).tolist()
        numbers = others.tolist()
        begin = 0
        for end in ends:
            pods_before = numbers[begin] - begin
            if pods_before > pods_done:
                yield PodRun(pods, pods_done, pods_before)
                pods_done = pods_before
            first, run = part.first + numbers[begin], others[begin:end]
            spans = list(zip(part.begin[run].tolist(), part.size[run].tolist(), strict=True))
            if is_decoded[begin]:
                objects = [scanned.objects.pop(number) for number in range(first, first + len(run))]
                yield DecodedItems(objects, view, spans, source, pods.place, first)
            else:
                raws = (msgspec.Raw(view[at : at + size]) for at, size in spans)
                yield from _from_items(raws, source, pods.place, own, version, in_directory, first)
            begin = end
        if len(pods) > pods_done:
            yield PodRun(pods, pods_done, len(pods))


def _join_places(where: str, place: str) -> str:
    """Return the place of an item within its container: ``document 2, items[3]``, or ``place`` if ``where`` is empty.

    With an empty ``place`` the result ends with ``, ``, and the caller appends the position.
    """
    return f"{where}, {place}" if where else place


def head_of(text: memoryview) -> tuple[str, str] | None:
    """Return (API version, kind) if an object begins with them, written without escapes; otherwise None."""
    match = _HEAD.match(text[:_HEAD_SIZE])
    return None if match is None else _read_head(match.groups())


@lru_cache(maxsize=1 << 10)  # the keys come from input files
def _read_head(groups: tuple[bytes | None, bytes | None, bytes | None, bytes | None]) -> tuple[str, str]:
    """Return API version and kind from the groups of :data:`_HEAD`."""
    version, own, own_later, version_later = groups
    return (version or version_later or b"").decode(), (own or own_later or b"").decode()


def _from_items(
    items: Iterable[msgspec.Raw],
    source: str,
    place: str,
    kind: str,
    api_version: str,
    in_directory: bool,
    first: int = 0,
) -> Iterator[_Item]:
    """Yield the items of a list. ``kind`` and ``api_version`` are the defaults for items without them.

    ``place``: place of the list; ``first``: number of the first item.
    """
    for index, raw in enumerate(items, start=first):
        where = f"{place}[{index}]"
        known_head = head_of(memoryview(raw))
        if known_head is not None:
            record = RawObject(*known_head, raw, source, where, in_directory)
        else:
            try:
                head: _Head | ObjectHead = _HEADS.decode(raw)
            except (msgspec.ValidationError, UnicodeDecodeError) as error:
                yield Problem(f"not a Kubernetes object: {error}", source, where)
                continue
            except RecursionError:
                head = object_head(memoryview(raw))
            record = RawObject(head.api_version or api_version, head.kind or kind, raw, source, where, in_directory)
        if record.kind.endswith("List"):
            yield from _from_json_document(memoryview(raw), source, where, in_directory, None)  # a list in a list
        else:
            yield record


# -- YAML and plain data ---------------------------------------------------------------------------------------


def _from_yaml(text: bytes, source: str, in_directory: bool) -> Iterator[_Item]:
    """Yield the items of all documents of a YAML stream. Raises MissingExtraError without PyYAML."""
    from kscale.snapshot.text.documents import placed_documents

    for where, document in placed_documents(text, source):
        if isinstance(document, Problem):
            yield document
        else:
            yield from _from_data(document, source, where, in_directory)


def _from_data(data: Any, source: str, where: str, in_directory: bool = False) -> Iterator[_Item]:
    """Yield the items of plain data: an object, a list of objects, or a sequence of these. ``where``: their place."""
    if isinstance(data, list):
        for index, item in enumerate(data):
            yield from _from_data(item, source, _join_places(where, f"[{index}]"), in_directory)
        return
    if not isinstance(data, dict):
        yield Problem(f"not a Kubernetes object: expected a mapping, got {type(data).__name__}", source, where)
        return
    kind, api_version = _text_or_empty(data.get("kind")), _text_or_empty(data.get("apiVersion"))
    if "items" not in data or not (kind.endswith("List") or not kind):
        yield RawObject(api_version, kind, data, source, where, in_directory)
        return
    items = data["items"]
    if not isinstance(items, list | None):
        yield Problem(f"items: expected a list, got {type(items).__name__}", source, where)
        return
    own = item_kind(kind)
    if own and not items:
        yield RawObject(api_version, kind, data, source, where, in_directory, empty=True)
    for index, item in enumerate(items or ()):
        place = _join_places(where, f"items[{index}]")
        if is_client_object(item):
            item = to_plain(item)
        if own and isinstance(item, dict) and "kind" not in item:
            yield RawObject(
                _text_or_empty(item.get("apiVersion")) or api_version, own, item, source, place, in_directory
            )
        else:
            yield from _from_data(item, source, place, in_directory)


def _text_or_empty(value: Any) -> str:
    """Return the value if it is a ``str``, otherwise an empty one."""
    return value if isinstance(value, str) else ""
