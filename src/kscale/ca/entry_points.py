"""Entry points: one loop, one scale-up or one scale-down, by today's rules or those of release 1.3.

Upstream: ``core/static_autoscaler.go``, ``core/scaleup/orchestrator``, ``core/scaledown/planner``; of release 1.3
``core/static_autoscaler.go``, ``core/scale_down.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from msgspec.structs import replace

from kscale.ca.capacity_buffers import place_buffer_pods
from kscale.ca.cluster_state import clear_scale_up_failures
from kscale.ca.errors import INTERNAL_ERROR, AutoscalerError
from kscale.ca.events import build_status_events
from kscale.ca.expander.chain import build_dry_run_responder, build_expander_chain
from kscale.ca.expander.types import PriceResponder, RankResponder
from kscale.ca.group_inputs import get_described_targets, restore_targets, save_targets
from kscale.ca.loop_context import LoopContext, LoopInputs, check_actionable, check_csi_nodes, coerce_loop_snapshot
from kscale.ca.loop_state import LoopState
from kscale.ca.options import AutoscalingOptions, default_options
from kscale.ca.pod_lists import can_scale_down
from kscale.ca.scale_down.actuation.actuator import sync_deletions
from kscale.ca.scale_down.inputs import ScaleDownContext, ScaleDownInputs
from kscale.ca.scale_down.plan import ScaleDownPlan, build_not_tried_plan
from kscale.ca.scale_down.planner import plan_scale_down
from kscale.ca.scale_up.orchestrator import OrchestratorAction
from kscale.ca.scale_up.plan import PodFilterResult, ScaleUpPlan
from kscale.ca.scale_up_status import SCALE_UP_NOT_TRIED
from kscale.ca.static_autoscaler.loop import AutoscalerLoop, LoopAction, build_actuator
from kscale.ca.static_autoscaler.report import LoopReport
from kscale.ca.static_autoscaler.scale_up_loop import ScaleUpLoop
from kscale.effects import (
    Action,
    ApiError,
    DecreaseTargetSize,
    Delete,
    Get,
    HasInstances,
    List,
    Moment,
    Observe,
    Respond,
    StepsOf,
    WriteStatus,
    moment,
    run_dry,
)
from kscale.effects.actions import NOT_FOUND
from kscale.errors import InputError, Problem
from kscale.objects.argument_types import typed, unchecked
from kscale.objects.nodegroup import GroupsLike
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from kscale.ca.legacy.run_once import LegacyLoopAction

__all__ = [
    "RunOnceAction",
    "ScaleUpAction",
    "build_snapshot_responder",
    "check_scale_up_options",
    "run_once",
    "run_once_steps",
    "scale_down",
    "scale_up",
    "scale_up_steps",
]


ScaleUpAction = OrchestratorAction | DecreaseTargetSize | WriteStatus | Delete | Observe
"""Actions of a scale-up loop. It lowers the targets of requests that timed out first."""


@typed
def scale_up(
    cluster: Cluster | Snapshot,
    groups: GroupsLike,
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    state: LoopState | None = None,
    inputs: LoopInputs | None = None,
    rank: RankResponder | None = None,
) -> ScaleUpPlan:
    """Decide one loop of scale-up as if everything succeeded: a dry run of :func:`kscale.ca.scale_up_steps`.

    The inputs are not changed, except ``rng`` of ``inputs``.

    Parameters
    ----------
    cluster : Cluster or Snapshot
        Cluster state.
    groups : Groups or iterable
        Node groups that exist, and those that could be created (``exists`` False).
    now : datetime or Moment
        Time of the loop.
    options : AutoscalingOptions, optional
        Flags of the cluster autoscaler.
    state : LoopState, optional
        State of the previous loop.
    inputs : LoopInputs, optional
        Further inputs (:class:`kscale.ca.LoopInputs`).
    rank : RankResponder, optional
        Answers for the grpc expander (:class:`kscale.drivers.GrpcExpander` queries its server). Without it that
        expander keeps every option.

    Returns
    -------
    ScaleUpPlan
        The plan; its ``groups`` have the target sizes after the plan.

    Raises
    ------
    InputError, AutoscalerError
        As :func:`scale_up_steps`; InputError also if ``inputs`` requests prices of a cloud provider.

    Notes
    -----
    The same ``groups`` may be passed to the next loop with the plan's ``state``: until the new nodes have registered or
    timed out, the target sizes in the state replace smaller ones of ``groups``. A group whose described target size has
    changed since then keeps the described size.
    """
    groups, described = get_described_targets(groups)
    current = restore_targets(groups, cluster, state, moment(now))
    steps = _scale_up_steps(cluster, current, now=now, options=options, state=state, inputs=inputs)
    expander_input = inputs.expander_input if inputs is not None else None
    done = run_dry(steps, now=moment(now), respond=build_dry_run_responder(expander_input, rank))
    return done.value.with_events(done.events).remembering(described)


@typed
def scale_up_steps(
    cluster: Cluster | Snapshot,
    groups: GroupsLike,
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    state: LoopState | None = None,
    inputs: LoopInputs | None = None,
) -> StepsOf[ScaleUpAction, ScaleUpPlan]:
    """Run one loop of scale-up as a step machine.

    With ``profile="legacy"`` in the options the loop is that of release 1.3. It ignores what that release did not have:
    ``quotas``, ``comparator``, ``draining``, ``all_or_nothing``, salvos and minimum sizes.

    Takes the arguments of :func:`scale_up` except ``rank``, which answers an action.

    Returns
    -------
    ScaleUpPlan
        The plan of the loop, as the result of the generator.

    Raises
    ------
    InputError
        If upstream refuses the options at start-up, and for impossible groups.
    AutoscalerError
        If a chain of expanders cannot be built, if the size of a group cannot be read, or if a node has no CSINode and
        the options request CSI-node-aware simulation.
    """
    options = options or default_options()
    check_scale_up_options(options)
    context = LoopContext(cluster, groups, moment(now), options, state, inputs)
    if options.legacy:
        from kscale.ca.legacy.scale_up_loop import legacy_scale_up_loop_steps

        return (yield from legacy_scale_up_loop_steps(context))
    p, lists = context.p, context.lists
    idle = check_actionable(len(lists.all), len(lists.ready), options, context.inputs.process_age)
    if idle is not None:
        if idle.has_event:
            yield from p.emit(*build_status_events(options, "Warning", "ClusterUnhealthy", idle.message))
        context.clear_unneeded_nodes()
        return ScaleUpPlan(
            result=SCALE_UP_NOT_TRIED,
            before=PodFilterResult(context.snapshot, warnings=[idle.message]),
            state=context.state,
            groups=context.all_groups,
        )
    context.update_state(cluster=clear_scale_up_failures(context.state.cluster))
    loop = ScaleUpLoop(context)
    yield from loop.end_old_requests()
    check_csi_nodes(context.observed)
    loop.build_templates()
    yield from loop.update()
    if not (yield from context.is_cluster_healthy()):
        return loop.plan()
    yield from loop.filter_pods()
    yield from loop.scale()
    # A loop that raises groups to their minimum size emits the events of that instead.
    if options.enforce_node_group_min_size:
        yield from loop.raise_to_minimum()
    else:
        yield from loop.emit_untried_events()
    return loop.plan()


_scale_up_steps = unchecked(scale_up_steps)
_VALID: Final = "scale_up_options_are_valid"


def check_scale_up_options(options: AutoscalingOptions) -> None:
    """Validate the options as :func:`scale_up_steps` does; an object that was valid once is not validated again.

    Raises InputError for invalid options, AutoscalerError for an invalid chain of expanders.
    """
    if _VALID in options.__dict__:
        return
    _check_scale_up_options(options)
    options.__dict__[_VALID] = True


def _check_scale_up_options(options: AutoscalingOptions) -> None:
    """Raise InputError for invalid options, AutoscalerError for an invalid chain of expanders."""
    problems = options.problems()
    if problems:
        raise InputError(problems)
    _check_expander(options)


def find_option_problems(options: AutoscalingOptions) -> list[Problem]:
    """Return why the Cluster Autoscaler does not start with the options; empty if it starts.

    These are the problems of the options (:meth:`~kscale.ca.AutoscalingOptions.problems`) and of the expanders.
    """
    problems = options.problems()
    if not problems:
        try:
            _check_expander(options)
        except AutoscalerError as error:
            release = " (profile legacy: release 1.3)" if options.legacy else ""
            problems.append(Problem(f"{error.message}{release}", field="expander"))
    return problems


def _check_expander(options: AutoscalingOptions) -> None:
    """Raise AutoscalerError for an invalid chain of expanders, or an expander that release 1.3 does not have."""
    names = [options.expander] if options.legacy else options.expander_names
    build_expander_chain(names)
    if not options.legacy:
        return
    from kscale.ca.legacy.scale_up import LEGACY_EXPANDERS

    if names[0] not in LEGACY_EXPANDERS:
        raise AutoscalerError(INTERNAL_ERROR, f"Expander {names[0]} not supported")


@typed
def scale_down(
    cluster: Cluster | Snapshot,
    groups: GroupsLike,
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    state: LoopState | None = None,
    inputs: ScaleDownInputs | None = None,
    exhaustive: bool = False,
) -> ScaleDownPlan:
    """Plan one loop of scale-down. Nothing is deleted: the caller executes the plan, and reports the result to the next
    loop.

    A loop that may not scale down at all (``scale_down_enabled``, graceful degradation) evaluates nothing. With the
    ``legacy`` profile in the options the planner of release 1.3 decides (:mod:`kscale.ca.legacy.scale_down`).

    Parameters
    ----------
    cluster : Cluster or Snapshot
        The observed cluster.
    groups : Groups or iterable of NodeGroup or dict
        The node groups.
    now : datetime or Moment
        Time of the loop.
    options : AutoscalingOptions, optional
        Default: upstream's defaults.
    state : LoopState, optional
        State of the previous loop.
    inputs : ScaleDownInputs, optional
        Further inputs, mainly the deletions in progress (:class:`kscale.ca.ScaleDownInputs`).
    exhaustive : bool
        Find the nodes that could be removed together if all of them were evaluated, none had to wait, and only
        minimum sizes and resources limited their number. This is not upstream's loop and outside exact mode. Candidates
        that failed are evaluated again until no more can be removed, with moved pods at their new places; another order
        of candidates may give another set. A node that must stay because of a minimum, its group, or pods that must
        finish first is left out, and the others are evaluated without it. ``plan.alone`` evaluates, when it is first
        read, every eligible node as if no other was removed. The state is returned unchanged.

    Returns
    -------
    ScaleDownPlan
        The nodes to delete, the reasons of the others, and the next state.

    Raises
    ------
    InputError
        For a disruption budget with an invalid selector, for a ``now`` that is no time or is before the last loop's,
        and for what the legacy profile does not support: ``exhaustive``, ``recent_evictions``, ``upcoming``,
        ``max_simulations``, ``threads`` and capacity buffers.
    AutoscalerError
        For a node without CSINode if the options enable CSI-node-aware simulation (:class:`kscale.ca.AutoscalerError`).
    """
    options = options or default_options()
    before, inputs = state or LoopState(), inputs or ScaleDownInputs()
    at = moment(now)
    snapshot = coerce_loop_snapshot(cluster, options, at)
    if options.legacy:
        from kscale.ca.legacy.scale_down import reject_unsupported_inputs

        reject_unsupported_inputs(inputs, options, exhaustive=exhaustive)
    else:
        check_csi_nodes(snapshot)
        if options.capacity_buffer_pod_injection_enabled and not inputs.pods_placed:
            snapshot = place_buffer_pods(snapshot, now=at, options=options, profile=inputs.profile)
    if not exhaustive and not can_scale_down(before.scale_up.degraded_loops, options):
        return build_not_tried_plan(before)
    context = ScaleDownContext(snapshot, restore_targets(groups, snapshot, state, at), at, options, before, inputs)
    if not options.legacy:
        return plan_scale_down(context, exhaustive=exhaustive)
    from kscale.ca.legacy.scale_down import plan_legacy_scale_down

    return plan_legacy_scale_down(context)


RunOnceAction: TypeAlias = "LoopAction | LegacyLoopAction"
"""Actions of a whole loop, by today's rules or those of release 1.3."""


