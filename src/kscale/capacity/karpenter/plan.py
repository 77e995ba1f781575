"""Scale-up by Karpenter's rule: the nodes that it would launch for pending pods, and which node each pod would get.

Upstream: ``sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling`` and ``pkg/cloudprovider/types.go``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec

from kscale.capacity.catalogue import InstanceType
from kscale.capacity.group_templates import with_templates
from kscale.capacity.karpenter.cluster_view import is_provisionable
from kscale.capacity.karpenter.node_claim import OfferedPools, PlannedClaim
from kscale.capacity.karpenter.node_pools import NodePools
from kscale.capacity.karpenter.offerings import PoolGroups, groups_of_pools, remaining_of_pools
from kscale.capacity.karpenter.scheduler import Placement, place_pods
from kscale.capacity.mix.start import StartPlan
from kscale.capacity.records import KarpenterChoice, KarpenterLine, round_money
from kscale.objects.api.apps import DaemonSet
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import NodeGroup
from kscale.records import Record
from kscale.scheduling.coercion import pods_of
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "RULE",
    "KarpenterClaim",
    "KarpenterPlan",
    "PoolOffers",
    "count_by_group",
    "karpenter_choice",
    "karpenter_plan",
    "place_pending",
    "plan_nodes",
    "summarize",
]

RULE = "first fit on existing nodes, then on new ones, each of which becomes the cheapest type for its pods"
"""Karpenter's rule in words."""


@dataclass(frozen=True)
class PoolOffers:
    """NodePools with what they may launch: node groups for :func:`kscale.scale_up` and what-if scenarios.

    Attributes
    ----------
    pools : NodePools
        The NodePools.
    converted : PoolGroups
        Their offerings (:func:`~kscale.capacity.karpenter.groups_of_pools`).
    """

    pools: NodePools
    converted: PoolGroups

    def restrict(self, groups: Sequence[NodeGroup]) -> PoolOffers:
        """Return the offers whose groups are among ``groups``, with the prices and templates of ``groups``.

        Limits and assumptions stay; ``types`` and ``left`` of the result are empty.
        """
        by_name = {group.id: group for group in groups}
        offerings = [
            replace(each, price=by_name[each.group].price) for each in self.converted.offerings if each.group in by_name
        ]
        converted = PoolGroups(
            [by_name[each.group] for each in offerings], offerings, self.converted.limits, self.converted.assumptions
        )
        return PoolOffers(self.pools, converted)


