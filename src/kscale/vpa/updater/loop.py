"""One loop of the updater as a step machine: end startup boosts, then for each VPA resize in place and evict.

Upstream: ``pkg/updater/logic/updater.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from typing import Final

import msgspec

from kscale.effects import (
    Action,
    ApiError,
    Evict,
    Get,
    GetScale,
    Moment,
    Observation,
    Patch,
    Progress,
    Resize,
    StepsOf,
    Wait,
    duration,
    moment,
    run_dry,
)
from kscale.effects.actions import NOT_FOUND
from kscale.objects.api.coordination import Lease, LeaseSpec
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.api.vpa import VerticalPodAutoscaler, update_mode
from kscale.objects.argument_types import typed
from kscale.objects.times import micro_time
from kscale.vpa.admission.status_lease import STATUS_LEASE_NAMESPACE, check_status_steps
from kscale.vpa.container_resources import has_boost_in_progress, has_startup_boost
from kscale.vpa.controllers import ScaleNeededError, run_without_requests
from kscale.vpa.metrics import GAUGE_RESETS, ExecutionTimer, VpaUpdateCounters
from kscale.vpa.options import CPU_STARTUP_BOOST_GATE, IN_PLACE_GATE, UpdaterOptions, is_gate_enabled
from kscale.vpa.target import (
    ControlledPods,
    filter_live_pods,
    find_controlled_pods_steps,
    is_active_vpa,
    resolve_vpa_selectors_steps,
)
from kscale.vpa.updater.context import (
    ChosenPod,
    LoopContext,
    LoopStoppedError,
    RateLimiter,
    RateLimitError,
    UnchangedPod,
    UpdaterAction,
    UpdaterResult,
    UpdaterRound,
    UpdaterState,
    build_pod_event,
    build_vpa_event,
)
from kscale.vpa.updater.in_place import (
    IN_PLACE_APPROVED,
    IN_PLACE_DEFERRED,
    IN_PLACE_EVICT,
    IN_PLACE_INFEASIBLE,
    IN_PLACE_INFEASIBLE_CACHED,
    RESIZE_NONE,
    InPlaceError,
    build_in_place_patches,
    get_resize_status,
    is_infeasible,
)
from kscale.vpa.updater.priority import (
    EvictionAdmission,
    PodPriority,
    ScalingDirectionAdmission,
    assess_pod,
    describe_targets,
    explain_not_due,
    order_updates,
)
from kscale.vpa.updater.restriction import PodsRestriction

__all__ = ["VpaUpdate", "run_updater", "updater_steps"]


_SKIPPED_TEXT: Final = (
    "Previously recorded in-place update was infeasible, current recommendation is not lower than previous, "
    "skipping resize"
)
_EVICTED_TEXT: Final = "Pod was evicted by VPA Updater to apply resource recommendation."
_RESIZED_TEXT: Final = "Pod was resized in place by VPA Updater."


class VpaUpdate:
    """Part of a loop for one VPA, which controls ``pods``."""

    def __init__(self, loop: LoopContext, vpa: VerticalPodAutoscaler, pods: list[Pod]) -> None:
        self._loop = loop
        self._progress = loop.progress
        self._vpa = vpa
        self._pods = pods
        self._counters = VpaUpdateCounters(vpa, len(pods))
        self._restriction = PodsRestriction(
            vpa, pods, loop.inputs.controllers, loop.options, loop.state.last_in_place_attempts
        )
        self._resized = False

    def run(self) -> StepsOf[UpdaterAction, None]:
        """Resize or evict the VPA's pods that are due, as the update mode says.

        Results, messages and counts go to the loop's result and gauges; with ``explain`` also why other pods are
        unchanged. Raises :class:`LoopStoppedError` if a rate limiter cannot wait, which ends the loop.
        """
        mode, options = self._restriction.mode, self._loop.options
        for key, count in self._restriction.too_few.items():
            text = f"Too few replicas: {key.kind} {key.namespace}/{key.name} has {count} live pods"
            self._loop.result.details.append(text)
        self._add_to_gauge("controlled_pods", len(self._pods))
        self._note(*self._restriction.diagnostics)
        yield from self._progress.observe(*self._counters.present())
        available = self._pods
        if is_gate_enabled(options.feature_gates, CPU_STARTUP_BOOST_GATE) and has_startup_boost(self._vpa):
            available = [pod for pod in self._pods if not has_boost_in_progress(pod)]
            for pod in self._pods:
                if has_boost_in_progress(pod):
                    self._record_unchanged(pod, "StartupBoost", "its startup boost is in progress")
        if mode in ("Off", "Initial"):
            for pod in available:
                self._record_unchanged(pod, "Mode", f"update mode {mode}: running pods are left as they are")
            return
        if mode == "InPlace" and not is_gate_enabled(options.feature_gates, IN_PLACE_GATE):
            self._note(f"{self._vpa.key}: update mode InPlace needs the feature gate InPlace")
            for pod in available:
                self._record_unchanged(pod, "FeatureGate", "update mode InPlace needs the feature gate InPlace")
            return
        to_evict: list[Pod] = []
        resizable = evictable = False
        if mode in ("InPlaceOrRecreate", "InPlace"):
            chosen = self._sort_by_priority((yield from self._filter_resizable(available)))
            self._add_to_gauge("in_place_updatable_pods", len(chosen))
            resizable = bool(chosen)
            for priority in chosen:
                yield from self._try_in_place(priority.pod, to_evict)
        else:
            to_evict = [each.pod for each in self._sort_by_priority(self._filter_evictable(available))]
            self._add_to_gauge("evictable_pods", len(to_evict))
            evictable = bool(to_evict)
        evicted = yield from self._evict_all(to_evict)
        for name, has in (
            ("vpas_with_in_place_updatable_pods", resizable),
            ("vpas_with_in_place_updated_pods", self._resized),
            ("vpas_with_evictable_pods", evictable),
            ("vpas_with_evicted_pods", evicted),
        ):
            if has:
                self._add_to_gauge(name, 1)

    def _add_to_gauge(self, name: str, by: int) -> None:
        """Add ``by`` to a gauge under the VPA's labels."""
        self._loop.gauges.add(name, self._vpa, len(self._pods), by)

    def _record_unchanged(self, pod: Pod, reason: str, message: str) -> None:
        """Record why a pod is unchanged, if explanations were requested."""
        if self._loop.explain:
            self._loop.result.unchanged.append(
                UnchangedPod(namespace=pod.namespace, pod=pod.name, vpa=self._vpa.name, reason=reason, message=message)
            )

    def _filter_evictable(self, pods: Iterable[Pod]) -> Iterator[Pod]:
        """Yield the pods that may be evicted; record why the others may not, if explanations were requested."""
        for pod in pods:
            if self._can_evict(pod):
                yield pod
            else:
                self._record_unchanged(pod, *self._restriction.explain_block(pod))

    def _note(self, *texts: str) -> None:
        """Add texts to the diagnostics of the loop's result."""
        self._loop.result.diagnostics += texts

    def _wait(self, limiter: RateLimiter, *failed: Observation) -> StepsOf[UpdaterAction, None]:
        """Wait for the limiter's token. Raises LoopStoppedError, after observing ``failed``, if that is impossible."""
        try:
            yield from self._loop.wait(limiter)
        except RateLimitError as error:
            self._note(str(error))
            yield from self._progress.observe(*failed)
            raise LoopStoppedError from None

    # -- checks ------------------------------------------------------------------------------------------------------

    def _can_evict(self, pod: Pod) -> bool:
        """Check whether a pod may be evicted.

        As upstream, the check records the time of a resizing pod's first attempt, unless the pod is pending or its
        group has too few replicas.
        """
        answer = self._restriction.can_evict(pod, self._progress.now)
        stats = self._restriction.stats(pod)
        if stats is not None and pod.status.phase != "Pending" and not stats.below_min_replicas:
            self._restriction.note_attempt(pod, self._progress.now)
        return answer

    def _decide_in_place(self, pod: Pod) -> str:
        """Return the decision on an in-place update, one of the ``IN_PLACE_*`` constants.

        As upstream, the check records the time of a resizing pod's first attempt, but not in mode InPlace, for a
        pending pod, or without a recommendation.
        """
        restriction, now = self._restriction, self._progress.now
        answer = restriction.can_update_in_place(pod, now, self._loop.state.infeasible_attempts)
        asked = restriction.mode != "InPlace" and pod.status.phase != "Pending" and restriction.has_recommendation
        if asked and get_resize_status(pod) != RESIZE_NONE:
            restriction.note_attempt(pod, now)
        return answer

    def _filter_resizable(self, pods: Iterable[Pod]) -> StepsOf[UpdaterAction, list[Pod]]:
        """Return the pods for :meth:`_try_in_place`: those that may be resized, or whose last resize has not succeeded.

        For a pod whose recommendation is known to be infeasible, emit an event and count the pod as skipped. Upstream:
        ``filterNonInPlaceUpdatablePods``.
        """
        in_place_only = self._restriction.mode == "InPlace"
        wanted = (IN_PLACE_INFEASIBLE, IN_PLACE_DEFERRED) if in_place_only else (IN_PLACE_EVICT,)
        resizable = []
        for pod in pods:
            decision = self._decide_in_place(pod)
            if decision == IN_PLACE_INFEASIBLE_CACHED:
                yield from self._progress.emit(build_pod_event(pod, "InPlaceResizeSkipped", _SKIPPED_TEXT))
                yield from self._progress.observe(self._counters.count_skipped())
                self._record_unchanged(pod, "Infeasible", _SKIPPED_TEXT)
            elif decision == IN_PLACE_APPROVED or decision in wanted:
                resizable.append(pod)
            else:
                self._record_unchanged(pod, *self._restriction.explain_block(pod))
        return resizable

    def _sort_by_priority(self, pods: Iterable[Pod]) -> list[PodPriority]:
        """Return the pods to update, by descending priority (``getPodsUpdateOrder``), and add them to ``chosen``.

        Problems of assessed pods are added to the diagnostics; with ``explain`` other pods are recorded as unchanged.
        """
        loop = self._loop
        assessed = [
            assess_pod(
                pod,
                self._vpa,
                now=self._progress.now,
                limit_ranges=loop.inputs.limit_ranges,
                options=loop.options,
                infeasible_attempts=loop.state.infeasible_attempts,
            )
            for pod in pods
        ]
        self._note(*(text for item in assessed for text in (item.error, *item.diagnostics) if text))
        chosen = order_updates(assessed, loop.admission)
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
        """Record for each assessed pod that is not updated why it is not. ``chosen``: keys of the pods to update."""
        now, options = self._progress.now, self._loop.options
        for item in assessed:
            if not item.accepted:
                self._record_unchanged(item.pod, *explain_not_due(item, self._vpa, now=now, options=options))
            elif item.pod.key not in chosen:
                self._record_unchanged(item.pod, "EvictionRequirements", "the VPA's evictionRequirements do not hold")

    # -- actions -----------------------------------------------------------------------------------------------------

    def unboost(self, pod: Pod) -> StepsOf[UpdaterAction, None]:
        """Revert the startup boosts of a pod that have expired; nothing if the pod may not be resized now.

        An error is added to the diagnostics and counted. Raises :class:`LoopStoppedError` if the rate limiter cannot
        wait.
        """
        if not self._restriction.can_unboost(pod, self._progress.now):
            return
        yield from self._wait(self._loop.in_place_limiter)
        problem = yield from self._resize(pod)
        if problem is not None:
            self._note(f"unboosting {pod.key}: {problem.message}")
            yield from self._progress.observe(self._counters.not_updated_in_place("UnboostError"))

    def _try_in_place(self, pod: Pod, to_evict: list[Pod]) -> StepsOf[UpdaterAction, None]:
        """Decide again on an in-place update of a pod, and resize it unless it has to wait or to be evicted.

        In mode InPlace a pod whose resize goes on or is infeasible is resized, too. A pod whose resize is stuck or
        refused is added to ``to_evict``, unless the mode is InPlace. Raises LoopStoppedError if the rate limiter cannot
        wait.
        """
        in_place_only = self._restriction.mode == "InPlace"
        decision = self._decide_in_place(pod)
        if decision == IN_PLACE_INFEASIBLE_CACHED or (decision == IN_PLACE_DEFERRED and not in_place_only):
            self._record_unchanged(pod, *self._restriction.explain_block(pod))
            return
        if decision == IN_PLACE_EVICT:
            to_evict.append(pod)
            return
        if decision == IN_PLACE_INFEASIBLE:
            self._remember_infeasible(pod)
        count_failed_wait = self._counters.not_updated_in_place("InPlaceUpdateRateLimiterWaitFailed")
        yield from self._wait(self._loop.in_place_limiter, count_failed_wait)
        problem = yield from self._resize(pod)
        if problem is None:
            self._restriction.register_resize(pod)
            self._resized = True
            return
        reason = "InPlaceUpdateError"
        if not in_place_only:
            to_evict.append(pod)
        elif is_infeasible(problem):
            reason = "InPlaceUpdateInfeasible"
            self._remember_infeasible(pod)
        self._note(f"resizing {pod.key}: {problem.message}")
        yield from self._progress.observe(self._counters.not_updated_in_place(reason))
        if in_place_only:
            self._record_unchanged(pod, "Refused", problem.message)

    def _remember_infeasible(self, pod: Pod) -> None:
        """Store the VPA's recommendation, if there is one, as one that the pod's node has no room for."""
        recommendation = self._vpa.status.recommendation
        if recommendation is not None:
            self._loop.state.infeasible_attempts[pod.metadata.uid] = recommendation

    def _resize(self, pod: Pod) -> StepsOf[UpdaterAction, ApiError | None]:
        """Resize a pod in place and set its annotations (``InPlaceUpdate``). Returns None, or the error.

        An error of the annotations is only added to the diagnostics.
        """
        if not self._restriction.has_pod(pod):
            return ApiError(f"pod not suitable for in-place update {pod.name}: not in replicated pods map")
        limit_ranges = self._loop.inputs.limit_ranges
        try:
            resize, annotations = build_in_place_patches(pod, self._vpa, limit_ranges, self._progress.now)
        except InPlaceError as error:
            return ApiError(str(error))
        resized = yield from self._progress.act(Resize(namespace=pod.namespace, name=pod.name, patch=tuple(resize)))
        if resized.error is not None:
            return resized.error
        annotated = yield from self._progress.act(
            Patch(kind="Pod", namespace=pod.namespace, name=pod.name, type="json", patch=tuple(annotations))
        )
        if annotated.error is not None:
            self._note(f"failed to annotate pod {pod.key}: {annotated.error.message}")
        yield from self._progress.emit(build_pod_event(pod, "InPlaceResizedByVPA", _RESIZED_TEXT))
        yield from self._progress.observe(self._counters.updated_in_place())
        return None

    def _evict_all(self, pods: list[Pod]) -> StepsOf[UpdaterAction, bool]:
        """Evict those pods that may be evicted, and return True if any was.

        Failures are added to the diagnostics and counted; with ``explain`` pods that are not evicted are recorded as
        unchanged. Raises LoopStoppedError if the rate limiter cannot wait.
        """
        some = False
        for i, pod in enumerate(pods):
            if not self._can_evict(pod):
                self._record_unchanged(pod, *self._restriction.explain_block(pod))
                continue
            count_failed_wait = self._counters.not_evicted("EvictionRateLimiterWaitFailed")
            try:
                yield from self._wait(self._loop.eviction_limiter, count_failed_wait)
            except LoopStoppedError:
                for each in pods[i:]:
                    self._record_unchanged(each, "RateLimit", "the rate of evictions allows no more in this loop")
                raise
            problem = yield from self._evict(pod)
            if problem:
                self._note(f"evicting {pod.key}: {problem}")
                self._record_unchanged(pod, "Refused", problem)
                yield from self._progress.observe(self._counters.not_evicted("EvictionError"))
            else:
                some = True
                yield from self._progress.observe(self._counters.count_evicted())
        return some

    def _evict(self, pod: Pod) -> StepsOf[UpdaterAction, str]:
        """Evict a pod. Returns an empty text, or the error."""
        if not self._restriction.has_pod(pod):
            return f"pod not suitable for eviction {pod.key}: not in replicated pods map"
        if not self._can_evict(pod):
            return f"cannot evict pod {pod.key}: eviction budget exceeded"
        evicted = yield from self._progress.act(Evict(namespace=pod.namespace, name=pod.name))
        if evicted.error is not None:
            return evicted.error.message
        text = f"VPA Updater evicted Pod {pod.name} to apply resource recommendation."
        yield from self._progress.emit(
            build_pod_event(pod, "EvictedByVPA", _EVICTED_TEXT), build_vpa_event(self._vpa, "EvictedPod", text)
        )
        self._restriction.register_eviction(pod)
        return ""


