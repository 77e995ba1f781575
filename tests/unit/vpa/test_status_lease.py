"""The admission controller's lease: when it counts, and how it is renewed and read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kscale.effects import (
    DEADLINE_EXCEEDED,
    ZERO_TIME,
    Action,
    ApiError,
    Create,
    Get,
    Machine,
    Moment,
    Outcome,
    Patch,
    Progress,
    Steps,
    VirtualTime,
    to_text,
)
from kscale.objects.api.coordination import Lease, LeaseSpec
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.times import micro_time
from kscale.vpa.admission.status_lease import check_status_steps, is_status_valid, renew_status_steps

SECOND = 10**9
NOW = 1767571200 * SECOND


def lease(created: int | None = 3600, renewed: int | None = None) -> Lease:
    """``created`` and ``renewed``: so many seconds ago."""
    times = [None if ago is None else NOW - ago * SECOND for ago in (created, renewed)]
    return Lease(
        metadata=ObjectMeta(
            name="vpa-admission-controller",
            namespace="kube-system",
            resource_version="7",
            creation_timestamp=to_text(ZERO_TIME if times[0] is None else times[0]),
        ),
        spec=LeaseSpec(holder_identity="old", renew_time=None if times[1] is None else micro_time(times[1])),
    )


@pytest.mark.parametrize(
    ("created", "renewed", "timeout", "valid"),
    [
        (0, None, 10, True),
        (60, 0, 10, True),
        (60, 60, 10, False),
        (60, None, 10, False),
        (10, 10, 10, False),
        (None, None, 10, False),
    ],
)
def test_validity(created: int | None, renewed: int | None, timeout: int, valid: bool) -> None:
    assert is_status_valid(lease(created, renewed), NOW, timeout * SECOND) == valid


def run(machine: Machine, *answers: Any, took: int = 0) -> tuple[list[Action], Any, Moment]:
    """What is asked when these are the answers, each after ``took`` nanoseconds; what the machine returns, and when."""
    actions: list[Action] = []
    remaining: Iterator[Any] = iter(answers)

    def perform(action: Action, now: Moment) -> Outcome:
        actions.append(action)
        answer = next(remaining)
        if isinstance(answer, ApiError):
            return Outcome(at=now + took, error=answer)
        return Outcome(at=now + took, value=answer)

    time = VirtualTime(perform, now=NOW)
    running = time.start(machine)
    time.run()
    assert next(remaining, None) is None, "more was expected to be asked"
    return actions, running.value, time.now


def renew(now: Moment) -> Steps[ApiError | None]:
    return renew_status_steps("host", now=now)


MISSING = ApiError("not found", 404, "NotFound")
READ = Get(kind="Lease", api_version="coordination.k8s.io/v1", name="vpa-admission-controller", namespace="kube-system")


def test_renewal() -> None:
    actions, error, _ = run(renew, lease(), "8", took=SECOND)
    assert error is None
    assert actions == [
        READ,
        Patch(
            kind="Lease",
            api_version="coordination.k8s.io/v1",
            name="vpa-admission-controller",
            namespace="kube-system",
            patch={"spec": {"renewTime": "2026-01-05T00:00:01.000000Z", "holderIdentity": "host"}},
            resource_version="7",
        ),
    ]


def test_a_lease_that_is_missing_is_created_without_a_time_of_renewal() -> None:
    (_, created), error, _ = run(renew, MISSING, None)
    assert error is None
    assert isinstance(created, Create)
    assert isinstance(created.object, Lease)
    assert (created.object.key, created.object.api_version) == (
        "kube-system/vpa-admission-controller",
        "coordination.k8s.io/v1",
    )
    assert created.object.spec == LeaseSpec(holder_identity="host", lease_duration_seconds=10)


@pytest.mark.parametrize(
    "answers", [(MISSING, ApiError("x", 409, "AlreadyExists")), (lease(), ApiError("x", 409, "Conflict"))]
)
def test_another_replica_was_faster(answers: tuple[Any, ...]) -> None:
    assert run(renew, *answers)[1] is None


TRANSIENT = [
    *(ApiError("x", 500, reason) for reason in ("InternalError", "Timeout", "ServerTimeout", "TooManyRequests")),
    ApiError("x", 503, "Unknown", retry_after=SECOND),
    ApiError("connection reset by peer"),
]


@pytest.mark.parametrize("error", TRANSIENT)
def test_transient_errors_are_tried_three_times(error: ApiError) -> None:
    actions, given_up, at = run(renew, error, error, error)
    assert actions == [READ] * 3
    assert given_up == ApiError("timed out waiting for the condition")
    assert at - NOW == 4 * SECOND // 10  # 100 ms, then 300 ms
    assert run(renew, error, lease(), None)[1] is None
    assert run(renew, lease(), error, lease(), None)[1] is None


def test_permanent_errors_are_tried_once() -> None:
    refused = ApiError("no", 403, "Forbidden")
    assert run(renew, refused)[:2] == ([READ], refused)


def test_a_renewal_takes_no_longer_than_the_interval() -> None:
    for took, tries in ((6 * SECOND, 2), (11 * SECOND, 1)):
        actions, error, at = run(renew, *TRANSIENT[:tries], took=took)
        assert (len(actions), error, at - NOW) == (tries, DEADLINE_EXCEEDED, 10 * SECOND)


def check(now: Moment) -> Steps[bool | ApiError]:
    name, namespace = READ.name, READ.namespace
    return check_status_steps(Progress(now), name=name, namespace=namespace, timeout=60 * SECOND)


def test_reading() -> None:
    assert run(check, lease(renewed=59))[:2] == ([READ], True)
    assert run(check, lease(renewed=60))[:2] == ([READ], False)
    assert run(check, TRANSIENT[0], lease(renewed=0))[1] is True
    assert run(check, MISSING)[:2] == ([READ], MISSING)
