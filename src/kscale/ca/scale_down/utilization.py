"""Utilization of nodes: requests of their pods, and devices.

Upstream: ``simulator/utilization``, ``simulator/dynamicresources/utils``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.ca.errors import AutoscalerError
from kscale.ca.gpu import GPU_VENDOR_RESOURCES, GpuConfig
from kscale.ca.nodes import is_long_terminating
from kscale.ca.scale_down.moving_pods import MovingPods
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import ResourceList, object_key
from kscale.objects.api.resource import Device, ResourceClaim, ResourceSlice
from kscale.objects.go_numbers import divide_floats, wrap_int64
from kscale.objects.pod_owners import is_daemonset_pod, is_mirror_pod
from kscale.objects.pod_resources import CPU, MEMORY, occupancy
from kscale.objects.quantity import Quantity, QuantityError
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "Usage",
    "UsageColumns",
    "Utilization",
    "calculate_highest_pool_utilization",
    "calculate_pool_utilizations",
    "calculate_utilization",
    "calculate_utilization_from_usage",
    "get_pod_claims",
    "group_local_slices",
    "sum_usage",
]


def calculate_highest_pool_utilization(
    slices: Iterable[ResourceSlice], claims: Iterable[ResourceClaim]
) -> tuple[str, float]:
    """Return the fullest device pool (``driver/pool``) and its utilization; ("", 0) without slices.

    Of equally full pools the last by name counts. ``claims`` are those of the node's pods, each once. Raises
    :class:`AutoscalerError` for a claim that is not allocated and for a pool whose newest generation is incomplete.
    """
    name, highest = "", 0.0
    for pool, utilization in sorted(calculate_pool_utilizations(slices, claims).items()):
        if utilization >= highest:
            name, highest = "/".join(pool), utilization
    return name, highest


def calculate_pool_utilizations(
    slices: Iterable[ResourceSlice], claims: Iterable[ResourceClaim]
) -> dict[tuple[str, str], float]:
    """Return the utilization, as a fraction, by (driver, pool name).

    Parameters and errors as in :func:`calculate_highest_pool_utilization`.
    """
    allocated = _collect_allocated_devices(claims)
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for item in slices:
        pools.setdefault((item.spec.driver, item.spec.pool.name), []).append(item)
    return {
        pool: _calculate_pool_utilization(_select_newest_generation(pool[1], pools[pool]), allocated.get(pool, set()))
        for pool in pools
    }


def _collect_allocated_devices(claims: Iterable[ResourceClaim]) -> dict[tuple[str, str], set[str]]:
    """Return the names of the allocated devices by (driver, pool name).

    Raises AutoscalerError for a claim that is not allocated.
    """
    devices: dict[tuple[str, str], set[str]] = {}
    for claim in claims:
        allocation = claim.status.allocation
        if allocation is None:
            name = object_key(claim.metadata.namespace, claim.metadata.name)
            raise AutoscalerError("", f"claim {name} not allocated")
        for result in allocation.devices.results:
            if not result.admin_access:  # admin access does not reserve the device
                devices.setdefault((result.driver, result.pool), set()).add(result.device)
    return devices


def _select_newest_generation(pool: str, slices: Sequence[ResourceSlice]) -> list[ResourceSlice]:
    """Return the slices of the pool's newest generation. Raises AutoscalerError if one of them is missing."""
    newest = max(0, *(item.spec.pool.generation for item in slices))
    current = [item for item in slices if item.spec.pool.generation == newest]
    if current and current[0].spec.pool.resource_slice_count != len(current):
        raise AutoscalerError(
            "",
            f'pool "{pool}" error: newest generation: {newest}, slice count: '
            f"{current[0].spec.pool.resource_slice_count} - found only {len(current)} slices",
        )
    return current


def _calculate_pool_utilization(slices: Sequence[ResourceSlice], allocated: set[str]) -> float:
    """Return the share of a pool's devices that are allocated, or of consumed counters if it has shared counters.

    ``slices``: of the pool; ``allocated``: names of devices. 0 without devices.
    """
    devices = [device for item in slices for device in item.spec.devices]
    if any(item.spec.shared_counters for item in slices):
        return _calculate_partitionable_utilization(slices, devices, allocated)
    if not devices:
        return 0.0
    return sum(device.name in allocated for device in devices) / len(devices)


