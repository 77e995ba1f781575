"""The updater: which pods get their new resources now, and how (upstream: ``pkg/updater``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.imports import import_on_use

if TYPE_CHECKING:
    from kscale.vpa.target import (
        filter_live_pods,
        find_controlled_pods_steps,
        is_active_vpa,
        resolve_vpa_selectors_steps,
    )
    from kscale.vpa.updater.context import (
        ChosenPod,
        RateLimiter,
        RateLimitError,
        UnchangedPod,
        UpdaterAction,
        UpdaterResult,
        UpdaterRound,
        UpdaterState,
    )
    from kscale.vpa.updater.legacy import legacy_updater_steps, run_legacy_updater
    from kscale.vpa.updater.loop import run_updater, updater_steps
    from kscale.vpa.updater.priority import (
        EvictionAdmission,
        PodPriority,
        ScalingDirectionAdmission,
        SequentialAdmission,
        assess_pod,
        order_updates,
    )
    from kscale.vpa.updater.restriction import PodsRestriction

__all__ = [
    "ChosenPod",
    "EvictionAdmission",
    "PodPriority",
    "PodsRestriction",
    "RateLimitError",
    "RateLimiter",
    "ScalingDirectionAdmission",
    "SequentialAdmission",
    "UnchangedPod",
    "UpdaterAction",
    "UpdaterResult",
    "UpdaterRound",
    "UpdaterState",
    "assess_pod",
    "filter_live_pods",
    "find_controlled_pods_steps",
    "is_active_vpa",
    "legacy_updater_steps",
    "order_updates",
    "resolve_vpa_selectors_steps",
    "run_legacy_updater",
    "run_updater",
    "updater_steps",
]


import_on_use(
    __name__,
    {
        ".target": ("filter_live_pods", "find_controlled_pods_steps", "is_active_vpa", "resolve_vpa_selectors_steps"),
        "context": (
            "ChosenPod",
            "RateLimiter",
            "RateLimitError",
            "UnchangedPod",
            "UpdaterAction",
            "UpdaterResult",
            "UpdaterRound",
            "UpdaterState",
        ),
        "legacy": ("legacy_updater_steps", "run_legacy_updater"),
        "loop": ("run_updater", "updater_steps"),
        "priority": (
            "EvictionAdmission",
            "PodPriority",
            "ScalingDirectionAdmission",
            "SequentialAdmission",
            "assess_pod",
            "order_updates",
        ),
        "restriction": ("PodsRestriction",),
    },
)
