"""Which pods upstream compares while it groups them, and what that does to them (``PodSpecSemanticallyEqual``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kscale.ca.estimator.binpacking import GroupedPods
from kscale.scheduling.pods import MOST_SHAPES
from kscale.snapshot.record import PodRecord

__all__ = ["compared_pods", "without_environment"]


def compared_pods(grouped: GroupedPods, records: Sequence[PodRecord]) -> frozenset[str]:
    """Keys of pods that were compared with another: those of a controller that has several with the same labels.

    A pod is compared with the first of each shape of its controller that carries its labels, ten shapes at most, until
    one is its own. Both specs are stripped for that where they lie, see :func:`without_environment`.
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


def without_environment(pod: Mapping[str, Any]) -> dict[str, Any]:
    """A pod's API data as the comparison leaves it: containers and init containers without ``env`` and without mounts
    of projected volumes."""
    spec = pod.get("spec") or {}
    projected = {volume.get("name") for volume in spec.get("volumes") or () if volume.get("projected") is not None}

    def bare(container: Mapping[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in container.items() if name != "env"}
        if kept.get("volumeMounts"):
            kept["volumeMounts"] = [mount for mount in kept["volumeMounts"] if mount.get("name") not in projected]
        return kept

    lists = {name: [bare(each) for each in spec[name]] for name in ("containers", "initContainers") if spec.get(name)}
    return {**pod, "spec": {**spec, **lists}}
