"""Runs a function over many scenarios on any ``concurrent.futures.Executor``, Ray included.

The shared base is pickled once (protocol 5) and sent once to each worker: through a file in shared memory to processes
on this machine, by the caller's ``share`` to other workers (a future of Dask, Ray's object store). Workers are trusted;
data that others may have written is never unpickled.

Not in upstream.
"""

from __future__ import annotations

import itertools
import mmap
import os
import pickle
import secrets
import sys
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from operator import index as whole_number
from pathlib import Path
from typing import Any, Generic, TypeVar

from kscale.errors import ArgumentError, InputError, Problem, show_value
from kscale.files import removed_on_termination
from kscale.imports import library
from kscale.objects.argument_types import typed
from kscale.processes import worker_processes

__all__ = ["CompletedTask", "Reference", "Shared", "pickle_in_parts", "sweep", "unpickle_parts"]


S = TypeVar("S")
R = TypeVar("R")

_AHEAD = 2  # calls submitted per worker, so that no worker is idle
_CALLS = 4  # calls per worker, so that none is idle for long at the end
_LARGEST = 500  # scenarios per call: limits what a lost worker costs, and the delay of results
_MOST_WORKERS = 1024  # a spawning pool starts all of its processes at once
_RETRIES = 3  # executors that may break in a row without a result
_LISTEN = 1.0
"""Seconds. A Ctrl-C that comes just before the wait begins is heard by the interpreter only after it."""

_there: dict[str, Any] = {}
"""In a worker: what was shared, by its token."""


@dataclass(frozen=True, slots=True)
class CompletedTask(Generic[R]):
    """The result of one scenario. ``index``: its position among the scenarios; ``error``: the exception, if any."""

    index: int
    value: R | None
    """The result of the function; None if there is an ``error``."""
    error: Exception | None = None


class Reference(ABC):
    """A reference that tasks carry instead of the shared object.

    A worker loads it once; tasks with the same ``token`` use the same object.
    """

    token: str

    @abstractmethod
    def load(self) -> Any:
        """Load and return the object; called in a worker."""


@dataclass(frozen=True, slots=True)
class _InFile(Reference):
    """Reference to a file on this machine, with the sizes of the parts in it."""

    token: str
    path: str
    sizes: list[int]

    def load(self) -> Any:
        """Map the file and return the unpickled object, whose arrays stay in the file."""
        with open(self.path, "rb") as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        parts, start = [], 0
        for size in self.sizes:
            parts.append(content[start : start + size])
            start += size
        return unpickle_parts(*parts)


@typed
def pickle_in_parts(value: Any) -> list[bytes | memoryview]:
    """Pickle an object without copying its arrays.

    Parameters
    ----------
    value : object
        Any object that can be pickled.

    Returns
    -------
    list of bytes or memoryview
        The pickle, then the contents of the object's arrays.
    """
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return [head, *(buffer.raw() for buffer in buffers)]


@typed
def unpickle_parts(head: Any, *buffers: Any) -> Any:
    """Return the object that was pickled with :func:`pickle_in_parts`.

    Parameters
    ----------
    head : bytes-like
        The pickle.
    *buffers : bytes-like
        The contents of the arrays, which the object's arrays use without a copy.
    """
    return pickle.loads(head, buffers=buffers)


class Shared:
    """An object in a file that workers on this machine map; each unpickles it once, its arrays without copies."""

    def __init__(self, value: Any) -> None:
        """Write the pickled object to a temporary file, in ``/dev/shm`` if possible.

        Raises OSError that names the file. The file is removed by :meth:`close` or when the process is terminated.
        """
        self.token = secrets.token_hex(16)
        parts = pickle_in_parts(value)
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
        """Remove the file. Workers that have mapped it can use it until they exit."""
        self._resources.close()

    def reference(self) -> Reference:
        """Return the reference that tasks carry in place of the object."""
        return _InFile(self.token, self.path, self.sizes)


def _resolve_reference(reference: Any) -> Any:
    """Return the object of a :class:`Reference`, loaded once per worker; return anything else unchanged."""
    if not isinstance(reference, Reference):
        return reference
    if reference.token not in _there:
        value = reference.load()
        _there.clear()  # one sweep at a time: objects of earlier sweeps are no longer needed
        _there[reference.token] = value
    return _there[reference.token]


