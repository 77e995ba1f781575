"""Helpers to write a step machine: request one thing, and know the time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

from kscale.effects.actions import (
    Action,
    Emit,
    Event,
    Machine,
    Observation,
    Observe,
    Steps,
    StepsOf,
    Together,
    Wait,
    Within,
)
from kscale.effects.legal_outcomes import check_answer
from kscale.effects.moments import Moment
from kscale.effects.outcomes import Outcome
from kscale.objects.times import virtual_moment

__all__ = ["Progress", "Steps", "StepsOf"]

_A = TypeVar("_A", bound=Action)


class Progress:
    """One machine under way. ``now`` is the moment of its last outcome; every answer is held against the table."""

    __slots__ = ("now",)

    def __init__(self, now: datetime | Moment) -> None:
        """``now``: when it was begun. Raises InputError for what is no moment."""
        self.now: Moment = virtual_moment(now)

    def act(self, action: _A) -> StepsOf[_A, Outcome]:
        """Does one thing. Raises :class:`~kscale.effects.WrongAnswerError` for what is no answer to it."""
        outcome = check_answer(action, (yield action))
        self.now = outcome.at
        return outcome

    def wait(self, duration: int, *, jitter: float = 0.0) -> StepsOf[Wait, Outcome]:
        """Lets so many nanoseconds pass (``duration``), and with ``jitter`` up to that share of them more. An error in
        the outcome: the wait was cut short."""
        return (yield from self.act(Wait(duration, jitter)))

    def clock(self) -> StepsOf[Wait, Moment]:
        """What time it is by now: what was worked out since the last outcome took its time, too. Lets others run."""
        yield from self.act(Wait(0))
        return self.now

    def together(
        self, machines: Sequence[Machine], *, at_most: int | None = None, brief: bool = False
    ) -> StepsOf[Together, list[Any]]:
        """What the machines return, in their order; ``at_most`` so many are under way at a time (None: all).
        ``brief``: each of their steps takes well under a millisecond."""
        action = Together(machines=tuple(machines), at_most=at_most, brief=brief)
        found: list[Any] = (yield from self.act(action)).value
        return found

    def within(self, duration: int, machine: Machine) -> StepsOf[Within, Any]:
        """What a machine returns that has so many nanoseconds (``duration``)."""
        return (yield from self.act(Within(duration, machine))).value

    def emit(self, *events: Event) -> StepsOf[Emit, None]:
        """Records events; none costs nothing."""
        if events:
            yield from self.act(Emit(events))

    def observe(self, *observations: Observation) -> StepsOf[Observe, None]:
        """Counts observations; none costs nothing."""
        if observations:
            yield from self.act(Observe(observations))
