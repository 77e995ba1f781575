"""The recommender's round (upstream: ``pkg/recommender/routines``, ``input``, ``checkpoint``).

``loop`` runs the steps in upstream's order: ``cluster_feeder`` loads VPAs, pods and metrics, ``update_vpas``
recommends, and ``checkpoints`` maintains checkpoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.imports import import_on_use

if TYPE_CHECKING:
    from kscale.vpa.recommender.cluster_feeder import (
        convert_pod_metrics,
        external_metrics_steps,
        init_from_prometheus_steps,
    )
    from kscale.vpa.recommender.loop import (
        init_from_checkpoints,
        init_from_checkpoints_steps,
        recommender_steps,
        run_once,
    )
    from kscale.vpa.recommender.records import (
        PodChanges,
        RecommenderAction,
        RecommenderResult,
        RecommenderRound,
        VpaResult,
        diff_pods,
    )

__all__ = [
    "PodChanges",
    "RecommenderAction",
    "RecommenderResult",
    "RecommenderRound",
    "VpaResult",
    "convert_pod_metrics",
    "diff_pods",
    "external_metrics_steps",
    "init_from_checkpoints",
    "init_from_checkpoints_steps",
    "init_from_prometheus_steps",
    "recommender_steps",
    "run_once",
]


import_on_use(
    __name__,
    {
        "cluster_feeder": ("convert_pod_metrics", "external_metrics_steps", "init_from_prometheus_steps"),
        "loop": ("init_from_checkpoints", "init_from_checkpoints_steps", "recommender_steps", "run_once"),
        "records": (
            "PodChanges",
            "RecommenderAction",
            "RecommenderResult",
            "RecommenderRound",
            "VpaResult",
            "diff_pods",
        ),
    },
)
