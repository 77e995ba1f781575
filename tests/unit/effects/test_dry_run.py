"""The plain call: everything succeeds at once."""

import pytest

from kscale.effects import (
    ApiError,
    Emit,
    Event,
    Evict,
    Get,
    IllegalOutcomeError,
    InBackground,
    IncreaseSize,
    MissingResponseError,
    Moment,
    Observation,
    Outcome,
    Progress,
    Steps,
    Together,
    Wait,
    run_dry,
)
from kscale.objects.api.core import Node, ObjectReference
from kscale.objects.api.meta import ObjectMeta


def _event(text: str) -> Event:
    return Event(regarding=ObjectReference(kind="Node", name="n"), type="Normal", reason="Said", message=text)


def test_actions_reports_and_time_are_recorded_in_order() -> None:
    def part(name: str) -> Steps[str]:
        p = Progress(0)
        yield from p.act(Evict(namespace="shop", name=name))
        return name

    def later(now: Moment) -> Steps[None]:
        p = Progress(now)
        yield from p.emit(_event(f"later, at {now}"))

    def complete() -> Steps[tuple[int, list[str]]]:
        p = Progress(100)
        yield from p.act(IncreaseSize(group="a", delta=2))
        yield from p.emit(_event("one"), _event("two"))
        yield from p.wait(50)
        yield from p.observe(Observation(name="done_total"))
        yield from p.act(InBackground(later))
        values = yield from p.together([lambda _: part("x"), lambda _: part("y")])
        return p.now, values

    done = run_dry(complete(), now=100)
    assert done.value == (150, ["x", "y"])
    assert done.actions == [
        IncreaseSize(group="a", delta=2),
        Evict(namespace="shop", name="x"),
        Evict(namespace="shop", name="y"),
    ]
    assert [event.message for event in done.events] == ["one", "two", "later, at 150"]
    assert done.observations == [Observation(name="done_total")]


def test_reads_without_responder_raise_an_error() -> None:
    def asks() -> Steps[str]:
        p = Progress(0)
        result = yield from p.act(Get(kind="Node", name="n"))
        return result.error.message if result.error is not None else result.value.metadata.name

    with pytest.raises(MissingResponseError, match="Get asks for an object of the kind"):
        run_dry(asks(), now=0)
    node = Node(metadata=ObjectMeta(name="n"))
    assert run_dry(asks(), now=0, respond=lambda _: node).value == "n"
    assert run_dry(asks(), now=0, respond=lambda _: ApiError("gone")).value == "gone"
    with pytest.raises(IllegalOutcomeError, match="not str"):
        run_dry(asks(), now=0, respond=lambda _: "n")


def test_saying_nothing_is_no_action() -> None:
    def quiet() -> Steps[None]:
        p = Progress(0)
        yield from p.emit()
        yield from p.observe()

    assert list(quiet()) == []


def test_waits_and_company_are_not_among_the_actions() -> None:
    def waits(now: Moment) -> Steps[None]:
        yield from Progress(now).wait(5)

    def complete() -> Steps[None]:
        p = Progress(0)
        yield from p.act(Wait(3))
        yield from p.act(Together(machines=(waits, waits)))
        yield from p.act(Emit(()))

    assert run_dry(complete(), now=0).actions == []


def test_clock_follows_the_world() -> None:
    """A world in which each outcome is a second later: what is worked out takes its time."""

    def machine(now: Moment) -> Steps[list[Moment]]:
        p = Progress(now)
        first = yield from p.clock()
        second = yield from p.clock()
        return [first, second]

    steps = machine(5)
    assert next(steps) == Wait(0)
    assert steps.send(Outcome(at=8)) == Wait(0)
    with pytest.raises(StopIteration) as stopped:
        steps.send(Outcome(at=9))
    assert stopped.value.value == [8, 9]
    assert run_dry(machine(5), now=5).value == [5, 5]
