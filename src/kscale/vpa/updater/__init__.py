"""The updater: which pods get their new resources now, and how (upstream: ``pkg/updater``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.lazy import import_on_use

if TYPE_CHECKING:
    from kscale.vpa.target import filter_live_pods as filter_live_pods
    from kscale.vpa.target import find_controlled_pods_steps as find_controlled_pods_steps
    from kscale.vpa.target import is_active_vpa as is_active_vpa
    from kscale.vpa.target import resolve_vpa_selectors_steps as resolve_vpa_selectors_steps
    from kscale.vpa.updater.context import ChosenPod as ChosenPod
    from kscale.vpa.updater.context import RateLimiter as RateLimiter
    from kscale.vpa.updater.context import RateLimitError as RateLimitError
    from kscale.vpa.updater.context import UnchangedPod as UnchangedPod
    from kscale.vpa.updater.context import UpdaterAction as UpdaterAction
    from kscale.vpa.updater.context import UpdaterResult as UpdaterResult
    from kscale.vpa.updater.context import UpdaterRound as UpdaterRound
    from kscale.vpa.updater.context import UpdaterState as UpdaterState
    from kscale.vpa.updater.legacy import legacy_updater_steps as legacy_updater_steps
    from kscale.vpa.updater.legacy import run_legacy_updater as run_legacy_updater
    from kscale.vpa.updater.loop import run_updater as run_updater
    from kscale.vpa.updater.loop import updater_steps as updater_steps
    from kscale.vpa.updater.priority import EvictionAdmission as EvictionAdmission
    from kscale.vpa.updater.priority import PodPriority as PodPriority
    from kscale.vpa.updater.priority import ScalingDirectionAdmission as ScalingDirectionAdmission
    from kscale.vpa.updater.priority import SequentialAdmission as SequentialAdmission
    from kscale.vpa.updater.priority import assess_pod as assess_pod
    from kscale.vpa.updater.priority import order_updates as order_updates
    from kscale.vpa.updater.restriction import PodsRestriction as PodsRestriction

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