@typed
def updater_steps(
    state: UpdaterState,
    inputs: UpdaterRound,
    *,
    now: datetime | Moment,
    options: UpdaterOptions | None = None,
    admission: EvictionAdmission | None = None,
    explain: bool = False,
) -> StepsOf[UpdaterAction, UpdaterResult]:
    """Run one loop of the updater as a step machine: yields actions, receives outcomes, returns the result.

    The lease of the admission controller is read with ``Get`` unless ``use_admission_controller_status`` is off. A
    resize is a ``Resize`` and a ``Patch`` of annotations, an eviction an ``Evict``. Rate limiters yield ``Wait``; an
    error as its outcome ends the loop. Steps of the loop are timed (``execution_latency_seconds``).

    Parameters
    ----------
    state : UpdaterState
        State of the updater, changed in place and part of the result.
    inputs : UpdaterRound
        VPAs, pods and other inputs of the loop.
    now : datetime or Moment
        Start of the loop.
    options : UpdaterOptions, optional
        Options of the updater.
    admission : EvictionAdmission, optional
        Filter of pods about to be updated, one for the life of an updater. Default:
        :class:`~kscale.vpa.updater.ScalingDirectionAdmission` (``evictionRequirements``).
    explain : bool
        Record also why pods of acting VPAs are unchanged.

    Returns
    -------
    Steps of UpdaterResult
        The step machine.
    """
    admission = admission or ScalingDirectionAdmission()
    loop = LoopContext(state, inputs, options or UpdaterOptions(), moment(now), admission, explain=explain)
    timer = ExecutionTimer(loop.progress, "updater")
    yield from _run_loop_steps(loop, timer)
    yield from timer.total()
    return loop.result


