"""Virtual clock that runs step machines and timers in one deterministic order.

Upstream's goroutines have no order. Here events are ordered by time, at the same time by rank, and at the same rank by
the order of scheduling. No wall clock is read: outcomes determine the time. Not in upstream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final

from kscale.effects.actions import (
    DEADLINE_EXCEEDED,
    Action,
    InBackground,
    Machine,
    Outcome,
    Steps,
    Together,
    Wait,
    Within,
)
from kscale.effects.moments import LAST_TIME, Moment, to_text
from kscale.effects.progress import LEGAL_OUTCOMES, IllegalOutcomeError, SingleAction, check_outcome
from kscale.objects.times import virtual_moment

__all__ = ["Perform", "Running", "VirtualTime", "run_virtually"]

Perform = Callable[[Action, Moment], Outcome]
"""Performs an action (never a Wait, Together, Within or InBackground) at a time; the outcome is not earlier."""

_OnEnd = Callable[[Any, Moment], None]
_Indexed = tuple[int, SingleAction]
_OnIndexedEnd = Callable[[int, Any, Moment], None]

_IN_PROGRESS: Final = object()
_WITH_MACHINES: Final = (Together, Within)
_BATCH: Final = 1 << 16
_WITHOUT_LATENCY: Final = frozenset({Wait, InBackground})


class Running:
    """Handle of a started step machine or of a scheduled call.

    ``rank``: order among events at the same time. ``deadline``: when the machine's actions begin to fail; None: never.
    ``perform``: performs the machine's actions; None: the function of the world.
    """

    __slots__ = ("_value", "cancelled", "deadline", "perform", "rank", "steps")

    def __init__(self, rank: int, deadline: Moment | None = None, perform: Perform | None = None) -> None:
        self.rank = rank
        self.deadline = deadline
        self.perform = perform
        self.cancelled = False
        self.steps: Steps[Any] | None = None
        self._value: Any = _IN_PROGRESS

    @property
    def ended(self) -> bool:
        """Return whether the machine has returned."""
        return self._value is not _IN_PROGRESS

    @property
    def value(self) -> Any:
        """Return what the machine returned. Raises RuntimeError while the machine is running."""
        if not self.ended:
            raise RuntimeError("the machine is under way")
        return self._value

    def end(self, value: Any) -> None:
        """Store the value that the machine returned, and mark the machine as ended."""
        self._value = value

    def cancel(self) -> None:
        """Stop the machine or call: its scheduled events will not run, and its generator is closed.

        Machines that it started continue. ``ended`` stays False if it had not returned.
        """
        self.cancelled = True
        if self.steps is not None:
            self.steps.close()


_Event = tuple[Moment, int, int, Running, Callable[[], None]]
"""Scheduled call as (time, rank, sequence number, handle, call). The queue is ordered by the first three."""


class VirtualTime:
    """Running machines of one world, and the current time. Has a single owner.

    Parameters
    ----------
    perform : callable
        Performs the actions of the machines. A world that responds late returns an outcome with a later ``at``, and
        schedules what happens meanwhile with :meth:`at`.
    now : datetime or int
        Start time: an aware datetime or nanoseconds since 1970.
    latency : callable, optional
        ``latency(action)`` nanoseconds pass between the yield of an action and its execution. Default: none.

    Raises
    ------
    InputError
        If ``now`` is not a time.
    """

    __slots__ = ("_current", "_due", "_latency", "_perform", "_sequence", "now")

    def __init__(
        self, perform: Perform, *, now: datetime | Moment, latency: Callable[[Action], int] | None = None
    ) -> None:
        self.now = virtual_moment(now)
        self._perform = perform
        self._latency = latency
        self._sequence = self._current = 0  # of the newest event, and of the one that runs
        self._due: list[_Event] = []

    def start(
        self,
        machine: Machine,
        on_end: _OnEnd | None = None,
        *,
        rank: int = 0,
        deadline: datetime | Moment | None = None,
        perform: Perform | None = None,
    ) -> Running:
        """Schedule the start of a machine at the current time: it begins when :meth:`run` or :meth:`step` gets to it.

        Parameters
        ----------
        machine : callable
            Called with the current time; returns the generator of steps.
        on_end : callable, optional
            Called with (return value, time) at the end of the machine.
        rank : int, default 0
            Order of events at the same time: lower ranks first.
        deadline : datetime or int, optional
            End of the machine's time, as in :class:`~kscale.effects.Within`.
        perform : callable, optional
            Performs the actions of this machine and of those that it starts. Default: that of the world.

        Returns
        -------
        Running
            Handle of the machine.

        Raises
        ------
        InputError
            If ``deadline`` is not a time.
        """
        running = Running(rank, None if deadline is None else virtual_moment(deadline, "deadline"), perform)

        def begin() -> None:
            running.steps = machine(self.now)
            self._advance(running, running.steps, None, on_end)

        self._push(self.now, running, begin)
        return running

    def at(self, time: datetime | Moment, call: Callable[[], None], *, rank: int = 0) -> Running:
        """Schedule ``call`` for a time, and return its handle. At the same time, calls with a lower ``rank`` run first.

        Raises ValueError if the time has passed, and InputError if ``time`` is not a time.
        """
        time = virtual_moment(time, "time")
        if time < self.now:
            raise ValueError(f"{_text(time)} is over ({_text(self.now)})")
        running = Running(rank)
        self._push(time, running, call)
        return running

    def cancel_all(self, perform: Perform) -> None:
        """Cancel every scheduled event of the machines whose actions ``perform`` performs, as when a process is killed.

        ``perform`` is the argument of :meth:`start`. A machine that waits for another of these machines has no event,
        so it is not cancelled, but it never continues.
        """
        for _, _, _, running, _ in self._due:
            if running.perform is perform:
                running.cancel()

    @property
    def next_due(self) -> Moment | None:
        """Return the time of the next event; None if nothing is scheduled."""
        while self._due and self._due[0][3].cancelled:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    @property
    def idle(self) -> bool:
        """Return whether nothing is scheduled."""
        return self.next_due is None

    def step(self, until: datetime | Moment | None = None) -> bool:
        """Advance the time to the next event, and run the event.

        Returns True if an event was run; False if no event is scheduled or, with ``until``, none up to that time.
        Raises InputError if ``until`` is not a time.
        """
        return self.steps(1, until) == 1

    def steps(self, at_most: int, until: datetime | Moment | None = None) -> int:
        """Run up to ``at_most`` events (``until``: none after that time), and return how many were run.

        Raises InputError if ``until`` is not a time.
        """
        due = self._due
        last = LAST_TIME if until is None else virtual_moment(until, "until")
        for count in range(at_most):
            while due and due[0][3].cancelled:
                heappop(due)
            if not due or due[0][0] > last:
                return count
            self.now, _, self._current, _, call = heappop(due)
            call()
        return at_most

    def run(self, until: datetime | Moment | None = None) -> None:
        """Run until nothing is scheduled, or up to and including the time ``until``, which then is the current time.

        Raises InputError if ``until`` is not a time.
        """
        last = None if until is None else virtual_moment(until, "until")
        while self.steps(_BATCH, last):
            pass
        if last is not None:
            self.now = max(self.now, last)

    def _push(self, time: Moment, running: Running, call: Callable[[], None]) -> None:
        """Schedule ``call`` at ``time``, with the rank of ``running``; it is dropped if ``running`` is cancelled."""
        self._sequence += 1
        heappush(self._due, (time, running.rank, self._sequence, running, call))

    def _advance(self, running: Running, steps: Steps[Any], outcome: Outcome | None, on_end: _OnEnd | None) -> None:
        """Send an outcome to a machine (None: begin it), and run its actions until another event is due first.

        ``steps``: generator of the machine ``running``. ``on_end``: called with (return value, time) when it returns.
        """
        while not running.cancelled:
            try:
                action = next(steps) if outcome is None else steps.send(outcome)
            except StopIteration as stop:
                running.end(stop.value)
                if on_end is not None:
                    on_end(stop.value, self.now)
                return
            if isinstance(action, _WITH_MACHINES):
                self._start_machines(running, steps, action, on_end)
                return
            if (late := self._lateness(running, action)) > 0:
                self._push(self.now + late, running, partial(self._perform_late, running, steps, action, on_end))
                return
            outcome = self._check_outcome(running, action, self._outcome(running, action))
            if not self._is_next(outcome.at, running.rank):
                self._push(outcome.at, running, partial(self._advance, running, steps, outcome, on_end))
                return

    # -- machines of a single action -----------------------------------------------------------------------------------

    @property
    def newest_event(self) -> int:
        """Return the number of the event that was scheduled last."""
        return self._sequence

    def start_actions(
        self, get_machines: Callable[[], Sequence[_Indexed]], on_end: _OnIndexedEnd, owner: Running
    ) -> None:
        """Schedule the start of machines of a single action at the current time.

        Machines whose actions begin or end at the same moment share events, which is faster than events of their own.

        Parameters
        ----------
        get_machines : callable
            Called when the machines begin; returns them as (number, machine).
        on_end : callable
            Called with (number, None, time) at the end of each machine.
        owner : Running
            The machine that starts them. They have its rank and its ``perform``.
        """
        self._push_for(owner, self.now, partial(self._build_actions, get_machines, on_end, owner))

    def _push_for(self, owner: Running, time: Moment, call: Callable[[], None]) -> None:
        """Schedule a call at ``time`` with the rank and ``perform`` of ``owner``."""
        self._push(time, Running(owner.rank, perform=owner.perform), call)

    def _push_again(self, owner: Running, call: Callable[[], None]) -> None:
        """Schedule ``call`` as the continuation of the current event: before all other events of its time and rank."""
        heappush(self._due, (self.now, owner.rank, self._current, Running(owner.rank, perform=owner.perform), call))

    def _take_number(self) -> int:
        """Return the number of an event that :meth:`_continue` schedules later, or runs without scheduling it."""
        self._sequence += 1
        return self._sequence

    def _continue(
        self, owner: Running, time: Moment, number: int, call: Callable[[], None], *, now: bool = True
    ) -> None:
        """Run ``call`` at once if, as event ``number`` at ``time``, it would be the next one; otherwise schedule it.

        ``owner``: as for :meth:`_push_for`; ``now`` False: always schedule it.
        """
        if now and self._is_next(time, owner.rank):
            self._current = number
            call()
        else:
            heappush(self._due, (time, owner.rank, number, Running(owner.rank, perform=owner.perform), call))

    def _build_actions(
        self, get_machines: Callable[[], Sequence[_Indexed]], on_end: _OnIndexedEnd, owner: Running
    ) -> None:
        """Build the actions of machines, and schedule each for the time after its latency.

        A machine without an action ends at once. A machine whose action has no latency runs as a generator. Parameters
        as for :meth:`start_actions`.
        """
        latency, starting = 0, deque(get_machines())
        delayed: deque[tuple[int, SingleAction, Action]] = deque()
        while starting:
            index, machine = starting.popleft()
            action = machine.build(self.now)
            if action is None:
                on_end(index, None, self.now)
                continue
            late = 0 if self._latency is None else self._latency(action)
            if late <= 0:
                if starting:
                    self._push_again(owner, partial(self._build_actions, lambda: starting, on_end, owner))
                self._run_generator(
                    machine.perform_steps(action), partial(self._end_generator, index, on_end, owner), owner
                )
                return
            if late == latency:
                delayed.append((index, machine, action))
            else:
                delayed = deque([(index, machine, action)])
                self._push_for(owner, self.now + late, partial(self._perform_actions, delayed, on_end, owner))
            latency = late

    def _run_generator(self, steps: Steps[Any], on_end: _OnEnd, owner: Running) -> None:
        """Run the rest of a machine as a generator, instead of by events that it shares with other machines.

        ``on_end``: called with (return value, time) at its end. ``owner``: its rank and ``perform`` are used.
        """
        running = Running(owner.rank, perform=owner.perform)
        running.steps = steps
        self._advance(running, steps, None, on_end)

    def _end_generator(self, index: int, on_end: _OnIndexedEnd, owner: Running, waits: Any, at: Moment) -> None:
        """Report the end of a machine of :meth:`start_actions` that ran as a generator.

        Calls ``on_end(index, None, at)``: now, or in an event of its own if ``waits`` is true and other events are due
        at the same moment, which then run first. ``index``: number of the machine. ``owner``: the machine that started
        this one; the event has its rank. ``waits``: what the generator returned. ``at``: when it returned.
        """
        if waits and not self._is_next(at, owner.rank):
            self._push_for(owner, at, partial(on_end, index, None, at))
        else:
            on_end(index, None, at)

    def _perform_actions(
        self, delayed: deque[tuple[int, SingleAction, Action]], on_end: _OnIndexedEnd, owner: Running
    ) -> None:
        """Perform the actions in order, and handle each outcome at its time (:meth:`_handle_outcomes`).

        ``delayed``: (number, machine, action) of each action; performed ones are removed from it. If an action
        schedules an event that is due before the next action, that event runs first.
        """
        perform = owner.perform or self._perform
        ended: deque[tuple[int, SingleAction, Outcome]] = deque()
        event = 0
        while delayed:
            index, machine, action = delayed.popleft()
            outcome = self._check_outcome(owner, action, perform(action, self.now))
            if not ended or ended[-1][2].at != outcome.at:
                if ended:
                    handle = partial(self._handle_outcomes, ended, on_end, owner)
                    self._continue(owner, ended[0][2].at, event, handle, now=False)
                ended, event = deque(), self._take_number()
            ended.append((index, machine, outcome))
            if delayed and self._due and self._due[0][:2] < (self.now, owner.rank):
                self._push_again(owner, partial(self._perform_actions, delayed, on_end, owner))
                break
        at = ended[0][2].at
        self._continue(owner, at, event, partial(self._handle_outcomes, ended, on_end, owner), now=not delayed)

    def _handle_outcomes(
        self, ended: deque[tuple[int, SingleAction, Outcome]], on_end: _OnIndexedEnd, owner: Running
    ) -> None:
        """Pass each outcome to its machine, in order.

        A machine that ``waits_to_end`` ends after other events that are due now. One that has further steps runs as a
        generator from then on. ``ended``: (number, machine, outcome) of each machine; handled ones are removed from it.
        """
        waiting: list[int] = []
        event = 0
        while ended:
            index, machine, outcome = ended.popleft()
            more = machine.finish(outcome)
            if more is None and machine.waits_to_end and (ended or waiting or not self._is_next(self.now, owner.rank)):
                if not waiting:
                    event = self._take_number()
                waiting.append(index)
            elif more is None:
                on_end(index, None, outcome.at)
            else:
                if waiting:
                    self._continue(owner, self.now, event, partial(self._end_machines, waiting, on_end), now=False)
                if ended:
                    self._push_again(owner, partial(self._handle_outcomes, ended, on_end, owner))
                self._run_generator(more, partial(on_end, index), owner)
                return
        if waiting:
            self._continue(owner, self.now, event, partial(self._end_machines, waiting, on_end))

    def _end_machines(self, numbers: Sequence[int], on_end: _OnIndexedEnd) -> None:
        """Call ``on_end`` for machines that waited until others had continued (:attr:`SingleAction.waits_to_end`)."""
        for number in numbers:
            on_end(number, None, self.now)

    def _is_next(self, time: Moment, rank: int) -> bool:
        """Return whether ``time`` is now and no scheduled event comes before an event of this time and rank."""
        return time == self.now and (not self._due or (time, rank) < self._due[0][:2])

    def _is_over(self, running: Running, action: Action) -> bool:
        """Return whether this action fails because the machine's deadline has passed. Some actions never fail."""
        if running.deadline is None or self.now < running.deadline:
            return False
        rule = LEGAL_OUTCOMES.get(type(action))
        return rule is not None and rule.refusable

    def _lateness(self, running: Running, action: Action) -> int:
        """Return the nanoseconds until an action is performed (its latency); 0 if it is performed at once."""
        if self._latency is None or type(action) in _WITHOUT_LATENCY:
            return 0
        return 0 if running.deadline is not None and self._is_over(running, action) else self._latency(action)

    def _perform_late(self, running: Running, steps: Steps[Any], action: Action, on_end: _OnEnd | None) -> None:
        """Perform an action whose latency has passed, and schedule :meth:`_advance` for the time of its outcome."""
        outcome = self._check_outcome(running, action, (running.perform or self._perform)(action, self.now))
        self._push(outcome.at, running, partial(self._advance, running, steps, outcome, on_end))

    def _outcome(self, running: Running, action: Action) -> Outcome:
        """Perform an action now, and return its outcome; DEADLINE_EXCEEDED if the machine's deadline has passed.

        A Wait ends after its duration, and a machine in the background is scheduled; other actions go to ``perform``.
        """
        if running.deadline is not None and self._is_over(running, action):
            return Outcome(at=self.now, error=DEADLINE_EXCEEDED)
        if isinstance(action, Wait):
            return Outcome(at=self.now + max(action.duration, 0))
        if isinstance(action, InBackground):
            self.start(action.machine, rank=running.rank, perform=running.perform)
            return Outcome(at=self.now)
        return (running.perform or self._perform)(action, self.now)

    def _check_outcome(self, running: Running, action: Action, outcome: Outcome) -> Outcome:
        """Check an outcome against the legal outcomes, the clock and the machine's deadline, and return it.

        An outcome after the deadline is replaced by the error DEADLINE_EXCEEDED, unless the action cannot fail. Raises
        IllegalOutcomeError if the outcome is not legal or ends before the current time.
        """
        check_outcome(action, outcome)
        if outcome.at < self.now:
            text = f"it ended at {_text(outcome.at)}, before it began ({_text(self.now)})"
            raise IllegalOutcomeError(action, outcome, text)
        deadline = running.deadline
        if deadline is not None and outcome.at > deadline and LEGAL_OUTCOMES[type(action)].refusable:
            return Outcome(at=max(self.now, deadline), error=DEADLINE_EXCEEDED)
        return outcome

    def _start_machines(
        self, running: Running, steps: Steps[Any], action: Together | Within, on_end: _OnEnd | None
    ) -> None:
        """Start the machines that ``action`` contains. When they have ended, ``steps`` gets the action's outcome.

        Raises ValueError for less than one machine at a time.
        """

        def resume(result: Outcome) -> None:
            outcome = self._check_outcome(running, action, result)
            self._push(outcome.at, running, partial(self._advance, running, steps, outcome, on_end))

        if isinstance(action, Together):
            _MachineGroup(self, running, action.machines, resume).begin(action.at_most)
            return
        until, deadline = self.now + max(action.duration, 0), running.deadline
        self.start(
            action.machine,
            lambda value, at: resume(Outcome(at=at, value=value)),
            rank=running.rank,
            deadline=until if deadline is None else min(until, deadline),
            perform=running.perform,
        )