def _run_batch(
    function: Callable[[Any, list[S]], Iterable[R]], reference: Any, scenarios: list[S]
) -> list[tuple[R | None, Exception | None]]:
    """Run a batch of scenarios in a worker; return (result, None) or (None, exception) for each.

    ``reference``: the base of the scenarios, or a :class:`Reference` to it. If the call raises, the scenarios are run
    one by one.
    """
    base = _resolve_reference(reference)
    try:
        return [(value, None) for value in function(base, scenarios)]
    except Exception as error:  # noqa: BLE001  # any exception of the function is reported for its scenario
        if len(scenarios) == 1:
            return [(None, error)]
    return [answer for scenario in scenarios for answer in _run_batch(function, base, [scenario])]


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
) -> Generator[CompletedTask[R], None, None]:
    """Run scenarios and yield their results as they complete, in order of completion.

    Parameters
    ----------
    function : callable
        ``function(base, part)`` returns the results of a list of scenarios, one for each, in order. It is pickled by
        name. Scenarios of one call can share work.
    scenarios : iterable
        The scenarios.
    base : object, optional
        Object that all scenarios share; sent once to each worker.
    executor : int, Executor or callable, optional
        A number of processes (None: run in this process), an executor, or a function that creates one. With a number or
        a function, a new executor is created if a worker is lost and the executor breaks, and unfinished scenarios run
        again. (Executors such as Dask's rerun them on their own.)
    workers : int, optional
        Number of the executor's workers, which limits the calls submitted at the same time.
    chunk : int, optional
        Maximum of scenarios per call. Default: four calls per worker with at most 500 scenarios each; for an iterator
        of unknown length one scenario in the first calls, then more and more.
    share : callable, optional
        Converts ``base`` to what is sent to workers on other machines; its result is part of every task.

    Yields
    ------
    CompletedTask
        The result of a scenario, or the error that its function raised.

    Raises
    ------
    InputError
        If the number of processes or workers is not in 1 to 1,024, if ``chunk`` is less than 1, or if the function
        ``executor`` returns no executor.
    concurrent.futures.BrokenExecutor
        If workers are lost repeatedly, or once with an executor that cannot be created again.

    Notes
    -----
    Other errors of the executor pass through, for example of objects that cannot be pickled. Closing the generator
    cancels calls that have not started.
    """
    processes = (
        None if executor is None or isinstance(executor, Executor) or callable(executor) else whole_number(executor)
    )
    for name, number in (("executor", processes), ("workers", workers)):
        if number is not None and not 1 <= number <= _MOST_WORKERS:
            raise InputError(Problem(f"{show_value(number)} is not in 1 to {_MOST_WORKERS:,}", field=name))
    if chunk is not None and chunk < 1:
        raise InputError(Problem(f"{show_value(chunk)} is less than 1", field="chunk"))
    count = 1 if executor is None else processes or workers or os.cpu_count() or 1
    sizes = _choose_batch_sizes(scenarios, count) if chunk is None else itertools.repeat(min(chunk, sys.maxsize))
    parts: Iterator[tuple[list[int], list[S]]] = _split_into_batches(scenarios, sizes)
    if executor is None:
        return _run_here(function, base, parts)
    make: Callable[[], Executor] | None = None
    if processes is not None:
        make = partial(worker_processes, processes)
    elif not isinstance(executor, Executor):
        make = partial(_make_executor, executor)
    return _run_on_workers(function, base, parts, executor, make, count, share)


def _make_executor(function: Any) -> Executor:
    """Call ``function`` and return the executor that it creates. Raises ArgumentError if it returns something else."""
    executor = function()
    if not (hasattr(executor, "submit") and hasattr(executor, "shutdown")):
        raise ArgumentError("executor()", show_value(executor), "an Executor", type(executor).__name__)
    return executor  # type: ignore[no-any-return]


def _run_here(
    function: Callable[[Any, list[S]], Iterable[R]], base: Any, parts: Iterator[tuple[list[int], list[S]]]
) -> Generator[CompletedTask[R], None, None]:
    """Run the parts, each as (positions, scenarios), in this process and yield the results of their scenarios."""
    for indices, part in parts:
        yield from _yield_results(indices, _run_batch(function, base, part))


def _run_on_workers(
    function: Callable[[Any, list[S]], Iterable[R]],
    base: Any,
    parts: Iterator[tuple[list[int], list[S]]],
    executor: Any,
    make: Callable[[], Executor] | None,
    workers: int,
    share: Callable[[Any], Any] | None,
) -> Generator[CompletedTask[R], None, None]:
    """Share ``base``, run the parts on an executor, and yield the results of their scenarios as they complete.

    ``parts``: (positions, scenarios) of each call. ``make`` creates executors if ``executor`` is not used itself.
    ``workers``: number of calls that run at once. ``share``: as for :func:`sweep`; None: a file that workers map.
    """
    shared = None if share is not None or base is None else Shared(base)
    try:
        reference = share(base) if share is not None else base if shared is None else shared.reference()
        yield from _spread(function, reference, parts, executor, make, workers)
    finally:
        if shared is not None:
            shared.close()


