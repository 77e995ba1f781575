"""Bounds of whole bins: never above the optimum by exhaustive search, and above the linear program for few bins."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kscale.scheduling.bounds.effort import Effort
from kscale.scheduling.bounds.instance import UNLIMITED, BinKinds
from kscale.scheduling.bounds.mixed_bins import Generation
from kscale.scheduling.bounds.whole_bins import Choice, bound_cover, round_to_whole_bins
from reference import packing
from unit.scheduling.test_bin_kinds import bin_kinds, optimum

choices = st.lists(st.builds(Choice, st.integers(1, 20), st.integers(1, 9), st.integers(0, 4)), max_size=4)


@given(st.integers(-2, 30), choices)
def test_a_cover_costs_as_little_as_the_best_of_all_combinations(missing: int, choices: list[Choice]) -> None:
    least = packing.cover(missing, choices)
    assert bound_cover(missing, choices, 100_000)[0] == (0 if least is None else least)


@given(st.integers(1, 30), choices, st.integers(0, 20))
def test_a_cover_that_ends_early_is_a_lower_bound(missing: int, choices: list[Choice], nodes: int) -> None:
    least = packing.cover(missing, choices)
    bound, visited = bound_cover(missing, choices, nodes)
    assert visited <= nodes
    if least is not None:
        assert bound <= least


@settings(deadline=None)
@given(bin_kinds(limits=True), st.sampled_from([None, 1, 400]))
def test_whole_bins_never_exceed_the_optimum(kinds: BinKinds, effort: int | None) -> None:
    work = Generation(kinds, Effort(effort))
    work.run()
    if work.proof is None:
        return
    proof = round_to_whole_bins(kinds, work.proof)
    assert proof.value >= work.proof.value
    best = optimum(kinds)
    if best is not None:
        assert proof.value <= best


def test_pods_of_separate_zones_need_whole_nodes_in_each_zone() -> None:
    """Three items fit one bin, and each of two zones has four items: the linear program buys 8/3 bins of cost 30."""
    kinds = BinKinds.of([[1], [1]], [4, 4], [[3], [3]], [30, 30], allowed=np.eye(2, dtype=bool))
    work = Generation(kinds, Effort())
    work.run()
    assert (work.bound, round_to_whole_bins(kinds, work.proof).value) == (80, 120)


def test_what_is_free_or_required_is_used_first() -> None:
    free = BinKinds.of([[1]], [7], [[3], [3]], [0, 30], available=[1, UNLIMITED], least=[0, 1])
    work = Generation(free, Effort())
    work.run()
    assert (work.bound, round_to_whole_bins(free, work.proof).value) == (40, 60)


def test_with_many_bins_the_proof_stays() -> None:
    kinds = BinKinds.of([[1]], [1_000_001], [[3]], [30])
    work = Generation(kinds, Effort())
    work.run()
    assert round_to_whole_bins(kinds, work.proof).value == work.bound == 10_000_010
