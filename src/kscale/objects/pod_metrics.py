"""A PodMetricsList as columns: usage of pods and their containers, without an object for each.

Upstream: ``metrics.k8s.io`` and what ``pkg/controller/podautoscaler/metrics/client.go`` reads of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _names, _pod_metrics
from kscale.errors import InputError, Problem
from kscale.objects.decode import from_json
from kscale.objects.durations import parse_duration
from kscale.objects.metrics import ContainerMetrics, PodMetrics, PodMetricsList
from kscale.objects.quantity import DECIMAL_SI, Quantity, QuantityError
from kscale.objects.times import nanoseconds

__all__ = ["PodUsage"]

_ZERO_TIME: Final = -(2**63)
_LAST: Final = 2**63 - 1
_Labels = dict[str, str]
_LABELS: Final = msgspec.json.Decoder(_Labels)


class PodUsage:
    """Usage of pods, one row a pod; immutable.

    - ``keys``: ``namespace/name`` of each; ``namespaces``: the texts behind ``namespace`` int32[n];
    - ``label_sets``: the different labels that items carry, by the numbers in ``labels`` int32[n]; -1: none are told;
    - ``time`` int64[n]: when it was measured, ``window`` int64[n]: over which time; nanoseconds, the lowest int64 where
      there is no time;
    - ``ends`` int64[n]: behind the last container of each; ``container`` int32[k]: names in ``containers``;
    - amounts by resource: :meth:`amounts`.
    """

    __slots__ = (
        "_amount",
        "_present",
        "_table",
        "container",
        "containers",
        "ends",
        "keys",
        "label_sets",
        "labels",
        "namespace",
        "namespaces",
        "resources",
        "time",
        "window",
    )

    def __init__(
        self,
        keys: list[str],
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
    ) -> None:
        self.keys, self.namespace, self.namespaces = keys, namespace, namespaces
        self.labels, self.label_sets = labels, label_sets
        self.time, self.window = time, window
        self.ends, self.container, self.containers = ends, container, containers
        self.resources = resources
        self._amount, self._present = amount, present
        self._table: _names.NameTable | None = None

    @classmethod
    def from_json(cls, data: bytes | memoryview, source: str = "") -> PodUsage:
        """Of a PodMetricsList as ``kubectl get --raw`` prints it, read natively.

        Raises :class:`~kscale.errors.InputError` with the field's path for what cannot be read; ``source`` names it.
        """
        try:
            found = _pod_metrics.read(data)
        except UnicodeDecodeError as error:
            raise InputError(Problem(f"not readable as JSON in UTF-8: {error}", source)) from None
        if found is None:  # written in another way, or damaged: said by the reader of objects
            return cls.of(from_json(bytes(data), PodMetricsList).items)
        names, namespace, labels, time, window, ends, container, amount, present, *texts, odd = found
        namespaces, label_texts, containers, resources = texts
        for what, row, resource, text in odd:
            try:
                if what == "time":
                    time[row] = _moment(text)
                elif what == "window":
                    window[row] = parse_duration(text)
                else:
                    amount[resource][row] = Quantity(text).milli_value()
            except (ValueError, QuantityError) as error:
                raise InputError(Problem(str(error), source, f"items[{row}]", what)) from None
        prefix = [f"{each}/" for each in namespaces]
        keys = [prefix[number] + name for number, name in zip(namespace.tolist(), names, strict=True)]
        label_sets = [_LABELS.decode(text) for text in label_texts]
        return cls(
            keys, namespace, namespaces, labels, label_sets, time, window, ends, container, containers, resources,
            amount, present,
        )  # fmt: skip

    @classmethod
    def of(cls, items: Iterable[PodMetrics]) -> PodUsage:
        """Of objects. Raises :class:`~kscale.errors.InputError` for what is no time or no duration."""
        keys: list[str] = []
        namespaces, containers, resources = _Numbers(), _Numbers(), _Numbers()
        label_numbers: dict[tuple[tuple[str, str], ...], int] = {}
        label_sets: list[_Labels] = []
        namespace, labels, time, window, ends, container = [], [], [], [], [], []
        amount: list[dict[int, int]] = []
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
                time.append(_moment(item.timestamp))
                window.append(parse_duration(item.window))
            except ValueError as error:
                raise InputError(Problem(str(error), "", f"items[{row}] ({keys[-1]})")) from None
            for each in item.containers or ():
                container.append(containers.number(each.name))
                amount.append({resources.number(name): used.milli_value() for name, used in each.usage.items()})
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
        )

    @classmethod
    def joined(cls, parts: Sequence[PodUsage]) -> PodUsage:
        """All rows of several, in order."""
        if len(parts) == 1:
            return parts[0]
        namespaces, containers, resources = _Numbers(), _Numbers(), _Numbers()
        for part in parts:
            for name in part.resources:
                resources.number(name)
        total = sum(len(part.container) for part in parts)
        amount = [np.zeros(total, np.int64) for _ in resources.texts]
        present = [np.zeros(total, np.uint8) for _ in resources.texts]
        keys: list[str] = []
        label_sets: list[_Labels] = []
        columns: dict[str, list[NDArray[np.int32] | NDArray[np.int64]]] = {name: [] for name in _JOINED}
        at = 0
        for part in parts:
            keys += part.keys
            columns["namespace"].append(_renumbered(part.namespace, part.namespaces, namespaces))
            columns["container"].append(_renumbered(part.container, part.containers, containers))
            columns["labels"].append(np.where(part.labels < 0, -1, part.labels + len(label_sets)).astype(np.int32))
            label_sets += part.label_sets
            columns["time"].append(part.time)
            columns["window"].append(part.window)
            columns["ends"].append(part.ends + at)
            end = at + len(part.container)
            for name, values, there in zip(part.resources, part._amount, part._present, strict=True):
                number = resources.number(name)
                amount[number][at:end], present[number][at:end] = values, there
            at = end
        flat = {
            name: np.concatenate(found) if found else np.empty(0, _JOINED[name]) for name, found in columns.items()
        }
        return cls(
            keys, flat["namespace"], namespaces.texts, flat["labels"], label_sets, flat["time"], flat["window"],
            flat["ends"], flat["container"], containers.texts, resources.texts, amount, present,
        )  # type: ignore[arg-type]  # fmt: skip  # of the types in _JOINED

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        return f"<PodUsage of {len(self):,} pods: {', '.join(self.resources) or 'nothing'}>"

    def __reduce__(self) -> tuple[object, ...]:
        names = (
            "keys", "namespace", "namespaces", "labels", "label_sets", "time", "window", "ends", "container",
            "containers", "resources", "_amount", "_present",
        )  # fmt: skip
        return PodUsage, tuple(getattr(self, name) for name in names)

    def rows(self, keys: Sequence[str]) -> NDArray[np.int64]:
        """The row of each ``namespace/name``, -1 where there is none; of one that comes twice, the last."""
        if self._table is None:
            self._table = _names.NameTable(self.keys)
        return self._table.rows(keys)

    def amounts(self, resource: str, container: str = "") -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """(milli-units, whether it counts) of every pod: of one container, or of all.

        A pod whose containers do not all have the resource, or which lacks the named one, does not count.
        """
        n = len(self)
        if resource not in self.resources or (container and container not in self.containers):
            return np.zeros(n, np.int64), np.zeros(n, np.uint8)
        number = self.resources.index(resource)
        amount, present = self._amount[number], self._present[number]
        if container:
            rows = np.flatnonzero(self.container == self.containers.index(container))
            pods = np.searchsorted(self.ends, rows, side="right")
            pods, first = np.unique(pods, return_index=True)  # of a name that comes twice the first counts
            value, counts = np.zeros(n, np.int64), np.zeros(n, np.uint8)
            value[pods], counts[pods] = amount[rows[first]], present[rows[first]]
            return value, counts
        begins = np.append(0, self.ends)
        sums = np.append(0, np.cumsum(amount))[begins]
        there = np.append(0, np.cumsum(present, dtype=np.int64))[begins]
        count = np.diff(begins)
        return np.diff(sums), ((np.diff(there) == count) & (count > 0)).astype(np.uint8)

    def item(self, row: int) -> PodMetrics:
        """One row as an object."""
        namespace, _, name = self.keys[row].partition("/")
        out = PodMetrics(timestamp=None, window=f"{int(self.window[row])}ns")
        out.metadata.name, out.metadata.namespace = name, namespace
        if self.labels[row] >= 0:
            out.metadata.labels = self.label_sets[self.labels[row]]
        time = int(self.time[row])
        out.timestamp = None if time == _ZERO_TIME else _text(time)
        begin = int(self.ends[row - 1]) if row else 0
        out.containers = [
            ContainerMetrics(
                name=self.containers[self.container[i]],
                usage={
                    resource: Quantity.from_int(int(amount[i]), DECIMAL_SI, -3)
                    for resource, amount, present in zip(self.resources, self._amount, self._present, strict=True)
                    if present[i]
                },
            )
            for i in range(begin, int(self.ends[row]))
        ]
        return out

    def with_changes(self, changes: PodUsage) -> PodUsage:
        """With the rows of ``changes`` in place of those of the same pods; raises KeyError for a pod that is not here,
        and ValueError for one whose containers or labels are others (put a new list together then)."""
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
            for mine, other in set(zip(self.container[target].tolist(), changes.container[source].tolist(), strict=True))
        ):
            raise ValueError("other containers or resources than before")
        time, window = self.time.copy(), self.window.copy()
        time[rows], window[rows] = changes.time, changes.window
        amount, present = [each.copy() for each in self._amount], [each.copy() for each in self._present]
        for i in range(len(self.resources)):
            amount[i][target], present[i][target] = changes._amount[i][source], changes._present[i][source]
        out = PodUsage(
            self.keys, self.namespace, self.namespaces, self.labels, self.label_sets, time, window, self.ends,
            self.container, self.containers, self.resources, amount, present,
        )  # fmt: skip
        out._table = self._table
        return out


_JOINED: Final = {
    "namespace": np.int32,
    "labels": np.int32,
    "time": np.int64,
    "window": np.int64,
    "ends": np.int64,
    "container": np.int32,
}


class _Numbers:
    """Texts by number, in order of first appearance."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return found


def _renumbered(numbers: NDArray[np.int32], texts: Sequence[str], into: _Numbers) -> NDArray[np.int32]:
    return np.array([into.number(text) for text in texts], np.int32)[numbers] if len(texts) else numbers


def _moment(text: str | None) -> int:
    if not text:
        return _ZERO_TIME
    return max(_ZERO_TIME, min(nanoseconds(text), _LAST))


def _text(time: int) -> str:
    whole, rest = divmod(time, 10**9)
    text = str(np.datetime64(whole, "s"))
    return f"{text}.{rest:09d}Z" if rest else f"{text}Z"
