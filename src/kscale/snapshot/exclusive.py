"""Methods of an object that has one owner at a time: a second thread gets an error instead of damaged data."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Concatenate, ParamSpec, TypeVar

from kscale.errors import ConcurrentUseError

__all__ = ["Busy", "exclusive", "shared"]

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


class Busy:
    """The thread that runs exclusive methods of an object. It may call further methods of the object."""

    __slots__ = ("changing", "lock")

    def __init__(self) -> None:
        self.lock = RLock()
        self.changing = 0
        """Number of nested exclusive calls."""


def exclusive(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a method that changes the object raise ConcurrentUseError while another thread is inside the object.

    The lock is never waited for. Handing the object over to another thread between calls is allowed.
    """

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        busy: Busy = self._busy  # type: ignore[attr-defined]  # every class with such methods has one
        if not busy.lock.acquire(blocking=False):
            raise _error(self, method.__name__)
        busy.changing += 1
        try:
            return method(self, *args, **kwargs)
        finally:
            busy.changing -= 1
            busy.lock.release()

    return call


def shared(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a method that only reads the object raise ConcurrentUseError while another thread changes the object.

    Threads that read wait for each other: what they read is made when somebody first asks for it.
    """

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        busy: Busy = self._busy  # type: ignore[attr-defined]  # every class with such methods has one
        if not busy.lock.acquire(blocking=False):
            if busy.changing:
                raise _error(self, method.__name__)
            busy.lock.acquire()
        try:
            return method(self, *args, **kwargs)
        finally:
            busy.lock.release()

    return call


def _error(owned: object, method: str) -> ConcurrentUseError:
    return ConcurrentUseError(
        f"{type(owned).__name__}.{method}: another thread is using this cluster, which has one owner at a time: "
        "use a lock of your own, or pass snapshots to other threads"
    )
