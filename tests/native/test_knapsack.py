"""The kernel of the bounded vector knapsack against enumeration, and at its door."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale._native import _knapsack
from kscale.errors import NativeError
from reference import packing


@st.composite
def knapsacks(draw: st.DrawFn) -> tuple:
    resources = draw(st.integers(1, 3))
    capacity = draw(st.lists(st.integers(1, 12), min_size=resources, max_size=resources))
    demand = draw(st.lists(st.tuples(*(st.integers(0, c) for c in capacity)), min_size=1, max_size=5))
    limit = draw(st.lists(st.integers(0, 4), min_size=len(demand), max_size=len(demand)))
    value = draw(st.lists(st.integers(0, 50), min_size=len(demand), max_size=len(demand)))
    rows = draw(st.integers(1, 3))
    weight = st.floats(0, 10, allow_nan=False)
    multipliers = draw(
        st.lists(st.lists(weight, min_size=len(capacity), max_size=len(capacity)), min_size=rows, max_size=rows)
    )
    return value, demand, limit, capacity, multipliers


def _solve(value, demand, limit, capacity, multipliers, at_least=0, node_limit=10**6, patience=10**6, keep=3):
    return _knapsack.solve(
        np.array(value, dtype=np.int64),
        np.array(demand, dtype=np.int64),
        np.array(limit, dtype=np.int64),
        np.array(capacity, dtype=np.int64),
        np.array(multipliers, dtype=np.float64),
        at_least=at_least,
        node_limit=node_limit,
        patience=patience,
        keep=keep,
    )


@given(knapsacks(), st.integers(0, 60), st.integers(0, 20))
def test_knapsack_kernel_is_the_enumeration(problem, at_least: int, few_nodes: int) -> None:
    value, demand, limit, capacity, _ = problem
    expected = packing.knapsack(value, demand, limit, capacity)
    best, upper, _, solutions = _solve(*problem, at_least=at_least)
    assert best == upper == max(expected, at_least)
    assert bool(len(solutions)) == (expected > at_least)
    assert len(solutions) <= 3
    for take in solutions:
        assert (take <= limit).all()
        assert (take @ np.array(demand) <= capacity).all()
    if len(solutions):
        assert solutions[-1] @ np.array(value) == expected
    for effort in ({"node_limit": few_nodes}, {"patience": few_nodes}):
        best, upper, _, _ = _solve(*problem, **effort)
        assert best <= expected <= upper


def test_knapsack_kernel_refuses_what_it_cannot_do() -> None:
    good = ([3], [[1]], [1], [1], [[1.0]])
    assert _solve(*good)[0] == 3
    for position, bad in ((0, [-1]), (0, [1, 2]), (1, [[-1]]), (2, [-1]), (3, [-1]), (4, [[np.nan]]), (0, [2**60])):
        arguments = list(good)
        arguments[position] = bad
        with pytest.raises(NativeError):
            _solve(*arguments)


def test_many_resources_and_items_of_realistic_size() -> None:
    rng = np.random.default_rng(3)
    demand = np.column_stack([rng.integers(100, 8000, 40), rng.integers(2**26, 2**35, 40), np.ones(40, np.int64)])
    capacity = np.array([16_000, 2**36, 110])
    value = demand[:, 0] * 1000 + demand[:, 1] // 2**20
    limit = np.full(40, 50)
    best, upper, _, solutions = _solve(value, demand, limit, capacity, 1.0 / capacity[None, :].astype(float))
    assert best == upper
    assert (solutions[-1] @ demand <= capacity).all()
    # The same by dynamic programming over milli-cores and nothing else can only be more.
    table = np.zeros(16_001, dtype=np.int64)
    for k in range(40):
        for cpu in range(int(demand[k, 0]), 16_001):
            table[cpu] = max(table[cpu], table[cpu - int(demand[k, 0])] + int(value[k]))
    assert best <= table.max()


def test_subnormal_prices_do_not_cut_off_the_best_pattern() -> None:
    demand = [(0,), (0,), (0,), (1,), (1,)]
    best, upper, _, _ = _solve([0, 0, 0, 1, 2], demand, [0, 0, 0, 1, 1], [1], [[2.225073858507e-311]], at_least=1)
    assert (best, upper) == (2, 2)
    assert _solve([0, 0, 0, 1, 2], demand, [0, 0, 0, 1, 1], [1], [[2.225073858507e-311]], node_limit=0)[1] >= 2
