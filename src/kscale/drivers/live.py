"""Run step machines and drivers live, on asyncio, with their steps in a worker thread.

Actions are performed on the loop, steps of machines in a worker thread (if there is one), so that a long decision
delays no lease, watch or server. Stores and their objects belong to the loop's thread.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

import msgspec

from kscale.drivers.driver import Driver
from kscale.effects import (
    CANCELED,
    DEADLINE_EXCEEDED,
    LEGAL_OUTCOMES,
    Action,
    ApiError,
    Deferred,
    Emit,
    InBackground,
    Machine,
    Metric,
    Moment,
    Observation,
    Observe,
    Outcome,
    Steps,
    Together,
    Wait,
    Within,
)
from kscale.effects.progress import SingleAction, check_outcome
from kscale.world.protocols import Change, Clock, LiveStores, PerformLive

__all__ = ["DRIVE_METRICS", "Done", "Live", "Scope", "Stepper", "drive"]


_FIRST_POLL: Final = 0.002
_LONGEST_POLL: Final = 0.05
"""Seconds between polls of a batch in the worker: most batches are over before the first poll."""
_MAX_NANOSECONDS_ON_LOOP: Final = 2_000_000
"""Time for which steps run on the loop before it yields."""
_MAX_NANOSECONDS_OF_REPORTS: Final = 2_000_000
"""Time after which the worker hands a report over at once: waking the loop costs a tenth of it."""
_MAX_NANOSECONDS_OF_BRIEF_STEPS: Final = 10_000_000
"""Longest step of a round after which the next round may run on the loop."""
_MAX_STEPS_AT_ONCE: Final = 1000
"""Steps that only report or read the clock after which the worker hands over, whatever its clock says."""


class Done(msgspec.Struct, eq=False):
    """Return value of a step machine."""

    value: Any


class Failed(msgspec.Struct, eq=False):
    """Error that a step machine raised after it had reported something."""

    error: BaseException


class StepResult(NamedTuple):
    """Result of a step: what the machine does next, or that it is done, and how many nanoseconds the step took.

    ``reports``: events and observations of the step, which are to be performed first.
    """

    next: Action | Done | Failed
    took: int
    reports: Sequence[Emit | Observe] = ()


class _Step:
    """One due step and its result. ``is_over`` checks whether the scope of its machine is over."""

    __slots__ = ("_claimed", "_finished", "_has_finished", "is_over", "outcome", "steps", "taken")

    def __init__(self, steps: Steps[Any], outcome: Outcome | None, is_over: Callable[[], bool]) -> None:
        self.steps, self.outcome, self.is_over = steps, outcome, is_over
        self.taken: asyncio.Future[StepResult] = asyncio.get_running_loop().create_future()
        self._claimed = threading.Lock()
        self._finished: asyncio.Future[None] | None = None
        self._has_finished = False

    def claim(self) -> bool:
        """Claim the right to run or cancel the step. Returns True for the first caller only. Never blocks."""
        return self._claimed.acquire(blocking=False)

    def has_result(self) -> bool:
        """Check whether the result was set before the waiting task was cancelled.

        No thread is running the step machine then.
        """
        if not self.taken.done() or self.taken.cancelled():
            return False
        self.taken.exception()  # retrieve it, as nobody reads the result
        return True

    async def wait_until_finished(self) -> None:
        """Wait until no thread is running the step machine, after ``taken`` has been cancelled."""
        if self._has_finished:  # between the cancellation and this call
            return
        self._finished = asyncio.get_running_loop().create_future()
        await _wait_until_done(self._finished)

    def set_result(self, result: StepResult | BaseException) -> None:
        """Set the step's result or error on the loop; only the first one counts."""
        self._has_finished = True
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(None)
        if self.taken.done():
            return
        if isinstance(result, BaseException):
            self.taken.set_exception(result)
        else:
            self.taken.set_result(result)


