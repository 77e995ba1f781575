"""Index of pods by namespace and selector, for HPAs, VPAs and disruption budgets.

A selector is held against namespaces and label sets, not against pods: of those there are far fewer, and what a
selector matched is kept while they stay. Which pods have a label set is counted anew only when pods come, go or change
labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kscale._native import _api_text, _names
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import LabelSelector
from kscale.objects.selectors import Selector, compile_selector, parse_selector
from kscale.snapshot.classes.classifier import shapes_of
from kscale.snapshot.classes.interner import Interner
from kscale.snapshot.columns import distinct
from kscale.snapshot.pods.record import GONE, PodRecord
from kscale.snapshot.pods.table import PodTable

__all__ = ["PodIndex", "PodSelection", "PodSelections", "SelectorLike"]

_M = TypeVar("_M")

SelectorLike = Selector | LabelSelector | str | None
"""A compiled selector, one of an object, its text (``app=web,tier in (a,b)``), or None, which selects nothing."""


class PodIndex:
    """The pods of one moment; immutable. All phases are there, in order of first appearance."""

    __slots__ = ("_table",)

    def __init__(self, table: PodTable) -> None:
        self._table = table

    def select(self, namespace: str, selector: SelectorLike) -> PodSelection:
        """The pods of a namespace that a selector selects. Raises SelectorError for a selector that the API machinery
        refuses."""
        return self.select_many([(namespace, selector)]).pods

    def select_many(self, wanted: Sequence[tuple[str, SelectorLike]]) -> PodSelections:
        """:meth:`select` for many (namespace, selector) at once."""
        identities = self._table.interner.memo.of(_Identities, _Identities)
        begin, groups, (starts, rows) = identities.matching(self._table, wanted)
        ends, found = _names.select_rows(starts, rows, begin, groups)
        return PodSelections(ends, PodSelection(self._table, found))

    @property
    def pods(self) -> PodSelection:
        """All pods."""
        return PodSelection(self._table, np.flatnonzero(self._table.column("state") != GONE))


class PodSelection:
    """Some pods, a column each; rows of one table are the same pods for as long as the index they are from.

    ``phase`` int8 into :data:`~kscale.snapshot.pods.record.PHASES`; ``ready`` int8, the status of the condition Ready,
    into :data:`~kscale.snapshot.pods.record.READY` (0 = there is none), and ``since`` int64 when it last changed;
    ``started``, ``deleted`` int64: ``status.startTime``, ``metadata.deletionTimestamp``. Moments are nanoseconds since
    1970, :data:`~kscale.objects.times.ZERO_TIME` where they are absent. ``rows`` int64, ascending.
    """

    __slots__ = ("_table", "rows")

    def __init__(self, table: PodTable, rows: NDArray[np.int64]) -> None:
        self._table = table
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice) -> PodSelection:
        return PodSelection(self._table, self.rows[part])

    def __repr__(self) -> str:
        return f"PodSelection({len(self)} pods)"

    @property
    def phase(self) -> NDArray[np.int8]:
        """Phases by number."""
        return self._table.column("phase")[self.rows]

    @property
    def ready(self) -> NDArray[np.int8]:
        """Statuses of the condition Ready by number."""
        return self._table.column("ready")[self.rows]

    @property
    def since(self) -> NDArray[np.int64]:
        """Since when they are ready or not."""
        return self._table.column("since")[self.rows]

    @property
    def started(self) -> NDArray[np.int64]:
        """When the kubelet took them over."""
        return self._table.column("started")[self.rows]

    @property
    def deleted(self) -> NDArray[np.int64]:
        """When they were told to stop."""
        return self._table.column("deleted")[self.rows]

    @property
    def keys(self) -> list[str]:
        """``namespace/name`` of each."""
        keys = self._table.keys
        return [keys[row] for row in self.rows.tolist()]

    @property
    def shapes(self) -> NDArray[np.int32]:
        """Numbers of shapes, see :meth:`exemplar`: equal ones, equal pods but for name, UID and the columns here."""
        return shapes_of(self._table, self.rows)

    def exemplar(self, shape: int) -> Pod:
        """A pod of a shape: what its containers ask for, and whatever else decisions read of a pod."""
        found = self._table.interner.shapes[shape]
        if found is None:
            raise KeyError(shape)
        return found.exemplar

    def pod(self, position: int) -> Pod:
        """One of them, made when asked for."""
        return self._table.record(int(self.rows[position])).pod

    def texts(self, shapes: Sequence[int]) -> list[bytes | Pod]:
        """The texts of shapes, without labels, affinity, volumes and owners; where there is none, the pod that stands
        for it. Cheaper than :meth:`exemplar` where little of a pod is read. The shapes are of pods that there are."""
        known = self._table.interner.shapes
        return [known[shape].text for shape in shapes]  # type: ignore[union-attr]  # none of them went

    @property
    def label_numbers(self) -> NDArray[np.int32]:
        """Equal numbers: equal labels and namespace; see :meth:`labels`."""
        return self._table.interner.identity_of(self._table.column("class_of")[self.rows])

    def labels(self, number: int) -> dict[str, str] | None:
        """The labels behind a number."""
        return self._table.interner.identities[number].labels

    def at(self, rows: NDArray[np.int64]) -> PodSelection:
        """The pods of some rows of the same table."""
        return PodSelection(self._table, rows)

    @property
    def table_keys(self) -> Sequence[str]:
        """``namespace/name`` by row, of all rows of the table; those of pods that are gone mean nothing."""
        return self._table.keys

    @property
    def table(self) -> object:
        """Another object whenever anything of any pod has changed."""
        return self._table

    @property
    def table_stamps(self) -> tuple[object, NDArray[np.int64]]:
        """Stamps by row, of all rows of the table, -1 where no pod is: another one whenever a row gets another pod. No
        other pod has had it in any table with which the same object is told."""
        gone = self._table.column("state") == GONE
        return self._table.memo, np.where(gone, -1, self._table.column("stamp"))

    @property
    def population(self) -> object:
        """Another object whenever pods come, go, or change labels or requests: while it stays, so do all rows."""
        return self._table.population

    def memo(self, kind: type[_M]) -> _M:
        """What somebody else remembers of the shapes and labels of these pods, for as long as these are numbered."""
        return self._table.interner.memo.of(kind, kind)

    def label_sets(self) -> list[dict[str, str] | None]:
        """The different labels that they have, in no order."""
        interner = self._table.interner
        identities = distinct(interner.identity_of(self._table.column("class_of")[self.rows]))
        return [interner.identities[number].labels for number in identities.tolist()]

    def records(self) -> Iterator[PodRecord]:
        """The pods themselves, made one by one."""
        return map(self._table.record, self.rows.tolist())


class PodSelections:
    """Several selections: those of ``i`` are ``pods[ends[i]:ends[i + 1]]``; int64[m + 1]."""

    __slots__ = ("ends", "pods")

    def __init__(self, ends: NDArray[np.int64], pods: PodSelection) -> None:
        self.ends = ends
        self.pods = pods

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, i: int) -> PodSelection:
        i = range(len(self))[i]
        return self.pods[int(self.ends[i]) : int(self.ends[i + 1])]


class _Found:
    """What a selector matched of some candidates, a list that only grows."""

    __slots__ = ("candidates", "matched", "seen", "selector")

    def __init__(self, selector: Selector, candidates: list[int]) -> None:
        self.selector = selector
        self.candidates = candidates
        self.matched: list[int] = []
        self.seen = 0


class _Identities:
    """Identities (namespace and labels) of one interner by namespace and label, and what selectors matched of them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known = 0
        self._of_namespace: dict[str, list[int]] = {}
        self._by_label: dict[tuple[str, str], tuple[dict[str, list[int]], list[int]]] = {}  # , how many are there
        self._found: dict[tuple[str, Any], _Found] = {}
        self._known_lists: dict[tuple[str, Any], list[int]] = {}  # they grow as identities are learned
        self._groups: tuple[Any, Any] = (None, None)

    def matching(
        self, table: PodTable, wanted: Sequence[tuple[str, SelectorLike]]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """(where those of each begin int64[m + 1], identities one after the other, rows by identity)."""
        interner = table.interner
        with self._lock:
            grouped = self._group(table)
            self._learn(interner)
            begin, groups = [0], list[int]()
            known = self._known_lists
            for asked in wanted:
                found = known.get(asked) if type(asked[1]) is str else None
                if found is None:
                    found = self._matched(interner, *asked)
                groups += found
                begin.append(len(groups))
        count = len(grouped[0]) - 1
        chosen, starts = np.array(groups, dtype=np.int64), np.array(begin, dtype=np.int64)
        if len(chosen) and int(chosen.max()) >= count:  # identities that are younger than the table
            old = chosen < count
            starts = np.append(0, np.cumsum(old))[starts]
            chosen = chosen[old]
        return starts, chosen, grouped

    def _matched(self, interner: Interner, namespace: str, selector: SelectorLike) -> list[int]:
        if type(selector) is str and (label := _api_text.plain_label(selector)) is not None:
            found_list = self._known_lists[namespace, selector] = self._with_label(namespace, label)
            return found_list
        key = namespace, selector if isinstance(selector, str | Selector) else compile_selector(selector)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._ask(*key)
        if found.seen < len(found.candidates):
            self._match(interner, found)
        return found.matched

    def _ask(self, namespace: str, selector: str | Selector) -> _Found:
        """A selector that was not asked for before, with the identities that it may match."""
        compiled = parse_selector(selector) if isinstance(selector, str) else selector
        if compiled.nothing:
            return _Found(compiled, [])
        label = compiled.exact_label()
        if label is None:
            return _Found(compiled, self._of_namespace.setdefault(namespace, []))
        return _Found(compiled, self._with_label(namespace, label))

    def _with_label(self, namespace: str, label: tuple[str, str]) -> list[int]:
        """Those of a namespace that have a label: a list that grows as identities are learned."""
        key, value = label
        shelves = self._by_label.get((namespace, key))
        if shelves is None:
            shelves = self._by_label[namespace, key] = {}, [0]
            self._shelve(namespace, key)
        found = shelves[0].get(value)
        if found is None:
            found = shelves[0][value] = []
        return found

    def _match(self, interner: Interner, found: _Found) -> None:
        for number in found.candidates[found.seen :]:
            if found.selector.matches(interner.identities[number].labels):
                found.matched.append(number)
        found.seen = len(found.candidates)

    def _learn(self, interner: Interner) -> None:
        """Take in identities that are new."""
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
                    self._shelve(namespace, key)

    def _shelve(self, namespace: str, key: str) -> None:
        """Take the identities of a namespace in by the value of one label."""
        shelves, done = self._by_label[namespace, key]
        everything, identities = self._of_namespace.setdefault(namespace, []), self._interner.identities
        for number in everything[done[0] :]:
            labels = identities[number].labels
            if labels is not None and (value := labels.get(key)) is not None:
                of_value = shelves.get(value)
                if of_value is None:
                    shelves[value] = [number]
                else:
                    of_value.append(number)
        done[0] = len(everything)

    def _group(self, table: PodTable) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows by identity, as :func:`kscale._native._names.group_rows` has them."""
        population, grouped = self._groups
        if population is not table.population:
            number = table.interner.identity_of(table.column("class_of"))
            number[table.column("state") == GONE] = -1
            grouped = _names.group_rows(number, int(number.max(initial=-1)) + 1)
            self._groups = table.population, grouped
        return grouped  # type: ignore[no-any-return]  # of the population
