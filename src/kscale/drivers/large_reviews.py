"""Answer large admission reviews in a process of their own, so that small ones are answered meanwhile."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec

from kscale.drivers.live import Live
from kscale.effects import Moment, Observation, Steps
from kscale.objects.core import LimitRangeItem, Pod, PodSpec
from kscale.objects.decode import from_json, to_json
from kscale.objects.vpa import VerticalPodAutoscaler
from kscale.processes import worker_processes
from kscale.vpa.admission import Reviewed
from kscale.vpa.admission.review import MAX_BODY, PodReview, answer_pod, read_review, unpatched
from kscale.vpa.limit_range import CONTAINER, POD, LimitRanges
from kscale.vpa.options import AdmissionOptions

__all__ = ["LARGE", "LargeReviews", "ReviewLimits", "answer_pod", "read_review"]

T = TypeVar("T")

LARGE: Final = 64 * 1024
"""Bytes. Smaller reviews take less than a few milliseconds, and are answered on the event loop."""
_WAITING: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewLimits:
    """What one review may take. What is above a limit is allowed as it is, and logged.

    - ``body``: bytes of a request; a longer one is answered with 413.
    - ``containers``: of a pod.
    - ``timeout``: seconds until a large review is answered without patches.
    """

    body: int = MAX_BODY
    containers: int = 50_000
    timeout: float = 10.0


class LargeReviews:
    """Read and answer large reviews in one worker process, one after the other.

    The process starts with the first large review. A thread would not do: decoding a pod of 40,000 containers is one
    call that holds the interpreter's lock, and small reviews would wait for it. Only the VPA and the limit ranges are
    looked up on the event loop, which owns the watched objects; for this the worker returns the pod without containers.

    Parameters
    ----------
    live
        Runs ``match`` on the event loop.
    match
        Find the VPA of a pod.
    limit_ranges
        Limit ranges of the cluster.
    options
        Options of the admission controller.
    limits
        Limits of one review.
    observe
        Takes what is counted.
    start
        Start the worker. Default: a new process.
    """

    def __init__(
        self,
        live: Live,
        match: Callable[[Pod, list[str], Moment], Steps[VerticalPodAutoscaler | None]],
        limit_ranges: LimitRanges,
        options: AdmissionOptions,
        limits: ReviewLimits,
        observe: Callable[[Sequence[Observation]], None],
        *,
        start: Callable[[], Executor] | None = None,
    ) -> None:
        self._live, self._match, self._limit_ranges, self._observe = live, match, limit_ranges, observe
        self._options, self._limits = options, limits
        self._start = start or partial(worker_processes, 1, ignore_interrupts=True)
        self._worker: Executor | None = None
        self._numbers = itertools.count()
        self._waiting = 0

    async def review(self, body: bytes) -> Reviewed:
        """Answer a review. Without patches if many others wait already, or if it takes too long."""
        if self._waiting >= _WAITING:
            return unpatched(f"{_WAITING} large reviews are being answered already; this one is not patched")
        self._waiting += 1
        # A review that is being answered cannot be stopped: one that came too late keeps its place until its end.
        task = asyncio.create_task(self._answer(body))
        task.add_done_callback(self._done)
        done, _ = await asyncio.wait([task], timeout=self._limits.timeout)
        if not done:
            return unpatched(f"the review was not answered within {self._limits.timeout:g} s; it is not patched")
        return task.result()

    def _done(self, task: asyncio.Task[Reviewed]) -> None:
        self._waiting -= 1
        if not task.cancelled():
            task.exception()  # retrieved: nobody else may wait for it any more

    async def _answer(self, body: bytes) -> Reviewed:
        if self._worker is None:
            self._worker = self._start()
        worker = self._worker
        try:
            return await self._answer_in(worker, body)
        except BrokenExecutor:
            if self._worker is worker:  # the next review starts another one
                self._worker = None
            worker.shutdown(wait=False)
            return unpatched("the process of large reviews ended (for want of memory?); this one is not patched")

    async def _answer_in(self, worker: Executor, body: bytes) -> Reviewed:
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        read = await loop.run_in_executor(worker, _read, number, body, self._options, self._limits.containers)
        if isinstance(read, Reviewed):
            return read
        vpa, limit_ranges, unmatched = None, _OneNamespace({}), list[str]()
        if read.pod is not None:
            vpa = await self._live.run(partial(self._match, read.pod, unmatched))
            effective = partial(self._limit_ranges.effective, read.pod.namespace)
            limit_ranges = _OneNamespace({kind: effective(kind) for kind in (CONTAINER, POD)})
        # Encoded in a thread: a VPA may have thousands of entries. JSON, because its encoder calls Python for each
        # quantity, where the interpreter's lock is handed on; pickle would hold it until the end.
        encoded = None if vpa is None else await asyncio.to_thread(to_json, vpa)
        reviewed = await loop.run_in_executor(worker, _answer, number, encoded, limit_ranges, self._options)
        reviewed.messages = [*unmatched, *reviewed.messages]
        self._observe([reviewed.counted()])
        return reviewed

    def close(self) -> None:
        """Take no further reviews."""
        if self._worker is not None:
            self._worker.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _OneNamespace:
    """The limit ranges of the one namespace that a review asks for, looked up beforehand."""

    by_type: dict[str, LimitRangeItem | None]

    def effective(self, namespace: str, type_: str) -> LimitRangeItem | None:
        del namespace
        return self.by_type.get(type_)


class _Read(NamedTuple):
    """A review that the worker has read. ``pod``: without its containers; None: it cannot be read."""

    pod: Pod | None


_reviews: dict[int, PodReview] = {}
"""In the worker: reviews that were read and wait for their VPA, by number."""


def _read(number: int, body: bytes, options: AdmissionOptions, max_containers: int) -> Reviewed | _Read:
    """In the worker: read a review, and keep it until :func:`_answer`."""
    read = read_review(body, options=options, max_containers=max_containers)
    if isinstance(read, Reviewed):
        return read
    while len(_reviews) >= _WAITING:  # whoever read it has gone
        _reviews.pop(next(iter(_reviews)))
    _reviews[number] = read
    if not isinstance(read.pod, Pod):
        return _Read(None)
    return _Read(msgspec.structs.replace(read.pod, spec=PodSpec()))


def _answer(number: int, vpa: bytes | None, limit_ranges: _OneNamespace, options: AdmissionOptions) -> Reviewed:
    """In the worker: answer a review that was read."""
    read = _reviews.pop(number, None)
    if read is None:
        return unpatched("too many large reviews were read meanwhile; this one is not patched", resource="Pod")
    decoded = None if vpa is None else from_json(vpa, VerticalPodAutoscaler)
    return answer_pod(read, decoded, limit_ranges=limit_ranges, options=options)
