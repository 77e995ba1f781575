"""Arrays that grow, and the columns of nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscale.objects.core import Node, Taint
from kscale.objects.requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, to_integers

__all__ = ["FIXED_RESOURCES", "Growing", "LabelColumn", "NodeColumns"]

FIXED_RESOURCES = (CPU, MEMORY, EPHEMERAL_STORAGE)


class Growing:
    """A one-dimensional array with room at the end."""

    __slots__ = ("_data", "size")

    def __init__(self, dtype: Any) -> None:
        self._data = np.zeros(16, dtype=dtype)
        self.size = 0

    def extend_to(self, size: int) -> None:
        """Make room for ``size`` entries; new ones are zero."""
        if size > len(self._data):
            bigger = np.zeros(max(size, 2 * len(self._data)), dtype=self._data.dtype)
            bigger[: self.size] = self._data[: self.size]
            self._data = bigger
        self.size = max(self.size, size)

    def append(self, value: Any) -> None:
        """One more entry."""
        size = self.size
        if size == len(self._data):
            self.extend_to(size + 1)
        self._data[size] = value
        self.size = size + 1

    @property
    def array(self) -> NDArray[Any]:
        """The entries (a view: valid until the next growth)."""
        return self._data[: self.size]


class LabelColumn:
    """One label of all nodes: ``ids[n]`` numbers the value, -1 = the node lacks the label."""

    __slots__ = ("ids", "index", "values")

    def __init__(self, values: Iterable[str | None]) -> None:
        self.index: dict[str, int] = {}
        self.values: list[str] = []
        self.ids: NDArray[np.int32] = np.fromiter((self.id_of(value) for value in values), dtype=np.int32)

    def id_of(self, value: str | None) -> int:
        """The number of a value; a new value gets the next one."""
        if value is None:
            return -1
        found = self.index.get(value)
        if found is None:
            found = self.index[value] = len(self.values)
            self.values.append(value)
        return found


class NodeColumns:
    """What predicates read of nodes, as columns in list order. Immutable once a snapshot has it.

    ``allocatable[name]``: int64[N], milli-units of cpu, else units; ``slots``: int64[N], allocatable pods (0 if not
    said); ``unschedulable``: uint8[N]; ``taint_ids``: int32[N] into ``taints`` (NoSchedule and NoExecute only).
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.objects: list[Node] = list(nodes)
        self.names: list[str] = [node.metadata.name for node in self.objects]
        self.index: dict[str, int] = {name: i for i, name in enumerate(self.names)}
        count = len(self.objects)
        self.unschedulable: NDArray[np.uint8] = np.fromiter(
            (node.spec.unschedulable for node in self.objects), dtype=np.uint8, count=count
        )
        self.taints: list[tuple[Taint, ...]] = []
        taint_index: dict[Any, int] = {}
        self.taint_ids = np.zeros(count, dtype=np.int32)
        self.slots = np.zeros(count, dtype=np.int64)
        self.allocatable: dict[str, NDArray[np.int64]] = {name: np.zeros(count, np.int64) for name in FIXED_RESOURCES}
        known: dict[Any, tuple[dict[str, int], int]] = {}
        for n, node in enumerate(self.objects):
            taints = tuple(taint for taint in node.spec.taints if taint.effect in ("NoSchedule", "NoExecute"))
            taint_key = tuple((taint.key, taint.value, taint.effect) for taint in taints)
            if taint_key not in taint_index:
                taint_index[taint_key] = len(self.taints)
                self.taints.append(taints)
            self.taint_ids[n] = taint_index[taint_key]
            amounts = node.status.allocatable or {}
            key = tuple((name, str(quantity)) for name, quantity in amounts.items())
            if key not in known:
                pods = amounts[PODS].value() if PODS in amounts else 0
                known[key] = to_integers(amounts), pods
            integers, self.slots[n] = known[key]
            for name, amount in integers.items():
                column = self.allocatable.get(name)
                if column is None:
                    column = self.allocatable[name] = np.zeros(count, np.int64)
                column[n] = amount
        self._labels: dict[str, LabelColumn] = {}

    def __len__(self) -> int:
        return len(self.objects)

    def label(self, key: str) -> LabelColumn:
        """The column of a label, made when first asked for."""
        column = self._labels.get(key)
        if column is None:
            column = LabelColumn((node.metadata.labels or {}).get(key) for node in self.objects)
            self._labels[key] = column
        return column
