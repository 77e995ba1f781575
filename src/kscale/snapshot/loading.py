"""Decode records into objects, collecting all problems and counting all objects that were not read.

Not in upstream.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from kscale.errors import InputError, Problem
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import CustomWorkload, KubeObject, ObjectMeta
from kscale.objects.decode import decoder, describe, from_dict, from_json, object_head, refuse_depth, syntax_problem
from kscale.objects.kinds import (
    DEFAULT_NAMESPACE,
    KINDS,
    custom_kind_key,
    find_kind,
    group_of,
    is_custom_group,
    with_namespace,
)
from kscale.objects.names import with_name
from kscale.objects.validation import check, refuse_repeated_keys
from kscale.snapshot.text.sources import DecodedItems, NamedText, RawObject, Scan, Source, head_of, read_scanned

if TYPE_CHECKING:
    from kscale.snapshot.changes import ChangedKeys
    from kscale.snapshot.text.pod_reader import DecodedObject, PodBatch, PodRun

__all__ = ["LoadReport", "Loaded", "decode_plain_object", "load_batches", "load_objects"]

_NO_KIND = "(no kind)"
_TWICE = "comes twice; the last one counts"
_MAX_WARNINGS = 1000


class Loaded(NamedTuple):
    """A decoded object and its source data, which are JSON text, plain data, or None for a struct."""

    obj: KubeObject
    """The object."""
    raw: msgspec.Raw | dict[str, Any] | None
    """Source of the decoded object."""


class LoadReport(msgspec.Struct):
    """Counts and messages about what was read.

    ``read``: objects per kind. ``skipped``: objects of kinds that are not modelled, per ``kind.group``. ``problems``:
    objects and files that could not be used. ``warnings``: objects that were used although no API server would store
    them (the first 1000; ``warning_count`` counts all). ``duplicates``: later objects of the same kind, namespace and
    name (the last wins).
    """

    read: Counter[str] = msgspec.field(default_factory=Counter)
    skipped: Counter[str] = msgspec.field(default_factory=Counter)
    problems: list[Problem] = msgspec.field(default_factory=list)
    warnings: list[Problem] = msgspec.field(default_factory=list)
    warning_count: int = 0
    duplicates: int = 0
    total: int = 0
    """Objects that were looked at, including those that cannot be read."""
    current: RawObject | None = None
    """The record of the object that was loaded last."""

    def place(self) -> Problem:
        """Return a Problem with source and name of the object that was loaded last, and without a message.

        Source and name are empty if no object is being loaded.
        """
        record = self.current
        return Problem("") if record is None else Problem("", record.source, _name(record))

    def warn(self, message: str, record: RawObject, field: str = "") -> None:
        """Count a warning (``message``) about a ``field`` of the object ``record``.

        Only the first warnings are stored in ``warnings``; later ones are only counted.
        """
        self.warning_count += 1
        if len(self.warnings) < _MAX_WARNINGS:
            self.warnings.append(Problem(message, record.source, _name(record), field))

    def count_batch(self, batch: PodBatch, change: ChangedKeys) -> None:
        """Count a ``batch`` of pods that were read as columns, and warn about pods that were read twice.

        ``change`` has the differences that the batch made in the cluster.
        """
        keys = batch.keys
        self.total += len(keys)
        self.read["Pod"] += len(keys)
        if len(change.added) == len(keys):
            return
        modified = set(change.modified)
        for key, position in zip(keys, batch.column("where").tolist(), strict=True):
            if key in modified:
                self.duplicates += 1
                where = f"{batch.place}[{position}]"
                namespace, _, name = key.rpartition("/")
                self.warn(_TWICE, _named(RawObject("v1", "Pod", {}, batch.source, where), "Pod", namespace, name))
            modified.add(key)

    def missing(self, kinds: Iterable[str]) -> list[str]:
        """Return those of ``kinds`` of which no object was read."""
        return [kind for kind in kinds if not self.read[kind]]

    def warn_of_source(self, message: str, source: str) -> None:
        """Record a warning (``message``) about an entire source."""
        self.warning_count += 1
        self.warnings.append(Problem(message, source))

    def error(self, *, strict: bool = True) -> InputError | None:
        """Return all problems as one error; None without problems.

        If not ``strict``, only problems of sources that could not be read at all count.
        """
        problems = [problem for problem in self.problems if strict or problem.of_source]
        return InputError(problems, total=self.total) if problems else None


def load_objects(
    *sources: Source,
    strict: bool = True,
    validate: bool | None = None,
    report: LoadReport | None = None,
    namespace: str = DEFAULT_NAMESPACE,
) -> Iterator[Loaded]:
    """Decode every object of all sources, in order.

    A problem does not stop the reading.

    Parameters
    ----------
    *sources : Source
    strict : bool
        Raise all problems at the end. Otherwise objects that cannot be read are left out and counted in ``report``, but
        a source that cannot be read at all (missing, damaged or truncated) is still an error.
    validate : bool, optional
        Whether objects that no API server would store are problems. Default: true for files and bytes, false for data
        passed from Python, which decisions treat as upstream's code would.
    report : LoadReport, optional
        Is filled with counts and messages.
    namespace : str
        Namespace of namespaced objects without one.

    Yields
    ------
    Loaded
        An object and the data it was decoded from.

    Raises
    ------
    InputError
        At the end, with all problems.
    """
    for loaded in load_batches(*sources, strict=strict, validate=validate, report=report, namespace=namespace):
        assert isinstance(loaded, Loaded)  # there are batches only with a scan
        yield loaded


def load_batches(
    *sources: Source,
    strict: bool = True,
    validate: bool | None = None,
    report: LoadReport | None = None,
    scan: Scan | None = None,
    namespace: str = DEFAULT_NAMESPACE,
    is_stored: Callable[[str], bool] | None = None,
) -> Iterator[Loaded | DecodedItems | PodBatch]:
    """Decode objects as :func:`load_objects` does, but read JSON lists with ``scan``, which is faster.

    With ``scan``, pods of JSON lists are yielded as batches of columns (PodBatch). Consecutive other objects that the
    scan has decoded are yielded as DecodedItems. ``namespace`` must then be ``default``.

    The caller must store each object before it takes the next one, and must count batches itself
    (:meth:`LoadReport.count_batch`). ``is_stored(key)`` returns whether the caller has stored a pod of this key. Other
    parameters are those of :func:`load_objects`. Raises InputError at the end, with all problems.
    """
    report = LoadReport() if report is None else report
    seen: set[tuple[str, str, str]] = set()
    pods: set[str] = set()
    name_counts: Counter[str] = Counter()
    custom = _CustomRecords()
    for record in _read_sources(sources, scan, report):
        if isinstance(record, Problem):
            report.problems.append(record)
            report.total += 1
            continue
        if isinstance(record, DecodedItems):
            _count_decoded(record, report, seen)
            yield record
            continue
        if not isinstance(record, RawObject):
            yield record.batch
            continue
        checked = bool(record.source) if validate is None else validate
        loaded = _load(record, report, checked, namespace, name_counts)
        if loaded is None:
            custom.keep(record)
            continue
        obj = loaded.obj
        if obj.kind in _SCALING_KINDS:
            custom.note(obj)
        report.read[record.kind] += 1
        report.current = record
        if not isinstance(obj, Pod):
            metadata = obj.metadata
            key = _key(record.kind, metadata.namespace, metadata.name)
            repeated = key in seen
            seen.add(key)
        else:
            pod_key = obj.key
            repeated = pod_key in pods if is_stored is None else is_stored(pod_key)
            pods.add(pod_key)
        if repeated:
            report.duplicates += 1
            report.warn(_TWICE, _named(record, *_key(record.kind, obj.namespace, obj.name)))
        yield loaded
    yield from custom.load(report, namespace)
    report.current = None
    if (error := report.error(strict=strict)) is not None:
        raise error


_SCALING_KINDS = frozenset(
    {"CustomResourceDefinition", "HorizontalPodAutoscaler", "VerticalPodAutoscaler", "ScaledObject"}
)


class _CustomRecords:
    """Objects of custom kinds, until everything is read: then it is known which kinds have a scale."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], list[RawObject]] = {}
        self._scaled: dict[tuple[str, str], None] = {}

    def keep(self, record: RawObject) -> None:
        """Store an object that was skipped for :meth:`load`, if its kind is that of a custom resource."""
        group = group_of(record.api_version)
        if record.kind and is_custom_group(group) and find_kind(record.api_version, record.kind) is None:
            self._records.setdefault((group, record.kind), []).append(record)

    def note(self, item: KubeObject) -> None:
        """Record the custom kinds that an object scales (such as the target of an HPA): they have a scale."""
        from kscale.objects.custom_workloads import scaled_custom_kinds

        self._scaled.update(dict.fromkeys(scaled_custom_kinds(item)))

    def load(self, report: LoadReport, namespace: str) -> Iterator[Loaded]:
        """Decode the stored objects whose kinds :meth:`note` has recorded, and yield and count them.

        An object that cannot be decoded stays counted as skipped, and ``report`` gets a warning.
        """
        for group, kind in self._scaled:
            key = custom_kind_key(group, kind)
            names: set[str] = set()
            for record in self._records.get((group, kind), ()):
                try:
                    loaded = _decode(record, CustomWorkload, namespace)
                except InputError as error:
                    report.warn(f"not read: {error.problems[0].message}", record, error.problems[0].field)
                    continue
                metadata = loaded.obj.metadata
                loaded.obj.metadata = msgspec.structs.replace(metadata, namespace=metadata.namespace or namespace)
                if loaded.obj.key in names:
                    report.duplicates += 1
                    report.warn(_TWICE, _named(record, *_key(record.kind, loaded.obj.namespace, loaded.obj.name)))
                names.add(loaded.obj.key)
                report.current = record
                report.total += 1
                report.read[key] += 1
                report.skipped[key] -= 1
                yield loaded
            report.skipped += Counter()  # without those of which none is left


