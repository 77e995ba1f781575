"""Which pods a call is about, and which of them count as the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError
from kscale.objects.core import Pod
from kscale.objects.equivalence import Digester
from kscale.scheduling.arguments import short
from kscale.scheduling.doors import record_of
from kscale.snapshot.columns import distinct
from kscale.snapshot.pod_rows import PodRows
from kscale.snapshot.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["MOST_SHAPES", "PodsLike", "equivalence_groups", "pods_of", "priorities_of", "shapes_of", "stand_in_groups"]

PodsLike = Iterable[str | Pod | PodRecord | dict[str, Any]] | None
"""None = the pending pods of the snapshot; names = pods of the snapshot; anything else = pods as they are."""

MOST_SHAPES = 10
"""Shapes that upstream remembers per controller; from the next one on every pod stands alone."""

_NO_CONTROLLER = -1


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


_SHAPES = "shapes of pods"


def _shapes_of_rows(pods: PodRows, digester: Digester) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The same, looking once at pods that may be alike, and at one of those that equal an exemplar."""
    controller, exemplars, stamps, memo = pods.controllers, pods.exemplars, pods.stamps, pods.table.memo
    owned = np.flatnonzero(controller >= 0)
    # A controller's only pod, or only exemplar, is like no other whatever it looks like.
    of_exemplar = owned[exemplars[owned] >= 0]
    pairs = distinct(controller[of_exemplar].astype(np.int64) << 32 | exemplars[of_exemplar])
    owners = np.concatenate([pairs >> 32, controller[owned[exemplars[owned] < 0]]])
    several = np.bincount(owners, minlength=1) > 1
    with memo.lock:
        known, numbers = memo.of(_SHAPES), memo.values(_SHAPES)
        missing = owned[(known[stamps[owned]] == 0) & several[controller[owned]]]
        found: dict[tuple[int, int], int] = {}
        for i in missing.tolist():
            pair = int(controller[i]), int(exemplars[i])
            number = found.get(pair)
            if number is None:
                uid = pods.table.interner.controllers[pair[0]]  # a number is given again when its controller is gone
                number = numbers.setdefault((uid, pods.digest(i, digester)), len(numbers) + 1)
                if pair[1] >= 0:
                    found[pair] = number
            known[stamps[i]] = number
        shape = (known[stamps] - 1).astype(np.int32)
        count = len(numbers)
    shape[controller < 0] = _NO_CONTROLLER
    alone = owned[~several[controller[owned]]]
    shape[alone] = count + controller[alone]
    return _renumbered(controller), _renumbered(shape)


def _renumbered(numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    """Equal ones as before, from 0 on; -1 stays."""
    known, inverse = np.unique(numbers, return_inverse=True)
    return (inverse.reshape(-1) - int(len(known) > 0 and known[0] < 0)).astype(np.int32)


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
