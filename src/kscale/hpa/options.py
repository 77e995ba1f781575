"""Flags and feature gates of the horizontal pod autoscaler, by upstream's names and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

__all__ = ["FEATURE_GATES", "HPAOptions"]

FEATURE_GATES: Final[Mapping[str, bool]] = {
    "HPAConfigurableTolerance": True,  # locked in 1.37: off only for an older emulation version
    "HPAGeneration": True,
    "HPAOptimizedSelectorStore": True,
    "HPAScaleToZero": True,
    "PodLevelResources": True,
    "StaleControllerConsistencyHPA": True,
}
"""The gates that decisions read, with their defaults in Kubernetes 1.37."""

_NANOSECONDS: Final = 1_000_000_000


class HPAOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Flags of kube-controller-manager that the HPA reads; durations are seconds.

    ``feature_gates`` overrides :data:`FEATURE_GATES` by name; an unknown name raises ``ValueError``.
    """

    concurrent_horizontal_pod_autoscaler_syncs: int = 5
    horizontal_pod_autoscaler_sync_period: float = 15.0
    horizontal_pod_autoscaler_downscale_stabilization: float = 300.0
    horizontal_pod_autoscaler_tolerance: float = 0.1
    horizontal_pod_autoscaler_cpu_initialization_period: float = 300.0
    horizontal_pod_autoscaler_initial_readiness_delay: float = 30.0
    feature_gates: Mapping[str, bool] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.feature_gates) - set(FEATURE_GATES))
        if unknown:
            raise ValueError(f"unrecognized feature gate: {', '.join(unknown)}")
        if self.concurrent_horizontal_pod_autoscaler_syncs < 1:
            raise ValueError(
                "concurrent-horizontal-pod-autoscaler-syncs must be greater than 0, but got "
                f"{self.concurrent_horizontal_pod_autoscaler_syncs}"
            )

    def enabled(self, gate: str) -> bool:
        """Whether a feature gate is on."""
        return self.feature_gates.get(gate, FEATURE_GATES[gate])

    @property
    def downscale_stabilization_ns(self) -> int:
        """The legacy scale-down window in nanoseconds."""
        return round(self.horizontal_pod_autoscaler_downscale_stabilization * _NANOSECONDS)

    @property
    def cpu_initialization_ns(self) -> int:
        """The cpu initialization period in nanoseconds."""
        return round(self.horizontal_pod_autoscaler_cpu_initialization_period * _NANOSECONDS)

    @property
    def initial_readiness_ns(self) -> int:
        """The initial readiness delay in nanoseconds."""
        return round(self.horizontal_pod_autoscaler_initial_readiness_delay * _NANOSECONDS)
