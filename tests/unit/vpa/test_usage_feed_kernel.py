"""Rows of recorded usage: one pass equals single samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale._native import _histogram as native
from kscale.errors import NativeError
from unit.vpa.usage_world import HOUR, START, World

FOREVER = 2**63 - 1
SLOTS = np.array([0, 1, 2, -1, 3, -2, 8], np.int32)  # of seven series
Rows = list[tuple[int, int, float]]


@st.composite
def rows(draw: st.DrawFn, unit: float) -> Rows:
    """(series, time, value), series by series as files hold them; values of all sorts."""
    result: Rows = []
    for _ in range(draw(st.integers(1, 6))):
        series, time = draw(st.integers(0, len(SLOTS) - 1)), START + draw(st.integers(-100, 300)) * HOUR
        random = draw(st.randoms(use_true_random=False))
        odd = draw(st.sampled_from([0.0, 0.0, 0.1]))
        most = draw(st.sampled_from([0.05, 8.0, 300.0, 2e12]))
        for _ in range(draw(st.integers(1, 30))):
            time += random.choice([0, 1, -1]) * 10**9 if random.random() < odd else 60 * 10**9
            value = random.uniform(0, most) * unit
            if random.random() < odd:
                value = random.choice([math.nan, math.inf, -math.inf, -0.25 * unit, 1e300, 0.0, -0.0])
            result.append((series, time, value))
    return result


def amount(x: float) -> int:
    """The spec's fromFloat."""
    return 10**14 if x > 1e14 else 0 if x < 0 else int(x)


def fed(world: World, given_rows: Rows, cpu: bool, now: int = FOREVER, threads: int = 1) -> tuple[Any, list[int]]:
    finite = np.zeros(len(SLOTS), np.int64)
    bank = world.cpu.native if cpu else world.memory.native
    counts = world.usage.feed(
        bank, cpu,
        np.array([row[0] for row in given_rows], np.int32), np.array([row[1] for row in given_rows], np.int64),
        np.array([row[2] for row in given_rows], np.float64), SLOTS, finite, now, threads,
    )  # fmt: skip
    return counts, finite.tolist()


def one_by_one(world: World, given_rows: Rows, cpu: bool, now: int) -> tuple[dict[str, int], list[int]]:
    counts = dict.fromkeys(("missing", "infinite", "negative", "late", "refused", "behind"), 0)
    counts["newest"] = -(2**63)
    finite = [0] * len(SLOTS)
    latest: dict[int, int] = {}
    for series, time, value in given_rows:
        slot = int(SLOTS[series])
        if slot == native.UNASKED:
            continue
        counts["newest"] = max(counts["newest"], time)
        if not math.isfinite(value):
            counts["missing" if math.isnan(value) else "infinite"] += 1
            continue
        finite[series] += 1
        if slot == native.UNPLACED:
            continue
        counts["negative"] += value < 0
        counts["late"] += time > now
        sample = (slot, time, amount(value * (1000.0 if cpu else 1.0)), 0 if cpu else 1)
        if world.add([sample]) in (([0], []), ([], [0])):
            latest[slot] = time
        else:
            counts["refused"] += 1
            counts["behind"] += time < latest[slot]
    return counts, finite


@pytest.mark.parametrize(("cpu", "unit"), [(True, 1.0), (False, 1e8)])
@given(st.data())
def test_fed_is_one_by_one(cpu: bool, unit: float, data: st.DataObject) -> None:
    given_rows = data.draw(rows(unit))
    now = data.draw(st.sampled_from([FOREVER, START + 50 * HOUR]))
    expected = World()
    answer = one_by_one(expected, given_rows, cpu, now)
    for threads in (1, 2, 3):
        world = World()
        assert fed(world, given_rows, cpu, now, threads) == answer
        world.same(expected)


