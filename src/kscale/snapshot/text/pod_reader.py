"""Read pods from the text of a list directly into columns. Fields that no decision reads are skipped, not decoded.

The projector reduces each pod's text to the fields that are read, by the JSON names of the API structs. Names, UIDs,
nodes, times and versions are read separately. Pods whose remaining texts are equal are decoded, checked and
classified once. Unusual pods are decoded one by one instead, so errors and warnings are the same. A test checks
the list of fields against those that reading of structs uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _projection
from kscale.objects.api.core import Container, ContainerStatus, Pod, PodSpec, PodStatus, VolumeMount
from kscale.objects.api.meta import ApiStruct, Condition, KubeObject, ObjectMeta
from kscale.objects.api.volumes import Volume
from kscale.objects.decode import decoder
from kscale.objects.kinds import DEFAULT_NAMESPACE, NAMESPACED, find_kind, group_of, with_namespace
from kscale.objects.pod_owners import READ_ANNOTATIONS
from kscale.objects.times import moment_of, nanoseconds
from kscale.objects.validation import plain_rule
from kscale.snapshot.classes.facets import READ_SOURCES
from kscale.snapshot.classes.interner import Interner
from kscale.snapshot.columns import FINISHED, PLACED, distinct
from kscale.snapshot.text.files import MappedFile, UndecodedObject, file_of
from kscale.snapshot.text.text_classes import (
    AFFINITY,
    AFFINITY_RULE,
    DELETION_PLACEHOLDER,
    LABELS,
    OWNERS,
    VOLUMES,
    TextClasses,
)

__all__ = [
    "FACETS",
    "READ_FIELDS",
    "READ_OF_PODS",
    "SLOTS",
    "TEXT_COLUMNS",
    "Decode",
    "DecodedObject",
    "PodBatch",
    "PodReader",
    "ScannedItems",
    "ScannedLines",
    "ScannedList",
    "plain_kinds",
]


SLOTS: Final = {name: slot for slot, name in enumerate(_projection.POD_SLOTS)}
"""Values of a pod that are recorded separately, by the number of the projector's slot."""

FACETS: Final = 4
"""Number of parts of a pod that have numbers of their own."""

READ_FIELDS: Final[dict[type[ApiStruct], tuple[str, ...]]] = {}
"""Fields that are read, by struct of a pod. Structs that are read entirely are missing."""


def _read(
    struct: type[ApiStruct],
    *unchanged: str,
    need: tuple[str, ...] = (),
    also: Mapping[str, Any] = MappingProxyType({}),
    **rules: Any,
) -> tuple[str, Any, Any]:
    """Return the projector's rule for a struct: ("object", rules by JSON member, required members).

    ``unchanged``: fields whose text is kept as it is; ``rules``: a rule for each other field; ``also``: rules for JSON
    members that the struct does not have; ``need``: fields that must be present. Adds the fields to
    :data:`READ_FIELDS`.
    """
    READ_FIELDS[struct] = tuple(dict.fromkeys((*READ_FIELDS.get(struct, ()), *unchanged, *rules)))
    name_of = dict(zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True))
    members = dict.fromkeys(unchanged, "keep") | rules
    rule_of = {name_of[name]: rule for name, rule in members.items()} | dict(also)
    return "object", rule_of, tuple(map(name_of.__getitem__, need))


def _capture(name: str) -> tuple[str, int]:
    """Return the projector's rule that records where a value is: ("capture", number of the slot ``name``)."""
    return "capture", SLOTS[name]


_CONTAINER: Final = ("alike", _read(
    Container, "name", "resources", "ports", "restart_policy", "restart_policy_rules",
    volume_mounts=("array", _read(VolumeMount, "bind_mount_options", need=("bind_mount_options",))),
))  # fmt: skip
_VOLUME: Final = _read(
    Volume, "name", *READ_SOURCES, need=(*READ_SOURCES, "host_path", "empty_dir"),
    host_path=("object", {"-": "keep"}, ()),  # only its presence
    empty_dir=("object", {"medium": "keep"}, ()),
)  # fmt: skip
_STATUS: Final = ("array", _read(ContainerStatus, "name", "allocated_resources", "resources"))
_CONDITIONS: Final = {
    '"PodScheduled"': _read(Condition, "type", "status", "reason"),
    '"PodResizePending"': _read(Condition, "type", "reason"),
    '"Ready"': _read(Condition, need=("status",), status=_capture("ready"), last_transition_time=_capture("since")),
}

