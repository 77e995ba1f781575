"""Vertical Pod Autoscaler decisions: recommender, updater, admission - exact and in batch."""

from __future__ import annotations

from kscale.vpa.admission import (
    PodAdmission,
    Reviewed,
    VpaAdmission,
    VpaIndex,
    admit_pod,
    admit_pod_steps,
    admit_vpa,
    review,
    review_steps,
)
from kscale.vpa.advice import RecommendationReport, recommend
from kscale.vpa.controllers import ControllerKey, Controllers
from kscale.vpa.dump_controllers import controllers_of
from kscale.vpa.limit_range import LimitRanges
from kscale.vpa.model import (
    CPU_SAMPLE,
    MEMORY_SAMPLE,
    OOM,
    RecommenderState,
    Usage,
    fork_state,
    load_state,
    save_state,
)
from kscale.vpa.oom import OutOfMemory, evicted_for_memory, out_of_memory
from kscale.vpa.options import AdmissionOptions, RecommenderOptions, UpdaterOptions
from kscale.vpa.recommender import (
    PodChanges,
    RecommenderResult,
    RecommenderRound,
    VpaResult,
    external_metrics_steps,
    init_from_checkpoints,
    init_from_checkpoints_steps,
    init_from_prometheus_steps,
    pod_changes,
    recommender_steps,
    run_once,
    usage_of_pods,
)
from kscale.vpa.scales import KnownScales, ScaleCache, ScaleKey
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
    "KnownScales",
    "LimitRanges",
    "OutOfMemory",
    "PodAdmission",
    "PodChanges",
    "RecommendationReport",
    "RecommenderOptions",
    "RecommenderResult",
    "RecommenderRound",
    "RecommenderState",
    "Reviewed",
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
    "controllers_of",
    "evicted_for_memory",
    "external_metrics_steps",
    "fork_state",
    "init_from_checkpoints",
    "init_from_checkpoints_steps",
    "init_from_prometheus_steps",
    "legacy_updater_steps",
    "load_state",
    "out_of_memory",
    "pod_changes",
    "recommend",
    "recommender_steps",
    "review",
    "review_steps",
    "run_legacy_updater",
    "run_once",
    "run_updater",
    "save_state",
    "updater_steps",
    "usage_of_pods",
]
