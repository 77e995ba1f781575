"""Run a function over many scenarios on any ``concurrent.futures.Executor``, Ray included.

What all scenarios share is pickled once (protocol 5) and goes once to each worker: through a file in the machine's
shared memory to processes, by the caller's ``share`` to workers elsewhere (a future of Dask, Ray's object store).
Workers are trusted, and nothing that somebody else may have written is unpickled.

kscale's own.
"""

from __future__ import annotations

import itertools
import mmap
import os
import pickle
import secrets
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from kscale.errors import InputError
from kscale.files import removed_on_termination
from kscale.libraries import library
from kscale.objects.argument_types import typed
from kscale.processes import worker_processes

__all__ = ["Done", "Reference", "Shared", "sweep"]


S = TypeVar("S")
R = TypeVar("R")

_AHEAD = 2  # parts under way for each worker, so that none waits for the next
_CALLS = 4  # of each worker, so that none is idle for long at the end
_LARGEST = 500  # scenarios in a call: what a lost worker costs, and how long an answer waits for others
_RETRIES = 3  # executors that may break one after the other without a result
_LISTEN = 1.0
"""Seconds. A Ctrl-C that comes just before the wait begins is heard by the interpreter only after it."""

_there: dict[str, Any] = {}
"""In a worker: what was shared, by its token."""


@dataclass(frozen=True, slots=True)
class Done(Generic[R]):
    """The answer to one scenario: ``index`` is its place among the scenarios; ``error``: what it raised instead."""

    index: int
    value: R | None
    """What the function answered; None beside an ``error``."""
    error: Exception | None = None


class Reference(ABC):
    """What a task carries instead of what is shared. A worker loads it once: tasks with the same ``token`` share it."""

    token: str

    @abstractmethod
    def load(self) -> Any:
        """In a worker: the object."""


@dataclass(frozen=True, slots=True)
class _InFile(Reference):
    """A file of this machine, and the sizes of the parts in it."""

    token: str
    path: str
    sizes: list[int]

    def load(self) -> Any:
        with open(self.path, "rb") as file:
            whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        parts, start = [], 0
        for size in self.sizes:
            parts.append(whole[start : start + size])
            start += size
        return pickle.loads(parts[0], buffers=parts[1:])


