"""Requests for cloud TPUs come from outside the cluster: no node offers them (``utils/tpu``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from kscale.objects.core import Container, Pod

__all__ = ["TPU_PREFIX", "clear_tpu_requests"]

TPU_PREFIX: Final = "cloud-tpus.google.com/"


def clear_tpu_requests(pods: Sequence[Pod]) -> list[Pod]:
    """The pods, those that ask for TPUs as copies that do not. Limits and init containers stay as they are."""
    return [_cleared(pod) if any(map(_asks, pod.spec.containers)) else pod for pod in pods]


def _asks(container: Container) -> bool:
    return any(name.startswith(TPU_PREFIX) for name in container.resources.requests or {})


def _cleared(pod: Pod) -> Pod:
    containers = [_without(container) if _asks(container) else container for container in pod.spec.containers]
    return replace(pod, spec=replace(pod.spec, containers=containers))


def _without(container: Container) -> Container:
    requests = container.resources.requests or {}
    kept = {name: amount for name, amount in requests.items() if not name.startswith(TPU_PREFIX)}
    return replace(container, resources=replace(container.resources, requests=kept))