def _read_sources(
    sources: tuple[Source, ...], scan: Scan | None, report: LoadReport
) -> Iterator[RawObject | Problem | PodRun | DecodedItems]:
    """Yield the records of all sources; warn of sources without any."""
    for source in sources:
        empty = True
        for record in read_scanned(source, scan=scan):
            empty = False
            yield record
        if empty and isinstance(source, (str, os.PathLike)):
            report.warn_of_source("nothing was read: there is no object in it", os.fspath(source))
        elif empty and isinstance(source, (bytes, bytearray, memoryview)):
            report.warn_of_source("nothing was read: there is no object in it", "<bytes>")
        elif empty and isinstance(source, NamedText):
            report.warn_of_source("nothing was read: there is no object in it", source.name)


def _name(record: RawObject) -> str:
    """Return kind, name and place of an object for messages, also if the object cannot be decoded."""
    data: Any = record.data
    if isinstance(data, msgspec.Raw):
        head = object_head(memoryview(data))
        data = {"metadata": {"namespace": head.namespace, "name": head.name}}
    elif isinstance(data, KubeObject):
        data = {"metadata": {"namespace": data.namespace, "name": data.name}}
    return describe(record.where, record.kind, data)


def _load(
    record: RawObject, report: LoadReport, validate: bool, namespace: str, name_counts: Counter[str]
) -> Loaded | None:
    """Decode one object and count it in ``report``. None if the object is skipped or has a problem.

    ``report`` gets skipped kinds and problems. ``validate``: invalid values are problems or warnings, too.
    ``name_counts``: see :func:`_set_generated_name`.
    """
    type_ = _type(record)
    if type_ is None and not isinstance(record.data, KubeObject):
        if record.kind or record.in_directory:
            group = record.api_version.rpartition("/")[0]
            report.skipped[(f"{record.kind}.{group}" if group else record.kind) or _NO_KIND] += 1
        else:
            report.total += 1
            report.problems.append(Problem("no kind: not a Kubernetes object", record.source, _name(record)))
        return None
    report.total += 1
    try:
        loaded = _decode(record, type_, namespace)
        if not loaded.obj.metadata.name:
            loaded = _set_generated_name(loaded, name_counts)
    except InputError as error:
        name = _name(record)
        report.problems.extend(Problem(item.message, record.source, name, item.field) for item in error.problems)
        return None
    if validate and (findings := check(loaded.obj)):
        for finding in findings:
            if finding.fatal:
                report.problems.append(Problem(finding.message, record.source, _name(record), finding.field))
            else:
                report.warn(finding.message, record, finding.field)
        if any(finding.fatal for finding in findings):
            return None
    return loaded