READ_OF_PODS: Final = _read(
    Pod, "api_version", "kind",
    metadata=("alike", _read(
        ObjectMeta,
        also={"managedFields": ("span", SLOTS["managed"])},  # its position, to leave it out
        name=_capture("name"),
        uid=_capture("uid"),
        creation_timestamp=_capture("created"),
        labels=("facet", LABELS, "keep"),
        owner_references=("facet", OWNERS, "keep"),
        resource_version=_capture("version"),
        deletion_timestamp=("mark", SLOTS["deleted"], DELETION_PLACEHOLDER),
        namespace=("note", SLOTS["namespace"]),
        annotations=("object", dict.fromkeys(READ_ANNOTATIONS, "keep"), ()),
    )),
    spec=("alike", _read(
        PodSpec, "restart_policy", "node_selector", "host_network", "host_users", "tolerations", "priority",
        "preemption_policy", "overhead", "topology_spread_constraints", "scheduling_gates", "resource_claims",
        "resources", "termination_grace_period_seconds", "scheduler_name",
        node_name=_capture("node"),
        containers=("array", _CONTAINER),
        init_containers=("array", _CONTAINER),
        ephemeral_containers=("array", _CONTAINER),
        volumes=("facet", VOLUMES, ("array", _VOLUME)),
        affinity=("facet", AFFINITY, AFFINITY_RULE),
    )),
    status=("alike", _read(
        PodStatus, "phase", "resource_claim_statuses", "allocated_resources", "resources",
        nominated_node_name=_capture("nominated"),
        start_time=_capture("started"),
        conditions=("array", ("switch", "type", _CONDITIONS)),
        container_statuses=_STATUS,
        init_container_statuses=_STATUS,
    )),
)  # fmt: skip
"""The rule of a projector (:mod:`kscale._native._projection`) that reduces the text of a pod."""


_NUMBER: Final = {name: number for number, name in enumerate(_projection.POD_COLUMNS)}

TEXT_COLUMNS: Final = slice(_NUMBER["begin"], _NUMBER["uid_size"] + 1)
"""Columns ``begin`` to ``uid_size`` of a batch, which locate texts, managed fields and UIDs."""


class PodBatch(msgspec.Struct, frozen=True, eq=False):
    """Pods that were read from one text: ``keys`` (``namespace/name``) and columns.

    The columns are those of :class:`~kscale.snapshot.pods.table.PodTable` and further ones. ``where``: index among the
    items of the text; ``bound``: whether it is bound to its node, not only nominated; ``node_of``: index in ``nodes``
    (which grows and has nodes of other batches too), -1 without a node; ``begin``, ``size``: its text in ``view``;
    ``cut_at``, ``cut_size``: its managed fields (-1: none); ``uid_at``, ``uid_size``: its UID. ``source`` and ``place``
    are the file and the place in it, for messages.
    """

    view: memoryview
    source: str
    place: str
    keys: list[str]
    nodes: list[str]
    columns: NDArray[np.int64]  # [of kscale._native._projection.POD_COLUMNS, pod]

    def __len__(self) -> int:
        return len(self.keys)

    def column(self, name: str) -> NDArray[np.int64]:
        """Return a column by its name in the projector's layout, one entry for each pod: int64[n]."""
        values: NDArray[np.int64] = self.columns[_NUMBER[name]]
        return values

    def pick(self, which: slice | NDArray[np.int64]) -> PodBatch:
        """Return a batch of the pods at the positions ``which``."""
        keys = self.keys[which] if isinstance(which, slice) else [self.keys[i] for i in which.tolist()]
        return msgspec.structs.replace(self, keys=keys, columns=np.ascontiguousarray(self.columns[:, which]))

    def uid(self, i: int) -> bytes:
        """Return the UID of one of the pods; empty if there is none."""
        at = int(self.column("uid_at")[i])
        return bytes(self.view[at : at + int(self.column("uid_size")[i])])


class PodRun(msgspec.Struct, frozen=True):
    """Consecutive pods of a batch, with no item of another kind between them in the list."""

    pods: PodBatch
    begin: int
    end: int

    def __len__(self) -> int:
        """Return the number of pods."""
        return self.end - self.begin

    @property
    def last_item(self) -> int:
        """Return the position of the run's last pod among the items of the list."""
        return int(self.pods.column("where")[self.end - 1])

    @property
    def batch(self) -> PodBatch:
        """Return the pods as a batch of their own."""
        return self.pods if len(self) == len(self.pods) else self.pods.pick(slice(self.begin, self.end))


