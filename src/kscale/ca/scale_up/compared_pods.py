"""Which pods upstream compares while it groups them, and what that does to them (``PodSpecSemanticallyEqual``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kscale.ca.estimator.grouped_pods import GroupedPods
from kscale.scheduling.equivalence_groups import MOST_SHAPES
from kscale.snapshot.record import PodRecord

__all__ = ["compared_pods"]


def compared_pods(grouped: GroupedPods, records: Sequence[PodRecord]) -> frozenset[str]:
    """Keys of pods that were compared with another: those of a controller that has several with the same labels.

    A pod is compared with the first of each shape of its controller that carries its labels, ten shapes at most, until
    one is its own. Both specs are stripped for that where they lie: of ``env`` and of mounts of projected volumes.
    ``records``: those of ``grouped``.
    """
    group_of = np.empty(len(records), dtype=np.int64)
    group_of[grouped.members] = np.repeat(np.arange(len(grouped.starts) - 1), np.diff(grouped.starts))
    recorded: dict[str, list[tuple[int, PodRecord]]] = {}
    compared: set[str] = set()
    for record, group in zip(records, group_of.tolist(), strict=True):
        if record.controller is None:
            continue
        shapes = recorded.setdefault(record.controller, [])
        labels = record.pod.metadata.labels
        for number, first in shapes:
            if first.pod.metadata.labels == labels:
                compared.update((record.key, first.key))
                if number == group:
                    break
        else:
            if len(shapes) < MOST_SHAPES:
                shapes.append((group, record))
    return frozenset(compared)
