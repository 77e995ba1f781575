"""Columns that the native kernels read and write (targets, metric rows and conditions), and states between batches.

Pods are rows in groups, one group per (namespace, selector). Samples are in the order of their group's pods, so that
names are looked up again only if pods change.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from kscale._native import _hpa, _names
from kscale.hpa.controller.behavior import StateColumns
from kscale.hpa.controller.replica_calculator import PodColumns, SampleColumns
from kscale.hpa.controller.state import HPAState
from kscale.hpa.options import HPAOptions

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "CONDITION_REASONS",
    "CONDITION_TYPES",
    "ConditionColumns",
    "KernelState",
    "LazyStates",
    "MetricRows",
    "StateStore",
    "TargetColumns",
    "UnchangedRows",
]


_T = TypeVar("_T")
_Columns = TypeVar("_Columns", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class UnchangedRows:
    """Rows that are unchanged since the last batch.

    ``source`` int64[n]: the old row of each row, -1 for a new one. ``fresh`` int64: the new rows, ascending.
    ``in_place``: every unchanged row is at its old position, and the number of rows is the same.
    """

    source: NDArray[np.int64]
    fresh: NDArray[np.int64]
    in_place: bool

    @classmethod
    def compare(cls, objects: list[Any], before: list[Any]) -> UnchangedRows:
        """Find which ``objects`` were also in the last batch (``before``), by identity, not by value.

        If both have the same length and at least half of the objects are in place, moved objects count as new.
        """
        n = len(objects)
        if n == len(before):
            fresh = _names.other_objects(objects, before)
            if 2 * len(fresh) <= n:
                source = np.arange(n)
                source[fresh] = -1
                return cls(source, fresh, True)
        rows = {id(each): row for row, each in enumerate(before)}
        source = np.fromiter((rows.get(id(each), -1) for each in objects), np.int64, n)
        fresh = np.flatnonzero(source < 0)
        in_place = n == len(before) and np.count_nonzero(source == np.arange(n)) == n - len(fresh)
        return cls(source, fresh, in_place)

    def of_part(self, part: Callable[[Any], Any], objects: Sequence[Any], before: Sequence[Any]) -> UnchangedRows:
        """Find the rows whose ``part(object)`` was also in the last batch, by identity.

        ``objects``, ``before``: the objects of this batch and of the last one, as passed to :meth:`compare`.
        """
        if self.all:
            return self
        if not self.in_place:
            return self.compare([*map(part, objects)], [*map(part, before)])
        fresh = [row for row in self.fresh.tolist() if part(objects[row]) is not part(before[row])]
        source = np.arange(len(objects))
        source[fresh] = -1
        return UnchangedRows(source, np.array(fresh, np.int64), True)

    @property
    def all(self) -> bool:
        """Return True if the rows are the same as in the last batch: none is new, has moved or has been removed."""
        return self.in_place and not len(self.fresh)

    def also(self, fresh: NDArray[np.bool_]) -> UnchangedRows:
        """Return a copy in which the rows of the mask ``fresh`` (bool[n]) are new, too."""
        source = np.where(fresh, -1, self.source)
        return UnchangedRows(source, np.flatnonzero(source < 0), self.in_place)

    def array(self, old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
        """Return an array of the unchanged values of ``old`` and, for the fresh rows, the values of ``new``.

        Returns ``new`` itself if ``old`` is empty.
        """
        if not len(old):
            return new
        out = old.copy() if self.in_place else old[self.source]
        out[self.fresh] = new
        return out

    def update(self, before: _Columns, read: Callable[[Sequence[int]], _Columns]) -> _Columns:
        """Return the columns ``before`` (a dataclass) in the order of this batch, with the fresh rows read again.

        If :attr:`all` rows are unchanged, ``before`` itself is returned. ``read`` is called once with the numbers of
        the fresh rows, and returns their columns.
        """
        if self.all:
            return before
        new = read(self.fresh.tolist())
        merged = {}
        for field in fields(before):
            old_values, new_values = getattr(before, field.name), getattr(new, field.name)
            merge = self.array if isinstance(old_values, np.ndarray) else self.list
            merged[field.name] = merge(old_values, new_values)
        return type(before)(**merged)

    def list(self, old: Sequence[_T], new: Sequence[_T]) -> Sequence[_T]:
        """Return a list of the unchanged items of ``old`` and, for the fresh rows, the items of ``new``.

        Returns ``old`` itself if :attr:`all` rows are unchanged.
        """
        if self.all:
            return old
        out = list(old) if self.in_place else [new[0] if row < 0 else old[row] for row in self.source.tolist()]
        for row, each in zip(self.fresh.tolist(), new, strict=True):
            out[row] = each
        return out


@dataclass(frozen=True, slots=True)
class TargetColumns:
    """Targets with one row per HPA.

    ``scale_error``: 0 none, 1 internal, 2 spec. ``selector_error``: 0 none, 1 required, 2 invalid, 3 deleted, 4 pods
    could not be listed, 5 ambiguous. ``refused``: whether a write of the scale fails for good.
    ``metrics_begin``/``metrics_end``: rows of :class:`MetricRows`. Other columns are those of the spec and the scale.
    """

    scale_error: NDArray[np.uint8]
    current: NDArray[np.int32]
    minimum: NDArray[np.int32]
    maximum: NDArray[np.int32]
    object_metric: NDArray[np.uint8]
    behavior: NDArray[np.uint8]
    selector_error: NDArray[np.uint8]
    refused: NDArray[np.uint8]
    fresh: NDArray[np.uint8]
    metrics_begin: NDArray[np.int64]
    metrics_end: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.current)


@dataclass(frozen=True, slots=True)
class MetricRows:
    """Inputs of the replica calculator, one row per metric of an HPA (``kscale._native._hpa.calculate_replicas``).

    ``mode`` indexes ``CALCULATION_MODES``; ``failure`` 1: no metrics, 2: pods could not be listed; ``invalid``:
    the HPA's own spec is invalid (error class ``spec``).
    """

    mode: NDArray[np.uint8]
    cpu: NDArray[np.uint8]
    failure: NDArray[np.uint8]
    invalid: NDArray[np.uint8]
    current: NDArray[np.int32]
    target: NDArray[np.int64]
    down: NDArray[np.float64]
    up: NDArray[np.float64]
    pods_begin: NDArray[np.int64]
    pods_end: NDArray[np.int64]
    samples: NDArray[np.int64]
    requests: NDArray[np.int64]
    bad_request: NDArray[np.int32]
    extra_count: NDArray[np.int64]
    extra_sum: NDArray[np.int64]
    values_begin: NDArray[np.int64]
    values_end: NDArray[np.int64]

    arrays = property(
        attrgetter(
            *("mode", "cpu", "failure", "current", "target", "down", "up", "pods_begin", "pods_end", "samples"),
            *("requests", "bad_request", "extra_count", "extra_sum", "values_begin", "values_end"),
        ),
        doc="The arrays in the order of the kernel's arguments.",
    )

    def __len__(self) -> int:
        return len(self.mode)


@dataclass(frozen=True, slots=True)
class CalculatorResults:
    """Results of the calculator for every row; see ``kscale._native._hpa.calculate_replicas``."""

    replicas: NDArray[np.int32]
    utilization: NDArray[np.int32]
    usage: NDArray[np.int64]
    error: NDArray[np.uint8]
    path: NDArray[np.uint8]
    groups: NDArray[np.int32]
    ratios: NDArray[np.float64]


def calculate_rows(
    rows: MetricRows,
    pods: PodColumns,
    samples: SampleColumns,
    requests: NDArray[np.int64],
    values: NDArray[np.int64],
    *,
    options: HPAOptions,
    now: int,
    threads: int = 1,
) -> CalculatorResults:
    """Run the replica calculator over all rows, which refer to positions in the other columns.

    ``requests``: of pods, and ``values``: of object and external metrics, both in milli-units. ``now``: nanoseconds
    since 1970. ``threads`` does not affect the result.
    """
    columns = (*rows.arrays, *pods.arrays, *samples.arrays, requests, values)
    arguments = (*columns, now, *options.calculator_terms, threads)
    return CalculatorResults(*_hpa.calculate_replicas(*arguments))


CONDITION_TYPES: Final = ("AbleToScale", "ScalingActive", "ScalingLimited", "ScaledToZero")
CONDITION_REASONS: Final = (
    "",
    "FailedGetScale",
    "SucceededGetScale",
    "ReadyForNewScale",
    "ScaleUpStabilized",
    "ScaleDownStabilized",
    "SucceededRescale",
    "ScalingDisabled",
    "InvalidSelector",
    "AmbiguousSelector",
    "MetricFailed",
    "ValidMetricFound",
    "DesiredWithinRange",
    "TooFewReplicas",
    "TooManyReplicas",
    "ScaleUpLimit",
    "ScaleDownLimit",
    "ScaledToZero",
    "NotScaledToZero",
    "FailedUpdateScale",
)
"""Reasons by code. ``MetricFailed`` stands for the reason of the first failing metric (``FailedGet...Metric``)."""


@dataclass(frozen=True, slots=True)
class ConditionColumns:
    """Conditions as arrays [n, 4] by ``CONDITION_TYPES``.

    ``status``: 0 absent, 1 True, 2 False, 3 other. ``reason``; ``time``.
    """

    status: NDArray[np.uint8]
    reason: NDArray[np.uint8]
    time: NDArray[np.int64]

    def copy(self) -> ConditionColumns:
        """Return an independent copy, whose columns can be written."""
        return ConditionColumns(self.status.copy(), self.reason.copy(), self.time.copy())


@dataclass(frozen=True, slots=True)
class KernelState:
    """State of the kernel for every HPA: histories and status conditions."""

    histories: StateColumns
    conditions: ConditionColumns


class LazyStates(Mapping[str, HPAState]):
    """States of HPAs by key, built on access; compares and pickles as a dictionary of them.

    ``keys_in_order``: keys with a row. ``rows``: the row by key. ``plain_states``: states without their columns.
    ``others``: states of HPAs without a row.
    """

    __slots__ = ("histories", "keys_in_order", "others", "plain_states", "rows")

    def __init__(
        self,
        keys: Sequence[str],
        histories: StateColumns,
        plain_states: Sequence[HPAState],
        others: Mapping[str, HPAState],
        rows: Mapping[str, int],
    ) -> None:
        self.keys_in_order, self.rows = keys, rows
        self.histories, self.plain_states, self.others = histories, plain_states, others

    def get_columns(self, keys: Sequence[str]) -> tuple[StateColumns, Sequence[HPAState]] | None:
        """Return the histories of HPAs and their states without histories, in the order of ``keys``.

        None if one of the HPAs has no row.
        """
        if self.keys_in_order is keys or self.keys_in_order == keys:
            return self.histories, self.plain_states
        indices = [self.rows.get(key, -1) for key in keys]
        if min(indices, default=-1) < 0:
            return None
        return self.histories.take(np.array(indices, np.int64)), [self.plain_states[row] for row in indices]

    def __getitem__(self, key: str) -> HPAState:
        row = self.rows.get(key)
        return self.others[key] if row is None else self.histories.state(row, self.plain_states[row])

    def __iter__(self) -> Iterator[str]:
        yield from self.rows
        yield from (key for key in self.others if key not in self.rows)

    def items(self) -> ItemsView[str, HPAState]:
        """Return (key, state) of all HPAs; faster than building each state on access."""
        states = self.histories.states(self.plain_states)
        others = {key: state for key, state in self.others.items() if key not in self.rows}
        return ({key: states[row] for key, row in self.rows.items()} | others).items()

    def __len__(self) -> int:
        return len(self.rows) + sum(key not in self.rows for key in self.others)

    def __repr__(self) -> str:
        return f"<states of {len(self):,} HPAs>"

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self.items()),)


_NEW_STATE: Final = HPAState()


@dataclass(slots=True)
class _BatchStates:
    """States of HPAs after a batch."""

    histories: StateColumns
    plain_states: Sequence[HPAState]


class StateStore(MutableMapping[str, HPAState]):
    """States of HPAs between batches, as each HPA's last batch left them, in columns.

    An unknown HPA has the state of one that was never reconciled.
    """

    __slots__ = ("_last", "_single", "_where")

    def __init__(self, states: Mapping[str, HPAState] | None = None) -> None:
        self._single: dict[str, HPAState] = dict(states or {})
        self._where: dict[str, tuple[_BatchStates, int]] = {}
        self._last: tuple[Sequence[str], _BatchStates] | None = None  # the last batch, if its states are all current

    def put(self, keys: Sequence[str], histories: StateColumns, plain_states: Sequence[HPAState]) -> None:
        """Store the states after a batch, in the order of ``keys``.

        ``histories``: columns of the histories; ``plain_states``: the states without histories. Both are stored
        without a copy. States of other HPAs stay.
        """
        if self._last is not None and self._last[0] is keys:
            shelf = self._last[1]
            shelf.histories, shelf.plain_states = histories, plain_states
            return
        shelf = _BatchStates(histories, plain_states)
        self._last = keys, shelf
        self._where.update((key, (shelf, row)) for row, key in enumerate(keys))
        if self._single:
            for key in keys:
                self._single.pop(key, None)

    def get_columns(self, keys: Sequence[str]) -> tuple[StateColumns, Sequence[HPAState]]:
        """Return the histories of HPAs and their states apart from the histories, in the order of ``keys``.

        An unknown HPA has the state of one that was never reconciled. Histories in the states are to be ignored.
        """
        if self._last is not None and (self._last[0] is keys or self._last[0] == keys):
            return self._last[1].histories, self._last[1].plain_states
        shelves: dict[int, tuple[_BatchStates, int]] = {}
        single: list[HPAState] = []
        places: list[tuple[int, int]] = []
        end = 0
        for key in keys:
            location = self._where.get(key)
            if location is None:
                places.append((-1, len(single)))
                single.append(self._single.get(key, _NEW_STATE))
                continue
            shelf, row = location
            if id(shelf) not in shelves:
                shelves[id(shelf)] = shelf, end
                end += len(shelf.plain_states)
            places.append((shelves[id(shelf)][1], row))
        if len(shelves) == 1 and not single:
            only = next(iter(shelves.values()))[0]
            histories, plain_states = only.histories, only.plain_states
            rows = [row for _, row in places]
            if rows == list(range(len(plain_states))):
                return histories, plain_states
            return histories.take(np.array(rows, np.int64)), [plain_states[row] for row in rows]
        parts = [
            *((shelf.histories, shelf.plain_states) for shelf, _ in shelves.values()),
            (StateColumns.from_states(single), single),
        ]
        all_histories, all_states = parts[0][0], list(parts[0][1])
        for histories, plain_states in parts[1:]:
            all_histories, all_states = all_histories.concatenate(histories), [*all_states, *plain_states]
        rows = [(end if at < 0 else at) + row for at, row in places]
        return all_histories.take(np.array(rows, np.int64)), [all_states[row] for row in rows]

    def plain_state(self, key: str) -> HPAState | None:
        """Return the state of one HPA, whose histories are to be ignored, or None if the HPA is unknown."""
        location = self._where.get(key)
        return self._single.get(key) if location is None else location[0].plain_states[location[1]]

    def __getitem__(self, key: str) -> HPAState:
        location = self._where.get(key)
        if location is None:
            return self._single[key]
        shelf, row = location
        return shelf.histories.state(row, shelf.plain_states[row])

    def __setitem__(self, key: str, state: HPAState) -> None:
        if self._where.pop(key, None) is not None:
            self._last = None
        self._single[key] = state

    def __delitem__(self, key: str) -> None:
        if self._where.pop(key, None) is None:
            del self._single[key]
        else:
            self._last = None

    def __iter__(self) -> Iterator[str]:
        yield from self._where
        yield from self._single

    def __len__(self) -> int:
        return len(self._where) + len(self._single)

    def __repr__(self) -> str:
        return f"<states of {len(self):,} HPAs>"
