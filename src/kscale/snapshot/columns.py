"""Growing arrays, the columns of nodes, and states, phases and readiness of pods as the numbers that columns have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from kscale.objects.api.core import Node, Pod, Taint
from kscale.objects.pod_resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, to_integers
from kscale.objects.quantity import Quantity
from kscale.objects.taints import taint_key

__all__ = [
    "EXCLUSION_REASONS",
    "FINISHED",
    "FIXED_RESOURCES",
    "GATED",
    "PENDING",
    "PHASES",
    "PLACED",
    "READY",
    "REMOVED",
    "TERMINATING",
    "GrowingColumns",
    "LabelColumn",
    "NodeColumns",
    "distinct",
    "group_equal_rows",
    "median",
    "read_only",
    "starts_of_runs",
    "state_of",
]

READY: Final = ("", "True", "False", "Unknown")
"""Status of a pod's Ready condition by number; 0 = the pod has no such condition."""

PHASES: Final = ("", "Pending", "Running", "Failed", "Succeeded", "Unknown")
"""Phases by number. Any other text is 0."""

REMOVED, PLACED, PENDING, GATED, TERMINATING, FINISHED = -1, 0, 1, 2, 3, 4
"""States of a row of the table of pods; ``REMOVED``: it has no pod any more."""

EXCLUSION_REASONS: Final = {
    GATED: "waits for its scheduling gates",
    TERMINATING: "is being deleted",
    FINISHED: "has finished",
    PLACED: "runs on a node that is not in the input",
}
"""Reasons for messages: why a pod of the input is neither placed nor pending in the snapshot."""


def state_of(pod: Pod, *, finished: bool = False) -> int:
    """Return the pod's state: ``PLACED``, ``PENDING``, ``GATED``, ``TERMINATING`` or ``FINISHED``.

    A bound or nominated pod is placed, unless it is finished. ``finished`` treats finished pods as if they were still
    running.
    """
    if not finished and pod.status.phase in ("Succeeded", "Failed"):
        return FINISHED
    if pod.spec.node_name or pod.status.nominated_node_name:
        return PLACED
    if pod.metadata.deletion_timestamp is not None:
        return TERMINATING
    return GATED if pod.spec.scheduling_gates else PENDING


FIXED_RESOURCES = (CPU, MEMORY, EPHEMERAL_STORAGE)

_LARGEST: Final = 1 << 62


Number = TypeVar("Number", bound=np.integer[Any])
Column = TypeVar("Column", bound=NDArray[Any])


def read_only(column: Column) -> Column:
    """Return a read-only view of the column."""
    view = column.view()
    view.flags.writeable = False
    return view


def starts_of_runs(numbers: NDArray[Any]) -> NDArray[np.int64]:
    """Return the position at which each run of equal consecutive entries starts: int64[runs]."""
    is_start = np.ones(len(numbers), dtype=np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=is_start[1:])
    return is_start.nonzero()[0]


