"""Stabilize and limit a proposal: windows, policies, scale events, min and max.

Upstream: ``normalizeDesiredReplicas``, ``normalizeDesiredReplicasWithBehaviors``, ``storeScaleEvent`` in
``horizontal.go``. The kernel ``_native/include/kscale/hpa/behavior.hpp`` decides stabilization, policies, event history
and limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _hpa
from kscale.hpa.controller.state import HPAState, Recommendation, ScaleEvent
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import HorizontalPodAutoscalerBehavior, HPAScalingRules

__all__ = [
    "HistoryColumns",
    "NormalizedReplicas",
    "ScalingRuleColumns",
    "StateColumns",
    "build_rule_columns",
    "normalize",
    "store_scale_event",
]

_SELECT_POLICY_CODES: Final = {"Min": 1, "Disabled": 2}
_POLICY_TYPE_CODES: Final = {"Pods": 0, "Percent": 1}
_EMPTY_RULES: Final = HPAScalingRules()


@dataclass(frozen=True, slots=True)
class ScalingRuleColumns:
    """Scaling rules of one direction.

    ``select`` uint8[n], ``window`` int32[n] seconds, ``begin``/``end`` int64[n] into the policies' ``type`` uint8,
    ``value`` int32, ``period`` int32 seconds.
    """

    select: NDArray[np.uint8]
    window: NDArray[np.int32]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    type: NDArray[np.uint8]
    value: NDArray[np.int32]
    period: NDArray[np.int32]

    @classmethod
    def from_rules(cls, rules: Sequence[HPAScalingRules | None], default_window: int) -> ScalingRuleColumns:
        """Build columns with one row per rule. A missing window is ``default_window`` seconds."""
        rows = [each or _EMPTY_RULES for each in rules]
        policies = [row.policies or [] for row in rows]
        end = np.cumsum([len(each) for each in policies], dtype=np.int64)
        flat = [policy for each in policies for policy in each]
        windows = [
            default_window if row.stabilization_window_seconds is None else row.stabilization_window_seconds
            for row in rows
        ]
        return cls(
            np.array([_SELECT_POLICY_CODES.get(row.select_policy or "", 0) for row in rows], np.uint8),
            np.array(windows, np.int32),
            end - np.array([len(each) for each in policies], np.int64),
            end,
            np.array([_POLICY_TYPE_CODES.get(policy.type, 2) for policy in flat], np.uint8),
            np.array([policy.value for policy in flat], np.int32),
            np.array([policy.period_seconds for policy in flat], np.int32),
        )

    def concatenate(self, other: ScalingRuleColumns) -> ScalingRuleColumns:
        """Return columns of these rows followed by the rows of ``other``."""
        if not len(other.select):
            return self
        offset = len(self.type)
        names = ("select", "window", "type", "value", "period")
        select, window, type_, value, period = (
            np.concatenate([getattr(self, name), getattr(other, name)]) for name in names
        )
        begin = np.concatenate([self.begin, other.begin + offset])
        return ScalingRuleColumns(
            select, window, begin, np.concatenate([self.end, other.end + offset]), type_, value, period
        )


@dataclass(frozen=True, slots=True)
class HistoryColumns:
    """Past entries by row, in slot order.

    ``begin``/``capacity``/``size`` int64[n] into ``values`` int32, ``times`` int64 ns and ``outdated`` uint8. Every row
    has room for two more entries (a first pass records the current size, then its proposal).
    """

    begin: NDArray[np.int64]
    capacity: NDArray[np.int64]
    size: NDArray[np.int64]
    values: NDArray[np.int32]
    times: NDArray[np.int64]
    outdated: NDArray[np.uint8]

    @classmethod
    def recommendations(cls, rows: Sequence[Sequence[Recommendation]]) -> HistoryColumns:
        """Build columns from the recommendations of each HPA."""
        entries = [each for row in rows for each in row]
        return cls._from_entries(rows, [each.replicas for each in entries], [each.time for each in entries], None)

    @classmethod
    def events(cls, rows: Sequence[Sequence[ScaleEvent]]) -> HistoryColumns:
        """Build columns from the scale events of each HPA."""
        entries = [each for row in rows for each in row]
        flags = [each.outdated for each in entries]
        return cls._from_entries(rows, [each.change for each in entries], [each.time for each in entries], flags)

    @classmethod
    def _from_entries(
        cls, rows: Sequence[Sequence[object]], values: list[int], times: list[int], outdated: list[bool] | None
    ) -> HistoryColumns:
        """Build columns from the values, times and outdated flags of all entries, row after row.

        ``rows`` only says how many entries each row has. ``outdated`` None: no entry is outdated.
        """
        size = np.array([len(row) for row in rows], np.int64)
        capacity = size + 2
        end = np.cumsum(capacity, dtype=np.int64)
        total = int(end[-1]) if len(rows) else 0
        begin = end - capacity
        out = cls(
            begin, capacity, size, np.zeros(total, np.int32), np.zeros(total, np.int64), np.zeros(total, np.uint8)
        )
        if values:
            positions = np.repeat(begin - (np.cumsum(size) - size), size) + np.arange(len(values))
            out.values[positions], out.times[positions] = values, times
            if outdated is not None:
                out.outdated[positions] = outdated
        return out

    def take(self, rows: NDArray[np.int64]) -> HistoryColumns:
        """Return the given rows in the given order.

        Entries are shared if the rows are in the order in which their entries are stored, otherwise copied.
        """
        order = self.begin[rows]
        if len(rows) and bool((order[1:] <= order[:-1]).any()):
            return self._copy_in_row_order(rows, self.size[rows] + 2)
        return HistoryColumns(order, self.capacity[rows], self.size[rows], self.values, self.times, self.outdated)

    def concatenate(self, other: HistoryColumns) -> HistoryColumns:
        """Return columns of these rows followed by the rows of ``other``."""
        offset = len(self.values)
        parts = [(getattr(self, name), getattr(other, name)) for name in ("capacity", "size")]
        entries = [(getattr(self, name), getattr(other, name)) for name in ("values", "times", "outdated")]
        begin = np.concatenate([self.begin, other.begin + offset])
        return HistoryColumns(begin, *map(np.concatenate, parts), *map(np.concatenate, entries))

    def _copy_in_row_order(self, rows: NDArray[np.int64], capacity: NDArray[np.int64]) -> HistoryColumns:
        """Copy rows so that their entries are in row order, as the kernels require. ``capacity``: room of each row."""
        size = self.size[rows]
        begin, total = np.cumsum(capacity, dtype=np.int64) - capacity, int(capacity.sum())
        within = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
        source, target = np.repeat(self.begin[rows], size) + within, np.repeat(begin, size) + within
        out = HistoryColumns(
            begin, capacity, size, np.zeros(total, np.int32), np.zeros(total, np.int64), np.zeros(total, np.uint8)
        )
        for name in ("values", "times", "outdated"):
            getattr(out, name)[target] = getattr(self, name)[source]
        return out

    def with_room(self) -> HistoryColumns:
        """Copy the columns for writing, with room for two more entries in every row.

        Entries that belong to no row any more (:meth:`take` leaves them) are dropped if they are more than half.
        """
        if bool((self.size + 2 <= self.capacity).all()) and len(self.values) <= 2 * int(self.capacity.sum()):
            return HistoryColumns(
                self.begin, self.capacity, self.size.copy(), self.values.copy(), self.times.copy(), self.outdated.copy()
            )
        return self._copy_in_row_order(np.arange(len(self.size)), np.maximum(self.size + self.size // 2, 6) + 2)

    def get_recommendations(self, row: int) -> tuple[Recommendation, ...]:
        """Return the entries of a row as recommendations, in slot order."""
        return tuple([Recommendation(value, time) for value, time, _ in self.entries(row)])

    def list_recommendations(self, rows: Sequence[int]) -> list[tuple[Recommendation, ...]]:
        """Return :meth:`get_recommendations` of each row; faster for many rows."""
        return [tuple(map(Recommendation, values, times)) for values, times, _ in self._list_entries(rows)]

    def list_events(self, rows: Sequence[int]) -> list[tuple[ScaleEvent, ...]]:
        """Return the entries of each row as changes of the replicas, in slot order."""
        return [tuple(map(ScaleEvent, *entries)) for entries in self._list_entries(rows)]

    def _list_entries(self, rows: Sequence[int]) -> Iterator[tuple[list[int], list[int], list[bool]]]:
        """Yield the values, times and outdated flags of each row, in slot order."""
        index = np.asarray(rows, np.int64)
        size = self.size[index]
        end = np.cumsum(size)
        places = np.repeat(self.begin[index] - (end - size), size) + np.arange(int(size.sum()))
        values, times = self.values[places].tolist(), self.times[places].tolist()
        outdated = self.outdated[places].astype(np.bool_).tolist()
        for first, last in zip((end - size).tolist(), end.tolist(), strict=True):
            yield values[first:last], times[first:last], outdated[first:last]

    def entries(self, row: int) -> list[tuple[int, int, bool]]:
        """Return (value, time in nanoseconds, outdated) of each entry of a row, in slot order."""
        size = int(self.size[row])
        if not size:
            return []
        first = int(self.begin[row])
        last = first + size
        return [
            (value, time, bool(flag))
            for value, time, flag in zip(
                self.values[first:last].tolist(),
                self.times[first:last].tolist(),
                self.outdated[first:last].tolist(),
                strict=True,
            )
        ]


@dataclass(frozen=True, slots=True)
class StateColumns:
    """Columns of every HPA's :class:`~kscale.hpa.ControllerState`. ``fresh`` uint8[n]: never reconciled."""

    fresh: NDArray[np.uint8]
    past: HistoryColumns
    added: HistoryColumns
    removed: HistoryColumns

    @classmethod
    def from_states(cls, states: Sequence[HPAState]) -> StateColumns:
        """Build the columns of states in their order."""
        return cls(
            np.array([each.recommendations is None for each in states], np.uint8),
            HistoryColumns.recommendations([each.recommendations or () for each in states]),
            HistoryColumns.events([each.scale_up_events for each in states]),
            HistoryColumns.events([each.scale_down_events for each in states]),
        )

    def with_room(self) -> StateColumns:
        """Copy the histories for writing, with room for two more entries in every row."""
        return StateColumns(self.fresh, self.past.with_room(), self.added.with_room(), self.removed.with_room())

    def take(self, rows: NDArray[np.int64]) -> StateColumns:
        """Return the given rows in the given order. Histories may be shared, as in :meth:`HistoryColumns.take`."""
        return StateColumns(self.fresh[rows], self.past.take(rows), self.added.take(rows), self.removed.take(rows))

    def concatenate(self, other: StateColumns) -> StateColumns:
        """Return columns of these rows followed by the rows of ``other``."""
        return StateColumns(
            np.concatenate([self.fresh, other.fresh]),
            self.past.concatenate(other.past),
            self.added.concatenate(other.added),
            self.removed.concatenate(other.removed),
        )

    def with_rows(self, rows: NDArray[np.int64], others: StateColumns) -> StateColumns:
        """Return columns in which row ``rows[i]`` is replaced by row ``i`` of ``others``."""
        which = np.arange(len(self.fresh))
        which[rows] = len(which) + np.arange(len(rows))
        return self.concatenate(others).take(which)

    def states(self, before: Sequence[HPAState]) -> list[HPAState]:
        """Return the new state of every row, whose old state is in ``before``; faster than :meth:`state` row by row."""
        rows = range(len(self.fresh))
        columns = self.past.list_recommendations(rows), self.added.list_events(rows), self.removed.list_events(rows)
        return [
            msgspec.structs.replace(
                state,
                recommendations=None if fresh else recommendations,
                scale_up_events=up,
                scale_down_events=down,
            )
            for state, fresh, recommendations, up, down in zip(before, self.fresh.tolist(), *columns, strict=True)
        ]

    def state(self, row: int, before: HPAState) -> HPAState:
        """Build the state of one HPA. Fields that are not columns come from ``before``."""
        return msgspec.structs.replace(
            before,
            recommendations=None if self.fresh[row] else self.past.get_recommendations(row),
            scale_up_events=tuple(ScaleEvent(*entry) for entry in self.added.entries(row)),
            scale_down_events=tuple(ScaleEvent(*entry) for entry in self.removed.entries(row)),
        )


