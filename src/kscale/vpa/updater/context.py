"""Context of one loop of the updater: its inputs, state and result, the rate limiter, events."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from kscale.effects import (
    Action,
    Emit,
    Event,
    Evict,
    Get,
    GetScale,
    Moment,
    Observation,
    Observe,
    Patch,
    Progress,
    Resize,
    StepsOf,
    Wait,
    Within,
    duration,
)
from kscale.errors import InputError, KscaleError
from kscale.objects.api.core import ObjectReference, Pod
from kscale.objects.api.vpa import RecommendedPodResources, VerticalPodAutoscaler
from kscale.records import Result, Rows
from kscale.vpa.capping import LimitRangeLookup
from kscale.vpa.controllers import Controllers
from kscale.vpa.metrics import LoopGauges
from kscale.vpa.options import UpdaterOptions
from kscale.vpa.updater.priority import EvictionAdmission

__all__ = [
    "ChosenPod",
    "LoopContext",
    "LoopStoppedError",
    "RateLimitError",
    "RateLimiter",
    "UnchangedPod",
    "UpdaterAction",
    "UpdaterResult",
    "UpdaterRound",
    "UpdaterState",
    "build_pod_event",
    "build_vpa_event",
]


_INT64_MAX: Final = 2**63 - 1
_SECOND_NS: Final = 1e9


class RateLimitError(KscaleError):
    """Waiting is not possible, with upstream's text."""


class RateLimiter(msgspec.Struct):
    """Token bucket: ``limit`` tokens per second, at most ``burst``; unlimited if ``limit`` is infinite.

    Times are nanoseconds; ``last`` None = never used, which gives the full burst.
    """

    limit: float
    burst: int
    tokens: float = 0.0
    last: int | None = None
    last_event: int | None = None

    @classmethod
    def from_flags(cls, limit: float, burst: int) -> RateLimiter:
        """Create a limiter from the flags; a limit that is not positive disables it."""
        return cls(math.inf, 0) if limit <= 0 else cls(limit, burst, float(burst))

    def clock_set(self, by: int) -> None:
        """Shift the stored times by ``by`` nanoseconds after the clock was set, so that tokens arrive unchanged."""
        if self.last is not None:
            self.last += by
        if self.last_event is not None:
            self.last_event += by

    def _get_tokens(self, now: int) -> float:
        """Return the number of tokens at ``now`` (nanoseconds); negative if tokens were taken in advance."""
        if self.last is None:
            return float(self.burst)
        elapsed = max(0, now - self.last)
        return min(self.tokens + float(elapsed) / _SECOND_NS * self.limit, float(self.burst))

    def wait(self, now: int, deadline: int | None = None, n: int = 1) -> int:
        """Take ``n`` tokens at ``now`` (nanoseconds), and return the nanoseconds to wait for them.

        Raises :class:`RateLimitError`, and takes nothing, if ``n`` exceeds the burst or the wait would exceed the
        ``deadline`` (nanoseconds; None: no deadline).
        """
        if n > self.burst and not math.isinf(self.limit):
            raise RateLimitError(f"rate: Wait(n={n}) exceeds limiter's burst {self.burst}")
        if deadline is not None and now >= deadline:
            raise RateLimitError("context deadline exceeded")
        if math.isinf(self.limit):
            return 0
        tokens = self._get_tokens(now) - n
        delay = 0
        if tokens < 0:
            seconds = -tokens / self.limit * _SECOND_NS
            delay = _INT64_MAX if seconds >= _INT64_MAX else int(seconds)
        if deadline is not None and delay > deadline - now:
            raise RateLimitError(f"rate: Wait(n={n}) would exceed context deadline")
        self.last, self.tokens, self.last_event = now, tokens, now + delay
        return delay

    def cancel(self, event: int, now: int, n: int = 1) -> None:
        """Give back the ``n`` tokens of a wait that was to end at ``event``, less those that later waits have taken.

        Nothing is given back if ``event`` is before ``now``. Times are nanoseconds.
        """
        if math.isinf(self.limit) or n == 0 or event < now or self.last_event is None:
            return
        restore = n - self.limit * (float(self.last_event - event) / _SECOND_NS)
        if restore <= 0:
            return
        self.tokens = min(self._get_tokens(now) + restore, float(self.burst))
        self.last = now
        if event == self.last_event:
            previous = event - int(n / self.limit * _SECOND_NS)
            if previous >= now:
                self.last_event = previous


