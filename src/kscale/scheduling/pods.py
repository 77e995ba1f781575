"""Which pods a call is about, and which of them count as the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError
from kscale.objects.core import Pod
from kscale.objects.equivalence import Digester
from kscale.snapshot.pod_table import PodRows
from kscale.snapshot.record import PodRecord, pod_record
from kscale.snapshot.snapshot import Snapshot

__all__ = ["MOST_SHAPES", "PodsLike", "equivalence_groups", "pods_of", "priorities_of", "shapes_of"]

PodsLike = Iterable[str | Pod | PodRecord | dict[str, Any]] | None
"""None = the pending pods of the snapshot; names = pods of the snapshot; anything else = pods as they are."""

MOST_SHAPES = 10
"""Shapes that upstream remembers per controller; from the next one on every pod stands alone."""

_NO_CONTROLLER = -1


def pods_of(snapshot: Snapshot, pods: PodsLike) -> Sequence[PodRecord]:
    """The pods of a call. Raises InputError for a name that the snapshot does not have."""
    if pods is None:
        return snapshot.pending_records
    pods = [*pods]
    if all(isinstance(pod, str) for pod in pods):
        try:
            return snapshot.records(cast("list[str]", pods))
        except KeyError as problem:
            raise InputError(f"no pod {problem.args[0]!r} in the snapshot") from None
    found = []
    for pod in pods:
        if not isinstance(pod, str):
            found.append(pod_record(pod))
            continue
        try:
            found.append(snapshot.record(pod))
        except KeyError:
            raise InputError(f"no pod {pod!r} in the snapshot") from None
    return found


def priorities_of(pods: Sequence[PodRecord]) -> NDArray[np.int64]:
    """``spec.priority`` of each, 0 if absent: int64[n]."""
    if isinstance(pods, PodRows):
        return pods.priorities
    return np.fromiter((pod.priority for pod in pods), dtype=np.int64, count=len(pods))


def shapes_of(pods: Sequence[PodRecord]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(controller, shape): int32[n] each. Pods of one controller with one shape are replicas that upstream takes for
    the same; -1 = stands alone."""
    controllers: dict[str, int] = {}
    shapes: dict[tuple[int, bytes], int] = {}
    controller = np.full(len(pods), _NO_CONTROLLER, dtype=np.int32)
    shape = np.full(len(pods), _NO_CONTROLLER, dtype=np.int32)
    digester = Digester()
    if isinstance(pods, PodRows):
        return _shapes_of_rows(pods, digester)
    for i, pod in enumerate(pods):
        uid = pod.controller
        if uid is None:
            continue
        controller[i] = number = controllers.setdefault(uid, len(controllers))
        shape[i] = shapes.setdefault((number, pod.digest(digester)), len(shapes))
    return controller, shape


def _shapes_of_rows(pods: PodRows, digester: Digester) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The same, looking only at pods that may be alike, and at one of those that equal an exemplar."""
    controller, exemplars = _in_order_met(pods.controllers), pods.exemplars
    shape = np.full(len(pods), _NO_CONTROLLER, dtype=np.int32)
    number_of: dict[tuple[int, bytes], int] = {}
    owned = np.flatnonzero(controller >= 0)
    alike = owned[exemplars[owned] >= 0]
    pairs, first, inverse = np.unique(
        np.stack([controller[alike], exemplars[alike]]), axis=1, return_index=True, return_inverse=True
    )
    single = owned[exemplars[owned] < 0]
    # A controller's only pod, or only exemplar, is like no other whatever it looks like.
    several = np.bincount(np.concatenate([pairs[0], controller[single]])) > 1

    def number(i: int) -> int:
        uid = int(controller[i])
        return number_of.setdefault((uid, pods[i].digest(digester) if several[uid] else b""), len(number_of))

    numbers = [number(i) for i in alike[first].tolist()]
    if len(alike):
        shape[alike] = np.array(numbers, dtype=np.int32)[inverse.reshape(-1)]
    for i in single.tolist():
        shape[i] = number(i)
    return controller, shape


def _in_order_met(numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    """Numbers from 0 on in order of appearance, -1 as it is."""
    out = np.full(len(numbers), _NO_CONTROLLER, dtype=np.int32)
    owned = np.flatnonzero(numbers >= 0)
    _, first, inverse = np.unique(numbers[owned], return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    out[owned] = rank[inverse]
    return out


def equivalence_groups(
    controller: NDArray[np.int32], shape: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Upstream's pod equivalence groups (``core/scaleup/equivalence``): (pods group after group, group starts).

    Groups come in the order of their first pod. The first ten shapes of a controller are remembered; every pod of a
    further shape stands alone.
    """
    n = len(controller)
    leader = np.arange(n, dtype=np.int64)
    owned = np.flatnonzero(controller >= 0)
    if len(owned):
        shapes, first, inverse = np.unique(shape[owned], return_index=True, return_inverse=True)
        first_pod = owned[first]
        of_controller = controller[first_pod]
        by_controller = np.lexsort((first_pod, of_controller))
        sorted_controllers = of_controller[by_controller]
        starts = np.flatnonzero(np.r_[True, sorted_controllers[1:] != sorted_controllers[:-1]])
        rank_sorted = np.arange(len(shapes)) - np.repeat(starts, np.diff(np.r_[starts, len(shapes)]))
        rank = np.empty(len(shapes), dtype=np.int64)
        rank[by_controller] = rank_sorted
        remembered = rank[inverse] < MOST_SHAPES
        leader[owned[remembered]] = first_pod[inverse[remembered]]
    order = np.argsort(leader, kind="stable").astype(np.int32)
    leaders = leader[order]
    begins = np.flatnonzero(np.r_[True, leaders[1:] != leaders[:-1]]) if n else np.zeros(0, dtype=np.int64)
    return order, np.append(begins, n).astype(np.int32)
