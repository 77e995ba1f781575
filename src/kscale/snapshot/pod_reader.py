"""Pods straight from the text of a list to columns: what no decision reads is skipped, not decoded.

The text of a pod is reduced to what decisions read and what :mod:`kscale.objects.validation` looks at; names, UIDs,
nodes, moments and versions are noted apart. Pods that are left with the same texts are decoded, checked and classified
once. Where anything is unusual about them, and for every pod that is written unusually, the slow way is taken, so that
errors and warnings are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _projection
from kscale.objects.namespaces import DEFAULT_NAMESPACE
from kscale.snapshot.interner import Interner
from kscale.snapshot.pod_batch import PodBatch
from kscale.snapshot.pod_facets import READ_SOURCES
from kscale.snapshot.pod_shapes import READ_ANNOTATIONS
from kscale.snapshot.pod_states import FINISHED, PLACED
from kscale.snapshot.queueing import DELAY_ANNOTATION
from kscale.snapshot.record import READY
from kscale.snapshot.text_classes import AFFINITY, LABELS, OWNERS, TOLD_TO_STOP, VOLUMES, TextClasses
from kscale.snapshot.usual_texts import usual_moments, usual_names

__all__ = ["PodReader", "ScannedItems", "ScannedLines", "ScannedList"]

(_NAME, _SPACE, _UID, _NODE, _NOMINATED, _CREATED, _STARTED, _DELETED, _SINCE, _READY, _VERSION, _MANAGED) = range(12)
_SLOTS: Final = 12
_FACETS: Final = 4


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _object(need: tuple[str, ...] = (), /, **keys: Any) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    return "object", {_camel(key): rule for key, rule in keys.items()}, tuple(map(_camel, need))


def _kept(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "keep")


_CONTAINER: Final = ("alike", _object(
    **_kept("name", "resources", "ports", "restart_policy", "restart_policy_rules"),
    volume_mounts=("array", _object(("bind_mount_options",), bind_mount_options="keep")),
))  # fmt: skip
_VOLUME: Final = _object(
    (*READ_SOURCES, "host_path", "empty_dir"),
    host_path=("object", {"-": "keep"}, ()),  # that there is one, not what it says
    empty_dir=_object(medium="keep"),
    **_kept("name", *READ_SOURCES),
)
_STATUS: Final = ("array", _object(**_kept("name", "allocated_resources", "resources")))
_CONDITIONS: Final = {
    '"PodScheduled"': _object(**_kept("type", "status", "reason")),
    '"PodResizePending"': _object(**_kept("type", "reason")),
    '"Ready"': _object(("status",), status=("capture", _READY), last_transition_time=("capture", _SINCE)),
}
_RULE: Final = _object(
    **_kept("api_version", "kind"),
    metadata=_object(
        name=("capture", _NAME),
        uid=("capture", _UID),
        creation_timestamp=("capture", _CREATED),
        labels=("facet", LABELS, "keep"),
        owner_references=("facet", OWNERS, "keep"),
        resource_version=("capture", _VERSION),
        deletion_timestamp=("mark", _DELETED, TOLD_TO_STOP),
        managed_fields=("span", _MANAGED),
        namespace=("note", _SPACE),
        annotations=("object", dict.fromkeys((*READ_ANNOTATIONS, DELAY_ANNOTATION), "keep"), ()),
    ),
    spec=("alike", _object(
        node_name=("capture", _NODE),
        containers=("array", _CONTAINER),
        init_containers=("array", _CONTAINER),
        ephemeral_containers=("array", _CONTAINER),
        volumes=("facet", VOLUMES, ("array", _VOLUME)),
        affinity=("facet", AFFINITY, "keep"),
        **_kept(
            "restart_policy", "node_selector", "host_network", "host_users", "tolerations", "priority",
            "preemption_policy", "overhead", "topology_spread_constraints", "scheduling_gates", "resource_claims",
            "resources", "termination_grace_period_seconds", "scheduler_name",
        ),
    )),
    status=("alike", _object(
        nominated_node_name=("capture", _NOMINATED),
        start_time=("capture", _STARTED),
        conditions=("array", ("switch", "type", _CONDITIONS)),
        container_statuses=_STATUS,
        init_container_statuses=_STATUS,
        **_kept("phase", "resource_claim_statuses", "allocated_resources", "resources"),
    )),
)  # fmt: skip


class ScannedItems(msgspec.Struct, frozen=True, eq=False):
    """Items of a list from number ``first`` on, and where they are; ``pods`` has those of which ``fast`` is true."""

    first: int
    begin: NDArray[np.int64]
    size: NDArray[np.int64]
    fast: NDArray[np.bool_]
    pods: PodBatch


class ScannedList:
    """A list of objects; ``metadata``: the JSON text of the list's own."""

    def __init__(self, reader: PodReader, found: _Found, api_version: str, kind: str, metadata: bytes) -> None:
        self.api_version = api_version
        self.kind = kind
        self.metadata = metadata
        self._reader = reader
        self._found = found

    def __len__(self) -> int:
        """How many items it has."""
        return len(self._found.begin)

    def items(self) -> ScannedItems:
        """All items."""
        return self._reader.items(self._found)

    @property
    def text(self) -> memoryview:
        """The JSON text from the first item to the last."""
        found = self._found
        return found.view[found.begin[0] : found.begin[-1] + found.size[-1]]

    def emptied(self) -> ScannedList:
        """The list without its items, where they have been read from the text."""
        return ScannedList(self._reader, self._found.part(slice(0)), self.api_version, self.kind, self.metadata)

    def parts(self) -> Iterator[ScannedItems]:
        """The items, some after the other: columns of very many would be fresh memory, which takes longer than reading
        them."""
        for first in range(0, len(self._found.begin), _PART):
            yield self._reader.items(self._found.part(slice(first, first + _PART)))


