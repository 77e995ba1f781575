"""The admission controller's lease: when it counts, and how it is renewed."""

from __future__ import annotations

import pytest

from kscale.drivers.status_lease import (
    CreateLease,
    GetLease,
    LeaseAnswer,
    LeaseRequest,
    Pause,
    StatusLease,
    UpdateLease,
    is_valid,
    renew_steps,
)

SECOND = 10**9
NOW = 1767571200 * SECOND
LEASE = StatusLease(created=NOW - 3600 * SECOND, holder="old")


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
    moments = [None if ago is None else NOW - ago * SECOND for ago in (created, renewed)]
    lease = StatusLease(created=moments[0], renewed=moments[1])
    assert is_valid(lease, NOW, timeout * SECOND) == valid


def run(*answers: LeaseAnswer) -> tuple[list[LeaseRequest], str]:
    steps = renew_steps("host")
    asked = [next(steps)]
    for answer in answers:
        try:
            asked.append(steps.send(answer))
        except StopIteration as stop:
            return asked, stop.value
    raise AssertionError(f"more is asked: {asked}")


FOUND = LeaseAnswer(lease=LEASE, now=NOW)
MISSING = LeaseAnswer(reason="NotFound")
DONE = LeaseAnswer()


def test_renewal() -> None:
    asked, text = run(FOUND, DONE)
    assert text == ""
    assert asked == [
        GetLease("kube-system", "vpa-admission-controller"),
        UpdateLease(StatusLease(created=LEASE.created, renewed=NOW, holder="host")),
    ]


def test_a_lease_that_is_missing_is_created_without_a_time_of_renewal() -> None:
    asked, text = run(MISSING, DONE)
    assert (asked[1], text) == (CreateLease(StatusLease(holder="host")), "")


@pytest.mark.parametrize(
    "answers", [(MISSING, LeaseAnswer(reason="AlreadyExists")), (FOUND, LeaseAnswer(reason="Conflict"))]
)
def test_another_replica_was_faster(answers: tuple[LeaseAnswer, ...]) -> None:
    assert run(*answers)[1] == ""


@pytest.mark.parametrize(
    "answer",
    [LeaseAnswer(reason=r) for r in ("InternalError", "Timeout", "ServerTimeout", "TooManyRequests", "Connection")]
    + [LeaseAnswer(reason="Unknown", retry_after=True)],
)
def test_what_may_pass_is_tried_three_times(answer: LeaseAnswer) -> None:
    asked, text = run(answer, DONE, answer, DONE, answer)
    assert [one.duration for one in asked if isinstance(one, Pause)] == [SECOND // 10, 3 * SECOND // 10]
    assert sum(isinstance(one, GetLease) for one in asked) == 3
    assert text == answer.reason
    assert run(answer, DONE, FOUND, DONE)[1] == ""


def test_what_does_not_pass_is_tried_once() -> None:
    asked, text = run(LeaseAnswer(reason="Forbidden", message="no"))
    assert (len(asked), text) == (1, "no")
