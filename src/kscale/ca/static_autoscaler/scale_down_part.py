"""The scale-down of a loop: what is unneeded, what goes now, and the marks of both (``core/static_autoscaler.go``).

Candidates, cool-down and choice: :mod:`kscale.ca.scale_down.planner`.
"""

from __future__ import annotations

from msgspec.structs import replace

from kscale.ca.cluster_state import (
    recalculate,
    register_candidates,
)
from kscale.ca.errors import AutoscalerError
from kscale.ca.metrics import FunctionTimer, last_activity, observation
from kscale.ca.scale_down.actuation.remember import remember_start
from kscale.ca.scale_down.actuation.soft_tainting import update_soft_taints
from kscale.ca.scale_down.inputs import ScaleDownInputs
from kscale.ca.scale_down.max_skip import MaxNodeSkipEvalTime
from kscale.ca.scale_down.one_loop import scale_down
from kscale.ca.scale_down.plan import ScaleDownPlan
from kscale.ca.static_autoscaler import observing
from kscale.ca.static_autoscaler.ending import EndedError
from kscale.ca.static_autoscaler.under_way import Looping, LoopUnderWay
from kscale.ca.static_autoscaler.unneeded_groups import remove_unneeded_groups
from kscale.effects import (
    SECOND,
    Observation,
    StepsOf,
)

__all__ = ["ScaleDownPart"]


class ScaleDownPart(LoopUnderWay):
    """A loop that comes to its scale-down."""

    def shrink(self) -> StepsOf[Looping, None]:
        p, up, options, inputs, now = self.p, self.up, self.options, self.inputs, self.now
        timer = FunctionTimer(p, "findUnneeded")
        plan = self.report.scale_down = scale_down(
            up.snapshot_after,
            self.scene.groups,
            now=now,
            options=options,
            state=self.state,
            inputs=ScaleDownInputs(
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
        cluster = register_candidates(plan.state.cluster, unneeded, self.scene.groups, now)
        self.state = replace(plan.state, cluster=cluster)
        yield from p.observe(observation("unneeded_nodes_count", len(unneeded)))
        yield from p.observe(*self.track(plan))
        yield from timer.stop()
        cooldown = plan.result == "ScaleDownInCooldown"
        yield from p.observe(observation("scale_down_in_cooldown", int(cooldown)))
        if not self.under_way.draining:
            yield from remove_unneeded_groups(p, self.scene, self.report)
        error = None
        if plan.result == "ScaleDownNoCandidates":
            yield from p.observe(last_activity("scaleDown", p.now))
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
            raise EndedError(error=error)

    def track(self, plan: ScaleDownPlan) -> list[Observation]:
        """How long nodes wait to be looked at, and to go, where somebody wants to know."""
        options, found = self.options, []
        if options.max_node_skip_eval_time_tracker_enabled:
            known = self.state.skipped or MaxNodeSkipEvalTime(last=self.now)
            skipped, longest = known.update(plan.skipped, self.now)
            self.state = replace(self.state, skipped=skipped)
            found.append(observation("max_node_skip_eval_duration_seconds", longest / SECOND))
        if options.node_removal_latency_tracking_enabled:
            latencies, needed = self.state.latencies.update(plan.unneeded, self.now)
            self.state = replace(self.state, latencies=latencies)
            found += observing.of_latencies(needed)
        return found

    def start(self, plan: ScaleDownPlan) -> StepsOf[Looping, AutoscalerError | None]:
        """Begins deletions, and does not wait for them."""
        p = self.p
        timer = FunctionTimer(p, "scaleDown")
        yield from p.observe(last_activity("scaleDown", p.now))
        assert plan.chosen is not None
        started = self.report.started = yield from self.actuator.start_deletion_in(
            p, plan.chosen.empty, plan.chosen.drain, self.up.snapshot_after, self.scene.groups
        )
        self.state = replace(remember_start(self.state, started, self.now), deletions=self.actuator.tracker.deletions())
        yield from timer.stop()
        yield from p.observe(*observing.of_unremovable(plan.unremovable))
        if started.result == "ScaleDownNodeDeleteStarted":
            self.state = replace(self.state, cluster=recalculate(self.state.cluster, self.scene.groups))
        return None if started.error is None else AutoscalerError(started.error.type, started.error.message)
