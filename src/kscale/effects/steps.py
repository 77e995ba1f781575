"""Helpers to write a step machine: perform one action, and track the time."""

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
from kscale.effects.legal_outcomes import check_outcome
from kscale.effects.moments import Moment
from kscale.effects.outcomes import Outcome
from kscale.objects.times import virtual_moment

__all__ = ["Progress", "Steps", "StepsOf"]

_A = TypeVar("_A", bound=Action)


class Progress:
    """State of one running machine. ``now`` is the time of its last outcome; every outcome is checked."""

    __slots__ = ("now",)

    def __init__(self, now: datetime | Moment) -> None:
        """Start at ``now``. Raises InputError if it is not a time."""
        self.now: Moment = virtual_moment(now)

    def act(self, action: _A) -> StepsOf[_A, Outcome]:
        """Perform one action and return its outcome.

        Raises :class:`~kscale.effects.IllegalOutcomeError` for an illegal outcome.
        """
        outcome = check_outcome(action, (yield action))
        self.now = outcome.at
        return outcome

    def wait(self, duration: int, *, jitter: float = 0.0) -> StepsOf[Wait, Outcome]:
        """Wait ``duration`` nanoseconds, and with ``jitter`` up to that share of them longer.

        An error in the outcome means that the wait was cut short.
        """
        return (yield from self.act(Wait(duration, jitter)))

    def clock(self) -> StepsOf[Wait, Moment]:
        """Return the current time, including computation since the last outcome. Lets other machines run."""
        yield from self.act(Wait(0))
        return self.now

    def together(
        self, machines: Sequence[Machine], *, at_most: int | None = None, brief: bool = False
    ) -> StepsOf[Together, list[Any]]:
        """Run machines concurrently and return their results in order.

        ``at_most`` machines run at a time (None: all). ``brief``: each of their steps takes well under a millisecond.
        """
        action = Together(machines=tuple(machines), at_most=at_most, brief=brief)
        results: list[Any] = (yield from self.act(action)).value
        return results

    def within(self, duration: int, machine: Machine) -> StepsOf[Within, Any]:
        """Run a machine with a timeout of ``duration`` nanoseconds and return its result."""
        return (yield from self.act(Within(duration, machine))).value

    def emit(self, *events: Event) -> StepsOf[Emit, None]:
        """Record events. Without events nothing is yielded."""
        if events:
            yield from self.act(Emit(events))

    def observe(self, *observations: Observation) -> StepsOf[Observe, None]:
        """Record observations. Without observations nothing is yielded."""
        if observations:
            yield from self.act(Observe(observations))
