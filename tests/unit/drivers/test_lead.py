"""Work that is done while a lease is held, on asyncio in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from kscale.drivers.leader_election import LeaderElectionOptions, LeaderElector
from kscale.drivers.live import Live, LostLeadershipError, lead
from kscale.effects import (
    SECOND,
    Action,
    Emit,
    Moment,
    Observe,
    Outcome,
)
from kscale.errors import InputError
from kscale.world.clock import VirtualClock, run_in_virtual_time
from unit.drivers.test_leader_election import Server

T0 = 1_800_000_000 * SECOND


def elected(
    work: Callable[[], Awaitable[Any]], *, release: bool = False, stop: float | None = None, hang: float | None = None
) -> tuple[Any, Server, Moment]:
    server = Server()
    options = LeaderElectionOptions(
        identity="me", resource_name="bar", resource_namespace="foo", renew_deadline=timedelta(seconds=10)
    )

    async def main(clock: VirtualClock) -> tuple[Any, Moment]:
        async def perform(action: Action) -> Outcome:
            if hang is not None and clock.now() - T0 >= hang * SECOND and not isinstance(action, Emit | Observe):
                await asyncio.sleep(3600)
            return server.perform(action, clock.now())

        async with Live(perform, clock) as live:
            if stop is not None:
                asyncio.get_running_loop().call_later(stop, live.scope.cancel)
            result: Any = None
            try:
                result = await lead(LeaderElector(options), live, work, release=release)
            except (InputError, LostLeadershipError) as error:
                result = error
            return result, clock.now() - T0

    result, took = run_in_virtual_time(main, now=T0)
    return result, server, took


def test_work_is_done_by_the_leader() -> None:
    result, server, took = elected(lambda: asyncio.sleep(60, "done"), release=True)
    assert (result, took) == ("done", 60 * SECOND)
    assert server.holders[-1] == ""
    assert server.asked.count("patch") == 32  # at 0, 2, ..., 60 s, and the release
    assert server.events == ["me became leader", "me stopped leading"]


def test_the_lease_is_kept_for_the_next_start_unless_it_is_given_up() -> None:
    _, server, _ = elected(lambda: asyncio.sleep(60))
    assert server.holders[-1] == "me"


def test_who_cannot_renew_stops_working() -> None:
    stopped: list[bool] = []

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.append(True)

    result, _, took = elected(work, hang=7)
    assert isinstance(result, LostLeadershipError)
    assert stopped == [True]
    assert took == 18 * SECOND  # the round that began at 8 s has 10


def test_a_fault_of_the_work_is_raised() -> None:
    async def work() -> None:
        await asyncio.sleep(5)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        elected(work)


def test_stopped_before_it_led() -> None:
    result, server, took = elected(lambda: asyncio.sleep(1, "never"), stop=30, hang=0)
    assert (result, server.holders, took) == (None, [], 30 * SECOND)


def test_the_lease_is_given_up_where_the_work_cannot_be_done_with_what_it_was_given() -> None:
    """So that the next start, with other flags, need not wait for it."""

    async def work() -> None:
        raise InputError("no such estimator")

    result, server, _ = elected(work)
    assert isinstance(result, InputError)
    assert server.holders[-1] == ""
