"""The only virtual clock: runs step machines and timers in one deterministic order.

Upstream's goroutines have no order. Here it is time; at one time the rank of who is due, and at one rank the order in
which they came to their turn. There is no wall clock: time is what outcomes say it is.

kscale's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final

from kscale.effects.actions import Action, InBackground, Machine, Steps, Together, Wait, Within
from kscale.effects.legal_outcomes import ANSWERS, WrongAnswerError, check_answer
from kscale.effects.moments import LAST_TIME, Moment, to_text
from kscale.effects.outcomes import DEADLINE_EXCEEDED, Outcome
from kscale.objects.times import virtual_moment

__all__ = ["Perform", "Running", "VirtualTime", "run_virtually"]

Perform = Callable[[Action, Moment], Outcome]
"""Does an action (never a Wait, Together, Within or InBackground) at a moment; its outcome is not earlier."""

_Done = Callable[[Any, Moment], None]

_UNDER_WAY: Final = object()
_COMPANY: Final = (Together, Within)
_MANY: Final = 1 << 16
_OWN_TIME: Final = frozenset({Wait, InBackground})


class Running:
    """Something that was begun or is due. ``value`` is what a machine returned, once it has ``ended``."""

    __slots__ = ("_value", "cancelled", "deadline", "perform", "rank", "steps")

    def __init__(self, rank: int, deadline: Moment | None = None, perform: Perform | None = None) -> None:
        self.rank = rank
        self.deadline = deadline
        self.perform = perform
        self.cancelled = False
        self.steps: Steps[Any] | None = None
        self._value: Any = _UNDER_WAY

    @property
    def ended(self) -> bool:
        """The machine has returned."""
        return self._value is not _UNDER_WAY

    @property
    def value(self) -> Any:
        """What the machine returned. Raises RuntimeError while it is under way."""
        if not self.ended:
            raise RuntimeError("the machine is under way")
        return self._value

    def end(self, value: Any) -> None:
        """The machine has returned this."""
        self._value = value

    def cancel(self) -> None:
        """It does not go on: what is due for it is dropped, and its generator is closed. What it began goes on."""
        self.cancelled = True
        if self.steps is not None:
            self.steps.close()


class VirtualTime:
    """Machines under way in one world, and the time there. Single owner.

    ``perform`` does what machines ask. An action is performed ``latency(action)`` nanoseconds after it is yielded
    (None: at once), and its outcome is handed over when that is over: a world that answers late says so by
    ``Outcome.at``, and does what shall happen meanwhile by :meth:`at`. ``now``: an aware datetime or a moment. Raises
    InputError for anything else.
    """

    __slots__ = ("_due", "_latency", "_perform", "_turn", "now")

    def __init__(
        self, perform: Perform, *, now: datetime | Moment, latency: Callable[[Action], int] | None = None
    ) -> None:
        self.now = virtual_moment(now)
        self._perform = perform
        self._latency = latency
        self._turn = 0
        self._due: list[tuple[Moment, int, int, Running, Callable[[], None]]] = []

    def start(
        self,
        machine: Machine,
        done: _Done | None = None,
        *,
        rank: int = 0,
        deadline: datetime | Moment | None = None,
        perform: Perform | None = None,
    ) -> Running:
        """Begins a machine at the present moment; ``done`` is told what it returns, and when. Of what is due at the
        same moment the lower ``rank`` comes first.

        ``deadline``: when its time is over, as :class:`~kscale.effects.Within` has it. ``perform``: what does the
        actions of this machine and of all that it begins, where worlds or records go by who asks.
        """
        running = Running(rank, None if deadline is None else virtual_moment(deadline, "deadline"), perform)

        def begin() -> None:
            running.steps = machine(self.now)
            self._advance(running, running.steps, None, done)

        self._push(self.now, running, begin)
        return running

    def at(self, time: datetime | Moment, call: Callable[[], None], *, rank: int = 0) -> Running:
        """Does ``call`` at a moment, which is not before now; of those at one moment the lower ``rank`` comes first.
        Raises ValueError for a moment that is over."""
        time = virtual_moment(time, "time")
        if time < self.now:
            raise ValueError(f"{_text(time)} is over ({_text(self.now)})")
        running = Running(rank)
        self._push(time, running, call)
        return running

    def cancel_all(self, perform: Perform) -> None:
        """Cancels every machine whose actions this does, as when a process is killed."""
        for _, _, _, running, _ in self._due:
            if running.perform is perform:
                running.cancel()

    @property
    def next_due(self) -> Moment | None:
        """When something happens next; None: nothing is under way."""
        while self._due and self._due[0][3].cancelled:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    @property
    def idle(self) -> bool:
        """Nothing is under way."""
        return self.next_due is None

    def step(self, until: datetime | Moment | None = None) -> bool:
        """Does what is due first, and what follows from it at once; moves time to it. False: nothing is due, or not up
        to a moment (``until``)."""
        return self.steps(1, until) == 1

    def steps(self, at_most: int, until: datetime | Moment | None = None) -> int:
        """:meth:`step`, ``at_most`` so many times, as long as something is due (``until``: up to a moment); how often
        that was."""
        due = self._due
        last = LAST_TIME if until is None else virtual_moment(until, "until")
        for done in range(at_most):
            while due and due[0][3].cancelled:
                heappop(due)
            if not due or due[0][0] > last:
                return done
            self.now, _, _, _, call = heappop(due)
            call()
        return at_most

    def run(self, until: datetime | Moment | None = None) -> None:
        """Until nothing is left to do, or up to a moment (``until``: what is due then is done, and time stands
        there)."""
        last = None if until is None else virtual_moment(until, "until")
        while self.steps(_MANY, last):
            pass
        if last is not None:
            self.now = max(self.now, last)

    def _push(self, time: Moment, running: Running, call: Callable[[], None]) -> None:
        self._turn += 1
        heappush(self._due, (time, running.rank, self._turn, running, call))

    def _advance(self, running: Running, steps: Steps[Any], outcome: Outcome | None, done: _Done | None) -> None:
        """Hands an outcome over, and goes on as long as nothing else is due before the next one."""
        while not running.cancelled:
            try:
                action = next(steps) if outcome is None else steps.send(outcome)
            except StopIteration as stop:
                running.end(stop.value)
                if done is not None:
                    done(stop.value, self.now)
                return
            if isinstance(action, _COMPANY):
                self._in_company(running, steps, action, done)
                return
            if (late := self._lateness(running, action)) > 0:
                self._push(self.now + late, running, partial(self._perform_late, running, steps, action, done))
                return
            outcome = self._held(running, action, self._outcome(running, action))
            if not self._is_next(outcome.at, running.rank):
                self._push(outcome.at, running, partial(self._advance, running, steps, outcome, done))
                return

    def _is_next(self, time: Moment, rank: int) -> bool:
        """Whether what is due at that time, as the last in its rank, is due before all else, and already."""
        return time == self.now and (not self._due or (time, rank) < self._due[0][:2])

    def _is_over(self, running: Running, action: Action) -> bool:
        """Whether the machine's time is over, so that an action of this kind is refused."""
        if running.deadline is None or self.now < running.deadline:
            return False
        answer = ANSWERS.get(type(action))
        return answer is not None and answer.refusable

    def _lateness(self, running: Running, action: Action) -> int:
        """How long it takes until an action is performed."""
        if self._latency is None or type(action) in _OWN_TIME:
            return 0
        return 0 if running.deadline is not None and self._is_over(running, action) else self._latency(action)

    def _perform_late(self, running: Running, steps: Steps[Any], action: Action, done: _Done | None) -> None:
        outcome = self._held(running, action, (running.perform or self._perform)(action, self.now))
        self._push(outcome.at, running, partial(self._advance, running, steps, outcome, done))

    def _outcome(self, running: Running, action: Action) -> Outcome:
        if running.deadline is not None and self._is_over(running, action):
            return Outcome(at=self.now, error=DEADLINE_EXCEEDED)
        if isinstance(action, Wait):
            return Outcome(at=self.now + max(action.duration, 0))
        if isinstance(action, InBackground):
            self.start(action.machine, rank=running.rank, perform=running.perform)
            return Outcome(at=self.now)
        return (running.perform or self._perform)(action, self.now)

    def _held(self, running: Running, action: Action, found: Outcome) -> Outcome:
        """An outcome held against the table, the clock and the deadline of who asked."""
        check_answer(action, found)
        if found.at < self.now:
            text = f"it ended at {_text(found.at)}, before it began ({_text(self.now)})"
            raise WrongAnswerError(action, found, text)
        deadline = running.deadline
        if deadline is not None and found.at > deadline and ANSWERS[type(action)].refusable:
            return Outcome(at=max(self.now, deadline), error=DEADLINE_EXCEEDED)
        return found

    def _in_company(self, running: Running, steps: Steps[Any], action: Together | Within, done: _Done | None) -> None:
        """Begins the machines of an action, whose outcome comes when they have ended."""

        def resume(found: Outcome) -> None:
            outcome = self._held(running, action, found)
            self._push(outcome.at, running, partial(self._advance, running, steps, outcome, done))

        if isinstance(action, Together):
            _Company(self, running, action.machines, resume).begin(action.at_most)
            return
        until, deadline = self.now + max(action.duration, 0), running.deadline
        self.start(
            action.machine,
            lambda value, at: resume(Outcome(at=at, value=value)),
            rank=running.rank,
            deadline=until if deadline is None else min(until, deadline),
            perform=running.perform,
        )


