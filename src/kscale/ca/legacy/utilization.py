"""How full a node is (release 1.3, ``simulator/cluster.go``)."""

from __future__ import annotations

from collections.abc import Iterable

from kscale.ca.errors import AutoscalerError
from kscale.ca.scale_down.utilization import Usage, Utilization, utilization_of
from kscale.objects.core import Node, Pod
from kscale.objects.quantity import Quantity
from kscale.objects.requests import CPU, MEMORY

__all__ = ["legacy_utilization"]


def legacy_utilization(node: Node, pods: Iterable[Pod]) -> tuple[Utilization, str | None]:
    """The larger of cpu and memory: requests of containers alone, over what is allocatable.

    Where that cannot be told the node counts as unused; the second part says why.
    """
    asked = [container.resources.requests or {} for pod in pods for container in pod.spec.containers]
    used = {
        name: Quantity.sum(requests[name] for requests in asked if name in requests).milli_value()
        for name in (CPU, MEMORY)
    }
    try:
        return utilization_of(node, Usage(used=used)), None
    except AutoscalerError as error:
        return Utilization(utilization=0.0, resource_name=""), error.message
