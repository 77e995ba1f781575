"""The updater: which pods get their new resources now, and how (upstream: ``pkg/updater``)."""

from __future__ import annotations

from kscale.vpa.updater.actions import Action, Annotate, ApiError, Event, Evict, Outcome, Resize, Wait
from kscale.vpa.updater.eviction_admission import ScalingDirection
from kscale.vpa.updater.legacy import run_legacy_updater
from kscale.vpa.updater.loop import ChosenPod, UpdaterResult, UpdaterRound, UpdaterState, run_updater, updater_steps
from kscale.vpa.updater.priority import PodPriority, assess, update_order
from kscale.vpa.updater.rate_limiter import RateLimiter, RateLimitError
from kscale.vpa.updater.restriction import Restriction

__all__ = [
    "Action",
    "Annotate",
    "ApiError",
    "ChosenPod",
    "Event",
    "Evict",
    "Outcome",
    "PodPriority",
    "RateLimitError",
    "RateLimiter",
    "Resize",
    "Restriction",
    "ScalingDirection",
    "UpdaterResult",
    "UpdaterRound",
    "UpdaterState",
    "Wait",
    "assess",
    "run_legacy_updater",
    "run_updater",
    "update_order",
    "updater_steps",
]
