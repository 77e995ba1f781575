"""The flags of the three components, in snake_case with upstream's defaults. Durations are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kscale.objects.quantity import Quantity

__all__ = [
    "CPU_STARTUP_BOOST",
    "IN_PLACE",
    "PER_VPA_CONFIG",
    "AdmissionOptions",
    "RecommenderOptions",
    "UpdaterOptions",
    "gate",
    "nanoseconds_of",
]

DAY: Final = 86400.0
PER_VPA_CONFIG: Final = "PerVPAConfig"
CPU_STARTUP_BOOST: Final = "CPUStartupBoost"
IN_PLACE: Final = "InPlace"


def nanoseconds_of(seconds: float) -> int:
    """A duration as the kernels want it."""
    return round(seconds * 1e9)


def gate(gates: Mapping[str, bool], name: str) -> bool:
    """Whether a feature gate is on. All gates of the VPA are alpha: off unless switched on, by name or ``AllAlpha``."""
    return gates.get(name, gates.get("AllAlpha", False))


class RecommenderOptions(msgspec.Struct, kw_only=True, frozen=True):
    """What a recommendation depends on."""

    recommender_name: str = "default"
    vpa_object_namespace: str = ""
    ignored_vpa_object_namespaces: list[str] = []
    memory_saver: bool = False
    recommendation_margin_fraction: float = 0.15
    pod_recommendation_min_cpu_millicores: float = 25.0
    pod_recommendation_min_memory_mb: float = 250.0
    target_cpu_percentile: float = 0.9
    target_memory_percentile: float = 0.9
    recommendation_lower_bound_cpu_percentile: float = 0.5
    recommendation_lower_bound_memory_percentile: float = 0.5
    recommendation_upper_bound_cpu_percentile: float = 0.95
    recommendation_upper_bound_memory_percentile: float = 0.95
    confidence_interval_cpu: float = DAY
    confidence_interval_memory: float = DAY
    humanize_memory: bool = False
    round_cpu_millicores: int = 1
    round_memory_bytes: int = 1
    cpu_integer_post_processor_enabled: bool = False
    container_recommendation_max_allowed_cpu: Quantity = Quantity.zero()
    container_recommendation_max_allowed_memory: Quantity = Quantity.zero()
    memory_aggregation_interval: float = DAY
    memory_aggregation_interval_count: int = 8
    memory_histogram_decay_half_life: float = DAY
    cpu_histogram_decay_half_life: float = DAY
    oom_bump_up_ratio: float = 1.2
    oom_min_bump_up_bytes: float = 104857600.0
    feature_gates: dict[str, bool] = {}


class UpdaterOptions(msgspec.Struct, kw_only=True, frozen=True):
    """What the updater depends on."""

    min_replicas: int = 2
    eviction_tolerance: float = 0.5
    eviction_rate_limit: float = -1.0
    eviction_rate_burst: int = 1
    updater_interval: float = 60.0
    pod_update_threshold: float = 0.1
    in_recommendation_bounds_eviction_lifetime_threshold: float = 43200.0
    evict_after_oom_threshold: float = 600.0
    in_place_skip_disruption_budget: bool = False
    ignored_vpa_object_namespaces: list[str] = []
    feature_gates: dict[str, bool] = {}


class AdmissionOptions(msgspec.Struct, kw_only=True, frozen=True):
    """What the admission controller depends on."""

    max_allowed_cpu_boost: Quantity = Quantity.zero()
    feature_gates: dict[str, bool] = {}
