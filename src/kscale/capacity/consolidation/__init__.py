"""A path from the running cluster to a cheaper one, in steps that the cluster survives."""

from __future__ import annotations

from kscale.capacity.consolidation.budgets import DisruptionBudget, PoolDisruption
from kscale.capacity.consolidation.path import consolidate
from kscale.capacity.consolidation.records import (
    ConsolidationOptions,
    ConsolidationPlan,
    ConsolidationStep,
    Eviction,
    HeldNode,
    NewNode,
    Outlook,
)

__all__ = [
    "ConsolidationOptions",
    "ConsolidationPlan",
    "ConsolidationStep",
    "DisruptionBudget",
    "Eviction",
    "HeldNode",
    "NewNode",
    "Outlook",
    "PoolDisruption",
    "consolidate",
]
