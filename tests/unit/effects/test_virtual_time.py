"""The order in which machines run in virtual time."""

from __future__ import annotations

import weakref
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kscale.effects import (
    DEADLINE_EXCEEDED,
    Action,
    ApiError,
    DecreaseTargetSize,
    Emit,
    Event,
    Get,
    IllegalOutcomeError,
    InBackground,
    IncreaseSize,
    Moment,
    Observation,
    Outcome,
    Progress,
    Steps,
    VirtualTime,
    run_virtually,
)
from kscale.effects.progress import SingleAction
from kscale.errors import InputError
from kscale.objects.api.core import ObjectReference
from kscale.snapshot.caches import collector_paused

T0 = 1_000


def no_requests(action: Action, now: Moment) -> Outcome:
    raise AssertionError(action)


def sleeper(log: list[Any], name: str, naps: list[int], now: Moment) -> Steps[str]:
    p = Progress(now)
    log.append((name, p.now - T0))
    for nap in naps:
        yield from p.wait(nap)
        log.append((name, p.now - T0))
    return name


def test_time_decides_and_then_the_turn() -> None:
    log: list[Any] = []

    def machine(now: Moment) -> Steps[list[str]]:
        p = Progress(now)
        yield from p.act(InBackground(partial(sleeper, log, "back", [2, 2])))
        names = yield from p.together([partial(sleeper, log, name, [n]) for n, name in ((3, "c"), (1, "a"), (2, "b"))])
        log.append(("joined", p.now - T0))
        return names

    assert run_virtually(machine, no_requests, now=T0) == ["c", "a", "b"]
    assert log == [
        ("back", 0), ("c", 0), ("a", 0), ("b", 0), ("a", 1), ("back", 2), ("b", 2),
        ("c", 3), ("joined", 3), ("back", 4),
    ]  # fmt: skip


@pytest.mark.parametrize(("at_most", "took"), [(None, 2), (1, 10), (2, 6), (5, 2), (9, 2)])
def test_so_many_at_a_time(at_most: int | None, took: int) -> None:
    log: list[Any] = []

    def machine(now: Moment) -> Steps[int]:
        p = Progress(now)
        yield from p.together([partial(sleeper, log, str(i), [2]) for i in range(5)], at_most=at_most)
        return p.now - now

    assert run_virtually(machine, no_requests, now=T0) == took
    assert [name for name, when in log if when == 0] == [str(i) for i in range(at_most or 5)][:5]


class Returned:
    """What a machine returns, of which can be seen whether somebody has it still."""


def test_results_of_machines_are_freed_with_the_last_reference() -> None:
    """Nothing is left for the cyclic garbage collector, which would have to walk over a whole world to find it."""
    result: list[weakref.ref[Returned]] = []

    def one(now: Moment) -> Steps[Returned]:
        yield from Progress(now).wait(1)
        created = Returned()
        result.append(weakref.ref(created))
        return created

    def both(now: Moment) -> Steps[int]:
        return len((yield from Progress(now).together([one, one], at_most=1)))

    with collector_paused():
        assert run_virtually(both, no_requests, now=T0) == 2
        assert [each() for each in result] == [None, None]


def test_together_without_machines_returns_an_empty_list() -> None:
    def machine(now: Moment) -> Steps[list[Any]]:
        return (yield from Progress(now).together([]))

    assert run_virtually(machine, no_requests, now=T0) == []


def test_delayed_action_is_done_at_its_end() -> None:
    done: list[tuple[str, Moment]] = []

    def perform(action: Action, now: Moment) -> Outcome:
        done.append((type(action).__name__, now - T0))
        return Outcome(at=now)

    def machine(now: Moment) -> Steps[None]:
        p = Progress(now)
        yield from p.act(DecreaseTargetSize(group="g", delta=-1))
        yield from p.act(IncreaseSize(group="g", delta=1))
        done.append(("ended", p.now - T0))

    time = VirtualTime(perform, now=T0, latency=lambda action: 30 if isinstance(action, IncreaseSize) else 0)
    time.start(machine)
    running = time.start(machine)
    time.run(T0 + 10)
    running.cancel()
    time.run()
    assert done == [("DecreaseTargetSize", 0), ("DecreaseTargetSize", 0), ("IncreaseSize", 30), ("ended", 30)]


