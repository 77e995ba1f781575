"""Bins of several kinds: the proven least cost against exhaustive search and against the whole linear program."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kscale import InputError
from kscale.scheduling.bounds import mixed_bins, pricing
from kscale.scheduling.bounds.effort import Effort
from kscale.scheduling.bounds.instance import UNLIMITED, BinKinds
from kscale.scheduling.bounds.master import Master
from kscale.scheduling.bounds.mixed_bins import Fluid, Generation
from kscale.scheduling.bounds.pricing import Proof
from reference import packing


@st.composite
def bin_kinds(draw: st.DrawFn, *, limits: bool) -> BinKinds:
    resources, kinds, classes = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    capacity = np.array([[draw(st.integers(1, 9)) for _ in range(resources)] for _ in range(kinds)])
    demand = np.array([[draw(st.integers(0, 6)) for _ in range(resources)] for _ in range(classes)])
    count = np.array([draw(st.integers(0, 3)) for _ in range(classes)])
    cost = [draw(st.integers(0 if limits else 1, 9)) for _ in range(kinds)]
    extra = {}
    if limits:
        available = [draw(st.integers(-1, 3)) for _ in range(kinds)]
        extra = {
            "available": available,
            "least": [0 if n == 0 else draw(st.integers(0, 1)) for n in available],
            "allowed": [[draw(st.booleans()) for _ in range(kinds)] for _ in range(classes)],
            "max_per_bin": [draw(st.integers(1, 2)) for _ in range(classes)],
            "rows": [[draw(st.integers(-1, 2)) for _ in range(kinds)]],
            "high": [draw(st.sampled_from([0, 2, 5, np.inf]))],
        }
    return BinKinds.of(demand, count, capacity, cost, **extra)


def optimum(kinds: BinKinds) -> int | None:
    limit = np.minimum(kinds.most, kinds.count).tolist()
    rows = list(zip(kinds.rows.tolist(), kinds.high.tolist(), strict=True))
    return packing.cheapest(
        kinds.demand.tolist(), kinds.count.tolist(), kinds.capacity.tolist(), kinds.cost.tolist(), limit,
        kinds.available.tolist(), kinds.least.tolist(), rows,
    )  # fmt: skip


def check(kinds: BinKinds, proof: Proof) -> None:
    """What the proof says, by its own arithmetic and by enumeration."""
    limit = np.minimum(kinds.most, kinds.count)
    for t in range(kinds.size):
        worth = packing.knapsack(
            proof.prices.tolist(), kinds.demand.tolist(), limit[t].tolist(), kinds.capacity[t].tolist()
        )
        assert worth <= proof.upper[t], "the prices prove nothing"
    total = Fraction(sum(int(n) * int(y) for n, y in zip(kinds.count, proof.prices, strict=True)))
    asks = [
        int(kinds.cost[t]) * proof.scale - sum(d * int(w) for d, w in zip(proof.duals, kinds.rows[:, t], strict=True))
        for t in range(kinds.size)
    ]
    endless = [t for t in range(kinds.size) if kinds.available[t] == UNLIMITED]
    share = min([Fraction(1), *(Fraction(asks[t], int(proof.upper[t])) for t in endless if proof.upper[t])])
    total *= share
    for price, low, high in zip(proof.duals, kinds.low, kinds.high, strict=True):
        total += price * int(low if price > 0 else high) if price else 0
    for t in range(kinds.size):
        surplus = asks[t] - share * int(proof.upper[t])
        if kinds.available[t] == UNLIMITED:
            assert surplus >= 0
        total += surplus * int(kinds.least[t] if surplus >= 0 else kinds.available[t])
    assert Fraction(proof.value - 1) < max(total / proof.scale, Fraction(0)) or proof.value == 0
    assert proof.value == max(0, -(-total.numerator // (total.denominator * proof.scale)))


def integer_program(kinds: BinKinds) -> float:
    """The linear program over all fillings."""
    import highspy

    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    for n in kinds.count.tolist():
        highs.addRow(float(n), highspy.kHighsInf, 0, [], [])
    limit = np.minimum(kinds.most, kinds.count)
    for t in range(kinds.size):
        for filling in packing.patterns(kinds.demand.tolist(), limit[t].tolist(), kinds.capacity[t].tolist()):
            rows = [k for k, take in enumerate(filling) if take]
            if rows:
                highs.addCol(
                    float(kinds.cost[t]), 0.0, highspy.kHighsInf, len(rows), rows, [float(filling[k]) for k in rows]
                )
    highs.run()
    return float(highs.getInfo().objective_function_value)


@settings(deadline=None)
@given(bin_kinds(limits=False))
def test_the_bound_is_the_linear_program_over_all_fillings(kinds: BinKinds) -> None:
    best = optimum(kinds)
    if best is None:
        return
    work = Generation(kinds, Effort(), tolerance=1e-6)
    work.run()
    assert work.bound <= best
    if not kinds.count.any():
        assert work.bound == 0
        return
    assert work.complete
    assert work.bound == pytest.approx(np.ceil(integer_program(kinds) - 1e-4), abs=0.5)
    check(kinds, work.proof)


@settings(deadline=None)
@given(bin_kinds(limits=True), st.sampled_from([None, 1, 400, 2000]))
def test_limits_on_bins_and_any_effort_leave_a_bound(kinds: BinKinds, effort: int | None) -> None:
    best = optimum(kinds)
    work = Generation(kinds, Effort(effort))
    work.run()
    if best is not None:
        assert work.bound <= best
    if work.proof is not None:
        check(kinds, work.proof)


@given(bin_kinds(limits=True))
def test_items_that_flow_prove_a_bound(kinds: BinKinds) -> None:
    proof = Fluid(kinds).bound()
    if proof is None:
        assert optimum(kinds) is None, "the limits contradict each other"
    else:
        check(kinds, proof)


def test_items_only_for_expensive_bins_raise_the_bound() -> None:
    """One price of a resource for all kinds would have to be that of the cheap kind: 100 in all."""
    kinds = BinKinds.of([[1], [1]], [100, 100], [[10], [10]], [100, 10], allowed=[[True, False], [True, True]])
    proof = Fluid(kinds).bound()
    assert proof is not None
    check(kinds, proof)
    assert proof.value == 1_100


def test_per_bin_limit_is_part_of_the_flow_bound() -> None:
    kinds = BinKinds.of([[1], [1]], [6, 4], [[10]], [100], max_per_bin=[1, 10])
    proof = Fluid(kinds).bound()
    assert proof is not None
    check(kinds, proof)
    assert proof.value == 600


def test_searches_that_were_given_up_get_better_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few whole GPUs a bin, beside cores and memory: shared tables are too coarse, and one node is no search."""
    rng = np.random.default_rng(1)
    demand = np.column_stack([rng.integers(501, 9001, 14), rng.integers(1003, 60_007, 14), rng.integers(0, 3, 14)])
    kinds = BinKinds.of(demand, rng.integers(1, 30, 14), [[23_905, 178_933, 4], [20_011, 120_001, 4]], [100, 80])
    best = Generation(kinds, Effort(), tolerance=1e-6)
    best.run()
    monkeypatch.setattr(mixed_bins, "_FEW_NODES", 1)
    monkeypatch.setattr(pricing, "_CELLS", 4_000)
    scant = Generation(kinds, Effort(), tolerance=1e-6)
    scant.run()
    assert (scant.complete, scant.bound) == (True, best.bound)
    monkeypatch.setattr(Generation, "_sharpen", lambda self, given_up, columns: False)
    stuck = Generation(kinds, Effort(), tolerance=1e-6)
    stuck.run()
    assert not stuck.complete
    assert stuck.bound <= best.bound