def _calculate_partitionable_utilization(
    slices: Sequence[ResourceSlice], devices: Sequence[Device], allocated: set[str]
) -> float:
    """Return the mean utilization of the most used counter over the counter sets that devices use; 0 without any.

    ``devices``: all of the pool; ``allocated``: names of those in use. Every counter set represents one piece of
    hardware. Sets are summed in the order of the slices, each as its slice defines it, even if another slice defines
    the same name differently.
    """
    pieces = len({item.counter_set for device in devices for item in device.consumes_counters})
    if pieces == 0:
        return 0.0
    consumed: dict[tuple[str, str], Quantity] = {}
    for device in devices:
        if device.name in allocated:
            for consumption in device.consumes_counters:
                for counter, amount in (consumption.counters or {}).items():
                    key = consumption.counter_set, counter
                    consumed[key] = consumed[key] + amount.value if key in consumed else amount.value
    utilization = 0.0
    for item in slices:
        for counter_set in item.spec.shared_counters:
            shares = (
                consumed[counter_set.name, counter].approximate_float() / amount.value.approximate_float()
                for counter, amount in (counter_set.counters or {}).items()
                if (counter_set.name, counter) in consumed and not amount.value.is_zero
            )
            utilization += max(shares, default=0.0) / pieces
    return utilization


def group_local_slices(snapshot: Snapshot) -> dict[str, list[ResourceSlice]]:
    """Return the slices by node name; slices that belong to no single node are left out."""
    slices_by_node: dict[str, list[ResourceSlice]] = {}
    for item in snapshot.informers.resource_slices:
        if item.spec.node_name:
            slices_by_node.setdefault(item.spec.node_name, []).append(item)
    return slices_by_node


def get_pod_claims(pods: Iterable[Pod], snapshot: Snapshot) -> list[ResourceClaim]:
    """Return the claims of these pods that the snapshot has, each once."""
    claims: dict[str, ResourceClaim] = {}
    for pod in pods:
        claim_names = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        for use in pod.spec.resource_claims:
            name = use.resource_claim_name or claim_names.get(use.name)
            claim = snapshot.informers.resource_claims.get((pod.metadata.namespace, name or ""))
            if claim is not None:
                claims[claim.metadata.uid or claim.key] = claim
    return list(claims.values())


class Utilization(msgspec.Struct, kw_only=True, frozen=True):
    """The deciding utilization, and its resource: cpu, memory, a GPU, or a pool ``driver/pool``.

    NaN, infinite or negative if uncounted pods take all of the node or more. The fractions of all resources are
    included.
    """

    utilization: float
    resource_name: str
    cpu: float | None = None
    memory: float | None = None


class Usage(msgspec.Struct, kw_only=True, frozen=True):
    """Requests of a node's pods by resource, in thousandths: ``used``, and ``skipped`` for excluded pods.

    Sums are exact and rounded up once.
    """

    used: dict[str, int] = {}
    skipped: dict[str, int] = {}


def sum_usage(
    pods: Iterable[Pod],
    resources: Iterable[str],
    *,
    now_ns: int,
    skip_daemon_set_pods: bool = False,
    skip_mirror_pods: bool = False,
) -> Usage:
    """Sum the pods' requests of the given resources, in thousandths, separately for skipped pods.

    Pods of DaemonSets and mirror pods are skipped if the argument for their kind is set.
    Pods that exceeded their grace period by 30 seconds do not count, unless they are skipped.
    """
    used: list[ResourceList] = []
    skipped: list[ResourceList] = []
    for pod in pods:
        if (skip_daemon_set_pods and is_daemonset_pod(pod)) or (skip_mirror_pods and is_mirror_pod(pod)):
            skipped.append(occupancy(pod))
        elif pod.metadata.deletion_timestamp is None or not is_long_terminating(pod, now_ns):
            used.append(occupancy(pod))
    return Usage(
        used={name: _sum_milli_values(name, used) for name in resources},
        skipped={name: _sum_milli_values(name, skipped) for name in resources} if skipped else {},
    )


def calculate_utilization(
    node: Node,
    pods: Iterable[Pod],
    *,
    now_ns: int,
    skip_daemon_set_pods: bool = False,
    skip_mirror_pods: bool = False,
    gpu: GpuConfig | None = None,
    dra_slices: Iterable[ResourceSlice] = (),
    dra_claims: Iterable[ResourceClaim] = (),
) -> Utilization:
    """Return the utilization of a node: of its GPU, else of its fullest device pool, else of cpu or memory.

    Of cpu and memory the larger one counts. If ``gpu`` has a DRA driver, the node is treated as one without GPU. The
    utilization of a GPU is 0 if the node offers none of its resource. ``dra_slices`` are the resource slices of this
    node (none when dynamic resource allocation is off) and ``dra_claims`` the claims of its pods. Pods that exceeded
    their grace period do not count. Requests of skipped DaemonSet and mirror pods are subtracted from the allocatable
    amounts. Raises :class:`AutoscalerError` if cpu or memory is needed and missing or zero, and for device pools as
    :func:`calculate_highest_pool_utilization`.
    """
    counts_gpu = gpu is not None and not gpu.dra_driver
    usage = sum_usage(
        pods,
        (gpu.resource_name,) if gpu is not None and counts_gpu else (CPU, MEMORY),
        now_ns=now_ns,
        skip_daemon_set_pods=skip_daemon_set_pods,
        skip_mirror_pods=skip_mirror_pods,
    )
    return calculate_utilization_from_usage(node, usage, gpu=gpu, dra_slices=dra_slices, dra_claims=dra_claims)