class Stepper:
    """Runs steps in ``worker``, a thread (None: on the loop), while it holds ``turn``.

    Steps that are due together go to the thread together, because waking it costs more than most of them take. The
    result of a step is delivered soon, even if a later step of the same batch is slow. For the same reason the thread
    continues with a machine that reports something or reads the clock: no outcome depends on a report.
    """

    __slots__ = ("_clock", "_due", "_since", "_task", "_turn", "_worker", "machines")

    def __init__(self, clock: Clock, worker: Executor | None, turn: asyncio.Lock) -> None:
        self._clock, self._worker, self._turn = clock, worker, turn
        self._due: list[_Step] = []
        self._task: asyncio.Task[None] | None = None
        self._since = clock.monotonic()
        self.machines = 0
        """Number of running machines, counted by the caller. The steps of a single one need not wait for others."""

    def run_here(self, steps: Steps[Any], outcome: Outcome | None, is_over: Callable[[], bool]) -> StepResult | None:
        """Run the next step of a machine on the event loop, not in the worker thread, and return its result.

        ``outcome``, ``is_over``: as for :meth:`advance`. Returns None if another step is running (it holds the lock
        ``turn``). Raises what the machine raises.
        """
        return None if self._turn.locked() else _step_and_report(steps, outcome, self._clock, is_over)

    def is_yield_due(self) -> bool:
        """Check whether at least 2 ms have passed since this was last True. If so, the caller must yield to the loop.

        Steps on the loop, and actions that end at once, may otherwise never yield.
        """
        now = self._clock.monotonic()
        if now - self._since < _MAX_NANOSECONDS_ON_LOOP:
            return False
        self._since = now
        return True

    async def advance(
        self, steps: Steps[Any], outcome: Outcome | None, is_over: Callable[[], bool] = lambda: False
    ) -> StepResult:
        """Run the next step of a step machine and return its result.

        ``outcome``: outcome of the machine's last action; None for the first step. ``is_over``: checks, from any
        thread, whether the machine's scope has ended. Raises what the machine raises. When cancelled, waits until no
        thread is running the machine.
        """
        if self._worker is None:
            return _step(steps, outcome, self._clock)
        step = _Step(steps, outcome, is_over)
        if self.machines == 1 and self._task is None and not self._turn.locked():
            await self._turn.acquire()  # does not wait
            self._take_one(self._worker, step)
        else:
            self._due.append(step)
            if self._task is None:
                self._task = asyncio.create_task(self._take_all(self._worker))
        try:
            return await step.taken
        except asyncio.CancelledError:
            if not step.claim() and not step.has_result():
                await step.wait_until_finished()
            raise

    def _take_one(self, worker: Executor, step: _Step) -> None:
        """Start one step in the worker thread and return without waiting. The caller holds the lock ``turn``.

        When the step has ended, a callback on the loop releases the lock and sets the step's result.
        """
        results: list[StepResult | BaseException] = []

        def finish(future: asyncio.Future[None] | None) -> None:
            if future is not None and not future.cancelled():
                future.exception()  # retrieve it
            self._turn.release()
            step.set_result(results[0] if results else asyncio.CancelledError())

        try:
            future = asyncio.get_running_loop().run_in_executor(worker, _run_steps, [step], self._clock, results)
        except RuntimeError as error:  # the worker is shut down
            results.append(error)
            finish(None)
        else:
            future.add_done_callback(finish)

    async def _take_all(self, worker: Executor) -> None:
        """Run the due steps in the worker thread, in batches, until none is due."""
        try:
            while self._due:
                async with self._turn:
                    steps, self._due = [step for step in self._due if not step.taken.done()], []
                    results = await self._run_on_worker(worker, steps)
                for step, each in zip(steps, results, strict=True):
                    step.set_result(each)
        finally:
            self._task = None

    async def _run_on_worker(self, worker: Executor, steps: Sequence[_Step]) -> Sequence[StepResult | BaseException]:
        """Run steps in the worker thread, one after the other, and return their results or errors in order.

        Results of finished steps are set before the last step has ended. Raises no error of a step.
        """
        if not steps:
            return []
        results: list[StepResult | BaseException] = []
        try:
            future = asyncio.get_running_loop().run_in_executor(worker, _run_steps, steps, self._clock, results)
        except RuntimeError as error:  # the worker is shut down
            return [error] * len(steps)
        pause = _FIRST_POLL
        while len(steps) > 1 and not future.done():
            # Poll, because a notification per step would cost more than most steps take.
            with suppress(asyncio.CancelledError):
                await asyncio.wait([future], timeout=pause)
            for step, each in zip(steps, results, strict=False):
                step.set_result(each)
            pause = min(2 * pause, _LONGEST_POLL)
        await _wait_until_done(future)
        return [asyncio.CancelledError()] * len(steps) if future.cancelled() else results


