"""Go's sort: sorted, a permutation, stable up to twelve, and with the ties that Go leaves."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale.vpa.updater.priority import sort_as_go

Pair = tuple[int, int]


def by_first(pairs: list[Pair]) -> list[Pair]:
    return sort_as_go(pairs, lambda a, b: a[0] < b[0])


@given(st.lists(st.integers(0, 40), max_size=300))
def test_sorted_and_a_permutation(numbers: list[int]) -> None:
    pairs = [(number, i) for i, number in enumerate(numbers)]
    result = by_first(pairs)
    assert [pair[0] for pair in result] == sorted(numbers)
    assert sorted(result) == sorted(pairs)
    if len(pairs) <= 12:
        assert result == sorted(pairs)


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
            result = by_first([(number, i) for i, number in enumerate(numbers)])
            assert [pair[0] for pair in result] == sorted(numbers)
            assert sorted(pair[1] for pair in result) == list(range(n))


LENGTHS = (13, 49, 50, 64, 300, 3000)


@pytest.mark.parametrize(
    ("keys", "sums"),
    [
        (lambda i, n: i % 5, (3655203664, 3550739018, 2884794105, 2537298668, 2100833809, 508754542)),
        (lambda i, n: min(i, n - i), (44492792, 383843142, 1337866947, 3754988896, 4210990981, 584301733)),
        (lambda i, n: i * i % 7, (3482789360, 1233930066, 3880377297, 4082513277, 173442486, 4092645841)),
        (lambda i, n: (n - i) // 3, (3495745504, 3620189981, 999542755, 1103801419, 2929295611, 2820388524)),
        (lambda i, n: i * 37 % n // 8, (2895825268, 2377957073, 626369087, 3688168145, 3997055886, 3205490174)),
        (
            lambda i, n: i // (n // 4 + 1) ^ i % 2,
            (4000611286, 794339931, 1708208890, 977811942, 4143349247, 1248483204),
        ),
    ],
)
def test_ties_are_left_as_go_leaves_them(keys: Callable[[int, int], int], sums: tuple[int, ...]) -> None:
    """Checksums of the orders that ``sort.Slice`` and ``sort.Sort`` of Go 1.26 give; none is that of a stable sort."""
    for n, expected in zip(LENGTHS, sums, strict=True):
        pairs = [(keys(i, n), i) for i in range(n)]
        result = [i for _, i in by_first(pairs)]
        assert zlib.crc32(repr(result).encode()) == expected, n
        assert result != [i for _, i in sorted(pairs)]


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

    result = sort_as_go(list(range(n)), less)
    assert [value[i] for i in result] == sorted(value)
    assert comparisons < 40 * n
