"""Flags and feature gates of the horizontal pod autoscaler, by upstream's names and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec

from kscale.effects import duration
from kscale.errors import InputError, Problem

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


class HPAOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Flags of kube-controller-manager that the HPA reads, by their names in snake_case.

    ``feature_gates`` overrides :data:`FEATURE_GATES` by name. Raises :class:`~kscale.errors.InputError` for a gate that
    is not known, and for less than one worker.
    """

    concurrent_horizontal_pod_autoscaler_syncs: int = 5
    horizontal_pod_autoscaler_sync_period: timedelta = timedelta(seconds=15)
    horizontal_pod_autoscaler_downscale_stabilization: timedelta = timedelta(minutes=5)
    horizontal_pod_autoscaler_tolerance: float = 0.1
    horizontal_pod_autoscaler_cpu_initialization_period: timedelta = timedelta(minutes=5)
    horizontal_pod_autoscaler_initial_readiness_delay: timedelta = timedelta(seconds=30)
    feature_gates: Mapping[str, bool] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.feature_gates) - set(FEATURE_GATES))
        if unknown:
            raise InputError(Problem(f"unrecognized feature gate: {', '.join(unknown)}", field="feature_gates"))
        if self.concurrent_horizontal_pod_autoscaler_syncs < 1:
            raise InputError(
                "concurrent-horizontal-pod-autoscaler-syncs must be greater than 0, but got "
                f"{self.concurrent_horizontal_pod_autoscaler_syncs}"
            )

    def enabled(self, gate: str) -> bool:
        """Whether a feature gate is on."""
        return self.feature_gates.get(gate, FEATURE_GATES[gate])

    @property
    def sync_period_ns(self) -> int:
        """The sync period in nanoseconds."""
        return duration(self.horizontal_pod_autoscaler_sync_period)

    @property
    def downscale_stabilization_ns(self) -> int:
        """The scale-down window of HPAs without a behavior, in nanoseconds."""
        return duration(self.horizontal_pod_autoscaler_downscale_stabilization)

    @property
    def downscale_stabilization_seconds(self) -> int:
        """The same in whole seconds: what a behavior that names none gets."""
        return int(self.horizontal_pod_autoscaler_downscale_stabilization.total_seconds())

    @property
    def cpu_initialization_ns(self) -> int:
        """The cpu initialization period in nanoseconds."""
        return duration(self.horizontal_pod_autoscaler_cpu_initialization_period)

    @property
    def initial_readiness_ns(self) -> int:
        """The initial readiness delay in nanoseconds."""
        return duration(self.horizontal_pod_autoscaler_initial_readiness_delay)
