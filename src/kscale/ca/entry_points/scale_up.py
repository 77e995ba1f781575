"""``kscale.scale_up``: one loop of scale-up, from pending pods to a plan.

Upstream: ``core/static_autoscaler.go`` (RunOnce), ``core/scaleup/orchestrator/orchestrator.go``.
"""

from __future__ import annotations

from dataclasses import replace as replace_input
from datetime import datetime

from msgspec.structs import replace

from kscale.ca.cluster_state import clear_scale_up_failures, is_cluster_healthy
from kscale.ca.errors import INTERNAL_ERROR, AutoscalerError
from kscale.ca.events import build_status_events
from kscale.ca.expander.chain import build_dry_run_responder, build_expander_chain
from kscale.ca.expander.types import ExpanderInput, RankResponder
from kscale.ca.group_inputs import get_described_targets, restore_targets
from kscale.ca.legacy.scale_up import LEGACY_EXPANDERS
from kscale.ca.legacy.scale_up_loop import legacy_scale_up_loop_steps
from kscale.ca.loop_context import LoopContext, check_actionable, check_csi_nodes
from kscale.ca.node_group_set import Comparator
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_up.inputs import OrchestratorInputs, ScaleUpInputs
from kscale.ca.scale_up.orchestrator import OrchestratorAction
from kscale.ca.scale_up.plan import PodFilterResult, ScaleUpPlan
from kscale.ca.scale_up_status import SCALE_UP_NOT_TRIED
from kscale.ca.state.loop_state import LoopState, clear_unneeded_nodes
from kscale.ca.static_autoscaler.scale_up_loop import ScaleUpLoop
from kscale.effects import (
    DecreaseTargetSize,
    Delete,
    Moment,
    Observe,
    Progress,
    StepsOf,
    WriteStatus,
    moment,
    run_dry,
)
from kscale.errors import InputError
from kscale.objects.argument_types import typed
from kscale.objects.nodegroups import Groups, GroupsLike
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["ScaleUpAction", "check_scale_up_options", "scale_up", "scale_up_steps"]

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
    inputs: ScaleUpInputs | None = None,
    rank: RankResponder | None = None,
) -> ScaleUpPlan:
    """Decide one loop of scale-up as if everything succeeded: a dry run of :func:`kscale.ca.scale_up_steps`.

    Takes the arguments of that function; nothing is changed.

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
    inputs : ScaleUpInputs, optional
        Further inputs.
    rank : RankResponder, optional
        Answers for the grpc expander (:class:`kscale.drivers.GrpcExpander` queries its server). Without it that
        expander keeps every option.

    Returns
    -------
    ScaleUpPlan
        The plan; its ``groups`` have the target sizes after the plan.

    Notes
    -----
    A caller who passes the same description of groups again, with the plan's ``state``, need not add the new nodes:
    until they have come or timed out, the sizes in the state count, unless a group is described with another target
    size than before.
    """
    if not isinstance(groups, Groups):
        groups = [*groups]
    described = {} if isinstance(groups, Groups) else get_described_targets(groups)
    known = restore_targets(groups, cluster, state, moment(now))
    steps = scale_up_steps(cluster, known, now=now, options=options, state=state, inputs=inputs)
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
    inputs: ScaleUpInputs | None = None,
) -> StepsOf[ScaleUpAction, ScaleUpPlan]:
    """Run one loop of scale-up as a step machine.

    With ``profile="legacy"`` in the options the loop is that of release 1.3. It ignores what that release did not have:
    ``quotas``, ``comparator``, ``draining``, ``all_or_nothing``, salvos and minimum sizes.

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
    inputs : ScaleUpInputs, optional
        Further inputs (:class:`kscale.ca.ScaleUpInputs`).

    Returns
    -------
    ScaleUpPlan
        The plan of the loop, as the result of the generator.

    Raises
    ------
    InputError
        If upstream refuses the options at start-up.
    AutoscalerError
        If a chain of expanders cannot be built, if the size of a group cannot be read, or if a node has no CSINode and
        the options request CSI-node-aware simulation.
    """
    options = options or AutoscalingOptions()
    check_scale_up_options(options)
    now = moment(now)
    p = Progress(now)
    extra_inputs = inputs or ScaleUpInputs()
    expander_input = extra_inputs.expander_input or ExpanderInput()
    if extra_inputs.gpu_label is not None:
        expander_input = replace_input(expander_input, gpu_label=extra_inputs.gpu_label)
    before = state or LoopState()
    scene = LoopContext(
        cluster,
        groups,
        now,
        options,
        extra_inputs.profile,
        expander_input.gpu_label,
        extra_inputs.templates,
        before.templates,
    )
    if options.legacy:
        if not expander_input.cluster_node_count:
            expander_input = replace_input(expander_input, cluster_node_count=len(scene.lists.all))
        return (
            yield from legacy_scale_up_loop_steps(
                p,
                scene,
                before,
                templates=extra_inputs.templates,
                expander_input=replace_input(expander_input, now=expander_input.now or now),
                pods=extra_inputs.pods,
                rng=extra_inputs.rng,
            )
        )
    idle = check_actionable(len(scene.lists.all), len(scene.lists.ready), options, extra_inputs.process_age)
    if idle is not None:
        if idle.tell:
            yield from p.emit(*build_status_events(options, "Warning", "ClusterUnhealthy", idle.message))
        return ScaleUpPlan(
            result=SCALE_UP_NOT_TRIED,
            before=PodFilterResult(scene.snapshot, warnings=[idle.message]),
            state=clear_unneeded_nodes(before),
            groups=scene.all_groups,
        )
    loop = ScaleUpLoop(
        p,
        scene,
        replace(before, cluster=clear_scale_up_failures(before.cluster)),
        OrchestratorInputs(
            expander_input=expander_input,
            quotas=extra_inputs.quotas,
            comparator=extra_inputs.comparator or Comparator.from_options(options),
            profile=scene.profile,
            all_or_nothing=extra_inputs.all_or_nothing,
            rng=extra_inputs.rng,
        ),
    )
    yield from loop.end_old_requests()
    check_csi_nodes(scene.found)
    loop.find_templates(extra_inputs.templates)
    yield from loop.update()
    if not is_cluster_healthy(loop.state.cluster, options):
        yield from p.emit(*build_status_events(options, "Warning", "ClusterUnhealthy", "Cluster is unhealthy"))
        loop.state = clear_unneeded_nodes(loop.state)
        return loop.plan()
    yield from loop.look_at_pods(
        extra_inputs.pods, extra_inputs.draining, extra_inputs.enforcer, extra_inputs.max_looks
    )
    yield from loop.scale()
    # A loop that raises groups to their minimum size emits the events of that instead.
    if options.enforce_node_group_min_size:
        yield from loop.raise_to_minimum()
    else:
        yield from loop.emit_untried_events()
    return loop.plan()


def check_scale_up_options(options: AutoscalingOptions) -> None:
    """Validate the options as :func:`scale_up_steps` does.

    Raises InputError for invalid options, AutoscalerError for an unknown expander.
    """
    problems = options.problems()
    if problems:
        raise InputError(problems)
    names = [options.expander] if options.legacy else options.expander_names
    build_expander_chain(names)
    if options.legacy and names[0] not in LEGACY_EXPANDERS:
        raise AutoscalerError(INTERNAL_ERROR, f"Expander {names[0]} not supported")
