"""The quality of service of pods (upstream: ``pkg/apis/core/v1/helper/qos``)."""

from __future__ import annotations

from typing import Final

from kscale.objects.core import Pod
from kscale.objects.core.containers import ResourceRequirements
from kscale.objects.requests import CPU, MEMORY

__all__ = ["is_guaranteed"]

_COUNTED: Final = (CPU, MEMORY)


def is_guaranteed(pod: Pod) -> bool:
    """Whether all that a pod asks for of CPU and memory is also its limit (``GetPodQOS`` is ``Guaranteed``).

    What its status says counts; else requests and limits of all containers, or of the pod where it has some itself.
    """
    if pod.status.qos_class:
        return pod.status.qos_class == "Guaranteed"
    whole = pod.spec.resources
    if whole is not None and (whole.requests or whole.limits):
        return _is_fixed(whole)
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    return bool(containers) and all(_is_fixed(each.resources) for each in containers)


def _is_fixed(resources: ResourceRequirements) -> bool:
    """Requests that are not told are the limits, as the API server fills them in."""
    limits, requests = resources.limits or {}, resources.requests or {}
    return all(
        name in limits and not limits[name].is_zero and requests.get(name, limits[name]) == limits[name]
        for name in _COUNTED
    )
