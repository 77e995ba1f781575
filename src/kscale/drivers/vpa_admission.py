"""The VPA's admission controller as a driver: what it answers from, its registration, its status lease.

Upstream: ``pkg/admission-controller/main.go``. Reviews are answered where the watches live, one at a time, from what
they have brought so far; the driver's rounds are for the rest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kscale.drivers.large_reviews import LARGE, LargeReviews, ReviewLimits
from kscale.drivers.live import Live
from kscale.drivers.process import Program, Surroundings
from kscale.drivers.ticker import Ticker
from kscale.drivers.vpa_registration import RegistrationOptions, patch_ca_steps, register_steps
from kscale.drivers.vpa_watches import ControllerFeed, controller_watches, limit_range_watch, vpa_watch
from kscale.effects import SECOND, Moment, Observation, Progress, Steps, duration
from kscale.objects.core import LimitRange, Pod
from kscale.objects.vpa import VerticalPodAutoscaler
from kscale.vpa.admission import Reviewed, VpaIndex, review_steps
from kscale.vpa.controllers import Controllers
from kscale.vpa.limit_range import LimitRanges
from kscale.vpa.metrics import METRICS, observation
from kscale.vpa.options import AdmissionOptions
from kscale.vpa.scales import ScaleCache
from kscale.vpa.status_lease import STATUS_LEASE_NAMESPACE, renew_status_steps
from kscale.world.kubernetes.performer import Performer
from kscale.world.protocols import Change, Stores, Watch
from kscale.world.serve.app import ConnectionLimits, Server
from kscale.world.serve.tls import ReloadingContext
from kscale.world.serve.webhook import ANY_PATH, admission_webhook

__all__ = ["ADMISSION_METRICS", "AdmissionController", "Serving", "admission_program"]

_log = logging.getLogger(__name__)
ADMISSION_METRICS: Final = tuple(
    metric for name, metric in METRICS.items() if name.startswith("vpa_admission_controller_")
)
"""What it observes."""
_BEFORE_REGISTRATION: Final = 10 * SECOND
_LOOK: Final = SECOND
_FIRST_LOOK: Final = 5 * SECOND
"""How long pods of well-known controllers wait at most for others to be found out about."""
_STEPS: Final = "vpa_admission_controller_execution_latency_seconds"


class AdmissionController:
    """Registers the webhook ten seconds after everything is listed, then renews its lease, and replaces the CA bundle;
    where it registers nothing, the lease is all there is to do.

    ``ca``: what the file of the CA holds now (None: it cannot be read); ``reload``: it may be replaced. ``holder``:
    this host's name, for the lease.
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
        # Scales are asked for once: upstream's admission controller never refreshes them.
        self._feed = ControllerFeed(Controllers(scales=ScaleCache()))
        self.known = asyncio.Event()
        """Everything that it answers from has been listed, and which kinds are served is known, or cannot be told."""
        self._namespace, self._holder, self._ca, self._reload = namespace, holder, ca, reload
        self._begun: Moment | None = None
        self._looks: Ticker | None = None
        self._renewals: Ticker | None = None
        self._registered: bytes | None = None
        """The CA bundle that stands in the registration."""

    @property
    def watches(self) -> Sequence[Watch]:
        """VPAs, limit ranges and controllers."""
        return [
            vpa_watch(self._namespace),
            limit_range_watch(self._namespace),
            *controller_watches(self._namespace),
        ]

    # -- answering ---------------------------------------------------------------------------------------------------

    def notice(self, change: Change, now: Moment) -> None:
        """A change: the next review is answered with it."""
        del now
        item = change.new or change.old
        if isinstance(item, VerticalPodAutoscaler):
            self._put(self.vpas, item, gone=change.new is None)
        elif isinstance(item, LimitRange):
            self._put(self.limit_ranges, item, gone=change.new is None)
        else:
            self._feed.notice(change)
            self._feed.settle()

    @staticmethod
    def _put(into: VpaIndex | LimitRanges, item: VerticalPodAutoscaler | LimitRange, *, gone: bool) -> None:
        if gone:
            into.remove(item.namespace, item.name)
        else:
            into.apply(item)  # type: ignore[arg-type]  # each is given its own kind

    def review(self, body: bytes, now: Moment) -> Steps[Reviewed]:
        """Answers a review."""
        reviewed: Reviewed = yield from review_steps(
            body,
            self.vpas,
            now=now,
            controllers=self._feed.controllers,
            limit_ranges=self.limit_ranges,
            options=self.options,
        )
        return reviewed

    def match(self, pod: Pod, diagnostics: list[str], now: Moment) -> Steps[VerticalPodAutoscaler | None]:
        """Find the VPA in charge of a new pod, None without one. ``diagnostics`` takes what upstream would log."""
        vpa: VerticalPodAutoscaler | None
        vpa = yield from self.vpas.match_steps(pod, self._feed.controllers, Progress(now), diagnostics)
        return vpa

    # -- the rest ----------------------------------------------------------------------------------------------------

    def clock_set(self, by: int) -> None:
        """The clock has been set by so many nanoseconds: what is left to wait stays."""
        if self._begun is not None:
            self._begun += by
        for ticker in (self._renewals, self._looks):
            if ticker is not None:
                ticker.clock_set(by)

    def next_due(self) -> Moment | None:
        """The registration, then the next renewal of the lease, or look at the CA."""
        if self._begun is None or not self.known.is_set():
            return 0
        if self._renewals is None or self._looks is None:
            return self._begun + self._before_renewals
        return min(self._renewals.due, self._looks.due) if self._watches_ca else self._renewals.due

    @property
    def _before_renewals(self) -> int:
        return _BEFORE_REGISTRATION if self.registration.register_webhook else 0

    @property
    def _watches_ca(self) -> bool:
        return self._reload and self.registration.register_webhook

    def observe(self, stores: Stores, now: Moment) -> bytes | None:
        """The CA bundle. The first round asks which kinds are served: it answers from the second on."""
        del stores
        if self._begun is None:
            self._begun = now
        else:
            self.known.set()
        return self._ca() if self.registration.register_webhook else None

    def steps(self, sight: bytes | None, now: Moment) -> Steps[None]:
        """What is due."""
        progress = Progress(now)
        if self.known.is_set():
            yield from self._feed.discover_steps(progress)
        else:
            yield from self._feed.discover_steps(progress, _FIRST_LOOK)
        if self._renewals is None or self._looks is None:
            if self._begun is None or now < self._begun + self._before_renewals:
                return
            if self.registration.register_webhook:
                self._registered = sight or b""
                yield from register_steps(self.registration, self._registered, progress)
            # Upstream says that it lives only once it is registered.
            self._renewals = Ticker(duration(self.options.status_lease_update_interval), progress.now)
            self._looks = Ticker(_LOOK, progress.now)
            return
        if now >= self._looks.due:
            self._looks.take(now)
            if (
                self._watches_ca
                and sight
                and sight != self._registered
                and (yield from patch_ca_steps(sight, progress))
            ):
                self._registered = sight
        if now >= self._renewals.due:
            self._renewals.take(now)
            yield from self._renew(progress)

    def _renew(self, progress: Progress) -> Steps[None]:
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
    """Where reviews are taken: ``address`` as Go has it, over TLS. ``served`` is told the server once it listens.

    ``limits``: of its connections; ``reviews``: of each review.
    """

    address: str
    tls: ReloadingContext
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    reviews: ReviewLimits = field(default_factory=ReviewLimits)
    served: Callable[[Server], None] = lambda _: None


