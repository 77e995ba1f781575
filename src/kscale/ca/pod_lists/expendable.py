"""Pods so unimportant that no node is added for them, and that take no room (``core/utils/expendable.go``)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kscale.objects.core import Pod
from kscale.snapshot.snapshot import Snapshot

__all__ = ["expendable_placed", "is_expendable", "snapshot_without_expendable", "without_expendable"]

_HAS_PRIORITY = "pods that name a priority"


def is_expendable(pod: Pod, cutoff: int) -> bool:
    """A priority below the cutoff. A pod without priority never is."""
    return pod.spec.priority is not None and pod.spec.priority < cutoff


def without_expendable(pods: Iterable[Pod], cutoff: int) -> list[Pod]:
    """The pods that count, in their order."""
    return [pod for pod in pods if not is_expendable(pod, cutoff)]


def expendable_placed(snapshot: Snapshot, cutoff: int) -> NDArray[np.int64]:
    """Placed pods that are expendable, by position in ``snapshot.pods``: int64[n]."""
    low = np.flatnonzero(snapshot.placed.priorities < cutoff)
    if cutoff <= 0 or not len(low):
        return low
    # A pod without priority has 0 in the column.
    return snapshot.placed.where(_HAS_PRIORITY, lambda pod: pod.spec.priority is not None, low)


def snapshot_without_expendable(snapshot: Snapshot, cutoff: int) -> Snapshot:
    """The snapshot without its expendable pods: upstream's has none of them."""
    return snapshot.without_placed(expendable_placed(snapshot, cutoff))