class ScannedLines(msgspec.Struct, frozen=True, eq=False):
    """What a watch brought, a line an entry: ``type`` int8[n] (:data:`kscale.snapshot.watching.TYPES`, -1 = no event),
    ``line``: where the line begins, ``begin``, ``size``: where the event's object is; ``pods`` has those of which
    ``fast`` is true, in order. ``used``: bytes of the text, without a piece of a line at its end."""

    used: int
    type: NDArray[np.int8]
    line: NDArray[np.int64]
    begin: NDArray[np.int64]
    size: NDArray[np.int64]
    fast: NDArray[np.bool_]
    pods: PodBatch


class PodReader:
    """Reads lists and watches for one interner, with the texts that were seen so far."""

    def __init__(self, interner: Interner, *, finished: bool = False, threads: int = 1) -> None:
        self._threads = threads
        self._projector = _projection.Projector(_RULE, _SLOTS, _FACETS)
        self._known = TextClasses(self._projector, interner, finished=finished)
        self._nodes = _projection.StringNumbers()
        self._statuses = _Statuses()

    def forget_nodes(self) -> None:
        """Names of nodes that were seen so far get other numbers. Not while batches wait that have them."""
        self._nodes = _projection.StringNumbers()

    @property
    def known(self) -> TextClasses:
        """What the texts that were seen so far stand for."""
        return self._known

    def scan(self, view: memoryview, source: str, place: str) -> ScannedList | None:
        """The items of a JSON list; None if the text is anything else, damaged text included."""
        scanned = self._projector.scan(view, self._threads, kind=_KIND)
        if scanned is None:
            return None
        begin, size, combined, at, length, api_version, kind, metadata = scanned
        listed = (api_version, kind) == ("v1", "PodList")
        found = _Found(view, source, place, listed, 0, begin, size, combined, at, length)
        return ScannedList(self, found, api_version, kind, metadata)

    def items(self, found: _Found) -> ScannedItems:
        """What was found, with its pods as columns."""
        fast, pods = self._pods(found)
        return ScannedItems(found.first, found.begin, found.size, fast, pods)

    def lines(self, view: memoryview) -> ScannedLines:
        """The events of a watch, one a line. Of pods that were deleted only keys, UIDs and versions are read."""
        used, types, line, begin, size, combined, at, length = self._projector.lines(view, self._threads, kind=_KIND)
        combined[(types < 0) | (types > _LAST_CHANGE)] = _NONE
        fast, pods = self._pods(_Found(view, "", "", False, 0, begin, size, combined, at, length))
        return ScannedLines(used, types, line, begin, size, fast, pods)

    def _pods(self, found: _Found) -> tuple[NDArray[np.bool_], PodBatch]:
        """(which items are pods that can be read from columns, those)."""
        known, view = self._known, found.view
        places = np.maximum(found.combined, _NONE) + 1
        at, length = found.at, found.length
        bound = length[_NODE] > 0
        placed = bound | (length[_NOMINATED] > 0)
        known.learn(places, placed)
        number = np.where(placed, known.column("settled")[places], known.column("waiting")[places])
        fast = (number >= 0) | (found.combined == _NOTED)
        fast &= usual_names(view, at[_NAME], length[_NAME])
        if not found.listed:
            fast &= ~known.column("bare")[places]
        times = slice(_CREATED, _SINCE + 1)
        moments, fine = usual_moments(view, at[times].reshape(-1), length[times].reshape(-1))
        moments = moments.reshape(_SINCE + 1 - _CREATED, -1)
        version = _projection.printed_numbers(view, at[_VERSION], length[_VERSION])
        fast &= fine.reshape(moments.shape).all(axis=0) & (version != _ODD_VERSION) & (found.size < _LARGEST)
        chosen = np.flatnonzero(fast)
        begin, size = found.begin, found.size
        if len(chosen) < len(fast):
            at, length, moments = (np.take(columns, chosen, axis=1) for columns in (at, length, moments))
            begin, size, places, version = begin[chosen], size[chosen], places[chosen], version[chosen]
            bound, placed, number = bound[chosen], placed[chosen], number[chosen]
        nodes = np.where(bound, at[_NODE], at[_NOMINATED])
        long = np.where(placed, np.where(bound, length[_NODE], length[_NOMINATED]), np.int64(-1))
        node_of = self._nodes.number(view, nodes, long)
        state = np.where(placed, np.int8(PLACED), known.column("unplaced")[places])
        state[known.column("done")[places]] = FINISHED
        created, started, deleted, since = range(4)
        return fast, PodBatch(
            view=view,
            source=found.source,
            place=found.place,
            keys=_projection.object_keys(view, at[_SPACE], length[_SPACE], at[_NAME], length[_NAME], DEFAULT_NAMESPACE),
            nodes=self._nodes.strings,
            where=chosen + found.first,
            class_of=number,
            state=state,
            bound=bound,
            node_of=node_of,
            priority=known.column("priority")[places],
            controller=known.column("controller")[places],
            begin=begin,
            size=size,
            cut_at=at[_MANAGED],
            cut_size=length[_MANAGED],
            uid_at=at[_UID],
            uid_size=np.maximum(length[_UID], 0),
            shape=np.where(placed, known.column("settled_shape")[places], known.column("waiting_shape")[places]),
            created=moments[created],
            started=moments[started],
            deleted=moments[deleted],
            since=moments[since],
            ready=self._statuses.codes(view, at[_READY], length[_READY]),
            phase=known.column("phase")[places],
            version=version,
            queueing=known.column("queueing")[places],
            combined=places,
        )


