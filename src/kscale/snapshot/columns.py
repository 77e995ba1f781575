"""Arrays that grow, and the columns of nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from kscale.objects.api.core import Node, Taint
from kscale.objects.pod_resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, to_integers

__all__ = ["FIXED_RESOURCES", "Growing", "LabelColumn", "NodeColumns", "alike", "distinct", "median", "read_only"]

FIXED_RESOURCES = (CPU, MEMORY, EPHEMERAL_STORAGE)

_LARGEST: Final = 1 << 62


Number = TypeVar("Number", bound=np.integer[Any])
Column = TypeVar("Column", bound=NDArray[Any])


def read_only(column: Column) -> Column:
    """The same entries, which cannot be written to through what is returned."""
    view = column.view()
    view.flags.writeable = False
    return view


def distinct(numbers: NDArray[Number]) -> NDArray[Number]:
    """The different entries, ascending, as ``np.unique`` has them; that one imports ``numpy.ma``."""
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def median(values: NDArray[np.float64]) -> float:
    """The middle of some numbers, of two the mean, as ``np.median`` has it; that one imports ``numpy.ma``."""
    ordered = np.sort(values)
    return float((ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2.0)


def alike(*columns: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of columns of integers from -1 on: (the first of each that are alike, in order; int64[n]: which)."""
    key, size = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        width = int(column.max(initial=-1)) + 2
        if size * width > _LARGEST:
            values, key = np.unique(key, return_inverse=True)
            key, size = key.reshape(-1), len(values)
        key = key * width + (column.astype(np.int64) + 1)
        size *= width
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse.reshape(-1)]


