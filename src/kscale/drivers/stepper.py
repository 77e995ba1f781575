"""Steps of machines in a worker thread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

from kscale.effects import Action, Outcome, Steps
from kscale.world.protocols import Clock

__all__ = ["Done", "Stepper"]


class Done:
    """What a machine returned."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


Taken = tuple[Action | Done, int]
"""What a machine does next, or that it is done, and how many nanoseconds the step took."""


class _Step:
    """One that is due, and what comes of it."""

    __slots__ = ("outcome", "steps", "taken")

    def __init__(self, steps: Steps[Any], outcome: Outcome | None) -> None:
        self.steps, self.outcome = steps, outcome
        self.taken: asyncio.Future[Taken] = asyncio.get_running_loop().create_future()


class Stepper:
    """Takes steps in ``worker``, a thread (None: on the loop), while it holds ``turn``. Those that are due together go
    there together: to wake the thread costs more than most of them take."""

    __slots__ = ("_clock", "_due", "_task", "_turn", "_worker")

    def __init__(self, clock: Clock, worker: Executor | None, turn: asyncio.Lock) -> None:
        self._clock, self._worker, self._turn = clock, worker, turn
        self._due: list[_Step] = []
        self._task: asyncio.Task[None] | None = None

    async def advance(self, steps: Steps[Any], outcome: Outcome | None) -> Taken:
        """The next step of a machine; ``outcome`` None: its first. Raises what the machine raises. Cancelled, it is
        left once no thread is in the machine."""
        if self._worker is None:
            return _step(steps, outcome, self._clock)
        step = _Step(steps, outcome)
        self._due.append(step)
        if self._task is None:
            self._task = asyncio.create_task(self._take_all(self._worker))
        try:
            return await asyncio.shield(step.taken)
        except asyncio.CancelledError:
            if step in self._due:
                self._due.remove(step)
            else:
                await _ended(step.taken)
            raise

    async def _take_all(self, worker: Executor) -> None:
        """Until nothing is due."""
        try:
            while self._due:
                async with self._turn:
                    steps, self._due = self._due, []
                    found = await self._taken(worker, steps)
                for step, each in zip(steps, found, strict=True):
                    if isinstance(each, BaseException):
                        step.taken.set_exception(each)
                    else:
                        step.taken.set_result(each)
        finally:
            self._task = None

    async def _taken(self, worker: Executor, steps: Sequence[_Step]) -> Sequence[Taken | BaseException]:
        try:
            future = asyncio.get_running_loop().run_in_executor(worker, _take, steps, self._clock)
        except RuntimeError as error:  # there is no worker any more
            return [error] * len(steps)
        await _ended(future)
        return [asyncio.CancelledError()] * len(steps) if future.cancelled() else future.result()


def _take(steps: Sequence[_Step], clock: Clock) -> Sequence[Taken | BaseException]:
    """One after the other: a fault of one is that one's."""
    found: list[Taken | BaseException] = []
    for step in steps:
        try:
            found.append(_step(step.steps, step.outcome, clock))
        except BaseException as fault:  # noqa: BLE001 - raised where the step was asked for
            found.append(fault)
    return found


def _step(steps: Steps[Any], outcome: Outcome | None, clock: Clock) -> Taken:
    """(A StopIteration cannot leave a thread through a future.)"""
    begun = clock.monotonic()
    found: Action | Done
    try:
        found = next(steps) if outcome is None else steps.send(outcome)
    except StopIteration as stop:
        found = Done(stop.value)
    return found, clock.monotonic() - begun


async def _ended(future: asyncio.Future[Any]) -> None:
    """Waits until it is done, however often it is cancelled meanwhile."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue
    if not future.cancelled():
        future.exception()  # seen: who asked for it has been cancelled