@typed
def run_updater(
    state: UpdaterState,
    inputs: UpdaterRound,
    *,
    now: datetime | Moment,
    options: UpdaterOptions | None = None,
    admission: EvictionAdmission | None = None,
    refuse: Callable[[Action], ApiError | None] | None = None,
) -> UpdaterResult:
    """Run a loop as if every action succeeded, including waits, except those that ``refuse`` rejects.

    The admission controller is assumed to be alive, and only the scales in ``inputs`` are known.

    Parameters
    ----------
    state : UpdaterState
        State of the updater, changed as if the actions had been performed.
    inputs : UpdaterRound
        VPAs, pods and other inputs of the loop.
    now : datetime or Moment
        Start of the loop.
    options : UpdaterOptions, optional
        Options of the updater.
    admission : EvictionAdmission, optional
        Filter of pods about to be updated; see :func:`updater_steps`.
    refuse : callable, optional
        Called with each action that writes or waits. Returns the error with which it fails, or None.

    Returns
    -------
    UpdaterResult
        The actions, messages and reasons of unchanged pods.
    """
    start = moment(now)
    steps = updater_steps(state, inputs, now=start, options=options, admission=admission, explain=True)
    result = dry_run_loop(steps, start, refuse)
    result.unchanged += find_idle_pods(inputs, options or UpdaterOptions(), start)
    return result


