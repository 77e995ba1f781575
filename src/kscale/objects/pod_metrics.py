"""A PodMetricsList as columns: usage of pods and containers without an object per item.

Upstream: ``metrics.k8s.io``, as read by ``pkg/controller/podautoscaler/metrics/client.go``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, Final, Generic, NamedTuple, TypeVar, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _names, _projection
from kscale.errors import InputError, Problem
from kscale.objects.api.metrics import ContainerMetrics, MetricValue, PodMetrics, PodMetricsList
from kscale.objects.decode import from_json
from kscale.objects.quantity import DECIMAL_SI, Quantity, QuantityError
from kscale.objects.times import nanoseconds, parse_duration

__all__ = [
    "JoinedLists",
    "NumberedTexts",
    "PodUsage",
    "Run",
    "Samples",
    "Seams",
    "WholeUnits",
    "pieces_of",
    "runs_of",
    "seams_of",
]


_T = TypeVar("_T")


class JoinedLists(Sequence[_T], Generic[_T]):
    """All items of several lists, in order.

    ``parts`` are those lists, which are not modified any more; ``ends`` are the end positions of each.
    """

    __slots__ = ("ends", "parts")

    def __init__(self, parts: Sequence[Sequence[_T]]) -> None:
        self.parts = tuple(parts)
        self.ends = list(accumulate(map(len, self.parts)))

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __iter__(self) -> Iterator[_T]:
        return chain.from_iterable(self.parts)

    @overload
    def __getitem__(self, i: int) -> _T: ...
    @overload
    def __getitem__(self, i: slice) -> list[_T]: ...
    def __getitem__(self, i: int | slice) -> _T | list[_T]:
        if isinstance(i, slice):
            return list(self)[i]
        i = range(len(self))[i]
        number = bisect_right(self.ends, i)
        return self.parts[number][i - self.ends[number]]  # counted from its end


class NumberedTexts(msgspec.Struct, eq=False):
    """Distinct texts, numbered in order of first appearance in the growing list ``texts``."""

    texts: list[str] = []
    _numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """Return the number assigned to a text, adding the text if it is new."""
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return number

    def concatenate(self, parts: Sequence[tuple[NDArray[np.int32], Sequence[str]]]) -> NDArray[np.int32]:
        """Concatenate dictionary-encoded columns, renumbered to this object's texts. New texts are added.

        Each part is (numbers, texts that the numbers index). Numbers must not be negative. Returns int32[n].
        """
        places = np.array([self.number(text) for _, texts in parts for text in texts], np.int32)
        numbers = np.concatenate([np.empty(0, np.int32), *(numbers for numbers, _ in parts)])
        lengths = [len(texts) for _, texts in parts]
        begins = np.cumsum([0, *lengths])[:-1]
        if np.array_equal(places, np.arange(len(places)) - np.repeat(begins, lengths)):
            return numbers  # every part's texts have the same numbers here
        renumbered: NDArray[np.int32] = places[numbers + np.repeat(begins, [len(numbers) for numbers, _ in parts])]
        return renumbered


class Run(NamedTuple):
    """Parts from ``first`` to before ``end`` that were consecutive parts before, from index ``before`` on.

    ``before`` is -1 for new parts.
    """

    first: int
    end: int
    before: int


def runs_of(parts: Sequence[object], before: Sequence[object]) -> list[Run]:
    """Split ``parts`` into the longest possible runs, in order.

    The parts of a run are either the same objects as consecutive parts of ``before``, or all of them are not in
    ``before`` (``Run.before`` is -1).
    """
    where = dict(zip(map(id, before), range(len(before)), strict=True))
    position = np.fromiter((where.get(id(part), -1) for part in parts), np.int64, len(parts))
    one, following = position[:-1], position[1:]
    continues = np.where(one < 0, following < 0, following == one + 1)
    edges = [0, *(np.flatnonzero(~continues) + 1).tolist(), len(parts)]
    return [Run(first, end, int(position[first])) for first, end in pairwise(edges) if first < end]


Seams = NDArray[np.int64]
"""int64[3, n + 1]: where the rows, the containers and the label sets of n parts begin, and where those of the last
end."""


def seams_of(parts: Sequence[PodUsage]) -> Seams:
    """Return where each of n parts begins in their concatenation, and where the last one ends: int64[3, n + 1].

    The rows of the result are offsets of pods, containers and label sets.
    """
    sizes = [(len(part), len(part.container), len(part.label_sets)) for part in parts]
    return np.cumsum([(0, 0, 0), *sizes], axis=0, dtype=np.int64).T


def pieces_of(parts: Sequence[PodUsage], before: PodUsage) -> tuple[Sequence[PodUsage], Seams] | None:
    """Return fewer lists that together have the same rows as ``parts``, and the boundaries of ``parts`` in these rows.

    ``before`` is an earlier concatenation. Each run of parts that ``before`` also has is replaced by one slice of it.
    Returns None if more than half of the parts are new, if ``before`` has no boundaries (:func:`seams_of`) or stores
    whole units, or if a new part cannot be joined with slices of it.
    """
    seams = before.seams
    if seams is None or not before.whole_units.is_empty:
        return None
    runs = runs_of(parts, before.parts)
    fresh = [part for run in runs if run.before < 0 for part in parts[run.first : run.end]]
    if 2 * len(fresh) > len(parts) or not all(_can_join_slices(part, before) for part in fresh):
        return None
    pieces: list[PodUsage] = []
    sizes = []
    for run in runs:
        if run.before < 0:
            pieces += parts[run.first : run.end]
            sizes.append(np.diff(seams_of(parts[run.first : run.end])))
        else:
            pieces.append(_slice_rows(before, run, seams))
            sizes.append(np.diff(seams[:, run.before : run.before + run.end - run.first + 1]))
    return pieces, np.cumsum(np.concatenate([np.zeros((3, 1), np.int64), *sizes], axis=1), axis=1)


def _can_join_slices(part: PodUsage, before: PodUsage) -> bool:
    """Check whether a new part can be joined with slices of ``before``.

    It must have the same resources, and only namespaces and containers of ``before``. It must not be a concatenation
    itself or store whole units.
    """
    return (
        not part.parts
        and part.whole_units.is_empty
        and part.resources == before.resources
        and set(part.namespaces) <= set(before.namespaces)
        and set(part.containers) <= set(before.containers)
    )


def _slice_rows(usage: PodUsage, run: Run, seams: Seams) -> PodUsage:
    """Return the rows of consecutive parts of the concatenation ``usage``, without pod keys.

    ``run``: the first of these parts (``Run.before``), and their number. ``seams``: boundaries of all parts.
    """
    (row, item, label), (rows, items, labels) = seams[:, [run.before, run.before + run.end - run.first]].T.tolist()
    of_rows, of_items = slice(row, rows), slice(item, items)
    numbers, columns = usage.labels[of_rows], list(usage.columns())
    keys: Any = range(rows - row)  # only the length counts; the joined list has the keys
    return type(usage)(
        keys,
        usage.namespace[of_rows],
        usage.namespaces,
        np.where(numbers < 0, -1, numbers - np.int32(label)),
        usage.label_sets[label:labels],
        usage.time[of_rows],
        usage.window[of_rows],
        usage.ends[of_rows] - item,
        usage.container[of_items],
        usage.containers,
        usage.resources,
        [amount[of_items] for _, amount, _ in columns],
        [present[of_items] for _, _, present in columns],
    )


class WholeUnits:
    """Amounts whose whole units do not follow from their milli-units, by resource and row.

    ``Quantity.Value()`` of any other amount is its milli-units divided by 1000, rounded away from zero.
    """

    __slots__ = ("_odd",)

    def __init__(self, odd: Mapping[str, Mapping[int, int]] | None = None) -> None:
        self._odd = {resource: dict(rows) for resource, rows in (odd or {}).items()}

    def __reduce__(self) -> tuple[object, ...]:
        return WholeUnits, (self._odd,)

    def milli(self, resource: str, row: int, used: Quantity) -> int:
        """Return the milli-units of the amount ``used``.

        Stores its whole units for the resource and row if they do not follow from the milli-units.
        """
        milli, value = used.milli_value(), used.value()
        if value != (milli // 1000 if milli < 0 else -(-milli // 1000)):
            self._odd.setdefault(resource, {})[row] = value
        return milli

    @property
    def is_empty(self) -> bool:
        """Whether no amounts are stored."""
        return not self._odd

    def append(self, other: WholeUnits, at: int) -> None:
        """Add the amounts of ``other`` to this object, with ``at`` added to their rows."""
        for resource, rows in other._odd.items():
            self._odd.setdefault(resource, {}).update((at + row, value) for row, value in rows.items())

    def with_rows(self, other: WholeUnits, rows: Mapping[int, int]) -> WholeUnits:
        """Return a copy in which rows of ``other`` replace rows of this object.

        ``rows`` maps a row of ``other`` to the row that it replaces.
        """
        replaced_rows = set(rows.values())
        result = WholeUnits(
            {resource: {row: odd[row] for row in odd.keys() - replaced_rows} for resource, odd in self._odd.items()}
        )
        for resource, odd in other._odd.items():
            result._odd.setdefault(resource, {}).update((rows[row], value) for row, value in odd.items())
        return result

    def column(self, resource: str, milli: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the whole units of a column of milli-units: int64[n].

        They are rounded away from zero, except in rows whose exact amount has other whole units.
        """
        units = np.where(milli < 0, milli // 1000, -(-milli // 1000))
        for row, value in self._odd.get(resource, {}).items():
            units[row] = value
        return units


Samples = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""(whether it counts, milli-units, when it was measured, over which window; nanoseconds)."""

_ZERO_TIME: Final = -(2**63)
_LAST: Final = 2**63 - 1
_Labels = dict[str, str]
_Scalar = TypeVar("_Scalar", bound=np.generic)
_FIELDS: Final = {"time": "timestamp", "window": "window"}
_LABELS: Final = msgspec.json.Decoder(_Labels)


class PodUsage:
    """Resource usage of pods, one row per pod. Immutable.

    - ``keys``: ``namespace/name`` of each pod; ``namespaces``: the texts that ``namespace`` int32[n] indexes.
    - ``label_sets``: the distinct label sets that ``labels`` int32[n] indexes; -1 if the item has no labels.
    - ``time`` int64[n]: time of the measurement; ``window`` int64[n]: its duration. Both are nanoseconds; ``time`` is
      the lowest int64 without a time.
    - ``ends`` int64[n]: end of each pod's containers; ``container`` int32[k]: index in ``containers``.
    - Amounts by resource: :meth:`samples`, :meth:`columns`, :meth:`whole`; ``whole_units``: amounts whose whole units
      do not follow from their milli-units.
    - ``parts``: the lists that this one was joined from, in order, none of them joined itself; ``seams``: their
      boundaries, if known.
    """

    __slots__ = (
        "_amount", "_is_simple", "_names", "_present", "_table", "container", "containers", "ends", "keys",
        "label_sets", "labels", "namespace", "namespaces", "parts", "resources", "seams", "time", "whole_units",
        "window",
    )  # fmt: skip

    def __init__(
        self,
        keys: Sequence[str],
        namespace: NDArray[np.int32],
        namespaces: list[str],
        labels: NDArray[np.int32],
        label_sets: list[_Labels],
        time: NDArray[np.int64],
        window: NDArray[np.int64],
        ends: NDArray[np.int64],
        container: NDArray[np.int32],
        containers: list[str],
        resources: list[str],
        amount: list[NDArray[np.int64]],
        present: list[NDArray[np.uint8]],
        whole: WholeUnits | None = None,
    ) -> None:
        self.keys, self.namespace, self.namespaces = keys, namespace, namespaces
        self.labels, self.label_sets = labels, label_sets
        self.time, self.window = time, window
        self.ends, self.container, self.containers = ends, container, containers
        self.resources = resources
        self._amount, self._present, self.whole_units = amount, present, whole or WholeUnits()
        self._table: _names.NameTable | None = None
        self._names: Sequence[tuple[str, str, str]] | None = None
        self._is_simple: dict[str, bool] = {}  # lists with the same containers share it
        self.parts: Sequence[PodUsage] = ()
        self.seams: Seams | None = None

    @classmethod
    def from_json(cls, data: bytes | memoryview, source: str = "") -> PodUsage:
        """Read a PodMetricsList as ``kubectl get --raw`` prints it, with the native decoder.

        Raises :class:`~kscale.errors.InputError` with the field's path if the data cannot be read; ``source`` names the
        origin of the data.
        """
        return cls.read_items(data, source)[0]

    @classmethod
    def read_items(cls, data: bytes | memoryview, source: str = "") -> tuple[PodUsage, Sequence[str] | None]:
        """Read a PodMetricsList as :meth:`from_json` does, and the creation times of its items.

        The result is (usage, creation times as texts). The times are None if an item may have other fields than a
        PodMetrics with names, labels and a creation time. Raises InputError if the text is malformed.
        """
        try:
            columns = _projection.read_pod_metrics(data)
        except UnicodeDecodeError as error:
            raise InputError(Problem(f"not readable as JSON in UTF-8: {error}", source)) from None
        if columns is None:  # another layout, or malformed: the reader of objects reports the errors
            return cls.of(from_json(bytes(data), PodMetricsList).items), None
        names, namespace, labels, time, window, ends, container, amount, present, *texts, odd, created = columns
        namespaces, label_texts, containers, resources = texts
        whole_units = WholeUnits()
        for what, row, resource, text in odd:
            try:
                if what == "time":
                    time[row] = _parse_moment(text)
                elif what == "window":
                    window[row] = parse_duration(text)
                else:
                    amount[resource][row] = whole_units.milli(resources[resource], row, Quantity(text))
            except (ValueError, QuantityError) as error:
                item = row if what in ("time", "window") else int(np.searchsorted(ends, row, side="right"))
                field = _FIELDS.get(what) or f"containers[].usage.{resources[resource]}"
                raise InputError(Problem(f"{error}: {text!r}", source, f"items[{item}]", field)) from None
        prefix = [f"{each}/" for each in namespaces]
        keys = [prefix[number] + name for number, name in zip(namespace.tolist(), names, strict=True)]
        label_sets = [_LABELS.decode(text) for text in label_texts]
        usage = cls(
            keys, namespace, namespaces, labels, label_sets, time, window, ends, container, containers, resources,
            amount, present, whole_units,
        )  # fmt: skip
        return usage, created

    @classmethod
    def of(cls, items: Iterable[PodMetrics]) -> PodUsage:
        """Build columns from PodMetrics objects.

        Raises :class:`~kscale.errors.InputError` for an invalid time or duration.
        """
        keys: list[str] = []
        namespaces, containers, resources = NumberedTexts(), NumberedTexts(), NumberedTexts()
        label_numbers: dict[tuple[tuple[str, str], ...], int] = {}
        label_sets: list[_Labels] = []
        namespace, labels, time, window, ends = [], [], [], [], []
        container: list[int] = []
        amount: list[dict[int, int]] = []
        whole_units = WholeUnits()
        for row, item in enumerate(items):
            metadata = item.metadata
            keys.append(f"{metadata.namespace}/{metadata.name}")
            namespace.append(namespaces.number(metadata.namespace))
            if metadata.labels is None:
                labels.append(-1)
            else:
                key = tuple(sorted(metadata.labels.items()))
                number = label_numbers.setdefault(key, len(label_sets))
                if number == len(label_sets):
                    label_sets.append(metadata.labels)
                labels.append(number)
            try:
                time.append(_parse_moment(item.timestamp))
                window.append(parse_duration(item.window))
            except ValueError as error:
                raise InputError(Problem(str(error), "", f"items[{row}] ({keys[-1]})")) from None
            for each in item.containers or ():
                at = len(container)
                container.append(containers.number(each.name))
                amount.append(
                    {resources.number(name): whole_units.milli(name, at, used) for name, used in each.usage.items()}
                )
            ends.append(len(container))
        columns = [np.zeros(len(container), np.int64) for _ in resources.texts]
        present = [np.zeros(len(container), np.uint8) for _ in resources.texts]
        for i, used in enumerate(amount):
            for resource, value in used.items():
                columns[resource][i] = value
                present[resource][i] = 1
        return cls(
            keys,
            np.array(namespace, np.int32),
            namespaces.texts,
            np.array(labels, np.int32),
            label_sets,
            np.array(time, np.int64),
            np.array(window, np.int64),
            np.array(ends, np.int64),
            np.array(container, np.int32),
            containers.texts,
            resources.texts,
            columns,
            present,
            whole_units,
        )

    @classmethod
    def from_values(
        cls, metric: str, items: Sequence[MetricValue], labels: Mapping[str, Mapping[str, str]]
    ) -> PodUsage:
        """Build the columns from values of a custom pod metric; the metric's name becomes the resource.

        ``labels``: labels of each pod by ``namespace/name``, as metric values have none. Raises
        :class:`~kscale.errors.InputError` for an invalid timestamp.
        """
        namespaces, numbers = NumberedTexts(), np.full(len(items), -1, np.int32)
        label_sets: list[_Labels] = []
        keys, namespace, time = [], [], []
        for row, item in enumerate(items):
            described = item.described_object
            key = f"{described.namespace}/{described.name}"
            keys.append(key)
            namespace.append(namespaces.number(described.namespace))
            pod_labels = labels.get(key)
            if pod_labels is not None:
                numbers[row] = len(label_sets)
                label_sets.append(dict(pod_labels))
            try:
                time.append(_parse_moment(item.timestamp))
            except ValueError as error:
                raise InputError(Problem(str(error), "", f"{metric} of {keys[-1]}", "timestamp")) from None
        n = len(items)
        return cls(
            keys,
            np.array(namespace, np.int32),
            namespaces.texts,
            numbers,
            label_sets,
            np.array(time, np.int64),
            np.array([each.window_ns for each in items], np.int64),
            np.arange(1, n + 1, dtype=np.int64),
            np.zeros(n, np.int32),
            [""],
            [metric],
            [np.array([each.value.milli_value() for each in items], np.int64)],
            [np.ones(n, np.uint8)],
        )

    @classmethod
    def concatenate(cls, parts: Sequence[PodUsage], before: PodUsage | None = None) -> PodUsage:
        """Concatenate the rows of several lists, in order.

        A single list is returned as it is. ``before`` is an earlier result of this method. Its rows are reused, if
        possible, for parts that are the same objects as parts of ``before``. The returned rows are the same without it.
        """
        if len(parts) == 1:
            return parts[0]
        reused = None if before is None else pieces_of(parts, before)
        pieces, seams = reused or (parts, seams_of(parts))
        namespaces, containers, whole_units = NumberedTexts(), NumberedTexts(), WholeUnits()
        label_sets: list[_Labels] = []
        labelled, begins, at = [], [], 0
        for piece in pieces:
            labelled.append(len(label_sets))
            label_sets += piece.label_sets
            begins.append(at)
            whole_units.append(piece.whole_units, at)
            at += len(piece.container)
        pods = [len(piece) for piece in pieces]
        labels = _concatenate([piece.labels for piece in pieces], np.int32)
        without = np.flatnonzero(labels < 0)
        labels += np.repeat(np.array(labelled, np.int32), pods)
        labels[without] = -1
        resources = [*dict.fromkeys(name for piece in pieces for name in piece.resources)]
        columns = [[_get_amounts(piece, name) for piece in pieces] for name in resources]
        out = cls(
            JoinedLists([part.keys for part in parts]),
            namespaces.concatenate([(piece.namespace, piece.namespaces) for piece in pieces]),
            namespaces.texts,
            labels,
            label_sets,
            _concatenate([piece.time for piece in pieces], np.int64),
            _concatenate([piece.window for piece in pieces], np.int64),
            _concatenate([piece.ends for piece in pieces], np.int64) + np.repeat(np.array(begins, np.int64), pods),
            containers.concatenate([(piece.container, piece.containers) for piece in pieces]),
            containers.texts,
            resources,
            [_concatenate([amount for amount, _ in column], np.int64) for column in columns],
            [_concatenate([present for _, present in column], np.uint8) for column in columns],
            whole_units,
        )
        out.parts = tuple(chain.from_iterable(part.parts or (part,) for part in parts))
        out.seams = seams if len(out.parts) == len(parts) else None
        return out

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        return f"<PodUsage of {len(self):,} pods: {', '.join(self.resources) or 'nothing'}>"

    def __reduce__(self) -> tuple[object, ...]:
        names = (
            "keys", "namespace", "namespaces", "labels", "label_sets", "time", "window", "ends", "container",
            "containers", "resources", "_amount", "_present", "whole_units",
        )  # fmt: skip
        return PodUsage, tuple(getattr(self, name) for name in names)

    def rows(self, keys: Sequence[str]) -> NDArray[np.int64]:
        """Return the row of each ``namespace/name``, -1 if there is none; the last row of a duplicate."""
        if self._table is None:
            self._table = _names.NameTable(self.keys)
        return self._table.rows(keys)

    def container_names(self) -> Sequence[tuple[str, str, str]]:
        """Return (namespace, pod, container) of each container.

        The sequence is cached, and shared with copies that :meth:`later` and :meth:`with_changes` return afterwards. A
        concatenation returns a :class:`~kscale.objects.pod_metrics.JoinedLists` of the sequences of its parts.
        """
        if self._names is None:
            self._names = (
                JoinedLists([part.container_names() for part in self.parts]) if self.parts else self._build_keys()
            )
        return self._names

    def _build_keys(self) -> list[tuple[str, str, str]]:
        """Return (namespace, pod, container) of each container."""
        counts = np.diff(self.ends, prepend=0).tolist()
        pods = [key.partition("/") for key, count in zip(self.keys, counts, strict=True) for _ in range(count)]
        return [
            (namespace, pod, self.containers[number])
            for (namespace, _, pod), number in zip(pods, self.container.tolist(), strict=True)
        ]

    def samples(self, resource: str, rows: NDArray[np.int64], container: str = "") -> Samples:
        """Return the usage of the pods in the given rows.

        Parameters
        ----------
        resource : str
        rows : int64[n]
            Negative rows have no sample.
        container : str
            Name of a container. Default: the sum of all containers.

        Returns
        -------
        present : uint8[n]
            0 if the pod has no sample: a container lacks the resource, or there is no container of that name.
        value : int64[n]
            Milli-units.
        time, window : int64[n]
            Nanoseconds.
        """
        if resource not in self.resources or (container and container not in self.containers):
            present, value, time, window = np.zeros(len(rows), np.uint8), *np.zeros((3, len(rows)), np.int64)
            return present, value, time, window
        number = self.resources.index(resource)
        if not container and len(rows) and rows.min() >= 0 and self._has_single_amounts(number):
            present = np.ones(len(rows), np.uint8)
            return present, self._amount[number].take(rows), self.time.take(rows), self.window.take(rows)
        named = self.containers.index(container) if container else -1
        return _projection.sample_pod_metrics(
            self.ends, self.time, self.window, self.container, self._amount[number], self._present[number], named, rows
        )

    def _has_single_amounts(self, number: int) -> bool:
        """Return whether each pod has one container, with an amount of the resource ``number``."""
        resource, pods = self.resources[number], len(self.ends)
        is_simple = self._is_simple.get(resource)
        if is_simple is None:
            is_simple = self._is_simple[resource] = bool(
                len(self.container) == pods
                and np.array_equal(self.ends, np.arange(1, pods + 1))
                and self._present[number].all()
            )
        return is_simple

    def columns(self) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.uint8]]]:
        """Yield (resource, milli-units, whether the amount is present) for all containers."""
        return zip(self.resources, self._amount, self._present, strict=True)

    def whole(self, resource: str) -> NDArray[np.int64]:
        """Return ``Quantity.Value()`` of every container's amount.

        These are whole units, rounded away from zero; 0 without an amount.
        """
        if resource not in self.resources:
            return np.zeros(len(self.container), np.int64)
        return self.whole_units.column(resource, self._amount[self.resources.index(resource)])

    def item(self, row: int) -> PodMetrics:
        """Return the pod in a row as an object. Its amounts are exact to milli-units."""
        namespace, _, name = self.keys[row].partition("/")
        out = PodMetrics(timestamp=None, window=f"{int(self.window[row])}ns")
        out.metadata.name, out.metadata.namespace = name, namespace
        if self.labels[row] >= 0:
            out.metadata.labels = self.label_sets[self.labels[row]]
        time = int(self.time[row])
        out.timestamp = None if time == _ZERO_TIME else _format_moment(time)
        begin = int(self.ends[row - 1]) if row else 0
        out.containers = [
            ContainerMetrics(
                name=self.containers[self.container[i]],
                usage={
                    resource: Quantity.from_int(int(amount[i]), DECIMAL_SI, -3)
                    for resource, amount, present in self.columns()
                    if present[i]
                },
            )
            for i in range(begin, int(self.ends[row]))
        ]
        return out

    def has_same_pods(self, other: PodUsage) -> bool:
        """Check whether another list shares its pods and labels with this one, row by row.

        Compares identities only: False for a list that is equal but was built separately.
        """
        return self is other or (
            self.keys is other.keys and self.labels is other.labels and self.label_sets is other.label_sets
        )

    def later(self, time: int, amount: Sequence[NDArray[np.int64]]) -> PodUsage:
        """Return a copy with other amounts of the same containers, all measured at ``time`` (nanoseconds).

        ``amount``: milli-units of each container, a column for each resource.
        """
        out = PodUsage(
            self.keys, self.namespace, self.namespaces, self.labels, self.label_sets, np.full_like(self.time, time),
            self.window, self.ends, self.container, self.containers, self.resources, list(amount), self._present,
        )  # fmt: skip
        out._table, out._names, out.parts, out.seams = self._table, self._names, self.parts, self.seams
        out._is_simple = self._is_simple
        return out

    def with_changes(self, changes: PodUsage) -> PodUsage:
        """Return a copy in which the rows of ``changes`` replace those of the same pods.

        Raises KeyError for a pod that is not in this list, and ValueError if a pod's containers or resources differ
        (build a new list then).
        """
        rows = self.rows(changes.keys)
        if (rows < 0).any():
            raise KeyError(changes.keys[int(np.flatnonzero(rows < 0)[0])])
        begins, theirs = np.append(0, self.ends)[rows], np.append(0, changes.ends)[:-1]
        counts = np.diff(np.append(0, changes.ends))
        source = np.repeat(theirs - np.append(0, np.cumsum(counts))[:-1], counts) + np.arange(int(counts.sum()))
        target = source + np.repeat(begins - theirs, counts)
        same = np.array_equal(self.ends[rows] - begins, counts) and changes.resources == self.resources
        if not same or not all(
            self.containers[mine] == changes.containers[other]
            for mine, other in set(
                zip(self.container[target].tolist(), changes.container[source].tolist(), strict=True)
            )
        ):
            raise ValueError("other containers or resources than before")
        time, window = self.time.copy(), self.window.copy()
        time[rows], window[rows] = changes.time, changes.window
        amount, present = [each.copy() for each in self._amount], [each.copy() for each in self._present]
        for i, (_, values, there) in enumerate(changes.columns()):
            amount[i][target], present[i][target] = values[source], there[source]
        whole_units = self.whole_units.with_rows(
            changes.whole_units, dict(zip(source.tolist(), target.tolist(), strict=True))
        )
        out = PodUsage(
            self.keys, self.namespace, self.namespaces, self.labels, self.label_sets, time, window, self.ends,
            self.container, self.containers, self.resources, amount, present, whole_units,
        )  # fmt: skip
        out._table, out._names, out.parts, out.seams = self._table, self._names, self.parts, self.seams
        return out


def _concatenate(columns: Sequence[NDArray[_Scalar]], of: type[_Scalar]) -> NDArray[_Scalar]:
    """Concatenate columns; without any, return an empty array of the type ``of``."""
    return np.concatenate([np.empty(0, of), *columns])


def _get_amounts(usage: PodUsage, resource: str) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the amounts of a resource, and whether they are present, for all containers."""
    for name, amount, present in usage.columns():
        if name == resource:
            return amount, present
    return np.zeros(len(usage.container), np.int64), np.zeros(len(usage.container), np.uint8)


def _parse_moment(text: str | None) -> int:
    """Parse an RFC 3339 time into nanoseconds since 1970, clamped to int64; the lowest int64 without a time.

    Raises ValueError if the text is not a time.
    """
    if not text:
        return _ZERO_TIME
    return max(_ZERO_TIME, min(nanoseconds(text), _LAST))


def _format_moment(time: int) -> str:
    """Format nanoseconds since 1970 as RFC 3339, with nine decimals unless the seconds are whole."""
    total_seconds, rest = divmod(time, 10**9)
    text = str(np.datetime64(total_seconds, "s"))
    return f"{text}.{rest:09d}Z" if rest else f"{text}Z"
