"""Lists that nobody may look at."""

import pickle

from kscale.effects import Deferred, Emit, Event, Moment, Progress, Steps, run_dry
from kscale.objects.api.core import ObjectReference


def test_deferred_items_are_built_once_on_access() -> None:
    created: list[str] = []

    def make() -> list[str]:
        created.append("made")
        return ["a", "b"]

    some: Deferred[str] = Deferred(make)
    assert created == []
    assert (len(some), list(some), some[1], repr(some)) == (2, ["a", "b"], "b", "['a', 'b']")
    assert some == ["a", "b"] == some
    assert some != ["a"]
    assert created == ["made"]


def test_deferred_items_are_pickled_as_lists() -> None:
    some = Deferred(lambda: (name for name in "ab"))
    assert pickle.loads(pickle.dumps(some)) == ["a", "b"]


def test_events_of_a_dry_run_are_built_on_access() -> None:
    created: list[str] = []

    def say(name: str) -> Event:
        created.append(name)
        return Event(regarding=ObjectReference(kind="Pod", name=name), type="Normal", reason="R", message="m")

    def machine(now: Moment) -> Steps[None]:
        p = Progress(now)
        yield from p.act(Emit(Deferred(lambda: map(say, "ab"))))

    done = run_dry(machine(0), now=0)
    assert created == []
    assert [event.about for event in done.events] == ["Pod/a", "Pod/b"]
    assert created == ["a", "b"]
