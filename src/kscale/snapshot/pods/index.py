"""Index of pods by namespace and selector, for HPAs, VPAs and disruption budgets.

A selector is matched against the distinct label sets of a namespace, of which there are far fewer than pods. Matches
are cached while the label sets stay. Pods are grouped by label set again only when pods come, go or change labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kscale._native import _names, _projection
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import LabelSelector
from kscale.objects.selectors import Selector, compile_selector, parse_selector
from kscale.snapshot.classes.interner import Interner, PodClass
from kscale.snapshot.columns import REMOVED, distinct
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.pods.rows import shapes_of
from kscale.snapshot.pods.table import PodTable

__all__ = ["PodIndex", "PodSelection", "PodSelections", "SelectorLike"]

_M = TypeVar("_M")

SelectorLike = Selector | LabelSelector | str | None
"""A compiled selector, one of an object, its text (``app=web,tier in (a,b)``), or None, which selects nothing."""


class PodIndex:
    """The pods at one moment, in all phases and in order of first appearance. Immutable."""

    __slots__ = ("_table",)

    def __init__(self, table: PodTable) -> None:
        self._table = table

    def select(self, namespace: str, selector: SelectorLike) -> PodSelection:
        """Return the pods of a namespace that a selector matches.

        Raises SelectorError if the API machinery refuses the selector.
        """
        return self.select_many([(namespace, selector)]).pods

    def select_many(self, selectors: Sequence[tuple[str, SelectorLike]]) -> PodSelections:
        """Return the pods of many (namespace, selector) pairs at once, as :meth:`select` does."""
        identities = self._table.interner.memo.get(_Identities, _Identities)
        begin, groups, (starts, rows) = identities.matching(self._table, selectors)
        ends, selected = _names.select_rows(starts, rows, begin, groups)
        return PodSelections(ends, PodSelection(self._table, selected))

    @property
    def table(self) -> PodTable:
        """Return the table of the pods. It is immutable; after a change of any pod, a new index has a new table."""
        return self._table

    @property
    def pods(self) -> PodSelection:
        """Return all pods."""
        return PodSelection(self._table, np.flatnonzero(self._table.columns["state"] != REMOVED))


class PodSelection:
    """Some pods, as columns. Equal row numbers mean the same pods while the index they come from is current.

    ``phase`` int8 into :data:`~kscale.snapshot.columns.PHASES`; ``ready`` int8, the status of the condition Ready,
    into :data:`~kscale.snapshot.columns.READY` (0 if there is none), and ``since`` int64, the time of its last change;
    ``started``, ``deleted`` int64: ``status.startTime``, ``metadata.deletionTimestamp``. Times are nanoseconds since
    1970, :data:`~kscale.objects.times.ZERO_TIME` if absent. ``rows`` int64, ascending.
    """

    __slots__ = ("rows", "table")

    def __init__(self, table: PodTable, rows: NDArray[np.int64]) -> None:
        self.table = table
        """The table of the pods, replaced whenever anything of any pod has changed."""
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice) -> PodSelection:
        return PodSelection(self.table, self.rows[part])

    def __repr__(self) -> str:
        return f"PodSelection({len(self)} pods)"

    def columns(self, *names: str) -> list[NDArray[Any]]:
        """Return columns of the table by name, at the rows of these pods."""
        columns = self.table.columns
        return [columns[name][self.rows] for name in names]

    @property
    def phase(self) -> NDArray[np.int8]:
        """Return the phases as indices into :data:`~kscale.snapshot.columns.PHASES`: int8[n]."""
        return self.table.columns["phase"][self.rows]

    @property
    def ready(self) -> NDArray[np.int8]:
        """Return the statuses of condition Ready as indices into :data:`~kscale.snapshot.columns.READY`: int8[n]."""
        return self.table.columns["ready"][self.rows]

    @property
    def since(self) -> NDArray[np.int64]:
        """Return when the Ready conditions changed last, in nanoseconds since 1970: int64[n]."""
        return self.table.columns["since"][self.rows]

    @property
    def started(self) -> NDArray[np.int64]:
        """Return the start times in nanoseconds since 1970: int64[n]."""
        return self.table.columns["started"][self.rows]

    @property
    def deleted(self) -> NDArray[np.int64]:
        """Return the deletion timestamps in nanoseconds since 1970: int64[n]."""
        return self.table.columns["deleted"][self.rows]

    @property
    def keys(self) -> list[str]:
        """Return ``namespace/name`` of each pod."""
        keys = self.table.keys
        return [keys[row] for row in self.rows.tolist()]

    @property
    def classes(self) -> NDArray[np.int32]:
        """Return the class numbers, int32[n], see :meth:`pod_class`."""
        numbers: NDArray[np.int32] = self.table.columns["class_of"][self.rows]
        return numbers

    def pod_class(self, number: int) -> PodClass:
        """Return the class of a number from :attr:`classes`; no pod is decoded for it."""
        return self.table.interner.classes[number]

    @property
    def shapes(self) -> NDArray[np.int32]:
        """Return the shape numbers of the pods, int32[n], see :meth:`exemplar`.

        Pods with equal numbers agree in every field that decisions read, except name, UID and the fields that this
        object has as columns.
        """
        return shapes_of(self.table, self.rows)

    def exemplar(self, shape: int) -> Pod:
        """Return a pod of a shape with its requests and all other fields that decisions read. Raises KeyError."""
        shape_found = self.table.interner.shapes[shape]
        if shape_found is None:
            raise KeyError(shape)
        return shape_found.exemplar

    def pod(self, position: int) -> Pod:
        """Return the pod at a position of this selection, decoded on demand."""
        return self.table.record(int(self.rows[position])).pod

    def texts(self, shapes: Sequence[int]) -> list[bytes | Pod]:
        """Return the JSON texts of shapes of existing pods, without labels, affinity, volumes and owners.

        A shape without a text is represented by its exemplar pod. Cheaper than :meth:`exemplar` for callers that read
        few fields.
        """
        all_shapes = self.table.interner.shapes
        return [all_shapes[shape].text for shape in shapes]  # type: ignore[union-attr]  # a shape of an existing pod is not None

    @property
    def label_numbers(self) -> NDArray[np.int32]:
        """Return int32[n] with equal numbers for equal labels and namespaces, see :meth:`labels`."""
        return self.table.interner.identity_of(self.table.columns["class_of"][self.rows])

    def labels(self, number: int) -> dict[str, str] | None:
        """Return the labels that a number from :attr:`label_numbers` identifies; None if the pods have no labels."""
        return self.table.interner.identities[number].labels

    def select(self, rows: NDArray[np.int64]) -> PodSelection:
        """Return the pods in the given rows of this selection's table (any rows, not only those of this selection)."""
        return PodSelection(self.table, rows)

    @property
    def table_stamps(self) -> tuple[object, NDArray[np.int64]]:
        """Return (scope, stamp of each row of the table: int64, -1 for removed pods).

        A row gets a new stamp whenever its pod changes. Stamps are unique among all tables with the identical scope,
        an opaque object.
        """
        removed = self.table.columns["state"] == REMOVED
        return self.table.memo, np.where(removed, -1, self.table.columns["stamp"])

    def memo(self, kind: type[_M]) -> _M:
        """Return the caller's cache, an object of the caller's type ``kind``; ``kind()`` creates it on first use.

        Selections whose shape and label numbers have the same meaning share the cache.
        """
        return self.table.interner.memo.get(kind, kind)

    def label_sets(self) -> list[dict[str, str] | None]:
        """Return the distinct label sets of the pods, in no particular order. None stands for pods without labels.

        Equal labels in several namespaces appear several times.
        """
        interner = self.table.interner
        identities = distinct(interner.identity_of(self.table.columns["class_of"][self.rows]))
        return [interner.identities[number].labels for number in identities.tolist()]

    def records(self) -> Iterator[PodRecord]:
        """Return an iterator over the pods' records, each created on demand."""
        return map(self.table.record, self.rows.tolist())


