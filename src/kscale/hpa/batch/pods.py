"""Pods of a batch and their usage as columns.

Finds which pods each selector matches, their requests, and their samples in a list of pod metrics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _names
from kscale.effects import SECOND, ZERO_TIME, GetMetric
from kscale.hpa.api.admission import coerce_pod
from kscale.hpa.controller.replica_calculator import PodColumns, SampleColumns, get_pod_request, wrap_int64
from kscale.hpa.options import HPAOptions
from kscale.objects.api.core import ObjectReference, Pod
from kscale.objects.api.meta import ApiStruct, ObjectMeta
from kscale.objects.api.metrics import ContainerMetrics, MetricValue, MetricValueList, PodMetricsList
from kscale.objects.decode import dec_hook as quantity_hook
from kscale.objects.pod_metrics import PodUsage, runs_of
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import parse_selector
from kscale.objects.times import parse_duration
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.columns import distinct
from kscale.snapshot.pods.index import PodIndex, PodSelection
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "BatchPods",
    "IndexedPods",
    "JoinedUsage",
    "ListedPods",
    "PodsLike",
    "SelectedPods",
    "SelectionSamples",
    "UsagePlacement",
    "concatenate_ranges",
    "find_usage_source",
    "join_usage",
    "to_batch_pods",
]


PodsLike = Cluster | Snapshot | PodIndex | Sequence[Any]
"""Source of pods: a cluster, a snapshot or its index, or a list of structs, plain data or clients' objects."""

_NO_ROWS: Final[NDArray[np.int64]] = np.empty(0, np.int64)

Selections = Sequence[tuple[str, str]]
"""(namespace, selector): selectors are texts that can be parsed."""


