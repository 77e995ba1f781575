"""Karpenter's NodePools: read, converted to node groups, and asked which nodes they would launch."""

from __future__ import annotations

from kscale.capacity.karpenter.node_pools import NodePools, node_pools_from, read_node_pools
from kscale.capacity.karpenter.offerings import PoolGroups, groups_of_pools, with_existing_nodes
from kscale.capacity.karpenter.plan import KarpenterClaim, KarpenterPlan, PoolOffers, karpenter_choice, karpenter_plan
from kscale.capacity.records import KarpenterChoice, KarpenterLine

__all__ = [
    "KarpenterChoice",
    "KarpenterClaim",
    "KarpenterLine",
    "KarpenterPlan",
    "NodePools",
    "PoolGroups",
    "PoolOffers",
    "groups_of_pools",
    "karpenter_choice",
    "karpenter_plan",
    "node_pools_from",
    "read_node_pools",
    "with_existing_nodes",
]
