"""The updater of 2020 as a named profile: evictions only, pods by selector, thresholds of that time.

Upstream: ``pkg/updater/logic/updater.go`` and ``pkg/updater/priority/update_priority_calculator.go`` between September
2019 (which added the rate limit) and January 2020 (which added the check of the admission controller and quick OOM
kills of any container).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from kscale.effects import SECOND, Evict, Moment, StepsOf, duration, moment
from kscale.objects.api.core import Pod
from kscale.objects.api.vpa import VerticalPodAutoscaler, update_mode
from kscale.objects.argument_types import typed
from kscale.objects.selectors import SelectorIndex
from kscale.objects.times import moment_in
from kscale.vpa.capping import CappingError, cap_recommendation
from kscale.vpa.metrics import LEGACY_METRICS, ExecutionTimer, build_observation
from kscale.vpa.options import UpdaterOptions
from kscale.vpa.target import (
    ControlledPods,
    VpaWithSelector,
    filter_live_pods,
    is_stronger_vpa,
    resolve_vpa_selectors_steps,
)
from kscale.vpa.updater.context import (
    LoopContext,
    LoopStoppedError,
    RateLimitError,
    UpdaterAction,
    UpdaterResult,
    UpdaterRound,
    UpdaterState,
    build_pod_event,
)
from kscale.vpa.updater.loop import dry_run_loop
from kscale.vpa.updater.priority import (
    EvictionAdmission,
    PodPriority,
    SequentialAdmission,
    get_lifetime,
    order_updates,
    parse_termination,
)
from kscale.vpa.updater.restriction import PodsRestriction

__all__ = ["legacy_updater_steps", "run_legacy_updater"]

_LEGACY_UPDATE_MODES: Final = frozenset({"Recreate", "Auto"})
_MIN_POD_LIFETIME: Final = 12 * 3600 * SECOND  # the comment beside upstream's constant says 24h
_EVICTABLE_KINDS: Final = frozenset({"ReplicationController", "ReplicaSet", "StatefulSet"})
_EVICTED_TEXT: Final = "Pod was evicted by VPA Updater to apply resource recommendation."


@typed
def legacy_updater_steps(
    state: UpdaterState,
    inputs: UpdaterRound,
    *,
    now: datetime | Moment,
    options: UpdaterOptions | None = None,
    admission: EvictionAdmission | None = None,
) -> StepsOf[UpdaterAction, UpdaterResult]:
    """Run one loop of the updater of 2020 as a step machine.

    Yields requests for unknown scales, evictions, waits, events and observations.

    The metrics are :data:`~kscale.vpa.metrics.LEGACY_METRICS`.

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
        Filter of pods about to be evicted. Without it every pod is admitted.

    Returns
    -------
    Steps of UpdaterResult
        The step machine.
    """
    loop = LoopContext(state, inputs, options or UpdaterOptions(), moment(now), admission or SequentialAdmission(()))
    timer = ExecutionTimer(loop.progress, "updater")
    yield from timer.step("ListVPAs")
    acting = []
    for vpa in inputs.vpas:
        if update_mode(vpa) in _LEGACY_UPDATE_MODES:
            acting.append(vpa)
        else:
            text = f'skipping VPA object {vpa.name} because its mode is not "Recreate" or "Auto"'
            loop.result.details.append(text)
    vpas = yield from resolve_vpa_selectors_steps(acting, inputs.controllers, loop.progress, loop.result.diagnostics)
    if vpas:
        yield from timer.step("ListPods")
        live = filter_live_pods(inputs.pods)
        controlled = _find_controlled_pods(live, vpas)
        yield from timer.step("FilterPods")
        loop.admission.loop_init(live, controlled)
        yield from timer.step("AdmissionInit")
        try:
            for vpa, pods in controlled:
                yield from _update_vpa_steps(loop, vpa, pods)
        except LoopStoppedError:
            loop.result.stopped_early = True
            return loop.result
        yield from timer.step("EvictPods")
    else:
        loop.result.diagnostics.append("no VPA objects to process")
        loop.admission.clean_up()
    yield from timer.total()
    return loop.result


@typed
def run_legacy_updater(
    state: UpdaterState,
    inputs: UpdaterRound,
    *,
    now: datetime | Moment,
    options: UpdaterOptions | None = None,
    admission: EvictionAdmission | None = None,
) -> UpdaterResult:
    """Run one loop of the updater of 2020 as if every action succeeded; scales outside ``inputs`` do not exist.

    The parameters are those of :func:`legacy_updater_steps`; ``state`` is changed in place. The result contains the
    actions, events and observations.
    """
    begun = moment(now)
    return dry_run_loop(legacy_updater_steps(state, inputs, now=begun, options=options, admission=admission), begun)


def _find_controlled_pods(pods: Iterable[Pod], vpas: Sequence[VpaWithSelector]) -> list[ControlledPods]:
    """Find the pods of each VPA by namespace and selector only; the strongest VPA of a pod wins.

    VPAs without pods are left out, the others sorted by namespace and name. Raises InputError if several VPAs match a
    pod and the creation time of one is malformed.
    """
    index: SelectorIndex[int] = SelectorIndex()
    for i, (vpa, selector) in enumerate(vpas):
        index.add(vpa.namespace, selector, i)
    by_vpa: dict[tuple[str, str], ControlledPods] = {}
    for pod in pods:
        best: VerticalPodAutoscaler | None = None
        for i in index.matching(pod.namespace, pod.metadata.labels or {}):
            vpa = vpas[i][0]
            if best is None or is_stronger_vpa(vpa, best):
                best = vpa
        if best is not None:
            by_vpa.setdefault((best.namespace, best.name), (best, []))[1].append(pod)
    return [by_vpa[key] for key in sorted(by_vpa)]


def _update_vpa_steps(loop: LoopContext, vpa: VerticalPodAutoscaler, pods: list[Pod]) -> StepsOf[UpdaterAction, None]:
    """Evict the pods of a VPA that are due, with an event for each. Raises LoopStoppedError if the limiter cannot wait.

    A failed eviction is a diagnostic, and does not end the loop.
    """
    result, progress, controllers = loop.result, loop.progress, loop.inputs.controllers
    restriction = PodsRestriction(
        _drop_min_replicas(vpa), pods, controllers, loop.options, {}, replica_kinds=_EVICTABLE_KINDS
    )
    result.diagnostics += restriction.diagnostics
    for key, count in restriction.too_few.items():
        text = f"too few replicas for {key.kind} {key.namespace}/{key.name}. Found {count} live pods"
        result.details.append(text)
    evictable = [pod for pod in pods if restriction.can_evict(pod, progress.now)]
    for priority in order_updates([_assess_pod(loop, pod, vpa) for pod in evictable], loop.admission):
        pod = priority.pod
        if not restriction.can_evict(pod, progress.now):
            continue
        try:
            yield from loop.wait(loop.eviction_limiter)
        except RateLimitError as error:
            result.diagnostics.append(str(error))
            raise LoopStoppedError from None
        result.details.append(f"evicting pod {pod.name}")
        evicted = yield from progress.act(Evict(namespace=pod.namespace, name=pod.name))
        if evicted.error is not None:
            result.diagnostics.append(f"evicting {pod.key}: {evicted.error.message}")
            continue
        yield from progress.emit(build_pod_event(pod, "EvictedByVPA", _EVICTED_TEXT))
        yield from progress.observe(build_observation("vpa_updater_evicted_pods_total", metrics=LEGACY_METRICS))
        restriction.register_eviction(pod)


def _drop_min_replicas(vpa: VerticalPodAutoscaler) -> VerticalPodAutoscaler:
    """Return the VPA without ``minReplicas``, which the updater of 2020 did not know."""
    if vpa.spec.update_policy is None:
        return vpa
    policy = msgspec.structs.replace(vpa.spec.update_policy, min_replicas=None)
    return msgspec.structs.replace(vpa, spec=msgspec.structs.replace(vpa.spec, update_policy=policy))


def _assess_pod(loop: LoopContext, pod: Pod, vpa: VerticalPodAutoscaler) -> PodPriority:
    """Return the priority of a pod: ``accepted`` if the updater of 2020 would evict it.

    Its ``error`` is set if the recommendation cannot be fitted to the pod. Raises InputError for a malformed time in
    the pod's status.
    """
    try:
        fitted = cap_recommendation(vpa, pod, loop.inputs.limit_ranges).recommendation
    except CappingError as error:
        return PodPriority(pod=pod, error=str(error))
    result = PodPriority.compute(pod, fitted, quick_oom=_is_quick_oom(pod, loop.options))
    started = pod.status.start_time
    old_enough = (
        started is not None and loop.progress.now >= moment_in(pod, started, "status.startTime") + _MIN_POD_LIFETIME
    )
    is_due = old_enough and result.resource_diff >= loop.options.pod_update_threshold
    result.accepted = fitted is not None and (result.outside_recommended_range or result.quick_oom or is_due)
    return result


def _is_quick_oom(pod: Pod, options: UpdaterOptions) -> bool:
    """Check whether a pod's only container was OOM-killed within ``evict_after_oom_threshold`` after its start.

    False for pods with several container statuses. Raises InputError for a malformed time.
    """
    if len(pod.status.container_statuses) != 1:
        return False
    ended = pod.status.container_statuses[0].last_state.terminated
    if ended is None or ended.reason != "OOMKilled":
        return False
    return get_lifetime(*parse_termination(pod, 0, ended)) < duration(options.evict_after_oom_threshold)
