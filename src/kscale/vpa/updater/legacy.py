"""The updater of about 2020 as a named profile: evictions only, by selector, with the thresholds of that time."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

import msgspec

from kscale.objects.core import Pod
from kscale.objects.selectors import Selector
from kscale.objects.vpa import VerticalPodAutoscaler, update_mode
from kscale.vpa.capping import CappingError, cap
from kscale.vpa.clock import from_text
from kscale.vpa.options import UpdaterOptions, nanoseconds_of
from kscale.vpa.target import TargetError, stronger
from kscale.vpa.updater.actions import Action, ApiError, Event, Evict, Outcome, Wait, run_dry
from kscale.vpa.updater.eviction_admission import EvictionAdmission
from kscale.vpa.updater.loop import UpdaterResult, UpdaterRound, UpdaterState
from kscale.vpa.updater.priority import PodPriority, lived, priority_of, update_order
from kscale.vpa.updater.rate_limiter import RateLimiter, RateLimitError
from kscale.vpa.updater.restriction import Restriction

__all__ = ["legacy_updater_steps", "run_legacy_updater"]

_MODES: Final = frozenset({"Recreate", "Auto"})
_LIFETIME: Final = 24 * 3600 * 10**9
_KINDS: Final = frozenset({"ReplicationController", "ReplicaSet", "StatefulSet"})


def _quick_oom(pod: Pod, options: UpdaterOptions) -> bool:
    """Only pods with exactly one container status count."""
    if len(pod.status.container_statuses) != 1:
        return False
    ended = pod.status.container_statuses[0].last_state.terminated
    if ended is None or ended.reason != "OOMKilled":
        return False
    return lived(ended.started_at, ended.finished_at) < nanoseconds_of(options.evict_after_oom_threshold)


def _assess(
    pod: Pod, vpa: VerticalPodAutoscaler, given: UpdaterRound, options: UpdaterOptions, now: int
) -> PodPriority:
    try:
        fitted = cap(vpa, pod, given.limit_ranges).recommendation
    except CappingError as error:
        return PodPriority(pod=pod, error=str(error))
    outside, scale_up, difference = priority_of(pod, fitted)
    result = PodPriority(
        pod=pod,
        recommendation=fitted,
        outside_recommended_range=outside,
        scale_up=scale_up,
        resource_diff=difference,
        quick_oom=_quick_oom(pod, options),
    )
    old_enough = pod.status.start_time is not None and now >= from_text(pod.status.start_time) + _LIFETIME
    due = old_enough and difference >= options.pod_update_threshold
    result.accepted = fitted is not None and (outside or result.quick_oom or due)
    return result


def _controlled(
    pods: Sequence[Pod], vpas: Sequence[tuple[VerticalPodAutoscaler, Selector]]
) -> list[tuple[VerticalPodAutoscaler, list[Pod]]]:
    """By namespace and selector alone; the strongest VPA wins."""
    found: dict[tuple[str, str], tuple[VerticalPodAutoscaler, list[Pod]]] = {}
    for pod in pods:
        best: VerticalPodAutoscaler | None = None
        for vpa, selector in vpas:
            matches = vpa.namespace == pod.namespace and selector.matches(pod.metadata.labels)
            if matches and (best is None or stronger(vpa, best)):
                best = vpa
        if best is not None:
            found.setdefault((best.namespace, best.name), (best, []))[1].append(pod)
    return [found[key] for key in sorted(found)]


def _without_own_minimum(vpa: VerticalPodAutoscaler) -> VerticalPodAutoscaler:
    if vpa.spec.update_policy is None:
        return vpa
    policy = msgspec.structs.replace(vpa.spec.update_policy, min_replicas=None)
    return msgspec.structs.replace(vpa, spec=msgspec.structs.replace(vpa.spec, update_policy=policy))


def legacy_updater_steps(
    state: UpdaterState,
    given: UpdaterRound,
    *,
    now: int,
    options: UpdaterOptions | None = None,
    admission: EvictionAdmission | None = None,
) -> Generator[Action, Outcome, UpdaterResult]:
    """One loop of the profile: yields evictions and waits. Without ``admission`` every pod is admitted."""
    options = options or UpdaterOptions()
    result = UpdaterResult(state=state)
    deadline = now + nanoseconds_of(options.updater_interval)
    limiter = state.eviction_limiter or RateLimiter.of(options.eviction_rate_limit, options.eviction_rate_burst)
    state.eviction_limiter = limiter
    kept: list[tuple[VerticalPodAutoscaler, Selector]] = []
    for vpa in given.vpas:
        if update_mode(vpa) in _MODES:
            try:
                kept.append((vpa, given.controllers.selector(vpa)))
            except TargetError as error:
                result.diagnostics.append(f"{vpa.key}: {error}")
    if not kept:
        if admission is not None:
            admission.clean_up()
        return result
    live = [pod for pod in given.pods if pod.metadata.deletion_timestamp is None]
    controlled = _controlled(live, kept)
    if admission is not None:
        admission.loop_init(live, controlled)
    clock = now
    evicted = 0
    for vpa, pods in controlled:
        restriction = Restriction(_without_own_minimum(vpa), pods, given.controllers, options, {}, replica_kinds=_KINDS)
        result.diagnostics += restriction.diagnostics
        evictable = [pod for pod in pods if restriction.can_evict(pod, clock)]
        for priority in update_order((_assess(pod, vpa, given, options, now) for pod in evictable), admission):
            pod = priority.pod
            if not restriction.can_evict(pod, clock):
                continue
            try:
                delay = limiter.wait(clock, deadline)
            except RateLimitError as error:
                result.diagnostics.append(str(error))
                result.stopped_early = True
                return result
            if delay > 0:
                waited = yield Wait(delay)
                clock = waited.now if waited.now is not None else clock + delay
            outcome = yield Evict(pod.namespace, pod.name)
            clock = outcome.now if outcome.now is not None else clock
            refusal: ApiError | None = outcome.error
            result.actions.append((Evict(pod.namespace, pod.name), refusal))
            if refusal is not None:
                result.diagnostics.append(f"evicting {pod.key}: {refusal.message}")
                continue
            text = "Pod was evicted by VPA Updater to apply resource recommendation."
            result.events.append(Event("Pod", pod.namespace, pod.name, "EvictedByVPA", text))
            restriction.evicted(pod)
            evicted += 1
    result.observations = {"vpa_updater_evicted_pods_total": evicted}
    return result


def run_legacy_updater(
    state: UpdaterState,
    given: UpdaterRound,
    *,
    now: int,
    options: UpdaterOptions | None = None,
    admission: EvictionAdmission | None = None,
) -> UpdaterResult:
    """The profile with every eviction succeeding."""
    return run_dry(legacy_updater_steps(state, given, now=now, options=options, admission=admission))
