"""What was joined of many lists of usage, and is joined again of nearly the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kscale.objects.runs import Run, runs_of

if TYPE_CHECKING:
    from kscale.objects.pod_metrics import PodUsage

__all__ = ["Seams", "pieces_of", "seams_of"]

Seams = NDArray[np.int64]
"""int64[3, n + 1]: where the rows, the containers and the label sets of n parts begin, and where those of the last
end."""


def seams_of(parts: Sequence[PodUsage]) -> Seams:
    """Where parts meet that are joined."""
    sizes = [(len(part), len(part.container), len(part.label_sets)) for part in parts]
    return np.cumsum([(0, 0, 0), *sizes], axis=0, dtype=np.int64).T


def pieces_of(parts: Sequence[PodUsage], before: PodUsage) -> tuple[Sequence[PodUsage], Seams] | None:
    """Fewer lists that come to the same rows as ``parts``, taken of what was joined ``before`` where its parts are the
    very same, and where the parts meet. None: there is nothing in common that could be taken."""
    seams = before.seams
    if seams is None or not before.whole_units.none:
        return None
    runs = runs_of(parts, before.parts)
    fresh = [part for run in runs if run.before < 0 for part in parts[run.first : run.end]]
    if 2 * len(fresh) > len(parts) or not all(_goes_with(part, before) for part in fresh):
        return None
    pieces: list[PodUsage] = []
    sizes = []
    for run in runs:
        if run.before < 0:
            pieces += parts[run.first : run.end]
            sizes.append(np.diff(seams_of(parts[run.first : run.end])))
        else:
            pieces.append(_rows(before, run, seams))
            sizes.append(np.diff(seams[:, run.before : run.before + run.end - run.first + 1]))
    return pieces, np.cumsum(np.concatenate([np.zeros((3, 1), np.int64), *sizes], axis=1), axis=1)


def _goes_with(part: PodUsage, before: PodUsage) -> bool:
    """Whether a part was not joined itself, and says nothing that has no place in what was joined."""
    return (
        not part.parts
        and part.whole_units.none
        and part.resources == before.resources
        and set(part.namespaces) <= set(before.namespaces)
        and set(part.containers) <= set(before.containers)
    )


def _rows(usage: PodUsage, run: Run, seams: Seams) -> PodUsage:
    """What a list has of a run of its parts, without keys."""
    (row, item, label), (rows, items, labels) = seams[:, [run.before, run.before + run.end - run.first]].T.tolist()
    of_rows, of_items = slice(row, rows), slice(item, items)
    numbers, columns = usage.labels[of_rows], list(usage.columns())
    keys: Any = range(rows - row)  # as many as there are; whoever joins them has the keys
    return type(usage)(
        keys,
        usage.namespace[of_rows],
        usage.namespaces,
        np.where(numbers < 0, -1, numbers - np.int32(label)),
        usage.label_sets[label:labels],
        usage.time[of_rows],
        usage.window[of_rows],
        usage.ends[of_rows] - item,
        usage.container[of_items],
        usage.containers,
        usage.resources,
        [amount[of_items] for _, amount, _ in columns],
        [present[of_items] for _, _, present in columns],
    )
