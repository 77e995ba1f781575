"""Work that is done while a lease is held, on asyncio in virtual time."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from kscale.drivers.leader_election import LeaderElectionOptions, LeaderElector, LostLeadershipError, lead
from kscale.drivers.live import Live
from kscale.effects import (
    SECOND,
    Action,
    ApiError,
    Emit,
    Moment,
    Observe,
    Outcome,
    Patch,
)
from kscale.errors import InputError
from kscale.world.clock import VirtualClock, run_in_virtual_time
from unit.drivers.test_leader_election import Server

T0 = 1_800_000_000 * SECOND


@pytest.fixture(params=[False, True], ids=["machine", "direct"])
def elected(request: pytest.FixtureRequest) -> Any:
    """Return :func:`elect`, whose usual renewals are actions, or sent directly."""
    return partial(elect, direct=request.param)


def elect(
    work: Callable[[], Awaitable[Any]],
    *,
    direct: bool,
    release: bool = False,
    stop: float | None = None,
    hang: float | None = None,
    refuse: Callable[[str, int], ApiError | None] = lambda verb, number: None,
    delay: Callable[[Moment], float] = lambda now: 0.0,
) -> tuple[Any, Server, Moment]:
    server = Server()
    server.refuse = refuse
    options = LeaderElectionOptions(
        identity="me", resource_name="bar", resource_namespace="foo", renew_deadline=timedelta(seconds=10)
    )

    async def main(clock: VirtualClock) -> tuple[Any, Moment]:
        async def perform(action: Action) -> Outcome:
            if hang is not None and clock.now() - T0 >= hang * SECOND and not isinstance(action, Emit | Observe):
                await asyncio.sleep(3600)
            if not isinstance(action, Emit | Observe):
                await asyncio.sleep(delay(clock.now() - T0))
            return server.perform(action, clock.now())

        async def send(patch: bytes) -> str | ApiError:
            content = json.loads(patch)
            version = content.pop("metadata")["resourceVersion"]
            outcome = await perform(
                Patch(kind="Lease", name="bar", namespace="foo", patch=content, resource_version=version)
            )
            return outcome.error or outcome.value

        async with Live(perform, clock) as live:
            if stop is not None:
                asyncio.get_running_loop().call_later(stop, live.scope.cancel)
            result: Any = None
            try:
                result = await lead(LeaderElector(options), live, work, release=release, send=send if direct else None)
            except (InputError, LostLeadershipError) as error:
                result = error
            return result, clock.now() - T0

    result, took = run_in_virtual_time(main, now=T0)
    return result, server, took


def test_work_is_done_by_the_leader(elected: Any) -> None:
    result, server, took = elected(lambda: asyncio.sleep(60, "done"), release=True)
    assert (result, took) == ("done", 60 * SECOND)
    assert server.holders[-1] == ""
    assert server.requests.count("patch") == 32  # at 0, 2, ..., 60 s, and the release
    assert server.events == ["me became leader", "me stopped leading"]


def test_the_lease_is_kept_for_the_next_start_unless_it_is_given_up(elected: Any) -> None:
    _, server, _ = elected(lambda: asyncio.sleep(60))
    assert server.holders[-1] == "me"


def test_work_stops_when_the_lease_cannot_be_renewed(elected: Any) -> None:
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


def test_a_fault_of_the_work_is_raised(elected: Any) -> None:
    async def work() -> None:
        await asyncio.sleep(5)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        elected(work)


def test_stopped_before_it_led(elected: Any) -> None:
    result, server, took = elected(lambda: asyncio.sleep(1, "never"), stop=30, hang=0)
    assert (result, server.holders, took) == (None, [], 30 * SECOND)


def test_lease_is_released_when_the_work_raises_an_input_error(elected: Any) -> None:
    """So that the next start, with other flags, need not wait for it."""

    async def work() -> None:
        raise InputError("no such estimator")

    result, server, _ = elected(work)
    assert isinstance(result, InputError)
    assert server.holders[-1] == ""


def test_a_renewal_that_fails_is_tried_again_by_reading_the_lease(elected: Any) -> None:
    """As in client-go: the lease is read after a conflict. Later renewals do not read it."""

    def refuse(verb: str, number: int) -> ApiError | None:
        return ApiError("conflict", code=409, reason="Conflict") if (verb, number) == ("patch", 5) else None

    result, server, took = elected(lambda: asyncio.sleep(21, "done"), refuse=refuse)
    assert (result, took) == ("done", 21 * SECOND)
    assert server.requests == ["get", "create", *["patch"] * 5, "get", *["patch"] * 7]  # at 0, 2, ..., 20 s; two at 8 s


def test_work_stops_when_renewals_are_refused_too_long(elected: Any) -> None:
    """The time that the first renewal took counts."""

    def refuse(verb: str, number: int) -> ApiError | None:
        return ApiError("no", code=500) if (verb == "get" and number > 1) or (verb == "patch" and number > 3) else None

    result, server, took = elected(lambda: asyncio.sleep(3600), refuse=refuse)
    assert isinstance(result, LostLeadershipError)
    assert took == 16 * SECOND  # the renewal that began at 6 s has 10
    assert server.events == ["me became leader", "me stopped leading"]


@pytest.mark.parametrize("seed", range(60))
def test_direct_renewals_fail_as_those_of_the_machine_do(seed: int) -> None:
    """The same requests, and the same end of the leadership, whatever is slow and refused."""
    rng = random.Random(seed)
    refused = {(verb, i): rng.choice([0, 0, 409, 500]) for verb in ("get", "patch") for i in range(4, 60)}
    delays = [rng.choice([0.01, 0.3, 1.93, 2.57, 4.91]) for _ in range(60)]

    def refuse(verb: str, number: int) -> ApiError | None:
        code = refused.get((verb, number), 0)
        reason = "Conflict" if code == 409 else "InternalError"
        return ApiError("no", code=code, reason=reason) if code else None

    def run(*, direct: bool) -> Any:
        result, server, took = elect(
            lambda: asyncio.sleep(50, "done"),
            direct=direct,
            refuse=refuse,
            delay=lambda now: delays[now // (5 * SECOND)],
        )
        return str(result), server.requests, server.holders, server.events, round(took / SECOND, 3)

    assert run(direct=True) == run(direct=False)