class _Company:
    """Machines side by side, of which one that is under way goes on (``of``) when all of them have ended. ``resume`` is
    told what they return. (Nothing here leads back to itself: what has ended is gone at once.)"""

    __slots__ = ("_left", "_of", "_resume", "_time", "_values", "_waiting")

    def __init__(
        self, time: VirtualTime, of: Running, machines: Sequence[Machine], resume: Callable[[Outcome], None]
    ) -> None:
        self._time, self._of, self._resume = time, of, resume
        self._values: list[Any] = [None] * len(machines)
        self._waiting = deque(enumerate(machines))
        self._left = len(machines)

    def begin(self, at_most: int | None) -> None:
        """The first of them, or all."""
        if at_most is not None and at_most < 1:
            raise ValueError(f"{at_most} machines at a time never end")
        if not self._left:
            self._resume(Outcome(at=self._time.now, value=self._values))
        for _ in range(self._left if at_most is None else min(at_most, self._left)):
            self._next()

    def _next(self) -> None:
        index, machine = self._waiting.popleft()
        of = self._of
        self._time.start(machine, partial(self._done, index), rank=of.rank, deadline=of.deadline, perform=of.perform)

    def _done(self, index: int, value: Any, at: Moment) -> None:
        self._values[index] = value
        self._left -= 1
        if self._waiting:
            self._next()
        elif not self._left:
            self._resume(Outcome(at=at, value=self._values))


def run_virtually(machine: Machine, perform: Perform, *, now: datetime | Moment) -> Any:
    """What a machine returns, its actions done by ``perform``, after everything that it started in the background has
    ended, too."""
    time = VirtualTime(perform, now=now)
    running = time.start(machine)
    time.run()
    return running.value


def _text(time: Moment) -> str:
    return to_text(time, fraction=True) or "the zero time"
