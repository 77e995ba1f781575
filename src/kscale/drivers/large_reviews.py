"""Answers large admission reviews beside the event loop, so that small ones are answered meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from kscale.drivers.live import Live
from kscale.effects import Moment, Observation, Steps
from kscale.objects.core import LimitRangeItem, Pod
from kscale.objects.vpa import VerticalPodAutoscaler
from kscale.vpa.admission import Reviewed
from kscale.vpa.admission.review import MAX_BODY, answer_pod, read_review, unpatched
from kscale.vpa.limit_range import CONTAINER, POD, LimitRanges
from kscale.vpa.options import AdmissionOptions

__all__ = ["LARGE", "LargeReviews", "ReviewLimits"]

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
    """Reads and answers reviews in one thread, one after the other; only the look at the watched objects is taken on
    the event loop, which owns them."""

    def __init__(
        self,
        live: Live,
        match: Callable[[Pod, list[str], Moment], Steps[VerticalPodAutoscaler | None]],
        limit_ranges: LimitRanges,
        options: AdmissionOptions,
        limits: ReviewLimits,
        observe: Callable[[Sequence[Observation]], None],
    ) -> None:
        self._live, self._match, self._limit_ranges, self._observe = live, match, limit_ranges, observe
        self._options, self._limits = options, limits
        self._worker = ThreadPoolExecutor(1, "large-reviews")
        self._waiting = 0

    async def review(self, body: bytes) -> Reviewed:
        """Answer a review. Without patches if many others wait already, or if it takes too long."""
        if self._waiting >= _WAITING:
            return unpatched(f"{_WAITING} large reviews are being answered already; this one is not patched")
        self._waiting += 1
        # A thread cannot be stopped: a review that came too late keeps its place until its thread is done with it.
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
        loop = asyncio.get_running_loop()
        reading = partial(read_review, body, options=self._options, max_containers=self._limits.containers)
        read = await loop.run_in_executor(self._worker, reading)
        if isinstance(read, Reviewed):
            return read
        vpa, limit_ranges, unmatched = None, _OneNamespace({}), list[str]()
        if isinstance(read.pod, Pod):
            vpa = await self._live.run(partial(self._match, read.pod, unmatched))
            effective = partial(self._limit_ranges.effective, read.pod.namespace)
            limit_ranges = _OneNamespace({kind: effective(kind) for kind in (CONTAINER, POD)})
        answering = partial(answer_pod, read, vpa, limit_ranges=limit_ranges, options=self._options)
        reviewed = await loop.run_in_executor(self._worker, answering)
        reviewed.messages = [*unmatched, *reviewed.messages]
        self._observe([reviewed.counted()])
        return reviewed

    def close(self) -> None:
        """Take no further reviews."""
        self._worker.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _OneNamespace:
    """The limit ranges of the one namespace that a review asks for, looked up beforehand."""

    by_type: dict[str, LimitRangeItem | None]

    def effective(self, namespace: str, type_: str) -> LimitRangeItem | None:
        del namespace
        return self.by_type.get(type_)