def calculate_utilization_from_usage(
    node: Node,
    usage: Usage,
    *,
    gpu: GpuConfig | None = None,
    dra_slices: Iterable[ResourceSlice] = (),
    dra_claims: Iterable[ResourceClaim] = (),
) -> Utilization:
    """Return the utilization of a node from summed requests.

    ``usage`` has the requests of the GPU's resource if there is a GPU, else of cpu and memory. The other parameters and
    the errors are those of :func:`calculate_utilization`.
    """
    if gpu is not None and not gpu.dra_driver:
        try:
            fraction = _calculate_fraction(gpu.resource_name, node, usage)
        except AutoscalerError:
            fraction = 0.0
        return Utilization(utilization=fraction, resource_name=gpu.resource_name)
    slices = list(dra_slices)
    if slices:
        name, fraction = calculate_highest_pool_utilization(slices, dra_claims)
        return Utilization(utilization=fraction, resource_name=name)
    cpu, memory = (_calculate_fraction(name, node, usage) for name in (CPU, MEMORY))
    # NaN compares false, so it hides the other value.
    name, fraction = (CPU, cpu) if cpu > memory else (MEMORY, memory)
    return Utilization(utilization=fraction, resource_name=name, cpu=cpu, memory=memory)


def _calculate_fraction(name: str, node: Node, usage: Usage) -> float:
    """Return used over allocatable of one resource, both without skipped pods.

    Raises AutoscalerError if the node has none of the resource.
    """
    allocatable = (node.status.allocatable or {}).get(name)
    if allocatable is None:
        raise AutoscalerError("", f"failed to get {name} from {node.metadata.name}")
    available = allocatable.milli_value()
    if available == 0:
        raise AutoscalerError("", f"{name} is 0 at {node.metadata.name}")
    skipped = usage.skipped.get(name)
    if skipped:
        available = wrap_int64(available - skipped)
    return divide_floats(float(usage.used.get(name, 0)), float(available))


def _sum_milli_values(name: str, requests: Iterable[ResourceList]) -> int:
    """Return the sum of the requests of a resource in thousandths, rounded up once."""
    return Quantity.sum(request[name] for request in requests if name in request).milli_value()


# A sum of this many requests, each below this many thousandths, stays within 64 bits.
_MAX_SUMMED_PODS: Final = 1 << 12
_MAX_SUMMED_AMOUNT: Final = 1 << 50
_MAX_EXACT_FLOAT: Final = 1 << 53
"""Sums of whole numbers below it are exact as floats, which NumPy adds faster."""
_DAEMON_SET_FLAG, _MIRROR_FLAG, _LONG_TERMINATING_FLAG, _TERMINATING_FLAG = 1, 2, 4, 8

_SUMMED_RESOURCES: Final = (CPU, MEMORY, *GPU_VENDOR_RESOURCES)


