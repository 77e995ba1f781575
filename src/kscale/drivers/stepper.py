"""Steps of machines in a worker thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Final

from kscale.effects import Action, Deferred, Observe, Outcome, Steps
from kscale.world.protocols import Clock

__all__ = ["Done", "Stepper"]

_FIRST_LOOK: Final = 0.002
_LAST_LOOK: Final = 0.05
"""Seconds after which it is looked at what has come of a batch so far: most are over before the first."""
_LONG_HERE: Final = 2_000_000
"""Nanoseconds."""


class Done:
    """What a machine returned."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


Taken = tuple[Action | Done, int]
"""What a machine does next, or that it is done, and how many nanoseconds the step took."""


class _Step:
    """One that is due, and what comes of it."""

    __slots__ = ("_begun", "outcome", "steps", "taken")

    def __init__(self, steps: Steps[Any], outcome: Outcome | None) -> None:
        self.steps, self.outcome = steps, outcome
        self.taken: asyncio.Future[Taken] = asyncio.get_running_loop().create_future()
        self._begun = threading.Lock()

    def claim(self) -> bool:
        """Whether it is the caller's: of the thread that would take it and who gives it up, only the first one's."""
        return self._begun.acquire(blocking=False)

    def tell(self, found: Taken | BaseException) -> None:
        """On the loop; only the first answer counts."""
        if self.taken.done():
            return
        if isinstance(found, BaseException):
            self.taken.set_exception(found)
        else:
            self.taken.set_result(found)


class Stepper:
    """Takes steps in ``worker``, a thread (None: on the loop), while it holds ``turn``. Those that are due together go
    there together: to wake the thread costs more than most of them take. None waits long for a
    slow one that comes after it."""

    __slots__ = ("_clock", "_due", "_since", "_task", "_turn", "_worker")

    def __init__(self, clock: Clock, worker: Executor | None, turn: asyncio.Lock) -> None:
        self._clock, self._worker, self._turn = clock, worker, turn
        self._due: list[_Step] = []
        self._task: asyncio.Task[None] | None = None
        self._since = clock.monotonic()

    def taken_here(self, steps: Steps[Any], outcome: Outcome | None) -> Taken | None:
        """The next step of a machine, on the loop; None: what it looks at is another's just now. Raises what the
        machine raises."""
        return None if self._turn.locked() else _step(steps, outcome, self._clock)

    def stays_long(self) -> bool:
        """Whether a few milliseconds have gone by since this was last so. Steps that are taken on the loop, and actions
        that end at once, may never let go of it; who is told so does."""
        now = self._clock.monotonic()
        if now - self._since < _LONG_HERE:
            return False
        self._since = now
        return True

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
            if step.claim():
                step.taken.cancel()
            else:
                await _ended(step.taken)
            raise

    async def _take_all(self, worker: Executor) -> None:
        """Until nothing is due."""
        try:
            while self._due:
                async with self._turn:
                    steps, self._due = [step for step in self._due if not step.taken.done()], []
                    found = await self._taken(worker, steps)
                for step, each in zip(steps, found, strict=True):
                    step.tell(each)
        finally:
            self._task = None

    async def _taken(self, worker: Executor, steps: Sequence[_Step]) -> Sequence[Taken | BaseException]:
        if not steps:
            return []
        found: list[Taken | BaseException] = []
        try:
            future = asyncio.get_running_loop().run_in_executor(worker, _take, steps, self._clock, found)
        except RuntimeError as error:  # there is no worker any more
            return [error] * len(steps)
        pause = _FIRST_LOOK
        while len(steps) > 1 and not future.done():
            # To be told of each by the thread would cost more than most steps take: it is looked at, now and then.
            with suppress(asyncio.CancelledError):
                await asyncio.wait([future], timeout=pause)
            for step, each in zip(steps, found, strict=False):
                step.tell(each)
            pause = min(2 * pause, _LAST_LOOK)
        await _ended(future)
        return [asyncio.CancelledError()] * len(steps) if future.cancelled() else found


def _take(steps: Sequence[_Step], clock: Clock, found: list[Taken | BaseException]) -> None:
    """One after the other, but for those that were given up: a fault of one is that one's. ``found`` gets what comes of
    each, at once."""
    for step in steps:
        if not step.claim():
            found.append(asyncio.CancelledError())
            continue
        try:
            found.append(_step(step.steps, step.outcome, clock))
        except BaseException as fault:  # noqa: BLE001 - raised where the step was asked for
            found.append(fault)


def _step(steps: Steps[Any], outcome: Outcome | None, clock: Clock) -> Taken:
    """(A StopIteration cannot leave a thread through a future.) What is observed is made here: in a live world somebody
    looks at it at once, on the loop."""
    begun = clock.monotonic()
    found: Action | Done
    try:
        found = next(steps) if outcome is None else steps.send(outcome)
    except StopIteration as stop:
        found = Done(stop.value)
    if type(found) is Observe and type(found.observations) is Deferred:
        len(found.observations)
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
