"""Pods that ask for something else than they do."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kscale.objects.base import ResourceList
from kscale.objects.conditions import resize_infeasible
from kscale.objects.core import Container, ContainerStatus, Pod

__all__ = ["asking"]


def asking(
    pod: Pod,
    of_container: Callable[[Container], ResourceList | None],
    of_pod: Callable[[ResourceList], ResourceList] | None = None,
) -> Pod:
    """The pod with the requests that ``of_container`` gives for each container, init containers among them, and
    ``of_pod`` for those of the pod as a whole, where it has such.

    What the kubelet says about granted resources goes: it is about the requests that were.
    """
    spec, status = pod.spec, pod.status

    def changed(container: Container) -> Container:
        resources = msgspec.structs.replace(container.resources, requests=of_container(container))
        return msgspec.structs.replace(container, resources=resources)

    resources = spec.resources
    if resources is not None and resources.requests is not None and of_pod is not None:
        resources = msgspec.structs.replace(resources, requests=of_pod(resources.requests))
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(
            spec,
            containers=[changed(each) for each in spec.containers],
            init_containers=[changed(each) for each in spec.init_containers],
            resources=resources,
        ),
        status=msgspec.structs.replace(
            status,
            conditions=[each for each in status.conditions if each.type != "PodResizePending"]
            if resize_infeasible(pod)
            else status.conditions,
            container_statuses=[_granting_nothing(each) for each in status.container_statuses],
            init_container_statuses=[_granting_nothing(each) for each in status.init_container_statuses],
            allocated_resources=None,
            resources=None,
        ),
    )


def _granting_nothing(status: ContainerStatus) -> ContainerStatus:
    return msgspec.structs.replace(status, allocated_resources=None, resources=None)