def _run_steps(steps: Sequence[_Step], clock: Clock, results: list[StepResult | BaseException]) -> None:
    """Run the steps one after the other, except cancelled ones, and append each result to ``results`` at once.

    A fault of one step is the result of that step only.
    """
    for step in steps:
        if not step.claim():
            results.append(asyncio.CancelledError())
            continue
        try:
            results.append(_step_and_report(step.steps, step.outcome, clock, step.is_over))
        except BaseException as fault:  # noqa: BLE001  # raised again where the step was requested
            results.append(fault)


def _step(steps: Steps[Any], outcome: Outcome | None, clock: Clock) -> StepResult:
    """Run one step of a machine and return its action, or the machine's value, with the time that the step took.

    Returns the value instead of raising StopIteration, which cannot leave a thread through a future. Lazy observations
    are computed here, because otherwise they would be computed on the loop.
    """
    started = clock.monotonic()
    result: Action | Done
    try:
        result = next(steps) if outcome is None else steps.send(outcome)
    except StopIteration as stop:
        result = Done(stop.value)
    if type(result) is Observe and type(result.observations) is Deferred:
        len(result.observations)
    return StepResult(result, clock.monotonic() - started)


def _step_and_report(
    steps: Steps[Any], outcome: Outcome | None, clock: Clock, is_over: Callable[[], bool]
) -> StepResult:
    """Run steps until the machine does something other than report events and observations or read the clock.

    Reports are collected. After some time, and after a number of steps, a report or a look at the clock ends the steps,
    too, so that reports are performed soon, their number is bounded, and other machines run.
    """
    reports: list[Emit | Observe] = []
    took = 0
    for left in range(_MAX_STEPS_AT_ONCE, -1, -1):
        try:
            result = _step(steps, outcome, clock)
        except BaseException as error:
            if not reports:
                raise
            return StepResult(Failed(error), took, reports)
        took += result.took
        action = result.next
        if not left or took > _MAX_NANOSECONDS_OF_REPORTS:
            break
        if isinstance(action, Emit | Observe):
            reports.append(action)
        elif type(action) is not Wait or action.duration > 0 or is_over():
            break
        outcome = Outcome(at=clock.now(), value=None)
    return StepResult(action, took, reports)


