"""One loop in upstream's order (upstream: ``core/static_autoscaler.go``: RunOnce).

Candidates, cooldown and choice: :mod:`kscale.ca.scale_down.planner`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace as replace_input
from typing import Final

from msgspec.structs import replace

from kscale.ca.cluster_state import (
    ClusterUpdateAction,
    build_cluster_status,
    build_initializing_status,
    clear_scale_up_failures,
    is_cluster_healthy,
    recalculate_ranges,
    update_scale_down_candidates,
)
from kscale.ca.errors import CLOUD_PROVIDER_ERROR, INTERNAL_ERROR, TRANSIENT_ERROR, AutoscalerError
from kscale.ca.events import build_status_events
from kscale.ca.expander.types import ExpanderInput
from kscale.ca.loop_context import LoopContext, check_actionable, check_csi_nodes
from kscale.ca.metrics import FunctionTimer, build_last_activity_observation, build_observation
from kscale.ca.node_group_set import Comparator
from kscale.ca.node_lists import iterate_nodes_with_gpus
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists.should_scale_up import can_scale_down
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
from kscale.ca.scale_down.inputs import PlannerInput, ScaleDownInputs
from kscale.ca.scale_down.pdb import get_cached_pdb_tracker
from kscale.ca.scale_down.plan import ScaleDownPlan
from kscale.ca.scale_down.planner import plan_scale_down
from kscale.ca.scale_up.inputs import OrchestratorInputs
from kscale.ca.scale_up.orchestrator import OrchestratorAction
from kscale.ca.state.loop_state import Deletions, LoopState, clear_unneeded_nodes
from kscale.ca.state.trackers import MaxNodeSkipEvalTime
from kscale.ca.static_autoscaler import loop_metrics
from kscale.ca.static_autoscaler.report import LoopEndedError, LoopInputs, LoopReport, build_unreadable_error
from kscale.ca.static_autoscaler.scale_up_loop import ScaleUpLoop
from kscale.ca.status_config_map import StatusConfigMapAction, format_status, write_status_config_map
from kscale.ca.template_devices import count_device_mismatches
from kscale.ca.templates import TaintConfig
from kscale.effects import (
    CANCELED,
    SECOND,
    Delete,
    DeleteGroup,
    Emit,
    HasInstances,
    InBackground,
    Moment,
    Observation,
    Observe,
    Progress,
    Refresh,
    StepsOf,
    WriteStatus,
)
from kscale.errors import InputError, UnreadableObjectError
from kscale.objects.nodegroups import Groups, GroupsLike
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "AutoscalerLoop",
    "AutoscalerLoopBase",
    "LoopAction",
    "ScaleDownPhase",
    "build_actuator",
    "remove_unneeded_groups",
]


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


def build_actuator(state: LoopState, snapshot: Snapshot, options: AutoscalingOptions, inputs: LoopInputs) -> Actuator:
    """Build an actuator for this loop alone; deletions of the state are in progress while their nodes exist."""
    there, known = snapshot.columns.index, state.deletions
    still = Deletions(
        empty={node: group for node, group in known.empty.items() if node in there},
        drained={node: group for node, group in known.drained.items() if node in there},
    )
    return Actuator(options, gpu_label=inputs.gpu_label, gpu_types=inputs.gpu_types, known=still)


def remove_unneeded_groups(
    p: Progress, scene: LoopContext, report: LoopReport, told_by: AutoscalingOptions | None = None
) -> StepsOf[DeleteGroup | Emit | Observe, None]:
    """Remove groups that have no machine and shall have none. The first refusal ends it, and is only logged.

    ``told_by``: options of the loop whose events say so, as release 1.3 did (None: no events).
    """
    for group in list(scene.groups):
        if not group.autoprovisioned or not group.exists or group.upcoming:
            continue
        refusal = group.target_size_error
        if refusal is None:
            if group.size or group.instance_ids:
                continue
            outcome = yield from p.act(DeleteGroup(group=group.id))
            refusal = None if outcome.error is None else outcome.error.message
            if told_by is not None and refusal is not None:
                text = f"NodeAutoprovisioning: attempt to delete node group {group.id} failed: {refusal}"
                yield from p.emit(*build_status_events(told_by, "Warning", "FailedToDeleteNodeGroup", text))
            elif told_by is not None:
                text = f"NodeAutoprovisioning: removed node group {group.id}"
                yield from p.emit(*build_status_events(told_by, "Normal", "DeletedNodeGroup", text))
        if refusal is not None:
            scene.warnings.append(f"Error while removing unneeded node groups: {refusal}")
            return
        scene.groups = Groups((each for each in scene.groups if each.id != group.id), scene.groups.node_errors)
        report.removed_groups.append(group.id)
        yield from p.observe(build_observation("deleted_node_groups_total", group_type=""))


class AutoscalerLoopBase:
    """One loop in progress: its context, the scale-up part, the actuator, and the report so far.

    ``under_way``: the deletions in progress, once the loop has read them.
    """

    under_way: ActuationStatus

    def __init__(
        self,
        cluster: Cluster | Snapshot,
        groups: GroupsLike,
        now: Moment,
        options: AutoscalingOptions,
        before: LoopState,
        inputs: LoopInputs,
    ) -> None:
        self.p = p = Progress(now)
        self.now, self.options, self.inputs = now, options, inputs
        self.scene = scene = LoopContext(
            cluster,
            groups,
            now,
            options,
            inputs.profile,
            inputs.gpu_label,
            inputs.templates,
            before.templates,
            add_provider_resources=inputs.add_provider_resources,
        )
        self.actuator = inputs.actuator or build_actuator(before, scene.found, options, inputs)
        self.up = ScaleUpLoop(
            p,
            scene,
            before,
            OrchestratorInputs(
                expander_input=replace_input(inputs.expander_input or ExpanderInput(), gpu_label=inputs.gpu_label),
                quotas=inputs.quotas,
                comparator=inputs.comparator or Comparator.from_options(options),
                profile=inputs.profile,
                rng=inputs.rng,
            ),
        )
        self.report = LoopReport(state=before, groups=scene.groups, snapshot_after=scene.found, warnings=scene.warnings)

    @property
    def state(self) -> LoopState:
        return self.up.state

    @state.setter
    def state(self, state: LoopState) -> None:
        self.up.state = state

    def show(self) -> StepsOf[StatusConfigMapAction, None]:
        assert self.report.status is not None
        text = format_status(self.report.status, self.now)
        problem = yield from write_status_config_map(self.p, text, self.options, self.now)
        if problem is not None:
            self.scene.warnings.append(problem)


class ScaleDownPhase(AutoscalerLoopBase):
    """The scale-down part of a loop."""

    def shrink(self) -> StepsOf[LoopAction, None]:
        p, up, options, inputs, now = self.p, self.up, self.options, self.inputs, self.now
        timer = FunctionTimer(p, "findUnneeded")
        check_csi_nodes(up.snapshot_after)
        plan = self.report.scale_down = plan_scale_down(
            PlannerInput(up.snapshot_after, self.scene.groups, now, options, self.state),
            ScaleDownInputs(
                limits=inputs.limits,
                deleting=self.under_way.deleting,
                draining=self.under_way.draining,
                recent_evictions=self.under_way.recent_evictions,
                disabled=up.before.scale_down_disabled,
                max_simulations=inputs.max_simulations,
                threads=inputs.threads,
                gpu_label=inputs.gpu_label,
                profile=inputs.profile,
                pods_placed=True,
            ),
        )
        unneeded = [item.name for item in plan.unneeded]
        cluster = update_scale_down_candidates(plan.state.cluster, unneeded, self.scene.groups, now)
        self.state = replace(plan.state, cluster=cluster)
        yield from p.observe(build_observation("unneeded_nodes_count", len(unneeded)))
        yield from p.observe(*self.track(plan))
        yield from timer.stop()
        cooldown = plan.result == "ScaleDownInCooldown"
        yield from p.observe(build_observation("scale_down_in_cooldown", int(cooldown)))
        if not self.under_way.draining:
            yield from remove_unneeded_groups(p, self.scene, self.report)
        error = None
        if plan.result == "ScaleDownNoCandidates":
            yield from p.observe(build_last_activity_observation("scaleDown", p.now))
        elif plan.chosen is not None:
            error = yield from self.start(plan)
        if options.max_bulk_soft_taint_count != 0:
            timer = FunctionTimer(p, "scaleDown:softTaintUnneeded")
            every, index = self.scene.lists.all, self.scene.found.columns.index
            wanted = plan.soft_taints
            nodes = {name: every[index[name]] for name in (*wanted.remove, *wanted.add)}
            yield from update_soft_taints(wanted, nodes, options, p.now)
            yield from timer.stop()
        if error is not None:
            raise LoopEndedError(error=error)

    def track(self, plan: ScaleDownPlan) -> list[Observation]:
        """Track how long nodes wait for evaluation and for removal, if the options request it."""
        options, observations = self.options, []
        if options.max_node_skip_eval_time_tracker_enabled:
            known = self.state.skipped or MaxNodeSkipEvalTime(last=self.now)
            skipped, longest = known.update(plan.skipped, self.now)
            self.state = replace(self.state, skipped=skipped)
            observations.append(build_observation("max_node_skip_eval_duration_seconds", longest / SECOND))
        if options.node_removal_latency_tracking_enabled:
            latencies, needed = self.state.latencies.update(plan.unneeded, self.now)
            self.state = replace(self.state, latencies=latencies)
            observations += loop_metrics.build_latency_observations(needed)
        return observations

    def start(self, plan: ScaleDownPlan) -> StepsOf[LoopAction, AutoscalerError | None]:
        """Start deletions without waiting for them."""
        p = self.p
        timer = FunctionTimer(p, "scaleDown")
        yield from p.observe(build_last_activity_observation("scaleDown", p.now))
        assert plan.chosen is not None
        started = self.report.started = yield from self.actuator.start_deletion_in(
            p, plan.chosen.empty, plan.chosen.drain, self.up.snapshot_after, self.scene.groups
        )
        self.state = replace(
            record_deletion_start(self.state, started, self.now), deletions=self.actuator.tracker.deletions()
        )
        yield from timer.stop()
        yield from p.observe(*loop_metrics.build_unremovable_observations(plan.unremovable))
        if started.result == "ScaleDownNodeDeleteStarted":
            self.state = replace(self.state, cluster=recalculate_ranges(self.state.cluster, self.scene.groups))
        return None if started.error is None else AutoscalerError(started.error.type, started.error.message)


_FILTER_OUT_SCHEDULABLE_REQUESTOR: Final = "filter-out-pod-list-processor"


class AutoscalerLoop(ScaleDownPhase):
    """One loop in progress, divided into phases that run in order."""

    def run(self) -> StepsOf[LoopAction, LoopReport]:
        p, report = self.p, self.report
        shell = FunctionTimer(p, "main")
        yield from p.observe(build_last_activity_observation("main", p.now))
        looked = False
        try:
            yield from self.observe_cluster()
            looked = True
            yield from self.act()
        except LoopEndedError as end:
            report.ended = end.why
            report.error = None if end.error is None else end.error.record
        except UnreadableObjectError as error:
            report.error = build_unreadable_error(error).record
        if looked:
            yield from self.conclude()
        if report.successful:
            yield from p.observe(build_last_activity_observation("mainSuccessful", p.now))
        elif report.error is not None and report.error.type != TRANSIENT_ERROR:
            yield from p.observe(build_observation("errors_total", type=report.error.type))
        yield from shell.stop()
        report.state = self.up.plan().state
        report.groups = self.scene.groups
        report.snapshot_after = self.up.snapshot_after
        self.scene.warnings += self.actuator.tracker.take_warnings()
        return report

    # -- observation -------------------------------------------------------------------------------------------------

    def observe_cluster(self) -> StepsOf[LoopAction, None]:
        p, scene, options = self.p, self.scene, self.options
        if not self.state.taints_cleaned:
            yield from clean_up_taints(scene.found.columns.objects, scene.groups, options, self.now)
            yield from p.clock()
            self.state = replace(self.state, taints_cleaned=True)
        yield from p.observe(*self.compare_devices())
        timer = FunctionTimer(p, "updateClusterState")
        yield from self.be_actionable()
        taints = TaintConfig.from_options(options)
        yield from p.observe(*loop_metrics.build_node_observations(scene.found, self.now, taints))
        # Read the tracker before the provider is refreshed: nodes deleted meanwhile are still among its nodes.
        self.under_way = self.actuator.tracker.status(self.now)
        self.report.deletions_under_way = bool(self.under_way.deleting or self.under_way.draining)
        self.state = sync_deletions(self.state, self.actuator.tracker)
        yield from self.refresh()
        self.state = replace(self.state, cluster=clear_scale_up_failures(self.state.cluster))
        yield from self.up.end_old_requests()
        yield from p.observe(*loop_metrics.build_group_observations(scene.groups, options))
        try:
            check_csi_nodes(scene.found)
        except AutoscalerError as error:
            raise LoopEndedError(error=error) from None
        try:
            get_cached_pdb_tracker(scene.found)
        except InputError as error:
            text = f"failed to initialize RemainingPdbTracker: {error}"
            raise LoopEndedError(error=AutoscalerError(INTERNAL_ERROR, text)) from None
        try:
            self.up.find_templates(self.inputs.templates)
        except AutoscalerError as error:
            text = "failed to recompute template node infos: "
            raise LoopEndedError(error=error.with_prefix(text)) from None
        machines = yield from p.act(HasInstances(tuple(scene.found.nodes)))
        try:
            yield from self.up.update(machines.value if machines.error is None else None)
        except AutoscalerError as error:
            self.state = clear_unneeded_nodes(self.state)
            provider_error = AutoscalerError(error.type or CLOUD_PROVIDER_ERROR, error.message)
            raise LoopEndedError(error=provider_error) from None
        yield from p.observe(*loop_metrics.build_readiness_observations(self.state.cluster, scene.groups, options))
        yield from timer.stop()

    def compare_devices(self) -> list[Observation]:
        """Observe how the devices of nodes differ from the templates.

        Drivers that differed the last time are reset to zero.
        """
        scene, before = self.scene, self.state.differing_drivers
        nodes = iterate_nodes_with_gpus(scene.found.columns.objects, self.inputs.gpu_label)
        slices = scene.found.informers.resource_slices
        mismatches = count_device_mismatches(nodes, scene.groups, slices, self.inputs.templates, self.state.templates)
        if before or mismatches:
            self.state = replace(self.state, differing_drivers=[*mismatches])
        return loop_metrics.build_device_mismatch_observations(
            {driver: Counter[str]() for driver in before} | mismatches
        )

    def be_actionable(self) -> StepsOf[LoopAction, None]:
        """Check whether the cluster is actionable. If not, write the status and raise LoopEndedError."""
        lists, options = self.scene.lists, self.options
        idle = check_actionable(len(lists.all), len(lists.ready), options, self.inputs.process_age)
        if idle is None:
            return
        self.state = clear_unneeded_nodes(self.state)
        yield from self.p.observe(*loop_metrics.build_inactive_observations())
        self.report.status = build_initializing_status(idle.message)
        if options.write_status_configmap:
            yield from self.show()
        if idle.tell:
            yield from self.p.emit(*build_status_events(options, "Warning", "ClusterUnhealthy", idle.message))
        raise LoopEndedError(idle.message)

    def refresh(self) -> StepsOf[LoopAction, None]:
        timer = FunctionTimer(self.p, "cloudProviderRefresh")
        outcome = yield from self.p.act(Refresh())
        if outcome.value is not None:
            try:
                self.scene.adopt(outcome.value)
            except InputError as error:
                raise LoopEndedError(error=AutoscalerError(CLOUD_PROVIDER_ERROR, str(error))) from None
        if self.options.async_node_groups:
            self.state = replace(self.state, cluster=recalculate_ranges(self.state.cluster, self.scene.groups))
        yield from timer.stop()
        if outcome.error == CANCELED:
            raise LoopEndedError("the process ends")
        if outcome.error is not None:
            raise LoopEndedError(error=AutoscalerError(CLOUD_PROVIDER_ERROR, outcome.error.message))

    # -- actions -----------------------------------------------------------------------------------------------------

    def act(self) -> StepsOf[LoopAction, None]:
        p, up, options = self.p, self.up, self.options
        yield from self.repair()
        yield from p.observe(build_last_activity_observation("autoscaling", p.now))
        timer = FunctionTimer(p, "filterOutSchedulable")
        yield from up.look_at_pods(
            None,
            [item.node for item in self.under_way.draining],
            self.inputs.enforcer,
            self.inputs.max_looks,
        )
        yield from timer.stop()
        yield from p.observe(
            build_observation("unschedulable_pods_count", up.before.unschedulable, type="unschedulable"),
            build_observation("unschedulable_pods_count", up.before.unprocessed, type="scheduler_unprocessed"),
        )
        if up.before.placed is not None:
            overflowing = up.before.placed.overflowing_controllers
            yield from p.observe(
                build_observation(
                    "skipped_pods_count", up.before.lists.out_of_time, requestor=_FILTER_OUT_SCHEDULABLE_REQUESTOR
                ),
                build_observation("overflowing_controllers_count", overflowing),
            )
        if (yield from p.wait(0)).error is not None:
            raise LoopEndedError("the process ends")
        if not up.result:
            yield from self.growing(up.scale())
            for done in up.rounds:
                yield from p.observe(*done.observations)
                labels = done.templates, self.inputs.gpu_label, self.inputs.gpu_types
                yield from p.observe(*loop_metrics.build_skipped_scale_up_observations(done.exceeded))
                yield from p.observe(*loop_metrics.build_scale_up_observations(done.resized, *labels))
        if can_scale_down(self.state.scale_up.degraded_loops, options):
            yield from self.shrink()
        if options.enforce_node_group_min_size:
            yield from self.growing(up.raise_to_minimum())
            assert up.minimum is not None
            labels = up.made, self.inputs.gpu_label, self.inputs.gpu_types
            yield from p.observe(*loop_metrics.build_scale_up_observations(up.minimum.resized, *labels))

    def growing(self, steps: StepsOf[OrchestratorAction | WriteStatus, None]) -> StepsOf[LoopAction, None]:
        """Run a part of the loop that adds nodes, and observe its duration."""
        timer = FunctionTimer(self.p, "scaleUp")
        yield from self.p.observe(build_last_activity_observation("scaleUp", self.p.now))
        yield from steps
        yield from timer.stop()

    def repair(self) -> StepsOf[LoopAction, None]:
        p, scene, options, now = self.p, self.scene, self.options, self.now
        repair = self.report.repair = Repair()
        if self.state.cluster.unregistered:
            steps = remove_old_unregistered_steps(p, self.state.cluster, scene.groups, repair, now=now, options=options)
            yield from steps
            removed_count = sum(map(len, repair.removed.values()))
            if removed_count:
                yield from p.observe(build_observation("old_unregistered_nodes_removed_count", removed_count))
        if not is_cluster_healthy(self.state.cluster, options):
            repair.healthy = False
            self.state = clear_unneeded_nodes(self.state)
            yield from p.emit(*build_status_events(options, "Warning", "ClusterUnhealthy", "Cluster is unhealthy"))
            raise LoopEndedError("Cluster is unhealthy")
        yield from delete_created_with_errors_steps(p, scene.groups, repair, options=options)
        targets = repair.targets(scene.groups)
        if targets:
            scene.groups = scene.groups.with_targets(targets)
        if repair.deleted:
            self.state = replace(self.state, cluster=recalculate_ranges(self.state.cluster, scene.groups))
        yield from fix_node_group_size_steps(p, self.state.cluster, scene.groups, repair, now=now, options=options)
        scene.warnings += repair.warnings
        if repair.error is not None:
            raise LoopEndedError(error=AutoscalerError(repair.error.type, repair.error.message))
        if repair.fixed:
            raise LoopEndedError("Some node group target size was fixed, skipping the iteration")

    # -- status and metrics ------------------------------------------------------------------------------------------

    def conclude(self) -> StepsOf[LoopAction, None]:
        """Run what upstream defers until the loop is over, however it ended."""
        p, options, tracker = self.p, self.options, self.actuator.tracker
        if self.up.before.asked is not None:
            self.report.scale_up = self.up.plan()
        known = set(self.up.made)
        if options.write_status_configmap:
            status = build_cluster_status(
                self.state.cluster, self.scene.groups, now=self.now, options=options, templates=known
            )
            self.state = replace(self.state, cluster=replace(self.state.cluster, last_status=status))
            self.report.status = status
            yield from self.show()
        if not options.enforce_node_group_min_size:
            yield from self.up.emit_untried_events()
        if self.report.scale_down is not None and options.node_removal_latency_tracking_enabled:
            unremovable = {name: item.reason for name, item in self.report.scale_down.unremovable.items()}
            started = self.report.started.nodes if self.report.started is not None else []
            latencies, removed = self.state.latencies.process(unremovable, [item.node for item in started], self.now)
            self.state = replace(self.state, latencies=latencies)
            yield from p.observe(*loop_metrics.build_latency_observations(removed))
        results, newest = tracker.results(p.now)
        tracker.clear_results_not_newer_than(newest)
        self.report.deletion_results = results
        labels = self.up.made, self.inputs.gpu_label, self.inputs.gpu_types
        yield from p.observe(*loop_metrics.build_failed_scale_up_observations(self.state.cluster, *labels))
        if options.emit_per_nodegroup_metrics:
            observations = loop_metrics.build_group_health_observations(
                self.state.cluster, self.scene.groups, self.now, options, known
            )
            yield from p.observe(*observations)
