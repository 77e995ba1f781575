"""Helpers to write and run step machines: perform one action, track the time, and dry runs.

In a dry run actions succeed without being performed, or reads are forwarded to the world. Not in upstream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any, Generic, TypeVar

import msgspec

from kscale.effects.actions import (
    Action,
    ApiError,
    Deferred,
    Emit,
    Event,
    InBackground,
    Machine,
    Observation,
    Observe,
    Outcome,
    Steps,
    StepsOf,
    Together,
    Wait,
    Within,
)
from kscale.effects.legal_outcomes import LEGAL_OUTCOMES, check_outcome
from kscale.effects.moments import Moment
from kscale.effects.virtual_time import VirtualTime
from kscale.errors import KscaleError
from kscale.objects.argument_types import typed
from kscale.objects.times import virtual_moment

__all__ = [
    "DryRun",
    "MissingResponseError",
    "Progress",
    "Refuse",
    "Respond",
    "Steps",
    "StepsOf",
    "dry_run_steps",
    "run_dry",
    "run_dry_at_once",
]

_A = TypeVar("_A", bound=Action)


class Progress:
    """State of one running machine. ``now`` is the time of its last outcome; every outcome is checked."""

    __slots__ = ("now",)

    def __init__(self, now: datetime | Moment) -> None:
        """Start at ``now``. Raises InputError if ``now`` is not a time."""
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


_T = TypeVar("_T")

Respond = Callable[[Action], Any]
"""Returns the value of an action that reads, or an :class:`ApiError`. Not called for writes and reports."""


class MissingResponseError(KscaleError, LookupError):
    """A machine requested data from the world, and the dry run has no source for it."""


class DryRun(msgspec.Struct, Generic[_T], frozen=True):
    """Result of a dry run: return ``value`` of the machine, ``actions``, ``events`` and ``observations`` in order.

    ``actions`` has no waits and no concurrency actions, but the actions of concurrent machines. ``events`` are computed
    when they are read, if the machine deferred them.
    """

    value: _T
    actions: list[Action] = msgspec.field(default_factory=list)
    events: Sequence[Event] = msgspec.field(default_factory=list)
    observations: list[Observation] = msgspec.field(default_factory=list)


Refuse = Callable[[Action], ApiError | None]
"""Returns the error of an action that does not read, or None if it succeeds."""


@typed
def run_dry(
    steps: Steps[_T], *, now: datetime | Moment, respond: Respond | None = None, refuse: Refuse | None = None
) -> DryRun[_T]:
    """Run a machine as if every action succeeded at once, except those that ``refuse`` rejects. Waiting takes its time.

    Machines that it starts in the background are run to their end, too.

    Parameters
    ----------
    now : datetime or int
        Time at which the machine was started.
    respond : callable, optional
        Returns the value of an action that reads (``Get``, ``List``, ``GetScale``, ``GetMetric``, ``RankOptions``).
    refuse : callable, optional
        Returns the error of an action that writes, or None.

    Returns
    -------
    DryRun
        Result, actions and reports.

    Raises
    ------
    MissingResponseError
        If the machine reads and ``respond`` is None.
    """
    actions: list[Action] = []
    events: list[Sequence[Event]] = []
    observations: list[Observation] = []

    def perform(action: Action, at: Moment) -> Outcome:
        if isinstance(action, Emit):
            events.append(action.events)
            return Outcome(at=at)
        if isinstance(action, Observe):
            observations.extend(action.observations)
            return Outcome(at=at)
        actions.append(action)
        rule = LEGAL_OUTCOMES.get(type(action))
        if rule is None or not rule.reads:
            return Outcome(at=at, error=None if refuse is None else refuse(action))
        if respond is None:
            raise MissingResponseError(
                f"{type(action).__name__} asks for {rule.description}: nobody answers in a dry run"
            )
        response = respond(action)
        return Outcome(at=at, error=response) if isinstance(response, ApiError) else Outcome(at=at, value=response)

    time = VirtualTime(perform, now=now)
    running = time.start(lambda _: steps)
    time.run()
    return DryRun(running.value, actions, Deferred(lambda: chain.from_iterable(events)), observations)


@typed
def run_dry_at_once(steps: Steps[_T], *, now: datetime | Moment) -> DryRun[_T]:
    """Run a machine that neither reads, waits nor starts other machines; faster than :func:`run_dry`.

    All its actions succeed at ``now``. Raises :class:`MissingResponseError` for any other action.
    """
    actions: list[Action] = []
    events: list[Event] = []
    observations: list[Observation] = []
    done = Outcome(at=virtual_moment(now))
    try:
        action = next(steps)
        while True:
            if type(action) is Observe:
                observations.extend(action.observations)
            elif type(action) is Emit:
                events.extend(action.events)
            elif _reads_or_waits(action):
                raise MissingResponseError(f"{type(action).__name__} is not done at once")
            else:
                actions.append(action)
            action = steps.send(done)
    except StopIteration as stop:
        return DryRun(stop.value, actions, events, observations)


def _reads_or_waits(action: Action) -> bool:
    """Return whether an action reads, waits or starts machines, so that :func:`run_dry_at_once` refuses it."""
    return isinstance(action, (Wait, Together, Within, InBackground)) or LEGAL_OUTCOMES[type(action)].reads


@typed
def dry_run_steps(steps: Steps[_T], note: Callable[[Action], None], *, now: datetime | Moment) -> Steps[_T]:
    """Run a machine, started at ``now``, as if its writes and waits succeeded at once, and return its result.

    Reads are forwarded to the world. Writes and reports are passed to ``note``. The machine sees a time in which its
    waits have passed, though nobody waits.
    """
    moment, passed = virtual_moment(now), 0
    outcome: Outcome | None = None
    while True:
        try:
            action = next(steps) if outcome is None else steps.send(outcome)
        except StopIteration as stop:
            value: _T = stop.value
            return value
        rule = LEGAL_OUTCOMES.get(type(action))
        if isinstance(action, Together):
            machines = tuple(partial(_foreseen, machine, note) for machine in action.machines)
            outcome = yield msgspec.structs.replace(action, machines=machines)
        elif isinstance(action, Within | InBackground):
            outcome = yield msgspec.structs.replace(action, machine=partial(_foreseen, action.machine, note))
        elif rule is not None and rule.reads:
            outcome = yield action
        else:
            if isinstance(action, Wait):
                passed += max(action.duration, 0)
            else:
                note(action)
            outcome = Outcome(at=moment)
        moment = outcome.at
        outcome = msgspec.structs.replace(outcome, at=moment + passed)


def _foreseen(machine: Machine, note: Callable[[Action], None], now: Moment) -> Steps[Any]:
    """Run a machine that another one starts, as :func:`dry_run_steps` does."""
    return dry_run_steps(machine(now), note, now=now)
