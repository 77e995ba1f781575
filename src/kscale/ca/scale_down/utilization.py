"""How much of a node is asked for (``simulator/utilization/info.go``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from kscale.ca.errors import AutoscalerError
from kscale.ca.go_math import divide, wrap_int64
from kscale.ca.gpu import GpuConfig
from kscale.ca.pods import is_long_terminating
from kscale.ca.scale_down.dra_utilization import highest_pool_utilization
from kscale.objects.base import ResourceList
from kscale.objects.core import Node, Pod
from kscale.objects.owners import is_daemonset_pod, is_mirror_pod
from kscale.objects.quantity import Quantity
from kscale.objects.requests import CPU, MEMORY, occupancy
from kscale.objects.resource import ResourceClaim, ResourceSlice

__all__ = ["Usage", "Utilization", "usage", "utilization", "utilization_of"]


class Utilization(msgspec.Struct, kw_only=True, frozen=True):
    """The fraction that decides, and of which resource it is: cpu, memory, a GPU, or a pool ``driver/pool``.

    Not a number, infinite or negative where pods that do not count take all of the node or more. The fractions that
    were worked out on the way are kept.
    """

    utilization: float
    resource_name: str
    cpu: float | None = None
    memory: float | None = None


class Usage(msgspec.Struct, kw_only=True, frozen=True):
    """What the pods of a node request, by resource in thousandths: ``used``, and ``skipped`` for those left aside.

    Sums are exact and rounded up once.
    """

    used: dict[str, int] = {}
    skipped: dict[str, int] = {}


def usage(
    pods: Iterable[Pod],
    resources: Iterable[str],
    *,
    now_ns: int,
    skip_daemon_set_pods: bool = False,
    skip_mirror_pods: bool = False,
    requests_of: Callable[[Pod], ResourceList] = occupancy,
) -> Usage:
    """What the pods request of the given resources. Pods that should long be gone count nowhere."""
    used: list[ResourceList] = []
    skipped: list[ResourceList] = []
    for pod in pods:
        if (skip_daemon_set_pods and is_daemonset_pod(pod)) or (skip_mirror_pods and is_mirror_pod(pod)):
            skipped.append(requests_of(pod))
        elif pod.metadata.deletion_timestamp is None or not is_long_terminating(pod, now_ns):
            used.append(requests_of(pod))
    return Usage(
        used={name: _total(name, used) for name in resources},
        skipped={name: _total(name, skipped) for name in resources} if skipped else {},
    )


def utilization(
    node: Node,
    pods: Iterable[Pod],
    *,
    now_ns: int,
    skip_daemon_set_pods: bool = False,
    skip_mirror_pods: bool = False,
    gpu: GpuConfig | None = None,
    dra_slices: Iterable[ResourceSlice] = (),
    dra_claims: Iterable[ResourceClaim] = (),
    requests_of: Callable[[Pod], ResourceList] = occupancy,
) -> Utilization:
    """How full a node is: its GPU if it has one, else its fullest device pool, else the larger of cpu and memory.

    ``dra_slices`` are the resource slices of this node (none when dynamic resource allocation is off) and
    ``dra_claims`` the claims of its pods. Pods that should long be gone do not count; DaemonSet and mirror pods, if
    skipped, count neither as used nor as available. Raises :class:`AutoscalerError` if a resource is missing or zero.
    """
    counts_gpu = gpu is not None and not gpu.dra_driver
    found = usage(
        pods,
        (gpu.resource_name,) if gpu is not None and counts_gpu else (CPU, MEMORY),
        now_ns=now_ns,
        skip_daemon_set_pods=skip_daemon_set_pods,
        skip_mirror_pods=skip_mirror_pods,
        requests_of=requests_of,
    )
    return utilization_of(node, found, gpu=gpu, dra_slices=dra_slices, dra_claims=dra_claims)


def utilization_of(
    node: Node,
    found: Usage,
    *,
    gpu: GpuConfig | None = None,
    dra_slices: Iterable[ResourceSlice] = (),
    dra_claims: Iterable[ResourceClaim] = (),
) -> Utilization:
    """The same for pods that are summed up already: of the GPU's resource if there is one, else of cpu and memory."""
    if gpu is not None and not gpu.dra_driver:
        try:
            fraction = _fraction(gpu.resource_name, node, found)
        except AutoscalerError:
            fraction = 0.0
        return Utilization(utilization=fraction, resource_name=gpu.resource_name)
    slices = list(dra_slices)
    if slices:
        name, fraction = highest_pool_utilization(slices, dra_claims)
        return Utilization(utilization=fraction, resource_name=name)
    cpu, memory = (_fraction(name, node, found) for name in (CPU, MEMORY))
    # Not a number compares false: it then hides the other one.
    name, fraction = (CPU, cpu) if cpu > memory else (MEMORY, memory)
    return Utilization(utilization=fraction, resource_name=name, cpu=cpu, memory=memory)


def _fraction(name: str, node: Node, found: Usage) -> float:
    allocatable = (node.status.allocatable or {}).get(name)
    if allocatable is None:
        raise AutoscalerError("", f"failed to get {name} from {node.metadata.name}")
    available = allocatable.milli_value()
    if available == 0:
        raise AutoscalerError("", f"{name} is 0 at {node.metadata.name}")
    skipped = found.skipped.get(name)
    if skipped:
        available = wrap_int64(available - skipped)
    return divide(float(found.used.get(name, 0)), float(available))


def _total(name: str, requests: Iterable[ResourceList]) -> int:
    return Quantity.sum(request[name] for request in requests if name in request).milli_value()
