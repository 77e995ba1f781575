"""One loop of the updater as a step machine (``pkg/updater/logic/updater.go``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence

import msgspec

from kscale.objects.core import Pod
from kscale.objects.selectors import Selector
from kscale.objects.vpa import RecommendedPodResources, VerticalPodAutoscaler, update_mode
from kscale.vpa.limit_range import LimitRangeLookup
from kscale.vpa.options import CPU_STARTUP_BOOST, IN_PLACE, UpdaterOptions, gate, nanoseconds_of
from kscale.vpa.startup_boost import expired_boosts, has_startup_boost, in_progress
from kscale.vpa.target import ControllerKey, Controllers, TargetError, controlling_vpa, pod_owner
from kscale.vpa.updater import inplace
from kscale.vpa.updater.actions import Action, Annotate, ApiError, Event, Evict, Outcome, Resize, Wait, run_dry
from kscale.vpa.updater.eviction_admission import EvictionAdmission, ScalingDirection
from kscale.vpa.updater.metrics import VpaMetrics
from kscale.vpa.updater.priority import PodPriority, assess, describe_targets, update_order
from kscale.vpa.updater.rate_limiter import RateLimiter, RateLimitError
from kscale.vpa.updater.restriction import Restriction

__all__ = ["ChosenPod", "UpdaterResult", "UpdaterRound", "UpdaterState", "run_updater", "updater_steps"]

_ACTING_MODES = frozenset({"Recreate", "Auto", "InPlaceOrRecreate", "InPlace"})
Steps = Generator[Action, Outcome, None]


class UpdaterState(msgspec.Struct, kw_only=True):
    """What an updater keeps between loops. ``infeasible_attempts``: pod UID -> the recommendation that did not fit."""

    infeasible_attempts: dict[str, RecommendedPodResources] = {}
    last_in_place_attempts: dict[str, int] = {}
    eviction_limiter: RateLimiter | None = None
    in_place_limiter: RateLimiter | None = None


class UpdaterRound(msgspec.Struct, kw_only=True):
    """What a loop sees. Upstream lists pods that are on a node and have not ended."""

    vpas: Sequence[VerticalPodAutoscaler]
    pods: Sequence[Pod]
    controllers: Controllers = msgspec.field(default_factory=Controllers)
    limit_ranges: LimitRangeLookup | None = None
    admission_controller_ready: bool = True
    """Whether the admission controller's lease is fresh; without it nothing is done."""


class ChosenPod(msgspec.Struct, kw_only=True, frozen=True):
    """A pod that is due for an update, and why: what upstream logs as accepted."""

    namespace: str
    pod: str
    outside_recommended_range: bool
    scale_up: bool
    resource_diff: float
    quick_oom: bool
    targets: str
    """The processed recommendation, as upstream's log prints it."""


class UpdaterResult(msgspec.Struct, kw_only=True):
    """What a loop did: actions with their outcomes in order, events, counters and gauges, diagnostics."""

    chosen: list[ChosenPod] = []
    """By VPA, the neediest first; whether each is updated depends on budgets and limits."""
    actions: list[tuple[Action, ApiError | None]] = []
    events: list[Event] = []
    observations: dict[str, int] = {}
    """``metric{label=value,...}`` -> what upstream would add or set."""
    diagnostics: list[str] = []
    state: UpdaterState = msgspec.field(default_factory=UpdaterState)
    stopped_early: bool = False
    """A limiter could not wait: the loop ended there."""


class _StopLoopError(Exception):
    """The rest of the loop is given up."""


