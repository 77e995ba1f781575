"""``kscale.scale_down``: one loop of the planner, or of the planner of release 1.3.

Upstream: ``core/scaledown/planner/planner.go``; of release 1.3 ``core/scale_down.go``.
"""

from __future__ import annotations

from datetime import datetime

from kscale.ca.capacity_buffers import place_buffer_pods
from kscale.ca.group_inputs import restore_targets
from kscale.ca.loop_context import check_csi_nodes, coerce_loop_snapshot
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists.should_scale_up import can_scale_down
from kscale.ca.scale_down.inputs import PlannerInput, ScaleDownInputs
from kscale.ca.scale_down.plan import ScaleDownPlan, build_not_tried_plan
from kscale.ca.scale_down.planner import Planner
from kscale.ca.state import LoopState
from kscale.effects import Moment, moment
from kscale.errors import InputError, Problem
from kscale.objects.argument_types import typed
from kscale.objects.nodegroups import GroupsLike
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["scale_down"]


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
    """Decide one loop of scale-down. Nothing is deleted: the caller acts, and says next time what happened.

    ``inputs``: what there is to say besides, deletions under way above all (:class:`kscale.ca.ScaleDownInputs`).

    ``exhaustive`` answers another question than upstream's loop, outside exact mode: which nodes could go together, if
    all of them were judged, none had to wait, and nothing but minimum sizes and resources limited their number.
    Candidates that failed are asked again until none more can go, with the pods that moved where they are now; another
    order of candidates may give another set. A node that turns out to be held by a minimum, by its group, or by pods
    that are to finish first is left out, and the others are judged without it. Besides, ``plan.alone`` judges every
    eligible node as if no other went, when it is first read. The state comes back as it was.

    A loop that may not scale down at all (``scale_down_enabled``, graceful degradation) judges nothing.

    With the ``legacy`` profile in the options the planner of release 1.3 decides (:mod:`kscale.ca.legacy.scale_down`).

    Raises InputError for a disruption budget with a broken selector, for a ``now`` that is no moment or is before the
    last loop's, and for what the legacy profile does not know: ``exhaustive``, ``recent_evictions``, ``upcoming``,
    ``max_simulations``, ``threads`` and capacity buffers. Raises
    :class:`kscale.ca.AutoscalerError` for a node without CSINode where the options ask for CSI-node-aware simulation.
    """
    options = options or AutoscalingOptions()
    before, inputs = state or LoopState(), inputs or ScaleDownInputs()
    at = moment(now)
    snapshot = coerce_loop_snapshot(cluster, options, at)
    if options.legacy:
        _reject_legacy_inputs(
            exhaustive=exhaustive,
            recent_evictions=bool(inputs.recent_evictions),
            upcoming=bool(inputs.upcoming),
            max_simulations=inputs.max_simulations is not None,
            threads=inputs.threads is not None,
            capacity_buffer_pod_injection_enabled=options.capacity_buffer_pod_injection_enabled,
        )
    else:
        check_csi_nodes(snapshot)
        if options.capacity_buffer_pod_injection_enabled and not inputs.pods_placed:
            snapshot = place_buffer_pods(snapshot, now=at, options=options, profile=inputs.profile)
    if not exhaustive and not can_scale_down(before.scale_up.degraded_loops, options):
        return build_not_tried_plan(before)
    planner_input = PlannerInput(snapshot, restore_targets(groups, snapshot, state, at), at, options, before)
    if options.legacy:
        from kscale.ca.legacy.scale_down import plan_legacy_scale_down

        return plan_legacy_scale_down(planner_input, inputs)
    barred: dict[str, str] = {}
    while True:
        plan = Planner(planner_input, inputs, exhaustive=exhaustive, barred=barred).run()
        if not exhaustive or plan.chosen is None or not plan.chosen.unremovable:
            return plan
        # Repeat without nodes that may not be deleted after all, as their simulated removal changed the free room.
        barred |= plan.chosen.unremovable
        planner_input = PlannerInput(snapshot, planner_input.groups, planner_input.now, options, before)


def _reject_legacy_inputs(**given: bool) -> None:
    what = "the planner of release 1.3 does not know it"
    problems = [Problem(what, field=name) for name, is_given in given.items() if is_given]
    if problems:
        raise InputError(problems)
