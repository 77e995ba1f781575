"""What the recommender remembers between rounds (upstream: ``pkg/recommender/model``)."""

from __future__ import annotations

from kscale.vpa.model.aggregates import Aggregate, AggregateKey, Store
from kscale.vpa.model.cluster import ClusterState, ContainerState, PodState
from kscale.vpa.model.usage import CPU_SAMPLE, MEMORY_SAMPLE, OOM, Usage
from kscale.vpa.model.vpa import Vpa

__all__ = [
    "CPU_SAMPLE",
    "MEMORY_SAMPLE",
    "OOM",
    "Aggregate",
    "AggregateKey",
    "ClusterState",
    "ContainerState",
    "PodState",
    "Store",
    "Usage",
    "Vpa",
]
