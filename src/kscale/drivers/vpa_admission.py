"""The VPA admission controller as a driver: reviews and status lease.

Upstream: ``pkg/admission-controller/main.go``. Reviews are answered where the watches live, one at a time, from what
they have brought so far; the driver's rounds are for the rest.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import msgspec

from kscale.drivers.live import Live
from kscale.drivers.process import Program, ProgramContext
from kscale.drivers.vpa_registration import RegistrationOptions, patch_ca_steps, register_steps
from kscale.drivers.vpa_watches import ControllerFeed, Ticker, controller_watches, limit_range_watch, vpa_watch
from kscale.effects import SECOND, Moment, Observation, Outcome, Progress, Steps, duration
from kscale.objects.api.core import LimitRange, LimitRangeItem, Pod, PodSpec
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.decode import to_json
from kscale.processes import worker_processes
from kscale.vpa.admission import ReviewResult, VpaIndex
from kscale.vpa.admission.review import (
    MAX_BODY_BYTES,
    PatchCache,
    PodReview,
    allow_unpatched,
    answer_review_steps,
    read_review,
    review_pod,
)
from kscale.vpa.admission.status_lease import STATUS_LEASE_NAMESPACE, renew_status_steps
from kscale.vpa.capping import CONTAINER_LIMIT, POD_LIMIT, LimitRanges
from kscale.vpa.controllers import Controllers, ScaleCache
from kscale.vpa.metrics import METRICS
from kscale.vpa.options import AdmissionOptions
from kscale.world.kubernetes.performer import Performer
from kscale.world.protocols import Change, Stores, Watch
from kscale.world.serve.app import ANY_PATH, ConnectionLimits, Server, admission_webhook
from kscale.world.serve.metrics import MetricStore
from kscale.world.serve.tls import ReloadingContext

__all__ = [
    "ADMISSION_METRICS",
    "LARGE",
    "AdmissionController",
    "LargeReviews",
    "ReviewLimits",
    "Serving",
    "admission_program",
    "read_review",
    "review_pod",
]


LARGE: Final = 64 * 1024
"""Bytes. Smaller reviews take less than a few milliseconds, and are answered on the event loop."""
_WAITING: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewLimits:
    """Limits of one review. A pod above a limit is allowed unchanged, and logged.

    - ``body``: bytes of a request; a longer one is answered with 413.
    - ``containers``: of a pod.
    - ``timeout``: seconds until a large review is answered without patches.
    """

    body: int = MAX_BODY_BYTES
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
        Receives the observations of reviews.
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

    async def review(self, body: bytes) -> ReviewResult:
        """Answer a review (``body``: the bytes of an AdmissionReview) in the worker process.

        The response has no patches if many reviews wait already, or if this one takes too long.
        """
        if self._waiting >= _WAITING:
            return allow_unpatched(f"{_WAITING} large reviews are being answered already; this one is not patched")
        self._waiting += 1
        # A review in progress cannot be cancelled; a late one occupies its slot until it ends.
        task = asyncio.create_task(self._answer(body))
        task.add_done_callback(self._finish_review)
        done, _ = await asyncio.wait([task], timeout=self._limits.timeout)
        if not done:
            return allow_unpatched(f"the review was not answered within {self._limits.timeout:g} s; it is not patched")
        return task.result()

    def _finish_review(self, task: asyncio.Task[ReviewResult]) -> None:
        """Count a review as no longer waiting, and discard its error if nobody awaits it."""
        self._waiting -= 1
        if not task.cancelled():
            task.exception()  # retrieve it, as no task may await it anymore

    async def _answer(self, body: bytes) -> ReviewResult:
        """Answer a review in the worker process, which is started if necessary.

        The response has no patches if the process ends.
        """
        if self._worker is None:
            self._worker = self._start()
        worker = self._worker
        try:
            return await self._answer_in(worker, body)
        except BrokenExecutor:
            if self._worker is worker:  # the next review starts a new one
                self._worker = None
            worker.shutdown(wait=False)
            return allow_unpatched("the process of large reviews ended (for want of memory?); this one is not patched")

    async def _answer_in(self, worker: Executor, body: bytes) -> ReviewResult:
        """Answer a review in ``worker``; match it with a VPA and limit ranges on the event loop.

        Raises BrokenExecutor.
        """
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        read = await loop.run_in_executor(worker, _read, number, body, self._options, self._limits.containers)
        if isinstance(read, ReviewResult):
            return read
        vpa, limit_ranges, unmatched = None, _OneNamespace({}), list[str]()
        if read.pod is not None:
            vpa = await self._live.run(partial(self._match, read.pod, unmatched))
            effective = partial(self._limit_ranges.effective, read.pod.namespace)
            limit_ranges = _OneNamespace({kind: effective(kind) for kind in (CONTAINER_LIMIT, POD_LIMIT)})
        # Encoded in a thread: a VPA may have thousands of entries. JSON, because its encoder calls Python for each
        # quantity, where the interpreter's lock is handed on; pickle would hold it until the end.
        encoded = None if vpa is None else await asyncio.to_thread(to_json, vpa)
        reviewed = await loop.run_in_executor(worker, _answer, number, encoded, limit_ranges, self._options)
        reviewed.messages = [*unmatched, *reviewed.messages]
        self._observe([reviewed.build_observation()])
        return reviewed

    def close(self) -> None:
        """Shut down the worker; reviews that wait are cancelled."""
        if self._worker is not None:
            self._worker.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _OneNamespace:
    """The limit ranges of the single namespace of a review, looked up beforehand."""

    by_type: dict[str, LimitRangeItem | None]

    def effective(self, namespace: str, type_: str) -> LimitRangeItem | None:
        """Return the limit range of a type, None if there is none; ``namespace`` is ignored."""
        del namespace
        return self.by_type.get(type_)


class _Read(NamedTuple):
    """A review that the worker has read. ``pod``: without its containers; None: it cannot be read."""

    pod: Pod | None


_reviews: dict[int, PodReview] = {}
"""In the worker: reviews that were read and wait for their VPA, by number."""


def _read(number: int, body: bytes, options: AdmissionOptions, max_containers: int) -> ReviewResult | _Read:
    """Read a review in the worker process, and store it there under ``number`` for :func:`_answer`.

    Returns the pod without its spec, with which the caller finds the VPA (None if the review has no readable pod).
    Returns the response instead, and stores nothing, if the review can be answered already.
    """
    read = read_review(body, options=options, max_containers=max_containers)
    if isinstance(read, ReviewResult):
        return read
    while len(_reviews) >= _WAITING:  # the reader has disconnected
        _reviews.pop(next(iter(_reviews)))
    _reviews[number] = read
    if not isinstance(read.pod, Pod):
        return _Read(None)
    return _Read(msgspec.structs.replace(read.pod, spec=PodSpec()))


def _answer(number: int, vpa: bytes | None, limit_ranges: _OneNamespace, options: AdmissionOptions) -> ReviewResult:
    """Answer the review that :func:`_read` stored under ``number`` in the worker process.

    ``vpa``: the matching VPA as JSON; None if there is none.
    """
    read = _reviews.pop(number, None)
    if read is None:
        return allow_unpatched("too many large reviews were read meanwhile; this one is not patched", resource="Pod")
    return review_pod(read, vpa, limit_ranges=limit_ranges, options=options)


_log = logging.getLogger(__name__)
ADMISSION_METRICS: Final = tuple(
    metric for name, metric in METRICS.items() if name.startswith("vpa_admission_controller_")
)
"""Metrics of the admission controller."""
_BEFORE_REGISTRATION: Final = 10 * SECOND
_CA_CHECK_INTERVAL: Final = SECOND
_FIRST_LOOK: Final = 5 * SECOND
"""Time limit of the first discovery. Reviews wait for it, although pods of well-known controllers do not need it."""
_STEPS: Final = "vpa_admission_controller_execution_latency_seconds"
_STEP_SERIES: Final = [(_STEPS, {"step": name}) for name in ("read_request", "admit", "total")]


class _ReviewMetrics(msgspec.Struct, eq=False):
    """Records the durations and the count of reviews. Their series are looked up once for each kind of result."""

    _metrics: MetricStore
    _recorders: dict[tuple[str, str, bool], Callable[[Sequence[float]], None]] = {}

    def record(self, reviewed: ReviewResult, reading: float, reviewing: float) -> None:
        """Record a review; ``reading`` and ``reviewing`` are in seconds."""
        total, counts = reading + reviewing, bool(reviewed.observations)
        key = reviewed.status, reviewed.resource, counts
        recorder = self._recorders.get(key)
        if recorder is None:
            others = [reviewed.latency(total), *reviewed.observations]
            series = [*_STEP_SERIES, *((each.name, each.labels) for each in others)]
            recorder = self._recorders[key] = self._metrics.recorder(series)
        recorder((reading, reviewing, total, total, 1.0) if counts else (reading, reviewing, total, total))


class AdmissionController:
    """Registers the webhook ten seconds after everything is listed, then renews its lease and updates the CA bundle.

    Without registration it only renews the lease. ``ca`` returns the current content of the CA file (None: unreadable);
    ``reload``: the file may be replaced. ``holder``: this host's name, for the lease.
    """

    name = "vpa-admission-controller"

    def __init__(
        self,
        options: AdmissionOptions | None = None,
        registration: RegistrationOptions | None = None,
        *,
        namespace: str = "",
        holder: str = "",
        ca: Callable[[], bytes | None] = lambda: None,
        reload: bool = False,
    ) -> None:
        self.options = options or AdmissionOptions()
        self.registration = registration or RegistrationOptions()
        self.vpas = VpaIndex()
        self.limit_ranges = LimitRanges()
        self._patches = PatchCache()
        # Scales are requested once, as upstream's admission controller never refreshes them.
        self._feed = ControllerFeed(Controllers(scales=ScaleCache()))
        self.synced = asyncio.Event()
        """Set when everything is listed and the discovery of served kinds has ended, also if it failed."""
        self._namespace, self._holder, self._ca, self._reload = namespace, holder, ca, reload
        self._begun: Moment | None = None
        self._ca_checks: Ticker | None = None
        self._renewals: Ticker | None = None
        self._registered: bytes | None = None
        """CA bundle of the registered webhook configuration."""

    @property
    def watches(self) -> Sequence[Watch]:
        """Return the watches: VPAs, limit ranges and controllers."""
        return [
            vpa_watch(self._namespace),
            limit_range_watch(self._namespace),
            *controller_watches(self._namespace),
        ]

    # -- reviews -----------------------------------------------------------------------------------------------------

    def notice(self, change: Change, now: Moment) -> None:
        """Apply a change, so that the next review uses it."""
        del now
        item = change.new or change.old
        if isinstance(item, VerticalPodAutoscaler):
            self._apply(self.vpas, item, deleted=change.new is None)
        elif isinstance(item, LimitRange):
            self._apply(self.limit_ranges, item, deleted=change.new is None)
        else:
            self._feed.notice(change)
            self._feed.settle()

    @staticmethod
    def _apply(into: VpaIndex | LimitRanges, item: VerticalPodAutoscaler | LimitRange, *, deleted: bool) -> None:
        """Store a new or changed object in a VPA index or limit ranges, or remove it if it is ``deleted``."""
        if deleted:
            into.remove(item.namespace, item.name)
        else:
            into.apply(item)  # type: ignore[arg-type]  # the caller passes objects of the index's kind

    def review(self, body: bytes, now: Moment) -> Steps[ReviewResult]:
        """Answer a review (the bytes of an AdmissionReview)."""
        reviewed: ReviewResult = yield from answer_review_steps(
            body, self.vpas, Progress(now), self._feed.controllers, self.limit_ranges, self.options, self._patches
        )
        return reviewed

    def match(self, pod: Pod, diagnostics: list[str], now: Moment) -> Steps[VerticalPodAutoscaler | None]:
        """Find the VPA in charge of a new pod; None if there is none.

        What upstream would log is appended to ``diagnostics``.
        """
        vpa: VerticalPodAutoscaler | None
        vpa = yield from self.vpas.match_steps(pod, self._feed.controllers, Progress(now), diagnostics)
        return vpa

    # -- rounds ----------------------------------------------------------------------------------------------------

    def clock_set(self, by: int) -> None:
        """Apply a change of the clock by ``by`` nanoseconds, so that remaining waits are unchanged."""
        if self._begun is not None:
            self._begun += by
        for ticker in (self._renewals, self._ca_checks):
            if ticker is not None:
                ticker.clock_set(by)

    def next_due(self) -> Moment | None:
        """Return when the next task is due: registration, renewal of the lease, or check of the CA. 0: at once."""
        if self._begun is None or not self.synced.is_set():
            return 0
        if self._renewals is None or self._ca_checks is None:
            return self._begun + self._before_renewals
        return min(self._renewals.due, self._ca_checks.due) if self._watches_ca else self._renewals.due

    @property
    def _before_renewals(self) -> int:
        """Return the nanoseconds from the first round until the registration and the first renewal are due."""
        return _BEFORE_REGISTRATION if self.registration.register_webhook else 0

    @property
    def _watches_ca(self) -> bool:
        """Return whether the CA of the webhook registration must be checked for changes."""
        return self._reload and self.registration.register_webhook

    def observe(self, stores: Stores, now: Moment) -> bytes | None:
        """Begin a round, and return the current content of the CA file for :meth:`steps`.

        The first call stores ``now`` as the start of the program. The second call sets :attr:`synced`: the first round
        has discovered the served kinds, so that reviews can be answered. ``stores`` is not used.

        Returns None if the CA file cannot be read, or if the options say not to register the webhook
        (``register_webhook``).
        """
        del stores
        if self._begun is None:
            self._begun = now
        else:
            self.synced.set()
        return self._ca() if self.registration.register_webhook else None

    def steps(self, observation: bytes | None, now: Moment) -> Steps[None]:
        """Run the tasks that are due: discovery, registration, renewal of the lease, update of the CA bundle.

        ``observation``: the CA bundle, as :meth:`observe` returns it. Raises RegistrationError if the webhook cannot be
        registered; other errors are logged.
        """
        progress = Progress(now)
        if self.synced.is_set():
            yield from self._feed.discover_steps(progress)
        else:
            yield from self._feed.discover_steps(progress, _FIRST_LOOK)
        if self._renewals is None or self._ca_checks is None:
            if self._begun is None or now < self._begun + self._before_renewals:
                return
            if self.registration.register_webhook:
                self._registered = observation or b""
                yield from register_steps(self.registration, self._registered, progress)
            # Upstream renews its lease only after registration.
            self._renewals = Ticker(duration(self.options.status_lease_update_interval), progress.now)
            self._ca_checks = Ticker(_CA_CHECK_INTERVAL, progress.now)
            return
        if now >= self._ca_checks.due:
            self._ca_checks.advance(now)
            if (
                self._watches_ca
                and observation
                and observation != self._registered
                and (yield from patch_ca_steps(observation, progress))
            ):
                self._registered = observation
        if now >= self._renewals.due:
            self._renewals.advance(now)
            yield from self._renew(progress)

    def _renew(self, progress: Progress) -> Steps[None]:
        """Renew the status lease; an error is logged."""
        options = self.options
        error = yield from renew_status_steps(
            self._holder,
            now=progress.now,
            interval=duration(options.status_lease_update_interval),
            name=options.status_lease_name,
            namespace=options.status_lease_namespace or STATUS_LEASE_NAMESPACE,
        )
        if error is not None:
            _log.error("Unable to update the status lease: %s", error.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The server of reviews, over TLS: ``address`` in Go's form. ``served`` is called with the server once it listens.

    ``limits``: of its connections; ``reviews``: of each review.
    """

    address: str
    tls: ReloadingContext
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    reviews: ReviewLimits = field(default_factory=ReviewLimits)
    served: Callable[[Server], None] = lambda _: None