@st.composite
def scraped(draw: st.DrawFn) -> Rows:
    """The same series again and again, as a scraper writes them; some are missing now and then, or come doubled."""
    random = draw(st.randoms(use_true_random=False))
    order = draw(st.permutations(range(len(SLOTS))))
    result: Rows = []
    for step in range(draw(st.integers(1, 40))):
        time = START + step * 60 * 10**9
        for series in order:
            for _ in range(random.choice([1, 1, 1, 1, 0, 2])):
                odd = random.random() < 0.05
                result.append(
                    (series, time, random.choice([math.nan, -1.0, math.inf]) if odd else random.uniform(0, 9))
                )
    return result


@given(scraped(), st.integers(1, 3))
def test_rows_by_aggregates_are_the_same_samples(given_rows: Rows, threads: int) -> None:
    expected, world = World(), World()
    answer = one_by_one(expected, given_rows, cpu=True, now=FOREVER)
    values = np.array([row[2] for row in given_rows], np.float64)
    series = np.array([row[0] for row in given_rows], np.int32)
    times = np.array([row[1] for row in given_rows], np.int64)
    result = world.usage.arranged(series, times, values, None, SLOTS, threads)
    if result is None:  # rows of each series stand together
        assert np.count_nonzero(np.diff(series)) * 8 < len(series)
        return
    assert result[3] is None
    rows_by_aggregate = list(zip(*(column.tolist() for column in result[:3]), strict=True))
    requested_rows = [row for row in given_rows if SLOTS[row[0]] != native.UNASKED]
    assert sorted(map(repr, rows_by_aggregate)) == sorted(map(repr, requested_rows))
    assert fed(world, rows_by_aggregate, cpu=True, threads=threads) == answer
    world.same(expected)


@given(scraped(), st.integers(1, 3))
def test_layouts_do_not_matter_where_each_container_has_its_aggregate(given_rows: Rows, threads: int) -> None:
    for cpu in (True, False):
        own = [row for row in given_rows if row[0] in (4, 6)]  # the aggregates of the others have several containers
        by_container, by_time = World(), World()
        fed(by_container, sorted(own, key=lambda row: row[0]), cpu)
        fed(by_time, own, cpu, threads=threads)
        by_time.same(by_container)


def test_values_are_cut_off_not_rounded() -> None:
    for value, unit, bucket_of in ((0.0172071, True, 17), (0.069946, True, 69), (0.61535112, True, 615)):
        world, plain = World(), World()
        fed(world, [(0, START, value)], unit)
        plain.add([(0, START, bucket_of, 0)])
        world.same(plain)


def test_invalid_arguments_are_refused() -> None:
    world = World()
    one, value, finite = np.full(1, START), np.ones(1), np.zeros(1, np.int64)
    series = np.zeros(1, np.int32)

    def feed(series: Any, time: Any, value: Any, slots: list[int], finite: Any) -> None:
        world.usage.feed(world.cpu.native, True, series, time, value, np.array(slots, np.int32), finite, FOREVER)

    with pytest.raises(NativeError, match="unequal"):
        feed(series, one, np.ones(2), [0], finite)
    with pytest.raises(NativeError, match="series 1 of 1"):
        feed(np.ones(1, np.int32), one, value, [0], finite)
    with pytest.raises(NativeError, match="container 99 of 9"):
        feed(series, one, value, [99], finite)
    with pytest.raises(NativeError, match="container -3 of 9"):
        feed(series, one, value, [-3], finite)
    with pytest.raises(NativeError, match="1823"):
        feed(series, np.array([2**63 - 1]), value, [0], finite)
    feed(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0), [], np.zeros(0, np.int64))

    def arranged(series: Any, time: Any, cpu: Any, memory: Any, slots: list[int]) -> Any:
        return world.usage.arranged(series, time, cpu, memory, np.array(slots, np.int32))

    for cpu, memory in ((np.ones(2), None), (None, np.ones(2)), (np.ones(0), value)):
        with pytest.raises(NativeError, match="unequal"):
            arranged(series, one, cpu, memory, [0])
    with pytest.raises(NativeError, match="series 0 of 0"):
        arranged(series, one, value, None, [])
    with pytest.raises(NativeError, match="container 9 of 9"):
        arranged(series, one, value, None, [9])
    assert arranged(np.zeros(0, np.int32), np.zeros(0, np.int64), None, None, []) is None
