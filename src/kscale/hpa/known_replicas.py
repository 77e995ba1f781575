"""The replica calculator's answers where they have been worked out before: for many HPAs at once, over columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kscale.effects import StepsOf
from kscale.hpa.calculation import Calculation, Replicas
from kscale.hpa.replica_calculator import ReplicaCalculator

__all__ = ["KnownReplicas"]


@dataclass(frozen=True, slots=True)
class KnownReplicas(ReplicaCalculator):
    """Gives what was ``found``, in its order, whichever function is asked. None of it is an error."""

    found: Iterator[Replicas] = field(default_factory=lambda: iter(()))

    def _next(self, *_: Any, **__: Any) -> Calculation:
        return _known(next(self.found))

    get_resource_replicas = _next
    get_raw_resource_replicas = _next
    get_metric_replicas = _next
    get_object_metric_replicas = _next
    get_object_per_pod_metric_replicas = _next
    get_external_metric_replicas = _next
    get_external_per_pod_metric_replicas = _next


def _known(found: Replicas) -> StepsOf[Any, Replicas]:
    return found
    yield  # a calculation that asks nothing
