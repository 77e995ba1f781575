"""What all parts of one loop of the updater share."""

from __future__ import annotations

from kscale.effects import (
    Emit,
    Event,
    Evict,
    Get,
    GetScale,
    Moment,
    Observe,
    Patch,
    Progress,
    Resize,
    StepsOf,
    Wait,
    Within,
    duration,
)
from kscale.objects.core import ObjectReference, Pod
from kscale.objects.vpa import VerticalPodAutoscaler
from kscale.vpa.options import UpdaterOptions
from kscale.vpa.updater.eviction_admission import EvictionAdmission
from kscale.vpa.updater.metrics import LoopGauges
from kscale.vpa.updater.rate_limiter import RateLimiter, RateLimitError
from kscale.vpa.updater.records import UpdaterResult, UpdaterRound, UpdaterState

__all__ = ["LoopContext", "LoopStoppedError", "UpdaterAction", "pod_event", "vpa_event"]

UpdaterAction = Get | GetScale | Evict | Resize | Patch | Wait | Within | Emit | Observe
"""What a loop may ask for."""


class LoopStoppedError(Exception):
    """A limiter could not wait: the rest of the loop is given up."""


class LoopContext:
    """One loop under way: what it was given, and what it has found out so far."""

    def __init__(
        self,
        state: UpdaterState,
        given: UpdaterRound,
        options: UpdaterOptions,
        now: Moment,
        admission: EvictionAdmission,
        *,
        explain: bool = False,
    ) -> None:
        self.explain = explain
        self.state = state
        self.given = given
        self.options = options
        self.admission = admission
        self.progress = Progress(now)
        self.deadline = now + duration(options.updater_interval)
        self.gauges = LoopGauges()
        self.result = UpdaterResult(state=state)

    @property
    def eviction_limiter(self) -> RateLimiter:
        """The limiter of evictions, made at its first use."""
        if self.state.eviction_limiter is None:
            self.state.eviction_limiter = self._new_limiter()
        return self.state.eviction_limiter

    @property
    def in_place_limiter(self) -> RateLimiter:
        """The limiter of resizes, made at its first use."""
        if self.state.in_place_limiter is None:
            self.state.in_place_limiter = self._new_limiter()
        return self.state.in_place_limiter

    def _new_limiter(self) -> RateLimiter:
        return RateLimiter.of(self.options.eviction_rate_limit, self.options.eviction_rate_burst)

    def wait(self, limiter: RateLimiter) -> StepsOf[Wait, None]:
        """Waits for a token; raises :class:`RateLimitError` where that cannot be done before the loop's deadline."""
        delay = limiter.wait(self.progress.now, self.deadline)
        if delay > 0:
            ready = self.progress.now + delay
            waited = yield from self.progress.wait(delay)
            if waited.error is not None:
                limiter.cancel(ready, self.progress.now)
                raise RateLimitError(waited.error.message)


def pod_event(pod: Pod, reason: str, message: str) -> Event:
    """A normal event of a pod."""
    regarding = ObjectReference(
        api_version="v1", kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.metadata.uid
    )
    return Event(regarding=regarding, type="Normal", reason=reason, message=message)


def vpa_event(vpa: VerticalPodAutoscaler, reason: str, message: str) -> Event:
    """A normal event of a VPA."""
    regarding = ObjectReference(
        api_version=vpa.api_version or "autoscaling.k8s.io/v1",
        kind="VerticalPodAutoscaler",
        namespace=vpa.namespace,
        name=vpa.name,
        uid=vpa.metadata.uid,
    )
    return Event(regarding=regarding, type="Normal", reason=reason, message=message)
