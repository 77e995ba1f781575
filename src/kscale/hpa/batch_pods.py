"""The pods of a batch of HPAs, from an index of a cluster or a list of objects, as the columns that kernels take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.effects import ZERO_TIME
from kscale.hpa.given import given_pod
from kscale.hpa.options import HPAOptions
from kscale.hpa.pod_groups import PodColumns, pod_request
from kscale.objects.base import ApiStruct
from kscale.objects.base import dec_hook as quantity_hook
from kscale.objects.core import Pod
from kscale.objects.meta import ObjectMeta
from kscale.objects.quantity import Quantity
from kscale.objects.selector_text import parse_selector
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.columns import distinct
from kscale.snapshot.pod_index import PodIndex, PodSelection
from kscale.snapshot.snapshot import Snapshot

__all__ = ["BatchPods", "IndexedPods", "ListedPods", "PodsLike", "SelectedPods", "batch_pods", "ranges"]

PodsLike = Cluster | Snapshot | PodIndex | Sequence[Any]
"""Where pods may come from: a cluster, a snapshot or its index; or a list of structs, plain data, clients' objects."""

Wanted = Sequence[tuple[str, str]]
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
            rows = self.rows[ranges(self.ends[groups], self.ends[groups + 1])]
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

    def select(self, wanted: Wanted, before: SelectedPods | None = None) -> SelectedPods:
        """The pods of each (namespace, selector), in their order; ``before``: what the same question was answered
        last, of which whatever still holds is taken."""
        ...

    def requests(
        self, rows: NDArray[np.int64], container: str, resource: str, options: HPAOptions
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """(request in milli, whether there is none) of pods; see :func:`~kscale.hpa.pod_groups.pod_request`."""
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


def batch_pods(given: PodsLike) -> BatchPods:
    """Pods from wherever they come. Raises :class:`~kscale.errors.InputError` for what is no pod."""
    if isinstance(given, Cluster):
        return IndexedPods(given.pod_index())
    if isinstance(given, Snapshot):
        return IndexedPods(given.pod_index)
    if isinstance(given, PodIndex):
        return IndexedPods(given)
    return ListedPods([each if isinstance(each, Pod) else given_pod(each) for each in given])


def ranges(begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
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

    def select(self, wanted: Wanted, before: SelectedPods | None = None) -> SelectedPods:
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
        found = [pod_request(self._pods[row], container, resource, options) for row in rows.tolist()]
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

_QUANTITIES: Final[dict[Any, Quantity]] = {}
_MOST_QUANTITIES: Final = 1 << 16


def _hook(type_: type, value: Any) -> Any:
    """Pods of a cluster ask for few different amounts."""
    if type_ is not Quantity or not isinstance(value, str):
        return quantity_hook(type_, value)
    found = _QUANTITIES.get(value)
    if found is None:
        if len(_QUANTITIES) >= _MOST_QUANTITIES:
            _QUANTITIES.clear()
        found = _QUANTITIES[value] = quantity_hook(type_, value)
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


class _Asking(ApiStruct):
    """What of a pod says how much it asks for."""

    spec: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))


@dataclass(frozen=True, slots=True)
class _Alike:
    """What stands for pods whose specs are written the same; their names are in texts alone, which nobody sees."""

    spec: _Spec
    metadata: ObjectMeta = field(default_factory=ObjectMeta)


_ASKING: Final = msgspec.json.Decoder(_Asking)
_SPEC: Final = msgspec.json.Decoder(_Spec, dec_hook=_hook)


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
                told = _told(pod_request(text, container, resource, options))
            found.append(told)
        amount[unknown], state[unknown] = [each for each, _ in found], [each for _, each in found]
        self.found[key] = amount, state
        return amount[shapes], state[shapes] == 2

    def _spec(self, text: bytes) -> _Spec:
        found = self._of_text.get(text)
        if found is None:
            written = bytes(_ASKING.decode(text).spec)
            found = self._specs.get(written)
            if found is None:
                found = self._specs[written] = _SPEC.decode(written)
            self._of_text[text] = found
        return found

    def _request(
        self, pods: PodSelection, shape: int, text: bytes, container: str, resource: str, options: HPAOptions
    ) -> tuple[int, int]:
        spec = self._spec(text)
        whole = spec.resources is not None and not container
        asking = pods.exemplar(shape) if whole else _Alike(spec)
        return _told(pod_request(asking, container, resource, options))


def _told(found: int | str) -> tuple[int, int]:
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

    def select(self, wanted: Wanted, before: SelectedPods | None = None) -> SelectedPods:
        population = self._all.population
        last = None if before is None else before.key
        if before is not None and isinstance(last, tuple) and last[0] is population and last[1] == wanted:
            if before.source is self._all.table:
                return before
            columns = _columns(self._all.at(before.rows))
            return SelectedPods(before.ends, before.rows, columns, last, before.requests, self._all.table)
        found, key = self._index.select_many(wanted), (population, list(wanted))
        return SelectedPods(found.ends, found.pods.rows, _columns(found.pods), key, source=self._all.table)

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


def _columns(pods: PodSelection) -> PodColumns:
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
