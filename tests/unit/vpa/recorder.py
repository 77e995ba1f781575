"""One container whose samples are read back from its histograms."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np

from kscale.vpa import RecommenderOptions, RecommenderState, Usage
from kscale.vpa.model.histogram import MEMORY_HISTOGRAM_OPTIONS
from kscale.vpa.model.saved_state import add_usage

HOUR = 3600 * 10**9
DAY = 24 * HOUR
T0 = 1492536905 * 10**9  # 2017-04-18T17:35:05Z
MIB = 2**20
NAME = ("default", "pod", "app")


class Recorder:
    """One container; what it adds to its histograms is read back from the weights."""

    def __init__(self, hours: int = 24, **options: Any) -> None:
        self.state = RecommenderState(RecommenderOptions(memory_aggregation_interval=timedelta(hours=hours), **options))
        one = self.state.add_pod("default", "pod", {"app": "x"}, "Running", T0)
        self.state.add_container(one, "app", T0)

    def add(self, *events: tuple[int, int, int]) -> list[bool]:
        """(time, value, kind): whether each was taken."""
        accepted = []
        for time, value, kind in events:
            refused = add_usage(self.state, Usage.from_events([(NAME, time, value, kind)]), T0)
            accepted.append(not refused)
        return accepted

    def memory(self) -> dict[int, float]:
        """Bucket -> weight of memory peaks."""
        weights = self.state.store.memory.weights[0]
        return {int(b): float(weights[b]) for b in np.flatnonzero(weights)}

    @property
    def window_end(self) -> int:
        return int(self.state.store.window_end[0])


def bucket(size: int) -> int:
    return int(MEMORY_HISTOGRAM_OPTIONS.find_buckets([float(size)])[0])


def cluster(*names: tuple[str, str, dict[str, str]]) -> RecommenderState:
    state = RecommenderState()
    for namespace, name, labels in names:
        one = state.add_pod(namespace, name, labels, "Running", T0)
        state.add_container(one, "app", T0)
    return state
