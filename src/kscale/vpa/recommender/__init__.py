"""The recommender's round (upstream: ``pkg/recommender/routines``, ``input``, ``checkpoint``).

A module for each step, in upstream's order: ``load_vpas``, ``load_pods``, ``load_metrics``, ``update_vpas``,
``maintain_checkpoints``; ``loop`` runs them.
"""

from __future__ import annotations

from kscale.vpa.recommender.load_history import init_from_prometheus_steps
from kscale.vpa.recommender.loop import (
    init_from_checkpoints,
    init_from_checkpoints_steps,
    recommender_steps,
    run_once,
)
from kscale.vpa.recommender.metrics_sources import external_metrics_steps, usage_of_pods
from kscale.vpa.recommender.records import (
    PodChanges,
    RecommenderAction,
    RecommenderResult,
    RecommenderRound,
    VpaResult,
    pod_changes,
)

__all__ = [
    "PodChanges",
    "RecommenderAction",
    "RecommenderResult",
    "RecommenderRound",
    "VpaResult",
    "external_metrics_steps",
    "init_from_checkpoints",
    "init_from_checkpoints_steps",
    "init_from_prometheus_steps",
    "pod_changes",
    "recommender_steps",
    "run_once",
    "usage_of_pods",
]
