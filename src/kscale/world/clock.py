"""Clocks: the system's, and an asyncio event loop in virtual time.

Virtual time and order are those of :class:`kscale.effects.VirtualTime`, so coroutines and step machines can share one
simulation. There are no sockets and no threads: calls for an executor run immediately. If all tasks wait and nothing
is scheduled, the loop raises :class:`StuckError` instead of hanging.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import sys
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, NoReturn, TypeVar, TypeVarTuple

import msgspec

from kscale.effects import SECOND, Action, Moment, Outcome, VirtualTime
from kscale.effects.virtual_time import Running
from kscale.world.protocols import Clock

__all__ = [
    "FollowingClock",
    "SteadyClock",
    "StuckError",
    "SystemClock",
    "VirtualClock",
    "VirtualLoop",
    "run_in_virtual_time",
]


class SystemClock:
    """The system's wall clock, which may be set, and its monotonic clock."""

    def now(self) -> Moment:
        """Return nanoseconds since 1970."""
        return time.time_ns()

    def monotonic(self) -> int:
        """Return nanoseconds of the monotonic clock."""
        return time.monotonic_ns()


class SteadyClock:
    """Clock whose time never goes back: the wall clock at creation plus the monotonic time since then.

    For code that measures durations with wall-clock times (leases, health): such code must not be affected when the
    wall clock is set, like Go's times.
    """

    __slots__ = ("_ahead", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = clock.now() - clock.monotonic()

    def now(self) -> Moment:
        """Return nanoseconds since 1970, unaffected by later changes of the wall clock."""
        return self._clock.monotonic() + self._ahead

    def monotonic(self) -> int:
        """Return nanoseconds of the monotonic clock."""
        return self._clock.monotonic()


class FollowingClock(SteadyClock):
    """Clock whose time advances evenly when the wall clock is set, until :meth:`follow` adopts the change.

    For loops that wait for wall-clock times and compare them with times that other programs have written.
    """

    __slots__ = ()

    def follow(self) -> int:
        """Set the clock to the wall clock if they differ by a second or more.

        Returns the change in nanoseconds; 0 if the clock was not set.
        """
        by = self._clock.now() - self.now()
        if abs(by) < SECOND:
            return 0
        self._ahead += by
        return by


_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class StuckError(RuntimeError):
    """Every task waits, and nothing is scheduled that could continue one."""


class VirtualClock(msgspec.Struct, eq=False):
    """Clock of a virtual world."""

    _time: VirtualTime

    def now(self) -> Moment:
        """Return nanoseconds since 1970 in virtual time."""
        return self._time.now

    def monotonic(self) -> int:
        """Return the same time as :meth:`now`: virtual time only increases."""
        return self._time.now


class VirtualLoop(asyncio.AbstractEventLoop):
    """asyncio event loop in virtual time.

    ``virtual`` determines time and order. With ``seed``, callbacks that are due at the same time run in a random order
    drawn from it; without, in the order of scheduling. Only methods that need no operating system are implemented; the
    others raise NotImplementedError.
    """

    def __init__(self, virtual: VirtualTime, *, seed: int | None = None) -> None:
        self.virtual = virtual
        self._start = virtual.now
        self._rng = None if seed is None else random.Random(seed)
        self._timers: weakref.WeakKeyDictionary[asyncio.TimerHandle, Running] = weakref.WeakKeyDictionary()
        self._generators: weakref.WeakSet[AsyncGenerator[Any, Any]] = weakref.WeakSet()
        self._handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self._running = self._stopping = self._closed = False

    # -- running -----------------------------------------------------------------------------------------------------

    def run_forever(self) -> None:
        """Run until :meth:`stop`. Raises :class:`StuckError` if nothing is left to run.

        An error that goes to no exception handler is raised. Raises RuntimeError if the loop is closed or already
        running.
        """
        self._check_open()
        if self._running:
            raise RuntimeError("this loop is running already")
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generators.add, finalizer=self._finalize)
        asyncio._set_running_loop(self)  # noqa: SLF001  # asyncio documents this for implementations of loops
        self._running, self._stopping = True, False
        try:
            while not self._stopping:
                if not self.virtual.step():
                    raise StuckError("all tasks wait, and nothing is due")
        finally:
            self._running = self._stopping = False
            asyncio._set_running_loop(None)  # noqa: SLF001  # as above
            sys.set_asyncgen_hooks(*hooks)

    def run_until_complete(self, future: Any) -> Any:
        """Run until a coroutine or future is done, and return its result.

        Raises as :meth:`run_forever`, the exception of the future, and InvalidStateError if the loop is stopped before.
        """
        self._check_open()
        task = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(self._stop_with)
        try:
            self.run_forever()
        finally:
            task.remove_done_callback(self._stop_with)
        return task.result()

    def _stop_with(self, _future: asyncio.Future[Any]) -> None:
        """Stop the loop when a future is done."""
        self.stop()

    def stop(self) -> None:
        """Stop :meth:`run_forever` after the current callback."""
        self._stopping = True

    def is_running(self) -> bool:
        """Return whether :meth:`run_forever` or :meth:`run_until_complete` is running."""
        return self._running

    def is_closed(self) -> bool:
        """Return whether the loop was closed."""
        return self._closed

    def close(self) -> None:
        """Close the loop; nothing can run afterwards."""
        self._closed = True

    def _check_open(self) -> None:
        """Raise RuntimeError if the loop is closed."""
        if self._closed:
            raise RuntimeError("this loop is closed")

    async def shutdown_asyncgens(self) -> None:
        """Close the asynchronous generators that began in this loop and still exist."""
        for generator in list(self._generators):
            await generator.aclose()

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Return at once, as there is no executor to stop."""

    def _finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Close a garbage-collected asynchronous generator in a task of this loop, unless the loop is closed."""
        self._generators.discard(generator)
        if not self._closed:
            self.create_task(_closing(generator))

    # -- time and order ----------------------------------------------------------------------------------------------

    def time(self) -> float:
        """Return seconds since the loop was created."""
        return (self.virtual.now - self._start) / 1e9

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback for the current moment of virtual time, and return its handle.

        Raises RuntimeError if the loop is closed.
        """
        context = context if context is not None else contextvars.copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        self._schedule(self.virtual.now, handle, callback, args, context)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Do the same as :meth:`call_soon`; it must be called in the loop's thread, too."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback in ``delay`` seconds of virtual time, and return its handle.

        Raises RuntimeError if the loop is closed.
        """
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback for the loop's time ``when`` (:meth:`time`), and return its handle.

        A time in the past counts as now. Raises RuntimeError if the loop is closed.
        """
        context = context if context is not None else contextvars.copy_context()
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        moment = max(self._start + round(when * 1e9), self.virtual.now)
        self._timers[handle] = self._schedule(moment, handle, callback, args, context)
        return handle

    def _schedule(
        self,
        moment: Moment,
        handle: asyncio.Handle,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
    ) -> Running:
        """Schedule a callback for a moment, and return the scheduled call. It does nothing if ``handle`` is cancelled.

        With a random generator, callbacks of one moment run in random order. An exception of the callback goes to the
        loop's exception handler. Raises RuntimeError if the loop is closed.
        """
        self._check_open()

        def call() -> None:
            if handle.cancelled():
                return
            try:
                context.run(callback, *args)
            except Exception as error:  # noqa: BLE001  # as in every loop, the handler gets it
                self.call_exception_handler({"message": f"{callback!r}", "exception": error, "handle": handle})

        return self.virtual.at(moment, call, rank=0 if self._rng is None else self._rng.randrange(1 << 30))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancel the scheduled call of a timer handle that asyncio has cancelled."""
        due = self._timers.pop(handle, None)
        if due is not None:
            due.cancel()

    # -- futures, tasks and threads ----------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        """Return a new future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        """Create a task of this loop for a coroutine. Raises RuntimeError if the loop is closed."""
        self._check_open()
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def run_in_executor(
        self,
        executor: Executor | None,  # noqa: ARG002  # this loop has no threads
        func: Callable[[*_Ts], _T],
        *args: *_Ts,
    ) -> asyncio.Future[_T]:
        """Call ``func`` immediately in this thread, and return a future with its result or exception."""
        future: asyncio.Future[_T] = asyncio.Future(loop=self)
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  # the future passes it to the caller
            future.set_exception(error)
        return future

    # -- errors ------------------------------------------------------------------------------------------------------

    def get_debug(self) -> bool:
        """Return False: the loop has no debug mode."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Accept the debug flag without effect."""

    def get_exception_handler(self) -> Any:
        """Return the handler that was set, or None."""
        return self._handler

    def set_exception_handler(self, handler: Any) -> None:
        """Set the function that is called with the loop and the context of each error. None: errors are raised."""
        self._handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> NoReturn:
        """Raise the exception in ``context``, or RuntimeError with its message, so that no error is lost."""
        raise context.get("exception") or RuntimeError(context.get("message"))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Pass an error to the handler that was set. Without a handler, raise the error."""
        if self._handler is None:
            self.default_exception_handler(context)
        self._handler(self, context)


async def _closing(generator: AsyncGenerator[Any, Any]) -> None:
    """Close the generator. A coroutine, because a task can only run a coroutine."""
    await generator.aclose()


def run_in_virtual_time(
    main: Callable[[VirtualClock], Coroutine[Any, Any, _T]], *, now: Moment, seed: int | None = None
) -> _T:
    """Run a coroutine in its own virtual world and return its result.

    Parameters
    ----------
    main : callable
        Called with the world's :class:`VirtualClock`; returns the coroutine.
    now : int
        Start time in nanoseconds since 1970.
    seed : int, optional
        Seed for the order of simultaneous callbacks. Default: order of scheduling.

    Returns
    -------
    object
        The result of the coroutine.

    Raises
    ------
    StuckError
        If all tasks wait and nothing is scheduled.
    Exception
        What the coroutine raises.
    """

    def nobody(action: Action, at: Moment) -> Outcome:
        raise AssertionError(f"no step machine runs here: {type(action).__name__} at {at}")

    virtual = VirtualTime(nobody, now=now)

    def loop() -> VirtualLoop:
        return VirtualLoop(virtual, seed=seed)  # type: ignore[abstract]  # other methods raise NotImplementedError

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main(VirtualClock(virtual)))