class PodSelections:
    """Several selections. Selection ``i`` is ``pods[ends[i]:ends[i + 1]]``; ``ends`` is int64[m + 1]."""

    __slots__ = ("ends", "pods")

    def __init__(self, ends: NDArray[np.int64], pods: PodSelection) -> None:
        self.ends = ends
        self.pods = pods

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, i: int) -> PodSelection:
        i = range(len(self))[i]
        return self.pods[int(self.ends[i]) : int(self.ends[i + 1])]


class _SelectorMatches:
    """Matches of a selector among candidates, a list that only grows."""

    __slots__ = ("candidates", "matched", "seen", "selector")

    def __init__(self, selector: Selector, candidates: list[int]) -> None:
        self.selector = selector
        self.candidates = candidates
        self.matched: list[int] = []
        self.seen = 0


class _Identities:
    """Identities (namespace and labels) of one interner by namespace and label, and the cached matches of selectors."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known = 0
        self._of_namespace: dict[str, list[int]] = {}
        # By namespace and label: identities by value, and the number of those that are indexed (in a list).
        self._by_label: dict[tuple[str, str], tuple[dict[str, list[int]], list[int]]] = {}
        self._matches: dict[tuple[str, Any], _SelectorMatches] = {}
        self._known_lists: dict[tuple[str, Any], list[int]] = {}  # appended to when identities are added
        self._groups: tuple[Any, Any] = (None, None)

    def matching(
        self, table: PodTable, selectors: Sequence[tuple[str, SelectorLike]]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Return the identities that match each (namespace, selector) pair, and the rows of each identity.

        Returns
        -------
        begin : int64[m + 1]
            Index of the first identity of each pair.
        identities : int64[k]
            Identities of all pairs, one pair after the other.
        rows : tuple of int64 arrays
            (starts, rows): identity ``i`` has the table's rows ``rows[starts[i]:starts[i + 1]]``.
        """
        interner = table.interner
        with self._lock:
            grouped = self._group(table)
            self._learn(interner)
            begin, groups = [0], list[int]()
            known_lists = self._known_lists
            for pair in selectors:
                matched = known_lists.get(pair) if type(pair[1]) is str else None
                if matched is None:
                    matched = self._find_matches(interner, *pair)
                groups += matched
                begin.append(len(groups))
        count = len(grouped[0]) - 1
        chosen, starts = np.array(groups, dtype=np.int64), np.array(begin, dtype=np.int64)
        if len(chosen) and int(chosen.max()) >= count:  # identities that were added after the table
            old = chosen < count
            starts = np.append(0, np.cumsum(old))[starts]
            chosen = chosen[old]
        return starts, chosen, grouped

    def _find_matches(self, interner: Interner, namespace: str, selector: SelectorLike) -> list[int]:
        """Return the numbers of a namespace's identities that a selector matches. Do not modify the list."""
        if type(selector) is str and (label := _projection.plain_label(selector)) is not None:
            labelled = self._known_lists[namespace, selector] = self._with_label(namespace, label)
            return labelled
        key = namespace, selector if isinstance(selector, str | Selector) else compile_selector(selector)
        entry = self._matches.get(key)
        if entry is None:
            entry = self._matches[key] = self._build_entry(*key)
        if entry.seen < len(entry.candidates):
            self._match(interner, entry)
        return entry.matched

    def _build_entry(self, namespace: str, selector: str | Selector) -> _SelectorMatches:
        """Return a new cache entry for a selector, with the identities that may match it."""
        compiled = parse_selector(selector) if isinstance(selector, str) else selector
        if compiled.nothing:
            return _SelectorMatches(compiled, [])
        label = compiled.exact_label()
        if label is None:
            return _SelectorMatches(compiled, self._of_namespace.setdefault(namespace, []))
        return _SelectorMatches(compiled, self._with_label(namespace, label))

    def _with_label(self, namespace: str, label: tuple[str, str]) -> list[int]:
        """Return a namespace's identities that have a label, as a list that grows with new identities."""
        key, value = label
        by_value = self._by_label.get((namespace, key))
        if by_value is None:
            by_value = self._by_label[namespace, key] = {}, [0]
            self._index_label(namespace, key)
        numbers = by_value[0].get(value)
        if numbers is None:
            numbers = by_value[0][value] = []
        return numbers

    def _match(self, interner: Interner, matches: _SelectorMatches) -> None:
        """Test the identities that were added since the last call against the selector, and extend ``matches``."""
        for number in matches.candidates[matches.seen :]:
            if matches.selector.matches(interner.identities[number].labels):
                matches.matched.append(number)
        matches.seen = len(matches.candidates)

    def _learn(self, interner: Interner) -> None:
        """Add identities that the interner has assigned since the last call."""
        touched = set()
        for number in range(self._known, len(interner.identities)):
            namespace = interner.identities[number].namespace
            self._of_namespace.setdefault(namespace, []).append(number)
            touched.add(namespace)
        self._interner = interner
        self._known = len(interner.identities)
        if touched:
            for namespace, key in self._by_label:
                if namespace in touched:
                    self._index_label(namespace, key)

    def _index_label(self, namespace: str, key: str) -> None:
        """Add a namespace's identities to the index of one label, by value."""
        by_value, done = self._by_label[namespace, key]
        everything, identities = self._of_namespace.setdefault(namespace, []), self._interner.identities
        for number in everything[done[0] :]:
            labels = identities[number].labels
            if labels is not None and (value := labels.get(key)) is not None:
                of_value = by_value.get(value)
                if of_value is None:
                    by_value[value] = [number]
                else:
                    of_value.append(number)
        done[0] = len(everything)

    def _group(self, table: PodTable) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows of the table's pods by identity number: (start of each identity's rows, rows)."""
        population, grouped = self._groups
        if population is not table.population:
            number = table.interner.identity_of(table.columns["class_of"])
            number[table.columns["state"] == REMOVED] = -1
            grouped = _names.group_rows(number, int(number.max(initial=-1)) + 1)
            self._groups = table.population, grouped
        return grouped  # type: ignore[no-any-return]  # the kernel has no types