async def _wait_until_done(future: asyncio.Future[Any]) -> None:
    """Wait until the future is done, however often this task is cancelled meanwhile."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue
    if not future.cancelled():
        future.exception()  # retrieve it, as the awaiting task was cancelled


_SECOND: Final = 1e9
_DECISION: Final = "kscale_decision_seconds"
_SKIPPED: Final = "kscale_skipped_loops_total"

DRIVE_METRICS: Final = (
    Metric(
        _DECISION,
        "histogram",
        ("driver",),
        (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
        help="Seconds that a round computed, without the time that it waited for requests.",
    ),
    Metric(
        _SKIPPED,
        "counter",
        ("driver",),
        help="Rounds that did not start when due because objects were being listed again.",
    ),
)
"""Computing time of rounds, with steps in the background since the previous round but without waiting times; and number
of rounds that did not start when due, because objects were being listed again."""
_T = TypeVar("_T")


class Scope(msgspec.Struct, eq=False):
    """Time limit of machines: a deadline, or until cancellation (Go's ``context.Context``).

    Actions that are in progress then or requested later end with an error; the machines themselves run to their end.
    """

    deadline: float | None = None
    """Time of the event loop's clock in seconds; None without a deadline."""
    _error: ApiError | None = None
    _limits: set[asyncio.Timeout] = set()
    _sleeping: set[asyncio.Future[None]] = set()
    _children: set[Scope] = set()

    def cancel(self) -> None:
        """End the scope, and all scopes within it, as cancelled."""
        self.cancel_with(CANCELED)

    def within(self, seconds: float | None = None) -> Scope:
        """Create a child scope that ends with this scope, or earlier: after ``seconds`` (None: no limit of its own)."""
        ends = [self.deadline] if self.deadline is not None else []
        if seconds is not None:
            ends.append(asyncio.get_running_loop().time() + seconds)
        child = Scope(min(ends, default=None))
        if self._error is not None:
            child._error = self._error
        else:
            self._children.add(child)
        return child

    def leave(self, child: Scope) -> None:
        """Remove a finished child scope."""
        self._children.discard(child)

    def is_over(self, time: Callable[[], float]) -> bool:
        """Check whether the scope was cancelled or its deadline has passed.

        May be called in any thread. ``time`` returns the current time of the event loop's clock in seconds.
        """
        return self._error is not None or (self.deadline is not None and time() >= self.deadline)

    @property
    def error(self) -> ApiError | None:
        """Return why the scope is over; None if it is not. Cancels the scope if its deadline has passed."""
        if self._error is None and self.deadline is not None and asyncio.get_running_loop().time() >= self.deadline:
            self.cancel_with(DEADLINE_EXCEEDED)
        return self._error

    def cancel_with(self, error: ApiError) -> None:
        """Set the error that ends the scope and all scopes within it, unless the scope is already over."""
        if self._error is not None:
            return
        self._error = error
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())
        for waiter in self._sleeping:
            _finish(waiter)
        for child in self._children:
            child.cancel_with(error)
        self._children.clear()

    async def sleep(self, seconds: float) -> ApiError | None:
        """Sleep within the scope and return None; the scope's error if the scope ends first, or is over already."""
        if seconds <= 0 or self.error is not None:
            return await self.limit(asyncio.sleep(0))
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        end = loop.time() + seconds
        timer = loop.call_at(end if self.deadline is None else min(end, self.deadline), _finish, waiter)
        self._sleeping.add(waiter)
        try:
            await waiter
        finally:
            self._sleeping.discard(waiter)
            timer.cancel()
        return self._error or (None if self.deadline is None or self.deadline >= end else DEADLINE_EXCEEDED)

    async def limit(self, work: Awaitable[_T]) -> _T | ApiError:
        """Run ``work`` within the scope, and return its result.

        Returns the scope's error if the scope ends first, or is over already.
        """
        if (over := self.error) is not None:
            if asyncio.iscoroutine(work):
                work.close()
            return over
        limit = asyncio.timeout_at(self.deadline)
        try:
            async with limit:
                self._limits.add(limit)
                try:
                    return await work
                finally:
                    self._limits.discard(limit)
        except TimeoutError:
            if not limit.expired():
                raise
        return self._error or DEADLINE_EXCEEDED


def _finish(waiter: asyncio.Future[None]) -> None:
    """Set the result of a future, unless it is done, so that the task that waits for it continues."""
    if not waiter.done():
        waiter.set_result(None)