def admission_program(
    context: ProgramContext,
    *,
    options: AdmissionOptions,
    registration: RegistrationOptions,
    serving: Serving,
    namespace: str = "",
    holder: str = "",
    ca: Callable[[], bytes | None] = lambda: None,
    reload: bool = False,
) -> Program:
    """Build the admission controller program of a process. It listens as soon as everything is listed.

    ``serving``: the server of reviews. ``registration`` says how to register the webhook. ``namespace``: whose VPAs
    count (empty: all). ``ca`` returns the current content of the CA file (None: unreadable), ``reload``: the file may
    be replaced, ``holder``: this host's name, for the lease.
    """
    driver = AdmissionController(options, registration, namespace=namespace, holder=holder, ca=ca, reload=reload)
    performer = Performer(context.client, context.clock, resources=context.resources, observe=context.metrics.observe)
    live = Live(performer, context.clock)
    listens = asyncio.Event()
    metrics = _ReviewMetrics(context.metrics)
    large = LargeReviews(live, driver.match, driver.limit_ranges, options, serving.reviews, context.metrics.observe)

    async def review(body: bytes, reading: float) -> bytes:
        """Answer a review and observe its duration. ``reading``: seconds that it took to read the body."""
        started = time.perf_counter()
        reviewed: ReviewResult
        if len(body) < LARGE:
            reviewed = await _perform(driver.review(body, context.clock.now()), performer)
        else:
            reviewed = await large.review(body)
        return report(reviewed, reading, time.perf_counter() - started)

    def review_now(body: bytes) -> bytes | None:
        """Answer a review like ``review``, or return None if it is large or needs a request to the API server."""
        if len(body) >= LARGE:
            return None
        started = time.perf_counter()
        steps = driver.review(body, context.clock.now())
        try:
            next(steps)
        except StopIteration as stop:
            return report(stop.value, 0.0, time.perf_counter() - started)
        steps.close()
        return None

    def report(reviewed: ReviewResult, reading: float, took: float) -> bytes:
        """Log and count a review, and return the body of its response."""
        for text in reviewed.messages:
            _log.error("%s", text)
        metrics.record(reviewed, reading, took)
        return reviewed.body

    def refused(why: str, took: float) -> None:
        _log.error("%s", why)
        context.metrics.observe([ReviewResult(body=b"", status="error").latency(took)])

    async def serve() -> None:
        """Serve reviews from when everything is listed, until cancelled."""
        await driver.synced.wait()
        limits, most = serving.limits, serving.reviews.body
        webhook = admission_webhook(review, review_now=review_now, refused=refused, read_timeout=limits.read_timeout)
        handlers = {ANY_PATH: webhook}
        try:
            async with Server(handlers, serving.address, tls=serving.tls, most=most, limits=limits) as server:
                listens.set()
                serving.served(server)
                await asyncio.get_running_loop().create_future()
        finally:
            large.close()

    return Program(
        driver=driver,
        metrics=ADMISSION_METRICS,
        ready=lambda: "" if listens.is_set() else "the webhook does not listen yet",
        beside=[serve],
        clock_set=driver.clock_set,
        is_small=lambda _: True,  # its rounds only discover kinds, register the webhook and renew a lease
    )


async def _perform(steps: Steps[ReviewResult], performer: Performer) -> ReviewResult:
    """Run the steps of a review on the event loop and return its result. They are brief and seldom request anything."""
    outcome: Outcome | None = None
    while True:
        try:
            action = next(steps) if outcome is None else steps.send(outcome)
        except StopIteration as stop:
            reviewed: ReviewResult = stop.value
            return reviewed
        outcome = await performer(action)
