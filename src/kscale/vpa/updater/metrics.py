"""What a loop of the updater counts (``pkg/utils/metrics/updater``)."""

from __future__ import annotations

from typing import Final

from kscale.effects import Observation
from kscale.objects.vpa import VerticalPodAutoscaler, update_mode
from kscale.vpa.metrics import observation, size_log2

__all__ = ["RESETS", "LoopGauges", "VpaCounters"]

_PREFIX: Final = "vpa_updater_"
_BY_MODE: Final = (
    "controlled_pods_total",
    "evictable_pods_total",
    "vpas_with_evictable_pods_total",
    "vpas_with_evicted_pods_total",
)
_BY_SIZE: Final = (
    "in_place_updatable_pods_total",
    "vpas_with_in_place_updatable_pods_total",
    "vpas_with_in_place_updated_pods_total",
)
_SIZES: Final = 20
RESETS: Final = tuple(Observation(name=_PREFIX + name, reset=True) for name in (*_BY_MODE, *_BY_SIZE))
"""Said before the VPAs of a loop: what the last loop's gauges held is forgotten."""


class LoopGauges:
    """The gauges of one loop, which are set when it ends, however it ends."""

    def __init__(self) -> None:
        self._by_mode: dict[str, dict[tuple[int, str], int]] = {name: {} for name in _BY_MODE}
        self._by_size: dict[str, list[int]] = {name: [0] * _SIZES for name in _BY_SIZE}

    def add(self, name: str, vpa: VerticalPodAutoscaler, pods: int, by: int) -> None:
        """Adds to a gauge, named without prefix and suffix, for a VPA that controls so many pods."""
        name, size = f"{name}_total", size_log2(pods)
        if name in self._by_mode:
            cells, key = self._by_mode[name], (size, update_mode(vpa))
            cells[key] = cells.get(key, 0) + by
        else:
            self._by_size[name][min(size, _SIZES - 1)] += by  # upstream crashes beyond 2^20 pods

    def observations(self) -> list[Observation]:
        """What the gauges are set to: by size all cells, by size and mode those that were added to."""
        found = [
            observation(_PREFIX + name, {"vpa_size_log2": str(size), "update_mode": mode}, value)
            for name, cells in self._by_mode.items()
            for (size, mode), value in cells.items()
        ]
        return found + [
            observation(_PREFIX + name, {"vpa_size_log2": str(size)}, value)
            for name, cells in self._by_size.items()
            for size, value in enumerate(cells)
        ]


class VpaCounters:
    """The counters of one VPA that controls so many pods, as observations."""

    def __init__(self, vpa: VerticalPodAutoscaler, pods: int) -> None:
        self._size = {"vpa_size_log2": str(size_log2(pods))}
        self._mode = {"update_mode": update_mode(vpa)}
        self._name = {"vpa_name": vpa.name, "vpa_namespace": vpa.namespace}

    def present(self) -> tuple[Observation, Observation]:
        """Counters that are there before anything happens (``InitCounters``)."""
        return self.evicted(0), self.updated_in_place(0)

    def evicted(self, by: int = 1) -> Observation:
        """Evictions."""
        return observation(f"{_PREFIX}evicted_pods_total", {**self._size, **self._mode, **self._name}, by)

    def not_evicted(self, reason: str) -> Observation:
        """An eviction that did not come about."""
        labels = {**self._size, **self._mode, "reason": reason, **self._name}
        return observation(f"{_PREFIX}failed_eviction_attempts_total", labels)

    def updated_in_place(self, by: int = 1) -> Observation:
        """Resizes."""
        return observation(f"{_PREFIX}in_place_updated_pods_total", {**self._size, **self._name}, by)

    def not_updated_in_place(self, reason: str) -> Observation:
        """A resize that did not come about."""
        labels = {**self._size, "reason": reason, **self._name}
        return observation(f"{_PREFIX}failed_in_place_update_attempts_total", labels)

    def skipped(self) -> Observation:
        """A pod whose resize was infeasible before."""
        return observation(f"{_PREFIX}in_place_infeasible_skip_pods_total", {**self._size, **self._name})
