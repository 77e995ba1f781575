"""Pods of a batch and their usage as columns: which pods each selector matches, their requests, and their samples in
a list of pod metrics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from kscale.objects.api.meta import dec_hook as quantity_hook
from kscale.objects.api.metrics import ContainerMetrics, MetricValue, MetricValueList, PodMetricsList
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
"""Where pods may come from: a cluster, a snapshot or its index; or a list of structs, plain data, clients' objects."""

Selections = Sequence[tuple[str, str]]
"""(namespace, selector): selectors are texts that can be parsed."""


@dataclass(frozen=True, slots=True)
class SelectedPods:
    """The pods of several selections: those of ``i`` are ``ends[i]:ends[i + 1]`` of ``rows`` int64[k], which number the
    pods of their source, and of ``columns``. ``key``: the same for selections of the same pods that ask for the same,
    ``requests`` by container and resource as far as somebody wanted to know those of all; ``source``: the same while
    nothing of any pod there has changed."""

    ends: NDArray[np.int64]
    rows: NDArray[np.int64]
    columns: PodColumns
    key: object = None
    requests: dict[tuple[str, str], tuple[NDArray[np.int64], NDArray[np.bool_]]] = field(default_factory=dict)
    source: object = None

    def requests_of(
        self, groups: NDArray[np.int64], pods: BatchPods, container: str, resource: str, options: HPAOptions
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """:meth:`BatchPods.requests` of the pods of some selections, ascending; of all of them it is asked once."""
        if len(groups) < len(self.ends) - 1:
            rows = self.rows[concatenate_ranges(self.ends[groups], self.ends[groups + 1])]
            return pods.requests(rows, container, resource, options)
        found = self.requests.get((container, resource))
        if found is None:
            found = self.requests[container, resource] = pods.requests(self.rows, container, resource, options)
        return found


class BatchPods(Protocol):
    """Pods by number."""

    @property
    def keys(self) -> Sequence[str]:
        """``namespace/name`` of each."""
        ...

    @property
    def rows(self) -> NDArray[np.int64]:
        """The numbers that stand for a pod; others have none any more."""
        ...

    def select(self, wanted: Selections, before: SelectedPods | None = None) -> SelectedPods:
        """The pods of each (namespace, selector), in their order; ``before``: what the same question was answered
        last, of which whatever still holds is taken."""
        ...

    def requests(
        self, rows: NDArray[np.int64], container: str, resource: str, options: HPAOptions
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """(request in milli, whether there is none) of pods; see
        :func:`~kscale.hpa.controller.replica_calculator.get_pod_request`.
        """
        ...

    def have_labels(
        self, rows: NDArray[np.int64], numbers: NDArray[np.int32], sets: Sequence[Mapping[str, str]]
    ) -> NDArray[np.bool_]:
        """Whether each pod has just the labels ``sets[number]``; of a negative number: True."""
        ...

    def labels(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """The key of every pod, and its labels."""
        ...

    def stamps(self) -> tuple[object, NDArray[np.int64]]:
        """A stamp for each number, from 0 on, another one whenever anything of its pod changes or another pod has it;
        -1: it stands for none. They are no other pod's anywhere where the same object is told beside; None: nobody
        keeps any."""
        ...

    def pod(self, row: int) -> Pod:
        """One of them as an object."""
        ...


def to_batch_pods(given: PodsLike) -> BatchPods:
    """Pods from wherever they come. Raises :class:`~kscale.errors.InputError` for what is no pod."""
    if isinstance(given, Cluster):
        return IndexedPods(given.pod_index())
    if isinstance(given, Snapshot):
        return IndexedPods(given.pod_index)
    if isinstance(given, PodIndex):
        return IndexedPods(given)
    return ListedPods([each if isinstance(each, Pod) else coerce_pod(each) for each in given])


def concatenate_ranges(begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """``begin[0], ..., end[0] - 1, begin[1], ...``"""
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

    def select(self, wanted: Selections, before: SelectedPods | None = None) -> SelectedPods:
        del before  # a list says nothing of what changed
        by_namespace: dict[str, list[int]] = defaultdict(list)
        by_label: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        for row, pod in enumerate(self._pods):
            metadata = pod.metadata
            by_namespace[metadata.namespace].append(row)
            for key, value in (metadata.labels or {}).items():
                by_label[metadata.namespace, key, value].append(row)
        rows: list[int] = []
        ends = [0]
        for namespace, text in wanted:
            selector = parse_selector(text)
            label = selector.exact_label()
            candidates = by_namespace[namespace] if label is None else by_label[(namespace, *label)]
            rows += [row for row in candidates if selector.matches(self._pods[row].metadata.labels)]
            ends.append(len(rows))
        columns = PodColumns.of([self._pods[row] for row in rows])
        return SelectedPods(np.array(ends, np.int64), np.array(rows, np.int64), columns)

    def requests(
        self, rows: NDArray[np.int64], container: str, resource: str, options: HPAOptions
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        found = [get_pod_request(self._pods[row], container, resource, options) for row in rows.tolist()]
        bad = np.array([isinstance(each, str) for each in found], np.bool_)
        return np.array([0 if isinstance(each, str) else each for each in found], np.int64), bad

    def have_labels(
        self, rows: NDArray[np.int64], numbers: NDArray[np.int32], sets: Sequence[Mapping[str, str]]
    ) -> NDArray[np.bool_]:
        pairs = zip(rows.tolist(), numbers.tolist(), strict=True)
        return np.array(
            [number < 0 or (self._pods[row].metadata.labels or {}) == sets[number] for row, number in pairs], np.bool_
        )

    def labels(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        return zip(self.keys, (pod.metadata.labels or {} for pod in self._pods), strict=True)

    def stamps(self) -> tuple[object, NDArray[np.int64]]:
        return None, np.empty(0, np.int64)

    def pod(self, row: int) -> Pod:
        return self._pods[row]


# -- the index of a cluster ----------------------------------------------------------------------------------------

_QUANTITY_CACHE: Final[dict[Any, Quantity]] = {}
_MAX_QUANTITIES: Final = 1 << 16


def _decode_quantity(type_: type, value: Any) -> Any:
    """Pods of a cluster ask for few different amounts."""
    if type_ is not Quantity or not isinstance(value, str):
        return quantity_hook(type_, value)
    found = _QUANTITY_CACHE.get(value)
    if found is None:
        if len(_QUANTITY_CACHE) >= _MAX_QUANTITIES:
            _QUANTITY_CACHE.clear()
        found = _QUANTITY_CACHE[value] = quantity_hook(type_, value)
    return found


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
    """What of a pod says how much it asks for."""

    spec: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))


@dataclass(frozen=True, slots=True)
class _EquivalentPod:
    """What stands for pods whose specs are written the same; their names are in texts alone, which nobody sees."""

    spec: _Spec
    metadata: ObjectMeta = field(default_factory=ObjectMeta)


_POD_DECODER: Final = msgspec.json.Decoder(_RawPod)
_SPEC_DECODER: Final = msgspec.json.Decoder(_Spec, dec_hook=_decode_quantity)


class _ShapeRequests:
    """Requests by shape, as far as they were asked for: 0 in ``state``: not yet, 1: there is one, 2: there is none.
    Shapes differ in labels more than in specs: of specs that are written the same one is read."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str, bool, bool], tuple[NDArray[np.int64], NDArray[np.uint8]]] = {}
        self._of_text: dict[bytes, _Spec] = {}
        self._specs: dict[bytes, _Spec] = {}

    def of(
        self, pods: PodSelection, container: str, resource: str, options: HPAOptions
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        shapes = pods.shapes
        key = (container, resource, options.enabled("PodLevelResources"), options.legacy)
        most = int(shapes.max(initial=0)) + 1
        amount, state = self.found.get(key) or (np.empty(0, np.int64), np.empty(0, np.uint8))
        if len(amount) < most:
            more = max(most, 2 * len(amount)) - len(amount)
            amount = np.concatenate([amount, np.zeros(more, np.int64)])
            state = np.concatenate([state, np.zeros(more, np.uint8)])
        unknown = distinct(shapes[state[shapes] == 0])
        numbers = unknown.tolist()
        of_text: dict[bytes, tuple[int, int]] = {}
        found = []
        for shape, text in zip(numbers, pods.texts(numbers), strict=True):
            if type(text) is bytes:
                told = of_text.get(text)
                if told is None:
                    told = of_text[text] = self._request(pods, shape, text, container, resource, options)
            else:
                told = _encode_request(get_pod_request(text, container, resource, options))
            found.append(told)
        amount[unknown], state[unknown] = [each for each, _ in found], [each for _, each in found]
        self.found[key] = amount, state
        return amount[shapes], state[shapes] == 2

    def _spec(self, text: bytes) -> _Spec:
        found = self._of_text.get(text)
        if found is None:
            written = bytes(_POD_DECODER.decode(text).spec)
            found = self._specs.get(written)
            if found is None:
                found = self._specs[written] = _SPEC_DECODER.decode(written)
            self._of_text[text] = found
        return found

    def _request(
        self, pods: PodSelection, shape: int, text: bytes, container: str, resource: str, options: HPAOptions
    ) -> tuple[int, int]:
        spec = self._spec(text)
        whole = spec.resources is not None and not container
        asking = pods.exemplar(shape) if whole else _EquivalentPod(spec)
        return _encode_request(get_pod_request(asking, container, resource, options))


def _encode_request(found: int | str) -> tuple[int, int]:
    return (0, 2) if isinstance(found, str) else (found, 1)


class IndexedPods:
    """Pods of the index of a cluster."""

    def __init__(self, index: PodIndex) -> None:
        self._index = index
        self._all = index.pods

    @property
    def keys(self) -> Sequence[str]:
        return self._all.table_keys

    @property
    def rows(self) -> NDArray[np.int64]:
        return self._all.rows

    def select(self, wanted: Selections, before: SelectedPods | None = None) -> SelectedPods:
        population = self._all.population
        last = None if before is None else before.key
        if before is not None and isinstance(last, tuple) and last[0] is population and last[1] == wanted:
            if before.source is self._all.table:
                return before
            columns = _build_pod_columns(self._all.at(before.rows))
            return SelectedPods(before.ends, before.rows, columns, last, before.requests, self._all.table)
        found, key = self._index.select_many(wanted), (population, list(wanted))
        return SelectedPods(found.ends, found.pods.rows, _build_pod_columns(found.pods), key, source=self._all.table)

    def requests(
        self, rows: NDArray[np.int64], container: str, resource: str, options: HPAOptions
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        pods = self._all.at(rows)
        return pods.memo(_ShapeRequests).of(pods, container, resource, options)

    def have_labels(
        self, rows: NDArray[np.int64], numbers: NDArray[np.int32], sets: Sequence[Mapping[str, str]]
    ) -> NDArray[np.bool_]:
        pods = self._all.at(rows)
        both = pods.label_numbers.astype(np.int64) * (len(sets) + 1) + numbers + 1
        # Pods of one owner mostly come one after the other: far fewer are sorted.
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
        pods = self._all
        numbers = pods.label_numbers.tolist()
        sets = {number: pods.labels(number) or {} for number in set(numbers)}
        return zip(pods.keys, [sets[number] for number in numbers], strict=True)

    def stamps(self) -> tuple[object, NDArray[np.int64]]:
        return self._all.table_stamps

    def pod(self, row: int) -> Pod:
        return self._all.at(np.array([row], np.int64)).pod(0)


def _build_pod_columns(pods: PodSelection) -> PodColumns:
    phase = pods.phase
    ready, started = pods.ready, pods.started
    return PodColumns(
        np.where(phase > 3, 0, phase).astype(np.uint8),  # pending, running and failed have the kernel's numbers
        (pods.deleted != ZERO_TIME).astype(np.uint8),
        ready.astype(np.uint8),
        (started != ZERO_TIME).astype(np.uint8),
        started,
        pods.since,
    )


_NO_ROWS: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class UsagePlacement:
    """The pods of usage that was joined of ``parts``.

    ``begins``: where the items of each part begin, and where those of the last end; ``rows`` int64[n]: the number of
    the pod of each item, none of them twice; ``stamps`` int64[n]: of these pods, as ``stamped_by`` has them
    (:meth:`~kscale.hpa.batch.pods.BatchPods.stamps`).
    """

    parts: Sequence[PodUsage]
    begins: list[int]
    rows: NDArray[np.int64]
    stamps: NDArray[np.int64]
    stamped_by: object

    @classmethod
    def of(cls, usage: PodUsage, pods: BatchPods, rows: NDArray[np.int64]) -> UsagePlacement | None:
        """Of items of which it is known; None: it would not be known again."""
        stamped_by, stamps = pods.stamps()
        if stamped_by is None or usage.seams is None:
            return None
        return cls(usage.parts, usage.seams[0].tolist(), rows, stamps[rows], stamped_by)

    def again(self, usage: PodUsage, pods: BatchPods) -> UsagePlacement | None:
        """The pods of other usage: where its parts and their pods are the same they are not looked for again. None: it
        is not plain."""
        stamped_by, stamps = pods.stamps()
        if stamped_by is not self.stamped_by or usage.seams is None:
            return None
        begins: list[int] = usage.seams[0].tolist()
        rows = self._kept(usage.parts, begins, stamps)
        fresh = np.flatnonzero(rows < 0)
        kept = rows[rows >= 0]
        taken = np.zeros(len(stamps), np.bool_)
        taken[kept] = True
        left = pods.rows[~taken[pods.rows]]
        keys = pods.keys
        item = _names.NameTable([usage.keys[row] for row in fresh.tolist()]).rows([keys[row] for row in left.tolist()])
        found = np.flatnonzero(item >= 0)
        if len(found) != len(fresh) or np.count_nonzero(taken) != len(kept):
            return None
        rows[fresh[item[found]]] = left[found]
        if not pods.have_labels(rows[fresh], usage.labels[fresh], usage.label_sets).all():
            return None
        return UsagePlacement(usage.parts, begins, rows, stamps[rows], stamped_by)

    def _kept(self, parts: Sequence[PodUsage], begins: list[int], stamps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The pods of the items of ``parts``; -1: it is another part, or the pod is not there as it was."""
        pieces, expected = [_NO_ROWS], [_NO_ROWS]
        for run in runs_of(parts, self.parts):
            if run.before < 0:
                pieces.append(np.full(begins[run.end] - begins[run.first], -1))
                expected.append(pieces[-1])
            else:
                where = slice(self.begins[run.before], self.begins[run.before + run.end - run.first])
                pieces.append(self.rows[where])
                expected.append(self.stamps[where])
        rows = np.concatenate(pieces)
        there = (rows >= 0) & (rows < len(stamps))
        there[there] = stamps[rows[there]] == np.concatenate(expected)[there]
        rows[~there] = -1
        return rows


@dataclass(frozen=True, slots=True)
class SelectionSamples:
    """Samples of one resource (of one container) for some selections.

    ``offset`` int64[g]: where those of each begin in ``samples``; ``extra_count``, ``extra_sum`` int64[g]: of pods that
    are not listed.
    """

    samples: SampleColumns
    offset: NDArray[np.int64]
    extra_count: NDArray[np.int64]
    extra_sum: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class JoinedUsage:
    """Which row of a :class:`PodUsage` belongs to which pod of the selections.

    ``item`` int64[k]: the row of each selected pod, -1: none; ``answered`` bool[m]: whether the API answers anything at
    all for a selection; ``others``: rows that it answers besides, of pods that are not listed; ``selected``: what it
    was joined for; ``placed``: the pod of each row, where that is plain.
    """

    usage: PodUsage
    item: NDArray[np.int64]
    answered: NDArray[np.bool_]
    others: dict[int, list[int]] = field(default_factory=dict)
    selected: SelectedPods | None = None
    placed: UsagePlacement | None = None

    def again(self, usage: PodUsage, selected: SelectedPods) -> JoinedUsage | None:
        """The same for another list of the same pods, for the same selections; None: it has to be joined anew."""
        mine = self.selected
        if mine is None or mine.key is None or mine.key is not selected.key or not usage.same_pods(self.usage):
            return None
        return replace(self, usage=usage, selected=selected)

    def of(self, pods: SelectedPods, groups: NDArray[np.int64], resource: str, container: str) -> SelectionSamples:
        """The samples of some selections, ascending, none twice."""
        begin, end = pods.ends[groups], pods.ends[groups + 1]
        item = self.item if len(groups) == len(pods.ends) - 1 else self.item[concatenate_ranges(begin, end)]
        samples = SampleColumns(*self.usage.samples(resource, item, container))
        count = end - begin
        extra_count, extra_sum = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
        if self.others:
            for i, group in enumerate(groups.tolist()):
                if group in self.others:
                    rows = np.array(self.others[group], np.int64)
                    counted, found, _, _ = self.usage.samples(resource, rows, container)
                    extra_count[i] = counted.sum()
                    extra_sum[i] = wrap_int64(sum(found[counted != 0].tolist()))
        return SelectionSamples(samples, np.cumsum(count) - count, extra_count, extra_sum)

    def answer(self, pods: SelectedPods, group: int, asked: GetMetric) -> PodMetricsList | MetricValueList:
        """What the API answers for one selection, as objects."""
        item = self.item[pods.ends[group] : pods.ends[group + 1]]
        rows = sorted([*item[item >= 0].tolist(), *self.others.get(group, ())])
        items = [self.usage.item(row) for row in rows]
        if asked.api == "resource":
            return PodMetricsList(items=items)
        values = []
        for each in items:
            of = ObjectReference(kind="Pod", namespace=each.metadata.namespace, name=each.metadata.name)
            amount = (each.containers or [ContainerMetrics()])[0].usage[asked.metric]
            seconds = parse_duration(each.window) // SECOND
            value = MetricValue(described_object=of, timestamp=each.timestamp, window_seconds=seconds, value=amount)
            values.append(value)
        return MetricValueList(items=values)


def find_usage_source(asked: GetMetric) -> tuple[object, ...] | None:
    """Which usage answers a query; None: none of pods."""
    if asked.api == "resource":
        return ("resource",)
    if asked.api == "custom" and asked.kind == "Pod" and not asked.name:
        return "custom", asked.metric, asked.metric_selector
    return None


def join_usage(
    usage: PodUsage,
    pods: BatchPods,
    selected: SelectedPods,
    wanted: Sequence[tuple[str, str]],
    before: JoinedUsage | None = None,
) -> JoinedUsage:
    """Finds what a metrics API would answer for each (namespace, selector), by the labels of its items or, where they
    tell none, of their pods. Of a pod that comes twice the last counts. ``before``: what was joined last, of which is
    taken whatever still holds."""
    placed = None if before is None or before.placed is None else before.placed.again(usage, pods)
    if placed is not None:
        of_pod = np.full(len(pods.keys), -1, np.int64)
        of_pod[placed.rows] = np.arange(len(usage))
        item = of_pod[selected.rows]
        return JoinedUsage(usage, item, _find_selections_with_usage(item, selected, len(wanted)), {}, selected, placed)
    keys, live = pods.keys, pods.rows
    if len(live) == len(keys):
        of_pod = usage.rows(keys)  # the item of every pod of the source
    else:
        of_pod = np.full(len(keys), -1, np.int64)
        of_pod[live] = usage.rows(list(map(keys.__getitem__, live.tolist())))
    item = of_pod[selected.rows]
    # An item that has its pod's labels is answered where the pod is selected.
    found = np.flatnonzero(of_pod >= 0)
    same = pods.have_labels(found, usage.labels[of_pod[found]], usage.label_sets)
    odd = found[~same]
    if len(odd):
        item[np.isin(selected.rows, odd)] = -1
    answered = _find_selections_with_usage(item, selected, len(wanted))
    without = np.ones(len(usage), np.bool_)
    without[of_pod[found]] = False
    stray = np.flatnonzero(without)
    if not len(odd) and not len(stray):
        rows = np.empty(len(usage), np.int64)
        rows[of_pod[found]] = found
        return JoinedUsage(usage, item, answered, {}, selected, UsagePlacement.of(usage, pods, rows))
    last = usage.rows([usage.keys[row] for row in stray.tolist()])
    stray = stray[last == stray]  # of one that comes twice the last counts
    others: dict[int, list[int]] = {}
    if len(odd) or len(stray):
        others = _match_unjoined_items(usage, selected, wanted, odd, of_pod, stray, item, answered)
    return JoinedUsage(usage, item, answered, others, selected)


def _find_selections_with_usage(item: NDArray[np.int64], selected: SelectedPods, count: int) -> NDArray[np.bool_]:
    """Which of so many selections have a pod with an item."""
    answered = np.zeros(count, np.bool_)
    some = np.flatnonzero(np.diff(selected.ends))
    if len(some):
        answered[some] = np.add.reduceat((item >= 0).astype(np.int64), selected.ends[:-1][some]) > 0
    return answered


def _match_unjoined_items(
    usage: PodUsage,
    selected: SelectedPods,
    wanted: Sequence[tuple[str, str]],
    odd: NDArray[np.int64],
    of_pod: NDArray[np.int64],
    stray: NDArray[np.int64],
    item: NDArray[np.int64],
    answered: NDArray[np.bool_],
) -> dict[int, list[int]]:
    """Items that do not go by their pod: without one, or with other labels. Those of selected pods go into ``item``."""
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
    for group, (namespace, text) in enumerate(wanted):
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
            at = np.flatnonzero(selected.rows[begin:end] == pod_of.get(row, -1)).tolist()
            if at:
                item[begin + at[0]] = row
            else:
                out.setdefault(group, []).append(row)
    return out
