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
from kscale.vpa.controllers import ControllerKey, Controllers
from kscale.vpa.limit_range import LimitRanges
from kscale.vpa.metrics_sources import external_metrics_steps, usage_of_pods
from kscale.vpa.model import CPU_SAMPLE, MEMORY_SAMPLE, OOM, ClusterState, Usage
from kscale.vpa.oom import OutOfMemory, evicted_for_memory, out_of_memory
from kscale.vpa.options import AdmissionOptions, RecommenderOptions, UpdaterOptions
from kscale.vpa.recommender import RecommenderResult, Round, VpaResult, run_once
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
    "ClusterState",
    "ControllerKey",
    "Controllers",
    "KnownScales",
    "LimitRanges",
    "OutOfMemory",
    "PodAdmission",
    "RecommenderOptions",
    "RecommenderResult",
    "Reviewed",
    "Round",
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
    "evicted_for_memory",
    "external_metrics_steps",
    "legacy_updater_steps",
    "out_of_memory",
    "review",
    "review_steps",
    "run_legacy_updater",
    "run_once",
    "run_updater",
    "updater_steps",
    "usage_of_pods",
]
