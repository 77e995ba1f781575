"""How good recommendations were, as upstream counts it in its metrics (``pkg/utils/metrics/quality``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from kscale.objects.base import ResourceList
from kscale.vpa.resources import CPU, MEMORY

__all__ = ["CPU_BUCKETS", "MEMORY_BUCKETS", "RELATIVE_BUCKETS", "Distribution", "Quality", "size_log2"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

CPU_BUCKETS: Final = tuple(0.01 * 2.0**k for k in range(17))
"""In cores."""
MEMORY_BUCKETS: Final = tuple(1e6 * 2.0**k for k in range(17))
"""In bytes."""
_PARTS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
RELATIVE_BUCKETS: Final = (*(-part for part in reversed(_PARTS)), 0.0, *_PARTS, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0)
_NAMES: Final = {CPU: ("cpu", "cores", CPU_BUCKETS), MEMORY: ("mem", "bytes", MEMORY_BUCKETS)}
_MOST_LOG2: Final = 20


class Distribution(msgspec.Struct):
    """Observations of a histogram metric: ``counts[i]`` at most ``bounds[i]`` (and above the bound before), the last
    above all bounds; ``total`` is their sum."""

    bounds: Sequence[float]
    counts: list[int]
    total: float = 0.0


def size_log2(pods: int) -> int:
    """The label ``vpa_size_log2``."""
    return 0 if pods <= 0 else min(pods.bit_length() - 1, _MOST_LOG2)


class Quality:
    """Collects; keys are ``metric{label=value,...}``."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.distributions: dict[str, Distribution] = {}

    def _observe(self, metric: str, labels: Mapping[str, str], bounds: Sequence[float], values: Floats) -> None:
        if len(values) == 0:
            return
        key = _key(metric, labels)
        found = self.distributions.get(key)
        if found is None:
            found = self.distributions[key] = Distribution(bounds, [0] * (len(bounds) + 1))
        counts = np.bincount(np.searchsorted(bounds, values, side="left"), minlength=len(bounds) + 1)
        found.counts = [a + b for a, b in zip(found.counts, counts.tolist(), strict=True)]
        found.total += float(values.sum())

    def samples(self, resource: str, modes: Sequence[str], usage: Floats, recommended: Floats, is_oom: Flags) -> None:
        """Samples of containers that need a recommendation: cores or bytes, and what was recommended last (0: nothing).

        ``modes[i]`` is the update mode, empty where the VPA names none.
        """
        numbers = {mode: i for i, mode in enumerate(sorted(set(modes)))}
        of_row = np.array([numbers[mode] for mode in modes], np.int64)
        for mode, number in numbers.items():
            for oom in (False, True):
                chosen = (of_row == number) & (is_oom == oom)
                if chosen.any():
                    self._group(resource, mode, oom, usage[chosen], recommended[chosen])

    def _group(self, resource: str, mode: str, oom: bool, usage: Floats, recommended: Floats) -> None:
        short, unit, bounds = _NAMES[resource]
        flag = {"is_oom": _flag(oom)}
        own = flag if resource == MEMORY else {}
        missing = recommended == 0
        by_mode = {"update_mode": mode}
        relative = {**by_mode, "resource": resource, **flag}
        lacking = int(np.count_nonzero(missing))
        if lacking:
            self.counters[_key("usage_sample_missing_recommendation_count", relative)] += lacking
        known, used = recommended[~missing], usage[~missing]
        self._observe(f"{short}_recommendations_{unit}", {**by_mode, **own}, bounds, known)
        above = known > 0
        self._observe(
            "usage_recommendation_relative_diffs",
            relative,
            RELATIVE_BUCKETS,
            (used[above] - known[above]) / known[above],
        )
        for is_missing in (False, True):
            rows = missing == is_missing
            difference, over = np.abs(usage[rows] - recommended[rows]), recommended[rows] > usage[rows]
            labels = {**by_mode, "recommendation_missing": _flag(is_missing), **own}
            self._observe(f"{short}_recommendation_over_usage_diffs_{unit}", labels, bounds, difference[over])
            self._observe(f"{short}_recommendation_lower_equal_usage_diffs_{unit}", labels, bounds, difference[~over])

    def change(self, old: ResourceList | None, new: ResourceList | None, mode: str | None, pods: int) -> None:
        """A recommendation that follows another one; nothing is counted where there was none."""
        if old is None or new is None:
            return
        for resource, amount in new.items():
            if resource not in _NAMES or resource not in old:
                continue
            before = old[resource].milli_value() if resource == CPU else old[resource].value()
            after = amount.milli_value() if resource == CPU else amount.value()
            if before > 0:
                labels = {"update_mode": mode or "", "resource": resource, "vpa_size_log2": str(size_log2(pods))}
                change = np.array([float(after) / float(before) - 1.0])
                self._observe("relative_recommendation_changes", labels, RELATIVE_BUCKETS, change)


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _key(metric: str, labels: Mapping[str, str]) -> str:
    inner = ",".join(f"{name}={value}" for name, value in labels.items())
    return f"vpa_quality_{metric}{{{inner}}}"