def distinct(numbers: NDArray[Number]) -> NDArray[Number]:
    """Return the distinct entries in ascending order. Unlike ``np.unique``, this does not import ``numpy.ma``."""
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def median(values: NDArray[np.float64]) -> float:
    """Return the median. Unlike ``np.median``, this does not import ``numpy.ma``."""
    ordered = np.sort(values)
    return float((ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2.0)


def group_equal_rows(*columns: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Group equal rows of integer columns whose values are at least -1.

    Returns
    -------
    first : int64[k]
        First row of each group, ascending.
    group : int64[n]
        Index of each row's group.
    """
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


class GrowingColumns:
    """Named one-dimensional arrays of one length, at first ``size`` zeros, with spare room.

    ``arrays[name]`` is a view of the entries, valid until the next growth.
    """

    __slots__ = ("_buffers", "_room", "arrays", "size")

    def __init__(self, dtypes: Mapping[str, Any], size: int = 0) -> None:
        self._room = max(size, 16)  # entries that every buffer has room for
        self._buffers = {name: np.zeros(self._room, dtype=dtype) for name, dtype in dtypes.items()}
        self.arrays: dict[str, NDArray[Any]] = {}
        self._resize(size)

    def __reduce__(self) -> tuple[Any, tuple[dict[str, NDArray[Any]]]]:
        """Return the pickled form, without the spare room."""
        return GrowingColumns.of, (self.arrays,)

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> GrowingColumns:
        """Wrap arrays of one length, taking ownership of them."""
        result = cls({})
        result._buffers = dict(arrays)
        result._room = max(map(len, arrays.values()), default=0)
        result._resize(result._room)
        return result

    def _resize(self, size: int) -> None:
        """Set the number of entries, for which the buffers must have room."""
        self.size = size
        for name, buffer in self._buffers.items():
            self.arrays[name] = buffer[:size]

    def extend_to(self, size: int) -> None:
        """Increase the number of entries to ``size``, if there are fewer; new entries are zero."""
        if size <= self.size:
            return
        if size > self._room:
            self.reserve(max(size, 2 * self._room, 16))
        self._resize(size)

    def reserve(self, room: int) -> None:
        """Allocate memory for ``room`` entries in total, unless there is enough. The number of entries is unchanged."""
        if room > self._room:
            self._room = room
            for name, array in self.arrays.items():
                self._buffers[name] = bigger = np.zeros(room, dtype=array.dtype)
                bigger[: self.size] = array
            self._resize(self.size)

    def truncate(self, size: int) -> None:
        """Keep only the first ``size`` entries."""
        for array in self.arrays.values():
            array[size:] = 0
        self._resize(size)

    def add(self, name: str, dtype: Any) -> NDArray[Any]:
        """Add a column of zeros, unless it exists, and return the column."""
        if name not in self.arrays:
            self._buffers[name] = np.zeros(self._room, dtype=dtype)
            self.arrays[name] = self._buffers[name][: self.size]
        return self.arrays[name]

    def view(self) -> GrowingColumns:
        """Return the same entries without spare room, sharing memory."""
        return GrowingColumns.of(self.arrays)

    def own(self, names: Iterable[str]) -> None:
        """Replace the named columns by copies, so that writing to them does not change views."""
        room = self.size + self.size // 16  # arrays that are copied on each change mostly grow as well
        names = [*names]
        self._room = room if len(names) == len(self.arrays) else min(self._room, room)
        for name in names:
            self._buffers[name] = copied = np.zeros(room, dtype=self.arrays[name].dtype)
            copied[: self.size] = self.arrays[name]
            self.arrays[name] = copied[: self.size]

    def copy(self) -> GrowingColumns:
        """Return an independent copy."""
        result = self.view()
        result.own(result.arrays)
        return result


class LabelColumn:
    """One label of all nodes. ``ids[n]`` numbers the value; -1 if the node lacks the label. Every value occurs."""

    __slots__ = ("ids", "index", "values")

    def __init__(self, values: Iterable[str | None]) -> None:
        self.index: dict[str, int] = {}
        self.values: list[str] = []
        self.ids: NDArray[np.int32] = np.array([*map(self.id_of, values)], dtype=np.int32)

    def id_of(self, value: str | None) -> int:
        """Return the number assigned to a value; -1 for None. A new value gets a new number.

        Call this only while the column is being built.
        """
        if value is None:
            return -1
        number = self.index.get(value)
        if number is None:
            number = self.index[value] = len(self.values)
            self.values.append(value)
        return number

    def with_changes(
        self, keep: NDArray[np.bool_] | None, rows: Sequence[int], values: Sequence[str | None]
    ) -> LabelColumn:
        """Return a column without removed nodes, and with ``values`` at the positions ``rows``.

        ``keep``: bool by node, False for removed nodes (None: no node is removed). ``rows``: positions after the
        removal; positions after the last node add nodes.
        """
        result = LabelColumn.__new__(LabelColumn)
        result.index, result.values = self.index, self.values
        result.ids = self.ids.copy() if keep is None else self.ids[keep]
        if rows:
            if any(value is not None and value not in self.index for value in values):
                result.index, result.values = dict(self.index), list(self.values)
            remaining, size = result.ids, max(len(result.ids), max(rows) + 1)
            result.ids = np.full(size, -1, dtype=np.int32)
            result.ids[: len(remaining)] = remaining
            result.ids[np.array(rows, dtype=np.int64)] = [result.id_of(value) for value in values]
        used = np.bincount(result.ids + 1, minlength=len(result.values) + 1)[1:] > 0
        if not used.all():
            number = np.append(used.cumsum() - 1, -1)
            result.ids = number[result.ids].astype(np.int32)
            result.values = [*compress(result.values, used.tolist())]
            result.index = dict(zip(result.values, range(len(result.values)), strict=True))
        return result


_Taints = tuple[Taint, ...]


class NodeColumns:
    """The fields of nodes that predicates read, as columns in list order. Immutable once a snapshot has them.

    ``allocatable[name]``: int64[N], milli-units of CPU, else units; ``slots``: int64[N], allocatable pods (0 if
    unknown); ``unschedulable``: uint8[N]; ``taint_ids``: int32[N] into ``taints`` (NoSchedule and NoExecute only).
    ``taint_index``: position in ``taints`` by :func:`~kscale.objects.taints.taint_key`.
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
        self.taint_index: dict[tuple[tuple[str, str, str], ...], int] = {}
        objects = list(nodes)
        if objects:
            self._grow(len(objects))
            self.objects = objects
            self.names = tuple(node.metadata.name for node in objects)
            self.index = {name: i for i, name in enumerate(self.names)}
            self._fill(range(len(objects)), objects)
            self._freeze()

    def _freeze(self) -> None:
        """Mark all columns as read-only."""
        self.unschedulable, self.slots = read_only(self.unschedulable), read_only(self.slots)
        self.taint_ids = read_only(self.taint_ids)
        self.allocatable = {name: read_only(column) for name, column in self.allocatable.items()}
        for label in self._labels.values():
            label.ids = read_only(label.ids)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._freeze()

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
        """Build columns from nodes (any sequence, also one that builds them on demand) and arrays for the same nodes.

        The arguments are the attributes of these names, and are not copied. ``taints``: the distinct lists of taints,
        which ``taint_ids`` refers to.
        """
        self = cls()
        self.objects = nodes  # type: ignore[assignment]  # declared as a list; any sequence works
        self.names = tuple(node.metadata.name for node in nodes)
        self.index = {name: i for i, name in enumerate(self.names)}
        self.unschedulable = np.fromiter((node.spec.unschedulable for node in nodes), np.uint8, len(nodes))
        self.allocatable = allocatable
        self.slots, self.taints, self.taint_ids = slots, taints, taint_ids
        self.taint_index = {taint_key(node_taints): i for i, node_taints in enumerate(taints)}
        self._freeze()
        return self

    def with_changes(self, removed: Collection[str], replaced: Iterable[Node], appended: Sequence[Node]) -> NodeColumns:
        """Return columns with nodes removed, replaced in place and appended.

        Columns of unchanged nodes are copied or shared, not computed again. ``self`` is not modified.
        """
        result = NodeColumns()
        keep: NDArray[np.bool_] | None = None
        if removed:
            keep = np.ones(len(self), dtype=bool)
            keep[[self.index[name] for name in removed]] = False
            remaining = keep.tolist()
            result.objects, result.names = [*compress(self.objects, remaining)], (*compress(self.names, remaining),)
            result.index = dict(zip(result.names, range(len(result.names)), strict=True))
        else:
            result.objects, result.names, result.index = list(self.objects), self.names, self.index
        if appended:
            result.names = (*result.names, *(node.metadata.name for node in appended))
            result.index = {
                **result.index,
                **{result.names[i]: i for i in range(len(result.objects), len(result.names))},
            }
            result.objects.extend(appended)
        part = slice(None) if keep is None else keep
        result.unschedulable, result.slots = self.unschedulable[part], self.slots[part]
        result.taint_ids = self.taint_ids[part]
        result.allocatable = {name: column[part] for name, column in self.allocatable.items()}
        result.taints, result.taint_index = list(self.taints), dict(self.taint_index)
        nodes = [*replaced, *appended]
        rows = [
            *(result.index[node.metadata.name] for node in replaced),
            *range(len(result) - len(appended), len(result)),
        ]
        if nodes:
            result._grow(len(result.objects))
            for row, node in zip(rows, nodes, strict=True):
                result.objects[row] = node
            for column in result.allocatable.values():
                column[rows] = 0
            result._fill(rows, nodes)
        result.allocatable = {
            name: column for name, column in result.allocatable.items() if name in FIXED_RESOURCES or column.any()
        }
        result._labels = {
            key: column.with_changes(keep, rows, [(node.metadata.labels or {}).get(key) for node in nodes])
            for key, column in self._labels.items()
        }
        result._freeze()
        return result

    def _grow(self, count: int) -> None:
        """Copy the columns into arrays with ``count`` entries; new entries are zero."""

        def longer(column: NDArray[Any]) -> NDArray[Any]:
            out = np.zeros(count, dtype=column.dtype)
            out[: len(column)] = column
            return out

        self.unschedulable, self.slots = longer(self.unschedulable), longer(self.slots)
        self.taint_ids = longer(self.taint_ids)
        self.allocatable = {name: longer(column) for name, column in self.allocatable.items()}

    def _fill(self, rows: Sequence[int], nodes: Sequence[Node]) -> None:
        """Fill rows with the fields of nodes. Quantities that several nodes share are converted once."""
        shared: dict[tuple[Any, ...], int] = {}
        kinds: list[Mapping[str, Quantity]] = []
        kind_of, taint_ids = [], []
        for node in nodes:
            amounts = node.status.allocatable or {}
            kind = shared.setdefault((*amounts, *map(id, amounts.values())), len(kinds))
            if kind == len(kinds):
                kinds.append(amounts)
            kind_of.append(kind)
            taints = tuple([taint for taint in node.spec.taints if taint.effect in ("NoSchedule", "NoExecute")])
            key = taint_key(taints)
            if key not in self.taint_index:
                self.taint_index[key] = len(self.taints)
                self.taints.append(taints)
            taint_ids.append(self.taint_index[key])
        where = np.array(rows, dtype=np.int64)
        self.unschedulable[where] = [node.spec.unschedulable for node in nodes]
        self.taint_ids[where] = taint_ids
        self.slots[where] = np.array([each[PODS].value() if PODS in each else 0 for each in kinds])[kind_of]
        integers = [to_integers(each) for each in kinds]
        for name in dict.fromkeys(name for each in integers for name in each):
            column = self.allocatable.get(name)
            if column is None:
                column = self.allocatable[name] = np.zeros(len(self.slots), np.int64)
            column[where] = np.array([each.get(name, 0) for each in integers], dtype=np.int64)[kind_of]

    def __len__(self) -> int:
        return len(self.objects)

    def label(self, key: str) -> LabelColumn:
        """Return the column of a label, built on first use."""
        column = self._labels.get(key)
        if column is None:
            column = LabelColumn([(node.metadata.labels or {}).get(key) for node in self.objects])
            column.ids = read_only(column.ids)
            self._labels[key] = column
        return column