def test_an_action_is_performed_after_the_shortest_latency() -> None:
    performed: list[Moment] = []

    def perform(action: Action, now: Moment) -> Outcome:
        performed.append(now)
        return Outcome(at=now)

    def machine(now: Moment) -> Steps[None]:
        yield from Progress(now).act(IncreaseSize(group="g", delta=1))

    time = VirtualTime(perform, now=T0, latency=lambda action: 1)
    time.start(machine)
    time.run()
    assert performed == [T0 + 1]


def test_up_to_a_moment() -> None:
    log: list[Any] = []
    time = VirtualTime(no_requests, now=T0)
    running = time.start(partial(sleeper, log, "a", [5, 5]))
    time.run(T0 + 5)
    assert (log, time.now, time.idle, time.next_due) == ([("a", 0), ("a", 5)], T0 + 5, False, T0 + 10)
    time.run(T0 + 7)
    assert (time.now, running.ended) == (T0 + 7, False)
    with pytest.raises(RuntimeError, match="under way"):
        _ = running.value
    time.run()
    assert (log[-1], time.now, time.idle, time.next_due) == (("a", 10), T0 + 10, True, None)
    assert running.value == "a"
    assert not time.step()


def test_at_one_time_the_rank_decides() -> None:
    log: list[Any] = []
    time = VirtualTime(no_requests, now=T0)
    time.start(partial(sleeper, log, "driver", [3]), rank=1)
    time.at(T0 + 3, lambda: log.append(("world", 3)))
    time.at(T0, lambda: log.append(("world", 0)))
    time.run()
    assert log == [("world", 0), ("driver", 0), ("world", 3), ("driver", 3)]


def test_cancelled_machine_is_closed() -> None:
    log: list[Any] = []
    closed: list[bool] = []

    def machine(now: Moment) -> Steps[None]:
        try:
            yield from sleeper(log, "a", [5, 5], now)
        finally:
            closed.append(True)

    time = VirtualTime(no_requests, now=T0)
    running = time.start(machine)
    never = time.at(T0 + 1, lambda: log.append("never"))
    never.cancel()
    time.run(T0 + 5)
    running.cancel()
    assert (closed, time.next_due, time.idle) == ([True], None, True)
    time.run()
    assert log == [("a", 0), ("a", 5)]


def test_events_before_a_late_answer_happen_first() -> None:
    """A request that times out may have happened all the same: the world does it before it says no."""
    log: list[str] = []

    def perform(action: Action, now: Moment) -> Outcome:
        time.at(now + 3, lambda: log.append("resized"))
        return Outcome(at=now + 10)

    def machine(now: Moment) -> Steps[None]:
        yield from Progress(now).act(IncreaseSize(group="a", delta=1))
        log.append("told")

    time = VirtualTime(perform, now=T0)
    time.start(machine)
    time.run()
    assert (log, time.now) == (["resized", "told"], T0 + 10)


def test_invalid_limits_are_value_errors() -> None:
    def too_few(now: Moment) -> Steps[Any]:
        return (yield from Progress(now).together([partial(sleeper, [], "a", [])], at_most=0))

    with pytest.raises(ValueError, match="0 machines at a time never end"):
        run_virtually(too_few, no_requests, now=T0)

    def reader(now: Moment) -> Steps[Any]:
        return (yield from Progress(now).act(IncreaseSize(group="a", delta=1)))

    with pytest.raises(IllegalOutcomeError, match=r"IncreaseSize: it ended at .*, before it began"):
        run_virtually(reader, lambda action, now: Outcome(at=now - 1), now=T0)
    with pytest.raises(IllegalOutcomeError, match="Get: an object of the kind is due, not NoneType"):
        run_virtually(lambda now: Progress(now).act(Get(kind="Pod", name="p")), lambda _, now: Outcome(at=now), now=T0)
    with pytest.raises(ValueError, match="is over"):
        VirtualTime(no_requests, now=T0).at(T0 - 1, list)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-2, 2)), max_size=30))
