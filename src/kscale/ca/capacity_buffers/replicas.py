"""How many pods a buffer is (``capacitybuffer/translators/replicas.go``)."""

from __future__ import annotations

from collections.abc import Mapping

from kscale.ca.go_math import quotient, wrap_int32
from kscale.objects.capacity_buffers import CapacityBufferSpec
from kscale.objects.core import Pod, PodTemplateSpec
from kscale.objects.quantity import Quantity
from kscale.objects.requests import demand

__all__ = ["CapacityBufferError", "buffer_replicas"]

_MOST = (1 << 31) - 1


class CapacityBufferError(ValueError):
    """Why a buffer cannot be provided, in upstream's words."""


def buffer_replicas(spec: CapacityBufferSpec, template: PodTemplateSpec, scale: int | None = None) -> int:
    """The number of pods that a buffer asks for.

    ``template``: what they are like, its requests filled in; ``scale``: the replicas of the workload that the buffer
    refers to, None without one. Whole numbers are int32, as upstream's. Raises :class:`CapacityBufferError`
    if nothing says how many.
    """
    replicas = -1
    if spec.replicas is not None:
        replicas = max(0, spec.replicas)
    if spec.percentage is not None and scale is not None:
        replicas = max(replicas, _share(spec.percentage, scale))
    if spec.limits is not None:
        most = _within(spec.limits, demand(Pod(spec=template.spec)))
        return most if replicas < 0 else min(replicas, most)
    if replicas < 0:
        raise CapacityBufferError("replicas, percentage and limits are not defined")
    return replicas


def _share(percentage: int, scale: int) -> int:
    """A percentage of the replicas, rounded up."""
    if percentage <= 0 or scale <= 0:
        return 0
    return quotient(wrap_int32(percentage * scale + 99), 100)


def _within(limits: Mapping[str, Quantity], requests: Mapping[str, Quantity]) -> int:
    found = []
    for name, quantity in requests.items():
        each = quantity.milli_value()
        limit = limits.get(name)
        if each > 0 and limit is not None:
            most = wrap_int32(quotient(limit.milli_value(), each))
            if most >= 0:
                found.append(most)
    if not found:
        raise CapacityBufferError("resources in configured limits not found in the pod template")
    return min(_MOST, *found)
