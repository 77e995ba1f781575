"""Leader election: upstream's tables, and what holds for two candidates in any order of things."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from examples import is_nightly
from kscale import InputError
from kscale.drivers.leader_election import LeaderElectionOptions, LeaderElector
from kscale.effects import (
    CANCELED,
    SECOND,
    Action,
    ApiError,
    Create,
    Emit,
    Get,
    Moment,
    Observe,
    Outcome,
    Patch,
    Progress,
    Steps,
    VirtualTime,
    Wait,
    run_dry,
    run_virtually,
)
from kscale.objects.api.coordination import Lease, LeaseSpec
from kscale.objects.api.meta import ObjectMeta

T0 = 1_800_000_000 * SECOND
NOT_FOUND = ApiError("no lease", code=404, reason="NotFound")
CONFLICT = ApiError("changed", code=409, reason="Conflict")
BROKEN = ApiError("connection reset")
HOURS = 1000 * 3600 * SECOND


def options(identity: str = "baz", lease: float = 10, renew: float = 5, retry: float = 2) -> LeaderElectionOptions:
    return LeaderElectionOptions(
        identity=identity,
        resource_name="bar",
        resource_namespace="foo",
        lease_duration=timedelta(seconds=lease),
        renew_deadline=timedelta(seconds=renew),
        retry_period=timedelta(seconds=retry),
    )


class Server:
    """One lease behind optimistic locking. ``refuse(verb, number)`` may refuse a call, before or (``late``) after it
    has happened."""

    def __init__(self, spec: LeaseSpec | None = None) -> None:
        self.version = 1
        self.spec = spec
        self.requests: list[str] = []
        self.events: list[str] = []
        self.holders: list[str] = []
        self.refuse: Callable[[str, int], ApiError | None] = lambda verb, number: None
        self.delay: Callable[[str], int] = lambda verb: 0

    def perform(self, action: Action, now: Moment) -> Outcome:
        match action:
            case Emit(events=events):
                self.events += [event.message for event in events]
                return Outcome(at=now)
            case Observe():
                return Outcome(at=now)
        verb = type(action).__name__.lower()
        self.requests.append(verb)
        at = now + self.delay(verb)
        refused = self.refuse(verb, self.requests.count(verb))
        if refused is not None:
            return Outcome(at=at, error=refused)
        match action:
            case Get() if self.spec is None:
                return Outcome(at=at, error=NOT_FOUND)
            case Get():
                metadata = ObjectMeta(name="bar", namespace="foo", uid="u", resource_version=str(self.version))
                return Outcome(at=at, value=Lease(metadata=metadata, spec=self.spec))
            case Create(object=Lease(spec=spec)):
                if self.spec is not None:
                    return Outcome(at=at, error=ApiError("there", code=409, reason="AlreadyExists"))
                self._write(spec)
            case Patch(patch=dict(patch), resource_version=version):
                if self.spec is None:
                    return Outcome(at=at, error=NOT_FOUND)
                if version != str(self.version):
                    return Outcome(at=at, error=CONFLICT)
                self._write(msgspec.convert({**msgspec.to_builtins(self.spec), **patch["spec"]}, LeaseSpec))
            case _:
                raise AssertionError(action)
        return Outcome(at=at, value=str(self.version))

    def _write(self, spec: LeaseSpec) -> None:
        self.spec = spec
        self.version += 1
        self.holders.append(spec.holder_identity or "")


def tried(elector: LeaderElector, server: Server, now: Moment) -> bool:
    def machine(at: Moment) -> Steps[bool]:
        return (yield from elector.try_acquire_or_renew(Progress(at)))

    result: bool = run_virtually(machine, server.perform, now=now)
    return result


def spec(holder: str | None = None, seconds: int | None = None) -> LeaseSpec:
    return LeaseSpec(holder_identity=holder, lease_duration_seconds=seconds)


# TestTryAcquireOrRenewLeases: what the lease holds, what was observed of it and when, tries 3 s apart, and the result.
TABLE = {
    "acquire from no object": (None, None, 0, ["get", "create"], [True], 0, "baz"),
    "acquire from object without annotations": (spec(), None, 0, ["get", "patch"], [True], 1, "baz"),
    "acquire from led object with the lease duration seconds": (
        spec("bing", 3), None, 0, ["get", "get", "patch"], [False, True], 1, "baz",
    ),
    "acquire from unled object": (spec(""), None, 0, ["get", "patch"], [True], 1, "baz"),
    "acquire from led, unacked object": (spec("bing"), spec("bing"), -HOURS, ["get", "patch"], [True], 1, "baz"),
    "acquire from empty led, acked object": (spec(""), None, HOURS, ["get", "patch"], [True], 1, "baz"),
    # Upstream's row has a lease of no duration that is seen for the first time: it holds there because two readings of
    # the clock differ. Here it has been seen before, and runs.
    "don't acquire from led, acked object": (spec("bing"), spec("bing"), HOURS, ["get"], [False], 0, "bing"),
    "renew already acquired object": (spec("baz"), spec("baz"), HOURS, ["get", "patch"], [True], 0, "baz"),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_try_acquire_or_renew(name: str) -> None:
    lease, observed, ago, requests, results, transitions, holder = TABLE[name]
    elector, server = LeaderElector(options()), Server(lease)
    if observed is not None:
        elector.observed, elector._raw = observed, observed
    elector._observed_at = T0 + ago
    assert [tried(elector, server, T0 + i * 3 * SECOND) for i in range(len(results))] == results
    assert server.requests == requests
    assert elector.leader == holder
    assert (elector.observed.lease_transitions or 0) == transitions


def test_the_times_are_those_of_upstream_unless_they_are_set() -> None:
    options = LeaderElectionOptions(identity="a", resource_name="r", resource_namespace="n")
    times = (options.lease_duration, options.renew_deadline, options.retry_period)
    assert times == (timedelta(seconds=15), timedelta(seconds=10), timedelta(seconds=2))


def test_the_lease_that_is_written() -> None:
    elector, server = LeaderElector(options()), Server()
    assert tried(elector, server, T0)
    assert server.spec == LeaseSpec(
        holder_identity="baz",
        lease_duration_seconds=10,
        acquire_time="2027-01-15T08:00:00.000000Z",
        renew_time="2027-01-15T08:00:00.000000Z",
        lease_transitions=0,
    )
    assert tried(elector, server, T0 + SECOND)
    assert server.spec.acquire_time == "2027-01-15T08:00:00.000000Z"
    assert server.spec.renew_time == "2027-01-15T08:00:01.000000Z"


def test_fields_of_a_coordinated_election_are_cleared() -> None:
    server = Server(LeaseSpec(holder_identity="", strategy="OldestEmulationVersion", preferred_holder="x"))
    assert tried(LeaderElector(options()), server, T0)
    assert (server.spec.strategy, server.spec.preferred_holder) == (None, None)


class Stops:
    """Runs an elector as a process does, in virtual time; ``stop`` cuts its waits short from then on."""

    def __init__(self, elector: LeaderElector, server: Server, *, release: bool = False) -> None:
        self.elector, self.server, self.release, self.stopped = elector, server, release, False
        self.led = False

    def machine(self, now: Moment) -> Steps[None]:
        self.led = yield from self._cut(self.elector.acquire(now))
        if self.led:
            yield from self._cut(self.elector.renew(now))
        if self.release:
            yield from self.elector.release(now)

    def _cut(self, steps: Steps[Any]) -> Steps[Any]:
        outcome = None
        while True:
            try:
                action = next(steps) if outcome is None else steps.send(outcome)
            except StopIteration as stop:
                return stop.value
            outcome = yield action
            if self.stopped and isinstance(action, Wait):
                outcome = Outcome(at=outcome.at, error=CANCELED)


# TestFastPathLeaderElection
@pytest.mark.parametrize(
    ("refused", "last", "requests"),
    [
        ((), 2, ["get", "create", "patch", "patch"]),
        ((2,), 4, ["get", "create", "patch", "patch", "get", "patch", "patch"]),
    ],
    ids=["Exercise fast path after lock acquired", "Fallback to slow path after fast path fails"],
)
def test_fast_path(refused: tuple[int, ...], last: int, requests: list[str]) -> None:
    server = Server()
    process = Stops(LeaderElector(options(lease=15, renew=2, retry=1)), server)

    def refuse(verb: str, number: int) -> ApiError | None:
        if verb != "patch":
            return None
        process.stopped |= number == last
        return CONFLICT if number in refused else None

    server.refuse = refuse
    run_virtually(process.machine, server.perform, now=T0)
    assert server.requests == requests


# TestReleaseLeaseLeases, TestReleaseMethodCallsGet, TestReleaseRetriesOnConflict
def test_release() -> None:
    elector, server = LeaderElector(options()), Server()
    assert tried(elector, server, T0)
    server.refuse = lambda verb, number: CONFLICT if (verb, number) == ("patch", 1) else None
    assert run_virtually(elector.release, server.perform, now=T0)
    assert server.requests == ["get", "create", "get", "patch", "get", "patch"]
    assert server.spec == LeaseSpec(
        holder_identity="",
        lease_duration_seconds=1,
        acquire_time="2027-01-15T08:00:00.000000Z",
        renew_time="2027-01-15T08:00:00.000000Z",
        lease_transitions=0,
    )
    assert elector.leader == ""


def test_nothing_to_release() -> None:
    server = Server()
    assert not run_virtually(LeaderElector(options()).release, server.perform, now=T0)
    server = Server(spec("bing", 10))
    assert run_virtually(LeaderElector(options()).release, server.perform, now=T0)
    assert server.holders == []


def test_release_gives_up_after_the_renew_deadline() -> None:
    elector, server = LeaderElector(options(renew=5)), Server()
    assert tried(elector, server, T0)
    server.refuse = lambda verb, number: CONFLICT if verb == "patch" else None
    server.delay = lambda verb: SECOND
    time = VirtualTime(server.perform, now=T0)
    running = time.start(elector.release)
    time.run()
    assert (running.value, time.now - T0) == (False, 5 * SECOND)


# TestReleaseOnCancellation_Leases
@pytest.mark.parametrize("at", ["patch", "get"])
def test_release_on_cancellation(at: str) -> None:
    server = Server()
    process = Stops(LeaderElector(options(lease=15, renew=2, retry=1)), server, release=True)

    def refuse(verb: str, number: int) -> ApiError | None:
        if process.stopped:
            return None
        process.stopped |= (verb, number) == (at, 4 if at == "patch" else 3)
        if verb == "patch" and number % 2 == 1:
            return CANCELED  # each fast path
        return CANCELED if process.stopped else None

    server.refuse = refuse
    run_virtually(process.machine, server.perform, now=T0)
    assert server.holders[-1] == ""
    assert server.events == ["baz became leader", "baz stopped leading"]


# TestLeaderElectionConfigValidation, and NewLeaderElector
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (options(lease=10, renew=10), "leaseDuration must be greater than renewDeadline"),
        (options(lease=15, renew=2, retry=2), "renewDeadline must be greater than retryPeriod*JitterFactor"),
        (options(lease=15, renew=2, retry=0), "retryPeriod must be greater than zero"),
        (options(lease=0, renew=-1, retry=-1), "leaseDuration must be greater than zero"),
        (options(lease=15, renew=0, retry=-1), "renewDeadline must be greater than zero"),
        (options(identity=""), "Lock identity is empty"),
    ],
)
def test_validation(wrong: LeaderElectionOptions, text: str) -> None:
    with pytest.raises(InputError, match=text.replace("*", r"\*")):
        LeaderElector(wrong)


# TestLeaderElectionHealthChecker
@pytest.mark.parametrize(
    ("holder", "later", "message"),
    [
        ("baz", 3600, "failed election to renew leadership on lease bar"),
        ("otherServer", 3600, ""),
        ("baz", 0, ""),
        ("baz", 61, ""),
        ("baz", 80, ""),
        ("baz", 80.000000001, "failed election to renew leadership on lease bar"),
    ],
)
def test_health(holder: str, later: float, message: str) -> None:
    elector = LeaderElector(options(lease=60))
    assert elector.check(T0) == ""
    elector.observed, elector._observed_at = spec(holder), T0
    assert elector.check(T0 + round(later * SECOND), tolerance=timedelta(seconds=20)) == message


def test_a_request_that_hangs_does_not_outlast_the_renew_deadline() -> None:
    elector, server = LeaderElector(options(lease=15, renew=10, retry=2)), Server()
    assert tried(elector, server, T0)
    server.delay = lambda verb: 3600 * SECOND
    time = VirtualTime(server.perform, now=T0)
    time.start(elector.renew)
    time.run()
    assert time.now - T0 == 10 * SECOND


@pytest.mark.parametrize(
    ("takes", "tries"), [(0, [0, 2, 4, 6, 8]), (1, [0, 2, 4, 6, 8]), (3, [0, 3, 6, 9]), (4, [0, 4, 8])]
)
def test_tries_within_a_round_come_at_ticks(takes: int, tries: list[int]) -> None:
    elector, server = LeaderElector(options(lease=15, renew=10, retry=2)), Server()
    assert tried(elector, server, T0)
    begun: list[int] = []
    server.refuse = lambda verb, number: BROKEN
    server.delay = lambda verb: takes * SECOND if verb == "get" else 0

    def perform(action: Action, now: Moment) -> Outcome:
        if isinstance(action, Get):
            begun.append((now - T0) // SECOND)
        return server.perform(action, now)

    run_virtually(elector.renew, perform, now=T0)
    assert begun == tries


def test_a_dry_run_leads() -> None:
    run = run_dry(LeaderElector(options()).acquire(T0), now=T0, respond=lambda action: NOT_FOUND)
    assert run.value
    assert [type(action) for action in run.actions] == [Get, Create]
    assert [event.about for event in run.events] == ["Lease/foo/bar"]
    assert [(observation.name, observation.value) for observation in run.observations] == [
        ("leader_election_master_status", 0.0), ("leader_election_master_status", 1.0),
    ]  # fmt: skip


class Contest:
    """Two candidates at one lease. A quarter of what they ask is lost: not done, or done and not told; a call may take
    as long as a request can hang. Each leads from when its machine says so until it says that it does not."""

    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        self.server = Server()
        self.leading: dict[str, Moment] = {}
        self.turns = 0
        self.time = VirtualTime(self.perform, now=T0)
        for identity in ("a", "b"):
            self.begin(identity)

    def begin(self, identity: str) -> None:
        elector = LeaderElector(options(identity, lease=15, renew=10, retry=2))

        def process(now: Moment) -> Steps[None]:
            progress = Progress(now)
            led = yield from elector.acquire(now)
            assert led
            assert not self.leading, (self.seed, identity, self.leading, self.time.now - T0)
            self.leading[identity] = self.time.now
            self.turns += 1
            yield from elector.renew(self.time.now)
            del self.leading[identity]
            yield from progress.wait(self.rng.randrange(5 * SECOND))

        self.time.start(process, lambda value, at: self.begin(identity))

    def perform(self, action: Action, now: Moment) -> Outcome:
        if isinstance(action, Emit | Observe):
            return Outcome(at=now)
        fate = self.rng.random()
        late = now + self.rng.randrange(SECOND // 100, 2 * SECOND if fate > 0.02 else 60 * SECOND)
        if fate < 0.15:
            return Outcome(at=late, error=BROKEN)
        outcome = self.server.perform(action, now)
        if fate < 0.25:
            return Outcome(at=late, error=BROKEN)
        return Outcome(at=late, value=outcome.value, error=outcome.error)


def test_two_candidates_never_lead_at_once() -> None:
    turns, contests = 0, 1000 if is_nightly() else 200
    for seed in range(contests):
        contest = Contest(seed)
        contest.time.run(until=T0 + 120 * SECOND)
        turns += contest.turns
    assert turns > 1.3 * contests  # leadership did change hands


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, dict[str, Any]]]:
    keys = ("lock", "err", "holder", "leader")
    return [
        (each.levelname, each.getMessage(), {key: vars(each)[key] for key in keys if key in vars(each)})
        for each in caplog.records
    ]


LOCK = {"lock": "foo/bar"}


def test_each_change_and_each_failed_try_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Of an API server that is away, of a lease that another holds, and of one that is taken."""
    server = Server(spec("bing", 5))
    server.refuse = lambda verb, number: BROKEN if (verb, number) == ("get", 1) else None
    elector = LeaderElector(options())
    with caplog.at_level("DEBUG", "kscale.drivers.leader_election"):
        assert run_virtually(elector.acquire, server.perform, now=T0)
    lines = logged(caplog)
    assert lines[:5] == [
        ("INFO", "Attempting to acquire leader lease...", LOCK),
        ("ERROR", "Error retrieving lease lock", LOCK | {"err": "connection reset"}),
        ("DEBUG", "Failed to acquire lease", LOCK),
        ("DEBUG", "Lease is held by and has not yet expired", LOCK | {"holder": "bing"}),
        ("INFO", "New leader elected", LOCK | {"leader": "bing"}),
    ]
    assert lines[-2:] == [
        ("INFO", "New leader elected", LOCK | {"leader": "baz"}),
        ("INFO", "Successfully acquired lease", LOCK),
    ]