class Shared:
    """An object in a file that workers on this machine map; each unpickles it once, its arrays without copies."""

    def __init__(self, value: Any) -> None:
        self.token = secrets.token_hex(16)
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        parts: list[bytes | memoryview] = [head, *(buffer.raw() for buffer in buffers)]
        folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        handle, self.path = tempfile.mkstemp(prefix="kscale-", dir=folder)
        self._resources = ExitStack()
        self._resources.enter_context(removed_on_termination(self.path))
        self._resources.callback(Path(self.path).unlink, missing_ok=True)
        self.sizes = [len(part) for part in parts]
        try:
            with os.fdopen(handle, "wb") as file:
                for part in parts:
                    file.write(part)
        except OSError as error:
            self.close()
            raise OSError(error.errno, error.strerror, self.path) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the file. Workers that have mapped it keep it until they end."""
        self._resources.close()

    def reference(self) -> Reference:
        return _InFile(self.token, self.path, self.sizes)


def _shared(reference: Any) -> Any:
    """In a worker: the object of a reference; anything else is itself."""
    if not isinstance(reference, Reference):
        return reference
    if reference.token not in _there:
        found = reference.load()
        _there.clear()  # one sweep at a time: what an earlier one shared is not needed any more
        _there[reference.token] = found
    return _there[reference.token]


def _part(
    function: Callable[[Any, list[S]], Iterable[R]], reference: Any, scenarios: list[S]
) -> list[tuple[R | None, Exception | None]]:
    """In a worker: the answers to some scenarios. What one raises is its answer."""
    base = _shared(reference)
    try:
        return [(value, None) for value in function(base, scenarios)]
    except Exception as error:  # noqa: BLE001  # whatever the function raises is told by scenario
        if len(scenarios) == 1:
            return [(None, error)]
    return [answer for scenario in scenarios for answer in _part(function, base, [scenario])]


@typed
def sweep(
    function: Callable[[Any, list[S]], Iterable[R]],
    scenarios: Iterable[S],
    *,
    base: Any = None,
    executor: Executor | Callable[[], Executor] | int | None = None,
    workers: int | None = None,
    chunk: int | None = None,
    share: Callable[[Any], Any] | None = None,
) -> Generator[Done[R], None, None]:
    """The answers to scenarios, each as soon as it is there, in the order in which they come.

    ``function(base, part)`` answers a list of ``chunk`` scenarios at most, in their order; it is pickled by its name.
    Scenarios of one call can share work. ``chunk`` None: four calls for each worker, but at most 500 scenarios in one;
    of scenarios whose number is not known (an iterator) one in the first calls, then more and more.
    ``executor``: a number of processes (None: this process, no worker at all), an executor, or what makes one: then,
    when a worker is lost and the executor breaks, another one is made, and what was not answered runs again. (An
    executor such as Dask's runs it again by itself.) ``workers``: how many it has; only so many parts and some more are
    under way at once. ``share``: how ``base`` reaches workers of another machine; its result goes with every task.

    A scenario whose function raises is a :class:`Done` with that error. Closing the generator cancels what is not
    begun. Raises :class:`concurrent.futures.BrokenExecutor` where workers are lost again and again.
    """
    count = 1 if executor is None else workers or (executor if isinstance(executor, int) else os.cpu_count() or 1)
    sizes = _sizes(scenarios, count) if chunk is None else itertools.repeat(max(1, chunk))
    parts: Iterator[tuple[list[int], list[S]]] = _cut(scenarios, sizes)
    if executor is None:
        for indices, some in parts:
            yield from _told(indices, _part(function, base, some))
        return
    make: Callable[[], Executor] | None = None
    if isinstance(executor, int):
        workers, count = executor, executor

        def make() -> Executor:
            return worker_processes(count)

    elif not isinstance(executor, Executor):
        make = executor
    shared = None if share is not None or base is None else Shared(base)
    reference = share(base) if share is not None else base if shared is None else shared.reference()
    try:
        yield from _spread(function, reference, parts, executor, make, workers or os.cpu_count() or 1)
    finally:
        if shared is not None:
            shared.close()


def _spread(
    function: Callable[[Any, list[S]], Iterable[R]],
    reference: Any,
    parts: Iterator[tuple[list[int], list[S]]],
    given: Any,
    make: Callable[[], Executor] | None,
    workers: int,
) -> Generator[Done[R], None, None]:
    again: deque[tuple[list[int], list[S]]] = deque()
    broken = 0
    while True:
        pool: Executor = given if make is None else make()
        under_way: dict[Future[Any], tuple[list[int], list[S]]] = {}
        try:
            while True:
                while len(under_way) < workers * _AHEAD:
                    part = again.popleft() if again else next(parts, None)
                    if part is None:
                        break
                    try:
                        under_way[pool.submit(_part, function, reference, part[1])] = part
                    except BrokenExecutor:
                        again.append(part)
                        raise
                if not under_way:
                    return
                for future in wait(under_way, _LISTEN, FIRST_COMPLETED).done:
                    answers = future.result()
                    indices, _ = under_way.pop(future)
                    broken = 0
                    yield from _told(indices, answers)
        except BrokenExecutor:
            broken += 1
            if make is None or broken > _RETRIES:
                raise
            again.extend(under_way.values())
        finally:
            for future in under_way:
                future.cancel()
            if make is not None:
                pool.shutdown(wait=True, cancel_futures=True)


def _sizes(scenarios: Iterable[S], workers: int) -> Iterator[int]:
    """Yield how many scenarios go into each call."""
    if isinstance(scenarios, Sized):
        yield from itertools.repeat(min(_LARGEST, max(1, len(scenarios) // (workers * _CALLS))))
    size = 1
    while True:
        yield from itertools.repeat(size, workers * _CALLS)
        size = min(_LARGEST, 2 * size)


def _cut(scenarios: Iterable[S], sizes: Iterator[int]) -> Iterator[tuple[list[int], list[S]]]:
    numbered = enumerate(scenarios)
    for size in sizes:
        part = list(itertools.islice(numbered, size))
        if not part:
            return
        yield [index for index, _ in part], [scenario for _, scenario in part]


def _told(indices: list[int], answers: list[tuple[R | None, Exception | None]]) -> Iterator[Done[R]]:
    for index, (value, error) in zip(indices, answers, strict=True):
        yield Done(index, value, error)


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
