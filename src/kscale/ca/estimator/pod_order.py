"""Which pods an estimate places first (upstream: ``estimator/decreasing_pod_orderer.go``)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.quantity import Quantity
from kscale.objects.requests import CPU, MEMORY

__all__ = ["decreasing", "places_of"]


def places_of(asked: NDArray[np.float64], template: NodeTemplate) -> NDArray[np.integer[Any]]:
    """int[K]: the place of each of ``asked`` (float64[K, 2]: cpu, memory) by falling score; equal ones share theirs.

    The score is upstream's: requests relative to allocatable; other resources do not count. Upstream takes the requests
    with the pod's status here, and as they read: a huge one wraps to a negative number.
    """
    allocatable = template.node.status.allocatable or {}
    zero = Quantity("0")
    amounts = allocatable.get(CPU, zero).milli_value(), allocatable.get(MEMORY, zero).value()
    score = np.zeros(len(asked))
    for column, amount in enumerate(amounts):
        if amount > 0:
            score += asked[:, column] / float(amount)
    _, place = np.unique(-score, return_inverse=True)
    return place.astype(np.uint16) if len(place) <= 1 << 16 else place  # few bits are sorted without comparing


def decreasing(asks: NDArray[np.intp], places: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Groups by falling score: int64[groups]; equal ones keep their order. ``asks``: int[groups], which of ``places``
    is a group's."""
    return np.argsort(places[asks], kind="stable")
