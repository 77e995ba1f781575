"""One round of the recommender as a step machine, in upstream's order (upstream:
``pkg/recommender/routines/recommender.go``).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from kscale.effects import (
    ZERO_TIME,
    Action,
    ApiError,
    GetMetric,
    GetScale,
    Moment,
    Progress,
    StepsOf,
    moment,
    run_dry,
    timedelta_of,
)
from kscale.effects.actions import NOT_FOUND
from kscale.objects.api.metrics import ExternalMetricValueList
from kscale.objects.api.vpa import VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint
from kscale.objects.argument_types import typed
from kscale.objects.pod_metrics import PodUsage
from kscale.snapshot.caches import collector_paused
from kscale.vpa.controllers import Controllers, run_without_requests
from kscale.vpa.metrics import ExecutionTimer, build_observation
from kscale.vpa.model.cluster_state import collect_garbage_steps
from kscale.vpa.model.saved_state import RecommenderState, Vpa
from kscale.vpa.recommender.checkpoints import CheckpointStorage, load_checkpoints, maintain_checkpoints_steps
from kscale.vpa.recommender.cluster_feeder import load_metrics_steps, load_pods_steps, load_vpas_steps
from kscale.vpa.recommender.records import ExplainSteps, RecommenderAction, RecommenderResult, RecommenderRound
from kscale.vpa.recommender.strategy_advice import StrategyAdvisor
from kscale.vpa.recommender.update_vpas import update_vpas_steps

__all__ = ["init_from_checkpoints", "init_from_checkpoints_steps", "recommender_steps", "run_once"]


@typed
def recommender_steps(
    state: RecommenderState,
    inputs: RecommenderRound,
    *,
    now: datetime | Moment,
    advisor: StrategyAdvisor | None = None,
    explain: ExplainSteps | None = None,
    storage: CheckpointStorage | None = None,
) -> StepsOf[RecommenderAction, RecommenderResult]:
    """Run one round as a step machine: it yields requests and actions, receives outcomes, and returns the decisions.

    In order: ``LoadVPAs`` (``GetScale`` of targets that are not watched), ``LoadPods`` (with ``memory_saver`` a
    ``List`` of what new VPAs select), ``LoadMetrics`` (``GetMetric``, unless ``inputs`` has usage),
    ``DeleteRemovedPods``, ``UpdateVPAs`` (a ``Patch`` of each status that changed), ``MaintainCheckpoints`` (``Patch``,
    or ``Create`` if there is none yet; ``List``, ``Get`` and ``Delete`` of orphans) and ``GarbageCollect``. Each is
    timed (``execution_latency_seconds``).

    Parameters
    ----------
    state : RecommenderState
        Changed in place. As upstream, merging for a checkpoint changes it, too.
    inputs : RecommenderRound
        Inputs of the round.
    now : datetime or Moment
        Start of the round.
    advisor : StrategyAdvisor, optional
        Queries Prometheus before ``UpdateVPAs`` (as a part of it), and replaces targets.
    explain : callable, optional
        Receives the decisions before any status is written (as a part of ``UpdateVPAs``).
    storage : CheckpointStorage, optional
        Stores checkpoints without a ``Patch`` for each. Default: all are patched.

    Returns
    -------
    Steps of RecommenderResult
        The step machine.
    """
    progress = Progress(moment(now))
    timer = ExecutionTimer(progress, "recommender")
    result = RecommenderResult(options=state.options)
    diagnostics = result.diagnostics
    if state.last_checkpoint_gc == ZERO_TIME:
        state.last_checkpoint_gc = progress.now
    new_vpas: Sequence[Vpa] = ()
    if inputs.vpas is None:
        diagnostics.append("Cannot list VPAs")
    else:
        new_vpas = yield from load_vpas_steps(state, inputs.vpas, inputs.controllers, progress)
    yield from timer.step("LoadVPAs")
    deleted_pods = yield from load_pods_steps(state, inputs.pods, new_vpas, progress, diagnostics)
    yield from progress.observe(
        *(
            build_observation("vpa_resources_get_resources_count", {"source": source}, count)
            for source, count in sorted(state.sources().items())
        )
    )
    yield from timer.step("LoadPods")
    result.errors = yield from load_metrics_steps(state, inputs.usage, inputs.ooms, progress, diagnostics)
    yield from timer.step("LoadMetrics")
    if advisor is not None:
        diagnostics += advisor.kills.notice(state, inputs.pods.changed, inputs.ooms)
    for key in deleted_pods:
        state.delete_pod(key)
    yield from timer.step("DeleteRemovedPods")
    advice = None
    if advisor is not None:
        diagnostics += yield from advisor.refresh_steps(state, progress)
        advice = advisor.advice
    result.vpas = yield from update_vpas_steps(state, progress, diagnostics, advice, explain)
    yield from timer.step("UpdateVPAs")
    yield from maintain_checkpoints_steps(state, inputs.vpas, progress, diagnostics, storage)
    yield from timer.step("MaintainCheckpoints")
    result.collected = yield from collect_garbage_steps(state, inputs.controllers, progress)
    yield from timer.step("GarbageCollect")
    yield from timer.total()
    result.steps = {name: timedelta_of(took) for name, took in timer.steps.items()}
    return result


@collector_paused()
@typed
def run_once(state: RecommenderState, inputs: RecommenderRound, *, now: datetime | Moment) -> RecommenderResult:
    """Run a round as if every action succeeded, with no other input than ``inputs``.

    There is no other usage, there are no other scales, and no checkpoints to delete. The result contains the actions
    and observations. ``state`` is changed in place.
    """
    begun = moment(now)
    done = run_dry(recommender_steps(state, inputs, now=begun), now=begun, respond=_respond_empty)
    return msgspec.structs.replace(done.value, actions=done.actions, observations=done.observations)


def _respond_empty(action: Action) -> Any:
    """Return an empty response to an action: no metrics, no objects, and scales that do not exist."""
    match action:
        case GetMetric(api="external"):
            return ExternalMetricValueList()
        case GetMetric():
            return PodUsage.of([])
        case GetScale():
            return ApiError("nothing more is known", 404, NOT_FOUND)
    return []


@typed
def init_from_checkpoints_steps(
    state: RecommenderState,
    vpas: Sequence[VerticalPodAutoscaler],
    checkpoints: Sequence[VerticalPodAutoscalerCheckpoint],
    *,
    controllers: Controllers | None = None,
    now: datetime | Moment,
) -> StepsOf[GetScale, list[str]]:
    """Load VPAs and all checkpoints of a cluster into the state, before the first round (``InitFromCheckpoints``).

    Parameters
    ----------
    state : RecommenderState
        Changed in place.
    vpas : sequence of VerticalPodAutoscaler
        All VPAs of the cluster.
    checkpoints : sequence of VerticalPodAutoscalerCheckpoint
        All checkpoints of the cluster.
    controllers : Controllers, optional
        Controllers of pods, for the selectors. Unknown scales are requested.
    now : datetime or Moment
        Start of the recommender.

    Returns
    -------
    Steps of list of str
        The step machine. It returns messages about checkpoints that could not be loaded; they are no errors.
    """
    progress = Progress(moment(now))
    state.last_checkpoint_gc = progress.now
    known = controllers if controllers is not None else Controllers()
    yield from load_vpas_steps(state, vpas, known, progress)
    if not state.vpas:  # upstream loads checkpoints of its VPAs' namespaces only
        return []
    return load_checkpoints(state, checkpoints, progress.now, strict=False)


@typed
def init_from_checkpoints(
    state: RecommenderState,
    vpas: Sequence[VerticalPodAutoscaler],
    checkpoints: Sequence[VerticalPodAutoscalerCheckpoint],
    *,
    controllers: Controllers | None = None,
    now: datetime | Moment,
) -> list[str]:
    """Load VPAs and ``checkpoints`` into the state, without requests: all scales of ``controllers`` must be known.

    Returns messages about checkpoints that could not be loaded. See :func:`init_from_checkpoints_steps` for the
    parameters.
    """
    return run_without_requests(
        init_from_checkpoints_steps(state, vpas, checkpoints, controllers=controllers, now=now)
    )[0]
