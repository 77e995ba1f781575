"""One loop of the updater as a step machine (``pkg/updater/logic/updater.go``)."""

from __future__ import annotations

from datetime import datetime

import msgspec

from kscale.effects import (
    Action,
    ApiError,
    Get,
    Moment,
    Progress,
    StepsOf,
    Wait,
    as_if_done,
    duration,
    moment,
)
from kscale.effects.outcomes import NOT_FOUND
from kscale.objects.leases import Lease, LeaseSpec
from kscale.objects.meta import ObjectMeta
from kscale.objects.times import micro_time
from kscale.vpa.metrics import ExecutionTimer
from kscale.vpa.options import UpdaterOptions
from kscale.vpa.status_lease import STATUS_LEASE_NAMESPACE, check_status
from kscale.vpa.updater.context import LoopContext, LoopStoppedError, UpdaterAction
from kscale.vpa.updater.controlled import controlled_pods_steps, is_acting, live_pods, select_steps
from kscale.vpa.updater.eviction_admission import EvictionAdmission, ScalingDirection
from kscale.vpa.updater.metrics import RESETS
from kscale.vpa.updater.one_vpa import VpaUpdate
from kscale.vpa.updater.records import UpdaterResult, UpdaterRound, UpdaterState

__all__ = ["run_updater", "updater_steps"]


def updater_steps(
    state: UpdaterState,
    given: UpdaterRound,
    *,
    now: datetime | Moment,
    options: UpdaterOptions | None = None,
    admission: EvictionAdmission | None = None,
) -> StepsOf[UpdaterAction, UpdaterResult]:
    """One loop: yields what is to be done, is sent how it went, returns what it found out.

    ``given``: VPAs, pods and what else a round looks at; ``state`` is changed, and is in the result. ``admission``: the
    filter over pods about to be updated, one for the life of an updater; without one,
    :class:`~kscale.vpa.updater.ScalingDirection` (``evictionRequirements``). The lease of the admission controller is
    read with ``Get`` unless ``use_admission_controller_status`` is off; a resize is a ``Resize`` and a ``Patch`` of
    annotations, an eviction an ``Evict``; the limiters ``Wait``; steps of the loop are timed
    (``execution_latency_seconds``). A ``Wait`` that is answered with an error ends the loop.
    """
    loop = LoopContext(state, given, options or UpdaterOptions(), moment(now), admission or ScalingDirection())
    timer = ExecutionTimer(loop.progress, "updater")
    yield from _run(loop, timer)
    yield from timer.total()
    return loop.result


def run_updater(
    state: UpdaterState,
    given: UpdaterRound,
    *,
    now: datetime | Moment,
    options: UpdaterOptions | None = None,
    admission: EvictionAdmission | None = None,
) -> UpdaterResult:
    """A loop as if everything succeeded, waiting included: the admission controller lives, and no scale is known that
    was not given. What it would have done and said is in the result; ``state`` is changed as if it had been done.
    """
    begun = moment(now)
    steps = updater_steps(state, given, now=begun, options=options, admission=admission)
    return recorded(steps, begun)


def recorded(steps: StepsOf[UpdaterAction, UpdaterResult], now: Moment) -> UpdaterResult:
    """The result of a loop as if everything succeeded, with what it did and said."""

    def respond(action: Action) -> Lease | ApiError:
        if isinstance(action, Get) and action.kind == "Lease":
            return Lease(
                metadata=ObjectMeta(name=action.name, namespace=action.namespace),
                spec=LeaseSpec(renew_time=micro_time(now)),
            )
        return ApiError("nothing more is known", 404, NOT_FOUND)

    done = as_if_done(steps, now=now, respond=respond)
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