@dataclass(frozen=True, slots=True)
class SelectedPods:
    """Pods of several selections.

    The pods of selection ``i`` are the entries ``ends[i]:ends[i + 1]`` of ``rows`` (int64[k], row numbers in the
    source) and of ``columns``. ``key``: identical for selections of the same pods with the same requests. ``requests``:
    by container and resource, for those whose requests were needed. ``source``: identical while none of its pods has
    changed. ``stamps``: of the pods, issued by ``stamped_by`` (:meth:`BatchPods.stamps`). ``earlier``: another result
    of the same selections, and the selections whose pods differ from it, ascending; None if there is none.
    """

    ends: NDArray[np.int64]
    rows: NDArray[np.int64]
    columns: PodColumns
    key: object = None
    requests: dict[tuple[str, str], tuple[NDArray[np.int64], NDArray[np.bool_]]] = field(default_factory=dict)
    source: object = None
    stamps: NDArray[np.int64] = field(default_factory=lambda: _NO_ROWS)
    stamped_by: object = None
    earlier: tuple[SelectedPods, NDArray[np.int64]] | None = None

    def requests_of(
        self, groups: NDArray[np.int64], pods: BatchPods, container: str, resource: str, options: HPAOptions
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the requests and the mask of :meth:`BatchPods.requests` for the pods of the given selections.

        ``groups``: selections, ascending. The result is cached only if ``groups`` are all selections.
        """
        if len(groups) < len(self.ends) - 1:
            rows = self.rows[concatenate_ranges(self.ends[groups], self.ends[groups + 1])]
            return pods.requests(rows, container, resource, options)
        cached = self.requests.get((container, resource))
        if cached is None:
            last = None if self.earlier is None else self.earlier[0].requests.get((container, resource))
            if last is None or self.earlier is None:
                cached = pods.requests(self.rows, container, resource, options)
            else:
                new = pods.requests(self.rows_of(self.earlier[1]), container, resource, options)
                amounts, bad = self.splice(*self.earlier, last, new)
                cached = amounts, bad
            self.requests[container, resource] = cached
        return cached

    def rows_of(self, selections: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row numbers of the pods of ``selections`` (int64), one selection after the other."""
        return self.rows[concatenate_ranges(self.ends[selections], self.ends[selections + 1])]

    def find_changed_selections(
        self, ends: NDArray[np.int64], rows: NDArray[np.int64], stamps: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the selections, ascending, that select other pods now, or of which a pod has changed.

        ``ends``, ``rows``, ``stamps``: the current columns of the same selections.
        """
        changed = np.diff(ends) != np.diff(self.ends)
        # Consecutive selections of unchanged size are at a constant distance from their old places.
        edges = [0, *(np.flatnonzero(changed[1:] != changed[:-1]) + 1).tolist(), len(changed)]
        for first, last in pairwise(edges):
            if first < last and not changed[first]:
                now, old = slice(ends[first], ends[last]), slice(self.ends[first], self.ends[last])
                others = (stamps[now] != self.stamps[old]) | (rows[now] != self.rows[old])
                at = np.flatnonzero(others) + ends[first]
                changed[np.searchsorted(ends, at, side="right") - 1] = True
        return np.flatnonzero(changed)

    def splice(
        self,
        before: SelectedPods,
        changed: NDArray[np.int64],
        old: Sequence[NDArray[Any]],
        new: Sequence[NDArray[Any]],
    ) -> list[NDArray[Any]]:
        """Build columns of this object's pods from columns of an earlier result of the same selections.

        ``old``: columns of the pods of ``before``. ``new``: columns of the pods of the selections ``changed``
        (ascending), which replace those of ``old``.
        """
        begins = np.append(0, changed + 1)  # of unchanged selections, between changed ones
        unchanged_ends = np.append(before.ends[changed], before.ends[-1])
        unchanged = zip(before.ends[begins].tolist(), unchanged_ends.tolist(), strict=True)
        sizes = self.ends[changed + 1] - self.ends[changed]
        places = [0, *np.cumsum(sizes).tolist()]
        (first, *others), fresh = [slice(*each) for each in unchanged], map(slice, places[:-1], places[1:])
        pieces = [(False, first)]
        for replaced, following in zip(fresh, others, strict=True):
            pieces += [(True, replaced), (False, following)]
        return [
            np.concatenate([(theirs if is_new else mine)[piece] for is_new, piece in pieces])
            for mine, theirs in zip(old, new, strict=True)
        ]


class BatchPods(Protocol):
    """Pods by row number."""

    @property
    def keys(self) -> Sequence[str]:
        """Return ``namespace/name`` by row number, also for rows that are not in use."""
        ...

    @property
    def rows(self) -> NDArray[np.int64]:
        """Return the row numbers in use. Other numbers no longer belong to a pod."""
        ...

    def select(self, selections: Selections, before: SelectedPods | None = None) -> SelectedPods:
        """Select the pods of each (namespace, selector), in the order of the source.

        ``before``: last result of the same selections; whatever is unchanged is reused.
        """
        ...

    def requests(
        self, rows: NDArray[np.int64], container: str, resource: str, options: HPAOptions
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return each pod's request in milli-units (0 if there is none), and a mask of the pods without a request.

        ``rows``: numbers of the pods. ``container``: its name, or empty for the sum of the pod. ``options`` say how
        requests of the pod level count; see :func:`~kscale.hpa.controller.replica_calculator.get_pod_request`.
        """
        ...

    def have_labels(
        self, rows: NDArray[np.int64], numbers: NDArray[np.int32], sets: Sequence[Mapping[str, str]]
    ) -> NDArray[np.bool_]:
        """Check whether each pod ``rows[i]`` has exactly the labels ``sets[numbers[i]]``.

        True for a negative number.
        """
        ...

    def labels(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Yield the key and labels of every pod."""
        ...

    def stamps(self) -> tuple[object, NDArray[np.int64]]:
        """Return the object that issues stamps, and a stamp for each row number from 0 on.

        A stamp changes whenever the row's pod changes or another pod takes the row. It is -1 for a row without a pod.
        Stamps are unique among results with the same issuer. The issuer is None if stamps are not supported.
        """
        ...

    def pod(self, row: int) -> Pod:
        """Return the pod of a row as a struct."""
        ...


def to_batch_pods(pods: PodsLike) -> BatchPods:
    """Convert pods of any source to batch pods.

    Raises :class:`~kscale.errors.InputError` for an item that is not a pod.
    """
    if isinstance(pods, Cluster):
        return IndexedPods(pods.pod_index())
    if isinstance(pods, Snapshot):
        return IndexedPods(pods.pod_index)
    if isinstance(pods, PodIndex):
        return IndexedPods(pods)
    return ListedPods([item if isinstance(item, Pod) else coerce_pod(item) for item in pods])


def concatenate_ranges(begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``begin[0], ..., end[0] - 1, begin[1], ...`` as one array."""
    count = end - begin
    total = int(count.sum())
    return np.repeat(begin - (np.cumsum(count) - count), count) + np.arange(total, dtype=np.int64)


# -- a list of objects ---------------------------------------------------------------------------------------------


class ListedPods:
    """Pods of a list."""

    def __init__(self, pods: Sequence[Pod]) -> None:
        self._pods = pods
        self.keys = [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods]
        self.rows = np.arange(len(pods), dtype=np.int64)

    def select(self, selections: Selections, before: SelectedPods | None = None) -> SelectedPods:
        """Select the pods of each (namespace, selector) pair, in the order of the list; ``before`` is not used."""
        del before  # a list does not tell what changed
        by_namespace: dict[str, list[int]] = defaultdict(list)
        by_label: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        for row, pod in enumerate(self._pods):
            metadata = pod.metadata
            by_namespace[metadata.namespace].append(row)
            for key, value in (metadata.labels or {}).items():
                by_label[metadata.namespace, key, value].append(row)
        rows: list[int] = []
        ends = [0]
        for namespace, text in selections:
            selector = parse_selector(text)
            label = selector.exact_label()
            candidates = by_namespace[namespace] if label is None else by_label[(namespace, *label)]
            rows += [row for row in candidates if selector.matches(self._pods[row].metadata.labels)]
            ends.append(len(rows))
        columns = PodColumns.from_pods([self._pods[row] for row in rows])
        return SelectedPods(np.array(ends, np.int64), np.array(rows, np.int64), columns)

    def requests(
        self, rows: NDArray[np.int64], container: str, resource: str, options: HPAOptions
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return each pod's request in milli-units, and a mask; see :meth:`BatchPods.requests`."""
        amounts = [get_pod_request(self._pods[row], container, resource, options) for row in rows.tolist()]
        bad = np.array([isinstance(amount, str) for amount in amounts], np.bool_)
        return np.array([0 if isinstance(amount, str) else amount for amount in amounts], np.int64), bad

    def have_labels(
        self, rows: NDArray[np.int64], numbers: NDArray[np.int32], sets: Sequence[Mapping[str, str]]
    ) -> NDArray[np.bool_]:
        """Check whether each pod has exactly the labels ``sets[numbers[i]]`` (True for a negative number)."""
        pairs = zip(rows.tolist(), numbers.tolist(), strict=True)
        return np.array(
            [number < 0 or (self._pods[row].metadata.labels or {}) == sets[number] for row, number in pairs], np.bool_
        )

    def labels(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Yield the key and the labels of each pod."""
        return zip(self.keys, (pod.metadata.labels or {} for pod in self._pods), strict=True)

    def stamps(self) -> tuple[object, NDArray[np.int64]]:
        """Return (None, empty array): listed pods do not support stamps."""
        return None, np.empty(0, np.int64)

    def pod(self, row: int) -> Pod:
        """Return the pod of a row as a struct."""
        return self._pods[row]


# -- the index of a cluster ----------------------------------------------------------------------------------------

_QUANTITY_CACHE: Final[dict[Any, Quantity]] = {}
_MAX_QUANTITIES: Final = 1 << 16


def _decode_quantity(type_: type, value: Any) -> Any:
    """Decode a quantity through a cache, as the pods of a cluster request few different amounts."""
    if type_ is not Quantity or not isinstance(value, str):
        return quantity_hook(type_, value)
    cached = _QUANTITY_CACHE.get(value)
    if cached is None:
        if len(_QUANTITY_CACHE) >= _MAX_QUANTITIES:
            _QUANTITY_CACHE.clear()
        cached = _QUANTITY_CACHE[value] = quantity_hook(type_, value)
    return cached


class _Resources(ApiStruct):
    requests: dict[str, Quantity] | None = None


class _Container(ApiStruct):
    name: str = ""
    restart_policy: str | None = None
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _Spec(ApiStruct):
    containers: list[_Container] = msgspec.field(default_factory=list)
    init_containers: list[_Container] = msgspec.field(default_factory=list)
    resources: _Resources | None = None


class _RawPod(ApiStruct):
    """The fields of a pod that determine its requests."""

    spec: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))


@dataclass(frozen=True, slots=True)
class _EquivalentPod:
    """Stand-in for pods with equal spec texts. Its name appears only in texts that are not shown."""

    spec: _Spec
    metadata: ObjectMeta = field(default_factory=ObjectMeta)


_POD_DECODER: Final = msgspec.json.Decoder(_RawPod)
_SPEC_DECODER: Final = msgspec.json.Decoder(_Spec, dec_hook=_decode_quantity)


class _ShapeRequests:
    """Requests by pod shape, computed on demand.

    ``state`` is 0 for unknown, 1 for a request, 2 for no request. Shapes differ in labels more often than in specs, so
    specs with equal text are decoded once.
    """

    def __init__(self) -> None:
        self.found: dict[tuple[str, str, bool, bool], tuple[NDArray[np.int64], NDArray[np.uint8]]] = {}
        self._of_text: dict[bytes, _Spec] = {}
        self._specs: dict[bytes, _Spec] = {}

    def get(
        self, pods: PodSelection, container: str, resource: str, options: HPAOptions
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return each pod's request in milli-units (0 if there is none), and a mask of the pods without a request.

        Requests are cached by the pods' shape.
        """
        shapes = pods.shapes
        key = (container, resource, options.gates["PodLevelResources"], options.legacy)
        size = int(shapes.max(initial=0)) + 1
        amount, state = self.found.get(key) or (np.empty(0, np.int64), np.empty(0, np.uint8))
        if len(amount) < size:
            more = max(size, 2 * len(amount)) - len(amount)
            amount = np.concatenate([amount, np.zeros(more, np.int64)])
            state = np.concatenate([state, np.zeros(more, np.uint8)])
        unknown = distinct(shapes[state[shapes] == 0])
        numbers = unknown.tolist()
        of_text: dict[bytes, tuple[int, int]] = {}
        encoded = []
        for shape, text in zip(numbers, pods.texts(numbers), strict=True):
            if type(text) is bytes:
                request = of_text.get(text)
                if request is None:
                    request = of_text[text] = self._compute_request(pods, shape, text, container, resource, options)
            else:
                request = _encode_request(get_pod_request(text, container, resource, options))
            encoded.append(request)
        amount[unknown], state[unknown] = [each for each, _ in encoded], [each for _, each in encoded]
        self.found[key] = amount, state
        return amount[shapes], state[shapes] == 2

    def _decode_spec(self, text: bytes) -> _Spec:
        """Decode the part of a pod's JSON text that determines its requests, cached."""
        cached = self._of_text.get(text)
        if cached is None:
            written = bytes(_POD_DECODER.decode(text).spec)
            cached = self._specs.get(written)
            if cached is None:
                cached = self._specs[written] = _SPEC_DECODER.decode(written)
            self._of_text[text] = cached
        return cached

    def _compute_request(
        self, pods: PodSelection, shape: int, text: bytes, container: str, resource: str, options: HPAOptions
    ) -> tuple[int, int]:
        """Return the request of a shape's pods, encoded by :func:`_encode_request`. ``text``: JSON of one of them."""
        spec = self._decode_spec(text)
        has_pod_level = spec.resources is not None and not container
        pod = pods.exemplar(shape) if has_pod_level else _EquivalentPod(spec)
        return _encode_request(get_pod_request(pod, container, resource, options))


def _encode_request(request: int | str) -> tuple[int, int]:
    """Return (milli-units, 1) for a request, (0, 2) for an error text."""
    return (0, 2) if isinstance(request, str) else (request, 1)


class IndexedPods:
    """Pods of a cluster's index."""

    def __init__(self, index: PodIndex) -> None:
        self._index = index

    @cached_property
    def _all(self) -> PodSelection:
        """Return all pods, which are found when they are first needed."""
        return self._index.pods

    @property
    def keys(self) -> Sequence[str]:
        """Return ``namespace/name`` of all rows of the table."""
        return self._index.table.keys

    @property
    def rows(self) -> NDArray[np.int64]:
        """Return the table rows of the pods."""
        return self._all.rows

    def select(self, selections: Selections, before: SelectedPods | None = None) -> SelectedPods:
        """Return the pods of each selection; the result ``before`` is reused as far as the pods are unchanged."""
        table = self._index.table
        population, last = table.population, None if before is None else before.key
        if (
            before is None
            or not isinstance(last, tuple)
            or last[1] != selections
            or before.stamped_by is not table.memo
        ):
            selection, key = self._index.select_many(selections), (population, list(selections))
            ends, rows = selection.ends, selection.pods.rows
            columns, stamps = _build_pod_columns(selection.pods), table.columns["stamp"][rows]
            return SelectedPods(ends, rows, columns, key, source=table, stamps=stamps, stamped_by=table.memo)
        if before.source is table:
            return before
        is_same_population = last[0] is population
        key = last if is_same_population else (population, last[1])
        if is_same_population:
            ends, rows = before.ends, before.rows
        else:
            selection = self._index.select_many(selections)
            ends, rows = selection.ends, selection.pods.rows
        stamps = table.columns["stamp"][rows]
        changed = before.find_changed_selections(ends, rows, stamps)
        out = SelectedPods(
            ends,
            rows,
            before.columns,
            key,
            before.requests if is_same_population else {},
            table,
            stamps,
            table.memo,
            (replace(before, earlier=None), changed),
        )
        new = _build_pod_columns(PodSelection(self._index.table, out.rows_of(changed)))
        return replace(out, columns=PodColumns(*out.splice(before, changed, before.columns.arrays, new.arrays)))

    def requests(
        self, rows: NDArray[np.int64], container: str, resource: str, options: HPAOptions
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return each pod's request in milli-units, and a mask; see :meth:`BatchPods.requests`."""
        pods = PodSelection(self._index.table, rows)
        return pods.memo(_ShapeRequests).get(pods, container, resource, options)

    def have_labels(
        self, rows: NDArray[np.int64], numbers: NDArray[np.int32], sets: Sequence[Mapping[str, str]]
    ) -> NDArray[np.bool_]:
        """Check whether each pod has exactly the labels ``sets[numbers[i]]`` (True for a negative number)."""
        if not sets:
            return np.ones(len(rows), np.bool_)
        pods = PodSelection(self._index.table, rows)
        both = pods.label_numbers.astype(np.int64) * (len(sets) + 1) + numbers + 1
        # Pods of one owner are mostly consecutive, so far fewer entries are sorted.
        begins = np.flatnonzero(np.append(True, both[1:] != both[:-1])[: len(both)])
        pairs, where = np.unique(both[begins], return_inverse=True)
        same = np.ones(len(pairs), np.bool_)
        for i, pair in enumerate(pairs.tolist()):
            identity, number = divmod(pair, len(sets) + 1)
            if number:
                same[i] = (pods.labels(identity) or {}) == sets[number - 1]
        out: NDArray[np.bool_] = np.repeat(same[where.reshape(-1)], np.diff(begins, append=len(both)))
        return out

    def labels(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Yield the key and the labels of each pod."""
        pods = self._all
        numbers = pods.label_numbers.tolist()
        sets = {number: pods.labels(number) or {} for number in set(numbers)}
        return zip(pods.keys, [sets[number] for number in numbers], strict=True)

    def stamps(self) -> tuple[object, NDArray[np.int64]]:
        """Return the object that issues stamps, and a stamp for each row of the table; see :meth:`BatchPods.stamps`."""
        return self._all.table_stamps

    def pod(self, row: int) -> Pod:
        """Return the pod of a row as a struct."""
        return PodSelection(self._index.table, np.array([row], np.int64)).pod(0)


def _build_pod_columns(pods: PodSelection) -> PodColumns:
    """Build the columns that the kernels read."""
    phase, deleted, ready, started, since = pods.columns("phase", "deleted", "ready", "started", "since")
    return PodColumns(
        np.where(phase > 3, 0, phase).astype(np.uint8),  # pending, running and failed have the kernel's numbers
        (deleted != ZERO_TIME).astype(np.uint8),
        ready.astype(np.uint8),
        (started != ZERO_TIME).astype(np.uint8),
        started,
        since,
    )


@dataclass(frozen=True, slots=True)
class UsagePlacement:
    """The pod of each item of a usage list that was joined from ``parts``, kept for the next list.

    ``begins``: where the items of each part begin, and where the last part ends. ``rows`` int64[n]: the pod's row of
    each item, without duplicates. ``stamps`` int64[n]: stamps of these pods, issued by ``stamped_by``
    (:meth:`~kscale.hpa.batch.pods.BatchPods.stamps`).
    """

    parts: Sequence[PodUsage]
    begins: list[int]
    rows: NDArray[np.int64]
    stamps: NDArray[np.int64]
    stamped_by: object

    @classmethod
    def build(cls, usage: PodUsage, pods: BatchPods, rows: NDArray[np.int64]) -> UsagePlacement | None:
        """Build the placement of ``usage`` from the row of each item's pod (``rows``: int64[n]).

        None if :meth:`update` could not reuse it: the pods have no stamps, or the boundaries of the parts are unknown.
        """
        stamped_by, stamps = pods.stamps()
        if stamped_by is None or usage.seams is None:
            return None
        return cls(usage.parts, usage.seams[0].tolist(), rows, stamps[rows], stamped_by)

    def update(self, usage: PodUsage, pods: BatchPods) -> UsagePlacement | None:
        """Return the placement of another usage list; only items of changed parts or pods are looked up.

        None if this is not possible: the stamps have another issuer, the boundaries of the parts are unknown, or the
        items do not match pods one to one by name and labels.
        """
        stamped_by, stamps = pods.stamps()
        if stamped_by is not self.stamped_by or usage.seams is None or not len(stamps):
            return None
        begins: list[int] = usage.seams[0].tolist()
        rows, expected, new_keys = self._find_known_rows(usage.parts, begins)
        is_same = stamps.take(rows, mode="clip") == expected
        is_same &= rows >= 0
        if len(rows) and rows.max() >= len(stamps):
            is_same &= rows < len(stamps)
        fresh, reused = np.flatnonzero(~is_same), rows[is_same]
        is_free = stamps >= 0
        is_free[reused] = False
        remaining, keys = np.flatnonzero(is_free), pods.keys
        if np.count_nonzero(stamps >= 0) - len(remaining) != len(reused):  # a row is that of several items
            return None
        names = new_keys if len(new_keys) == len(fresh) else [usage.keys[row] for row in fresh.tolist()]
        item = _names.NameTable(names).rows([keys[row] for row in remaining.tolist()])
        matched = np.flatnonzero(item >= 0)
        if len(matched) != len(fresh):
            return None
        rows[fresh[item[matched]]] = remaining[matched]
        if not pods.have_labels(rows[fresh], usage.labels[fresh], usage.label_sets).all():
            return None
        return UsagePlacement(usage.parts, begins, rows, stamps[rows], stamped_by)

    def _find_known_rows(
        self, parts: Sequence[PodUsage], begins: list[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], list[str]]:
        """Return the row of each item's pod and its stamp, both -1 if the part is new, and the keys of all new parts.

        ``parts``: the parts of another usage list. ``begins``: where the items of each begin, and where the last ends.
        """
        pieces, expected, keys = [_NO_ROWS], [_NO_ROWS], list[str]()
        for run in runs_of(parts, self.parts):
            if run.before < 0:
                pieces.append(np.full(begins[run.end] - begins[run.first], -1))
                expected.append(pieces[-1])
                for part in parts[run.first : run.end]:
                    keys += part.keys
            else:
                source = slice(self.begins[run.before], self.begins[run.before + run.end - run.first])
                pieces.append(self.rows[source])
                expected.append(self.stamps[source])
        return np.concatenate(pieces), np.concatenate(expected), keys


@dataclass(frozen=True, slots=True)
class SelectionSamples:
    """Samples of one resource (of one container) for several selections.

    ``offset`` int64[g]: index in ``samples`` of the first sample of each selection. ``extra_count``, ``extra_sum``
    int64[g]: number and sum of the samples of pods that are not listed.
    """

    samples: SampleColumns
    offset: NDArray[np.int64]
    extra_count: NDArray[np.int64]
    extra_sum: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class JoinedUsage:
    """Assignment of the rows of a :class:`PodUsage` to the pods of selections.

    ``item`` int64[k]: the usage row of each selected pod, -1 for none. ``answered`` bool[m]: whether the API returns
    any item for a selection. ``others``: by selection, the usage rows of pods that are not listed. ``selected``: the
    selections. ``placed``: the pod of each usage row, if items match pods one to one.
    """

    usage: PodUsage
    item: NDArray[np.int64]
    answered: NDArray[np.bool_]
    others: dict[int, list[int]] = field(default_factory=dict)
    selected: SelectedPods | None = None
    placed: UsagePlacement | None = None

    def update(self, usage: PodUsage, selected: SelectedPods) -> JoinedUsage | None:
        """Return the assignment for another list of the same pods and the same selections.

        None if the usage has to be joined again.
        """
        mine = self.selected
        if mine is None or mine.key is None or mine.key is not selected.key or not usage.has_same_pods(self.usage):
            return None
        return replace(self, usage=usage, selected=selected)

    def get_samples(
        self, pods: SelectedPods, groups: NDArray[np.int64], resource: str, container: str
    ) -> SelectionSamples:
        """Return the samples of a resource for the given selections.

        ``groups``: selections, ascending and without duplicates. ``container`` empty: all containers.
        """
        begin, end = pods.ends[groups], pods.ends[groups + 1]
        item = self.item if len(groups) == len(pods.ends) - 1 else self.item[concatenate_ranges(begin, end)]
        samples = SampleColumns(*self.usage.samples(resource, item, container))
        count = end - begin
        extra_count, extra_sum = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
        if self.others:
            for i, group in enumerate(groups.tolist()):
                if group in self.others:
                    rows = np.array(self.others[group], np.int64)
                    counted, values, _, _ = self.usage.samples(resource, rows, container)
                    extra_count[i] = counted.sum()
                    extra_sum[i] = wrap_int64(sum(values[counted != 0].tolist()))
        return SelectionSamples(samples, np.cumsum(count) - count, extra_count, extra_sum)

    def answer(self, pods: SelectedPods, group: int, query: GetMetric) -> PodMetricsList | MetricValueList:
        """Build the API's response to a query for one selection (``group``) as objects.

        This is the usage of its pods for the resource API, else their values of the metric.
        """
        item = self.item[pods.ends[group] : pods.ends[group + 1]]
        rows = sorted([*item[item >= 0].tolist(), *self.others.get(group, ())])
        items = [self.usage.item(row) for row in rows]
        if query.api == "resource":
            return PodMetricsList(items=items)
        values = []
        for item_metrics in items:
            reference = ObjectReference(
                kind="Pod", namespace=item_metrics.metadata.namespace, name=item_metrics.metadata.name
            )
            amount = (item_metrics.containers or [ContainerMetrics()])[0].usage[query.metric]
            seconds = parse_duration(item_metrics.window) // SECOND
            value = MetricValue(
                described_object=reference, timestamp=item_metrics.timestamp, window_seconds=seconds, value=amount
            )
            values.append(value)
        return MetricValueList(items=values)


def find_usage_source(query: GetMetric) -> tuple[object, ...] | None:
    """Return the source of the pod usage that answers a query, or None if the query is not about pods.

    ``("resource",)``, or ``("custom", metric, selector)``.
    """
    if query.api == "resource":
        return ("resource",)
    if query.api == "custom" and query.kind == "Pod" and not query.name:
        return "custom", query.metric, query.metric_selector
    return None


def join_usage(
    usage: PodUsage,
    pods: BatchPods,
    selected: SelectedPods,
    selections: Sequence[tuple[str, str]],
    before: JoinedUsage | None = None,
) -> JoinedUsage:
    """Find the usage items that a metrics API would return for each (namespace, selector).

    Items are selected by their labels, or by the labels of their pods if the items have none. The last item of a pod
    counts. ``before``: the last join; whatever is unchanged is reused.
    """
    placed = None if before is None or before.placed is None else before.placed.update(usage, pods)
    if placed is not None:
        of_pod = np.full(len(pods.keys), -1, np.int64)
        of_pod[placed.rows] = np.arange(len(usage))
        item = of_pod[selected.rows]
        return JoinedUsage(
            usage, item, _find_selections_with_usage(item, selected, len(selections)), {}, selected, placed
        )
    keys, live, count = pods.keys, pods.rows, len(usage)
    if len(live) == len(keys):
        of_pod = usage.rows(keys)  # the item of every pod of the source
    else:
        of_pod = np.full(len(keys), -1, np.int64)
        of_pod[live] = usage.rows(list(map(keys.__getitem__, live.tolist())))
    item = of_pod[selected.rows]
    # An item with its pod's labels is returned wherever the pod is selected.
    with_item = np.flatnonzero(of_pod >= 0)
    same = pods.have_labels(with_item, usage.labels[of_pod[with_item]], usage.label_sets)
    odd = with_item[~same]
    if len(odd):
        item[np.isin(selected.rows, odd)] = -1
    answered = _find_selections_with_usage(item, selected, len(selections))
    without = np.ones(count, np.bool_)
    without[of_pod[with_item]] = False
    stray = np.flatnonzero(without)
    if not len(odd) and not len(stray):
        rows = np.empty(count, np.int64)
        rows[of_pod[with_item]] = with_item
        return JoinedUsage(usage, item, answered, {}, selected, UsagePlacement.build(usage, pods, rows))
    last = usage.rows([usage.keys[row] for row in stray.tolist()])
    stray = stray[last == stray]  # the last item of a pod counts
    others: dict[int, list[int]] = {}
    if len(odd) or len(stray):
        others = _match_unjoined_items(usage, selected, selections, odd, of_pod, stray, item, answered)
    return JoinedUsage(usage, item, answered, others, selected)


def _find_selections_with_usage(item: NDArray[np.int64], selected: SelectedPods, count: int) -> NDArray[np.bool_]:
    """Return a mask of the ``count`` selections: whether any of their pods has a usage item.

    ``item``: the usage row of each selected pod, -1 for none.
    """
    answered = np.zeros(count, np.bool_)
    some = np.flatnonzero(np.diff(selected.ends))
    if len(some):
        answered[some] = np.maximum.reduceat(item, selected.ends[:-1][some]) >= 0
    return answered


def _match_unjoined_items(
    usage: PodUsage,
    selected: SelectedPods,
    selections: Sequence[tuple[str, str]],
    odd: NDArray[np.int64],
    of_pod: NDArray[np.int64],
    stray: NDArray[np.int64],
    item: NDArray[np.int64],
    answered: NDArray[np.bool_],
) -> dict[int, list[int]]:
    """Match usage items without a pod, or with other labels than their pod's, to selections by their labels.

    ``odd``: rows of pods whose items have other labels; ``of_pod``: the usage row of each pod; ``stray``: usage rows
    without a pod. Matching items of selected pods are stored in ``item``, and all matched selections are marked in
    ``answered``. Returns the usage rows of other matching items by selection.
    """
    pod_of = {int(of_pod[row]): int(row) for row in odd.tolist()}
    by_namespace: dict[str, list[int]] = defaultdict(list)
    by_label: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    labels = {}
    for row in (*stray.tolist(), *pod_of):
        namespace = usage.namespaces[usage.namespace[row]]
        labels[row] = usage.label_sets[usage.labels[row]] if usage.labels[row] >= 0 else {}
        by_namespace[namespace].append(row)
        for key, value in labels[row].items():
            by_label[namespace, key, value].append(row)
    out: dict[int, list[int]] = {}
    for group, (namespace, text) in enumerate(selections):
        if namespace not in by_namespace:
            continue
        selector = parse_selector(text)
        exact = selector.exact_label()
        candidates = by_namespace[namespace] if exact is None else by_label.get((namespace, *exact), [])
        for row in candidates:
            if not selector.matches(labels[row]):
                continue
            answered[group] = True
            begin, end = int(selected.ends[group]), int(selected.ends[group + 1])
            positions = np.flatnonzero(selected.rows[begin:end] == pod_of.get(row, -1)).tolist()
            if positions:
                item[begin + positions[0]] = row
            else:
                out.setdefault(group, []).append(row)
    return out