def decode_plain_object(text: memoryview) -> DecodedObject | None:
    """Decode an object whose text repeats no key. Returns ((kind, namespace, name), object).

    None for pods, kinds that determine how other objects are read, and objects that are invalid, have no name or
    deserve a warning. The caller must read such an object with :func:`load_objects`.
    """
    try:
        decode = _plain_decoder(bytes(text[:_START]).partition(b'"metadata"')[0])
        if decode is None:
            return None
        obj = decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    metadata = obj.metadata
    if not metadata.name or check(obj):
        return None
    if not metadata.namespace:
        obj = with_namespace(obj)
        metadata = obj.metadata
    return (obj.kind, metadata.namespace, metadata.name), obj


_START: Final = 128
"""Bytes of an object in which its metadata begin, if API version and kind stand before them."""


@lru_cache(maxsize=1 << 10)  # the keys come from input files
def _plain_decoder(start: bytes) -> Callable[[memoryview], KubeObject] | None:
    """Return the decoder for :func:`decode_plain_object`; None for a kind that it does not decode.

    ``start``: the object's text in front of its metadata.
    """
    head = head_of(memoryview(start))
    if head is None:
        return None
    api_version, kind = head
    type_ = find_kind(api_version, kind) if api_version and kind not in _SCALING_KINDS else None
    return None if type_ in (None, Pod, CustomWorkload) or kind.endswith("List") else decoder(type_).decode


