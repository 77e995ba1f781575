"""``kscale.scale_down``: one loop of the planner, or of the planner of release 1.3.

Upstream: ``core/scaledown/planner/planner.go``; of release 1.3 ``core/scale_down.go``.
"""

from __future__ import annotations

from datetime import datetime

from kscale.ca.capacity_buffers import place_buffer_pods
from kscale.ca.group_inputs import restore_targets
from kscale.ca.legacy.scale_down import plan_legacy_scale_down, reject_unsupported_inputs
from kscale.ca.loop_context import check_csi_nodes, coerce_loop_snapshot
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists.should_scale_up import can_scale_down
from kscale.ca.scale_down.inputs import PlannerInput, ScaleDownInputs
from kscale.ca.scale_down.plan import ScaleDownPlan, build_not_tried_plan
from kscale.ca.scale_down.planner import plan_scale_down
from kscale.ca.state.loop_state import LoopState
from kscale.effects import Moment, moment
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
    options = options or AutoscalingOptions()
    before, inputs = state or LoopState(), inputs or ScaleDownInputs()
    at = moment(now)
    snapshot = coerce_loop_snapshot(cluster, options, at)
    if options.legacy:
        reject_unsupported_inputs(inputs, options, exhaustive=exhaustive)
    else:
        check_csi_nodes(snapshot)
        if options.capacity_buffer_pod_injection_enabled and not inputs.pods_placed:
            snapshot = place_buffer_pods(snapshot, now=at, options=options, profile=inputs.profile)
    if not exhaustive and not can_scale_down(before.scale_up.degraded_loops, options):
        return build_not_tried_plan(before)
    planner_input = PlannerInput(snapshot, restore_targets(groups, snapshot, state, at), at, options, before)
    if options.legacy:
        return plan_legacy_scale_down(planner_input, inputs)
    return plan_scale_down(planner_input, inputs, exhaustive=exhaustive)
