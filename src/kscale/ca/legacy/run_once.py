"""One whole loop of release 1.3 (``core/static_autoscaler.go`` of then), told as a report of today.

What differs from today's: machines that were removed end the loop, and so does a refusal to remove them; machines that
should long have registered make a cluster unhealthy; the cloud is not asked whether machines still run; nothing looks
for machines that could not be made; a scale-up ends the loop, and its error is the loop's; nodes that are coming are in
no simulation; the loop waits for empty nodes to go, and while a node is drained no other goes; there are no soft taints
and no minimum sizes. The status is a text (:mod:`kscale.ca.legacy.status_text`).
"""

from __future__ import annotations

from msgspec.structs import replace

from kscale.ca.actionable import not_actionable
from kscale.ca.cluster_state import cluster_status, register_candidates
from kscale.ca.errors import CLOUD_PROVIDER_ERROR, TRANSIENT_ERROR, AutoscalerError
from kscale.ca.event_subjects import status_event
from kscale.ca.legacy.actuation import LegacyDeleting, delete_empty_nodes, free_ready_nodes, start_draining
from kscale.ca.legacy.metrics import gpu_name_1_3
from kscale.ca.legacy.scale_up_loop import LegacyScaleUpLoop, LegacyScalingUp
from kscale.ca.legacy.status_text import shown_1_3, status_1_3
from kscale.ca.legacy.unregistered import remove_unregistered_1_3
from kscale.ca.metrics import PREFIX, FunctionTimer, last_activity, observation
from kscale.ca.repair import Repair, Repairing, fix_node_group_size_steps
from kscale.ca.scale_down.actuation.actuator import Actuator
from kscale.ca.scale_down.actuation.remember import caught_up
from kscale.ca.scale_down.actuation.results import StartedDeletion
from kscale.ca.scale_down.inputs import ScaleDownInputs
from kscale.ca.scale_down.one_loop import scale_down
from kscale.ca.scale_down.plan import ScaleDownPlan
from kscale.ca.scale_up.scene import Scene
from kscale.ca.scale_up.status import SUCCESSFUL
from kscale.ca.static_autoscaler import observing
from kscale.ca.static_autoscaler.ending import EndedError, unreadable
from kscale.ca.static_autoscaler.inputs import LoopInputs
from kscale.ca.static_autoscaler.report import LoopReport
from kscale.ca.static_autoscaler.unneeded_groups import remove_unneeded_groups
from kscale.ca.status_config_map import WritingStatus, write_status
from kscale.effects import DeleteGroup, Emit, Observation, Observe, Progress, Refresh, StepsOf, Wait
from kscale.errors import InputError, UnreadableObjectError
from kscale.objects.core import Pod

__all__ = ["LegacyLooping", "LegacyRunOnce"]

LegacyLooping = (
    LegacyScalingUp | LegacyDeleting | Repairing | WritingStatus | Refresh | DeleteGroup | Observe | Wait | Emit
)
"""What a whole loop asks for."""
_DEVICES = ("gpu_resource_name", "gpu_name", "dra_drivers")


