"""Running machines in a simulated world: everything that can happen, in one order.

Upstream's goroutines have no order. Here it is time, and at one time the order in which machines came to their turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from heapq import heappop, heappush
from typing import Any

from kscale.ca.scale_down.actuation.actions import Action, InBackground, Machine, Outcome, Steps, Together, Wait

__all__ = ["Perform", "Simulation", "run"]

Perform = Callable[[Action, datetime], Outcome]
"""Does an action (never a Wait, Together or InBackground) at a moment; its outcome is not earlier."""

_Done = Callable[[Any, datetime], None]


class Simulation:
    """Machines under way in one world, and the time there. Single owner."""

    __slots__ = ("_due", "_perform", "_turn", "now")

    def __init__(self, perform: Perform, *, now: datetime) -> None:
        self.now = now
        self._perform = perform
        self._turn = 0
        self._due: list[tuple[datetime, int, Callable[[datetime], None]]] = []

    def start(self, machine: Machine, done: _Done | None = None) -> None:
        """Begins a machine now; ``done`` is told what it returns, and when."""
        self._at(self.now, lambda now: self._advance(machine(now), None, done))

    def run(self, until: datetime | None = None) -> None:
        """Until nothing is left to do, or up to a moment (what is due then is done)."""
        while self._due and (until is None or self._due[0][0] <= until):
            self.now, _, act = heappop(self._due)
            act(self.now)
        if until is not None:
            self.now = max(self.now, until)

    @property
    def idle(self) -> bool:
        """Nothing is under way."""
        return not self._due

    def _at(self, time: datetime, act: Callable[[datetime], None]) -> None:
        self._turn += 1
        heappush(self._due, (time, self._turn, act))

    def _advance(self, steps: Steps[Any], outcome: Outcome | None, done: _Done | None) -> None:
        try:
            action = next(steps) if outcome is None else steps.send(outcome)
        except StopIteration as stop:
            if done is not None:
                done(stop.value, self.now)
            return

        def resume(found: Outcome) -> None:
            if found.at < self.now:
                raise ValueError(f"{type(action).__name__} ended at {found.at}, before it began ({self.now})")
            self._at(found.at, lambda _: self._advance(steps, found, done))

        match action:
            case Wait(duration=duration):
                resume(Outcome(at=self.now + duration))
            case InBackground(machine=machine):
                self.start(machine)
                resume(Outcome(at=self.now))
            case Together(machines=machines, at_most=at_most):
                self._together(machines, at_most, resume)
            case _:
                resume(self._perform(action, self.now))

    def _together(self, machines: list[Machine], at_most: int | None, resume: Callable[[Outcome], None]) -> None:
        values: list[Any] = [None] * len(machines)
        waiting = deque(enumerate(machines))
        left = len(machines)

        def begin() -> None:
            index, machine = waiting.popleft()

            def done(value: Any, at: datetime) -> None:
                nonlocal left
                values[index] = value
                left -= 1
                if waiting:
                    begin()
                elif not left:
                    resume(Outcome(at=at, value=values))

            self.start(machine, done)

        if at_most is not None and at_most < 1:
            raise ValueError(f"{at_most} machines at a time never end")
        if not machines:
            resume(Outcome(at=self.now, value=values))
        for _ in range(len(machines) if at_most is None else min(at_most, len(machines))):
            begin()


def run(machine: Machine, perform: Perform, *, now: datetime) -> Any:
    """What a machine returns, after everything that it started in the background has ended, too."""
    found: list[Any] = []
    simulation = Simulation(perform, now=now)
    simulation.start(machine, lambda value, _: found.append(value))
    simulation.run()
    return found[0]