class UpdaterState(msgspec.Struct, kw_only=True):
    """State of an updater between loops.

    - ``infeasible_attempts``: pod UID -> the recommendation that its node had no room for.
    - ``last_in_place_attempts``: "namespace/name" of a pod -> when it was first seen resizing; never cleared, as
      upstream.
    - ``eviction_limiter``, ``in_place_limiter``: limiters of evictions and of resizes, each with the rate and the burst
      that ``eviction_rate_limit`` and ``eviction_rate_burst`` had at its first use; None before that.
    """

    infeasible_attempts: dict[str, RecommendedPodResources] = {}
    last_in_place_attempts: dict[str, Moment] = {}
    eviction_limiter: RateLimiter | None = None
    in_place_limiter: RateLimiter | None = None

    def clock_set(self, by: int) -> None:
        """Shift the stored times by ``by`` nanoseconds after the clock was set; remaining waits stay equal."""
        self.last_in_place_attempts = {key: at + by for key, at in self.last_in_place_attempts.items()}
        for limiter in (self.eviction_limiter, self.in_place_limiter):
            if limiter is not None:
                limiter.clock_set(by)

    def __repr__(self) -> str:
        infeasible, resizing = len(self.infeasible_attempts), len(self.last_in_place_attempts)
        return f"<UpdaterState: {infeasible} infeasible attempts, {resizing} pods seen resizing>"


class UpdaterRound(msgspec.Struct, kw_only=True):
    """Inputs of a loop. ``pods``: active pods on nodes, in listed order."""

    vpas: Sequence[VerticalPodAutoscaler]
    pods: Sequence[Pod]
    controllers: Controllers = msgspec.field(default_factory=Controllers)
    limit_ranges: LimitRangeLookup | None = None

    def __repr__(self) -> str:
        return f"<UpdaterRound: {len(self.vpas)} VPAs, {len(self.pods)} pods>"


class ChosenPod(msgspec.Struct, kw_only=True, frozen=True):
    """A pod that is due for an update, and why: what upstream logs as accepted. ``vpa``: the name of its VPA."""

    namespace: str
    pod: str
    vpa: str
    outside_recommended_range: bool
    scale_up: bool
    resource_diff: float
    quick_oom: bool
    targets: str
    """The processed recommendation, as upstream's log prints it."""