DecodedObject: TypeAlias = tuple[tuple[str, str, str], KubeObject | UndecodedObject]
"""Kind, namespace and name of an object in its namespace, and the object, which can be decoded without problems."""

Decode: TypeAlias = Callable[[memoryview], DecodedObject | None]
"""Decodes an item that is no pod: (text without repeated keys) -> the object; None: it must be read with a report."""


class PlainKind(NamedTuple):
    """A kind whose plain objects need no check.

    ``group``: its API group; ``namespace``: that of objects without one, empty if the kind has none; ``rule``: see
    :func:`kscale.objects.validation.plain_rule`; ``decode``: decodes the text of a plain object; ``late``: whether
    objects are decoded when they are needed first, not when they are read.
    """

    group: str
    kind: str
    namespace: str
    rule: Any
    decode: Callable[[memoryview], KubeObject]
    late: bool


_PLAIN_KINDS: Final = (
    "v1 Node", "v1 PersistentVolume", "v1 PersistentVolumeClaim", "apps/v1 Deployment", "apps/v1 ReplicaSet",
    "apps/v1 StatefulSet", "batch/v1 Job", "policy/v1 PodDisruptionBudget", "storage.k8s.io/v1 CSINode",
)  # fmt: skip
"""Kinds with many objects in large clusters."""


@cache
def plain_kinds() -> tuple[PlainKind, ...]:
    """Return the kinds whose plain objects need no validation. Of most kinds they are decoded on first use."""
    result = []
    for api_version, kind in map(str.split, _PLAIN_KINDS):
        type_ = find_kind(api_version, kind)
        assert type_ is not None
        namespaced = kind in NAMESPACED
        namespace: Any = ("name", SLOTS["namespace"]) if namespaced else "never"
        rule = plain_rule(type_, ("name", SLOTS["name"]), namespace)
        decode = partial(_decode_plain, decoder(type_).decode)
        default = DEFAULT_NAMESPACE if namespaced else ""
        # Every snapshot needs all nodes.
        result.append(PlainKind(group_of(api_version), kind, default, rule, decode, late=kind != "Node"))
    return tuple(result)


def _decode_plain(decode: Callable[[memoryview], KubeObject], text: memoryview) -> KubeObject:
    """Decode an object; one of a namespaced kind that has no namespace gets the namespace ``default``."""
    return with_namespace(decode(text))


_NODE, _NOMINATED = SLOTS["node"], SLOTS["nominated"]


T = TypeVar("T")


class ScannedItems(msgspec.Struct, frozen=True, eq=False):
    """Items of a list from number ``first`` on. ``begin``, ``size``: positions in the text, in bytes.

    ``pods`` has the items that are marked as ``fast``, as columns.
    """

    first: int
    begin: NDArray[np.int64]
    size: NDArray[np.int64]
    fast: NDArray[np.bool_]
    pods: PodBatch


class ScannedList:
    """A list of objects. ``metadata`` is the JSON text of the list's own metadata.

    ``objects`` has items that are no pods, by number, as far as they were decoded; None if nothing was done ahead.
    """

    def __init__(
        self,
        reader: PodReader,
        scanned: _ProjectedList,
        api_version: str,
        kind: str,
        metadata: bytes,
        objects: dict[int, DecodedObject] | None = None,
    ) -> None:
        self.api_version = api_version
        self.kind = kind
        self.metadata = metadata
        self.objects: dict[int, DecodedObject] = objects or {}
        self._aside = objects is not None and reader.threads > 1  # then no part has texts that are new
        self._reader = reader
        self._scanned = scanned

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._scanned.begin)

    @property
    def pod_count(self) -> int:
        """Return the number of items that are most likely pods."""
        return int(np.count_nonzero(self._scanned.combined >= 0))

    def items(self) -> ScannedItems:
        """Read all items at once: pods into columns, other items as positions in the text."""
        return self._reader.items(self._scanned.part(0, len(self)))

    @property
    def text(self) -> memoryview:
        """Return the JSON text from the first item to the last. The list must have items."""
        listed = self._scanned
        return listed.view[listed.begin[0] : listed.begin[-1] + listed.size[-1]]

    def without_items(self) -> ScannedList:
        """Return a copy without items, for use after the items have been read from the text."""
        nothing = self._scanned.without_items()
        return ScannedList(self._reader, nothing, self.api_version, self.kind, self.metadata)

    def parts(self) -> Iterator[ScannedItems]:
        """Yield the items in parts. With several threads, a part is read while the caller works on the one before.

        Columns of very many items would need new memory, which takes longer than reading them.
        """
        firsts = range(0, len(self), _PART)
        return _one_ahead(self._part, firsts) if self._aside else map(self._part, firsts)

    def _part(self, first: int) -> ScannedItems:
        """Read the part that begins at item number ``first``."""
        return self._reader.items(self._scanned.part(first, min(first + _PART, len(self))))


