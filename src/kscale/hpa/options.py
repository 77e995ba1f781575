"""Flags and feature gates of the horizontal pod autoscaler, by upstream's names and defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from typing import Final

import msgspec

from kscale.effects import duration
from kscale.errors import InputError, Problem
from kscale.imports import lazy_pattern
from kscale.objects.argument_types import check_fields

__all__ = [
    "CURRENT",
    "DEFAULT_OPTIONS",
    "FEATURE_GATES",
    "LEGACY",
    "LEGACY_1_18",
    "LEGACY_1_19",
    "PROFILES",
    "HPAOptions",
]

CURRENT: Final = "current"
LEGACY: Final = "legacy"
LEGACY_1_19: Final = "legacy-1.19"
LEGACY_1_18: Final = "legacy-1.18"
PROFILES: Final = (CURRENT, LEGACY, LEGACY_1_19, LEGACY_1_18)
"""Controllers: that of Kubernetes 1.37; of 1.20 (and 1.18.12, 1.19.4 and later patches of these); of 1.19.0 (and
1.17.17, 1.18.8 to 1.19.3); of 1.18.0 (and 1.17.0). The last two are separate profiles because their calculators differ.
"""

FEATURE_GATES: Final[Mapping[str, bool]] = {
    "HPAConfigurableTolerance": True,  # locked in 1.37: off only for an older emulation version
    "HPAGeneration": True,
    "HPAOptimizedSelectorStore": True,
    "HPAScaleToZero": True,
    "PodLevelResources": True,
    "StaleControllerConsistencyHPA": True,
}
"""The gates that decisions read, with their defaults in Kubernetes 1.37."""

_ON_SINCE: Final[Mapping[str, int]] = {
    "HPAConfigurableTolerance": 35,
    "HPAGeneration": 37,
    "HPAOptimizedSelectorStore": 37,
    "HPAScaleToZero": 37,
    "PodLevelResources": 34,
    "StaleControllerConsistencyHPA": 37,
}
"""The minor since which a gate is on by default (upstream: ``pkg/features/kube_features.go``)."""
_OLDEST, _NEWEST = 34, 37
_VERSION = lazy_pattern(r"v?1\.([0-9]{1,3})(?:[-+.].*)?", re.DOTALL)

_GATES_BY_PROFILE: Final[Mapping[str, frozenset[str]]] = {
    CURRENT: frozenset(FEATURE_GATES),
    LEGACY: frozenset({"HPAContainerMetrics", "HPAScaleToZero"}),
    LEGACY_1_19: frozenset({"HPAScaleToZero"}),
    LEGACY_1_18: frozenset({"HPAScaleToZero"}),
}
"""The gates that the releases of the profiles have."""


_NOT_NEGATIVE: Final = (
    "horizontal_pod_autoscaler_downscale_stabilization",
    "horizontal_pod_autoscaler_cpu_initialization_period",
    "horizontal_pod_autoscaler_initial_readiness_delay",
)


class HPAOptions(msgspec.Struct, kw_only=True, frozen=True, dict=True):
    """Flags of kube-controller-manager that the HPA reads: upstream's flags of the same names.

    ``profile`` selects the version of the controller (:data:`PROFILES`): ``current`` (1.37), or ``legacy``,
    ``legacy-1.19`` and ``legacy-1.18`` for 1.20, 1.19.0 and 1.18.0. The legacy controllers have one worker whatever the
    flag says (there was none), know few of the gates (``HPAScaleToZero``: whether 0 is a legal minimum; 1.20 also
    ``HPAContainerMetrics``; both off), and differ where ``docs/hpa.md`` says so. ``feature_gates`` overrides
    :data:`FEATURE_GATES` by name. ``kubernetes_version``, such as ``1.35`` or ``v1.35.4-eks.1``, selects the minor
    (1.34 to 1.37; empty: the newest) whose defaults hold for the other gates; only the ``current`` profile takes it.
    Raises :class:`~kscale.errors.InputError` for an unknown profile, version or gate, and for less than one worker.

    Attributes
    ----------
    concurrent_horizontal_pod_autoscaler_syncs
        Maximum number of HPAs whose requests are in flight at a time.
    horizontal_pod_autoscaler_sync_period
        Time between two decisions on the same HPA.
    horizontal_pod_autoscaler_downscale_stabilization
        Stabilization window for scaling down, for HPAs whose behavior names none.
    horizontal_pod_autoscaler_tolerance
        Relative difference from the target below which an HPA whose behavior names no tolerance does not scale.
    horizontal_pod_autoscaler_cpu_initialization_period
        Time after a pod's start during which its CPU usage counts only while the pod is ready.
    horizontal_pod_autoscaler_initial_readiness_delay
        Time after a pod's start during which an unready pod counts as never having been ready.
    """

    concurrent_horizontal_pod_autoscaler_syncs: int = 5
    horizontal_pod_autoscaler_sync_period: timedelta = timedelta(seconds=15)
    horizontal_pod_autoscaler_downscale_stabilization: timedelta = timedelta(minutes=5)
    horizontal_pod_autoscaler_tolerance: float = 0.1
    horizontal_pod_autoscaler_cpu_initialization_period: timedelta = timedelta(minutes=5)
    horizontal_pod_autoscaler_initial_readiness_delay: timedelta = timedelta(seconds=30)
    feature_gates: Mapping[str, bool] = msgspec.field(default_factory=dict)
    profile: str = CURRENT
    kubernetes_version: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.profile not in PROFILES:
            text = f"unknown profile {self.profile!r}; there are {', '.join(PROFILES)}"
            raise InputError(Problem(text, field="profile"))
        if self.kubernetes_version:
            self._check_version()
        unknown = sorted({*self.feature_gates} - _GATES_BY_PROFILE[self.profile])
        if unknown:
            raise InputError(Problem(f"unrecognized feature gate: {', '.join(unknown)}", field="feature_gates"))
        if self.concurrent_horizontal_pod_autoscaler_syncs < 1:
            text = (
                "concurrent-horizontal-pod-autoscaler-syncs must be greater than 0, but got "
                f"{self.concurrent_horizontal_pod_autoscaler_syncs}"
            )
            raise InputError(Problem(text, field="concurrent_horizontal_pod_autoscaler_syncs"))

    def problems(self) -> list[Problem]:
        """Return the values with which kscale's controller does not start; empty if there are none.

        These are negative durations, a tolerance that is negative or NaN, and a sync period that is not positive.
        ``field`` of each problem is the option.
        """
        problems = []
        if not self.horizontal_pod_autoscaler_tolerance >= 0:
            text = f"{self.horizontal_pod_autoscaler_tolerance} is negative or not a number"
            problems.append(Problem(text, field="horizontal_pod_autoscaler_tolerance"))
        if self.horizontal_pod_autoscaler_sync_period <= timedelta():
            text = "it must be greater than zero: between two rounds no time would pass"
            problems.append(Problem(text, field="horizontal_pod_autoscaler_sync_period"))
        negative = [name for name in _NOT_NEGATIVE if getattr(self, name) < timedelta()]
        return problems + [Problem("a duration must not be negative", field=name) for name in negative]

    def _check_version(self) -> None:
        """Raise InputError unless ``kubernetes_version`` is known and the profile takes a version."""
        if self.legacy:
            text = f"the profile {self.profile} has a version of its own"
            raise InputError(Problem(text, field="kubernetes_version"))
        match = _VERSION.fullmatch(self.kubernetes_version)
        if match is None or not _OLDEST <= int(match[1]) <= _NEWEST:
            text = f"unknown version {self.kubernetes_version!r}; there are 1.{_OLDEST} to 1.{_NEWEST}"
            raise InputError(Problem(text, field="kubernetes_version"))

    @cached_property
    def minor(self) -> int:
        """The minor version of Kubernetes whose default feature gates hold."""
        match = _VERSION.fullmatch(self.kubernetes_version)
        return _NEWEST if match is None else int(match[1])

    @cached_property
    def gates(self) -> Mapping[str, bool]:
        """Whether each feature gate of :data:`FEATURE_GATES` is on."""
        return {
            gate: self.feature_gates.get(gate, default and not self.legacy and self.minor >= _ON_SINCE[gate])
            for gate, default in FEATURE_GATES.items()
        }

    @cached_property
    def legacy(self) -> bool:
        """Whether the controller is one of 1.18 to 1.20."""
        return self.profile != CURRENT

    @property
    def workers(self) -> int:
        """Number of reconciles that run at a time."""
        return 1 if self.legacy else self.concurrent_horizontal_pod_autoscaler_syncs

    @property
    def supports_container_metrics(self) -> bool:
        """Whether the controller supports metrics of the type ``ContainerResource``."""
        return not self.legacy or self.feature_gates.get("HPAContainerMetrics", False)

    @property
    def release(self) -> int:
        """The calculator kernel's number of the release: the position of the profile in :data:`PROFILES`."""
        return PROFILES.index(self.profile)

    @cached_property
    def calculator_terms(self) -> tuple[int, int, int]:
        """Options of the calculator's kernel: CPU initialization, initial readiness (nanoseconds), and release."""
        return self.cpu_initialization_ns, self.initial_readiness_ns, self.release

    @property
    def sync_period_ns(self) -> int:
        """The sync period in nanoseconds."""
        return duration(self.horizontal_pod_autoscaler_sync_period)

    @cached_property
    def downscale_stabilization_ns(self) -> int:
        """The scale-down window of HPAs without a behavior, in nanoseconds."""
        return duration(self.horizontal_pod_autoscaler_downscale_stabilization)

    @cached_property
    def downscale_stabilization_seconds(self) -> int:
        """The default scale-down window of a behavior, in integral seconds."""
        return int(self.horizontal_pod_autoscaler_downscale_stabilization.total_seconds())

    @cached_property
    def cpu_initialization_ns(self) -> int:
        """The CPU initialization period in nanoseconds."""
        return duration(self.horizontal_pod_autoscaler_cpu_initialization_period)

    @property
    def initial_readiness_ns(self) -> int:
        """The initial readiness delay in nanoseconds."""
        return duration(self.horizontal_pod_autoscaler_initial_readiness_delay)


DEFAULT_OPTIONS: Final = HPAOptions()