def test_due_callbacks_run_by_time_rank_and_order(due: list[tuple[int, int]]) -> None:
    log: list[tuple[int, int, int]] = []
    time = VirtualTime(no_requests, now=T0)
    for turn, (after, rank) in enumerate(due):
        time.at(T0 + after, lambda item=(after, rank, turn): log.append(item), rank=rank)
    times = []
    while (at := time.next_due) is not None:
        times.append(at)
        assert time.step()
        assert time.now == at
    assert log == sorted((after, rank, turn) for turn, (after, rank) in enumerate(due))
    assert times == sorted(times)


def slow(log: list[Any], action: Action, now: Moment) -> Outcome:
    log.append((type(action).__name__, now - T0))
    return Outcome(at=now + 7)


def test_a_machine_that_runs_out_of_time() -> None:
    log: list[Any] = []

    def machine(now: Moment) -> Steps[str]:
        p = Progress(now)
        outcomes = []
        for action in (IncreaseSize(group="a", delta=1), IncreaseSize(group="b", delta=1)):
            outcome = yield from p.act(action)
            outcomes.append((outcome.error, p.now - T0))
        yield from p.emit(
            Event(regarding=ObjectReference(), type="Normal", reason="Late", message="taken all the same")
        )
        assert (yield from p.wait(5)).error == DEADLINE_EXCEEDED
        log.extend(outcomes)
        return "given up"

    def outer(now: Moment) -> Steps[tuple[str, Moment]]:
        p = Progress(now)
        value = yield from p.within(10, machine)
        return value, p.now - T0

    def perform(action: Action, now: Moment) -> Outcome:
        return Outcome(at=now) if isinstance(action, Emit) else slow(log, action, now)

    assert run_virtually(outer, perform, now=T0) == ("given up", 10)
    # The second was asked for, and may have happened; how it went nobody waited for.
    assert log == [("IncreaseSize", 0), ("IncreaseSize", 7), (None, 7), (DEADLINE_EXCEEDED, 10)]


def test_time_is_shared_with_machines_together_and_never_grows() -> None:
    def asks(now: Moment) -> Steps[tuple[str, Moment]]:
        p = Progress(now)
        outcome = yield from p.act(IncreaseSize(group="a", delta=1))
        return outcome.error.message if outcome.error else "", p.now - T0

    def both(now: Moment) -> Steps[list[Any]]:
        p = Progress(now)
        return [*(yield from p.together([asks, asks])), (yield from p.within(100, asks))]

    def outer(now: Moment) -> Steps[Any]:
        p = Progress(now)
        in_time = yield from p.within(7, asks)
        late = yield from p.within(4, both)
        yield from p.act(InBackground(lambda at: afterwards(at)))
        return in_time, late

    ended: list[Any] = []

    def afterwards(now: Moment) -> Steps[None]:
        ended.append((yield from asks(now)))

    result = run_virtually(outer, lambda action, now: Outcome(at=now + 7), now=T0)
    exceeded = "context deadline exceeded"
    assert result == (("", 7), [(exceeded, 11), (exceeded, 11), (exceeded, 11)])
    assert ended == [("", 18)]


def test_background_machine_has_no_time_limit_of_its_parent() -> None:
    ended: list[Moment] = []

    def child(now: Moment) -> Steps[None]:
        p = Progress(now)
        assert (yield from p.wait(50)).error is None
        ended.append(p.now - T0)

    def parent(now: Moment) -> Steps[None]:
        yield from Progress(now).act(InBackground(child))

    def outer(now: Moment) -> Steps[None]:
        yield from Progress(now).within(1, parent)

    run_virtually(outer, no_requests, now=T0)
    assert ended == [50]


def test_now_is_an_aware_datetime_or_a_moment() -> None:
    assert VirtualTime(no_requests, now=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)).now == 10**9
    for wrong in (datetime(2026, 5, 4), "2026-05-04T00:00:00Z", 1.5):  # noqa: DTZ001  # a time without a zone is refused
        with pytest.raises(InputError, match="now"):
            VirtualTime(no_requests, now=wrong)