class Live:
    """Runs machines concurrently in one world.

    ``perform`` performs actions (never a Wait, Together, Within or InBackground). ``worker`` is the executor of steps,
    with at most one thread, which runs the steps that are due together; None: on the loop. ``turn`` is held during
    steps: hold it to change what steps read. ``rng`` draws the jitter of waits. As an async context manager it waits at
    its end for background tasks; an exception of one ends everything.
    """

    __slots__ = ("_clock", "_group", "_perform", "_rng", "_stepper", "scope", "turn")

    def __init__(
        self,
        perform: PerformLive,
        clock: Clock,
        *,
        worker: Executor | None = None,
        turn: asyncio.Lock | None = None,
        rng: random.Random | None = None,
        scope: Scope | None = None,
    ) -> None:
        self._perform = perform
        self._clock = clock
        self.turn = turn or asyncio.Lock()
        self._rng = rng or random.Random()
        self._stepper = Stepper(clock, worker, self.turn)
        self._group = asyncio.TaskGroup()
        self.scope = scope or Scope()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseExceptionGroup as faults:
            if len(faults.exceptions) > 1:
                raise
            raise faults.exceptions[0] from None

    def now(self) -> Moment:
        """Return the current time of the clock with which the step machines run."""
        return self._clock.now()

    async def run(
        self,
        machine: Machine,
        scope: Scope | None = None,
        spent: Callable[[int], None] | None = None,
        *,
        brief: bool = False,
    ) -> Any:
        """Run a machine and return its value; raises what the machine raises.

        When cancelled, it closes the machine after the current step.

        ``spent`` is called with the nanoseconds of each step, also of machines that this machine runs or starts. With
        ``brief`` its steps, also of machines that it runs within a time limit, run on the loop, which yields every few
        milliseconds.
        """
        scope = scope or self.scope
        steps = machine(self._clock.now())
        del machine  # free the machine, which its steps no longer need
        outcome: Outcome | None = None
        is_over = partial(scope.is_over, asyncio.get_running_loop().time)
        self._stepper.machines += 1
        try:
            while True:
                taken = self._stepper.run_here(steps, outcome, is_over) if brief else None
                action, took, reports = taken or await self._stepper.advance(steps, outcome, is_over)
                if taken is not None and self._stepper.is_yield_due():
                    await asyncio.sleep(0)
                if spent is not None:
                    spent(took)
                for report in reports:
                    await self._perform(report)
                if isinstance(action, Done):
                    return action.value
                if isinstance(action, Failed):
                    raise action.error
                outcome = await self._act(action, scope, spent, brief=brief)
                del action, reports, taken  # free their objects before the next step
        finally:
            self._stepper.machines -= 1
            steps.close()

    async def _run_single(self, machine: SingleAction, scope: Scope, spent: Callable[[int], None] | None) -> None:
        """Run a machine with one action as :meth:`run` does with ``brief``, but without a generator.

        Its build and its finish run on the loop, unless another step is running (``turn`` is locked).
        """
        stepper, clock = self._stepper, self._clock
        if self.turn.locked():
            await self.run(machine, scope, spent, brief=True)
            return
        started = clock.monotonic()
        action = machine.build(clock.now())
        took = clock.monotonic() - started
        if stepper.is_yield_due():
            await asyncio.sleep(0)
        if action is not None:
            outcome = await self._act(action, scope, spent, brief=True)
            more: Steps[None] | None
            if self.turn.locked():
                more = machine.finish_steps(action, outcome)
            else:
                started = clock.monotonic()
                more = machine.finish(check_outcome(action, outcome))
                took += clock.monotonic() - started
            if more is not None:
                await self.run(lambda _: more, scope, spent, brief=True)
        if spent is not None:
            spent(took)

    async def _act(self, action: Action, scope: Scope, spent: Callable[[int], None] | None, *, brief: bool) -> Outcome:
        """Perform an action within a scope and return its outcome. ``spent``, ``brief``: as for :meth:`run`."""
        rule = LEGAL_OUTCOMES.get(type(action))
        refusable = rule is not None and rule.refusable
        if refusable and (over := scope.error) is not None:
            return Outcome(at=self._clock.now(), error=over)
        match action:
            case Wait(duration=duration, jitter=jitter):
                seconds = max(duration, 0) * (1 + self._rng.random() * jitter) / _SECOND
                return self._outcome(await scope.sleep(seconds))
            case Together():
                return self._outcome(await self._together(action, scope, spent))
            case Within(duration=duration, machine=machine):
                part = scope.within(max(duration, 0) / _SECOND)
                try:
                    value = await self.run(machine, part, spent, brief=brief)  # an error is an outcome, too
                    return Outcome(at=self._clock.now(), value=value)
                finally:
                    scope.leave(part)
            case InBackground(machine=machine):
                self._group.create_task(self.run(machine, spent=spent))
                return self._outcome(None)
        if not refusable:
            return await self._perform(action)
        result = await scope.limit(self._perform(action))
        return self._outcome(result) if isinstance(result, ApiError) else result

    def _outcome(self, result: Any) -> Outcome:
        """Return an outcome with the current time. ``result`` becomes its value, or its error if it is an ApiError."""
        error = result if isinstance(result, ApiError) else None
        return Outcome(at=self._clock.now(), value=None if error else result, error=error)

    async def _together(self, action: Together, scope: Scope, spent: Callable[[int], None] | None) -> list[Any]:
        """Run step machines concurrently and return their values in order. Raises the first exception of a machine.

        The value of a machine with a single action is None if the action is ``brief``. A limited number of tasks runs
        the machines one after the other, as one task per machine would cost as much as the machine. Raises ValueError
        for a limit below 1.
        """
        count = len(action.machines)
        places = count if action.at_most is None else min(action.at_most, count)
        if action.at_most is not None and action.at_most < 1:
            raise ValueError(f"{action.at_most} machines at a time never end")
        left = iter(enumerate(action.machines))
        results: list[Any] = [None] * count

        async def one_after_the_other() -> None:
            for number, machine in left:
                if action.brief and isinstance(machine, SingleAction):
                    await self._run_single(machine, scope, spent)
                else:
                    results[number] = await self.run(machine, scope, spent, brief=action.brief)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(places):
                    group.create_task(one_after_the_other())
        except BaseExceptionGroup as faults:
            raise faults.exceptions[0] from None
        return results


