"""``kscale.scale_up``: one scale-up, by the rule that belongs to the node groups."""

from __future__ import annotations

from datetime import datetime
from typing import overload

from kscale.ca import entry_points
from kscale.ca.expander.types import RankResponder
from kscale.ca.loop_context import LoopInputs
from kscale.ca.loop_state import LoopState
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_up.plan import ScaleUpPlan
from kscale.capacity.karpenter.plan import KarpenterPlan, PoolOffers, karpenter_plan
from kscale.effects import Moment, moment
from kscale.errors import InputError, Problem
from kscale.objects.argument_types import typed, unchecked
from kscale.objects.nodegroup import GroupsLike
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["scale_up"]

_scale_up_groups = unchecked(entry_points.scale_up)


@overload
def scale_up(
    cluster: Cluster | Snapshot,
    groups: GroupsLike,
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    state: LoopState | None = None,
    inputs: LoopInputs | None = None,
    rank: RankResponder | None = None,
) -> ScaleUpPlan: ...


@overload
def scale_up(
    cluster: Cluster | Snapshot,
    groups: PoolOffers,
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    state: LoopState | None = None,
    inputs: LoopInputs | None = None,
    rank: RankResponder | None = None,
) -> KarpenterPlan: ...


@typed
def scale_up(
    cluster: Cluster | Snapshot,
    groups: GroupsLike | PoolOffers,
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    state: LoopState | None = None,
    inputs: LoopInputs | None = None,
    rank: RankResponder | None = None,
) -> ScaleUpPlan | KarpenterPlan:
    """Decide one scale-up as if everything succeeded: by the Cluster Autoscaler's loop, or by Karpenter's rule.

    Parameters
    ----------
    cluster : Cluster or Snapshot
        Cluster state.
    groups : Groups, iterable or PoolOffers
        Node groups, for the Cluster Autoscaler; or NodePools with what they may launch, for Karpenter.
    now : datetime or Moment
        Time of the decision.
    options : AutoscalingOptions, optional
        Flags of the Cluster Autoscaler. Karpenter's rule reads ``bypassed_scheduler_names`` only.
    state : LoopState, optional
        State of the Cluster Autoscaler's previous loop.
    inputs : LoopInputs, optional
        Further inputs. Karpenter's rule reads ``pods`` only.
    rank : RankResponder, optional
        Answers for the grpc expander of the Cluster Autoscaler.

    Returns
    -------
    ScaleUpPlan or KarpenterPlan
        The plan; a KarpenterPlan for NodePools.

    Raises
    ------
    InputError
        If the groups or ``now`` cannot be used, if NodePools come with a state or a ranker, or if Karpenter's rule is
        to place a pod that is not in the cluster.

    Notes
    -----
    Upstream: the Cluster Autoscaler's ``core/static_autoscaler.go`` (:func:`kscale.ca.scale_up`), and Karpenter's
    ``pkg/controllers/provisioning`` (:func:`~kscale.capacity.karpenter.karpenter_plan`).
    """
    if not isinstance(groups, PoolOffers):
        return _scale_up_groups(cluster, groups, now=now, options=options, state=state, inputs=inputs, rank=rank)
    moment(now)
    for name, value in (("state", state), ("rank", rank)):
        if value is not None:
            text = "belongs to the Cluster Autoscaler, and Karpenter's rule decides for NodePools"
            raise InputError(Problem(text, field=name))
    pods = list(inputs.pods) if inputs is not None and inputs.pods is not None else None
    bypassed = options.bypassed_scheduler_names if options is not None else ()
    return karpenter_plan(cluster, groups, pods=pods, bypassed=bypassed)