def find_idle_pods(inputs: UpdaterRound, options: UpdaterOptions, now: Moment) -> list[UnchangedPod]:
    """Return the pods that the updater ignores because of their VPA's update mode or namespace, with the reason.

    Empty if a VPA's target has a scale that would have to be requested.
    """
    idle = [vpa for vpa in inputs.vpas if options.ignores(vpa.namespace) or not is_active_vpa(vpa)]
    if not idle:
        return []

    def steps() -> StepsOf[GetScale, list[ControlledPods]]:
        """Find the controlled pods of the VPAs that loops ignore."""
        progress = Progress(now)
        selected = yield from resolve_vpa_selectors_steps(idle, inputs.controllers, progress)
        return (
            yield from find_controlled_pods_steps(filter_live_pods(inputs.pods), selected, inputs.controllers, progress)
        )

    try:
        controlled, _ = run_without_requests(steps())
    except ScaleNeededError:  # without the target's scale the owner of the pods is unknown
        return []
    unchanged = []
    for vpa, pods in controlled:
        reason, message = "Mode", f"update mode {update_mode(vpa)}: running pods are left as they are"
        if options.ignores(vpa.namespace):
            reason, message = "Namespace", f"the updater leaves the namespace {vpa.namespace} alone"
        unchanged += [
            UnchangedPod(namespace=pod.namespace, pod=pod.name, vpa=vpa.name, reason=reason, message=message)
            for pod in pods
        ]
    return unchanged