def build_snapshot_responder(snapshot: Snapshot, has_instance: Mapping[str, bool], others: Respond) -> Respond:
    """Build a function that responds to actions as a cluster in the state of the snapshot would.

    Nodes, pods by node, disruption budgets and controllers are those of the snapshot. Every other single object is not
    found: evicted pods are gone at once, and there are no ConfigMaps. A list of another kind, or of pods without nodes,
    is empty; the namespace and the selector of a list are ignored. ``has_instance`` responds for the provider, by node
    name; ``others`` responds to all other actions.
    """

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
    """Run one loop as if everything succeeded: a dry run of :func:`run_once_steps`.

    The inputs are not changed, except ``actuator`` and ``rng`` of ``inputs``. Deletions run to their end, and evicted
    pods are removed at once: the report has the state after that.

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
        Further inputs (:class:`kscale.ca.LoopInputs`).
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

    Raises
    ------
    InputError, AutoscalerError
        As :func:`run_once_steps`; InputError also if ``inputs`` requests prices and there is no ``prices``.
    """
    now = moment(now)
    options = options or default_options()
    check_scale_up_options(options)
    snapshot = coerce_loop_snapshot(cluster, options, now)
    groups, described = get_described_targets(groups)
    context = LoopContext(snapshot, restore_targets(groups, snapshot, state, now), now, options, state, inputs)
    actuator = context.inputs.actuator or build_actuator(context)
    context.inputs = replace(context.inputs, actuator=actuator)
    responder = build_dry_run_responder(context.inputs.expander_input, rank, prices)
    respond = build_snapshot_responder(snapshot, has_instance or {}, responder)
    done = run_dry(_run_once_in(context), now=now, respond=respond)
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

    Takes the arguments of :func:`run_once` except ``has_instance``, ``rank`` and ``prices``, which answer actions. The
    loop queries the provider for the groups again (:class:`~kscale.effects.Refresh`); the provider may answer that they
    are unchanged. A process that continues with the saved state of another starts with
    :func:`kscale.ca.reset_for_new_process`.

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
    options = options or default_options()
    check_scale_up_options(options)
    return (yield from _run_once_in(LoopContext(cluster, groups, moment(now), options, state, inputs)))


def _run_once_in(context: LoopContext) -> StepsOf[RunOnceAction, LoopReport]:
    """Return the steps of one loop: those of release 1.3 with the ``legacy`` profile, otherwise the current ones."""
    if context.options.legacy:
        from kscale.ca.legacy.metrics import rewrite_observations_steps
        from kscale.ca.legacy.run_once import LegacyAutoscalerLoop

        return rewrite_observations_steps(LegacyAutoscalerLoop(context).run())
    return AutoscalerLoop(context).run()