def _key(kind: str, namespace: str, name: str) -> tuple[str, str, str]:
    """Return (kind, namespace, name), which identifies an object. The namespace of a node is empty."""
    return kind, "" if kind == "Node" else namespace, name


def _named(record: RawObject, kind: str, namespace: str, name: str) -> RawObject:
    """Return a copy of ``record`` for messages, which then name the object by this kind, namespace and name."""
    named = KubeObject(metadata=ObjectMeta(namespace=namespace, name=name))
    return msgspec.structs.replace(record, kind=kind, data=named)


def _count_decoded(items: DecodedItems, report: LoadReport, seen: set[tuple[str, str, str]]) -> None:
    """Count objects that the scan has decoded, and warn of repeated ones.

    ``seen``: (kind, namespace, name) of all objects so far; the new ones are added.
    """
    keys = [_key(*key) if key[0] == "Node" else key for key, _ in items.objects]
    report.total += len(keys)
    report.read.update([kind for kind, _, _ in keys])
    fresh = set(keys)
    if len(fresh) != len(keys) or not seen.isdisjoint(fresh):
        for i, key in enumerate(keys):
            if key in seen:
                report.duplicates += 1
                report.warn(_TWICE, _named(items.record(i), *key))
            seen.add(key)
    seen |= fresh


def _decode(record: RawObject, type_: type[KubeObject] | None, namespace: str) -> Loaded:
    """Decode a record to the struct ``type_`` (None: the data are a struct already). Raises InputError if that fails.

    ``namespace``: that of a namespaced object without one.
    """
    data = record.data
    if isinstance(data, KubeObject):
        return Loaded(with_namespace(data, namespace), None)
    assert type_ is not None
    if isinstance(data, msgspec.Raw):
        obj = from_json(data, type_)
        if type_ is Pod:  # its text is stored and decoded again later
            refuse_depth(memoryview(data))
        refuse_repeated_keys(data)
    else:
        obj = from_dict(data, type_)
    if not obj.kind:
        obj.kind = record.kind
    if not obj.api_version:
        obj.api_version = record.api_version
    return Loaded(with_namespace(obj, namespace), data)


def _set_generated_name(loaded: Loaded, name_counts: Counter[str]) -> Loaded:
    """Set a generated name in object and data if the object has only ``generateName``.

    ``name_counts``: number of names so far by prefix; it is updated. Raises InputError if the data are not JSON.
    """
    if loaded.obj.metadata.name:
        return loaded
    obj, raw = with_name(loaded.obj, name_counts), loaded.raw
    if obj is loaded.obj:
        return loaded
    data: Any = raw
    if isinstance(raw, msgspec.Raw):
        try:
            data = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:  # in a field that is not read
            raise InputError(syntax_problem(error, bytes(raw), "")) from None
    if data is not None:
        data = {**data, "metadata": {**data["metadata"], "name": obj.name}}
    return Loaded(obj, data)


def _type(record: RawObject) -> type[KubeObject] | None:
    """Return the struct of the record's kind; None if kscale does not read the kind.

    Client objects without API version are found by kind alone.
    """
    if record.api_version or not record.kind:
        return find_kind(record.api_version, record.kind) if record.kind else None
    groups = [group for group, kind in KINDS if kind == record.kind]
    return find_kind(groups[0], record.kind) if groups else None