class Growing:
    """A one-dimensional array with room at the end. ``array``: the entries (a view: valid until the next growth)."""

    __slots__ = ("_data", "array", "size")

    def __init__(self, dtype: Any) -> None:
        self._data = np.zeros(16, dtype=dtype)
        self.size = 0
        self.array: NDArray[Any] = self._data[:0]

    def extend_to(self, size: int) -> None:
        """Make room for ``size`` entries; new ones are zero."""
        if size <= self.size:
            return
        if size > len(self._data):
            bigger = np.zeros(max(size, 2 * len(self._data), 16), dtype=self._data.dtype)
            bigger[: self.size] = self.array
            self._data = bigger
        self._resize(size)

    def __reduce__(self) -> tuple[Any, tuple[NDArray[Any]]]:
        """The entries without the room at the end."""
        return Growing.of, (self.array,)

    def _resize(self, size: int) -> None:
        self.size = size
        self.array = self._data[:size]

    def append(self, value: Any) -> None:
        """One more entry."""
        self.extend_to(self.size + 1)
        self._data[self.size - 1] = value

    def truncate(self, size: int) -> None:
        """Only the first entries are left."""
        self._data[size : self.size] = 0
        self._resize(size)

    @classmethod
    def of(cls, array: NDArray[Any]) -> Growing:
        """Around an array, which it owns from now on."""
        made = cls(array.dtype)
        made.adopt(array)
        return made

    def adopt(self, array: NDArray[Any]) -> None:
        """Take an array's memory as the entries."""
        self._data = array
        self._resize(len(array))

    def view(self) -> Growing:
        """The same entries without the room at the end."""
        return Growing.of(self.array)

    def copy(self, rows: NDArray[np.int64] | None = None) -> Growing:
        """The entries, or some of them, in memory of their own."""
        if rows is not None:
            return Growing.of(self.array[rows])
        made = Growing(self.array.dtype)
        made.extend_to(self.size + self.size // 16)  # what is copied whenever it changes mostly grows, too
        made._resize(self.size)
        made.array[:] = self.array
        return made


class LabelColumn:
    """One label of all nodes: ``ids[n]`` numbers the value, -1 = the node lacks the label. Every value has a node."""

    __slots__ = ("ids", "index", "values")

    def __init__(self, values: Iterable[str | None]) -> None:
        self.index: dict[str, int] = {}
        self.values: list[str] = []
        self.ids: NDArray[np.int32] = np.fromiter((self.id_of(value) for value in values), dtype=np.int32)

    def id_of(self, value: str | None) -> int:
        """The number of a value; a new one gets the next (only while the column is made)."""
        if value is None:
            return -1
        found = self.index.get(value)
        if found is None:
            found = self.index[value] = len(self.values)
            self.values.append(value)
        return found

    def changed(self, keep: NDArray[np.bool_] | None, rows: Sequence[int], values: Sequence[str | None]) -> LabelColumn:
        """Another column: some nodes left out, then other values at ``rows`` (new rows at the end)."""
        made = LabelColumn.__new__(LabelColumn)
        made.index, made.values = self.index, self.values
        if any(value is not None and value not in self.index for value in values):
            made.index, made.values = dict(self.index), list(self.values)
        kept = self.ids if keep is None else self.ids[keep]
        made.ids = np.full(max([len(kept), *(row + 1 for row in rows)]), -1, dtype=np.int32)
        made.ids[: len(kept)] = kept
        made.ids[np.array(rows, dtype=np.int64)] = [made.id_of(value) for value in values]
        used = np.bincount(made.ids + 1, minlength=len(made.values) + 1)[1:] > 0
        if not used.all():
            number = np.append(np.cumsum(used) - 1, -1)
            made.ids = number[made.ids].astype(np.int32)
            made.values = [value for value, is_used in zip(made.values, used.tolist(), strict=True) if is_used]
            made.index = {value: i for i, value in enumerate(made.values)}
        return made


_Taints = tuple[Taint, ...]


class NodeColumns:
    """What predicates read of nodes, as columns in list order. Immutable once a snapshot has it.

    ``allocatable[name]``: int64[N], milli-units of cpu, else units; ``slots``: int64[N], allocatable pods (0 if not
    said); ``unschedulable``: uint8[N]; ``taint_ids``: int32[N] into ``taints`` (NoSchedule and NoExecute only).
    """

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.objects: list[Node] = []
        self.names: tuple[str, ...] = ()
        self.index: dict[str, int] = {}
        self.unschedulable: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
        self.taints: list[_Taints] = []
        self.taint_ids: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self.slots: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.allocatable: dict[str, NDArray[np.int64]] = {name: np.zeros(0, np.int64) for name in FIXED_RESOURCES}
        self._labels: dict[str, LabelColumn] = {}
        self._taint_index: dict[Any, int] = {}
        objects = list(nodes)
        if objects:
            self._grow(len(objects))
            self.objects = objects
            self.names = tuple(node.metadata.name for node in objects)
            self.index = {name: i for i, name in enumerate(self.names)}
            for n, node in enumerate(objects):
                self._set(n, node)
            self._close()

    def _close(self) -> None:
        """From here on nothing is written to."""
        self.unschedulable, self.slots = read_only(self.unschedulable), read_only(self.slots)
        self.taint_ids = read_only(self.taint_ids)
        self.allocatable = {name: read_only(column) for name, column in self.allocatable.items()}
        for label in self._labels.values():
            label.ids = read_only(label.ids)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._close()

    @classmethod
    def of(
        cls,
        nodes: Sequence[Node],
        *,
        allocatable: dict[str, NDArray[np.int64]],
        slots: NDArray[np.int64],
        taints: list[_Taints],
        taint_ids: NDArray[np.int32],
    ) -> NodeColumns:
        """From columns and nodes (possibly made on demand) that say the same."""
        self = cls()
        self.objects = nodes  # type: ignore[assignment]  # any sequence
        self.names = tuple(node.metadata.name for node in nodes)
        self.index = {name: i for i, name in enumerate(self.names)}
        self.unschedulable = np.fromiter((node.spec.unschedulable for node in nodes), np.uint8, len(nodes))
        self.allocatable = allocatable
        self.slots, self.taints, self.taint_ids = slots, taints, taint_ids
        self._taint_index = {_taint_key(found): i for i, found in enumerate(taints)}
        self._close()
        return self

    def changed(self, removed: Collection[str], replaced: Iterable[Node], appended: Sequence[Node]) -> NodeColumns:
        """Other columns: without some nodes, with others in their place, and more at the end. What is not touched is
        copied or shared, not worked out again."""
        made = NodeColumns()
        keep: NDArray[np.bool_] | None = None
        if removed:
            keep = np.ones(len(self), dtype=bool)
            keep[[self.index[name] for name in removed]] = False
            kept = np.flatnonzero(keep).tolist()
            made.objects = [self.objects[i] for i in kept]
            made.names = tuple([self.names[i] for i in kept])
            made.index = {name: i for i, name in enumerate(made.names)}
        else:
            made.objects, made.names, made.index = list(self.objects), self.names, self.index
        if appended:
            made.names = (*made.names, *(node.metadata.name for node in appended))
            made.index = {**made.index, **{made.names[i]: i for i in range(len(made.objects), len(made.names))}}
            made.objects.extend(appended)
        part = slice(None) if keep is None else keep
        made.unschedulable, made.slots = self.unschedulable[part], self.slots[part]
        made.taint_ids = self.taint_ids[part]
        made.allocatable = {name: column[part] for name, column in self.allocatable.items()}
        made.taints, made._taint_index = list(self.taints), dict(self._taint_index)
        made._grow(len(made.objects))
        rows = [*(made.index[node.metadata.name] for node in replaced), *range(len(made) - len(appended), len(made))]
        nodes = [*replaced, *appended]
        for row, node in zip(rows, nodes, strict=True):
            made.objects[row] = node
            for column in made.allocatable.values():
                column[row] = 0
            made._set(row, node)
        made.allocatable = {
            name: column for name, column in made.allocatable.items() if name in FIXED_RESOURCES or column.any()
        }
        made._labels = {
            key: column.changed(keep, rows, [(node.metadata.labels or {}).get(key) for node in nodes])
            for key, column in self._labels.items()
        }
        made._close()
        return made

    def _grow(self, count: int) -> None:
        """Columns of their own, with room for so many nodes."""

        def longer(column: NDArray[Any]) -> NDArray[Any]:
            out = np.zeros(count, dtype=column.dtype)
            out[: len(column)] = column
            return out

        self.unschedulable, self.slots = longer(self.unschedulable), longer(self.slots)
        self.taint_ids = longer(self.taint_ids)
        self.allocatable = {name: longer(column) for name, column in self.allocatable.items()}

    def _set(self, n: int, node: Node) -> None:
        self.unschedulable[n] = node.spec.unschedulable
        taints = tuple(taint for taint in node.spec.taints if taint.effect in ("NoSchedule", "NoExecute"))
        taint_key = _taint_key(taints)
        if taint_key not in self._taint_index:
            self._taint_index[taint_key] = len(self.taints)
            self.taints.append(taints)
        self.taint_ids[n] = self._taint_index[taint_key]
        amounts = node.status.allocatable or {}
        self.slots[n] = amounts[PODS].value() if PODS in amounts else 0
        integers = to_integers(amounts)
        for name, amount in integers.items():
            column = self.allocatable.get(name)
            if column is None:
                column = self.allocatable[name] = np.zeros(len(self.slots), np.int64)
            column[n] = amount

    def __len__(self) -> int:
        return len(self.objects)

    def label(self, key: str) -> LabelColumn:
        """The column of a label, made when first asked for."""
        column = self._labels.get(key)
        if column is None:
            column = LabelColumn((node.metadata.labels or {}).get(key) for node in self.objects)
            column.ids = read_only(column.ids)
            self._labels[key] = column
        return column


def _taint_key(taints: _Taints) -> tuple[tuple[str, str, str], ...]:
    return tuple((taint.key, taint.value, taint.effect) for taint in taints)
