"""Running a machine without doing what it does: its questions go to the world, all else is only noted. kscale's own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgspec

from kscale.effects.actions import Action, InBackground, Machine, Steps, Together, Wait, Within
from kscale.effects.answers import ANSWERS
from kscale.effects.moments import Moment
from kscale.effects.outcomes import Outcome
from kscale.objects.times import virtual_moment

__all__ = ["foreseen_steps"]

_T = TypeVar("_T")


def foreseen_steps(steps: Steps[_T], note: Callable[[Action], None], *, now: datetime | Moment) -> Steps[_T]:
    """What a machine, begun at ``now``, would return if all that it does succeeded at once.

    What it asks is asked of the world; what it does and says is told to ``note``. It goes by a time in which waits have
    passed, though nobody waits.
    """
    at, passed = virtual_moment(now), 0
    outcome: Outcome | None = None
    while True:
        try:
            action = next(steps) if outcome is None else steps.send(outcome)
        except StopIteration as stop:
            value: _T = stop.value
            return value
        answer = ANSWERS.get(type(action))
        if isinstance(action, Together):
            machines = tuple(partial(_foreseen, machine, note) for machine in action.machines)
            outcome = yield msgspec.structs.replace(action, machines=machines)
        elif isinstance(action, Within | InBackground):
            outcome = yield msgspec.structs.replace(action, machine=partial(_foreseen, action.machine, note))
        elif answer is not None and answer.question:
            outcome = yield action
        else:
            if isinstance(action, Wait):
                passed += max(action.duration, 0)
            else:
                note(action)
            outcome = Outcome(at=at)
        at = outcome.at
        outcome = msgspec.structs.replace(outcome, at=at + passed)


def _foreseen(machine: Machine, note: Callable[[Action], None], now: Moment) -> Steps[Any]:
    return foreseen_steps(machine(now), note, now=now)
