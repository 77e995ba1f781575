"""Samples into histograms and recommendations out of them: batches equal single samples equal the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale._native import _histogram as native
from kscale.effects import ZERO_TIME
from kscale.errors import NativeError
from reference import vpa_histogram as plain
from unit.vpa.usage_world import AGGREGATE_OF, DAY, HOUR, START, World

PERCENTILES = [[0.9, 0.5, 0.95], [0.9, 0.5, 0.95]]
MINIMUM = [25, 262144000]


times = st.integers(START, START + 3 * DAY) | st.integers(0, 300).map(lambda h: START + h * HOUR)
cpu_samples = st.tuples(st.integers(0, 8), times, st.integers(-5, 3000), st.just(0))
memory_values = st.integers(-5, 40).map(lambda m: m * 50_000_000)
memory_samples = st.tuples(st.integers(0, 8), times, memory_values, st.sampled_from([1, 1, 1, 2]))
batches = st.lists(cpu_samples | memory_samples, max_size=80)
settings = st.tuples(st.sampled_from([HOUR, DAY]), st.sampled_from([HOUR, DAY, 5 * HOUR + 1]))


@given(batches, settings)
def test_batch_is_one_by_one_is_reference(samples: list[tuple[int, int, int, int]], how: tuple[int, int]) -> None:
    batch, single = World(*how), World(*how)
    status = batch.add(samples)
    for threads in (2, 3):
        threaded = World(*how)
        assert threaded.add(samples, threads) == status
        threaded.same(batch)
    aggregates = [plain.Aggregate(*how) for _ in range(max(AGGREGATE_OF) + 1)]
    containers = [plain.Container(aggregates[a]) for a in AGGREGATE_OF]
    codes = {"accepted": 0, "discarded": 1, "too old": 2}
    expected: tuple[list[int], list[int]] = ([], [])
    for sample in samples:
        c, t, v, kind = sample
        single.add([sample])
        if kind == 0:
            expected[0].append(codes[containers[c].add_cpu(t, v)])
        elif kind == 1:
            expected[1].append(codes[containers[c].add_memory(t, v)])
        else:
            expected[1].append(codes[containers[c].record_oom(t, v)])
    single.same(batch)
    assert status == expected
    for row, a in enumerate(aggregates):
        for ours, reference in ((batch.cpu, a.cpu), (batch.memory, a.memory)):
            assert ours.weights[row].tolist() == reference.weights
            assert ours.total[row] == reference.total
            assert (ours.min_bucket[row], ours.max_bucket[row]) == (reference.min, reference.max)
        assert batch.columns["samples"][row] == a.samples
        assert batch.columns["last"][row] == (ZERO_TIME if a.last is None else a.last)
    n = len(aggregates)
    out = np.zeros((n, 2, 3), np.int64)
    c = batch.columns
    native.recommend(
        batch.cpu.native, batch.memory.native, c["first"], c["last"], c["samples"],
        np.tile(np.array(MINIMUM, np.int64), (n, 1)), np.array(PERCENTILES), np.array([DAY, DAY]), 0.15, out, 2,
    )  # fmt: skip
    sampled = [r for r in range(n) if aggregates[r].samples]
    expected_rows = [plain.recommend(aggregates[r], PERCENTILES, DAY, 0.15, MINIMUM) for r in sampled]
    assert out[sampled].tolist() == expected_rows


@st.composite
def runs(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """Samples container by container, as files hold them: mostly in order, amounts small or beyond the table."""
    samples: list[tuple[int, int, int, int]] = []
    for _ in range(draw(st.integers(1, 5))):
        container, kind = draw(st.integers(0, 8)), draw(st.sampled_from([0, 0, 1]))
        time = START + draw(st.integers(-200, 4000)) * HOUR
        seed = draw(st.randoms(use_true_random=False))
        step, most = draw(st.sampled_from([1, 60, 3600, 86400 * 7])), draw(st.sampled_from([50, 8191, 8192, 200000]))
        faults = draw(st.sampled_from([0.0, 0.0, 0.05]))
        for _ in range(draw(st.integers(1, 40))):
            time += step * 10**9 if seed.random() >= faults else -(10**9)
            value = seed.randint(0, most) if seed.random() >= faults else -1
            samples.append((container, time, value if kind == 0 else value * 10**6, kind))
    return samples


@given(runs(), settings)
def test_runs_are_one_by_one(samples: list[tuple[int, int, int, int]], how: tuple[int, int]) -> None:
    batch, single = World(*how), World(*how)
    statuses = batch.add(samples)
    for threads in (2, 3):
        threaded = World(*how)
        assert threaded.add(samples, threads) == statuses
        threaded.same(batch)
    result: tuple[list[int], list[int]] = ([], [])
    for sample in samples:
        for mine, theirs in zip(result, single.add([sample]), strict=True):
            mine.extend(theirs)
    assert result == statuses
    single.same(batch)


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=30, unique=True).map(sorted),
    st.lists(st.tuples(st.integers(0, 8), st.integers(-1, 60)), max_size=5),
    st.randoms(use_true_random=False),
    st.sampled_from([HOUR, DAY]),
)
def test_grid_is_samples(hours: list[int], before: list[tuple[int, int]], random: Any, half_life: int) -> None:
    grid, listed = World(half_life), World(half_life)
    earlier = [(c, START + h * HOUR, 700, 0) for c, h in before]
    grid.add(earlier)
    listed.add(earlier)
    order = sorted(range(len(AGGREGATE_OF)), key=AGGREGATE_OF.__getitem__)
    starts = [i for i, c in enumerate(order) if i == 0 or AGGREGATE_OF[order[i - 1]] != AGGREGATE_OF[c]]
    time = np.array([START + h * HOUR for h in hours], np.int64)
    holes, most = random.random() < 0.5, random.choice([3000, 20000])
    matrix = np.array(
        [[-1 if holes and random.random() < 0.2 else random.randint(0, most) for _ in hours] for _ in order], np.int32
    )
    samples = [
        (c, int(time[t]), int(matrix[r, t]), 0)
        for t in range(len(hours))
        for r, c in enumerate(order)
        if matrix[r, t] >= 0
    ]
    status, _ = listed.add(samples)
    for threads in (1, 3):
        other = World(half_life)
        other.add(earlier)
        discarded = np.zeros(len(order), np.int64)
        other.usage.add_cpu_grid(
            other.cpu.native,
            np.array([*starts, len(order)], np.int64),
            np.array(order, np.int32),
            time,
            matrix,
            discarded,
            threads,
        )
        assert discarded.sum() == sum(status)
        other.same(listed)


def test_invalid_arguments_are_refused() -> None:
    world = World()
    one = np.zeros(1, np.int64)
    with pytest.raises(NativeError, match="container 99 of 9"):
        world.usage.add_cpu(world.cpu.native, np.array([99], np.int32), one, one, np.zeros(1, np.uint8))
    with pytest.raises(NativeError, match="unequal"):
        world.usage.add_cpu(world.cpu.native, np.zeros(2, np.int32), one, one, np.zeros(1, np.uint8))
    with pytest.raises(NativeError, match="1823"):
        world.usage.add_memory(
            world.memory.native, np.zeros(1, np.int32), np.array([ZERO_TIME]), one, np.zeros(1, np.uint8)
        )
    with pytest.raises(NativeError, match="increase"):
        world.usage.add_cpu_grid(
            world.cpu.native, np.array([0, 1]), np.zeros(1, np.int32), np.array([5, 5]), np.zeros((1, 2), np.int32), one
        )
    with pytest.raises(NativeError, match="share one aggregate"):
        world.usage.add_cpu_grid(
            world.cpu.native, np.array([0, 2]), np.array([0, 1], np.int32), np.array([5]), np.zeros((2, 1), np.int32),
            np.zeros(2, np.int64),
        )  # fmt: skip
    with pytest.raises(NativeError, match="aggregate 7 of 7"):
        native.Usage(np.array([7] * 9, np.int32), *list(world.columns.values())[1:])
