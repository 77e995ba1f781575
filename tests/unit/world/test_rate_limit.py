"""The token bucket: what Go's gives."""

from __future__ import annotations

import pytest

from kscale.world.kubernetes.client import TokenBucket

T0 = 1_800_000_000 * 10**9
MS = 10**6


def test_a_burst_and_then_a_rate() -> None:
    bucket = TokenBucket(5, 10)
    waits = [bucket.reserve(T0) for _ in range(13)]
    assert [wait // MS for wait in waits] == [0] * 10 + [200, 400, 600]
    # Whoever comes later waits for those before him.
    assert bucket.reserve(T0 + 100 * MS) // MS == 700
    assert bucket.reserve(T0 + 3600 * 10**9) == 0


def test_no_more_than_the_burst_is_saved() -> None:
    bucket = TokenBucket(1, 2)
    assert [bucket.try_accept(T0) for _ in range(3)] == [True, True, False]
    assert [bucket.try_accept(T0 + 100 * 10**9) for _ in range(3)] == [True, True, False]


def test_refused_requests_consume_no_tokens() -> None:
    bucket = TokenBucket(1, 1)
    assert bucket.try_accept(T0)
    assert not any(bucket.try_accept(T0 + i * MS) for i in range(1, 1000, 50))
    assert bucket.try_accept(T0 + 1000 * MS)


def test_clock_set_back_adds_no_tokens() -> None:
    bucket = TokenBucket(1, 1)
    assert bucket.try_accept(T0)
    assert not bucket.try_accept(T0 - 3600 * 10**9)


@pytest.mark.parametrize("burst", [0, -1])
def test_zero_burst_grants_no_token(burst: int) -> None:
    assert not TokenBucket(1, burst).try_accept(T0)
