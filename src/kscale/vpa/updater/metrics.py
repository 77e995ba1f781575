"""What a loop of the updater counts, under upstream's names and labels (``pkg/utils/metrics/updater``)."""

from __future__ import annotations

from collections import Counter

from kscale.objects.vpa import VerticalPodAutoscaler, update_mode
from kscale.vpa.metrics import size_log2

__all__ = ["VpaMetrics"]


class VpaMetrics:
    """The counters and gauges of one VPA; ``counts`` holds those of the whole loop, ``metric{label=value,...}``."""

    def __init__(self, counts: Counter[str], vpa: VerticalPodAutoscaler, pods: int) -> None:
        self.counts = counts
        self.size = f"vpa_size_log2={size_log2(pods)}"
        self.mode = f"update_mode={update_mode(vpa)}"
        self.name = f"vpa_name={vpa.name},vpa_namespace={vpa.namespace}"

    def _add(self, name: str, *labels: str, by: int = 1) -> None:
        self.counts[f"vpa_updater_{name}{{{','.join(label for label in labels if label)}}}"] += by

    def controlled(self, pods: int) -> None:
        """Pods that the VPA controls."""
        self._add("controlled_pods_total", self.size, self.mode, by=pods)

    def evictable(self, pods: int) -> None:
        """Pods that may be evicted, in order."""
        self._add("evictable_pods_total", self.size, self.mode, by=pods)

    def updatable_in_place(self, pods: int) -> None:
        """Pods that may be resized, in order."""
        self._add("in_place_updatable_pods_total", self.size, by=pods)

    def evicted(self) -> None:
        """One eviction."""
        self._add("evicted_pods_total", self.size, self.mode, self.name)

    def not_evicted(self, reason: str) -> None:
        """One eviction that did not come about."""
        self._add("failed_eviction_attempts_total", self.size, self.mode, f"reason={reason}", self.name)

    def updated_in_place(self) -> None:
        """One resize."""
        self._add("in_place_updated_pods_total", self.size, self.name)

    def not_updated_in_place(self, reason: str) -> None:
        """One resize that did not come about."""
        self._add("failed_in_place_update_attempts_total", self.size, f"reason={reason}", self.name)

    def skipped(self) -> None:
        """A pod whose resize was infeasible before."""
        self._add("in_place_infeasible_skip_pods_total", self.size, self.name)

    def whole(self, *, updatable: bool, updated: bool, evictable: bool, evicted: bool) -> None:
        """Whether the VPA had such pods at all."""
        for name, has, labels in (
            ("in_place_updatable", updatable, (self.size,)),
            ("in_place_updated", updated, (self.size,)),
            ("evictable", evictable, (self.size, self.mode)),
            ("evicted", evicted, (self.size, self.mode)),
        ):
            if has:
                self._add(f"vpas_with_{name}_pods_total", *labels)