def _one_ahead(read: Callable[[int], T], numbers: Iterable[int]) -> Iterator[T]:
    """Yield ``read(number)`` for each number, computed by another thread while the caller works on the one before."""
    from concurrent.futures import ThreadPoolExecutor  # imported here because only long texts need it

    with ThreadPoolExecutor(1, thread_name_prefix="kscale-read") as executor:
        calls = (executor.submit(read, number) for number in numbers)
        coming = next(calls, None)
        while coming is not None:
            result = coming.result()
            coming = next(calls, None)
            yield result


class ScannedLines(msgspec.Struct, frozen=True, eq=False):
    """Lines of a watch, one entry each.

    ``types``: a byte each, 0 to 4 for ADDED, MODIFIED, DELETED, BOOKMARK and ERROR, 5 for other events, and 255 for
    lines that are no event; ``pods`` has the events' objects that are marked as ``fast`` (None: all of them), in order.
    """

    types: bytes
    fast: NDArray[np.bool_] | None
    pods: PodBatch
    lines: _projection.Lines

    def items(self) -> ScannedItems:
        """Return the events' objects, pods as columns. A line that is no event is an item of its own."""
        _, begin, size, *_ = self.lines.columns()
        fast = np.ones(len(begin), dtype=np.bool_) if self.fast is None else self.fast
        return ScannedItems(0, begin, size, fast, self.pods)