class _MachineGroup:
    """Concurrent machines of one action of ``owner``.

    When all have ended, ``resume`` is called with an outcome whose value is the list of their return values.

    Machines of a single action that start at the same moment share their events: one performs the actions of all of
    them, in order, and one handles the outcomes. The order of everything else is the same as with an event for each.

    (There are no reference cycles, so ended machines are freed immediately.)
    """

    __slots__ = ("_left", "_owner", "_resume", "_started_by", "_starting", "_time", "_values", "_waiting")

    def __init__(
        self, time: VirtualTime, owner: Running, machines: Sequence[Machine], resume: Callable[[Outcome], None]
    ) -> None:
        self._time, self._owner, self._resume = time, owner, resume
        self._values: list[Any] = [None] * len(machines)
        self._waiting = deque(enumerate(machines))
        self._left = len(machines)
        self._starting: list[_Indexed] | None = None
        self._started_by = 0  # number of the event; after a newer one, machines start apart

    def begin(self, at_most: int | None) -> None:
        """Start the first ``at_most`` machines (None: all). Raises ValueError if that is less than one.

        Without machines, ``resume`` is called at once.
        """
        if at_most is not None and at_most < 1:
            raise ValueError(f"{at_most} machines at a time never end")
        if not self._left:
            self._resume(Outcome(at=self._time.now, value=self._values))
        for _ in range(self._left if at_most is None else min(at_most, self._left)):
            self._next()

    def _next(self) -> None:
        """Start the next machine that has not been started."""
        index, machine = self._waiting.popleft()
        owner = self._owner
        if isinstance(machine, SingleAction) and owner.deadline is None:
            if self._starting is None or self._time.newest_event != self._started_by:
                self._starting = []
                self._time.start_actions(partial(self._take, self._starting), self._finish_machine, owner)
                self._started_by = self._time.newest_event
            self._starting.append((index, machine))
            return
        self._starting = None  # what follows starts after this machine
        self._time.start(
            machine,
            partial(self._finish_machine, index),
            rank=owner.rank,
            deadline=owner.deadline,
            perform=owner.perform,
        )

    def _take(self, starting: list[_Indexed]) -> list[_Indexed]:
        """Return ``starting``, the (number, machine) of the machines that one event starts, and close this list.

        Virtual time calls this method when the event occurs. A machine that is started later goes into a new list, with
        an event of its own.
        """
        if self._starting is starting:
            self._starting = None
        return starting

    def _finish_machine(self, index: int, value: Any, at: Moment) -> None:
        """Store the return value of machine ``index``, and start the next machine.

        After the end of the last machine, ``resume`` is called with the outcome at ``at``.
        """
        self._values[index] = value
        self._left -= 1
        if self._waiting:
            self._next()
        elif not self._left:
            self._resume(Outcome(at=at, value=self._values))


def run_virtually(machine: Machine, perform: Perform, *, now: datetime | Moment) -> Any:
    """Run a machine in virtual time, and the machines that it starts in the background; return its result.

    Parameters
    ----------
    machine : callable
        Called with the start time; returns the generator of steps.
    perform : callable
        Performs the actions.
    now : datetime or int
        Start time.

    Raises
    ------
    InputError
        If ``now`` is not a time.
    """
    time = VirtualTime(perform, now=now)
    running = time.start(machine)
    time.run()
    return running.value


def _text(time: Moment) -> str:
    """Format a time for messages, with nanoseconds."""
    return to_text(time, fraction=True) or "the zero time"