class NormalizedReplicas(msgspec.Struct, frozen=True, gc=False):
    """A proposal after stabilization and limits, and the recommendations with this one stored.

    ``stabilized_by``: index into ``status.STABILIZED_CONDITIONS``; ``limit``: index into
    ``status.SCALING_LIMITED_CONDITIONS``.
    """

    stabilized: int
    desired: int
    stabilized_by: int
    limit: int
    limited: bool
    recommendations: tuple[Recommendation, ...]


def build_rule_columns(
    behaviors: Sequence[HorizontalPodAutoscalerBehavior | None], options: HPAOptions
) -> tuple[ScalingRuleColumns, ScalingRuleColumns]:
    """Build the columns of the rules for scaling up and for scaling down, with one row per behavior."""
    window = options.downscale_stabilization_seconds
    return (
        ScalingRuleColumns.from_rules([None if each is None else each.scale_up for each in behaviors], 0),
        ScalingRuleColumns.from_rules([None if each is None else each.scale_down for each in behaviors], window),
    )


def normalize(
    current: int,
    proposal: int,
    minimum: int,
    maximum: int,
    behavior: HorizontalPodAutoscalerBehavior | None,
    state: HPAState,
    *,
    options: HPAOptions,
    now: int,
) -> NormalizedReplicas:
    """Stabilize and limit one proposal by the rules of ``behavior``, or without one by the legacy rules.

    ``current``: replicas now. ``minimum``, ``maximum``: bounds of the spec. ``now``: nanoseconds since 1970.
    """
    up, down = build_rule_columns([behavior], options)
    histories = StateColumns.from_states([state])
    stabilized, desired, stabilized_by, limit, limited = _hpa.normalize(
        np.ones(1, np.uint8),
        np.array([behavior is not None], np.uint8),
        np.array([current], np.int32),
        np.array([proposal], np.int32),
        np.array([minimum], np.int32),
        np.array([maximum], np.int32),
        up,
        down,
        histories.past,
        histories.added,
        histories.removed,
        options.downscale_stabilization_ns,
        now,
        1,
    )
    return NormalizedReplicas(
        int(stabilized[0]),
        int(desired[0]),
        int(stabilized_by[0]),
        int(limit[0]),
        bool(limited[0]),
        histories.past.get_recommendations(0),
    )


def store_scale_event(
    state: HPAState,
    behavior: HorizontalPodAutoscalerBehavior | None,
    before: int,
    after: int,
    *,
    options: HPAOptions,
    now: int,
) -> tuple[tuple[ScaleEvent, ...], tuple[ScaleEvent, ...]]:
    """Return (scale-up events, scale-down events) after a change of replicas from ``before`` to ``after``.

    The event is added to those of ``state``; without ``behavior`` none is added. ``now``: nanoseconds since 1970.
    """
    if behavior is None:
        return state.scale_up_events, state.scale_down_events
    up, down = build_rule_columns([behavior], options)
    added, removed = HistoryColumns.events([state.scale_up_events]), HistoryColumns.events([state.scale_down_events])
    before_, after_ = np.array([before], np.int32), np.array([after], np.int32)
    _hpa.store_events(np.ones(1, np.uint8), before_, after_, up, down, added, removed, now)
    return (
        tuple(ScaleEvent(*entry) for entry in added.entries(0)),
        tuple(ScaleEvent(*entry) for entry in removed.entries(0)),
    )
