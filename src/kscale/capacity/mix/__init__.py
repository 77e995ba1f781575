"""The cheapest mix of node types for pods, with a proven lower bound of the cost."""

from __future__ import annotations

from kscale.capacity.mix.offers import ALL, ON_DEMAND, RESERVED, SPOT, MixOptions, Offer, SharedLimit, offers_of
from kscale.capacity.mix.planning import bound_cost_of_nodes, mix
from kscale.capacity.mix.records import MixPlan, groups_entries, node_class_of, node_pool
from kscale.capacity.mix.start import StartPlan

__all__ = [
    "ALL",
    "ON_DEMAND",
    "RESERVED",
    "SPOT",
    "MixOptions",
    "MixPlan",
    "Offer",
    "SharedLimit",
    "StartPlan",
    "bound_cost_of_nodes",
    "groups_entries",
    "mix",
    "node_class_of",
    "node_pool",
    "offers_of",
]
