"""One loop under way, part after part in upstream's order (``core/static_autoscaler.go``: RunOnce)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace as replace_input
from typing import Final

from msgspec.structs import replace

from kscale.ca.actionable import not_actionable
from kscale.ca.cluster_state import (
    cluster_status,
    forget_failures,
    initializing_status,
    is_cluster_healthy,
    recalculate,
)
from kscale.ca.errors import CLOUD_PROVIDER_ERROR, INTERNAL_ERROR, TRANSIENT_ERROR, AutoscalerError
from kscale.ca.event_subjects import status_event
from kscale.ca.expander.types import ExpanderInput
from kscale.ca.legacy.run_once import LegacyRunOnce
from kscale.ca.legacy.scale_up_loop import LegacyScaleUpLoop
from kscale.ca.metrics import FunctionTimer, last_activity, observation
from kscale.ca.node_lists import with_gpus
from kscale.ca.pod_lists.degradation import may_scale_down
from kscale.ca.repair import (
    Repair,
    delete_created_with_errors_steps,
    fix_node_group_size_steps,
    remove_old_unregistered_steps,
)
from kscale.ca.scale_down.actuation.remember import caught_up
from kscale.ca.scale_down.actuation.start_up import clean_up_taints
from kscale.ca.scale_down.pdb import kept_tracker
from kscale.ca.scale_up.orchestrator import Orchestrating
from kscale.ca.simulated import check_csi_nodes
from kscale.ca.state import cleared
from kscale.ca.static_autoscaler import observing
from kscale.ca.static_autoscaler.ending import EndedError, unreadable
from kscale.ca.static_autoscaler.report import LoopReport
from kscale.ca.static_autoscaler.scale_down_part import ScaleDownPart
from kscale.ca.static_autoscaler.under_way import Looping
from kscale.ca.template_devices import device_mismatches
from kscale.ca.templates import TaintConfig
from kscale.effects import (
    CANCELED,
    HasInstances,
    Observation,
    Refresh,
    StepsOf,
    WriteStatus,
)
from kscale.errors import InputError, UnreadableObjectError

__all__ = ["RunOnce"]

_FILTER_OUT_SCHEDULABLE: Final = "filter-out-pod-list-processor"


class RunOnce(ScaleDownPart):
    """One loop under way, part after part."""

    def legacy(self) -> LegacyRunOnce:
        """The same for the loop of release 1.3."""
        given = self.up.inputs.expander_input or ExpanderInput()
        if not given.cluster_node_count:
            given = replace_input(given, cluster_node_count=len(self.scene.lists.all))
        given = replace_input(given, now=given.now or self.now)
        up = LegacyScaleUpLoop(
            self.p,
            self.scene,
            replace(self.state, cluster=forget_failures(self.state.cluster)),
            given,
            self.inputs.rng,
        )
        return LegacyRunOnce(self.p, self.scene, up, self.actuator, self.inputs)

    def run(self) -> StepsOf[Looping, LoopReport]:
        p, report = self.p, self.report
        shell = FunctionTimer(p, "main")
        yield from p.observe(last_activity("main", p.now))
        looked = False
        try:
            yield from self.look()
            looked = True
            yield from self.act()
        except EndedError as end:
            report.ended = end.why
            report.error = None if end.error is None else end.error.record
        except UnreadableObjectError as error:
            report.error = unreadable(error).record
        if looked:
            yield from self.conclude()
        if report.successful:
            yield from p.observe(last_activity("mainSuccessful", p.now))
        elif report.error is not None and report.error.type != TRANSIENT_ERROR:
            yield from p.observe(observation("errors_total", type=report.error.type))
        yield from shell.stop()
        report.state = self.up.plan().state
        report.groups = self.scene.groups
        report.snapshot_after = self.up.snapshot_after
        self.scene.warnings += self.actuator.tracker.take_warnings()
        return report

    # -- what is there (before anything is shown) --------------------------------------------------------------------

    def look(self) -> StepsOf[Looping, None]:
        p, scene, options = self.p, self.scene, self.options
        if not self.state.taints_cleaned:
            yield from clean_up_taints(scene.found.columns.objects, scene.groups, options, self.now)
            yield from p.clock()
            self.state = replace(self.state, taints_cleaned=True)
        yield from p.observe(*self.compare_devices())
        timer = FunctionTimer(p, "updateClusterState")
        yield from self.be_actionable()
        taints = TaintConfig.from_options(options)
        yield from p.observe(*observing.of_nodes(scene.found, self.now, taints))
        # Before the cloud is looked at anew: what is deleted meanwhile is still among its nodes.
        self.under_way = self.actuator.tracker.status(self.now)
        self.report.deletions_under_way = bool(self.under_way.deleting or self.under_way.draining)
        self.state = caught_up(self.state, self.actuator.tracker)
        yield from self.refresh()
        self.state = replace(self.state, cluster=forget_failures(self.state.cluster))
        yield from self.up.end_old_requests()
        yield from p.observe(*observing.of_groups(scene.groups, options))
        try:
            check_csi_nodes(scene.found)
        except AutoscalerError as error:
            raise EndedError(error=error) from None
        try:
            kept_tracker(scene.found)
        except InputError as error:
            text = f"failed to initialize RemainingPdbTracker: {error}"
            raise EndedError(error=AutoscalerError(INTERNAL_ERROR, text)) from None
        try:
            self.up.find_templates(self.inputs.templates)
        except AutoscalerError as error:
            text = "failed to recompute template node infos: "
            raise EndedError(error=error.with_prefix(text)) from None
        machines = yield from p.act(HasInstances(tuple(scene.found.nodes)))
        try:
            yield from self.up.update(machines.value if machines.error is None else None)
        except AutoscalerError as error:
            self.state = cleared(self.state)
            found = AutoscalerError(error.type or CLOUD_PROVIDER_ERROR, error.message)
            raise EndedError(error=found) from None
        yield from p.observe(*observing.of_readiness(self.state.cluster, scene.groups, options))
        yield from timer.stop()

    def compare_devices(self) -> list[Observation]:
        """How the devices of nodes differ from what templates say. Of drivers that differed the last time it is said
        that they do no more."""
        scene, before = self.scene, self.state.differing_drivers
        nodes = with_gpus(scene.found.columns.objects, self.inputs.gpu_label)
        slices = scene.found.informers.resource_slices
        told = device_mismatches(nodes, scene.groups, slices, self.inputs.templates, self.state.templates)
        if before or told:
            self.state = replace(self.state, differing_drivers=[*told])
        return observing.of_devices({driver: Counter[str]() for driver in before} | told)

    def be_actionable(self) -> StepsOf[Looping, None]:
        """Ends a loop that has nothing to go by. It shows its status itself."""
        lists, options = self.scene.lists, self.options
        idle = not_actionable(len(lists.all), len(lists.ready), options, self.inputs.process_age)
        if idle is None:
            return
        self.state = cleared(self.state)
        yield from self.p.observe(*observing.of_nothing())
        self.report.status = initializing_status(idle.message)
        if options.write_status_configmap:
            yield from self.show()
        if idle.tell:
            yield from self.p.emit(status_event(options, "Warning", "ClusterUnhealthy", idle.message))
        raise EndedError(idle.message)

    def refresh(self) -> StepsOf[Looping, None]:
        timer = FunctionTimer(self.p, "cloudProviderRefresh")
        outcome = yield from self.p.act(Refresh())
        if outcome.value is not None:
            try:
                self.scene.adopt(outcome.value)
            except InputError as error:
                raise EndedError(error=AutoscalerError(CLOUD_PROVIDER_ERROR, str(error))) from None
        if self.options.async_node_groups:
            self.state = replace(self.state, cluster=recalculate(self.state.cluster, self.scene.groups))
        yield from timer.stop()
        if outcome.error == CANCELED:
            raise EndedError("the process ends")
        if outcome.error is not None:
            raise EndedError(error=AutoscalerError(CLOUD_PROVIDER_ERROR, outcome.error.message))

    # -- what is done ------------------------------------------------------------------------------------------------

    def act(self) -> StepsOf[Looping, None]:
        p, up, options = self.p, self.up, self.options
        yield from self.repair()
        yield from p.observe(last_activity("autoscaling", p.now))
        timer = FunctionTimer(p, "filterOutSchedulable")
        yield from up.look_at_pods(
            None,
            [item.node for item in self.under_way.draining],
            self.inputs.enforcer,
            self.inputs.max_looks,
        )
        yield from timer.stop()
        yield from p.observe(
            observation("unschedulable_pods_count", up.before.unschedulable, type="unschedulable"),
            observation("unschedulable_pods_count", up.before.unprocessed, type="scheduler_unprocessed"),
        )
        if up.before.placed is not None:
            overflowing = up.before.placed.overflowing_controllers
            yield from p.observe(
                observation("skipped_pods_count", up.before.lists.out_of_time, requestor=_FILTER_OUT_SCHEDULABLE),
                observation("overflowing_controllers_count", overflowing),
            )
        if (yield from p.wait(0)).error is not None:
            raise EndedError("the process ends")
        if not up.result:
            yield from self.growing(up.scale())
            for done in up.rounds:
                yield from p.observe(*done.observations)
                labels = done.templates, self.inputs.gpu_label, self.inputs.gpu_types
                yield from p.observe(*observing.of_skipped(done.exceeded))
                yield from p.observe(*observing.of_scale_ups(done.resized, *labels))
        if may_scale_down(self.state.scale_up.degraded_loops, options):
            yield from self.shrink()
        if options.enforce_node_group_min_size:
            yield from self.growing(up.raise_to_minimum())
            assert up.minimum is not None
            labels = up.made, self.inputs.gpu_label, self.inputs.gpu_types
            yield from p.observe(*observing.of_scale_ups(up.minimum.resized, *labels))

    def growing(self, steps: StepsOf[Orchestrating | WriteStatus, None]) -> StepsOf[Looping, None]:
        """A part that makes the cluster grow, timed. What a loop keeps of its outcome: ``scale_up/loop.py``."""
        timer = FunctionTimer(self.p, "scaleUp")
        yield from self.p.observe(last_activity("scaleUp", self.p.now))
        yield from steps
        yield from timer.stop()

    def repair(self) -> StepsOf[Looping, None]:
        p, scene, options, now = self.p, self.scene, self.options, self.now
        repair = self.report.repair = Repair()
        if self.state.cluster.unregistered:
            steps = remove_old_unregistered_steps(p, self.state.cluster, scene.groups, repair, now=now, options=options)
            yield from steps
            gone = sum(map(len, repair.removed.values()))
            if gone:
                yield from p.observe(observation("old_unregistered_nodes_removed_count", gone))
        if not is_cluster_healthy(self.state.cluster, options):
            repair.healthy = False
            self.state = cleared(self.state)
            yield from p.emit(status_event(options, "Warning", "ClusterUnhealthy", "Cluster is unhealthy"))
            raise EndedError("Cluster is unhealthy")
        yield from delete_created_with_errors_steps(p, scene.groups, repair, options=options)
        targets = repair.targets(scene.groups)
        if targets:
            scene.groups = scene.groups.with_targets(targets)
        if repair.deleted:
            self.state = replace(self.state, cluster=recalculate(self.state.cluster, scene.groups))
        yield from fix_node_group_size_steps(p, self.state.cluster, scene.groups, repair, now=now, options=options)
        scene.warnings += repair.warnings
        if repair.error is not None:
            raise EndedError(error=AutoscalerError(repair.error.type, repair.error.message))
        if repair.fixed:
            raise EndedError("Some node group target size was fixed, skipping the iteration")

    # -- what is shown -----------------------------------------------------------------------------------------------

    def conclude(self) -> StepsOf[Looping, None]:
        """What upstream defers until the loop is over, however it ended."""
        p, options, tracker = self.p, self.options, self.actuator.tracker
        if self.up.before.asked is not None:
            self.report.scale_up = self.up.plan()
        known = set(self.up.made)
        if options.write_status_configmap:
            status = cluster_status(
                self.state.cluster, self.scene.groups, now=self.now, options=options, templates=known
            )
            self.state = replace(self.state, cluster=replace(self.state.cluster, last_status=status))
            self.report.status = status
            yield from self.show()
        if not options.enforce_node_group_min_size:
            yield from self.up.tell_untried()
        if self.report.scale_down is not None and options.node_removal_latency_tracking_enabled:
            kept = {name: item.reason for name, item in self.report.scale_down.unremovable.items()}
            started = self.report.started.nodes if self.report.started is not None else []
            latencies, gone = self.state.latencies.process(kept, [item.node for item in started], self.now)
            self.state = replace(self.state, latencies=latencies)
            yield from p.observe(*observing.of_latencies(gone))
        results, newest = tracker.results(p.now)
        tracker.clear_results_not_newer_than(newest)
        self.report.deletion_results = results
        labels = self.up.made, self.inputs.gpu_label, self.inputs.gpu_types
        yield from p.observe(*observing.of_failures(self.state.cluster, *labels))
        if options.emit_per_nodegroup_metrics:
            found = observing.of_health(self.state.cluster, self.scene.groups, self.now, options, known)
            yield from p.observe(*found)
