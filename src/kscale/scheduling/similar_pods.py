"""Pods that upstream takes for the same (SimilarPods): after one that found no node, none is tried.

Which shapes found none is kept in ``_native/src/engine/simulate.cpp`` while pods are placed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kscale.objects.equivalence import Digester
from kscale.snapshot.columns import distinct
from kscale.snapshot.pod_rows import PodRows
from kscale.snapshot.pod_shapes import numbered
from kscale.snapshot.record import PodRecord

__all__ = ["shapes_of"]

_NO_CONTROLLER = -1


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
    found, _ = numbered(numbers + 1)
    return found - 1 if len(numbers) and numbers.min() < 0 else found