def test_the_same_effort_ends_in_the_same_place() -> None:
    rng = np.random.default_rng(5)
    demand = np.column_stack([rng.integers(200, 9000, 60), rng.integers(300, 40_000, 60), np.ones(60, np.int64)])
    capacity = np.array([[n * 1000 - 100, n * 4000 - 500, 110] for n in (4, 8, 16, 32)])
    kinds = BinKinds.of(demand, rng.integers(1, 90, 60), capacity, [20, 39, 77, 155], allowed=None,
                        max_per_bin=None)  # fmt: skip
    kinds = kinds.select_classes(np.flatnonzero(kinds.most.max(axis=0)))
    polls = iter([False] * 30 + [True] * 100)
    timed = Generation(kinds, Effort(stop=lambda: next(polls)))
    timed.run()
    assert timed.effort.stopped == "time"
    counted = Generation(kinds, Effort(timed.effort.spent), threads=2)
    counted.run()
    assert counted.effort.stopped == "effort"
    assert (counted.bound, counted.objective, counted.rounds) == (timed.bound, timed.objective, timed.rounds)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"capacity": [[1, 1]]}, "do not match"),
        ({"available": [1.5]}, "available: one whole number"),
        ({"available": [1], "least": [2]}, "least: one number per kind"),
        ({"allowed": [[True, True]]}, "allowed has shape"),
        ({"available": [-5]}, "least: one number per kind"),
        ({"available": [[1], [1, 2]]}, "available: one whole number"),
        ({"max_per_bin": [1, 2]}, "max_per_bin has 2 entries for 1 classes"),
        ({"rows": [[1, 1]], "high": [1]}, "rows: one row of weights"),
        ({"rows": [[0.5]], "high": [1]}, "rows: weights are whole numbers"),
        ({"rows": [[1], [1, 1]], "high": [1, 1]}, "rows: arrays of numbers"),
        ({"rows": [[1]], "high": ["x"]}, "rows: arrays of numbers"),
        ({"rows": [[1]], "low": [float("nan")]}, "rows: low or high is not a number"),
        ({"demand": [[1] * 17], "capacity": [[1] * 17]}, "between 1 and 16 resources"),
    ],
)
def test_bad_arrays_are_named(arguments, text: str) -> None:
    good = {"demand": [[1]], "count": [1], "capacity": [[1]], "cost": [1]}
    with pytest.raises(InputError, match=text):
        BinKinds.of(**good | arguments)


def test_columns_are_ranked_by_how_near_they_are_to_being_used() -> None:
    kinds = BinKinds.of([[3], [2]], [4, 3], [[6], [7]], [10, 15])
    master = Master(kinds)
    master.add(np.array([0, 1, 0]), np.array([[1, 0], [1, 1], [2, 0]]))
    solved = master.solve()
    assert solved.values.tolist() == pytest.approx([0.0, 3.0, 0.5])
    master.add(np.array([0]), np.array([[0, 3]]))  # not in the solution yet, and worth more than it costs
    assert solved.prices.tolist() == pytest.approx([5.0, 10.0])
    order = master.rank_columns(solved).tolist()
    assert (sorted(order[:2]), order[2:]) == ([1, 2], [3, 0])
    assert len(master.reduce_columns(2).kind) == 2


@pytest.mark.parametrize("ask", [0.0, 5e-324])
def test_a_bin_that_asks_for_nothing_comes_first_of_those_that_are_idle(ask: float) -> None:
    master = Master(BinKinds.of([[3]], [4], [[6], [3]], [10, 7]))
    master.add(np.array([0, 1]), np.array([[2], [1]]))
    solved = replace(master.solve(), values=np.zeros(2), prices=np.array([1e9]), ask=np.array([10.0, ask]))
    assert master.rank_columns(solved).tolist() == [1, 0]
