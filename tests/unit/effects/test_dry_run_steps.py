"""What a machine would do: its questions are asked, what it does is only noted."""

from __future__ import annotations

from kscale.effects import (
    SECOND,
    Action,
    ApiError,
    Delete,
    Get,
    InBackground,
    Moment,
    Outcome,
    Progress,
    Steps,
    dry_run_steps,
    run_virtually,
)
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import ObjectMeta

NOW = 1_800_000_000 * SECOND
GET = Get(kind="Pod", api_version="v1", namespace="shop", name="web")
DELETE = Delete(kind="Pod", api_version="v1", namespace="shop", name="web")
POD = Pod(metadata=ObjectMeta(name="web", namespace="shop"))


def deleting(now: Moment) -> Steps[tuple[bool, int, list[int]]]:
    """Asks, waits, and deletes: in turn, in company, in limited time and in the background."""
    progress = Progress(now)
    result = yield from progress.act(GET)
    yield from progress.wait(3 * SECOND)

    def delete(begun: Moment) -> Steps[int]:
        own = Progress(begun)
        yield from own.wait(SECOND)
        assert (yield from own.act(DELETE)).error is None
        return own.now - begun

    took = yield from progress.together([delete, delete])
    took.append((yield from progress.within(5 * SECOND, delete)))
    yield from progress.act(InBackground(delete))
    return result.error is None, progress.now - now, took


def test_dry_run_performs_reads_and_no_writes() -> None:
    queries: list[Action] = []
    noted: list[Action] = []

    def world(action: Action, at: Moment) -> Outcome:
        assert at == NOW  # nobody waits
        queries.append(action)
        return Outcome(at=at, value=POD)

    steps = dry_run_steps(deleting(NOW), noted.append, now=NOW)
    result, passed, took = run_virtually(lambda _: steps, world, now=NOW)
    assert (result, took) == (True, [SECOND] * 3)
    assert passed == 3 * SECOND
    assert (queries, noted) == ([GET], [DELETE] * 4)


def test_dry_run_returns_refusals_of_reads() -> None:
    steps = dry_run_steps(deleting(NOW), lambda _: None, now=NOW)
    refusal = ApiError("no", 403, "Forbidden")
    result, _, _ = run_virtually(lambda _: steps, lambda _, at: Outcome(at=at, error=refusal), now=NOW)
    assert not result
