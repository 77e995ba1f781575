"""A driver as a whole process: client, informers, leader election, events, health and endpoints.

Moments should come from a clock that is never set (:class:`kscale.world.clock.SteadyClock`), as Go's are. A program
declares its parts (:class:`Program`); :func:`run_process` runs it until it is stopped.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from kscale.drivers.driver import Driver, pretending
from kscale.drivers.event_correlator import CorrelatorOptions, EventCorrelator, make_event
from kscale.drivers.leader_election import LEADER_METRICS, LeaderElectionOptions, LeaderElector, lead
from kscale.drivers.live import DRIVE_METRICS, Live, drive
from kscale.effects import SECOND, ApiError, Event, Machine, Metric, Moment, Observation, duration
from kscale.objects.api.core import Event as EventObject
from kscale.objects.times import format_duration
from kscale.world.clock import FollowingClock, SteadyClock, SystemClock
from kscale.world.kubernetes.client import REQUEST_METRICS, Client
from kscale.world.kubernetes.informer import WATCH_METRICS
from kscale.world.kubernetes.performer import KnownIdentities, Performer
from kscale.world.kubernetes.resources import Resources
from kscale.world.kubernetes.stores import KubernetesStores
from kscale.world.protocols import Clock, History, Metrics, NodeGroups, PerformLive, Ranker
from kscale.world.serve.app import ConnectionLimits, DebuggingSnapshotService, Handler, Server, endpoints
from kscale.world.serve.metrics import MetricStore
from kscale.world.serve.tls import ReloadingContext

__all__ = [
    "ActivityCheck",
    "Build",
    "EventRecorder",
    "HealthCheck",
    "HealthCheckOptions",
    "Healthy",
    "ProcessOptions",
    "Program",
    "ProgramContext",
    "run_process",
]


_log = logging.getLogger(__name__)
_MAX_QUEUED: Final = 1000


class EventRecorder:
    """Queue of events, which are sent one after the other.

    ``component``: the reporter of the events. ``dropped`` counts events that arrived while a thousand were queued.
    """

    __slots__ = ("_clock", "_component", "_correlator", "_last", "_live", "_queue", "dropped")

    def __init__(self, live: Live, clock: Clock, *, component: str, options: CorrelatorOptions | None = None) -> None:
        self._live = live
        self._clock = clock
        self._component = component
        self._correlator = EventCorrelator(options)
        self._last: Moment = 0
        self._queue: asyncio.Queue[EventObject] = asyncio.Queue(_MAX_QUEUED)
        self.dropped = 0

    def emit(self, events: Sequence[Event]) -> None:
        """Log and queue events, in order. An event is dropped if the queue is full or its type is unknown."""
        now = self._clock.now()
        for event in events:
            if event.type not in ("Normal", "Warning"):
                _log.error("Unsupported event type: %r", event.type)
                continue
            _log.info("Event(%s): type: %r reason: %r %s", event.about, event.type, event.reason, event.message)
            try:
                self._last = max(now, self._last + 1)  # unique, as event names contain the time
                self._queue.put_nowait(make_event(event, component=self._component, now=self._last))
            except asyncio.QueueFull:
                self.dropped += 1
                _log.error("Unable to record event: too many queued events, dropped event of %s", event.about)

    async def run(self) -> None:
        """Send queued events forever."""
        while True:
            event = await self._queue.get()
            if not await self._live.run(partial(self._correlator.record_steps, event)):
                _log.debug("Event(%s/%s) was not written", event.namespace, event.name)
            self._queue.task_done()

    async def wait_until_sent(self) -> None:
        """Wait until each queued event is sent, or all attempts to send it have failed."""
        await self._queue.join()


class Healthy(Protocol):
    """Health check behind an endpoint."""

    def check(self, now: Moment) -> str:
        """Return why the process is unhealthy, in upstream's words; empty if it is healthy."""
        ...


class HealthCheckOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The flags ``--max-inactivity``, ``--max-failing-time`` and ``--max-startup-time``.

    Until the first loop has succeeded, ``max_startup_time`` replaces both other limits; it is never less than they are.
    None: the first loop has no longer than the others, as in release 1.3.
    """

    max_inactivity: timedelta = timedelta(minutes=10)
    max_failing_time: timedelta = timedelta(minutes=15)
    max_startup_time: timedelta | None = timedelta(minutes=20)

    @property
    def startup(self) -> timedelta:
        """Return the limit for the first loop: the largest of the three times."""
        return max(self.max_startup_time or timedelta(), self.max_inactivity, self.max_failing_time)


class HealthCheck:
    """Health of the Cluster Autoscaler (upstream: ``pkg/metrics/liveness.go``)."""

    __slots__ = ("_activity", "_failing", "_initialised", "_monitoring", "_startup", "last_activity", "last_success")

    def __init__(self, options: HealthCheckOptions, now: Moment) -> None:
        self._activity = duration(options.max_inactivity)
        self._failing = duration(options.max_failing_time)
        self._startup = duration(options.startup)
        self.last_activity = self.last_success = now
        self._monitoring = False
        self._initialised = options.max_startup_time is None

    def start_monitoring(self, now: Moment) -> None:
        """Start the monitoring at ``now``. Before that, the process counts as healthy.

        Activity and success count as no earlier than ``now``.
        """
        self._monitoring = True
        self.last_activity = max(self.last_activity, now)
        self.last_success = max(self.last_success, now)

    def update_last_activity(self, at: Moment) -> None:
        """Set the time of the last activity to ``at``, the start of a loop, unless it is later already."""
        self.last_activity = max(self.last_activity, at)

    def update_last_success(self, at: Moment) -> None:
        """Set the time of the last success, and of the last activity, to ``at``, the end of a loop.

        A later time stays. The first success ends the startup, whose limit is longer.
        """
        self.last_success = max(self.last_success, at)
        self.last_activity = max(self.last_activity, at)
        self._initialised = True

    def check(self, now: Moment) -> str:
        """Return why the process is unhealthy, in upstream's words; empty if it is healthy or not monitored yet."""
        activity, failing = (self._activity, self._failing) if self._initialised else (self._startup, self._startup)
        late = now > self.last_activity + activity or now > self.last_success + failing
        if not (self._monitoring and late):
            return ""
        idle, failed = format_duration(now - self.last_activity), format_duration(now - self.last_success)
        return f"Error: last activity more {idle} ago, last success more than {failed} ago"


class ActivityCheck:
    """Health of the VPA's programs (upstream: ``vertical-pod-autoscaler/pkg/utils/metrics/healthcheck.go``)."""

    __slots__ = ("_monitoring", "_timeout", "last_activity")

    def __init__(self, timeout: timedelta, now: Moment) -> None:
        self._timeout = duration(timeout)
        self._monitoring = False
        self.last_activity = now

    def start_monitoring(self, now: Moment) -> None:
        """Start the monitoring at ``now``. Before that, the process counts as healthy."""
        self._monitoring = True
        self.last_activity = now

    def update_last_activity(self, at: Moment) -> None:
        """Set the time of the last activity to ``at``, the end of a round."""
        self.last_activity = at

    def check(self, now: Moment) -> str:
        """Return why the process is unhealthy, in upstream's words; empty if it is healthy."""
        if not self._monitoring or now <= self.last_activity + self._timeout:
            return ""
        return f"Error: last activity more than {format_duration(now - self.last_activity)} ago"


_BUILD_INFO: Final = Metric(
    "kscale_build_info", "gauge", ("program", "version"), help="1, with the program and its version as labels."
)
_CLOUD_CALLS: Final = 16
_SHUTDOWN_SECONDS: Final = 10.0
_EVENT_FLUSH_SECONDS: Final = 2.0
_MISSING_KINDS_INTERVAL: Final = 10.0


class ProcessOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of every program's process.

    ``address``: where endpoints are served (empty: nowhere); ``tls``: over TLS; ``limits``: of their connections.
    ``election``: None for no leader election. ``dry_run``: decisions are logged; nothing is written, not even a lease,
    an event or a status.
    """

    address: str = ""
    tls: ReloadingContext | None = None
    limits: ConnectionLimits = msgspec.field(default_factory=ConnectionLimits)
    election: LeaderElectionOptions | None = None
    dry_run: bool = False


class ProgramContext(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a process that its program uses. ``steady``: a clock that is never set."""

    client: Client
    resources: Resources
    clock: Clock
    steady: Clock
    metrics: MetricStore
    dry_run: bool


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one program.

    - ``metrics``: every metric that the machines of the program observe.
    - ``health``: check of ``/health-check``, by a clock that is never set; None: always healthy. ``monitored`` is
      called when the program begins to lead.
    - ``ready``: returns why the program cannot work yet although it leads and the lists are complete; empty if it can.
    - ``groups``, ``source``, ``prometheus``, ``ranker``: the cloud, the metrics APIs, Prometheus and the ranker, if the
      machines use them.
    - ``correlation``: how events are aggregated and limited; None: by client-go's rules.
    - ``csi``, ``dra``: options of the snapshot.
    - ``clock_set`` is called, before a round, with the nanoseconds by which the clock has been set; None: the rounds
      use the wall clock.
    - ``others``: further drivers on the same stores, which run while the program leads; not in a dry run.
    - ``beside``: coroutine functions that run while the program leads and never end by themselves.
    - ``before`` runs before the program tries to lead; ``at_end`` when it is stopped, but not when it loses the lease.
    - ``releases``: whether the program releases the lease when it ends.
    - ``handlers``: further paths that are served; ``desk``: the service behind ``/snapshotz``.
    - ``is_small`` checks whether no step of a round with these inputs can take long (``drive``).
    - ``close`` releases the resources of the program; the call may block.
    """

    driver: Driver[Any]
    metrics: Sequence[Metric] = ()
    health: Healthy | None = None
    monitored: Callable[[], None] = lambda: None
    ready: Callable[[], str] = lambda: ""
    groups: NodeGroups | None = None
    source: Metrics | None = None
    prometheus: History | None = None
    ranker: Ranker | None = None
    correlation: CorrelatorOptions | None = None
    csi: bool = False
    dra: bool = False
    clock_set: Callable[[int], None] | None = None
    others: Sequence[Driver[Any]] = ()
    beside: Sequence[Callable[[], Awaitable[None]]] = ()
    before: Machine | None = None
    at_end: Machine | None = None
    releases: bool = True
    handlers: Mapping[str, Handler] = msgspec.field(default_factory=dict)
    desk: DebuggingSnapshotService | None = None
    is_small: Callable[[Any], bool] = lambda _: False
    close: Callable[[], None] = lambda: None


Build = Callable[[ProgramContext], Program | Awaitable[Program]]
"""Builds a program for the context of its process. Raises :class:`~kscale.InputError` if that is not possible."""


async def run_process(
    build: Build,
    client: Client,
    options: ProcessOptions,
    *,
    version: str,
    stop: asyncio.Event,
    clock: Clock | None = None,
    rng: random.Random | None = None,
    served: Callable[[Server], None] = lambda _: None,
) -> None:
    """Run a program until ``stop`` is set. Work in progress is then cancelled, as when a process ends.

    ``build`` builds the program, at once or as a coroutine. ``served`` is called with the server once it listens.
    ``clock`` defaults to the system's, ``rng`` (for random waits) to a new generator; ``version`` is kscale's, for
    metrics. Raises :class:`~kscale.drivers.leader_election.LostLeadershipError` if the lease is lost, and
    :class:`~kscale.InputError` if the program cannot start. Unexpected exceptions of step machines and informers are
    raised, too.
    """
    clock = clock or SystemClock()
    steady = SteadyClock(clock)
    metrics = MetricStore(
        [_BUILD_INFO, *REQUEST_METRICS, *WATCH_METRICS, *LEADER_METRICS, *DRIVE_METRICS], now=steady.now
    )
    client.observe = lambda observation: metrics.observe([observation])
    context = ProgramContext(
        client=client,
        resources=Resources(client),
        clock=clock,
        steady=steady,
        metrics=metrics,
        dry_run=options.dry_run,
    )
    built = build(context)
    program = built if isinstance(built, Program) else await built
    try:
        for metric in program.metrics:
            metrics.describe(metric)
        labels = {"program": program.driver.name, "version": version}
        metrics.observe([Observation(name=_BUILD_INFO.name, labels=labels)])
        await _Process(program, context, options, stop, rng or random.Random(), served).run()
    finally:
        await asyncio.to_thread(program.close)


class _Process:
    def __init__(
        self,
        program: Program,
        context: ProgramContext,
        options: ProcessOptions,
        stop: asyncio.Event,
        rng: random.Random,
        served: Callable[[Server], None],
    ) -> None:
        self.program, self.context, self.options, self.stop, self.rng = program, context, options, stop, rng
        self.served = served
        self.turn = asyncio.Lock()
        self.elector = None if options.dry_run or options.election is None else LeaderElector(options.election)
        self.send_renewal: Callable[[bytes], Awaitable[str | ApiError]] | None = None
        self.leads = False
        self.shutdown: asyncio.Task[Any] | None = None
        self.following_clock = FollowingClock(context.clock)
        self.clock: Clock = context.clock if program.clock_set is None else self.following_clock
        self.stores = KubernetesStores(
            context.client,
            list(dict.fromkeys(watch for driver in (program.driver, *program.others) for watch in driver.watches)),
            context.clock,
            resources=context.resources,
            csi=program.csi,
            dra=program.dra,
            turn=self.turn,
            rng=rng,
            observe=self._observe,
        )
        self.recorder: EventRecorder | None = None
        self.identities = KnownIdentities()

    async def run(self) -> None:
        """Run the program, its server and its events until it is stopped or fails."""
        context, options = self.context, self.options
        worker = ThreadPoolExecutor(1, thread_name_prefix="decide")
        cloud = ThreadPoolExecutor(_CLOUD_CALLS, thread_name_prefix="cloud")
        performer: PerformLive = Performer(
            context.client,
            self.clock,
            resources=context.resources,
            stores=self.stores,
            groups=self.program.groups,
            metrics=self.program.source,
            prometheus=self.program.prometheus,
            ranker=self.program.ranker,
            emit=self._emit,
            observe=context.metrics.observe,
            threads=cloud,
            turn=self.turn,
            identities=self.identities,
        )
        if options.dry_run:
            performer = pretending(performer, self.clock)
        live = Live(performer, self.clock, worker=worker, turn=self.turn, rng=self.rng)
        other = Live(performer, context.steady, rng=self.rng)
        # As upstream, requests for the lease never queue behind those of a loop.
        lease_performer = Performer(
            context.client.with_own_rate_limit(),
            context.steady,
            emit=self._emit,
            observe=context.metrics.observe,
            identities=self.identities,
        )
        leases = Live(lease_performer, context.steady, rng=self.rng)
        if self.elector is not None:
            self.send_renewal = lease_performer.prepare_patch(self.elector.lease)
        self.recorder = EventRecorder(
            other, context.clock, component=self.program.driver.name, options=self.program.correlation
        )
        try:
            async with AsyncExitStack() as stack:
                if options.address:
                    handlers = endpoints(
                        metrics=context.metrics,
                        health=self._health,
                        ready=self._explain_not_ready,
                        snapshot=self.program.desk,
                    )
                    server = Server(
                        handlers | dict(self.program.handlers), options.address, tls=options.tls, limits=options.limits
                    )
                    self.served(await stack.enter_async_context(server))
                await self._until_stopped(live, other, leases)
        finally:
            for pool in (worker, cloud):
                pool.shutdown(wait=False, cancel_futures=True)

    async def _until_stopped(self, live: Live, other: Live, leases: Live) -> None:
        """Run the process until its work or its events end or the stop signal comes, then end the rest.

        ``live`` runs the drivers, ``leases`` the leader election, ``other`` all else. Raises the exception that ended
        it.
        """
        assert self.recorder is not None
        sending = asyncio.create_task(self.recorder.run())
        working = asyncio.create_task(self._lead(live, other, leases))
        stopping = asyncio.create_task(self.stop.wait())
        tasks: list[asyncio.Task[Any]] = [working, stopping, sending]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done() and not working.done():
                working.cancel()  # cancels requests at once, a machine after its current step
                if self.leads and self.program.at_end is not None:
                    # Does not wait for that step, as the process may be killed before.
                    self.shutdown = asyncio.create_task(
                        other.run(self.program.at_end, other.scope.within(_SHUTDOWN_SECONDS))
                    )
                    tasks.append(self.shutdown)
                with suppress(asyncio.CancelledError):
                    await working
            for task in (sending, working):
                if task.done() and not task.cancelled():
                    task.result()
            with suppress(TimeoutError):
                async with asyncio.timeout(_EVENT_FLUSH_SECONDS):
                    await self.recorder.wait_until_sent()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _lead(self, live: Live, other: Live, leases: Live) -> None:
        """Run the program's steps ``before`` leadership, then the work; with leader election, only while this leads.

        ``live`` runs the drivers, ``leases`` the leader election, ``other`` the steps ``before``.
        """
        async with live:  # its background tasks end with this task
            if self.program.before is not None:
                await other.run(self.program.before)
            if self.elector is None:
                await self._work(live)
            else:
                releases = self.program.releases
                await lead(
                    self.elector,
                    leases,
                    lambda: self._work(live),
                    lost=self._handle_lost_lease,
                    release=releases,
                    send=self.send_renewal,
                )

    async def _work(self, live: Live) -> None:
        """Run the informers, the program's drivers and its tasks ``beside`` them, until cancelled or one of them fails.

        In a dry run, only the main driver runs, not ``others``. Raises the first exception.
        """
        self.leads = True
        self.program.monitored()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.stores.run())
                group.create_task(self._log_missing_kinds())
                for each in self.program.beside:
                    group.create_task(_await_work(each))
                for driver in () if self.options.dry_run else self.program.others:
                    group.create_task(drive(driver, self.stores, live, self.clock, observe=self._observe))
                await drive(
                    self.program.driver,
                    self.stores,
                    live,
                    self.clock,
                    before=self._adopt_clock_change,
                    observe=self._observe,
                    is_small=self.program.is_small,
                )
        except BaseExceptionGroup as faults:
            raise faults.exceptions[0] from None
        finally:
            if self.shutdown is not None:  # before the lease is released
                await self.shutdown
            self.leads = False

    def _handle_lost_lease(self) -> None:
        """Set ``leads`` to False at once, before the work has ended."""
        # At once, as the work may take time to end, and another process may lead by then.
        self.leads = False

    def _adopt_clock_change(self) -> None:
        """If the system's clock was set, adopt its new time, log a warning, and call the program's ``clock_set``."""
        if self.program.clock_set is not None and (by := self.following_clock.follow()):
            _log.warning("the clock has been set by %.3f seconds", by / SECOND)
            self.program.clock_set(by)

    async def _log_missing_kinds(self) -> None:
        """Log every ten seconds which kinds have not been listed yet, until all have been."""
        while not self.stores.synced:
            await asyncio.sleep(_MISSING_KINDS_INTERVAL)
            for watch, error in self.stores.waiting_for():
                why = error.message if error is not None else "no answer yet"
                _log.warning("waiting for the list of %s (%s): %s", watch.kind, watch.api_version, why)

    def _observe(self, observation: Observation) -> None:
        """Record one observation in the metrics."""
        self.context.metrics.observe([observation])

    def _emit(self, events: Sequence[Event]) -> None:
        """Queue events with the UIDs of their objects; in a dry run log them."""
        events = [event if event.regarding.uid else self._add_uid(event) for event in events]
        if self.options.dry_run:
            for event in events:
                _log.info("dry run: event %s %s %s: %s", event.type, event.reason, event.about, event.message)
        elif self.recorder is not None:
            self.recorder.emit(events)

    def _add_uid(self, event: Event) -> Event:
        """Return an event with the UID of its object, if the UID is known.

        Clients select the events of an object by its UID.
        """
        about = event.regarding
        regarded = self.stores.get(about.kind, about.namespace, about.name)
        uid = self.identities.uid_of(about) if regarded is None else regarded.metadata.uid
        return replace(event, regarding=replace(about, uid=uid)) if uid else event

    def _health(self) -> str:
        """Return why the process is unhealthy; empty if it is healthy."""
        now = self.context.steady.now()
        problem = "" if self.program.health is None else self.program.health.check(now)
        return problem or ("" if self.elector is None else self.elector.check(now))

    def _explain_not_ready(self) -> str:
        """Return why the process is not ready; empty if it is.

        A candidate that waits for the lease is ready to take over.
        """
        if not self.leads:
            return ""
        if self.stores.synced:
            return self.program.ready()
        return f"waiting for the lists of {', '.join(sorted({watch.kind for watch, _ in self.stores.waiting_for()}))}"


async def _await_work(work: Callable[[], Awaitable[None]]) -> None:
    """Await ``work()``. Wraps any awaitable in a coroutine, which a task needs."""
    await work()
