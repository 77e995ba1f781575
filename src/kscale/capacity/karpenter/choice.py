"""Nodes that Karpenter would launch for pending pods, as records: new nodes by type, the cheapest type for each node.

Upstream: ``sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling`` and ``pkg/cloudprovider/types.go``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from kscale.capacity.catalogue import InstanceType
from kscale.capacity.group_templates import with_templates
from kscale.capacity.karpenter.node_claim import OfferedPools, PlannedClaim
from kscale.capacity.karpenter.node_pools import NodePools
from kscale.capacity.karpenter.offerings import PoolGroups, groups_of_pools
from kscale.capacity.karpenter.scheduler import Placement, place_pods
from kscale.capacity.mix.start import StartPlan
from kscale.capacity.records import KarpenterChoice, KarpenterLine, round_money
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import NodeGroup
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["karpenter_choice", "plan_nodes", "summarize"]


@typed
def karpenter_choice(
    cluster: Cluster,
    pools: NodePools,
    kinds: Sequence[InstanceType],
    *,
    pods: Sequence[str] | None = None,
    zones: Sequence[str] = (),
    region: str = "",
) -> KarpenterChoice:
    """Compute the nodes that Karpenter would launch for pending pods.

    Parameters
    ----------
    cluster : Cluster
        The existing nodes and pods.
    pools : NodePools
        The NodePools.
    kinds : sequence of InstanceType
        The instance types of the cloud, with their prices.
    pods : sequence of str, optional
        Names of pending pods. Default: all pending pods. Those of DaemonSets are left out.
    zones, region
        As for :func:`~kscale.capacity.karpenter.groups_of_pools`.

    Returns
    -------
    KarpenterChoice
        New nodes by type, and the pods that stay pending.

    Raises
    ------
    InputError
        If a pool allows none of the types, or if a pod is not in the cluster or is named twice.

    Notes
    -----
    Upstream: ``pkg/controllers/provisioning/scheduling/scheduler.go``. Pods are sorted by cpu, then memory, the largest
    first. Each goes to the first existing node that takes it, else to the new node with the fewest pods that takes it,
    else to a new node of the first NodePool that does. A new node keeps all instance types that suit its pods; in the
    end it becomes the cheapest of them (reserved or spot, if a type is offered so).
    """
    snapshot = cluster.snapshot(dra=True)
    converted = groups_of_pools(pools, kinds, zones=zones, region=region, nodes=snapshot.columns.objects)
    groups = with_templates(cluster, snapshot, converted.groups)
    return plan_nodes(snapshot, snapshot.pending if pods is None else pods, pools, converted, groups)[0]


def plan_nodes(
    snapshot: Snapshot,
    pods: Sequence[str],
    pools: NodePools,
    converted: PoolGroups,
    groups: Iterable[NodeGroup],
) -> tuple[KarpenterChoice, StartPlan]:
    """Compute :func:`karpenter_choice` for converted NodePools; also return it as a plan with which a mix is compared.

    ``pods``: names of pending pods. ``groups`` are those of ``converted`` with their templates, which have the pods of
    DaemonSets.
    """
    placement = place_pods(snapshot, pods, OfferedPools(pools, converted, groups))
    nodes = [(claim.offerings[0].group, claim.pods) for claim in placement.claims]
    return summarize(placement), StartPlan(nodes, placement.existing)


def summarize(placement: Placement) -> KarpenterChoice:
    """Build the record of a placement: its new nodes by type, the most expensive first."""
    claims = placement.claims
    by_key: dict[tuple[str, str, str, str], list[PlannedClaim]] = defaultdict(list)
    for claim in claims:
        best = claim.offerings[0]
        by_key[claim.pool, best.kind.name, best.capacity_type, claim.zone].append(claim)
    lines = [
        KarpenterLine(
            node_pool=key[0],
            type=key[1],
            capacity_type=key[2],
            zone=key[3],
            nodes=len(equal),
            pods=sum(len(claim.pods) for claim in equal),
            price=price,
            cost=None if price is None else round_money(price * len(equal)),
        )
        for key, equal in by_key.items()
        for price in (equal[0].offerings[0].price,)
    ]
    lines.sort(key=lambda line: (-(line.cost or 0.0), line.node_pool, line.type, line.zone))
    costs = [line.cost for line in lines]
    return KarpenterChoice(
        pods=len(placement.pods),
        on_existing=len(placement.existing),
        on_new=sum(line.pods for line in lines),
        nodes=len(claims),
        cost=None if None in costs else round_money(sum(cost for cost in costs if cost is not None)),
        lines=lines,
        unschedulable=placement.unschedulable,
        unmodelled=placement.unmodelled,
    )