class _Updater:
    """One loop under way."""

    def __init__(
        self,
        state: UpdaterState,
        given: UpdaterRound,
        options: UpdaterOptions,
        now: int,
        admission: EvictionAdmission,
    ) -> None:
        self.state = state
        self.given = given
        self.options = options
        self.clock = now
        self.deadline = now + nanoseconds_of(options.updater_interval)
        self.admission = admission
        self.result = UpdaterResult(state=state)
        self.counts: Counter[str] = Counter()

    # -- acting -------------------------------------------------------------------------------------------------

    def act(self, action: Action) -> Generator[Action, Outcome, ApiError | None]:
        outcome = yield action
        if outcome.now is not None:
            self.clock = outcome.now
        elif isinstance(action, Wait) and outcome.error is None:
            self.clock += action.duration
        if not isinstance(action, Wait):
            self.result.actions.append((action, outcome.error))
        return outcome.error

    def wait(self, limiter: RateLimiter, failed: Callable[[str], None], reason: str) -> Steps:
        try:
            delay = limiter.wait(self.clock, self.deadline)
        except RateLimitError as error:
            failed(reason)
            self.result.diagnostics.append(str(error))
            raise _StopLoopError from None
        if delay > 0:
            ready = self.clock + delay
            cancelled = yield from self.act(Wait(delay))
            if cancelled is not None:
                limiter.cancel(ready, self.clock)
                self.result.diagnostics.append(cancelled.message)
                raise _StopLoopError

    def event(self, kind: str, namespace: str, name: str, reason: str, message: str) -> None:
        self.result.events.append(Event(kind, namespace, name, reason, message))

    def evict(self, restriction: Restriction, pod: Pod) -> Generator[Action, Outcome, str]:
        """An empty text, or why not."""
        if not restriction.knows(pod):
            return f"pod not suitable for eviction {pod.key}: not in replicated pods map"
        if not self.can_evict(restriction, pod):
            return f"cannot evict pod {pod.key}: eviction budget exceeded"
        error = yield from self.act(Evict(pod.namespace, pod.name))
        if error is not None:
            return error.message
        text = "Pod was evicted by VPA Updater to apply resource recommendation."
        self.event("Pod", pod.namespace, pod.name, "EvictedByVPA", text)
        vpa = restriction.vpa
        text = f"VPA Updater evicted Pod {pod.name} to apply resource recommendation."
        self.event("VerticalPodAutoscaler", vpa.namespace, vpa.name, "EvictedPod", text)
        restriction.evicted(pod)
        return ""

    def update_in_place(self, restriction: Restriction, pod: Pod) -> Generator[Action, Outcome, ApiError | None]:
        """None, or what went wrong."""
        if not restriction.knows(pod):
            return ApiError(f"pod not suitable for in-place update {pod.name}: not in replicated pods map")
        try:
            resize, annotations = inplace.patches_for(pod, restriction.vpa, self.given.limit_ranges, self.clock)
        except inplace.InPlaceError as error:
            return ApiError(str(error))
        refused = yield from self.act(Resize(pod.namespace, pod.name, resize))
        if refused is not None:
            return refused
        failed = yield from self.act(Annotate(pod.namespace, pod.name, annotations))
        if failed is not None:
            self.result.diagnostics.append(f"failed to annotate pod {pod.key}: {failed.message}")
        text = "Pod was resized in place by VPA Updater."
        self.event("Pod", pod.namespace, pod.name, "InPlaceResizedByVPA", text)
        restriction.resized(pod)
        return None

    # -- asking -------------------------------------------------------------------------------------------------

    def can_evict(self, restriction: Restriction, pod: Pod) -> bool:
        answer = restriction.can_evict(pod, self.clock)
        stats = restriction.stats(pod)
        if stats is not None and pod.status.phase != "Pending" and not stats.below_min_replicas:
            restriction.note_attempt(pod, self.clock)
        return answer

    def can_update_in_place(self, restriction: Restriction, pod: Pod) -> str:
        answer = restriction.can_update_in_place(pod, self.clock, self.state.infeasible_attempts)
        asked = restriction.mode != "InPlace" and pod.status.phase != "Pending" and restriction.has_recommendation
        if asked and inplace.resize_status(pod) != inplace.RESIZE_NONE:
            restriction.note_attempt(pod, self.clock)
        return answer

    # -- the loop -----------------------------------------------------------------------------------------------

    def run(self) -> Steps:
        if not self.given.admission_controller_ready:
            return
        vpas = self.acting_vpas()
        if not vpas:
            self.admission.clean_up()
            return
        live = [pod for pod in self.given.pods if pod.metadata.deletion_timestamp is None]
        controlled = controlled_pods(live, vpas, self.given.controllers)
        uids = {pod.metadata.uid for pod in live}
        for uid in [uid for uid in self.state.infeasible_attempts if uid not in uids]:
            del self.state.infeasible_attempts[uid]
        self.admission.loop_init(live, controlled)
        try:
            for vpa, pods in controlled:
                yield from self.one_vpa(vpa, pods)
        except _StopLoopError:
            self.result.stopped_early = True

    def acting_vpas(self) -> list[tuple[VerticalPodAutoscaler, Selector]]:
        kept = []
        for vpa in self.given.vpas:
            if vpa.namespace in self.options.ignored_vpa_object_namespaces:
                continue
            if update_mode(vpa) not in _ACTING_MODES and not has_startup_boost(vpa):
                continue
            try:
                kept.append((vpa, self.given.controllers.selector(vpa)))
            except TargetError as error:
                self.result.diagnostics.append(f"{vpa.key}: {error}")
        return kept

    def one_vpa(self, vpa: VerticalPodAutoscaler, pods: list[Pod]) -> Steps:
        mode = update_mode(vpa)
        metrics = VpaMetrics(self.counts, vpa, len(pods))
        metrics.controlled(len(pods))
        restriction = Restriction(vpa, pods, self.given.controllers, self.options, self.state.last_in_place_attempts)
        self.result.diagnostics += restriction.diagnostics
        available = pods
        if gate(self.options.feature_gates, CPU_STARTUP_BOOST) and has_startup_boost(vpa):
            available = [pod for pod in pods if not in_progress(pod)]
            for pod in pods:
                if expired_boosts(pod, vpa, self.clock) and restriction.can_unboost(pod, self.clock):
                    yield from self.unboost(restriction, pod, metrics)
        if mode in ("Off", "Initial"):
            return
        if mode == "InPlace" and not gate(self.options.feature_gates, IN_PLACE):
            self.result.diagnostics.append(f"{vpa.key}: update mode InPlace needs the feature gate InPlace")
            return
        to_evict: list[Pod] = []
        chosen: list[PodPriority] = []
        updated = evicted = 0
        if mode in ("InPlaceOrRecreate", "InPlace"):
            chosen = self.ordered(vpa, self.in_place_filter(restriction, available, metrics))
            metrics.updatable_in_place(len(chosen))
            for priority in chosen:
                updated += yield from self.try_in_place(restriction, priority.pod, to_evict, metrics)
        else:
            evictable = [pod for pod in available if self.can_evict(restriction, pod)]
            to_evict = [priority.pod for priority in self.ordered(vpa, evictable)]
            metrics.evictable(len(to_evict))
        for pod in to_evict:
            if not self.can_evict(restriction, pod):
                continue
            limiter = self.limiter("eviction_limiter")
            yield from self.wait(limiter, metrics.not_evicted, "EvictionRateLimiterWaitFailed")
            problem = yield from self.evict(restriction, pod)
            if problem:
                metrics.not_evicted("EvictionError")
                self.result.diagnostics.append(f"evicting {pod.key}: {problem}")
            else:
                metrics.evicted()
                evicted += 1
        metrics.whole(updatable=bool(chosen), updated=updated > 0, evictable=bool(to_evict), evicted=evicted > 0)

    def limiter(self, name: str) -> RateLimiter:
        found: RateLimiter | None = getattr(self.state, name)
        if found is None:
            found = RateLimiter.of(self.options.eviction_rate_limit, self.options.eviction_rate_burst)
            setattr(self.state, name, found)
        return found

    def ordered(self, vpa: VerticalPodAutoscaler, pods: Iterable[Pod]) -> list[PodPriority]:
        assessed = [
            assess(
                pod,
                vpa,
                now=self.clock,
                limit_ranges=self.given.limit_ranges,
                options=self.options,
                infeasible_attempts=self.state.infeasible_attempts,
            )
            for pod in pods
        ]
        self.result.diagnostics += [text for item in assessed for text in (item.error, *item.diagnostics) if text]
        chosen = update_order(assessed, self.admission)
        self.result.chosen += [
            ChosenPod(
                namespace=item.pod.namespace,
                pod=item.pod.name,
                outside_recommended_range=item.outside_recommended_range,
                scale_up=item.scale_up,
                resource_diff=item.resource_diff,
                quick_oom=item.quick_oom,
                targets=describe_targets(item.recommendation, item.pod),
            )
            for item in chosen
        ]
        return chosen

    def in_place_filter(self, restriction: Restriction, pods: Iterable[Pod], metrics: VpaMetrics) -> list[Pod]:
        in_place_only = restriction.mode == "InPlace"
        kept = []
        for pod in pods:
            decision = self.can_update_in_place(restriction, pod)
            if decision == inplace.INFEASIBLE_CACHED:
                text = (
                    "Previously recorded in-place update was infeasible, current recommendation is not lower than "
                    "previous, skipping resize"
                )
                self.event("Pod", pod.namespace, pod.name, "InPlaceResizeSkipped", text)
                metrics.skipped()
                continue
            wanted = (inplace.INFEASIBLE, inplace.DEFERRED) if in_place_only else (inplace.EVICT,)
            if decision == inplace.APPROVED or decision in wanted:
                kept.append(pod)
        return kept

    def unboost(self, restriction: Restriction, pod: Pod, metrics: VpaMetrics) -> Steps:
        limiter = self.limiter("in_place_limiter")
        yield from self.wait(limiter, metrics.not_updated_in_place, "InPlaceUpdateRateLimiterWaitFailed")
        problem = yield from self.update_in_place(restriction, pod)
        if problem is None:
            metrics.updated_in_place()
        else:
            metrics.not_updated_in_place("UnboostError")
            self.result.diagnostics.append(f"unboosting {pod.key}: {problem.message}")

    def try_in_place(
        self, restriction: Restriction, pod: Pod, to_evict: list[Pod], metrics: VpaMetrics
    ) -> Generator[Action, Outcome, bool]:
        """Whether the pod was resized."""
        in_place_only = restriction.mode == "InPlace"
        recommendation = restriction.vpa.status.recommendation
        decision = self.can_update_in_place(restriction, pod)
        if decision == inplace.INFEASIBLE_CACHED or (decision == inplace.DEFERRED and not in_place_only):
            return False
        if decision == inplace.EVICT:
            to_evict.append(pod)
            return False
        if decision == inplace.INFEASIBLE and recommendation is not None:
            self.state.infeasible_attempts[pod.metadata.uid] = recommendation
        limiter = self.limiter("in_place_limiter")
        yield from self.wait(limiter, metrics.not_updated_in_place, "InPlaceUpdateRateLimiterWaitFailed")
        problem = yield from self.update_in_place(restriction, pod)
        if problem is None:
            metrics.updated_in_place()
            return True
        reason = "InPlaceUpdateError"
        if not in_place_only:
            to_evict.append(pod)
        elif problem.is_infeasible:
            reason = "InPlaceUpdateInfeasible"
            if recommendation is not None:
                self.state.infeasible_attempts[pod.metadata.uid] = recommendation
        metrics.not_updated_in_place(reason)
        self.result.diagnostics.append(f"resizing {pod.key}: {problem.message}")
        return False