class PodReader:
    """Reader of lists and watches for one interner, with a cache of the texts seen so far."""

    def __init__(self, interner: Interner, *, finished: bool = False, threads: int = 1) -> None:
        self.threads = threads
        self._projector = _projection.Projector(READ_OF_PODS, len(SLOTS), FACETS)
        self.classes = TextClasses(self._projector, interner, finished=finished)
        self._nodes = _projection.StringNumbers()
        self._plain: tuple[PlainKind, ...] = ()  # kinds that the projector knows

    def forget_nodes(self) -> None:
        """Forget the numbers of node names. Must not be called while batches with such numbers are not stored yet."""
        self._nodes = _projection.StringNumbers()

    def scan(
        self,
        view: memoryview,
        source: str,
        place: str,
        decode: Decode | None = None,
        *,
        plain: bool = False,
    ) -> ScannedList | None:
        """Return the items of a JSON list; None for any other text, and for a text with a syntax error.

        With ``decode``, another thread scans a long text while this one classifies pods and calls ``decode`` with the
        text of each item that is no pod. ``decode`` returns None for an item that must be read in another way. With
        ``plain``, it is not called for plain objects of :func:`plain_kinds`, most of which are decoded later.
        """
        ahead = None
        if decode is not None and len(view) >= _LONG:
            if plain and not self._plain:
                self._plain = plain_kinds()
                self._projector.add_plain((kind.group, kind.kind, kind.rule) for kind in self._plain)
            ahead = _ReadAhead(self.classes, view, decode, self._plain)
        meanwhile = None if ahead is None else ahead.read
        scanned = self._projector.scan(view, self.threads, kind=_KIND, meanwhile=meanwhile)
        if scanned is None:
            return None
        begin, size, combined, places, api_version, kind, metadata = scanned
        listed = (api_version, kind) == ("v1", "PodList")
        items = _ProjectedList(view, source, place, listed, begin, size, combined, places)
        return ScannedList(self, items, api_version, kind, metadata, None if ahead is None else ahead.objects)

    def items(self, scanned: _ScannedText) -> ScannedItems:
        """Return the items, with pods as columns."""
        fast, pods = self._pods(scanned)
        return ScannedItems(scanned.first, scanned.begin, scanned.size, fast, pods)

    def lines(self, view: memoryview) -> ScannedLines:
        """Read the events of a watch, one per line.

        Only keys, UIDs and versions of deleted pods are read.
        """
        lines = self._projector.lines(view, self.threads, kind=_KIND)
        read = self._read_lines(lines)
        if read is None:
            self.classes.learn(lines.unknown(self.classes.values))
            read = self._read_lines(lines)
            assert read is not None  # all of their texts are known by now
        fast, keys, columns, odd = read
        batch = PodBatch(view, "", "", keys, self._nodes.strings, columns)
        if odd:
            _, begin, size, combined, at, length = lines.columns()
            scanned = _ScannedText(view, "", "", False, 0, begin, size, combined, at, length)
            fast = np.ones(len(begin), dtype=np.bool_) if fast is None else fast
            batch = self._read_unusual_times(scanned, fast, batch, odd)
        return ScannedLines(lines.types, fast, batch, lines)

    def _read_lines(
        self, lines: _projection.Lines
    ) -> tuple[NDArray[np.bool_] | None, list[str], NDArray[np.int64], list[tuple[int, int]]] | None:
        """Read the pods of watch events, and return what :meth:`_read` returns.

        The first item is None if every event is of a pod in columns. Returns None as :meth:`_read` does.
        """
        return lines.pods(self.classes.values, (PLACED, FINISHED), DEFAULT_NAMESPACE, self._nodes)

    def _pods(self, scanned: _ScannedText) -> tuple[NDArray[np.bool_], PodBatch]:
        """Return (bool by item: whether it is a pod that can be read as columns, the batch of these pods)."""
        read = self._read(scanned)
        if read is None:
            length = scanned.length
            _learn(self.classes, scanned.combined, (length[_NODE] > 0) | (length[_NOMINATED] > 0))
            read = self._read(scanned)
            assert read is not None  # all of their texts are known by now
        fast, keys, columns, odd = read
        batch = PodBatch(scanned.view, scanned.source, scanned.place, keys, self._nodes.strings, columns)
        if odd:
            batch = self._read_unusual_times(scanned, fast, batch, odd)
        batch.column("node_of")[:] = self._nodes.number(
            scanned.view, batch.column("node_at"), batch.column("node_size")
        )
        return fast, batch

    def _read(
        self, scanned: _ScannedText
    ) -> tuple[NDArray[np.bool_], list[str], NDArray[np.int64], list[tuple[int, int]]] | None:
        """Return (bool by item: a pod in columns, the pods' keys, columns, (pod, slot) of each unusual time).

        Returns None if a class of the pods was not found yet: call :func:`_learn` first, then this method again.
        """
        return _projection.read_pods(
            scanned.view, scanned.listed, scanned.first, scanned.begin, scanned.size, scanned.combined, scanned.at,
            scanned.length, self.classes.values, (PLACED, FINISHED), DEFAULT_NAMESPACE,
        )  # fmt: skip

    def _read_unusual_times(
        self, scanned: _ScannedText, fast: NDArray[np.bool_], batch: PodBatch, odd: list[tuple[int, int]]
    ) -> PodBatch:
        """Read times that are not written as API servers do. ``odd``: (position of the pod, slot of the time) of each.

        Returns the batch without the pods that have an invalid time, which are no longer marked in ``fast``.
        """
        damaged = {i for i, slot in odd if not self._read_unusual_time(scanned, batch, i, slot)}
        if not damaged:
            return batch
        fast[np.flatnonzero(fast)[sorted(damaged)]] = False
        return batch.pick(np.array([i for i in range(len(batch)) if i not in damaged], dtype=np.int64))

    def _read_unusual_time(self, scanned: _ScannedText, batch: PodBatch, i: int, slot: int) -> bool:
        """Read a time that is not written as API servers do into its column; return whether it is valid."""
        at = scanned.at[slot, (item := int(batch.column("where")[i]) - scanned.first)]
        text = str(scanned.view[at : at + scanned.length[slot, item]], "ascii")  # the scan notes only ASCII
        try:
            nanoseconds(text)
            batch.column(_projection.POD_SLOTS[slot])[i] = moment_of(text)
        except ValueError:
            return False
        return True