class _Write(SingleAction):
    """One write, which goes on with two more if the world refuses it, and can end with a report as generators do."""

    def __init__(self, name: str, log: list[Any], *, reports: bool, is_needed: bool) -> None:
        self.name, self.log, self.is_needed = name, log, is_needed
        self.waits_to_end = reports

    def build(self, now: Moment) -> Action | None:
        self.log.append(("built", self.name, now))
        return IncreaseSize(group=self.name, delta=1) if self.is_needed else None

    def finish(self, outcome: Outcome) -> Steps[None] | None:
        self.log.append(("answered", self.name, outcome.at))
        return None if outcome.error is None else self.try_again(outcome.at)

    def try_again(self, now: Moment) -> Steps[None]:
        p = Progress(now)
        for each in ("again", "at last"):
            yield from p.observe(Observation(name=each))
            yield from p.act(IncreaseSize(group=f"{self.name} {each}", delta=1))


def _as_generator(write: _Write, now: Moment) -> Steps[None]:
    """The same machine as any other one: its report is an action."""
    action = write.build(now)
    if action is None:
        return
    p = Progress(now)
    outcome = yield from p.act(action)
    more = write.finish(outcome)
    if more is not None:
        yield from more
    elif write.waits_to_end:
        yield from p.observe(Observation(name="done"))


_WRITES = st.lists(
    st.tuples(
        st.sampled_from(["single", "single", "single", "other"]),
        st.sampled_from([True, True, True, False]),
        st.sampled_from([False, False, True]),
        st.booleans(),
        st.sampled_from([0, 0, 0, 1]),
    ),
    min_size=3,
    max_size=9,
)


_PLAIN: Any = ("single", True, False, False, 0)
_REPORTING: Any = ("single", True, False, True, 0)
_REFUSED: Any = ("single", True, True, False, 0)
_OTHER: Any = ("other", True, False, False, 0)


@example([("single", True, True, True, 0), _REPORTING, _OTHER], 2, 0, False)
@example([_REPORTING, _REFUSED, _PLAIN], 2, 0, False)
@example([_PLAIN, _REFUSED, _OTHER, _PLAIN, _PLAIN], 3, 1, False)
@example([_REPORTING, _PLAIN, _REFUSED, _PLAIN, _PLAIN], 3, 1, False)
@given(_WRITES, st.integers(2, 4), st.sampled_from([1, 1, 2, 0]), st.booleans())
def test_single_actions_run_in_the_order_of_other_machines(
    writes: list[tuple[str, bool, bool, bool, int]], at_most: int, latency: int, causes: bool
) -> None:
    """Whatever they share: refusals, outcomes that come late, and events of others that their actions cause."""

    def run(all_alike: bool) -> list[Any]:
        log: list[Any] = []
        refused = {str(number): each[2] for number, each in enumerate(writes)}
        late = {str(number): each[4] for number, each in enumerate(writes)}

        def perform(action: Action, now: Moment) -> Outcome:
            if not isinstance(action, IncreaseSize):
                return Outcome(at=now)
            log.append(("performed", action.group, now))
            if causes:
                time.at(now, partial(log.append, ("caused", action.group)), rank=0)
                time.at(now, partial(log.append, ("caused later", action.group)), rank=2)
            error = ApiError("no") if refused.get(action.group) else None
            return Outcome(at=now + late.get(action.group, 0), error=error)

        time = VirtualTime(perform, now=T0, latency=lambda action: latency * isinstance(action, IncreaseSize))

        def machine(now: Moment) -> Steps[None]:
            machines: list[Any] = []
            for number, (kind, is_needed, _, reports, _) in enumerate(writes):
                write = _Write(str(number), log, reports=reports, is_needed=is_needed)
                machines.append(write if kind == "single" and not all_alike else partial(_as_generator, write))
            yield from Progress(now).together(machines, at_most=at_most)
            log.append("all")

        time.start(machine, rank=1)
        time.run()
        return log

    assert run(False) == run(True)
