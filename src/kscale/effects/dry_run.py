"""Dry runs of step machines: actions succeed without being performed, or reads are forwarded to the world. Not in
upstream.
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
    Together,
    Wait,
    Within,
)
from kscale.effects.moments import Moment
from kscale.effects.progress import LEGAL_OUTCOMES, MissingResponseError
from kscale.effects.virtual_time import VirtualTime
from kscale.objects.argument_types import typed
from kscale.objects.times import virtual_moment

__all__ = [
    "DryRun",
    "Refuse",
    "Respond",
    "dry_run_steps",
    "run_dry",
]

_T = TypeVar("_T")

Respond = Callable[[Action], Any]
"""Returns the value of an action that reads, or an :class:`ApiError`. Not called for writes and reports."""


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
    """Run a step machine as if each write succeeded at once unless ``refuse`` rejects it; ``respond`` answers reads.

    Waits advance a virtual clock, and nothing sleeps. Machines that the machine starts in the background are run to
    their end, too.

    Parameters
    ----------
    steps : generator
        The machine: yields actions, receives outcomes, and returns its result.
    now : datetime or int
        Time at which the machine was started.
    respond : callable, optional
        Called with each action that reads (``Get``, ``List``, ``GetScale``, ``GetMetric``, ``RankOptions``, ...).
        Returns the action's value or an ApiError.
    refuse : callable, optional
        Called with each action that does not read. Returns the action's error, or None if it succeeds.

    Returns
    -------
    DryRun
        Return value of the machine, its actions, events and observations.

    Raises
    ------
    MissingResponseError
        If the machine reads and ``respond`` is None.
    IllegalOutcomeError
        If ``respond`` or ``refuse`` returns what the action cannot result in.
    InputError
        If ``now`` is not a time.
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
def dry_run_steps(steps: Steps[_T], note: Callable[[Action], None], *, now: datetime | Moment) -> Steps[_T]:
    """Run a step machine, started at ``now``, as if its writes and waits succeeded at once, and return its result.

    Yields only actions that read and actions that start other machines, and passes their outcomes to the machine.
    Machines that it starts run in the same way. ``note`` is called with each other action, except waits. A wait only
    moves the time that the machine gets in later outcomes. Raises InputError if ``now`` is not a time.
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
            machines = tuple(partial(_dry_run_machine, machine, note) for machine in action.machines)
            outcome = yield msgspec.structs.replace(action, machines=machines)
        elif isinstance(action, Within | InBackground):
            outcome = yield msgspec.structs.replace(action, machine=partial(_dry_run_machine, action.machine, note))
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


def _dry_run_machine(machine: Machine, note: Callable[[Action], None], now: Moment) -> Steps[Any]:
    """Start a machine at ``now``, and run it by :func:`dry_run_steps`."""
    return dry_run_steps(machine(now), note, now=now)