class _ReadAhead:
    """Decodes the first items of a list while the rest is scanned. No effect if the text turns out to be no list."""

    def __init__(
        self, classes: TextClasses, view: memoryview, decode: Decode, plain_kinds: tuple[PlainKind, ...]
    ) -> None:
        self._classes = classes
        self._plain = plain_kinds
        self._view = view
        self._file: MappedFile | None = file_of(view)
        self._decode = decode
        self.objects: dict[int, DecodedObject] = {}

    def read(
        self,
        begin: NDArray[np.int64],
        size: NDArray[np.int64],
        combined: NDArray[np.int32],
        places: _projection.Places,
        first: int,
    ) -> None:
        """Classify the pods of a scanned part, and decode its other objects into ``objects``.

        Called while the rest of the list is scanned. ``begin``, ``size``: positions of the items in the text;
        ``combined``: numbers of their text combinations; ``first``: number of the first item in the list.
        """
        if self._file is not None:
            self._file.release()  # of the pages that were scanned so far, few are needed now
        others = np.flatnonzero(combined == _UNLIKE)
        for i, at, count in zip(others.tolist(), begin[others].tolist(), size[others].tolist(), strict=True):
            if (obj := self._decode(self._view[at : at + count])) is not None:
                self.objects[first + i] = obj
        if len(plain := np.flatnonzero(combined <= _PLAIN)):
            self._store_plain(plain + first, _PLAIN - combined[plain], begin[plain], size[plain], places)
        _learn(self._classes, combined, places.have((_NODE, _NOMINATED), first))

    def _store_plain(
        self,
        items: NDArray[np.int64],
        kinds: NDArray[np.int32],
        begin: NDArray[np.int64],
        size: NDArray[np.int64],
        places: _projection.Places,
    ) -> None:
        """Put plain objects into ``objects``, decoded or to be decoded on first use.

        ``items``: numbers of the objects in the list; ``kinds``: number of each object's kind; ``begin``, ``size``,
        ``places``: as in :meth:`read`, but with entries of these objects only.
        """
        view, objects, plain_kinds = self._view, self.objects, self._plain
        names, namespaces = (places.names(view, items, SLOTS[slot]) for slot in ("name", "namespace"))
        for item, number, at, count, namespace, name in zip(
            items.tolist(), kinds.tolist(), begin.tolist(), size.tolist(), namespaces, names, strict=True
        ):
            kind, text = plain_kinds[number], view[at : at + count]
            obj = UndecodedObject(text, kind.decode) if kind.late else kind.decode(text)
            objects[item] = (kind.kind, namespace or kind.namespace, name), obj


def _learn(classes: TextClasses, combined: NDArray[np.int32], bound: NDArray[np.bool_]) -> None:
    """Find the classes of pods, and store them in ``classes``.

    ``combined``: number of each pod's text combination; ``bound``: whether each pod has a node.
    """
    classes.learn(distinct((np.maximum(combined, _NONE) + 1) * 2 + bound).tolist())  # of very many pods, few differ


class _ScannedText(msgspec.Struct, frozen=True):
    """Result of a projector's scan of a text.

    ``listed``: items without a kind are pods; ``first``: the number of the first item; ``at``, ``length``: positions of
    values by [slot, item].
    """

    view: memoryview
    source: str
    place: str
    listed: bool
    first: int
    begin: NDArray[np.int64]
    size: NDArray[np.int64]
    combined: NDArray[np.int32]
    at: NDArray[np.int64]
    length: NDArray[np.int64]


class _ProjectedList(msgspec.Struct, frozen=True):
    """A list as the projector returns it; fields as in :class:`_ScannedText`."""

    view: memoryview
    source: str
    place: str
    listed: bool
    begin: NDArray[np.int64]
    size: NDArray[np.int64]
    combined: NDArray[np.int32]
    places: _projection.Places

    def part(self, first: int, end: int) -> _ScannedText:
        """Return the items from ``first`` up to ``end``, exclusive."""
        items = slice(first, end)
        return _ScannedText(
            self.view, self.source, self.place, self.listed, first, self.begin[items], self.size[items],
            np.maximum(self.combined[items], _UNLIKE), *self.places.part(first, end),
        )  # fmt: skip

    def without_items(self) -> _ProjectedList:
        """Return the list without its items."""
        nothing = slice(0)
        return msgspec.structs.replace(
            self, begin=self.begin[nothing], size=self.size[nothing], combined=self.combined[nothing]
        )


_KIND: Final = (b"v1", b"Pod")
_NONE: Final = -1  # for a combination
_UNLIKE: Final = -3  # the same, and the item has no repeated key
_PLAIN: Final = -4  # the same of a plain object of the first kind; minus the number of the kind
_LONG: Final = 1 << 21  # bytes of a text that is worth reading ahead
_PART: Final = 1 << 14  # items
