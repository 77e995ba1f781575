"""Columns of rules and of histories hold what the rows said, however they grow, are joined and are taken apart."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kscale.hpa.controller.behavior import HistoryColumns, ScalingRuleColumns
from kscale.hpa.controller.state import Recommendation, ScaleEvent
from kscale.objects.api.autoscaling import HPAScalingPolicy, HPAScalingRules

Entry = tuple[int, int, bool]

entries = st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**62), st.booleans())
rows_drawn = st.lists(st.lists(entries, max_size=20), max_size=6)


def events(rows: list[list[Entry]]) -> HistoryColumns:
    return HistoryColumns.events([[ScaleEvent(*entry) for entry in row] for row in rows])


def check(history: HistoryColumns, rows: list[list[Entry]]) -> None:
    """What it holds, and that the rows lie one behind the other, none in another, as kernels want them."""
    assert [history.entries(row) for row in range(len(rows))] == rows
    assert history.size.tolist() == [len(row) for row in rows]
    begin, end = history.begin.tolist(), (history.begin + history.capacity).tolist()
    assert all(last <= first for last, first in zip(end, begin[1:], strict=False))
    assert not begin or (begin[0] >= 0 and end[-1] <= len(history.values))
    assert len(history.values) == len(history.times) == len(history.outdated)
    assert (history.values.dtype, history.times.dtype, history.outdated.dtype) == (np.int32, np.int64, np.uint8)
    assert all(size <= capacity for size, capacity in zip(history.size, history.capacity, strict=True))


def has_room(history: HistoryColumns) -> bool:
    return bool((history.size + 2 <= history.capacity).all())


def add(history: HistoryColumns, rows: list[list[Entry]], entry: Entry) -> None:
    """Two more entries in every row, written as kernels write them."""
    for row, entries in enumerate(rows):
        for _ in range(2):
            at = history.begin[row] + history.size[row]
            history.values[at], history.times[at], history.outdated[at] = entry
            history.size[row] += 1
            entries.append(entry)


@given(rows_drawn)
def test_histories_hold_their_rows(rows: list[list[Entry]]) -> None:
    created = events(rows)
    check(created, rows)
    assert has_room(created)
    plain = HistoryColumns.recommendations([[Recommendation(value, time) for value, time, _ in row] for row in rows])
    check(plain, [[(value, time, False) for value, time, _ in row] for row in rows])
    for row, entries in enumerate(rows):
        assert plain.get_recommendations(row) == tuple(Recommendation(value, time) for value, time, _ in entries)


@given(rows_drawn, entries, st.integers(1, 6))
def test_histories_grow(rows: list[list[Entry]], entry: Entry, passes: int) -> None:
    history = events(rows)
    for _ in range(passes):
        before, copy = [list(row) for row in rows], history.with_room()
        check(copy, rows)
        assert has_room(copy)
        assert len(copy.values) <= max(len(history.values), 8 * len(rows) + 3 * sum(map(len, rows)) // 2)
        add(copy, rows, entry)
        check(copy, rows)
        check(history, before)
        history = copy


def test_how_much_a_history_grows() -> None:
    """Where a row has no room for two more, each gets half as much again, for six at the least, and the two."""
    rows = [[(1, 1, True)] * size for size in (0, 3, 4, 40)]
    full = events(rows).with_room()
    assert full.capacity.tolist() == [2, 5, 6, 42]
    add(full, rows, (2, 2, False))
    grown = full.with_room()
    assert grown.capacity.tolist() == [8, 9, 11, 65]
    assert len(grown.values) == 93
    assert grown.with_room().capacity.tolist() == [8, 9, 11, 65]
    check(grown, rows)


@given(rows_drawn, st.data())
def test_rows_are_taken_from_histories(rows: list[list[Entry]], data: st.DataObject) -> None:
    history = events(rows)
    rows_taken = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8)) if rows else []
    result = history.take(np.array(rows_taken, np.int64))
    check(result, [rows[row] for row in rows_taken])
    assert has_room(result)
    in_order = all(first < second for first, second in pairwise(rows_taken))
    assert (result.values is history.values) is in_order  # only those in another order are copied


@given(rows_drawn, rows_drawn, rows_drawn)
def test_histories_are_joined(first: list[list[Entry]], second: list[list[Entry]], third: list[list[Entry]]) -> None:
    check(events(first).concatenate(events(second)).concatenate(events(third)), [*first, *second, *third])


policies = st.builds(
    HPAScalingPolicy,
    type=st.sampled_from(["Pods", "Percent", "Other"]),
    value=st.integers(-(2**31), 2**31 - 1),
    period_seconds=st.integers(0, 1800),
)
rules = st.none() | st.builds(
    HPAScalingRules,
    stabilization_window_seconds=st.none() | st.integers(0, 3600),
    select_policy=st.sampled_from([None, "Max", "Min", "Disabled"]),
    policies=st.none() | st.lists(policies, max_size=4),
)


def check_rules(columns: ScalingRuleColumns, given_: list[HPAScalingRules | None], windows: list[int]) -> None:
    select, kinds = {"Min": 1, "Disabled": 2}, {"Pods": 0, "Percent": 1, "Other": 2}
    assert len(columns.select) == len(columns.window) == len(columns.begin) == len(columns.end) == len(given_)
    for row, (item, window) in enumerate(zip(given_, windows, strict=True)):
        own = item or HPAScalingRules()
        assert columns.select[row] == select.get(own.select_policy or "", 0)
        own_window = own.stabilization_window_seconds
        assert columns.window[row] == (window if own_window is None else own_window)
        of_row = slice(columns.begin[row], columns.end[row])
        assert [
            *zip(
                columns.type[of_row].tolist(),
                columns.value[of_row].tolist(),
                columns.period[of_row].tolist(),
                strict=True,
            )
        ] == [(kinds[policy.type], policy.value, policy.period_seconds) for policy in own.policies or []]


@given(st.lists(rules, max_size=5), st.lists(rules, max_size=5), st.integers(0, 600))
def test_rules_hold_their_rows_and_are_joined(
    first: list[HPAScalingRules | None], second: list[HPAScalingRules | None], window: int
) -> None:
    one, other = ScalingRuleColumns.from_rules(first, window), ScalingRuleColumns.from_rules(second, 7)
    check_rules(one, first, [window] * len(first))
    check_rules(one.concatenate(other), [*first, *second], [window] * len(first) + [7] * len(second))
