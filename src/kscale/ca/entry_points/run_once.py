"""``kscale.run_once``: entry points of one whole loop of the Cluster Autoscaler.

The order of its parts is in ``loop.py``.

Upstream: ``core/static_autoscaler.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as replace_input
from datetime import datetime
from typing import Any

import numpy as np
from msgspec.structs import replace

from kscale.ca.cluster_state import clear_scale_up_failures
from kscale.ca.entry_points.scale_up import check_scale_up_options
from kscale.ca.expander.chain import build_dry_run_responder
from kscale.ca.expander.types import ExpanderInput, PriceResponder, RankResponder
from kscale.ca.group_inputs import get_described_targets, restore_targets, save_targets
from kscale.ca.legacy.metrics import rewrite_observations_steps
from kscale.ca.legacy.run_once import LegacyAutoscalerLoop, LegacyLoopAction
from kscale.ca.legacy.scale_up_loop import LegacyScaleUpLoop
from kscale.ca.loop_context import coerce_loop_snapshot
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.actuation.actuator import sync_deletions
from kscale.ca.state.loop_state import LoopState
from kscale.ca.static_autoscaler.loop import AutoscalerLoop, LoopAction, build_actuator
from kscale.ca.static_autoscaler.report import LoopInputs, LoopReport
from kscale.effects import Action, ApiError, Get, HasInstances, List, Moment, Respond, StepsOf, moment, run_dry
from kscale.effects.outcomes import NOT_FOUND
from kscale.objects.argument_types import typed
from kscale.objects.nodegroups import Groups, GroupsLike
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["RunOnceAction", "build_snapshot_responder", "run_once", "run_once_steps"]

RunOnceAction = LoopAction | LegacyLoopAction
"""Actions of a whole loop, by today's rules or those of release 1.3."""


def build_snapshot_responder(snapshot: Snapshot, has_instance: Mapping[str, bool], others: Respond) -> Respond:
    """Build a responder from a snapshot: its nodes and pods, no ConfigMap, evicted pods removed at once."""

    def answer(action: Action) -> Any:
        match action:
            case HasInstances(nodes=names):
                return {name: has_instance[name] for name in names if name in has_instance}
            case Get(kind="Node", name=name) if name in snapshot.columns.index:
                return snapshot.columns.objects[snapshot.columns.index[name]]
            case Get(kind=kind, name=name):
                return ApiError(f'{kind.lower()} "{name}" not found', code=404, reason=NOT_FOUND)
            case List(kind="Pod", nodes=nodes) if nodes is not None:
                wanted = [snapshot.columns.index[name] for name in nodes if name in snapshot.columns.index]
                where = np.flatnonzero(np.isin(snapshot.placed_node, wanted)).tolist()
                return [snapshot.placed[at].pod for at in where]
            case List(kind="PodDisruptionBudget"):
                return snapshot.informers.budgets
            case List(kind=kind):
                return [each for each in snapshot.informers.workloads if type(each).__name__ == kind]
        return others(action)

    return answer


