"""A Ray cluster as a ``concurrent.futures.Executor``, which Ray itself does not have (extra ``[ray]``)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass
from typing import Any

from kscale.capacity.sweep import Reference
from kscale.errors import InputError
from kscale.libraries import library

__all__ = ["RayExecutor"]


@dataclass(frozen=True, slots=True)
class _InStore(Reference):
    """An object in Ray's store: its bytes come to each machine once, and each worker unpickles them once."""

    token: str
    store: Any

    def load(self) -> Any:
        return library("ray", "an executor over Ray").get(self.store)


class RayExecutor(Executor):
    """Calls as tasks of a Ray cluster. A worker that is lost is replaced by Ray, which runs its task again; a call that
    cannot be had even so raises :class:`~concurrent.futures.BrokenExecutor`.

    ``address``: ``ray://HOST:PORT`` of a cluster's client server; None: the cluster that this process is connected to.
    Raises InputError where nobody answers there.
    """

    def __init__(self, address: str | None = None) -> None:
        self._ray = ray = library("ray", "an executor over Ray")
        self._connected = address is not None
        if self._connected:
            try:
                ray.init(address, log_to_driver=False)
            except (OSError, RuntimeError) as error:
                raise InputError(f"no Ray cluster at {address}: {error}") from None
        self._task = ray.remote(_called)
        self._under_way: dict[Future[Any], Any] = {}

    @property
    def workers(self) -> int:
        """Cpus of the cluster: so many tasks run at once."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def share(self, value: Any) -> Reference:
        """A reference that tasks carry instead of the value."""
        return _InStore(secrets.token_hex(16), self._ray.put(value))

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As every executor."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        task = self._task.remote(function, args, kwargs)
        self._under_way[future] = task
        task.future().add_done_callback(lambda done: self._tell(future, done))
        return future

    def _tell(self, future: Future[Any], done: Future[Any]) -> None:
        self._under_way.pop(future, None)
        error = done.exception()
        if error is None:
            future.set_result(done.result())
        elif isinstance(error, self._ray.exceptions.RayTaskError):
            future.set_exception(error.cause)
        else:
            future.set_exception(BrokenExecutor(str(error)))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As every executor; the connection ends if it was made here."""
        tasks = list(self._under_way.values())
        if cancel_futures:
            for task in tasks:
                self._ray.cancel(task)
        if wait and tasks:
            self._ray.wait(tasks, num_returns=len(tasks))
        if self._connected:
            self._ray.shutdown()


def _called(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """In a worker."""
    return function(*args, **kwargs)
