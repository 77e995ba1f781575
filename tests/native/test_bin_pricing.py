"""The kernels of bin pricing against enumeration for any number of threads, and the arguments they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale._native import _bin_pricing
from kscale.errors import NativeError
from reference import packing

_CAPACITY = st.integers(1, 12)


@st.composite
def bins(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """Some kinds of bins over the same classes; every demand fits the largest of them."""
    resources = draw(st.integers(1, 3))
    kinds = draw(st.integers(1, 3))
    capacity = np.array(draw(st.lists(st.lists(_CAPACITY, min_size=resources, max_size=resources), min_size=kinds,
                                      max_size=kinds)), dtype=np.int64)  # fmt: skip
    classes = draw(st.integers(1, 5))
    size = st.tuples(*(st.integers(0, int(most)) for most in capacity.max(axis=0)))
    demand = np.array(draw(st.lists(size, min_size=classes, max_size=classes)), dtype=np.int64)
    few = st.lists(st.integers(0, 4), min_size=classes, max_size=classes)
    count = np.array(draw(few), dtype=np.int64)
    limit = np.array(draw(few), dtype=np.int64)
    most = np.repeat(limit[None], kinds, axis=0)
    for r in range(resources):
        used = demand[:, r] > 0
        most[:, used] = np.minimum(most[:, used], capacity[:, r, None] // demand[used, r])
    value = np.array(draw(st.lists(st.integers(0, 50), min_size=classes, max_size=classes)), dtype=np.int64)
    return {
        "value": value,
        "demand": demand,
        "most": np.ascontiguousarray(most, dtype=np.int32),
        "count": count,
        "capacity": capacity,
    }


def limit_of(problem: dict[str, np.ndarray], kind: int) -> list[int]:
    return np.minimum(problem["most"][kind], problem["count"]).tolist()


def best_of(problem: dict[str, np.ndarray], kind: int) -> int:
    return packing.knapsack(
        problem["value"].tolist(),
        problem["demand"].tolist(),
        limit_of(problem, kind),
        problem["capacity"][kind].tolist(),
    )


def of_kinds(problem: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [problem[name] for name in ("demand", "most", "count", "capacity")]


@given(bins(), st.integers(0, 3), st.floats(0, 60))
def test_relaxations_and_fillings(problem, swaps: int, expected_price: float) -> None:
    value = problem["value"].astype(np.float64)
    threshold = np.full(len(problem["capacity"]), expected_price)
    upper, weight, worth, filling = _bin_pricing.price(value, *of_kinds(problem), threshold, swaps=swaps)
    assert (weight >= 0).all()
    for t in range(len(upper)):
        best = best_of(problem, t)
        assert upper[t] >= best * (1 - 1e-9) - 1e-9
        assert (filling[t] <= limit_of(problem, t)).all()
        assert (filling[t] @ problem["demand"] <= problem["capacity"][t]).all()
        assert worth[t] == pytest.approx(float(filling[t] @ value))
        assert worth[t] <= best + 1e-9
        if upper[t] <= expected_price:
            assert not filling[t].any()
    again = _bin_pricing.price(value, *of_kinds(problem), threshold, swaps=swaps, threads=3)
    assert all(np.array_equal(a, b) for a, b in zip(again, (upper, weight, worth, filling), strict=True))


@given(bins(), st.integers(0, 3))
def test_fillings_around_a_class_hold_it(problem, swaps: int) -> None:
    kinds, classes = problem["most"].shape
    pairs = [(t, k) for t in range(kinds) for k in range(classes)]
    kind, item = np.array(pairs, dtype=np.int32).T.copy()
    value = problem["value"].astype(np.float64)
    result = _bin_pricing.fill_around(value, *of_kinds(problem), kind, item, swaps=swaps, threads=2)
    for (t, k), filling in zip(pairs, result, strict=True):
        assert (filling <= limit_of(problem, t)).all()
        assert (filling @ problem["demand"] <= problem["capacity"][t]).all()
        together = limit_of(problem, t)[k] > 0 and value[k] > 0
        assert (filling[k] > 0) == together
        assert together or not filling.any()


@given(bins(), st.lists(st.floats(0, 30, allow_nan=False), min_size=9, max_size=9))
def test_surrogate_bounds_hold_for_any_weights(problem, weights: list[float]) -> None:
    kinds, resources = problem["capacity"].shape
    weight = np.array(weights).reshape(3, 3)[:kinds, :resources].copy()
    upper = _bin_pricing.surrogate_bounds(problem["value"], *of_kinds(problem), weight)
    assert all(upper[t] >= best_of(problem, t) for t in range(kinds))


def table_of(problem: dict[str, np.ndarray], weights: np.ndarray, unit: int) -> dict[str, np.ndarray]:
    """What fill_tables takes: exact in the first resource in units, and in the second one if there is one; the third is
    priced out at ``weights``."""
    demand, capacity = problem["demand"], problem["capacity"]
    two = demand.shape[1] > 1
    priced = demand[:, 2] if demand.shape[1] > 2 else np.zeros(len(demand), dtype=np.int64)
    value = np.maximum(problem["value"] - weights[:, None] * priced, 0)
    width, all_parts = int(capacity[:, 0].max()) // unit + 1, int(capacity[:, 1].max()) if two else 0
    parts = demand[:, 1] if two else np.zeros(len(demand), dtype=np.int64)
    rows = len(demand) + 1 + parted(parts) * all_parts
    return {
        "value": np.ascontiguousarray(value, dtype=np.int32),
        "units": (demand[:, 0] // unit).astype(np.int32),
        "parts": parts.astype(np.int32),
        "limit": np.minimum(problem["most"].max(axis=0), problem["count"]).astype(np.int64),
        "out": np.full((len(weights), rows, width), -1, dtype=np.int32),
        "all_parts": all_parts,
    }


def parted(parts: np.ndarray) -> int:
    """From which item on none takes parts."""
    return int(np.flatnonzero(parts).max(initial=-1)) + 1


@given(bins(), st.integers(1, 3))
def test_tables_are_the_enumeration_for_every_capacity(problem, unit: int) -> None:
    given_ = table_of(problem, np.zeros(1, dtype=np.int64), unit)
    _bin_pricing.fill_tables(**given_, threads=2)
    table = given_["out"][0]
    sizes = np.column_stack([given_["units"], given_["parts"]]).tolist()
    with_parts = parted(given_["parts"])
    row = 0
    for k in range(len(sizes) + 1):
        rest = (given_["value"][0][k:].tolist(), sizes[k:], given_["limit"][k:].tolist())
        for h in range(given_["all_parts"] + 1 if k < with_parts else 1):
            assert table[row].tolist() == [packing.knapsack(*rest, [c, h]) for c in range(table.shape[1])]
            row += 1
    assert row == len(table)


@given(bins(), st.lists(st.integers(0, 9), min_size=1, max_size=3), st.integers(1, 3), st.integers(0, 60),
       st.integers(0, 20), st.integers(0, 3))  # fmt: skip
def test_searches_are_the_enumeration(
    problem, weights: list[int], unit: int, at_least: int, few: int, shift: int
) -> None:
    given_ = table_of(problem, np.array(weights), unit)
    given_["value"] = -(-given_["value"] >> shift)  # rounded up: what tables say is still no less than there is
    worth = np.full(len(weights), 2.0**shift)
    _bin_pricing.fill_tables(**given_)
    capacity = problem["capacity"]
    kinds, resources = capacity.shape
    weight = np.zeros((len(weights), resources))
    if resources > 2:
        weight[:, 2] = weights
    parts = capacity[:, 1] if resources > 1 else np.zeros(kinds, dtype=np.int64)

    def search(nodes: int, threads: int) -> list:
        return _bin_pricing.search(
            problem["value"], given_["units"], given_["parts"], problem["demand"], weight, given_["out"], worth,
            all_parts=given_["all_parts"], capacity=capacity,
            limit=np.array([limit_of(problem, t) for t in range(kinds)], dtype=np.int64),
            bin_units=capacity[:, 0] // unit, bin_parts=parts.copy(), at_least=np.full(kinds, at_least),
            node_limit=nodes, keep=3, threads=threads,
        )  # fmt: skip

    for t, (best, upper, _, fillings) in enumerate(search(10**6, 1)):
        expected = best_of(problem, t)
        assert best == upper == max(expected, at_least)
        assert bool(len(fillings)) == (expected > at_least)
        assert len(fillings) <= 3
        for filling in fillings:
            assert (filling <= limit_of(problem, t)).all()
            assert (filling @ problem["demand"] <= capacity[t]).all()
        if len(fillings):
            assert fillings[-1] @ problem["value"] == expected
    for t, (best, upper, nodes, fillings) in enumerate(search(few, 2)):
        assert best <= max(best_of(problem, t), at_least) <= upper
        again = search(few, 1)[t]
        assert (best, upper, nodes, fillings.tolist()) == (*again[:3], again[3].tolist())


@given(bins(), st.integers(1, 3))
def test_table_values_stay_below_the_computed_limit(problem, unit: int) -> None:
    given_ = table_of(problem, np.zeros(1, dtype=np.int64), unit)
    _bin_pricing.fill_tables(**given_)
    most = _bin_pricing.most_of_tables(
        given_["value"][0], given_["units"], given_["parts"], given_["limit"],
        all_units=given_["out"].shape[2] - 1, all_parts=given_["all_parts"],
    )  # fmt: skip
    assert given_["out"].max() < most <= 1 + int(given_["value"][0] @ given_["limit"])


def test_tables_that_may_overflow_are_refused() -> None:
    one, none = np.ones(1, np.int32), np.zeros(1, np.int32)
    table = np.zeros((1, 2, 5), np.int32)
    _bin_pricing.fill_tables(np.array([[2**29]], np.int32), one, none, np.array([3]), table, all_parts=0)
    assert table[0, 0].tolist() == [0, 2**29, 2**30, 3 * 2**29, 3 * 2**29]
    for value, limit in ((2**29, 4), (-1, 1), (1, -1), (1, 2**31)):
        with pytest.raises(NativeError):
            _bin_pricing.fill_tables(np.array([[value]], np.int32), one, none, np.array([limit]), table, all_parts=0)


def test_unsupported_arguments_are_refused() -> None:
    good = {
        "value": np.array([3]), "demand": np.array([[1]]), "most": np.array([[1]], dtype=np.int32),
        "count": np.array([1]), "capacity": np.array([[1]]), "weight": np.array([[1.0]]),
    }  # fmt: skip
    assert _bin_pricing.surrogate_bounds(**good).tolist() == [3]
    for name, bad in (
        ("value", [-1]), ("value", [1, 2]), ("demand", [[-1]]), ("count", [-1]), ("capacity", [[-1]]),
        ("capacity", [[2**61]]), ("demand", [[2**61]]), ("value", [2**62]), ("most", [[1, 1]]), ("weight", [[np.nan]]),
        ("weight", [[-1.0]]), ("weight", [[1.0, 1.0]]), ("capacity", [[1] * 17]),
    ):  # fmt: skip
        with pytest.raises(NativeError):
            _bin_pricing.surrogate_bounds(**good | {name: np.array(bad, dtype=good[name].dtype)})


def test_a_bin_of_realistic_size() -> None:
    rng = np.random.default_rng(3)
    demand = np.column_stack([rng.integers(100, 8000, 40), rng.integers(2**26, 2**35, 40), np.ones(40, np.int64)])
    capacity = np.array([[16_000, 2**36, 110]])
    value = demand[:, 0] * 1000 + demand[:, 1] // 2**20
    order = np.argsort(-demand[:, 0])
    demand, value = np.ascontiguousarray(demand[order]), value[order]
    table = np.empty((1, 41, 16_001), dtype=np.int32)
    units, parts, limit = demand[:, 0].astype(np.int32), np.zeros(40, np.int32), np.full(40, 50)
    _bin_pricing.fill_tables(value[None].astype(np.int32), units, parts, limit, table, all_parts=0)
    ((best, upper, _, fillings),) = _bin_pricing.search(
        value, units, parts, demand, np.zeros((1, 3)), table, np.ones(1), all_parts=0,
        limit=limit[None].copy(), capacity=capacity,
        bin_units=np.array([16_000]), bin_parts=np.array([0]), at_least=np.array([0]), node_limit=10**6,
    )  # fmt: skip
    assert best == upper <= table[0, 0, 16_000]
    assert (fillings[-1] @ demand <= capacity[0]).all()
