"""Methods of an object that has one owner at a time: a second thread gets an error instead of damaged data."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from kscale.errors import ConcurrentUseError

__all__ = ["Busy", "exclusive", "not_busy"]

Busy = Any
"""The lock that a call holds while it is under way. A thread that has it may call further methods."""


class _Owned(Protocol):
    _busy: Busy


S = TypeVar("S", bound=_Owned)
P = ParamSpec("P")
R = TypeVar("R")


def not_busy() -> Busy:
    """Return the lock of an object that nobody calls."""
    return RLock()


def exclusive(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a method raise ConcurrentUseError while another thread is inside one of the object's exclusive methods.

    The lock is never waited for. Handing the object over to another thread between calls is allowed.
    """

    @wraps(method)
    def call(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        if not self._busy.acquire(blocking=False):
            raise ConcurrentUseError(
                f"{type(self).__name__}.{method.__name__}: another thread is using this cluster, which has one owner "
                "at a time: use a lock of your own, or pass snapshots to other threads"
            )
        try:
            return method(self, *args, **kwargs)
        finally:
            self._busy.release()

    return call
