"""One loop of release 1.3, with its deletion of nodes and its status text (``core/static_autoscaler.go``).

Differences from the current loop:

- Removed instances, or a refusal to remove them, end the loop.
- Long unregistered instances make a cluster unhealthy.
- The cloud provider is not asked whether instances exist, and failed instances are not looked for.
- A scale-up ends the loop, and its error is the error of the loop.
- Upcoming nodes are not simulated.
- The loop waits until empty nodes are deleted, and no other node is deleted during a drain.
- There are no soft taints and no minimum sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from kscale.ca.cluster_state import (
    ClusterAutoscalerStatus,
    ClusterStateRegistry,
    build_cluster_status,
    clear_scale_up_failures,
    update_scale_down_candidates,
)
from kscale.ca.cluster_state.state import GroupReadiness, StatusCondition
from kscale.ca.errors import API_CALL_ERROR, CLOUD_PROVIDER_ERROR, INTERNAL_ERROR, AutoscalerError
from kscale.ca.events import build_node_event, build_status_events
from kscale.ca.legacy.metrics import get_legacy_gpu_name
from kscale.ca.legacy.scale_down import plan_legacy_scale_down, reject_unsupported_inputs
from kscale.ca.legacy.scale_up_loop import LegacyScaleUpAction, LegacyScaleUpLoop
from kscale.ca.loop_context import LoopContext, check_actionable
from kscale.ca.metrics import METRIC_PREFIX, FunctionTimer, build_last_activity_observation, build_observation
from kscale.ca.nodes import TO_BE_DELETED_TAINT, get_ready_and_suspended, has_taint, is_ready
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists import can_scale_down
from kscale.ca.repair import Repair, RepairAction, fix_node_group_size_steps
from kscale.ca.scale_down.actuation.actuator import sync_deletions
from kscale.ca.scale_down.actuation.deletion_tracker import (
    NODE_DELETE_ERROR_FAILED_TO_DELETE,
    NODE_DELETE_OK,
    NodeDeleteResult,
    NodeDeletionTracker,
    StartedDeletion,
)
from kscale.ca.scale_down.actuation.drain import DrainAction, Evictor
from kscale.ca.scale_down.actuation.tainting import TaintAction, clean_to_be_deleted, mark_to_be_deleted
from kscale.ca.scale_down.inputs import ScaleDownContext, ScaleDownInputs
from kscale.ca.scale_down.plan import ScaleDownPlan, build_not_tried_plan
from kscale.ca.scale_up_status import SCALE_UP_SUCCESSFUL
from kscale.ca.static_autoscaler import report
from kscale.ca.static_autoscaler.loop import (
    adopt_refreshed_groups,
    build_actuator,
    end_after_repair,
    remove_unneeded_groups,
    run_phases,
)
from kscale.ca.static_autoscaler.report import LoopEndedError, LoopReport
from kscale.ca.status_config_map import StatusConfigMapAction, format_go_time, write_status_config_map
from kscale.effects import (
    DeleteGroup,
    DeleteNodes,
    Emit,
    InBackground,
    Moment,
    Observation,
    Observe,
    Progress,
    Refresh,
    StepsOf,
    Together,
    Wait,
    duration,
    from_text,
    later,
)
from kscale.objects.api.core import Node, Pod
from kscale.objects.go_numbers import format_shortest
from kscale.objects.nodegroup import Groups, NodeTemplate, ProviderError

__all__ = [
    "LegacyAutoscalerLoop",
    "LegacyDeletionAction",
    "LegacyLoopAction",
    "clean_ready_nodes_taints",
    "delete_empty_nodes",
    "format_legacy_status",
    "format_legacy_status_message",
    "remove_legacy_unregistered_steps",
    "start_node_drain",
]


_NEVER_TEXT: Final = "0001-01-01 00:00:00 +0000 UTC"


def format_legacy_status_message(message: str, now: Moment) -> str:
    """Format a message or a status, with the current time before it, as release 1.3 writes it to its ConfigMap."""
    return f"Cluster-autoscaler status at {format_go_time(now)}:\n{message}"


def format_legacy_status(status: ClusterAutoscalerStatus, state: ClusterStateRegistry) -> str:
    """Format the status after a loop as text.

    ``state`` has the counts behind the status, which release 1.3 words differently. Go appends the process's monotonic
    clock to each time (``m=+...``); that is left out.
    """
    total, cluster_wide = state.total, status.cluster_wide
    candidates = sum(map(len, state.candidates.values()))
    lines = [
        "Cluster-wide:",
        *_format_condition("Health", cluster_wide.health, _format_counts(total)),
        *_format_condition(
            "ScaleUp", cluster_wide.scale_up, f"ready={len(total.ready)} registered={len(total.registered)}"
        ),
        *_format_condition("ScaleDown", cluster_wide.scale_down, f"candidates={candidates}"),
    ]
    groups = [] if status.node_groups is UNSET else status.node_groups
    if groups:
        lines += ["", "NodeGroups:"]
    for group in groups:
        name, health = str(group.name), group.health
        known = state.readiness.get(name, GroupReadiness())
        target = f"cloudProviderTarget={health.cloud_provider_target}"
        sizes = f"{target} (minSize={health.min_size}, maxSize={health.max_size})"
        lines += [
            f"  Name:        {name}",
            *_format_condition("Health", health, f"{_format_counts(known)} {sizes}"),
            *_format_condition("ScaleUp", group.scale_up, f"ready={len(known.ready)} {target}"),
            *_format_condition("ScaleDown", group.scale_down, f"candidates={len(state.candidates.get(name, ()))}"),
            "",
        ]
    return "".join(f"{line}\n" for line in lines)


def _format_condition(kind: str, condition: StatusCondition, message: str) -> Sequence[str]:
    """Format a condition of the status as three lines. ``kind`` is its title, ``message`` its text in brackets."""
    return (
        f"  {kind + ':':<12} {condition.status} ({message})",
        f"  {'':13}LastProbeTime:      {_format_time(condition.last_probe_time)}",
        f"  {'':13}LastTransitionTime: {_format_time(condition.last_transition_time)}",
    )


def _format_counts(known: GroupReadiness) -> str:
    """Format the numbers of nodes in the readiness lists ``known``, as release 1.3 does."""
    late = len(known.long_not_started)
    return (
        f"ready={len(known.ready)} unready={len(known.unready) - late} notStarted={len(known.not_started)} "
        f"longNotStarted={late} registered={len(known.registered)} longUnregistered={len(known.long_unregistered)}"
    )


def _format_time(text: str | None) -> str:
    """Format an RFC 3339 time as Go prints it; None as ``_NEVER_TEXT``."""
    return _NEVER_TEXT if text is None else format_go_time(from_text(text))


def remove_legacy_unregistered_steps(
    p: Progress,
    state: ClusterStateRegistry,
    groups: Groups,
    repair: Repair,
    *,
    now: Moment,
    options: AutoscalingOptions,
) -> StepsOf[DeleteNodes | Emit, AutoscalerError | None]:
    """Remove long unregistered instances one by one, the oldest first, as long as their group is above its minimum.

    Adds the removed instances and the warnings to ``repair``. Stops at the first deletion that the provider refuses and
    returns its error; None without error.
    """
    provision = duration(options.max_node_provision_time)
    oldest_first = sorted(state.unregistered.items(), key=lambda item: (item[1].since, item[0]))
    for name, machine in oldest_first:
        if later(machine.since, provision) >= now or machine.group not in groups:
            continue
        group = groups[machine.group]
        if name in group.gone_instances:
            continue
        removed = repair.removed.get(group.id, [])
        if group.target_size_error is not None:
            repair.warnings.append(f"Failed to get node group size, err: {group.target_size_error}")
            continue
        if group.min_size >= group.size - len(removed):
            repair.warnings.append(
                f"Failed to remove node {name}: node group min size reached, skipping unregistered node removal"
            )
            continue
        text = f"Removing unregistered node {name}"
        yield from p.emit(*build_status_events(options, "Normal", "DeleteUnregistered", text))
        refusal = (yield from p.act(DeleteNodes(group=group.id, nodes=(name,)))).error
        if refusal is not None:
            return AutoscalerError(CLOUD_PROVIDER_ERROR, refusal.message)
        repair.removed[group.id] = [*removed, name]
    return None


LegacyDeletionAction = DrainAction | TaintAction | DeleteNodes | Emit | Observe | Together | InBackground
"""Actions that delete nodes."""


def clean_ready_nodes_taints(p: Progress, nodes: Iterable[Node]) -> StepsOf[TaintAction | Emit, None]:
    """Remove the deletion taints of an earlier process from nodes that are ready and not cordoned, and emit events.

    The first loop of a process does this, for nodes of any group.
    """
    for node in nodes:
        if not get_ready_and_suspended(node)[0] or node.spec.unschedulable or not has_taint(node, TO_BE_DELETED_TAINT):
            continue
        error, changed = yield from clean_to_be_deleted(p, node, uncordon=False)
        if error is not None:
            text = f"failed to clean toBeDeletedTaint: {error.message}"
            yield from p.emit(build_node_event(node, "Warning", "ClusterAutoscalerCleanup", text))
        elif changed:
            yield from p.emit(
                build_node_event(node, "Normal", "ClusterAutoscalerCleanup", "marking the node as schedulable")
            )


def delete_empty_nodes(
    p: Progress,
    nodes: Sequence[Node],
    groups: Groups,
    options: AutoscalingOptions,
    tracker: NodeDeletionTracker,
    templates: Mapping[str, NodeTemplate],
) -> StepsOf[LegacyDeletionAction, AutoscalerError | None]:
    """Delete nodes in parallel and wait for all of them; return the last error, None if there was none.

    ``templates`` are those of the groups, by id, for the GPU label in metrics.
    """
    for node in nodes:
        text = f"Scale-down: removing empty node {node.name}"
        yield from p.emit(*build_status_events(options, "Normal", "ScaleDownEmpty", text))
    errors: list[AutoscalerError | None] = yield from p.together(
        [partial(_delete_empty_node, node, groups, tracker, templates) for node in nodes]
    )
    failed = [error for error in errors if error is not None]
    return failed[-1].with_prefix("failed to delete at least one empty node: ") if failed else None


def _delete_empty_node(
    node: Node, groups: Groups, tracker: NodeDeletionTracker, templates: Mapping[str, NodeTemplate], now: Moment
) -> StepsOf[LegacyDeletionAction, AutoscalerError | None]:
    """Taint and delete an empty node; remove the taint if the deletion fails. Returns the error, or None.

    A success is registered in ``tracker``.
    """
    p = Progress(now)
    marked = yield from _mark_legacy_to_be_deleted(p, node)
    if marked is not None:
        return marked
    error = yield from _delete_from_cloud(p, node, groups, tracker)
    if error is not None:
        yield from clean_to_be_deleted(p, node, uncordon=False)
        text = f"failed to delete empty node: {error.message}"
        yield from p.emit(build_node_event(node, "Warning", "ScaleDownFailed", text))
        return error
    yield from _observe_removed_node(p, node, groups, templates, "empty")
    return None


def _observe_removed_node(
    p: Progress, node: Node, groups: Groups, templates: Mapping[str, NodeTemplate], reason: str
) -> StepsOf[Observe, None]:
    """Observe the metrics of a removed node (``RegisterScaleDown``).

    ``reason``: the value of the label ``reason`` for a ready node; for another node the value is ``unready``.
    """
    labels = {"reason": reason if is_ready(node) else "unready"}
    gpu = get_legacy_gpu_name(node, templates.get(groups.id_of_node(node.name) or ""))
    yield from p.observe(Observation(name=f"{METRIC_PREFIX}scaled_down_nodes_total", labels=labels))
    if gpu:
        yield from p.observe(
            Observation(name=f"{METRIC_PREFIX}scaled_down_gpu_nodes_total", labels={**labels, "gpu_name": gpu})
        )


def start_node_drain(
    p: Progress,
    node: Node,
    pods: Sequence[Pod],
    groups: Groups,
    options: AutoscalingOptions,
    tracker: NodeDeletionTracker,
    templates: Mapping[str, NodeTemplate],
    utilization: float,
) -> StepsOf[LegacyDeletionAction, None]:
    """Start to drain and delete a node in the background.

    ``pods``: the pods to evict; ``utilization`` is for the event. The deletion is registered in ``tracker``. No other
    node is deleted until it has ended.
    """
    names = ",".join(pod.key for pod in pods)
    share = format_shortest(utilization)
    text = f"Scale-down: removing node {node.name}, utilization: {share}, pods to reschedule: {names}"
    yield from p.emit(*build_status_events(options, "Normal", "ScaleDown", text))
    group = groups.id_of_node(node.name) or ""
    tracker.start_deletion(group, node.name, drain=True)
    yield from p.act(InBackground(partial(_drain_and_delete, node, group, pods, groups, options, tracker, templates)))


def _drain_and_delete(
    node: Node,
    group: str,
    pods: Sequence[Pod],
    groups: Groups,
    options: AutoscalingOptions,
    tracker: NodeDeletionTracker,
    templates: Mapping[str, NodeTemplate],
    now: Moment,
) -> StepsOf[LegacyDeletionAction, None]:
    """Taint and drain a node, delete it, and record the end and the result of the deletion in ``tracker``.

    If the drain or the deletion fails, the taint is removed. Errors become events and the result in ``tracker``.
    """
    p = Progress(now)
    error = yield from _mark_legacy_to_be_deleted(p, node)
    if error is None:
        yield from p.emit(build_node_event(node, "Normal", "ScaleDown", "marked the node as toBeDeleted/unschedulable"))
        evictor = Evictor(replace(options, drain_priority_config=""), tracker.register_eviction)
        error = (yield from evictor.evict(p, node.name, pods, [])).error
        text = "failed to drain the node, aborting ScaleDown"
        if error is None:
            error = yield from _delete_from_cloud(p, node, groups, tracker)
            text = "failed to delete the node"
        if error is not None:
            yield from clean_to_be_deleted(p, node, uncordon=False)
            yield from p.emit(build_node_event(node, "Warning", "ScaleDownFailed", text))
    result = NodeDeleteResult(result=NODE_DELETE_OK)
    if error is None:
        yield from _observe_removed_node(p, node, groups, templates, "underutilized")
    else:
        result = NodeDeleteResult(result=NODE_DELETE_ERROR_FAILED_TO_DELETE, error=error.record)
    tracker.end_deletion(group, node.name, result, p.now)


def _mark_legacy_to_be_deleted(p: Progress, node: Node) -> StepsOf[TaintAction | Emit, AutoscalerError | None]:
    """Add the deletion taint without cordoning the node, as release 1.3 does.

    Returns the error, which is also emitted as an event; None on success.
    """
    refusal = yield from mark_to_be_deleted(p, node, cordon=False)
    if refusal is None:
        return None
    text = f"failed to mark the node as toBeDeleted/unschedulable: {refusal.message}"
    yield from p.emit(build_node_event(node, "Warning", "ScaleDownFailed", text))
    return AutoscalerError(API_CALL_ERROR, refusal.message)


def _delete_from_cloud(
    p: Progress, node: Node, groups: Groups, tracker: NodeDeletionTracker
) -> StepsOf[DeleteNodes | Emit, AutoscalerError | None]:
    """Delete the instance of a node. Returns the error, or None; a success is registered in ``tracker``."""
    try:
        group = groups.find_group_of_node(node.name)
    except ProviderError as error:
        text = f"failed to find node group for {node.name}: {error.message}"
        return AutoscalerError(CLOUD_PROVIDER_ERROR, text)
    if group is None:
        text = f"picked node that doesn't belong to a node group: {node.name}"
        return AutoscalerError(INTERNAL_ERROR, text)
    refusal = (yield from p.act(DeleteNodes(group=group.id, nodes=(node.name,), objects=(node,)))).error
    if refusal is not None:
        return AutoscalerError(CLOUD_PROVIDER_ERROR, f"failed to delete {node.name}: {refusal.message}")
    yield from p.emit(build_node_event(node, "Normal", "ScaleDown", "node removed by cluster autoscaler"))
    tracker.register_scale_down(group.id, node.name, p.now)
    return None


LegacyLoopAction = (
    LegacyScaleUpAction
    | LegacyDeletionAction
    | RepairAction
    | StatusConfigMapAction
    | Refresh
    | DeleteGroup
    | Observe
    | Wait
    | Emit
)
"""Actions of a whole loop of release 1.3."""
_DEVICE_LABELS = ("gpu_resource_name", "gpu_name", "dra_drivers")


class LegacyAutoscalerLoop:
    """One loop of release 1.3 in progress."""

    def __init__(self, context: LoopContext) -> None:
        self.context, self.p = context, context.p
        self.options, self.now, self.inputs = context.options, context.now, context.inputs
        self.actuator = context.inputs.actuator or build_actuator(context)
        context.update_state(cluster=clear_scale_up_failures(context.state.cluster))
        self.up = LegacyScaleUpLoop(context)
        self.is_observed = False
        self.report = LoopReport(
            state=context.state, groups=context.groups, snapshot_after=context.observed, warnings=context.warnings
        )

    def run(self) -> StepsOf[LegacyLoopAction, LoopReport]:
        """Run the loop and return its report."""
        yield from run_phases(self.context, self.report, self.run_phases(), self.conclude)
        self.report.state, self.report.snapshot_after = self.context.state, self.context.snapshot
        return self.report

    def run_phases(self) -> StepsOf[LegacyLoopAction, None]:
        """Run the phases of the loop in upstream's order. Raises LoopEndedError if a phase ends the loop."""
        yield from self.observe_cluster()
        yield from self.repair()
        yield from self.p.observe(build_last_activity_observation("autoscaling", self.p.now))
        yield from self.scale_up()
        if self.options.scale_down_enabled:
            yield from self.scale_down()

    def conclude(self) -> StepsOf[LegacyLoopAction, None]:
        """Write the status, which release 1.3 defers until the loop is over, and count failed scale-ups.

        There is no status if the loop ended before the cluster was observed, or without ``write_status_configmap``.
        """
        context = self.context
        if self.is_observed and self.options.write_status_configmap:
            status = build_cluster_status(context.state.cluster, context.groups, now=self.now, options=self.options)
            cluster = replace(context.state.cluster, last_status=status)
            context.update_state(cluster=cluster)
            self.report.status = status
            yield from self.write_status(format_legacy_status(status, cluster))
        no_device = dict.fromkeys(_DEVICE_LABELS, "")
        yield from self.p.observe(
            *(
                build_observation("failed_scale_ups_total", 1.0, reason=failure.error.code, **no_device)
                for failures in context.state.cluster.failures.values()
                for failure in failures
            )
        )

    def observe_cluster(self) -> StepsOf[LegacyLoopAction, None]:
        """Update the cluster state: taints, deletions, templates, groups and readiness.

        Raises LoopEndedError if the loop has nothing to do, or if the cloud or the nodes cannot be read.
        """
        p, context, options = self.p, self.context, self.options
        if not context.state.taints_cleaned:
            yield from clean_ready_nodes_taints(p, context.observed.columns.objects)
            yield from p.clock()
            context.update_state(taints_cleaned=True)
        timer = FunctionTimer(p, "updateClusterState")
        without_flag = replace(options, scale_up_from_zero=False)  # release 1.3 lacks this flag
        idle = check_actionable(len(context.lists.all), len(context.lists.ready), without_flag, self.inputs.process_age)
        if idle is not None:
            context.clear_unneeded_nodes()
            yield from p.observe(*report.build_inactive_observations())
            yield from self.write_status(idle.message)
            if idle.has_event:
                yield from p.emit(*build_status_events(options, "Warning", "ClusterUnhealthy", idle.message))
            raise LoopEndedError(idle.message)
        self.under_way = self.actuator.tracker.status(self.now)
        self.report.deletions_under_way = bool(self.under_way.draining)
        context.state = sync_deletions(context.state, self.actuator.tracker)
        self.up.build_templates()
        outcome = yield from p.act(Refresh())
        if outcome.error is not None:
            raise LoopEndedError.of(AutoscalerError(CLOUD_PROVIDER_ERROR, outcome.error.message))
        adopt_refreshed_groups(context, outcome.value)
        try:
            yield from self.up.update()
        except AutoscalerError as error:
            context.clear_unneeded_nodes()
            raise LoopEndedError.of(error, CLOUD_PROVIDER_ERROR) from None
        yield from p.observe(*report.build_readiness_observations(context.state.cluster, context.groups, options))
        yield from timer.stop()
        self.is_observed = True

    def write_status(self, message: str) -> StepsOf[StatusConfigMapAction, None]:
        """Write a message to the ConfigMap of the status, if the options have one. An error becomes a warning."""
        if self.options.write_status_configmap:
            written = self.p.now
            problem = yield from write_status_config_map(
                self.p, format_legacy_status_message(message, written), self.options, written
            )
            if problem is not None:
                self.context.warnings.append(problem)

    def repair(self) -> StepsOf[LegacyLoopAction, None]:
        """Remove unregistered instances and fix wrong target sizes.

        Raises LoopEndedError if the repair ends the loop: after an error, after removed instances or a fixed target
        size, or if the cluster is unhealthy.
        """
        p, context, options, now = self.p, self.context, self.options, self.now
        repair = self.report.repair = Repair()
        if context.state.cluster.unregistered:
            error = yield from remove_legacy_unregistered_steps(
                p, context.state.cluster, context.groups, repair, now=now, options=options
            )
            context.warnings += repair.warnings
            if repair.removed:
                context.groups = context.groups.with_targets(repair.targets(context.groups))
            if error is not None:
                raise LoopEndedError.of(error)
            if repair.removed:
                raise LoopEndedError("Some unregistered nodes were removed, skipping iteration")
        if not (yield from context.is_cluster_healthy()):
            repair.healthy = False
            raise LoopEndedError("Cluster is unhealthy")
        yield from fix_node_group_size_steps(p, context.state.cluster, context.groups, repair, now=now, options=options)
        end_after_repair(repair)

    def scale_up(self) -> StepsOf[LegacyLoopAction, None]:
        """Filter the pending pods and scale up for those that need nodes.

        Raises LoopEndedError if the scale-up fails or adds nodes, as no scale-down follows then.
        """
        p, up = self.p, self.up
        timer = FunctionTimer(p, "filterOutSchedulable")
        tried = up.filter_pods()
        yield from p.observe(
            build_observation("unschedulable_pods_count", up.before.unschedulable, type="unschedulable")
        )
        yield from timer.stop()
        if tried:
            yield from p.observe(build_last_activity_observation("scaleUp", p.now))
            timer = FunctionTimer(p, "scaleUp")
            yield from up.scale_up()
            yield from p.observe(*self.count_new_nodes())
            yield from timer.stop()
        plan = self.report.scale_up = up.plan
        if plan.error is not None:
            raise LoopEndedError(error=plan.error)
        if plan.result == SCALE_UP_SUCCESSFUL:
            raise LoopEndedError("No scale down in this iteration")

    def count_new_nodes(self) -> list[Observation]:
        """Return observations that count the nodes that the scale-up requested; none without a scale-up."""
        done = self.up.plan.done
        if done is None:
            return []
        counted = []
        for info, _ in done.resized:
            count = float(info.new - info.current)
            counted.append(Observation(name=f"{METRIC_PREFIX}scaled_up_nodes_total", value=count))
            template = self.up.templates.get(info.group)
            gpu = "" if template is None else get_legacy_gpu_name(template.node, None)
            if gpu:
                counted.append(
                    Observation(name=f"{METRIC_PREFIX}scaled_up_gpu_nodes_total", value=count, labels={"gpu_name": gpu})
                )
        return counted

    def scale_down(self) -> StepsOf[LegacyLoopAction, None]:
        """Plan the scale-down and delete nodes.

        Raises LoopEndedError if nodes cannot be deleted, and InputError for options that release 1.3 lacks.
        """
        p, context, options, inputs = self.p, self.context, self.options, self.inputs
        timer = FunctionTimer(p, "findUnneeded")
        before = context.state
        scale_down_inputs = ScaleDownInputs(
            limits=inputs.limits,
            draining=self.under_way.draining,
            disabled=self.up.before.scale_down_disabled,
            gpu_label=context.gpu_label,
            profile=inputs.profile,
        )
        reject_unsupported_inputs(scale_down_inputs, options)
        if can_scale_down(before.scale_up.degraded_loops, options):
            plan = plan_legacy_scale_down(
                ScaleDownContext(context.observed, context.groups, self.now, options, before, scale_down_inputs)
            )
        else:
            plan = build_not_tried_plan(before)
        self.report.scale_down = plan
        unneeded = [item.name for item in plan.unneeded]
        cluster = update_scale_down_candidates(plan.state.cluster, unneeded, context.groups, self.now)
        context.state = replace(plan.state, cluster=cluster)
        yield from p.observe(build_observation("unneeded_nodes_count", len(plan.unneeded)))
        yield from timer.stop()
        if plan.chosen is None:  # cooldown, or a node is being drained
            return
        if options.node_autoprovisioning_enabled:
            yield from remove_unneeded_groups(context, self.report, options)
        yield from p.observe(build_last_activity_observation("scaleDown", p.now))
        timer = FunctionTimer(p, "scaleDown")
        error = yield from self.delete_nodes(plan)
        yield from timer.stop()
        if error is not None:
            memory = replace(context.state.scale_down, last_failure=self.now)
            context.update_state(scale_down=memory)
            raise LoopEndedError.of(error)

    def delete_nodes(self, plan: ScaleDownPlan) -> StepsOf[LegacyLoopAction, AutoscalerError | None]:
        """Delete the empty nodes, or start to drain the chosen node. Returns the error, or None.

        Sets ``started`` in the report, and in the state the deletions and, if empty nodes were deleted, the time of the
        last scale-down.
        """
        p, tracker, snapshot = self.p, self.actuator.tracker, self.context.observed
        chosen = plan.chosen
        assert chosen is not None
        nodes, index = snapshot.columns.objects, snapshot.columns.index
        error = None
        if chosen.empty:
            going = [nodes[index[name]] for name in chosen.empty]
            timer = FunctionTimer(p, "scaleDown:nodeDeletion")
            error = yield from delete_empty_nodes(
                p, going, self.context.groups, self.options, tracker, self.up.templates
            )
            yield from timer.stop()
            if error is None:
                memory = replace(self.context.state.scale_down, last_scale_down=self.now)
                self.context.update_state(scale_down=memory)
        for name in chosen.drain:
            pods: list[Pod] = [snapshot.pod(key) for key in plan.removable[name].placement]
            used = plan.eligibility[name].utilization if name in plan.eligibility else None
            yield from start_node_drain(
                p,
                nodes[index[name]],
                pods,
                self.context.groups,
                self.options,
                tracker,
                self.up.templates,
                0.0 if used is None else used.utilization,
            )
        result = "ScaleDownError" if error is not None else plan.result
        self.report.started = StartedDeletion(result=result, error=None if error is None else error.record)
        self.context.state = sync_deletions(self.context.state, tracker)
        return error
