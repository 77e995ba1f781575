"""What a loop of the updater does for one VPA: unboost, resize in place, evict (``pkg/updater/logic/updater.go``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from kscale.effects import ApiError, Evict, Observation, Patch, Resize, StepsOf
from kscale.objects.core import Pod
from kscale.objects.vpa import VerticalPodAutoscaler
from kscale.vpa.options import CPU_STARTUP_BOOST, IN_PLACE, gate
from kscale.vpa.startup_boost import expired_boosts, has_startup_boost, in_progress
from kscale.vpa.updater import inplace
from kscale.vpa.updater.context import LoopContext, LoopStoppedError, UpdaterAction, pod_event, vpa_event
from kscale.vpa.updater.metrics import VpaCounters
from kscale.vpa.updater.priority import PodPriority, assess, describe_targets, update_order, why_not_due
from kscale.vpa.updater.rate_limiter import RateLimiter, RateLimitError
from kscale.vpa.updater.records import ChosenPod, UnchangedPod
from kscale.vpa.updater.restriction import Restriction

__all__ = ["VpaUpdate"]

_SKIPPED: Final = (
    "Previously recorded in-place update was infeasible, current recommendation is not lower than previous, "
    "skipping resize"
)
_EVICTED: Final = "Pod was evicted by VPA Updater to apply resource recommendation."
_RESIZED: Final = "Pod was resized in place by VPA Updater."


class VpaUpdate:
    """The part of a loop that belongs to one VPA, which controls ``pods``."""

    def __init__(self, loop: LoopContext, vpa: VerticalPodAutoscaler, pods: list[Pod]) -> None:
        self._loop = loop
        self._progress = loop.progress
        self._vpa = vpa
        self._pods = pods
        self._counters = VpaCounters(vpa, len(pods))
        self._restriction = Restriction(
            vpa, pods, loop.given.controllers, loop.options, loop.state.last_in_place_attempts
        )
        self._resized = False

    def run(self) -> StepsOf[UpdaterAction, None]:
        """Everything; raises :class:`LoopStoppedError` where a limiter ends the loop."""
        mode, options = self._restriction.mode, self._loop.options
        for key, count in self._restriction.too_few.items():
            text = f"Too few replicas: {key.kind} {key.namespace}/{key.name} has {count} live pods"
            self._loop.result.details.append(text)
        self._gauge("controlled_pods", len(self._pods))
        self._note(*self._restriction.diagnostics)
        yield from self._progress.observe(*self._counters.present())
        available = self._pods
        if gate(options.feature_gates, CPU_STARTUP_BOOST) and has_startup_boost(self._vpa):
            available = [pod for pod in self._pods if not in_progress(pod)]
            for pod in self._pods:
                if in_progress(pod):
                    self._leave(pod, "StartupBoost", "its startup boost is in progress")
            yield from self._unboost()
        if mode in ("Off", "Initial"):
            for pod in available:
                self._leave(pod, "Mode", f"update mode {mode}: running pods are left as they are")
            return
        if mode == "InPlace" and not gate(options.feature_gates, IN_PLACE):
            self._note(f"{self._vpa.key}: update mode InPlace needs the feature gate InPlace")
            for pod in available:
                self._leave(pod, "FeatureGate", "update mode InPlace needs the feature gate InPlace")
            return
        to_evict: list[Pod] = []
        resizable = evictable = False
        if mode in ("InPlaceOrRecreate", "InPlace"):
            chosen = self._ordered((yield from self._resizable(available)))
            self._gauge("in_place_updatable_pods", len(chosen))
            resizable = bool(chosen)
            for priority in chosen:
                yield from self._try_in_place(priority.pod, to_evict)
        else:
            to_evict = [each.pod for each in self._ordered(self._evictable(available))]
            self._gauge("evictable_pods", len(to_evict))
            evictable = bool(to_evict)
        evicted = yield from self._evict_all(to_evict)
        for name, has in (
            ("vpas_with_in_place_updatable_pods", resizable),
            ("vpas_with_in_place_updated_pods", self._resized),
            ("vpas_with_evictable_pods", evictable),
            ("vpas_with_evicted_pods", evicted),
        ):
            if has:
                self._gauge(name, 1)

    def _gauge(self, name: str, by: int) -> None:
        self._loop.gauges.add(name, self._vpa, len(self._pods), by)

    def _leave(self, pod: Pod, reason: str, message: str) -> None:
        """Say why a pod is left as it is, if somebody wants to know."""
        if self._loop.explain:
            self._loop.result.unchanged.append(
                UnchangedPod(namespace=pod.namespace, pod=pod.name, vpa=self._vpa.name, reason=reason, message=message)
            )

    def _evictable(self, pods: Iterable[Pod]) -> Iterator[Pod]:
        for pod in pods:
            if self._can_evict(pod):
                yield pod
            else:
                self._leave(pod, *self._restriction.why_not(pod))

    def _note(self, *texts: str) -> None:
        self._loop.result.diagnostics += texts

    def _wait(self, limiter: RateLimiter, *failed: Observation) -> StepsOf[UpdaterAction, None]:
        try:
            yield from self._loop.wait(limiter)
        except RateLimitError as error:
            self._note(str(error))
            yield from self._progress.observe(*failed)
            raise LoopStoppedError from None

    # -- asking -------------------------------------------------------------------------------------------------

    def _can_evict(self, pod: Pod) -> bool:
        answer = self._restriction.can_evict(pod, self._progress.now)
        stats = self._restriction.stats(pod)
        if stats is not None and pod.status.phase != "Pending" and not stats.below_min_replicas:
            self._restriction.note_attempt(pod, self._progress.now)
        return answer

    def _can_update_in_place(self, pod: Pod) -> str:
        restriction, now = self._restriction, self._progress.now
        answer = restriction.can_update_in_place(pod, now, self._loop.state.infeasible_attempts)
        asked = restriction.mode != "InPlace" and pod.status.phase != "Pending" and restriction.has_recommendation
        if asked and inplace.resize_status(pod) != inplace.RESIZE_NONE:
            restriction.note_attempt(pod, now)
        return answer

    def _resizable(self, pods: Iterable[Pod]) -> StepsOf[UpdaterAction, list[Pod]]:
        """Those that may be resized, or whose resize leads to something else (``filterNonInPlaceUpdatablePods``)."""
        in_place_only = self._restriction.mode == "InPlace"
        wanted = (inplace.INFEASIBLE, inplace.DEFERRED) if in_place_only else (inplace.EVICT,)
        kept = []
        for pod in pods:
            decision = self._can_update_in_place(pod)
            if decision == inplace.INFEASIBLE_CACHED:
                yield from self._progress.emit(pod_event(pod, "InPlaceResizeSkipped", _SKIPPED))
                yield from self._progress.observe(self._counters.skipped())
                self._leave(pod, "Infeasible", _SKIPPED)
            elif decision == inplace.APPROVED or decision in wanted:
                kept.append(pod)
            else:
                self._leave(pod, *self._restriction.why_not(pod))
        return kept

    def _ordered(self, pods: Iterable[Pod]) -> list[PodPriority]:
        """Those that are due, the neediest first (``getPodsUpdateOrder``)."""
        loop = self._loop
        assessed = [
            assess(
                pod,
                self._vpa,
                now=self._progress.now,
                limit_ranges=loop.given.limit_ranges,
                options=loop.options,
                infeasible_attempts=loop.state.infeasible_attempts,
            )
            for pod in pods
        ]
        self._note(*(text for item in assessed for text in (item.error, *item.diagnostics) if text))
        chosen = update_order(assessed, loop.admission)
        if loop.explain:
            self._explain(assessed, {item.pod.key for item in chosen})
        loop.result.chosen += [
            ChosenPod(
                namespace=item.pod.namespace,
                pod=item.pod.name,
                vpa=self._vpa.name,
                outside_recommended_range=item.outside_recommended_range,
                scale_up=item.scale_up,
                resource_diff=item.resource_diff,
                quick_oom=item.quick_oom,
                targets=describe_targets(item.recommendation, item.pod),
            )
            for item in chosen
        ]
        return chosen

    def _explain(self, assessed: Iterable[PodPriority], chosen: Collection[str]) -> None:
        """Say why pods that may be updated are not due."""
        now, options = self._progress.now, self._loop.options
        for item in assessed:
            if not item.accepted:
                self._leave(item.pod, *why_not_due(item, self._vpa, now=now, options=options))
            elif item.pod.key not in chosen:
                self._leave(item.pod, "EvictionRequirements", "the VPA's evictionRequirements do not hold")

    # -- acting -------------------------------------------------------------------------------------------------

    def _unboost(self) -> StepsOf[UpdaterAction, None]:
        """Pods that have finished their start get back what they had."""
        over = [pod for pod in self._pods if expired_boosts(pod, self._vpa, self._progress.now)]
        for pod in over:
            if not self._restriction.can_unboost(pod, self._progress.now):
                continue
            yield from self._wait(self._loop.in_place_limiter)
            problem = yield from self._resize(pod)
            if problem is not None:
                self._note(f"unboosting {pod.key}: {problem.message}")
                yield from self._progress.observe(self._counters.not_updated_in_place("UnboostError"))

    def _try_in_place(self, pod: Pod, to_evict: list[Pod]) -> StepsOf[UpdaterAction, None]:
        """Decides once more, and resizes; what cannot be resized may join those to evict."""
        in_place_only = self._restriction.mode == "InPlace"
        decision = self._can_update_in_place(pod)
        if decision == inplace.INFEASIBLE_CACHED or (decision == inplace.DEFERRED and not in_place_only):
            self._leave(pod, *self._restriction.why_not(pod))
            return
        if decision == inplace.EVICT:
            to_evict.append(pod)
            return
        if decision == inplace.INFEASIBLE:
            self._remember_infeasible(pod)
        waited_in_vain = self._counters.not_updated_in_place("InPlaceUpdateRateLimiterWaitFailed")
        yield from self._wait(self._loop.in_place_limiter, waited_in_vain)
        problem = yield from self._resize(pod)
        if problem is None:
            return
        reason = "InPlaceUpdateError"
        if not in_place_only:
            to_evict.append(pod)
        elif inplace.is_infeasible(problem):
            reason = "InPlaceUpdateInfeasible"
            self._remember_infeasible(pod)
        self._note(f"resizing {pod.key}: {problem.message}")
        yield from self._progress.observe(self._counters.not_updated_in_place(reason))
        if in_place_only:
            self._leave(pod, "Refused", problem.message)

    def _remember_infeasible(self, pod: Pod) -> None:
        recommendation = self._vpa.status.recommendation
        if recommendation is not None:
            self._loop.state.infeasible_attempts[pod.metadata.uid] = recommendation

    def _resize(self, pod: Pod) -> StepsOf[UpdaterAction, ApiError | None]:
        """Resizes a pod (``InPlaceUpdate``): None, or what went wrong."""
        if not self._restriction.knows(pod):
            return ApiError(f"pod not suitable for in-place update {pod.name}: not in replicated pods map")
        limit_ranges = self._loop.given.limit_ranges
        try:
            resize, annotations = inplace.patches_for(pod, self._vpa, limit_ranges, self._progress.now)
        except inplace.InPlaceError as error:
            return ApiError(str(error))
        resized = yield from self._progress.act(Resize(namespace=pod.namespace, name=pod.name, patch=tuple(resize)))
        if resized.error is not None:
            return resized.error
        annotated = yield from self._progress.act(
            Patch(kind="Pod", namespace=pod.namespace, name=pod.name, type="json", patch=tuple(annotations))
        )
        if annotated.error is not None:
            self._note(f"failed to annotate pod {pod.key}: {annotated.error.message}")
        yield from self._progress.emit(pod_event(pod, "InPlaceResizedByVPA", _RESIZED))
        self._restriction.resized(pod)
        self._resized = True
        yield from self._progress.observe(self._counters.updated_in_place())
        return None

    def _evict_all(self, pods: list[Pod]) -> StepsOf[UpdaterAction, bool]:
        """Whether some pod was evicted."""
        some = False
        for i, pod in enumerate(pods):
            if not self._can_evict(pod):
                self._leave(pod, *self._restriction.why_not(pod))
                continue
            waited_in_vain = self._counters.not_evicted("EvictionRateLimiterWaitFailed")
            try:
                yield from self._wait(self._loop.eviction_limiter, waited_in_vain)
            except LoopStoppedError:
                for each in pods[i:]:
                    self._leave(each, "RateLimit", "the rate of evictions allows no more in this loop")
                raise
            problem = yield from self._evict(pod)
            if problem:
                self._note(f"evicting {pod.key}: {problem}")
                self._leave(pod, "Refused", problem)
                yield from self._progress.observe(self._counters.not_evicted("EvictionError"))
            else:
                some = True
                yield from self._progress.observe(self._counters.evicted())
        return some

    def _evict(self, pod: Pod) -> StepsOf[UpdaterAction, str]:
        """An empty text, or why not."""
        if not self._restriction.knows(pod):
            return f"pod not suitable for eviction {pod.key}: not in replicated pods map"
        if not self._can_evict(pod):
            return f"cannot evict pod {pod.key}: eviction budget exceeded"
        evicted = yield from self._progress.act(Evict(namespace=pod.namespace, name=pod.name))
        if evicted.error is not None:
            return evicted.error.message
        text = f"VPA Updater evicted Pod {pod.name} to apply resource recommendation."
        yield from self._progress.emit(
            pod_event(pod, "EvictedByVPA", _EVICTED), vpa_event(self._vpa, "EvictedPod", text)
        )
        self._restriction.evicted(pod)
        return ""