def dry_run_loop(
    steps: StepsOf[UpdaterAction, UpdaterResult],
    now: Moment,
    refuse: Callable[[Action], ApiError | None] | None = None,
) -> UpdaterResult:
    """Run a loop without performing its actions, and return its result, with its actions, events and observations.

    A Lease that it reads was renewed at ``now``; anything else that it reads does not exist (NotFound). All other
    actions succeed unless ``refuse`` returns an error for them.
    """

    def respond(action: Action) -> Lease | ApiError:
        """Respond with a fresh lease, and with NotFound to all other requests."""
        if isinstance(action, Get) and action.kind == "Lease":
            return Lease(
                metadata=ObjectMeta(name=action.name, namespace=action.namespace),
                spec=LeaseSpec(renew_time=micro_time(now)),
            )
        return ApiError("nothing more is known", 404, NOT_FOUND)

    done = run_dry(steps, now=now, respond=respond, refuse=refuse)
    return msgspec.structs.replace(done.value, actions=done.actions, events=done.events, observations=done.observations)


def _run_loop_steps(loop: LoopContext, timer: ExecutionTimer) -> StepsOf[UpdaterAction, None]:
    """Run the steps of a loop, in upstream's order, and record their results in ``loop.result``.

    Without a live admission controller only expired startup boosts end.
    """
    yield from _end_boosts_steps(loop)
    if not (yield from _is_admission_controller_alive_steps(loop)):
        return
    yield from timer.step("ListVPAs")
    inputs, options = loop.inputs, loop.options
    acting = (vpa for vpa in inputs.vpas if not options.ignores(vpa.namespace) and is_active_vpa(vpa))
    vpas = yield from resolve_vpa_selectors_steps(acting, inputs.controllers, loop.progress, loop.result.diagnostics)
    if not vpas:
        loop.result.diagnostics.append("No VPA objects to process")
        loop.admission.clean_up()
        return
    yield from timer.step("ListPods")
    live = filter_live_pods(inputs.pods)
    controlled = yield from find_controlled_pods_steps(live, vpas, inputs.controllers, loop.progress)
    attempts, uids = loop.state.infeasible_attempts, {pod.metadata.uid for pod in live}
    for uid in [uid for uid in attempts if uid not in uids]:
        del attempts[uid]
    yield from timer.step("FilterPods")
    loop.admission.loop_init(live, controlled)
    yield from timer.step("AdmissionInit")
    yield from loop.progress.observe(*GAUGE_RESETS)
    try:
        for vpa, pods in controlled:
            yield from VpaUpdate(loop, vpa, pods).run()
    except LoopStoppedError:
        loop.result.stopped_early = True
    else:
        yield from timer.step("EvictPods")
    yield from loop.progress.observe(*loop.gauges.observations())