def _spread(
    function: Callable[[Any, list[S]], Iterable[R]],
    reference: Any,
    parts: Iterator[tuple[list[int], list[S]]],
    executor: Any,
    make: Callable[[], Executor] | None,
    workers: int,
) -> Generator[CompletedTask[R], None, None]:
    """Run the parts on an executor and yield the results of their scenarios as they complete.

    Parameters as for :func:`_run_on_workers`. If an executor of ``make`` breaks, a new one runs the parts that were
    lost. Raises BrokenExecutor if there is no ``make``, or if executors break repeatedly.
    """
    to_retry: deque[tuple[list[int], list[S]]] = deque()
    broken = 0
    while True:
        pool: Executor = executor if make is None else make()
        under_way: dict[Future[Any], tuple[list[int], list[S]]] = {}
        try:
            while True:
                while len(under_way) < workers * _AHEAD:
                    part = to_retry.popleft() if to_retry else next(parts, None)
                    if part is None:
                        break
                    try:
                        under_way[pool.submit(_run_batch, function, reference, part[1])] = part
                    except BrokenExecutor:
                        to_retry.append(part)
                        raise
                if not under_way:
                    return
                for future in wait(under_way, _LISTEN, FIRST_COMPLETED).done:
                    answers = future.result()
                    indices, _ = under_way.pop(future)
                    broken = 0
                    yield from _yield_results(indices, answers)
        except BrokenExecutor:
            broken += 1
            if make is None or broken > _RETRIES:
                raise
            to_retry.extend(under_way.values())
        finally:
            for future in under_way:
                future.cancel()
            if make is not None:
                pool.shutdown(wait=True, cancel_futures=True)


def _choose_batch_sizes(scenarios: Iterable[S], workers: int) -> Iterator[int]:
    """Yield the number of scenarios for each call, without end: constant if their total is known, else growing."""
    if isinstance(scenarios, Sized):
        yield from itertools.repeat(min(_LARGEST, max(1, len(scenarios) // (workers * _CALLS))))
    size = 1
    while True:
        yield from itertools.repeat(size, workers * _CALLS)
        size = min(_LARGEST, 2 * size)


def _split_into_batches(scenarios: Iterable[S], sizes: Iterator[int]) -> Iterator[tuple[list[int], list[S]]]:
    """Yield (positions of the scenarios, scenarios) of each batch, with the ``sizes`` of batches in turn."""
    numbered = enumerate(scenarios)
    for size in sizes:
        part = list(itertools.islice(numbered, size))
        if not part:
            return
        yield [index for index, _ in part], [scenario for _, scenario in part]


def _yield_results(indices: list[int], answers: list[tuple[R | None, Exception | None]]) -> Iterator[CompletedTask[R]]:
    """Yield the result of each scenario of a batch.

    ``indices``: their positions; ``answers``: (result, exception) of each.
    """
    for index, (value, error) in zip(indices, answers, strict=True):
        yield CompletedTask(index, value, error)


@dataclass(frozen=True, slots=True)
class _InStore(Reference):
    """An object in Ray's store: sent to each machine once, and unpickled once by each worker."""

    token: str
    store: Any

    def load(self) -> Any:
        """Get and return the object from Ray's store."""
        return library("ray", "an executor over Ray").get(self.store)


class RayExecutor(Executor):
    """Executor that runs calls as tasks of a Ray cluster.

    Ray replaces a lost worker and reruns its task; if that fails, the call raises
    :class:`~concurrent.futures.BrokenExecutor`.

    ``address``: ``ray://HOST:PORT`` of a cluster's client server; None: the cluster that this process is connected to.
    Raises InputError if there is no cluster at the address.
    """

    def __init__(self, address: str | None = None) -> None:
        self._ray = ray = library("ray", "an executor over Ray")
        self._connected = address is not None
        if self._connected:
            try:
                ray.init(address, log_to_driver=False)
            except (OSError, RuntimeError) as error:
                raise InputError(f"no Ray cluster at {address}: {error}") from None
        self._task = ray.remote(_call)
        self._under_way: dict[Future[Any], Any] = {}

    @property
    def workers(self) -> int:
        """Return how many tasks run at once: the number of the Ray cluster's CPUs, at least 1."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def share(self, value: Any) -> Reference:
        """Put a value into Ray's store and return the reference that tasks carry in place of the value."""
        return _InStore(secrets.token_hex(16), self._ray.put(value))

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a call as a Ray task and return its future, which counts as running and cannot be cancelled."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        task = self._task.remote(function, args, kwargs)
        self._under_way[future] = task
        task.future().add_done_callback(lambda done: self._set_result(future, done))
        return future

    def _set_result(self, future: Future[Any], done: Future[Any]) -> None:
        """Set the result or the exception of a completed call on its future. A lost worker becomes a BrokenExecutor."""
        self._under_way.pop(future, None)
        error = done.exception()
        if error is None:
            future.set_result(done.result())
        elif isinstance(error, self._ray.exceptions.RayTaskError):
            future.set_exception(error.cause)
        else:
            future.set_exception(BrokenExecutor(str(error)))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the tasks or cancel them, and disconnect from Ray if this executor made the connection.

        ``wait``: wait for running tasks; ``cancel_futures``: cancel them first. Without a disconnection, calls can
        still be submitted.
        """
        tasks = list(self._under_way.values())
        if cancel_futures:
            for task in tasks:
                self._ray.cancel(task)
        if wait and tasks:
            self._ray.wait(tasks, num_returns=len(tasks))
        if self._connected:
            self._ray.shutdown()


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function in a worker, and return its result."""
    return function(*args, **kwargs)
