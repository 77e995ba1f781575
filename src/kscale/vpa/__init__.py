"""Vertical Pod Autoscaler decisions: recommender, updater, admission - exact and in batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.lazy import import_on_use

if TYPE_CHECKING:
    from kscale.vpa.admission import PodAdmission as PodAdmission
    from kscale.vpa.admission import ReviewResult as ReviewResult
    from kscale.vpa.admission import VpaAdmission as VpaAdmission
    from kscale.vpa.admission import VpaIndex as VpaIndex
    from kscale.vpa.admission import admit_pod as admit_pod
    from kscale.vpa.admission import admit_pod_steps as admit_pod_steps
    from kscale.vpa.admission import admit_vpa as admit_vpa
    from kscale.vpa.admission import review as review
    from kscale.vpa.admission import review_steps as review_steps
    from kscale.vpa.advice import RecommendationReport as RecommendationReport
    from kscale.vpa.advice import recommend as recommend
    from kscale.vpa.capping import LimitRanges as LimitRanges
    from kscale.vpa.controllers import ControllerKey as ControllerKey
    from kscale.vpa.controllers import Controllers as Controllers
    from kscale.vpa.controllers import FixedScales as FixedScales
    from kscale.vpa.controllers import ScaleCache as ScaleCache
    from kscale.vpa.controllers import ScaleKey as ScaleKey
    from kscale.vpa.controllers import read_controllers as read_controllers
    from kscale.vpa.model.saved_state import CPU_SAMPLE as CPU_SAMPLE
    from kscale.vpa.model.saved_state import MEMORY_SAMPLE as MEMORY_SAMPLE
    from kscale.vpa.model.saved_state import OOM as OOM
    from kscale.vpa.model.saved_state import RecommenderState as RecommenderState
    from kscale.vpa.model.saved_state import Usage as Usage
    from kscale.vpa.model.saved_state import fork_state as fork_state
    from kscale.vpa.model.saved_state import load_state as load_state
    from kscale.vpa.model.saved_state import save_state as save_state
    from kscale.vpa.model.usage import OutOfMemory as OutOfMemory
    from kscale.vpa.model.usage import find_memory_evictions as find_memory_evictions
    from kscale.vpa.model.usage import find_oom_kills as find_oom_kills
    from kscale.vpa.options import AdmissionOptions as AdmissionOptions
    from kscale.vpa.options import RecommenderOptions as RecommenderOptions
    from kscale.vpa.options import UpdaterOptions as UpdaterOptions
    from kscale.vpa.recommender import PodChanges as PodChanges
    from kscale.vpa.recommender import RecommenderResult as RecommenderResult
    from kscale.vpa.recommender import RecommenderRound as RecommenderRound
    from kscale.vpa.recommender import VpaResult as VpaResult
    from kscale.vpa.recommender import convert_pod_metrics as convert_pod_metrics
    from kscale.vpa.recommender import diff_pods as diff_pods
    from kscale.vpa.recommender import external_metrics_steps as external_metrics_steps
    from kscale.vpa.recommender import init_from_checkpoints as init_from_checkpoints
    from kscale.vpa.recommender import init_from_checkpoints_steps as init_from_checkpoints_steps
    from kscale.vpa.recommender import init_from_prometheus_steps as init_from_prometheus_steps
    from kscale.vpa.recommender import recommender_steps as recommender_steps
    from kscale.vpa.recommender import run_once as run_once
    from kscale.vpa.updater import UpdaterResult as UpdaterResult
    from kscale.vpa.updater import UpdaterRound as UpdaterRound
    from kscale.vpa.updater import UpdaterState as UpdaterState
    from kscale.vpa.updater import legacy_updater_steps as legacy_updater_steps
    from kscale.vpa.updater import run_legacy_updater as run_legacy_updater
    from kscale.vpa.updater import run_updater as run_updater
    from kscale.vpa.updater import updater_steps as updater_steps

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