def admission_program(
    around: Surroundings,
    *,
    options: AdmissionOptions,
    registration: RegistrationOptions,
    serving: Serving,
    namespace: str = "",
    holder: str = "",
    ca: Callable[[], bytes | None] = lambda: None,
    reload: bool = False,
) -> Program:
    """The admission controller on what a process has. It listens as soon as everything is known."""
    driver = AdmissionController(options, registration, namespace=namespace, holder=holder, ca=ca, reload=reload)
    performer = Performer(around.client, around.clock, resources=around.resources, observe=around.metrics.observe)
    live = Live(performer, around.clock)
    listens = asyncio.Event()
    large = LargeReviews(live, driver.match, driver.limit_ranges, options, serving.reviews, around.metrics.observe)

    async def review(body: bytes, reading: float) -> bytes:
        begun = time.perf_counter()
        reviewed: Reviewed
        if len(body) < LARGE:
            reviewed = await live.run(partial(driver.review, body))
        else:
            reviewed = await large.review(body)
        took = time.perf_counter() - begun
        for text in reviewed.messages:
            _log.error("%s", text)
        around.metrics.observe(
            [_step("read_request", reading), _step("admit", took), _step("total", reading + took),
             reviewed.latency(reading + took)]
        )  # fmt: skip
        return reviewed.body

    def refused(why: str, took: float) -> None:
        _log.error("%s", why)
        around.metrics.observe([Reviewed(body=b"", status="error").latency(took)])

    async def serve() -> None:
        await driver.known.wait()
        limits, most = serving.limits, serving.reviews.body
        handlers = {ANY_PATH: admission_webhook(review, refused=refused, read_timeout=limits.read_timeout)}
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
    )


def _step(name: str, seconds: float) -> Observation:
    return observation(_STEPS, {"step": name}, seconds)