@typed
def run_once(
    cluster: Cluster | Snapshot,
    groups: GroupsLike,
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    state: LoopState | None = None,
    inputs: LoopInputs | None = None,
    has_instance: Mapping[str, bool] | None = None,
    rank: RankResponder | None = None,
    prices: PriceResponder | None = None,
) -> LoopReport:
    """Run one loop as if everything succeeded: a dry run of :func:`run_once_steps`. The inputs are not changed.

    Deletions run to their end, and evicted pods are removed at once: the report has the state after that.

    Parameters
    ----------
    cluster : Cluster or Snapshot
        The observed cluster.
    groups : Groups or iterable of NodeGroup or dict
        As the cloud provider or a file describes them, or as the previous loop left them (``report.groups``). Target
        sizes that the loop of ``state`` requested count until the nodes have registered, unless a group is described
        with another size than before.
    now : datetime or Moment
        Start of the loop.
    options : AutoscalingOptions, optional
        Default: upstream's defaults.
    state : LoopState, optional
        State of the previous loop.
    inputs : LoopInputs, optional
        Further inputs.
    has_instance : mapping of str to bool, optional
        Whether the cloud provider reports an instance, by node name. A missing node is unknown.
    rank : callable, optional
        Responder for the ``grpc`` expander.
    prices : callable, optional
        Responder for a provider with prices.

    Returns
    -------
    LoopReport
        Decisions, actions, events and the state for the next loop.
    """
    now = moment(now)
    loop_inputs, options = inputs or LoopInputs(), options or AutoscalingOptions()
    snapshot = coerce_loop_snapshot(cluster, options, now)
    if not isinstance(groups, Groups):
        groups = [*groups]
    described = {} if isinstance(groups, Groups) else get_described_targets(groups)
    groups = restore_targets(groups, snapshot, state, now)
    actuator = loop_inputs.actuator or build_actuator(state or LoopState(), snapshot, options, loop_inputs)
    loop_inputs = replace(loop_inputs, actuator=actuator)
    steps = run_once_steps(snapshot, groups, now=now, options=options, state=state, inputs=loop_inputs)
    respond = build_snapshot_responder(
        snapshot, has_instance or {}, build_dry_run_responder(loop_inputs.expander_input, rank, prices)
    )
    done = run_dry(steps, now=now, respond=respond)
    report = done.value
    report.state = save_targets(sync_deletions(report.state, actuator.tracker), described, report.groups)
    report.actions, report.events, report.observations = done.actions, done.events, done.observations
    return report


@typed
def run_once_steps(
    cluster: Cluster | Snapshot,
    groups: GroupsLike,
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    state: LoopState | None = None,
    inputs: LoopInputs | None = None,
) -> StepsOf[RunOnceAction, LoopReport]:
    """Run one loop as a step machine.

    Parameters
    ----------
    cluster : Cluster or Snapshot
        The observed cluster.
    groups : Groups or iterable of NodeGroup or dict
        As the previous loop left them (``report.groups``), or as the provider reports them. The loop queries the
        provider again (:class:`~kscale.effects.Refresh`), which may answer that they are unchanged.
    now : datetime or Moment
        Start of the loop.
    options : AutoscalingOptions, optional
        Default: upstream's defaults.
    state : LoopState, optional
        State of the previous loop. A process that continues with the saved state of another starts with
        :func:`kscale.ca.reset_for_new_process`.
    inputs : LoopInputs, optional
        Further inputs.

    Returns
    -------
    Steps of LoopReport
        The step machine. Errors within the loop are in the report, including a pod that turns out to be malformed when
        the loop decodes it (``image: 5``).

    Raises
    ------
    InputError
        For options that upstream rejects at start-up, and for impossible groups.
    AutoscalerError
        For an invalid chain of expanders (:class:`kscale.ca.AutoscalerError`).
    """
    options = options or AutoscalingOptions()
    check_scale_up_options(options)
    loop = AutoscalerLoop(cluster, groups, moment(now), options, state or LoopState(), inputs or LoopInputs())
    if options.legacy:
        report: LoopReport = yield from rewrite_observations_steps(_build_legacy_loop(loop).run())
        return report
    return (yield from loop.run())


def _build_legacy_loop(loop: AutoscalerLoop) -> LegacyAutoscalerLoop:
    """Build the loop of release 1.3 with the same inputs."""
    expander_input = loop.up.inputs.expander_input or ExpanderInput()
    if not expander_input.cluster_node_count:
        expander_input = replace_input(expander_input, cluster_node_count=len(loop.scene.lists.all))
    expander_input = replace_input(expander_input, now=expander_input.now or loop.now)
    up = LegacyScaleUpLoop(
        loop.p,
        loop.scene,
        replace(loop.state, cluster=clear_scale_up_failures(loop.state.cluster)),
        expander_input,
        loop.inputs.rng,
    )
    return LegacyAutoscalerLoop(loop.p, loop.scene, up, loop.actuator, loop.inputs)
