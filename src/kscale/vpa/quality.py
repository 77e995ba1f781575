"""How good recommendations were, as upstream counts it in its metrics (``pkg/utils/metrics/quality``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from kscale.objects.base import ResourceList
from kscale.vpa.metrics import Tally, size_log2
from kscale.vpa.resources import CPU, MEMORY

__all__ = ["Quality"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

_NAMES: Final = {CPU: ("cpu", "cores"), MEMORY: ("mem", "bytes")}


class Quality:
    """Tells ``into`` how usage and recommendations compare."""

    def __init__(self, into: Tally | None = None) -> None:
        self.into = into if into is not None else Tally()
        self._changes: list[_Change] = []

    def samples(
        self, resource: str, modes: Sequence[str], mode: Numbers, usage: Floats, recommended: Floats, is_oom: Flags
    ) -> None:
        """Samples of containers that need a recommendation: cores or bytes, and what was recommended last (0: nothing).

        ``modes[mode[i]]`` is the update mode, empty where the VPA names none.
        """
        killed = bool(is_oom.any())
        for number, name in sorted(enumerate(modes), key=itemgetter(1)):
            for oom in (False, True)[: 1 + killed]:
                chosen = (mode == number) & (is_oom == oom) if killed else mode == number
                if chosen.all():
                    self._group(resource, name, oom, usage, recommended)
                elif chosen.any():
                    self._group(resource, name, oom, usage[chosen], recommended[chosen])

    def _group(self, resource: str, mode: str, oom: bool, usage: Floats, recommended: Floats) -> None:
        short, unit = _NAMES[resource]
        own: dict[str, str | bool] = {"is_oom": oom} if resource == MEMORY else {}
        missing = recommended == 0
        by_mode: dict[str, str | bool] = {"update_mode": mode}
        relative: dict[str, str | bool] = {**by_mode, "resource": resource, "is_oom": oom}
        lacking = int(np.count_nonzero(missing))
        if lacking:
            self.into.count("vpa_quality_usage_sample_missing_recommendation_count", relative, lacking)
        known, used = (recommended[~missing], usage[~missing]) if lacking else (recommended, usage)
        self.into.observe(f"vpa_quality_{short}_recommendations_{unit}", {**by_mode, **own}, known)
        above = known > 0
        part = (used - known) / known if above.all() else (used[above] - known[above]) / known[above]
        self.into.observe("vpa_quality_usage_recommendation_relative_diffs", relative, part)
        for is_missing, use, wanted in (
            (False, used, known),
            (True, usage[missing], recommended[missing]) if lacking else (True, usage[:0], recommended[:0]),
        ):
            difference, over = np.abs(use - wanted), wanted > use
            labels = {**by_mode, "recommendation_missing": is_missing, **own}
            for side, chosen in (("over", over), ("lower_equal", ~over)):
                name = f"vpa_quality_{short}_recommendation_{side}_usage_diffs_{unit}"
                self.into.observe(name, labels, difference[chosen])

    def change(self, old: ResourceList | None, new: ResourceList | None, mode: str | None, pods: int) -> None:
        """A recommendation that follows another one; nothing is counted where there was none. It is worked out when
        somebody looks."""
        if old is None or new is None:
            return
        if not self._changes:
            self.into.later(partial(_tell_changes, self._changes))
        self._changes.append((old, new, mode, pods))


_Change = tuple[ResourceList, ResourceList, str | None, int]
"""Two recommendations, the update mode, and how many pods there are."""


def _tell_changes(changes: list[_Change], into: Tally) -> None:
    told, changes[:] = changes[:], []
    for old, new, mode, pods in told:
        for resource, amount in new.items():
            if resource not in _NAMES or resource not in old:
                continue
            before = old[resource].milli_value() if resource == CPU else old[resource].value()
            after = amount.milli_value() if resource == CPU else amount.value()
            if before > 0:
                labels = {"update_mode": mode or "", "resource": resource, "vpa_size_log2": str(size_log2(pods))}
                change = [float(after) / float(before) - 1.0]
                into.observe("vpa_quality_relative_recommendation_changes", labels, change)
