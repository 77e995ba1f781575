"""Groups pods that upstream treats as equivalent: equivalence groups of a scale-up, and SimilarPods.

``_native/src/engine/simulate.cpp`` remembers which shapes did not fit while it places pods. Upstream:
``core/scaleup/equivalence``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kscale._native import _names
from kscale.objects.pod_equivalence import Digester
from kscale.snapshot.classes.pod_shapes import renumber
from kscale.snapshot.columns import distinct
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.pods.rows import PodRows

__all__ = ["MAX_SHAPES", "equivalence_groups", "number_controllers_and_shapes"]


MAX_SHAPES = 10
"""Number of shapes that upstream remembers per controller; pods of further shapes are groups of their own."""


def equivalence_groups(
    controller: NDArray[np.int32], shape: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return upstream's pod equivalence groups as (pods, starts).

    ``controller``, ``shape``: the number of each pod's controller and shape (:func:`number_controllers_and_shapes`); a
    pod without a controller is a group of its own. ``pods``: positions of pods, group after group, int32[n].
    ``starts``: where groups start in ``pods``, and its length at the end, int32[groups + 1]. Groups come in the order
    of their first pod. Upstream remembers the first ten shapes of a controller; every pod of a further shape is a group
    of its own.
    Upstream: ``core/scaleup/equivalence``.
    """
    return _names.equivalence_groups(controller, shape, MAX_SHAPES)


_NO_CONTROLLER = -1


def number_controllers_and_shapes(pods: Sequence[PodRecord]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return numbers of each pod's controller and shape, int32[n] each; -1 for a pod without a controller.

    Pods with equal controller and shape are replicas that upstream treats as equivalent. Of a ``PodRows``, the numbers
    are cached in it, and in sequences that are taken from it later.
    """
    if isinstance(pods, PodRows):
        if pods.equivalence is None:
            pods.equivalence = _find_shared_numbers(pods) or _shapes_of_rows(pods, Digester())
        else:  # they may be those of more pods
            pods.equivalence = _limit(pods.equivalence[0]), _limit(pods.equivalence[1])
        return pods.equivalence
    controllers: dict[str, int] = {}
    shapes: dict[tuple[int, bytes], int] = {}
    controller = np.full(len(pods), _NO_CONTROLLER, dtype=np.int32)
    shape = np.full(len(pods), _NO_CONTROLLER, dtype=np.int32)
    digester = Digester()
    owners = [pod.controller for pod in pods]
    pods_of = Counter(owners)
    for i, (pod, uid) in enumerate(zip(pods, owners, strict=True)):
        if uid is None:
            continue
        controller[i] = number = controllers.setdefault(uid, len(controllers))
        contents = pod.digest(digester) if pods_of[uid] > 1 else b""  # a pod alone is equivalent to no other
        shape[i] = shapes.setdefault((number, contents), len(shapes))
    return controller, shape


def _find_shared_numbers(pods: PodRows) -> tuple[NDArray[np.int32], NDArray[np.int32]] | None:
    """Return the numbers of pending pods whose table shares its numbers with other tables; None for all other pods.

    On first use, the numbers of all pods that can be pending in one of these tables are computed together.
    """
    shared = pods.table.equivalence
    if shared is None or not pods.pending:
        return None
    by_row = shared.by_row
    if by_row is None:
        controllers, shapes = np.full((2, len(pods.table)), _NO_CONTROLLER, dtype=np.int32)
        controllers[shared.rows], shapes[shared.rows] = _shapes_of_rows(PodRows(pods.table, shared.rows), Digester())
        by_row = shared.by_row = controllers, shapes
    return _limit(pods.select(by_row[0])), _limit(pods.select(by_row[1]))


_SHAPES = "shapes of pods"


def _shapes_of_rows(pods: PodRows, digester: Digester) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Implement :func:`number_controllers_and_shapes` for pods of a snapshot, with few digests.

    One pod is digested for each distinct pair of controller and contents, and none if all pods of the controller have
    equal contents. Shape numbers are cached in the table.
    """
    controller, contents, stamps, memo = pods.controllers, pods.contents, pods.stamps, pods.table.memo
    owned = np.flatnonzero(controller >= 0)
    first = np.arange(len(controller))  # first pod with the same controller and contents
    known = owned[contents[owned] >= 0]
    first[known] = known[_find_first_equal(controller[known], contents[known])]
    several = np.bincount(controller[owned[first[owned] == owned]], minlength=1) > 1
    with memo.lock:
        cached, numbers = memo.get_numbers(_SHAPES), memo.values(_SHAPES)
        missing = owned[(cached[stamps[owned]] == 0) & several[controller[owned]]]
        number_of = np.zeros(len(controller), dtype=np.int32)
        unknown = distinct(first[missing]) if len(missing) else missing
        for i, contents_digest in zip(unknown.tolist(), pods.digests(unknown, digester), strict=True):
            uid = pods.table.interner.controllers[controller[i]]  # numbers of deleted controllers are reused
            number_of[i] = numbers.setdefault((uid, contents_digest), len(numbers) + 1)
        cached[stamps[missing]] = number_of[first[missing]]
        shape = (cached[stamps] - 1).astype(np.int32)
        count = len(numbers)
    shape[controller < 0] = _NO_CONTROLLER
    alone = owned[~several[controller[owned]]]
    shape[alone] = count + controller[alone]
    return _limit(controller), _limit(shape)


def _find_first_equal(left: NDArray[np.int32], right: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of the first pair (``left[i]``, ``right[i]``) that equals each pair: int64[n]."""
    width = int(right.max(initial=0)) + 1
    if int(left.max(initial=0)) + 1 >= _MAX_PAIRS // width:
        left, right = renumber(left)[0], renumber(right)[0].astype(np.int64)
        width = int(right.max(initial=0)) + 1
    pair, first = renumber(left.astype(np.int64) * width + right)
    return first[pair]


_MAX_PAIRS = 1 << 62


def _limit(numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return numbers that are less than the number of entries; equal numbers stay equal, and -1 stays -1."""
    return numbers if numbers.max(initial=-1) < len(numbers) else _renumber(numbers)


def _renumber(numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    """Renumber so that numbers are consecutive from 0; equal numbers stay equal, and -1 stays -1."""
    ranks, _ = renumber(numbers + 1)
    return ranks - 1 if len(numbers) and numbers.min() < 0 else ranks