def controlled_pods(
    pods: Iterable[Pod], vpas: Sequence[tuple[VerticalPodAutoscaler, Selector]], controllers: Controllers
) -> list[tuple[VerticalPodAutoscaler, list[Pod]]]:
    """The pods of each VPA that has some; VPAs by namespace and name (upstream walks a map), pods in listed order."""
    by_target: dict[tuple[str, str, str], list[tuple[VerticalPodAutoscaler, Selector]]] = {}
    for vpa, selector in vpas:
        target = vpa.spec.target_ref
        if target is not None:
            by_target.setdefault((vpa.namespace, target.kind, target.name), []).append((vpa, selector))
    parents: dict[ControllerKey | None, ControllerKey | None] = {None: None}
    found: dict[tuple[str, str], tuple[VerticalPodAutoscaler, list[Pod]]] = {}
    for pod in pods:
        owner = pod_owner(pod)
        if owner not in parents:
            try:
                parents[owner] = controllers.parent_of(pod)
            except TargetError:
                parents[owner] = None
        parent = parents[owner]
        if parent is None:
            continue
        candidates = by_target.get((parent.namespace, parent.kind, parent.name), ())
        chosen = controlling_vpa(pod, parent, candidates)
        if chosen is not None:
            found.setdefault((chosen.namespace, chosen.name), (chosen, []))[1].append(pod)
    return [found[key] for key in sorted(found)]


def updater_steps(
    state: UpdaterState,
    given: UpdaterRound,
    *,
    now: int,
    options: UpdaterOptions | None = None,
    admission: EvictionAdmission | None = None,
) -> Generator[Action, Outcome, UpdaterResult]:
    """The loop: yields actions, is sent their outcomes, returns the result. ``state`` is changed."""
    updater = _Updater(state, given, options or UpdaterOptions(), now, admission or ScalingDirection())
    yield from updater.run()
    updater.result.observations = dict(updater.counts)
    return updater.result


def run_updater(
    state: UpdaterState,
    given: UpdaterRound,
    *,
    now: int,
    options: UpdaterOptions | None = None,
    admission: EvictionAdmission | None = None,
) -> UpdaterResult:
    """The same with everything succeeding: a dry run."""
    return run_dry(updater_steps(state, given, now=now, options=options, admission=admission))
