"""Vertical Pod Autoscaler decisions: recommender, updater, admission - exact and in batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.imports import import_on_use

if TYPE_CHECKING:
    from kscale.vpa.admission import (
        PodAdmission,
        ReviewResult,
        VpaAdmission,
        VpaIndex,
        admit_pod,
        admit_pod_steps,
        admit_vpa,
        review,
        review_steps,
    )
    from kscale.vpa.advice import RecommendationReport, recommend
    from kscale.vpa.capping import LimitRanges
    from kscale.vpa.controllers import ControllerKey, Controllers, FixedScales, ScaleCache, ScaleKey, read_controllers
    from kscale.vpa.model.saved_state import (
        CPU_SAMPLE,
        MEMORY_SAMPLE,
        OOM,
        RecommenderState,
        Usage,
        fork_state,
        load_state,
        save_state,
    )
    from kscale.vpa.model.usage import OutOfMemory, find_memory_evictions, find_oom_kills
    from kscale.vpa.options import AdmissionOptions, RecommenderOptions, UpdaterOptions
    from kscale.vpa.recommender import (
        PodChanges,
        RecommenderResult,
        RecommenderRound,
        VpaResult,
        convert_pod_metrics,
        diff_pods,
        external_metrics_steps,
        init_from_checkpoints,
        init_from_checkpoints_steps,
        init_from_prometheus_steps,
        recommender_steps,
        run_once,
    )
    from kscale.vpa.updater import (
        UpdaterResult,
        UpdaterRound,
        UpdaterState,
        legacy_updater_steps,
        run_legacy_updater,
        run_updater,
        updater_steps,
    )

__all__ = [
    "CPU_SAMPLE",
    "MEMORY_SAMPLE",
    "OOM",
    "AdmissionOptions",
    "ControllerKey",
    "Controllers",
    "FixedScales",
    "LimitRanges",
    "OutOfMemory",
    "PodAdmission",
    "PodChanges",
    "RecommendationReport",
    "RecommenderOptions",
    "RecommenderResult",
    "RecommenderRound",
    "RecommenderState",
    "ReviewResult",
    "ScaleCache",
    "ScaleKey",
    "UpdaterOptions",
    "UpdaterResult",
    "UpdaterRound",
    "UpdaterState",
    "Usage",
    "VpaAdmission",
    "VpaIndex",
    "VpaResult",
    "admit_pod",
    "admit_pod_steps",
    "admit_vpa",
    "convert_pod_metrics",
    "diff_pods",
    "external_metrics_steps",
    "find_memory_evictions",
    "find_oom_kills",
    "fork_state",
    "init_from_checkpoints",
    "init_from_checkpoints_steps",
    "init_from_prometheus_steps",
    "legacy_updater_steps",
    "load_state",
    "read_controllers",
    "recommend",
    "recommender_steps",
    "review",
    "review_steps",
    "run_legacy_updater",
    "run_once",
    "run_updater",
    "save_state",
    "updater_steps",
]


import_on_use(
    __name__,
    {
        "admission": (
            "PodAdmission",
            "ReviewResult",
            "VpaAdmission",
            "VpaIndex",
            "admit_pod",
            "admit_pod_steps",
            "admit_vpa",
            "review",
            "review_steps",
        ),
        "advice": ("RecommendationReport", "recommend"),
        "capping": ("LimitRanges",),
        "controllers": ("ControllerKey", "Controllers", "FixedScales", "ScaleCache", "ScaleKey", "read_controllers"),
        "model.saved_state": (
            "CPU_SAMPLE",
            "MEMORY_SAMPLE",
            "OOM",
            "RecommenderState",
            "Usage",
            "fork_state",
            "load_state",
            "save_state",
        ),
        "model.usage": ("OutOfMemory", "find_memory_evictions", "find_oom_kills"),
        "options": ("AdmissionOptions", "RecommenderOptions", "UpdaterOptions"),
        "recommender": (
            "PodChanges",
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
        ),
        "updater": (
            "UpdaterResult",
            "UpdaterRound",
            "UpdaterState",
            "legacy_updater_steps",
            "run_legacy_updater",
            "run_updater",
            "updater_steps",
        ),
    },
)