class _Found(NamedTuple):
    """What the projector found in a text; ``listed``: what does not say what it is, is a pod; ``first``: the number of
    the first item; ``at``, ``length``: [slot, item]."""

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

    def part(self, items: slice) -> _Found:
        """Some of the items."""
        return self._replace(
            first=items.start, begin=self.begin[items], size=self.size[items], combined=self.combined[items],
            at=self.at[:, items], length=self.length[:, items],
        )  # fmt: skip


_KIND: Final = (b"v1", b"Pod")
_NONE, _NOTED = -1, -2  # for a combination
_LAST_CHANGE: Final = 2  # ADDED, MODIFIED, DELETED
_ODD_VERSION: Final = -2
_LARGEST: Final = 1 << 31
_MOST_STATUSES: Final = 1000
_PART: Final = 1 << 14  # items


class _Statuses:
    """Statuses of conditions as numbers into READY."""

    def __init__(self) -> None:
        self._numbers = _projection.StringNumbers()
        self._codes = np.zeros(1, dtype=np.int8)  # the last is that of none

    def codes(self, view: memoryview, at: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.int8]:
        """int8[n], 0 for absent ones."""
        if len(self._codes) > _MOST_STATUSES:
            self._numbers = _projection.StringNumbers()
        number = self._numbers.number(view, at, length)
        if len(self._codes) != len(self._numbers) + 1:
            known = {status: code for code, status in enumerate(READY) if code}
            codes = [known.get(text, len(READY) - 1) for text in self._numbers.strings]
            self._codes = np.array([*codes, 0], dtype=np.int8)
        return self._codes[number]