class LegacyRunOnce:
    """One loop under way."""

    def __init__(
        self, p: Progress, scene: Scene, up: LegacyScaleUpLoop, actuator: Actuator, inputs: LoopInputs
    ) -> None:
        self.p, self.scene, self.up, self.actuator, self.inputs = p, scene, up, actuator, inputs
        self.looked = False
        self.options, self.now = scene.options, scene.now
        self.report = LoopReport(
            state=up.state, groups=scene.groups, snapshot_after=scene.found, warnings=scene.warnings
        )

    def run(self) -> StepsOf[LegacyLooping, LoopReport]:
        """The loop."""
        p, report = self.p, self.report
        timer = FunctionTimer(p, "main")
        yield from p.observe(last_activity("main", p.now))
        try:
            yield from self.look()
            yield from self.repair()
            yield from p.observe(last_activity("autoscaling", p.now))
            yield from self.grow()
            if self.options.scale_down_enabled:
                yield from self.shrink()
        except EndedError as end:
            report.ended, report.error = end.why, None if end.error is None else end.error.record
        except UnreadableObjectError as error:
            report.error = unreadable(error).record
        if self.looked and self.options.write_status_configmap:
            yield from self.show()
        yield from p.observe(
            *(
                observation("failed_scale_ups_total", 1.0, reason=failure.error.code, **dict.fromkeys(_DEVICES, ""))
                for failures in self.up.state.cluster.failures.values()
                for failure in failures
            )
        )
        if report.error is not None and report.error.type != TRANSIENT_ERROR:
            yield from p.observe(observation("errors_total", type=report.error.type))
        if report.successful:
            yield from p.observe(last_activity("mainSuccessful", p.now))
        yield from timer.stop()
        report.state, report.groups, report.snapshot_after = self.up.state, self.scene.groups, self.scene.snapshot
        return report

    def look(self) -> StepsOf[LegacyLooping, None]:
        p, scene, options = self.p, self.scene, self.options
        if not self.up.state.taints_cleaned:
            yield from free_ready_nodes(p, scene.found.columns.objects)
            yield from p.clock()
            self.up.state = replace(self.up.state, taints_cleaned=True)
        timer = FunctionTimer(p, "updateClusterState")
        without_flag = replace(options, scale_up_from_zero=False)  # it is younger
        idle = not_actionable(len(scene.lists.all), len(scene.lists.ready), without_flag, self.inputs.process_age)
        if idle is not None:
            self.up.forget_unneeded()
            yield from p.observe(*observing.of_nothing())
            yield from self.write(idle.message)
            if idle.tell:
                yield from p.emit(status_event(options, "Warning", "ClusterUnhealthy", idle.message))
            raise EndedError(idle.message)
        self.under_way = self.actuator.tracker.status(self.now)
        self.report.deletions_under_way = bool(self.under_way.draining)
        self.up.state = caught_up(self.up.state, self.actuator.tracker)
        self.up.find_templates()
        outcome = yield from p.act(Refresh())
        if outcome.error is not None:
            raise EndedError(error=AutoscalerError(CLOUD_PROVIDER_ERROR, outcome.error.message))
        if outcome.value is not None:
            try:
                scene.adopt(outcome.value)
            except InputError as error:
                raise EndedError(error=AutoscalerError(CLOUD_PROVIDER_ERROR, str(error))) from None
        try:
            yield from self.up.update(self.inputs.templates)
        except AutoscalerError as error:
            self.up.forget_unneeded()
            raise EndedError(error=AutoscalerError(error.type or CLOUD_PROVIDER_ERROR, error.message)) from None
        yield from p.observe(*observing.of_readiness(self.up.state.cluster, scene.groups, options))
        yield from timer.stop()
        self.looked = True

    def show(self) -> StepsOf[WritingStatus, None]:
        """What that release deferred until the loop was over, however it ended."""
        scene, now = self.scene, self.now
        status = cluster_status(self.up.state.cluster, scene.groups, now=now, options=self.options)
        cluster = replace(self.up.state.cluster, last_status=status)
        self.up.state = replace(self.up.state, cluster=cluster)
        self.report.status = status
        yield from self.write(status_1_3(status, cluster))

    def write(self, message: str) -> StepsOf[WritingStatus, None]:
        if self.options.write_status_configmap:
            written = self.p.now
            problem = yield from write_status(self.p, shown_1_3(message, written), self.options, written)
            if problem is not None:
                self.scene.warnings.append(problem)

    def repair(self) -> StepsOf[LegacyLooping, None]:
        p, scene, options, now = self.p, self.scene, self.options, self.now
        repair = self.report.repair = Repair()
        if self.up.state.cluster.unregistered:
            error = yield from remove_unregistered_1_3(
                p, self.up.state.cluster, scene.groups, repair, now=now, options=options
            )
            scene.warnings += repair.warnings
            if repair.removed:
                scene.groups = scene.groups.with_targets(repair.targets(scene.groups))
            if error is not None:
                raise EndedError(error=error)
            if repair.removed:
                raise EndedError("Some unregistered nodes were removed, skipping iteration")
        if not (yield from self.up.is_healthy()):
            repair.healthy = False
            raise EndedError("Cluster is unhealthy")
        yield from fix_node_group_size_steps(p, self.up.state.cluster, scene.groups, repair, now=now, options=options)
        if repair.error is not None:
            raise EndedError(error=AutoscalerError(repair.error.type, repair.error.message))
        if repair.fixed:
            raise EndedError("Some node group target size was fixed, skipping the iteration")

    def grow(self) -> StepsOf[LegacyLooping, None]:
        p, up = self.p, self.up
        timer = FunctionTimer(p, "filterOutSchedulable")
        tried = up.filter_pods()
        yield from p.observe(observation("unschedulable_pods_count", up.before.unschedulable, type="unschedulable"))
        yield from timer.stop()
        if tried:
            yield from p.observe(last_activity("scaleUp", p.now))
            timer = FunctionTimer(p, "scaleUp")
            yield from up.scale_up()
            yield from p.observe(*self.new_nodes())
            yield from timer.stop()
        plan = self.report.scale_up = up.plan
        if plan.error is not None:
            raise EndedError(error=AutoscalerError(plan.error.type, plan.error.message))
        if plan.result == SUCCESSFUL:
            raise EndedError("No scale down in this iteration")

    def new_nodes(self) -> list[Observation]:
        """Count the nodes that the scale-up asked for."""
        done = self.up.plan.done
        if done is None:
            return []
        counted = []
        for info, _ in done.resized:
            count = float(info.new - info.current)
            counted.append(Observation(name=f"{PREFIX}scaled_up_nodes_total", value=count))
            template = self.up.made.get(info.group)
            gpu = "" if template is None else gpu_name_1_3(template.node, None)
            if gpu:
                counted.append(
                    Observation(name=f"{PREFIX}scaled_up_gpu_nodes_total", value=count, labels={"gpu_name": gpu})
                )
        return counted

    def shrink(self) -> StepsOf[LegacyLooping, None]:
        p, scene, options, inputs = self.p, self.scene, self.options, self.inputs
        timer = FunctionTimer(p, "findUnneeded")
        plan = self.report.scale_down = scale_down(
            scene.found,
            scene.groups,
            now=self.now,
            options=options,
            state=self.up.state,
            inputs=ScaleDownInputs(
                limits=inputs.limits,
                draining=self.under_way.draining,
                disabled=self.up.before.scale_down_disabled,
                gpu_label=inputs.gpu_label,
                profile=inputs.profile,
            ),
        )
        unneeded = [item.name for item in plan.unneeded]
        cluster = register_candidates(plan.state.cluster, unneeded, scene.groups, self.now)
        self.up.state = replace(plan.state, cluster=cluster)
        yield from p.observe(observation("unneeded_nodes_count", len(plan.unneeded)))
        yield from timer.stop()
        if plan.chosen is None:  # cool-down, or a node is being drained
            return
        if options.node_autoprovisioning_enabled:
            yield from remove_unneeded_groups(p, scene, self.report, options)
        yield from p.observe(last_activity("scaleDown", p.now))
        timer = FunctionTimer(p, "scaleDown")
        error = yield from self.delete(plan)
        yield from timer.stop()
        if error is not None:
            memory = replace(self.up.state.scale_down, last_failure=self.now)
            self.up.state = replace(self.up.state, scale_down=memory)
            raise EndedError(error=error)

    def delete(self, plan: ScaleDownPlan) -> StepsOf[LegacyLooping, AutoscalerError | None]:
        p, tracker, snapshot = self.p, self.actuator.tracker, self.scene.found
        chosen = plan.chosen
        assert chosen is not None
        nodes, index = snapshot.columns.objects, snapshot.columns.index
        error = None
        if chosen.empty:
            going = [nodes[index[name]] for name in chosen.empty]
            timer = FunctionTimer(p, "scaleDown:nodeDeletion")
            error = yield from delete_empty_nodes(p, going, self.scene.groups, self.options, tracker, self.up.made)
            yield from timer.stop()
            if error is None:
                memory = replace(self.up.state.scale_down, last_scale_down=self.now)
                self.up.state = replace(self.up.state, scale_down=memory)
        for name in chosen.drain:
            pods: list[Pod] = [snapshot.pod(key) for key in plan.removable[name].placement]
            used = plan.eligibility[name].utilization if name in plan.eligibility else None
            yield from start_draining(
                p,
                nodes[index[name]],
                pods,
                self.scene.groups,
                self.options,
                tracker,
                self.up.made,
                0.0 if used is None else used.utilization,
            )
        result = "ScaleDownError" if error is not None else plan.result
        self.report.started = StartedDeletion(result=result, error=None if error is None else error.record)
        self.up.state = caught_up(self.up.state, tracker)
        return error