def _end_boosts_steps(loop: LoopContext) -> StepsOf[UpdaterAction, None]:
    """End the startup boosts that have expired, whatever the update mode.

    Upstream's worker (``RunBoostWorker``) takes each pod from a queue and looks at the listed pods alone: resizes that
    the worker has just begun do not count, and the admission controller need not be alive.
    """
    inputs, options = loop.inputs, loop.options
    if not is_gate_enabled(options.feature_gates, CPU_STARTUP_BOOST_GATE):
        return
    live = filter_live_pods(inputs.pods)
    boosted = [pod for pod in live if has_boost_in_progress(pod) and not options.ignores(pod.namespace)]
    if not boosted:
        return
    namespaces = {pod.namespace for pod in boosted}
    nearby = (vpa for vpa in inputs.vpas if vpa.namespace in namespaces)
    vpas = yield from resolve_vpa_selectors_steps(nearby, inputs.controllers, loop.progress)
    selectors = {vpa.key: selector for vpa, selector in vpas}
    controlled = yield from find_controlled_pods_steps(boosted, vpas, inputs.controllers, loop.progress)
    updates: dict[str, VpaUpdate] = {}
    for vpa, pods in controlled:
        selected = [
            pod for pod in live if pod.namespace == vpa.namespace and selectors[vpa.key].matches(pod.metadata.labels)
        ]
        updates |= dict.fromkeys((pod.key for pod in pods), VpaUpdate(loop, vpa, selected))
    try:
        for pod in boosted:
            if pod.key in updates:
                yield from updates[pod.key].unboost(pod)
    except LoopStoppedError:
        return  # the next loop goes on


def _is_admission_controller_alive_steps(loop: LoopContext) -> StepsOf[UpdaterAction, bool]:
    """Check whether the admission controller's lease is valid; True if the options turn the check off.

    If it is invalid or cannot be read, adds a diagnostic and returns False: without the admission controller, evicted
    pods would be created again unchanged.
    """
    options = loop.options
    if not options.use_admission_controller_status:
        return True

    def check(begun: Moment) -> StepsOf[Get | Wait, bool | ApiError]:
        return check_status_steps(
            Progress(begun),
            name=options.admission_controller_status_lease_name,
            namespace=options.admission_controller_status_lease_namespace or STATUS_LEASE_NAMESPACE,
            timeout=duration(options.admission_controller_status_lease_timeout),
        )

    answer: bool | ApiError = yield from loop.progress.within(loop.deadline - loop.progress.now, check)
    if isinstance(answer, ApiError):
        text = f"Error getting Admission Controller status. Skipping update loop: {answer.message}"
        loop.result.diagnostics.append(text)
        return False
    if not answer:
        loop.result.diagnostics.append("Admission Controller status is not valid. Skipping update loop")
    return answer