async def drive(
    driver: Driver[Any],
    stores: LiveStores,
    live: Live,
    clock: Clock,
    *,
    before: Callable[[], None] = lambda: None,
    observe: Callable[[Observation], None] = lambda _: None,
    is_small: Callable[[Any], bool] = lambda _: False,
) -> None:
    """Run a driver's rounds, one after the other, until ``live.scope`` is over.

    Each round starts when the driver is due and the stores are settled. ``before`` is called before each round;
    ``observe`` receives metrics of the rounds (:data:`DRIVE_METRICS`). ``is_small`` checks whether no step of a round
    with these inputs can take long. The steps of such a round run on the loop, unless one of the last round took more
    than ten milliseconds. Raises what a round raises.
    """
    woken = asyncio.Event()
    spent: list[int] = []
    labels = {"driver": driver.name}

    def notify(change: Change | None) -> None:
        if change is not None:
            driver.notice(change, clock.now())
        woken.set()

    async def until_due() -> None:
        """Wait until the driver is due and the stores are settled.

        The first time that it is due while the stores are synced, but not settled, is counted as a skipped round.
        """
        skipped = False
        while True:
            woken.clear()
            due = driver.next_due()
            left = None if due is None else (due - clock.now()) / _SECOND
            if left is not None and left <= 0:
                if stores.settled:
                    return
                if stores.synced and not skipped:
                    skipped = True
                    observe(Observation(name=_SKIPPED, labels=labels))
                left = None
            try:
                async with asyncio.timeout(left):
                    await woken.wait()
            except TimeoutError:
                continue

    brief = on_loop = False

    async def next_round() -> Machine:
        """Read the inputs of the next round, and return its machine."""
        nonlocal on_loop
        await stores.caught_up()
        async with live.turn:
            before()
            sight = driver.observe(stores, clock.now())
            on_loop = brief and is_small(sight)
            return partial(driver.steps, sight)

    unsubscribe = stores.subscribe(notify)
    try:
        while live.scope.error is None:
            if await live.scope.limit(until_due()) is not None:
                return
            await live.run(await next_round(), spent=spent.append, brief=on_loop)
            brief = max(spent, default=0) < _MAX_NANOSECONDS_OF_BRIEF_STEPS
            observe(Observation(name=_DECISION, value=sum(spent) / _SECOND, labels=labels))
            spent.clear()
    finally:
        unsubscribe()
