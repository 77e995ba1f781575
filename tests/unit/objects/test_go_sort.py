"""Go's sort: sorted, a permutation, stable up to twelve, and with the ties that Go leaves."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from kscale.objects.go_sort import go_sorted

Pair = tuple[int, int]


def by_first(pairs: list[Pair]) -> list[Pair]:
    return go_sorted(pairs, lambda a, b: a[0] < b[0])


@given(st.lists(st.integers(0, 40), max_size=300))
def test_sorted_and_a_permutation(numbers: list[int]) -> None:
    pairs = [(number, i) for i, number in enumerate(numbers)]
    found = by_first(pairs)
    assert [pair[0] for pair in found] == sorted(numbers)
    assert sorted(found) == sorted(pairs)
    if len(pairs) <= 12:
        assert found == sorted(pairs)


def test_patterns_of_any_length() -> None:
    rng = random.Random(5)
    for n in (13, 49, 50, 64, 500, 3000):
        for numbers in (
            list(range(n)),
            list(range(n, 0, -1)),
            [0] * n,
            [i % 5 for i in range(n)],
            [min(i, n - i) for i in range(n)],
            [*range(n - 3), 1, 0, 2],
            [rng.randrange(n) for _ in range(n)],
        ):
            found = by_first([(number, i) for i, number in enumerate(numbers)])
            assert [pair[0] for pair in found] == sorted(numbers)
            assert sorted(pair[1] for pair in found) == list(range(n))


def test_a_bad_order_of_comparisons_is_survived() -> None:
    """An adversary decides each comparison as late as it can, which makes every pivot a bad one (McIlroy)."""
    n = 2000
    solid, gas, candidate, comparisons = 0, n, 0, 0
    value = [gas] * n

    def less(a: int, b: int) -> bool:
        nonlocal solid, candidate, comparisons
        comparisons += 1
        if value[a] == gas and value[b] == gas:
            value[a if a == candidate else b] = solid
            solid += 1
        if value[a] == gas:
            candidate = a
        elif value[b] == gas:
            candidate = b
        return value[a] < value[b]

    found = go_sorted(list(range(n)), less)
    assert [value[i] for i in found] == sorted(value)
    assert comparisons < 40 * n