class UsageColumns:
    """Sums of requests (cpu, memory, vendor devices) over the placed pods of a snapshot, by node.

    A node with a request that is finer than thousandths or enormous has no sums: sum it pod by pod.
    ``sums``: int64[nodes] by resource and sort of pods; ``exact``: bool[nodes], whether there are sums.
    """

    def __init__(self, pods: MovingPods, nodes: int, now_ns: int) -> None:
        here = pods.node >= 0
        node, kind = (pods.node, pods.kind_of) if here.all() else (pods.node[here], pods.kind_of[here])
        requests = pods.memo.get(_KindRequests, lambda: _KindRequests(pods))
        sort_of = requests.sorts.copy()
        for stopping in requests.stopping:
            sort_of[stopping] |= _LONG_TERMINATING_FLAG * is_long_terminating(pods.exemplars[stopping], now_ns)
        sorts, place = np.unique(sort_of, return_inverse=True)
        self._sorts: list[int] = sorts.tolist()
        odd = requests.odd
        at = place.take(kind) * nodes + node
        self.sums: dict[tuple[str, int], NDArray[np.int64]] = {}
        pods_of_node = np.bincount(node, minlength=nodes)
        exact = pods_of_node < _MAX_SUMMED_PODS
        most_pods = min(int(pods_of_node.max(initial=0)), _MAX_SUMMED_PODS)
        for name, amounts in requests.amounts.items():
            of_pods = amounts.take(kind)
            if int(np.abs(amounts).max(initial=0)) * most_pods < _MAX_EXACT_FLOAT:
                total = np.bincount(at, weights=of_pods, minlength=len(sorts) * nodes).astype(np.int64)
            else:
                total = np.zeros(len(sorts) * nodes, dtype=np.int64)
                np.add.at(total, at, of_pods)
            self.sums.update({(name, sort): of for sort, of in zip(self._sorts, total.reshape(-1, nodes), strict=True)})
        if odd.any():
            exact[node[odd.take(kind)]] = False
        self.exact: NDArray[np.bool_] = exact
        self._of: dict[tuple[str, bool, bool], tuple[list[int], list[int]]] = {}

    @classmethod
    def of(cls, pods: MovingPods, nodes: int, now_ns: int) -> UsageColumns:
        """Return the sums of the requests of each node's pods; they are cached unless some pod is terminating."""
        if pods.memo.get(_KindRequests, lambda: _KindRequests(pods)).stopping:
            return cls(pods, nodes, now_ns)
        return pods.memo.get(cls, lambda: cls(pods, nodes, now_ns))

    def usage(
        self, node: int, resources: Iterable[str], *, skip_daemon_set_pods: bool, skip_mirror_pods: bool
    ) -> Usage | None:
        """Return the requests of the pods of node ``node`` (position); None if their sums would be inexact.

        ``resources``: names of resources; skipped pods (of DaemonSets, mirror pods) are counted separately.
        """
        if not self.exact[node]:
            return None
        used, skipped = {}, {}
        for name in resources:
            asked = name, skip_daemon_set_pods, skip_mirror_pods
            columns = self._of.get(asked)
            if columns is None:
                columns = self._of[asked] = self._columns(*asked)
            used[name], skipped[name] = columns[0][node], columns[1][node]
        return Usage(used=used, skipped=skipped)

    def _columns(self, name: str, skip_daemon_set_pods: bool, skip_mirror_pods: bool) -> tuple[list[int], list[int]]:
        """Return (used amounts, skipped amounts) of the resource ``name``, in thousandths; one entry per node each.

        Pods of DaemonSets and mirror pods are counted as used, or as skipped if the argument for their kind is set.
        """
        used, skipped = np.zeros((2, len(self.exact)), dtype=np.int64)
        for sort in self._sorts:
            aside = (skip_daemon_set_pods and sort & _DAEMON_SET_FLAG) or (skip_mirror_pods and sort & _MIRROR_FLAG)
            if not aside and sort & _LONG_TERMINATING_FLAG:
                continue
            total = self.sums.get((name, sort))
            if total is not None:
                (skipped if aside else used)[:] += total
        return used.tolist(), skipped.tolist()


class _KindRequests:
    """Requests by kind of pods.

    ``amounts``: int64[kinds] in thousandths, by resource. ``odd``: bool[kinds], requests that are finer or enormous and
    stored as 0. ``sorts``: int8[kinds]. ``stopping``: terminating kinds.
    """

    __slots__ = ("amounts", "odd", "sorts", "stopping")

    def __init__(self, pods: MovingPods) -> None:
        summaries = chain.from_iterable(pods.compute_per_kind(("requests",), _summarize_requests))
        sorts, odd, *amounts = np.fromiter(summaries, np.int64).reshape(-1, 2 + len(_SUMMED_RESOURCES)).T
        self.odd = odd != 0
        self.sorts = (sorts & ~_TERMINATING_FLAG).astype(np.int8)
        self.stopping: list[int] = np.flatnonzero(sorts & _TERMINATING_FLAG).tolist()
        self.amounts = {
            name: np.ascontiguousarray(of) for name, of in zip(_SUMMED_RESOURCES, amounts, strict=True) if of.any()
        }


def _summarize_requests(pod: Pod) -> tuple[int, ...]:
    """Return flags of a pod (``..._FLAG``), whether a request is inexact, and then the request of each summed resource.

    Requests are in thousandths, 0 for inexact ones. A request is inexact if it is finer than thousandths or enormous.
    """
    sort = _DAEMON_SET_FLAG * is_daemonset_pod(pod) + _MIRROR_FLAG * is_mirror_pod(pod)
    request = occupancy(pod)
    amounts = [_to_exact_milli(request[name]) if name in request else 0 for name in _SUMMED_RESOURCES]
    stops = _TERMINATING_FLAG * (pod.metadata.deletion_timestamp is not None)
    return sort + stops, None in amounts, *(amount or 0 for amount in amounts)


def _to_exact_milli(amount: Quantity) -> int | None:
    """Return the amount in thousandths; None if it is finer or enormous."""
    try:
        milli, finer = divmod(amount.billionths(), 10**6)
    except QuantityError:
        return None
    return milli if not finer and -_MAX_SUMMED_AMOUNT < milli < _MAX_SUMMED_AMOUNT else None
