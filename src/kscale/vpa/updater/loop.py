"""One loop of the updater as a step machine (``pkg/updater/logic/updater.go``)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from kscale.effects import (
    Action,
    ApiError,
    Get,
    GetScale,
    Moment,
    Progress,
    StepsOf,
    Wait,
    as_if_done,
    duration,
    moment,
)
from kscale.effects.outcomes import NOT_FOUND
from kscale.objects.argument_types import typed
from kscale.objects.leases import Lease, LeaseSpec
from kscale.objects.meta import ObjectMeta
from kscale.objects.times import micro_time
from kscale.objects.vpa import update_mode
from kscale.vpa.metrics import ExecutionTimer
from kscale.vpa.options import UpdaterOptions
from kscale.vpa.scales import ScaleNeededError, without_asking
from kscale.vpa.status_lease import STATUS_LEASE_NAMESPACE, check_status
from kscale.vpa.updater.context import LoopContext, LoopStoppedError, UpdaterAction
from kscale.vpa.updater.controlled import Controlled, controlled_pods_steps, is_acting, live_pods, select_steps
from kscale.vpa.updater.eviction_admission import EvictionAdmission, ScalingDirection
from kscale.vpa.updater.metrics import RESETS
from kscale.vpa.updater.one_vpa import VpaUpdate
from kscale.vpa.updater.records import UnchangedPod, UpdaterResult, UpdaterRound, UpdaterState

__all__ = ["run_updater", "updater_steps"]


@typed
def updater_steps(
    state: UpdaterState,
    given: UpdaterRound,
    *,
    now: datetime | Moment,
    options: UpdaterOptions | None = None,
    admission: EvictionAdmission | None = None,
    explain: bool = False,
) -> StepsOf[UpdaterAction, UpdaterResult]:
    """One loop: yields what is to be done, is sent how it went, returns what it found out.

    ``given``: VPAs, pods and what else a round looks at; ``state`` is changed, and is in the result. ``admission``: the
    filter over pods about to be updated, one for the life of an updater; without one,
    :class:`~kscale.vpa.updater.ScalingDirection` (``evictionRequirements``). The lease of the admission controller is
    read with ``Get`` unless ``use_admission_controller_status`` is off; a resize is a ``Resize`` and a ``Patch`` of
    annotations, an eviction an ``Evict``; the limiters ``Wait``; steps of the loop are timed
    (``execution_latency_seconds``). A ``Wait`` that is answered with an error ends the loop. ``explain``: the result
    also says of the pods of acting VPAs that are left as they are, why.
    """
    admission = admission or ScalingDirection()
    loop = LoopContext(state, given, options or UpdaterOptions(), moment(now), admission, explain=explain)
    timer = ExecutionTimer(loop.progress, "updater")
    yield from _run(loop, timer)
    yield from timer.total()
    return loop.result


@typed
def run_updater(
    state: UpdaterState,
    given: UpdaterRound,
    *,
    now: datetime | Moment,
    options: UpdaterOptions | None = None,
    admission: EvictionAdmission | None = None,
    refuse: Callable[[Action], ApiError | None] | None = None,
) -> UpdaterResult:
    """A loop as if everything succeeded, waiting included: the admission controller lives, and no scale is known that
    was not given. What it would have done and said is in the result, and why other pods of VPAs are left as they are;
    ``state`` is changed as if it had been done. ``refuse`` may answer an eviction or a resize with an error.
    """
    begun = moment(now)
    steps = updater_steps(state, given, now=begun, options=options, admission=admission, explain=True)
    result = recorded(steps, begun, refuse)
    result.unchanged += idle_pods(given, options or UpdaterOptions(), begun)
    return result


def idle_pods(given: UpdaterRound, options: UpdaterOptions, now: Moment) -> list[UnchangedPod]:
    """Return the pods of VPAs that no loop looks at: their mode or their namespace leaves pods alone."""
    idle = [vpa for vpa in given.vpas if options.ignores(vpa.namespace) or not is_acting(vpa)]
    if not idle:
        return []

    def steps() -> StepsOf[GetScale, list[Controlled]]:
        progress = Progress(now)
        selected = yield from select_steps(idle, given.controllers, progress)
        return (yield from controlled_pods_steps(live_pods(given.pods), selected, given.controllers, progress))

    try:
        controlled, _ = without_asking(steps())
    except ScaleNeededError:  # nobody has asked for the scale of a target: whose the pods are is not known
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


def recorded(
    steps: StepsOf[UpdaterAction, UpdaterResult],
    now: Moment,
    refuse: Callable[[Action], ApiError | None] | None = None,
) -> UpdaterResult:
    """The result of a loop as if everything succeeded but what ``refuse`` refuses, with what it did and said."""

    def respond(action: Action) -> Lease | ApiError:
        if isinstance(action, Get) and action.kind == "Lease":
            return Lease(
                metadata=ObjectMeta(name=action.name, namespace=action.namespace),
                spec=LeaseSpec(renew_time=micro_time(now)),
            )
        return ApiError("nothing more is known", 404, NOT_FOUND)

    done = as_if_done(steps, now=now, respond=respond, refuse=refuse)
    return msgspec.structs.replace(done.value, actions=done.actions, events=done.events, observations=done.observations)


def _run(loop: LoopContext, timer: ExecutionTimer) -> StepsOf[UpdaterAction, None]:
    if not (yield from _admission_controller_lives(loop)):
        return
    yield from timer.step("ListVPAs")
    given, options = loop.given, loop.options
    acting = (vpa for vpa in given.vpas if not options.ignores(vpa.namespace) and is_acting(vpa))
    vpas = yield from select_steps(acting, given.controllers, loop.progress, loop.result.diagnostics)
    if not vpas:
        loop.result.diagnostics.append("No VPA objects to process")
        loop.admission.clean_up()
        return
    yield from timer.step("ListPods")
    live = live_pods(given.pods)
    controlled = yield from controlled_pods_steps(live, vpas, given.controllers, loop.progress)
    attempts, uids = loop.state.infeasible_attempts, {pod.metadata.uid for pod in live}
    for uid in [uid for uid in attempts if uid not in uids]:
        del attempts[uid]
    yield from timer.step("FilterPods")
    loop.admission.loop_init(live, controlled)
    yield from timer.step("AdmissionInit")
    yield from loop.progress.observe(*RESETS)
    try:
        for vpa, pods in controlled:
            yield from VpaUpdate(loop, vpa, pods).run()
    except LoopStoppedError:
        loop.result.stopped_early = True
    else:
        yield from timer.step("EvictPods")
    yield from loop.progress.observe(*loop.gauges.observations())


def _admission_controller_lives(loop: LoopContext) -> StepsOf[UpdaterAction, bool]:
    """Whether its lease is fresh: without it, evicted pods would come back as they were."""
    options = loop.options
    if not options.use_admission_controller_status:
        return True

    def check(begun: Moment) -> StepsOf[Get | Wait, bool | ApiError]:
        return check_status(
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