@pytest.mark.parametrize(
    ("verb", "lease", "text"),
    [
        ("create", None, "Error initially creating lease lock"),
        ("patch", spec(""), "Failed to update lease"),
    ],
)
def test_a_lease_that_cannot_be_written_is_logged(
    verb: str, lease: LeaseSpec | None, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(lease)
    server.refuse = lambda method, number: CONFLICT if (method, number) == (verb, 1) else None
    assert run_virtually(LeaderElector(options()).acquire, server.perform, now=T0)
    assert ("ERROR", text, LOCK | {"err": "changed"}) in logged(caplog)


def test_a_lease_that_cannot_be_renewed_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    elector = LeaderElector(options())
    assert run_virtually(elector.acquire, server.perform, now=T0)
    server.refuse = lambda verb, number: BROKEN
    with caplog.at_level("DEBUG", "kscale.drivers.leader_election"):
        run_virtually(elector.renew, server.perform, now=T0 + SECOND)
    lines = logged(caplog)
    assert (
        "DEBUG",
        "Failed to update lease optimistically, falling back to slow path",
        LOCK | {"err": "connection reset"},
    ) in lines
    assert ("ERROR", "Error retrieving lease lock", LOCK | {"err": "connection reset"}) in lines
    assert lines[-1] == ("INFO", "Failed to renew lease", LOCK)
