"""Which pods a call is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError
from kscale.objects.core import Pod
from kscale.scheduling.arguments import short
from kscale.scheduling.doors import record_of
from kscale.snapshot.pod_rows import PodRows
from kscale.snapshot.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["PodLike", "PodsLike", "pods_of", "priorities_of", "stand_in_groups"]

PodLike = str | Pod | PodRecord | dict[str, Any]
"""The name of a pod of the snapshot, or a pod as it is."""

PodsLike = Iterable[PodLike] | None
"""None = the pending pods of the snapshot; names = pods of the snapshot; anything else = pods as they are."""


def pods_of(snapshot: Snapshot, pods: PodsLike, *, waiting: bool = False) -> Sequence[PodRecord]:
    """The pods of a call. Raises InputError for a name that the snapshot does not have, or that is given twice.

    ``waiting``: a pod by name must be one that waits: where one that runs would be placed once more, and counted twice.
    """
    if pods is None:
        return snapshot.pending_records
    if isinstance(pods, PodRows):
        return pods
    if isinstance(pods, (str, bytes, dict)) or not isinstance(pods, Iterable):
        raise InputError(f"pods is {short(pods)}: give a list of pod names or objects")
    pods = [*pods]
    names = [pod for pod in pods if isinstance(pod, str)]
    if names:
        _check_names(snapshot, names, waiting)
    if all(isinstance(pod, str) for pod in pods):
        try:
            return snapshot.records(cast("list[str]", pods))
        except KeyError as problem:
            raise InputError(f"no pod {problem.args[0]!r} in the snapshot") from None
    found = []
    for pod in pods:
        if not isinstance(pod, str):
            found.append(record_of(pod))
            continue
        try:
            found.append(snapshot.record(pod))
        except KeyError:
            raise InputError(f"no pod {pod!r} in the snapshot") from None
    return found


def _check_names(snapshot: Snapshot, names: list[str], waiting: bool) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise InputError(f"pod {twice!r} is given twice")
    if not waiting:
        return
    try:
        nodes = snapshot.nodes_of(names)
    except KeyError as problem:
        raise InputError(f"no pod {problem.args[0]!r} in the snapshot") from None
    for name, node in zip(names, nodes, strict=True):
        if node >= 0:
            raise InputError(
                f"pod {name!r} is on node {snapshot.nodes[node]!r} already: only a pod that waits is placed"
            )


def priorities_of(pods: Sequence[PodRecord]) -> NDArray[np.int64]:
    """``spec.priority`` of each, 0 if absent: int64[n]."""
    if isinstance(pods, PodRows):
        return pods.priorities
    return np.fromiter((pod.priority for pod in pods), dtype=np.int64, count=len(pods))


def stand_in_groups(pods: Sequence[PodRecord]) -> NDArray[np.bool_]:
    """Whether each has a controller whose replicas upstream compares (no DaemonSet): bool[n]."""
    if isinstance(pods, PodRows):
        owned: NDArray[np.bool_] = pods.controllers >= 0
        return owned
    return np.fromiter((pod.controller is not None for pod in pods), dtype=np.bool_, count=len(pods))
