"""The updater: which pods get their new resources now, and how (upstream: ``pkg/updater``)."""

from __future__ import annotations

from kscale.vpa.updater.context import UpdaterAction
from kscale.vpa.updater.controlled import controlled_pods_steps, is_acting, live_pods, select_steps
from kscale.vpa.updater.eviction_admission import EvictionAdmission, ScalingDirection, Sequential
from kscale.vpa.updater.legacy import legacy_updater_steps, run_legacy_updater
from kscale.vpa.updater.loop import run_updater, updater_steps
from kscale.vpa.updater.priority import PodPriority, assess, update_order
from kscale.vpa.updater.rate_limiter import RateLimiter, RateLimitError
from kscale.vpa.updater.records import ChosenPod, UnchangedPod, UpdaterResult, UpdaterRound, UpdaterState
from kscale.vpa.updater.restriction import Restriction

__all__ = [
    "ChosenPod",
    "EvictionAdmission",
    "PodPriority",
    "RateLimitError",
    "RateLimiter",
    "Restriction",
    "ScalingDirection",
    "Sequential",
    "UnchangedPod",
    "UpdaterAction",
    "UpdaterResult",
    "UpdaterRound",
    "UpdaterState",
    "assess",
    "controlled_pods_steps",
    "is_acting",
    "legacy_updater_steps",
    "live_pods",
    "run_legacy_updater",
    "run_updater",
    "select_steps",
    "update_order",
    "updater_steps",
]
