"""Clocks."""

from __future__ import annotations

from kscale.world.clock import FollowingClock, SteadyClock, SystemClock


class SetClock:
    wall, passed = 1_800_000_000 * 10**9, 5

    def now(self) -> int:
        return self.wall

    def monotonic(self) -> int:
        return self.passed


def test_steady_clock_ignores_wall_clock_changes() -> None:
    clock = SetClock()
    steady = SteadyClock(clock)
    start = steady.now()
    assert start == clock.wall
    clock.wall += 3600 * 10**9
    clock.passed += 7
    assert (steady.now() - start, steady.monotonic()) == (7, 12)


def test_following_clock_adopts_the_wall_clock_on_request() -> None:
    clock = SetClock()
    clock.wall, clock.passed = SetClock.wall, SetClock.passed
    following = FollowingClock(clock)
    start = following.now()
    clock.wall -= 3600 * 10**9
    clock.passed += 7
    assert following.now() - start == 7
    assert following.follow() == -3600 * 10**9 - 7
    assert following.now() == clock.wall
    clock.wall += 10**8  # no more than clocks drift
    assert (following.follow(), following.now()) == (0, clock.wall - 10**8)
    assert following.monotonic() == 12


def test_system_clock_reads_the_machine_clocks() -> None:
    clock = SystemClock()
    assert clock.now() > 1_700_000_000 * 10**9
    before = clock.monotonic()
    assert clock.monotonic() >= before