class KarpenterClaim(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A new node of a NodePool.

    Attributes
    ----------
    node_pool : str
        Name of the NodePool.
    type : str
        Instance type.
    capacity_type : str
        Capacity type, such as ``on-demand`` or ``spot``.
    zone : str
        Zone. Empty: several zones have the same price.
    group : str
        Node group that stands for this offering.
    price : float or None
        Price of the node per hour. None: unknown.
    types : int
        Number of instance types that suit the pods.
    pods : list of str
        Pods of the node, as ``namespace/name``.
    """

    node_pool: str
    type: str
    capacity_type: str
    zone: str
    group: str
    price: float | None
    types: int
    pods: list[str]


class KarpenterPlan(Record, frozen=True):
    """A scale-up by Karpenter's rule.

    Attributes
    ----------
    provisioner : str
        ``karpenter``.
    rule : str
        Karpenter's rule in words.
    choice : KarpenterChoice
        Totals, and the new nodes by type.
    claims : list of KarpenterClaim
        Each new node with its pods.
    existing : dict of str to str
        Existing node of each pod that goes to one.
    untried : list of str
        Pending pods for which Karpenter does nothing: those that the scheduler has not reported as unschedulable yet or
        has nominated a node for, and those of DaemonSets.
    reasons : list of str
        Why no NodePool takes the pods in ``unschedulable`` of ``choice``.
    assumptions : list of str
        Requirements of NodePools that cannot be evaluated.
    """

    KIND = "KarpenterPlan"
    ROWS = "claims"

    provisioner: str
    rule: str
    choice: KarpenterChoice
    claims: list[KarpenterClaim]
    existing: dict[str, str]
    untried: list[str]
    reasons: list[str]
    assumptions: list[str]

    def summary(self) -> str:
        """Return a line with the number of new nodes and, if it is known, their cost per hour."""
        cost = "" if self.choice.cost is None else f", ${self.choice.cost:,.3f}/h"
        return f"{self.choice.nodes:,} new nodes by Karpenter's rule{cost}"


@typed
def karpenter_plan(
    cluster: Cluster | Snapshot,
    offers: PoolOffers,
    *,
    pods: Sequence[str] | None = None,
    bypassed: Collection[str] = (),
    groups: Sequence[NodeGroup] | None = None,
) -> KarpenterPlan:
    """Decide a scale-up by Karpenter's rule.

    Parameters
    ----------
    cluster : Cluster or Snapshot
        Cluster state.
    offers : PoolOffers
        What may be launched.
    pods : sequence of str, optional
        Names of pending pods. Default: all.
    bypassed : collection of str
        Names of schedulers whose pods count although they were not refused yet.
    groups : sequence of NodeGroup, optional
        The groups of the offerings with their templates. Default: computed from the cluster's DaemonSets.

    Returns
    -------
    KarpenterPlan
        The new nodes with their pods, and the pods that stay pending.

    Raises
    ------
    InputError
        If a pod is not in the cluster or is named twice.

    Notes
    -----
    Upstream: ``pkg/controllers/provisioning/provisioner.go`` and ``pkg/controllers/provisioning/scheduling``.
    """
    snapshot = cluster if isinstance(cluster, Snapshot) else cluster.snapshot(dra=True)
    if groups is None:
        if isinstance(cluster, Snapshot):
            cluster = Cluster(item for item in snapshot.informers.workloads if isinstance(item, DaemonSet))
        groups = with_templates(cluster, snapshot, offers.converted.groups)
    placement, untried = place_pending(snapshot, offers, groups, pods=pods, bypassed=bypassed)
    return KarpenterPlan(
        provisioner="karpenter",
        rule=RULE,
        choice=summarize(placement),
        claims=[_record(claim) for claim in placement.claims],
        existing=placement.existing,
        untried=untried,
        reasons=placement.reasons,
        assumptions=list(offers.converted.assumptions),
    )


def place_pending(
    snapshot: Snapshot,
    offers: PoolOffers,
    groups: Sequence[NodeGroup],
    *,
    pods: Sequence[str] | None = None,
    bypassed: Collection[str] = (),
) -> tuple[Placement, list[str]]:
    """Place pending pods by Karpenter's rule; return (placement, names of pods that are not tried).

    The latter are those for which Karpenter provisions nothing (:func:`is_provisionable`), as the scheduler has not
    refused them, for example. The limits of NodePools count the nodes of the snapshot. Parameters as for
    :func:`karpenter_plan`.
    """
    names = list(snapshot.pending if pods is None else pods)
    tried: list[str] = []
    untried: list[str] = []
    for name, record in zip(names, pods_of(snapshot, names), strict=True):
        scheduler = record.pod.spec.scheduler_name or "default-scheduler"
        counts = is_provisionable(record.pod) or scheduler in bypassed
        (tried if counts else untried).append(name)
    offered = OfferedPools(offers.pools, offers.converted, groups)
    remaining = remaining_of_pools(offers.pools, snapshot.columns.objects)
    return place_pods(snapshot, tried, offered, remaining=remaining), untried


def count_by_group(claims: Sequence[PlannedClaim]) -> dict[str, int]:
    """Return the number of new nodes by group; each counts for the group of its cheapest offering."""
    return dict(Counter(claim.offerings[0].group for claim in claims))


def _record(claim: PlannedClaim) -> KarpenterClaim:
    """Build the record of a planned node, which has the type and price of its cheapest offering."""
    best = claim.offerings[0]
    return KarpenterClaim(
        node_pool=claim.pool,
        type=best.kind.name,
        capacity_type=best.capacity_type,
        zone=claim.zone,
        group=best.group,
        price=best.price,
        types=len(claim.types),
        pods=claim.pods,
    )


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
