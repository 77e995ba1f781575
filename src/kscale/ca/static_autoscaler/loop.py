"""One loop in upstream's order (upstream: ``core/static_autoscaler.go``: RunOnce).

Candidates, cooldown and choice: :mod:`kscale.ca.scale_down.planner`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from kscale.ca.cluster_state import (
    ClusterUpdateAction,
    build_cluster_status,
    build_initializing_status,
    clear_scale_up_failures,
    recalculate_ranges,
    update_scale_down_candidates,
)
from kscale.ca.errors import CLOUD_PROVIDER_ERROR, INTERNAL_ERROR, AutoscalerError, ErrorRecord
from kscale.ca.events import build_status_events
from kscale.ca.loop_context import LoopContext, check_actionable, check_csi_nodes
from kscale.ca.loop_state import Deletions, MaxNodeSkipEvalTime
from kscale.ca.metrics import FunctionTimer, build_last_activity_observation, build_observation
from kscale.ca.node_group_set import ScaleUpInfo
from kscale.ca.nodes import iterate_usable_nodes
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists import can_scale_down
from kscale.ca.repair import (
    Repair,
    RepairAction,
    delete_created_with_errors_steps,
    fix_node_group_size_steps,
    remove_old_unregistered_steps,
)
from kscale.ca.scale_down.actuation.actuator import Actuator, record_deletion_start, sync_deletions
from kscale.ca.scale_down.actuation.deletion_tracker import ActuationStatus
from kscale.ca.scale_down.actuation.tainting import TaintNodesAction, clean_up_taints, update_soft_taints
from kscale.ca.scale_down.inputs import ScaleDownContext, ScaleDownInputs
from kscale.ca.scale_down.pdb import get_cached_pdb_tracker
from kscale.ca.scale_down.plan import ScaleDownPlan
from kscale.ca.scale_down.planner import plan_scale_down
from kscale.ca.scale_up.orchestrator import OrchestratorAction
from kscale.ca.static_autoscaler import report
from kscale.ca.static_autoscaler.report import LoopEndedError, LoopReport
from kscale.ca.static_autoscaler.scale_up_loop import ScaleUpLoop
from kscale.ca.status_config_map import StatusConfigMapAction, format_status, write_status_config_map
from kscale.ca.template_devices import count_device_mismatches
from kscale.ca.templates import TaintConfig
from kscale.effects import (
    CANCELED,
    SECOND,
    Action,
    Delete,
    DeleteGroup,
    Emit,
    HasInstances,
    InBackground,
    Moment,
    Observation,
    Observe,
    Refresh,
    StepsOf,
    Wait,
    WriteStatus,
)
from kscale.errors import InputError, UnreadableObjectError
from kscale.objects.nodegroup import Groups, GroupsLike, NodeTemplate

__all__ = [
    "AutoscalerLoop",
    "LoopAction",
    "adopt_refreshed_groups",
    "build_actuator",
    "end_after_repair",
    "remove_unneeded_groups",
    "run_phases",
]


LoopActionType = TypeVar("LoopActionType", bound=Action)

LoopAction = (
    OrchestratorAction
    | ClusterUpdateAction
    | RepairAction
    | TaintNodesAction
    | StatusConfigMapAction
    | Refresh
    | HasInstances
    | DeleteGroup
    | InBackground
    | Observe
    | WriteStatus
    | Delete
)
"""Actions of a whole loop. Deletions that it starts continue in the background."""


def build_actuator(context: LoopContext) -> Actuator:
    """Build an actuator for this loop alone.

    Deletions in the loop's state count as in progress while their nodes exist.
    """
    index, known = context.observed.columns.index, context.state.deletions
    existing = Deletions(
        empty={node: group for node, group in known.empty.items() if node in index},
        drained={node: group for node, group in known.drained.items() if node in index},
    )
    gpu_types = context.inputs.gpu_types
    return Actuator(context.options, gpu_label=context.gpu_label, gpu_types=gpu_types, known=existing)


def remove_unneeded_groups(
    context: LoopContext, report: LoopReport, event_options: AutoscalingOptions | None = None
) -> StepsOf[DeleteGroup | Emit | Observe, None]:
    """Delete the autoprovisioned groups that have no machine and the target size 0.

    Deleted groups are removed from the context and added to the report. The first error ends the deletions; it only
    becomes a warning. ``event_options``: options of the loop that emits events about the deletions, as release 1.3 did
    (None: no events).
    """
    for group in list(context.groups):
        if not group.autoprovisioned or not group.exists or group.upcoming:
            continue
        refusal = group.target_size_error
        if refusal is None:
            if group.size or group.instance_ids:
                continue
            outcome = yield from context.p.act(DeleteGroup(group=group.id))
            refusal = None if outcome.error is None else outcome.error.message
            if event_options is not None and refusal is not None:
                text = f"NodeAutoprovisioning: attempt to delete node group {group.id} failed: {refusal}"
                yield from context.p.emit(
                    *build_status_events(event_options, "Warning", "FailedToDeleteNodeGroup", text)
                )
            elif event_options is not None:
                text = f"NodeAutoprovisioning: removed node group {group.id}"
                yield from context.p.emit(*build_status_events(event_options, "Normal", "DeletedNodeGroup", text))
        if refusal is not None:
            context.warnings.append(f"Error while removing unneeded node groups: {refusal}")
            return
        context.groups = Groups((each for each in context.groups if each.id != group.id), context.groups.node_errors)
        report.removed_groups.append(group.id)
        yield from context.p.observe(build_observation("deleted_node_groups_total", group_type=""))


def run_phases(
    context: LoopContext,
    report: LoopReport,
    phases: StepsOf[LoopActionType, None],
    conclude: Callable[[], StepsOf[LoopActionType, None]],
) -> StepsOf[LoopActionType | Observe | Wait, None]:
    """Run the phases of a loop and then ``conclude``, also if the phases ended early.

    LoopEndedError and UnreadableObjectError end the phases: the report gets the error, or the reason of the end. Other
    exceptions pass through, and ``conclude`` is not run. Metrics about the loop itself are observed. The report also
    gets the groups.
    """
    p = context.p
    timer = FunctionTimer(p, "main")
    yield from p.observe(build_last_activity_observation("main", p.now))
    try:
        yield from phases
    except LoopEndedError as end:
        report.ended, report.error = end.reason, end.error
    except UnreadableObjectError as error:
        # Such an object is detected only when the loop needs it in full, if the fields that decisions read are valid.
        report.error = ErrorRecord(type=INTERNAL_ERROR, message=f"failed to read an object of the cluster: {error}")
    yield from conclude()
    if report.successful:
        yield from p.observe(build_last_activity_observation("mainSuccessful", p.now))
    elif report.error is not None:
        yield from p.observe(build_observation("errors_total", type=report.error.type))
    yield from timer.stop()
    report.groups = context.groups


def adopt_refreshed_groups(context: LoopContext, groups: GroupsLike | None) -> None:
    """Replace the groups of the context by those that the provider returned (None: they are unchanged).

    Raises LoopEndedError for invalid groups.
    """
    if groups is not None:
        try:
            context.adopt(groups)
        except InputError as error:
            raise LoopEndedError.of(AutoscalerError(CLOUD_PROVIDER_ERROR, str(error))) from None


def end_after_repair(repair: Repair) -> None:
    """Raise LoopEndedError if a repair failed or fixed a size."""
    if repair.error is not None:
        raise LoopEndedError(error=repair.error)
    if repair.fixed:
        raise LoopEndedError("Some node group target size was fixed, skipping the iteration")


_FILTER_OUT_SCHEDULABLE_REQUESTOR: Final = "filter-out-pod-list-processor"


class AutoscalerLoop:
    """One loop in progress: its context, the scale-up part, the actuator, and the report so far.

    ``under_way``: the deletions in progress, once the loop has read them.
    """

    under_way: ActuationStatus

    def __init__(self, context: LoopContext) -> None:
        self.context, self.p = context, context.p
        self.now, self.options, self.inputs = context.now, context.options, context.inputs
        self.actuator = context.inputs.actuator or build_actuator(context)
        self.up = ScaleUpLoop(context)
        self.report = LoopReport(
            state=context.state,
            groups=context.groups,
            snapshot_after=context.observed,
            warnings=context.warnings,
        )
        self.is_observed = False

    def run(self) -> StepsOf[LoopAction, LoopReport]:
        """Run the loop and return its report."""
        report = self.report
        yield from run_phases(self.context, report, self.run_phases(), self.conclude)
        report.state = self.up.plan().state
        report.snapshot_after = self.up.snapshot_after
        self.context.warnings += self.actuator.tracker.take_warnings()
        return report

    def run_phases(self) -> StepsOf[LoopAction, None]:
        """Run the phases of the loop in upstream's order. Raises LoopEndedError if a phase ends the loop."""
        yield from self.observe_cluster()
        self.is_observed = True
        yield from self.repair()
        yield from self.scale_up()
        if can_scale_down(self.context.state.scale_up.degraded_loops, self.options):
            yield from self.scale_down()
        if self.options.enforce_node_group_min_size:
            yield from self.time_scale_up(self.up.raise_to_minimum())
            assert self.up.minimum is not None
            yield from self.observe_scale_up(self.up.minimum.resized, self.up.templates)

    # -- observation -------------------------------------------------------------------------------------------------

    def observe_cluster(self) -> StepsOf[LoopAction, None]:
        """Update the cluster state: taints, deletions, groups, templates and readiness.

        Raises LoopEndedError if the cluster is not actionable, if the provider cannot be refreshed, or if nodes,
        budgets, templates or target sizes are invalid.
        """
        p, context, options = self.p, self.context, self.options
        if not context.state.taints_cleaned:
            yield from clean_up_taints(context.observed.columns.objects, context.groups, options, self.now)
            yield from p.clock()
            context.update_state(taints_cleaned=True)
        yield from p.observe(*self.compare_devices())
        timer = FunctionTimer(p, "updateClusterState")
        yield from self.require_actionable_cluster()
        taints = TaintConfig.from_options(options)
        yield from p.observe(*report.build_node_observations(context.observed, self.now, taints))
        # Read the tracker before the provider is refreshed: nodes deleted meanwhile are still among its nodes.
        self.under_way = self.actuator.tracker.status(self.now)
        self.report.deletions_under_way = bool(self.under_way.deleting or self.under_way.draining)
        context.state = sync_deletions(context.state, self.actuator.tracker)
        yield from self.refresh()
        context.update_state(cluster=clear_scale_up_failures(context.state.cluster))
        yield from self.up.end_old_requests()
        yield from p.observe(*report.build_group_observations(context.groups, options))
        try:
            check_csi_nodes(context.observed)
        except AutoscalerError as error:
            raise LoopEndedError.of(error) from None
        try:
            get_cached_pdb_tracker(context.observed)
        except InputError as error:
            text = f"failed to initialize RemainingPdbTracker: {error}"
            raise LoopEndedError.of(AutoscalerError(INTERNAL_ERROR, text)) from None
        try:
            self.up.build_templates()
        except AutoscalerError as error:
            raise LoopEndedError.of(error.with_prefix("failed to recompute template node infos: ")) from None
        machines = yield from p.act(HasInstances(tuple(context.observed.nodes)))
        try:
            yield from self.up.update(machines.value if machines.error is None else None)
        except AutoscalerError as error:
            context.clear_unneeded_nodes()
            raise LoopEndedError.of(error, CLOUD_PROVIDER_ERROR) from None
        yield from p.observe(*report.build_readiness_observations(context.state.cluster, context.groups, options))
        yield from timer.stop()

    def compare_devices(self) -> list[Observation]:
        """Return observations of how the devices of nodes differ from the templates, and store the drivers that differ.

        Drivers that differed the last time, but do not any more, are reset to zero.
        """
        context, before = self.context, self.context.state.differing_drivers
        nodes = iterate_usable_nodes(context.observed.columns.objects, context.gpu_label)
        slices = context.observed.informers.resource_slices
        mismatches = count_device_mismatches(
            nodes, context.groups, slices, self.inputs.templates, context.state.templates
        )
        if before or mismatches:
            context.update_state(differing_drivers=[*mismatches])
        return report.build_device_mismatch_observations({driver: Counter[str]() for driver in before} | mismatches)

    def require_actionable_cluster(self) -> StepsOf[LoopAction, None]:
        """Check whether the cluster is actionable.

        If not, clear the unneeded nodes, write the status and raise LoopEndedError.
        """
        lists, options = self.context.lists, self.options
        idle = check_actionable(len(lists.all), len(lists.ready), options, self.inputs.process_age)
        if idle is None:
            return
        self.context.clear_unneeded_nodes()
        yield from self.p.observe(*report.build_inactive_observations())
        self.report.status = build_initializing_status(idle.message)
        if options.write_status_configmap:
            yield from self.write_status()
        if idle.has_event:
            yield from self.p.emit(*build_status_events(options, "Warning", "ClusterUnhealthy", idle.message))
        raise LoopEndedError(idle.message)

    def refresh(self) -> StepsOf[LoopAction, None]:
        """Refresh the groups of the cloud provider.

        Raises LoopEndedError if the provider fails or returns invalid groups, or if the process shuts down meanwhile.
        """
        timer = FunctionTimer(self.p, "cloudProviderRefresh")
        outcome = yield from self.p.act(Refresh())
        adopt_refreshed_groups(self.context, outcome.value)
        if self.options.async_node_groups:
            self.recalculate_ranges()
        yield from timer.stop()
        if outcome.error == CANCELED:
            raise LoopEndedError("the process ends")
        if outcome.error is not None:
            raise LoopEndedError.of(AutoscalerError(CLOUD_PROVIDER_ERROR, outcome.error.message))

    def recalculate_ranges(self) -> None:
        """Recalculate the acceptable sizes of the groups after a target size has changed."""
        context = self.context
        context.update_state(cluster=recalculate_ranges(context.state.cluster, context.groups))

    def repair(self) -> StepsOf[LoopAction, None]:
        """Remove unregistered and failed instances, and fix wrong target sizes.

        Raises LoopEndedError if the cluster is unhealthy, if a target size was fixed, or if one could not be fixed.
        """
        p, context, options, now = self.p, self.context, self.options, self.now
        repair = self.report.repair = Repair()
        if context.state.cluster.unregistered:
            steps = remove_old_unregistered_steps(
                p, context.state.cluster, context.groups, repair, now=now, options=options
            )
            yield from steps
            removed_count = sum(map(len, repair.removed.values()))
            if removed_count:
                yield from p.observe(build_observation("old_unregistered_nodes_removed_count", removed_count))
        if not (yield from context.is_cluster_healthy()):
            repair.healthy = False
            context.warnings += repair.warnings
            raise LoopEndedError("Cluster is unhealthy")
        yield from delete_created_with_errors_steps(p, context.groups, repair, options=options)
        targets = repair.targets(context.groups)
        if targets:
            context.groups = context.groups.with_targets(targets)
        if repair.deleted:
            self.recalculate_ranges()
        yield from fix_node_group_size_steps(p, context.state.cluster, context.groups, repair, now=now, options=options)
        context.warnings += repair.warnings
        end_after_repair(repair)

    # -- scale-up ----------------------------------------------------------------------------------------------------

    def scale_up(self) -> StepsOf[LoopAction, None]:
        """Filter the pending pods and scale up for those that need nodes.

        Raises LoopEndedError if the process shuts down before the scale-up.
        """
        p, up = self.p, self.up
        yield from p.observe(build_last_activity_observation("autoscaling", p.now))
        timer = FunctionTimer(p, "filterOutSchedulable")
        yield from up.filter_pods([item.node for item in self.under_way.draining])
        yield from timer.stop()
        yield from p.observe(
            build_observation("unschedulable_pods_count", up.before.unschedulable, type="unschedulable"),
            build_observation("unschedulable_pods_count", up.before.unprocessed, type="scheduler_unprocessed"),
        )
        if up.before.placed is not None:
            skipped = up.before.lists.out_of_time
            yield from p.observe(
                build_observation("skipped_pods_count", skipped, requestor=_FILTER_OUT_SCHEDULABLE_REQUESTOR),
                build_observation("overflowing_controllers_count", up.before.placed.overflowing_controllers),
            )
        if (yield from p.wait(0)).error is not None:
            raise LoopEndedError("the process ends")
        if not up.result:
            yield from self.time_scale_up(up.scale())
            for done in up.rounds:
                yield from p.observe(*done.observations)
                yield from p.observe(*report.build_skipped_scale_up_observations(done.exceeded))
                yield from self.observe_scale_up(done.resized, done.templates)

    def time_scale_up(self, steps: StepsOf[OrchestratorAction | WriteStatus, None]) -> StepsOf[LoopAction, None]:
        """Run ``steps``, a part of the loop that adds nodes, and observe its duration."""
        timer = FunctionTimer(self.p, "scaleUp")
        yield from self.p.observe(build_last_activity_observation("scaleUp", self.p.now))
        yield from steps
        yield from timer.stop()

    def observe_scale_up(
        self, resized: Sequence[tuple[ScaleUpInfo, Moment]], templates: Mapping[str, NodeTemplate]
    ) -> StepsOf[Observe, None]:
        """Observe the number of new nodes of the resized groups. ``templates`` are by group id."""
        labels = templates, self.context.gpu_label, self.inputs.gpu_types
        yield from self.p.observe(*report.build_scale_up_observations(resized, *labels))

    # -- scale-down --------------------------------------------------------------------------------------------------

    def scale_down(self) -> StepsOf[LoopAction, None]:
        """Plan the scale-down, start deletions, and update soft taints.

        Unless nodes are being drained, unneeded autoprovisioned groups are deleted first. Raises LoopEndedError if
        deletions cannot be started, and AutoscalerError as :func:`check_csi_nodes`. Errors of soft taints are ignored.
        """
        p, up, options, inputs, now = self.p, self.up, self.options, self.inputs, self.now
        timer = FunctionTimer(p, "findUnneeded")
        check_csi_nodes(up.snapshot_after)
        scale_down_inputs = ScaleDownInputs(
            limits=inputs.limits,
            deleting=self.under_way.deleting,
            draining=self.under_way.draining,
            recent_evictions=self.under_way.recent_evictions,
            disabled=up.before.scale_down_disabled,
            max_simulations=inputs.max_simulations,
            threads=inputs.threads,
            gpu_label=self.context.gpu_label,
            profile=inputs.profile,
            pods_placed=True,
        )
        plan = self.report.scale_down = plan_scale_down(
            ScaleDownContext(
                up.snapshot_after, self.context.groups, now, options, self.context.state, scale_down_inputs
            )
        )
        unneeded = [item.name for item in plan.unneeded]
        cluster = update_scale_down_candidates(plan.state.cluster, unneeded, self.context.groups, now)
        self.context.state = replace(plan.state, cluster=cluster)
        yield from p.observe(build_observation("unneeded_nodes_count", len(unneeded)))
        yield from p.observe(*self.track_durations(plan))
        yield from timer.stop()
        cooldown = plan.result == "ScaleDownInCooldown"
        yield from p.observe(build_observation("scale_down_in_cooldown", int(cooldown)))
        if not self.under_way.draining:
            yield from remove_unneeded_groups(self.context, self.report)
        error = None
        if plan.result == "ScaleDownNoCandidates":
            yield from p.observe(build_last_activity_observation("scaleDown", p.now))
        elif plan.chosen is not None:
            error = yield from self.start_deletions(plan)
        if options.max_bulk_soft_taint_count != 0:
            timer = FunctionTimer(p, "scaleDown:softTaintUnneeded")
            every, index = self.context.lists.all, self.context.observed.columns.index
            wanted = plan.soft_taints
            nodes = {name: every[index[name]] for name in (*wanted.remove, *wanted.add)}
            yield from update_soft_taints(wanted, nodes, options, p.now)
            yield from timer.stop()
        if error is not None:
            raise LoopEndedError(error=error)

    def track_durations(self, plan: ScaleDownPlan) -> list[Observation]:
        """Track how long nodes wait for evaluation and for removal, if the options request it.

        Returns the observations.
        """
        options, observations = self.options, []
        if options.max_node_skip_eval_time_tracker_enabled:
            known = self.context.state.skipped or MaxNodeSkipEvalTime(last=self.now)
            skipped, longest = known.update(plan.skipped, self.now)
            self.context.update_state(skipped=skipped)
            observations.append(build_observation("max_node_skip_eval_duration_seconds", longest / SECOND))
        if options.node_removal_latency_tracking_enabled:
            latencies, needed = self.context.state.latencies.update(plan.unneeded, self.now)
            self.context.update_state(latencies=latencies)
            observations += report.build_latency_observations(needed)
        return observations

    def start_deletions(self, plan: ScaleDownPlan) -> StepsOf[LoopAction, ErrorRecord | None]:
        """Start deletions without waiting for them. Returns the error, or None."""
        p = self.p
        timer = FunctionTimer(p, "scaleDown")
        yield from p.observe(build_last_activity_observation("scaleDown", p.now))
        assert plan.chosen is not None
        started = self.report.started = yield from self.actuator.start_deletion_in(
            p, plan.chosen.empty, plan.chosen.drain, self.up.snapshot_after, self.context.groups
        )
        self.context.state = replace(
            record_deletion_start(self.context.state, started, self.now), deletions=self.actuator.tracker.deletions()
        )
        yield from timer.stop()
        yield from p.observe(*report.build_unremovable_observations(plan.unremovable))
        if started.result == "ScaleDownNodeDeleteStarted":
            self.recalculate_ranges()
        return started.error

    # -- status and metrics ------------------------------------------------------------------------------------------

    def conclude(self) -> StepsOf[LoopAction, None]:
        """Run what upstream defers until the loop is over, however the loop ended.

        Does nothing if the loop ended before the cluster was observed. Otherwise it completes the report (plan of the
        scale-up, status, results of deletions), writes the status if the options request it, emits the events about
        pods for which nothing was tried (not with ``enforce_node_group_min_size``), updates the latencies in the state,
        and observes metrics.
        """
        if not self.is_observed:
            return
        p, options, tracker = self.p, self.options, self.actuator.tracker
        if self.up.before.asked is not None:
            self.report.scale_up = self.up.plan()
        known = set(self.up.templates)
        if options.write_status_configmap:
            status = build_cluster_status(
                self.context.state.cluster, self.context.groups, now=self.now, options=options, templates=known
            )
            self.context.update_state(cluster=replace(self.context.state.cluster, last_status=status))
            self.report.status = status
            yield from self.write_status()
        if not options.enforce_node_group_min_size:
            yield from self.up.emit_untried_events()
        if self.report.scale_down is not None and options.node_removal_latency_tracking_enabled:
            unremovable = {name: item.reason for name, item in self.report.scale_down.unremovable.items()}
            started = self.report.started.nodes if self.report.started is not None else []
            latencies, removed = self.context.state.latencies.process(
                unremovable, [item.node for item in started], self.now
            )
            self.context.update_state(latencies=latencies)
            yield from p.observe(*report.build_latency_observations(removed))
        results, newest = tracker.results(p.now)
        tracker.clear_results_not_newer_than(newest)
        self.report.deletion_results = results
        labels = self.up.templates, self.context.gpu_label, self.inputs.gpu_types
        yield from p.observe(*report.build_failed_scale_up_observations(self.context.state.cluster, *labels))
        if options.emit_per_nodegroup_metrics:
            observations = report.build_group_health_observations(
                self.context.state.cluster, self.context.groups, self.now, options, known
            )
            yield from p.observe(*observations)

    def write_status(self) -> StepsOf[StatusConfigMapAction, None]:
        """Write the status of the report to its ConfigMap. An error becomes a warning."""
        assert self.report.status is not None
        text = format_status(self.report.status, self.now)
        problem = yield from write_status_config_map(self.p, text, self.options, self.now)
        if problem is not None:
            self.context.warnings.append(problem)