class UnchangedPod(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A pod of a VPA that a loop left as it is, and why.

    Attributes
    ----------
    namespace : str
        Namespace of the pod.
    pod : str
        Name of the pod.
    vpa : str
        Name of the VPA.
    reason : str
        ``Mode``, ``Namespace``, ``FeatureGate``, ``StartupBoost``, ``Controller``, ``TooFewReplicas``, ``Pending``,
        ``NoRecommendation``, ``Capping``, ``Resizing``, ``Infeasible``, ``InRange``, ``Lifetime``,
        ``EvictionRequirements``, ``Budget``, ``RateLimit`` or ``Refused`` (by the API server, such as for a disruption
        budget).
    message : str
        Explanation with the numbers.
    """

    namespace: str
    pod: str
    vpa: str
    reason: str
    message: str


class UpdaterResult(Result, msgspec.Struct, kw_only=True):
    """Result of a loop.

    - ``chosen``: by VPA, the most urgent first; whether each is updated depends on budgets and limits.
    - ``diagnostics``: what upstream logs; ``details``: what it logs from ``-v=2`` on.
    - ``unchanged``: pods that are not updated, and why; only of the plain call, or with ``explain``.
    - ``stopped_early``: a limiter could not wait, so the loop ended.
    - ``actions``, ``events``, ``observations``: what the plain call (:func:`~kscale.vpa.run_updater`) would have done
      and emitted, in order; whoever runs the step machine has seen them.
    """

    chosen: list[ChosenPod] = []
    diagnostics: list[str] = []
    details: list[str] = []
    unchanged: list[UnchangedPod] = []
    state: UpdaterState = msgspec.field(default_factory=UpdaterState)
    stopped_early: bool = False
    actions: list[Action] = []
    events: list[Event] = []
    observations: list[Observation] = []

    def __repr__(self) -> str:
        stopped = ", stopped early" if self.stopped_early else ""
        return f"<UpdaterResult: {len(self.chosen)} pods chosen, {len(self.actions)} actions{stopped}>"

    def explain(self, pod: str) -> str:
        """Return whether a pod is updated, and why, in one line.

        ``pod``: ``namespace/name``. Raises InputError if this loop did not consider the pod.
        """
        chosen = next((item for item in self.chosen if f"{item.namespace}/{item.pod}" == pod), None)
        unchanged = next((item for item in self.unchanged if f"{item.namespace}/{item.pod}" == pod), None)
        if chosen is None and unchanged is None:
            raise InputError(f"no pod {pod!r} in this result")
        parts = []
        if chosen is not None:
            parts.append(f"due for an update by VPA {chosen.vpa}: {', '.join(_list_reasons(chosen))}")
            parts.append(f"targets {chosen.targets.strip()}")
        if unchanged is not None:
            parts.append(f"unchanged, {unchanged.reason}: {unchanged.message}")
        verbs = {Evict: "evicted", Resize: "resized in place"}
        done = [
            verbs[type(action)]
            for action in self.actions
            if isinstance(action, Evict | Resize) and f"{action.namespace}/{action.name}" == pod
        ]
        if unchanged is None and done:
            parts.append(" and ".join(dict.fromkeys(done)))
        return "; ".join(parts)

    def table_rows(self) -> Rows:
        """Return one row per chosen pod: its name, its VPA, and its targets."""
        rows = [(f"{pod.namespace}/{pod.pod}", pod.vpa, pod.targets) for pod in self.chosen]
        return Rows({"pod": str, "vpa": str, "targets": str}, rows)


def _list_reasons(pod: ChosenPod) -> list[str]:
    """Return why a pod is due for an update, as texts."""
    reasons = []
    if pod.quick_oom:
        reasons.append("killed for lack of memory soon after its start")
    if pod.outside_recommended_range:
        reasons.append("its requests are outside of the recommended range")
    if pod.scale_up:
        reasons.append("a request is lower than its target")
    return [*reasons, f"its requests differ from the targets by {pod.resource_diff:.0%}"]


UpdaterAction = Get | GetScale | Evict | Resize | Patch | Wait | Within | Emit | Observe
"""Actions of a loop."""


class LoopStoppedError(Exception):
    """The loop ends early because a rate limiter cannot wait."""


class LoopContext:
    """One loop in progress: its inputs and its results so far."""

    def __init__(
        self,
        state: UpdaterState,
        inputs: UpdaterRound,
        options: UpdaterOptions,
        now: Moment,
        admission: EvictionAdmission,
        *,
        explain: bool = False,
    ) -> None:
        self.explain = explain
        self.state = state
        self.inputs = inputs
        self.options = options
        self.admission = admission
        self.progress = Progress(now)
        self.deadline = now + duration(options.updater_interval)
        self.gauges = LoopGauges()
        self.result = UpdaterResult(state=state)

    @property
    def eviction_limiter(self) -> RateLimiter:
        """Return the limiter of evictions; it is created at its first use."""
        if self.state.eviction_limiter is None:
            self.state.eviction_limiter = self._build_limiter()
        return self.state.eviction_limiter

    @property
    def in_place_limiter(self) -> RateLimiter:
        """Return the limiter of resizes; it is created at its first use."""
        if self.state.in_place_limiter is None:
            self.state.in_place_limiter = self._build_limiter()
        return self.state.in_place_limiter

    def _build_limiter(self) -> RateLimiter:
        """Build a limiter with the rate and burst of the options."""
        return RateLimiter.from_flags(self.options.eviction_rate_limit, self.options.eviction_rate_burst)

    def wait(self, limiter: RateLimiter) -> StepsOf[Wait, None]:
        """Wait until the limiter has a token.

        Raises :class:`RateLimitError` if there is no token before the loop's deadline, or if the wait fails. After a
        failed wait the token is given back.
        """
        delay = limiter.wait(self.progress.now, self.deadline)
        if delay > 0:
            ready = self.progress.now + delay
            waited = yield from self.progress.wait(delay)
            if waited.error is not None:
                limiter.cancel(ready, self.progress.now)
                raise RateLimitError(waited.error.message)


def build_pod_event(pod: Pod, reason: str, message: str) -> Event:
    """Build a Normal event about a pod."""
    regarding = ObjectReference(
        api_version="v1", kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.metadata.uid
    )
    return Event(regarding=regarding, type="Normal", reason=reason, message=message)


def build_vpa_event(vpa: VerticalPodAutoscaler, reason: str, message: str) -> Event:
    """Build a Normal event about a VPA."""
    regarding = ObjectReference(
        api_version=vpa.api_version or "autoscaling.k8s.io/v1",
        kind="VerticalPodAutoscaler",
        namespace=vpa.namespace,
        name=vpa.name,
        uid=vpa.metadata.uid,
    )
    return Event(regarding=regarding, type="Normal", reason=reason, message=message)
