"""Resources as columns: requests of pod classes, free amounts of nodes, and devices as counted resources, if counting
gives the same verdicts as allocating them one by one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.objects.api.resource import ExactDeviceRequest, ResourceClaim
from kscale.objects.decode import enc_hook
from kscale.objects.pod_resources import is_extended, is_scalar
from kscale.objects.taints import first_untolerated
from kscale.scheduling.compile.node_classes import NodeClasses
from kscale.scheduling.compile.pod_classes import PodClasses
from kscale.scheduling.devices.allocator import AllocationError, taints_of
from kscale.scheduling.devices.claims import ClaimRequests, Claims, Devices, extended_claim
from kscale.scheduling.devices.inventory import DeviceId
from kscale.scheduling.profile import DEVICES, Context, NodeFacts
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.columns import FIXED_RESOURCES

__all__ = ["UNLIMITED_DEVICES", "DeviceCounting", "Resources"]

_encode = msgspec.json.Encoder(enc_hook=enc_hook, order="sorted").encode

UNLIMITED_DEVICES = 1 << 62
"""Value in a column of free amounts for nodes on which the column does not matter."""


class _Kind(msgspec.Struct, eq=False):
    """Requests for devices of one class, with the same selectors and tolerations. ``resource``: the extended resource
    requested, if any.
    """

    claim: ResourceClaim
    exact: ExactDeviceRequest
    resource: str
    column: int


class DeviceCounting:
    """Devices as counted resources. ``columns``: names of the columns; ``exact``: whether counting is exact."""

    def __init__(self, ctx: Context, pods: Iterable[PodClass], nodes: NodeClasses) -> None:
        """Read the requests of the classes ``pods``, and count the devices on ``nodes`` if counting is exact."""
        self.ctx = ctx
        self._devices = Devices.of(ctx)
        self.exact = not self._devices.inventory.shareable
        self._kinds: dict[Hashable, _Kind] = {}
        self._requests: dict[int, list[tuple[_Kind, int]]] = {}
        self.columns: tuple[str, ...] = ()
        self._free = np.zeros((0, nodes.size), dtype=np.int64)
        for pod in pods:
            need = Claims.of(ctx).get_checked_requests(pod)
            # A claim that is referenced by name may be shared, or allocated and full.
            self.exact = self.exact and not any(claim_name is not None for _, claim_name, _ in pod.claims)
            requests = list(self._list_requests(need))
            if requests:
                self._requests[pod.index] = requests
        if self._kinds and self.exact:
            self._count(nodes)

    def demand(self, pod: PodClass) -> dict[str, int]:
        """Return how many devices must be free for a pod, by column (name of a counted kind of devices)."""
        demand: dict[str, int] = {}
        for kind, count in self._requests.get(pod.index, ()):
            name = self.columns[kind.column]
            demand[name] = demand.get(name, 0) + count
        return demand

    def get_used_devices(self, pod: PodClass) -> dict[str, int]:
        """Return how many devices a pod uses once placed, by column (name of a counted kind of devices).

        Empty without claims, even if the pod requests extended resources: the autoscaler runs Reserve only for pods
        that list claims (``PredicateSnapshot.SchedulePod``).
        """
        return self.demand(pod) if pod.claims else {}

    def free(self, column: str) -> NDArray[np.int64]:
        """Return the free devices of a column on each node, including extra nodes: int64[nodes]."""
        free: NDArray[np.int64] = self._free[self.columns.index(column)]
        return free

    # -- requests ----------------------------------------------------------------------------------------------------

    def _list_requests(self, need: ClaimRequests) -> Iterable[tuple[_Kind, int]]:
        """Yield (kind, number of devices) of each request of a pod that plain counting of free devices can decide.

        Requests for devices of unknown classes are left out. Sets ``exact`` to False if counting cannot decide one.
        """
        classes = self.ctx.informers.device_classes
        for claim in need.open:
            devices = claim.spec.devices
            if devices.constraints:
                self.exact = False
            for request in devices.requests:
                exact = request.exactly
                if exact is None or exact.admin_access or exact.capacity or exact.allocation_mode == "All":
                    self.exact = False
                elif exact.device_class_name in classes:
                    yield self._kind(claim, exact, ""), max(exact.count or 1, 0)
        for extended in need.extended:
            claim = extended_claim(need.namespace, [extended] if extended.amount else [], classes)
            for request in claim.spec.devices.requests:
                exact = request.exactly
                assert exact is not None
                yield self._kind(claim, exact, extended.resource), max(0, exact.count or 0)

    def _kind(self, claim: ResourceClaim, exact: ExactDeviceRequest, resource: str) -> _Kind:
        """Return the kind of a device request, and create the kind for the first request of it.

        Requests with equal device class, selectors, tolerations and ``resource`` are of one kind. ``resource``: name of
        the extended resource that the request was made for, or empty.
        """
        key = exact.device_class_name, _encode(exact.selectors), _encode(exact.tolerations), resource
        return self._kinds.setdefault(key, _Kind(claim, exact, resource, len(self._kinds)))

    # -- devices -----------------------------------------------------------------------------------------------------

    def _count(self, nodes: NodeClasses) -> None:
        """Compute ``columns`` and ``exact``, and the free devices of each column on each node."""
        kinds = list(self._kinds.values())
        codes = nodes.codes(DEVICES)
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        sets = [[self._usable(kind, nodes.facts(int(i))) for kind in kinds] for i in first]
        self._merge(kinds, sets)
        free = np.zeros((len(self.columns), len(first)), dtype=np.int64)
        for i, device_sets in enumerate(sets):
            for kind, devices in zip(kinds, device_sets, strict=True):
                free[kind.column, i] = UNLIMITED_DEVICES if devices is None else len(devices)
            for kind, devices in zip(kinds, device_sets, strict=True):  # the same column may matter to another kind
                if devices is not None and free[kind.column, i] == UNLIMITED_DEVICES:
                    free[kind.column, i] = len(devices)
        self._free = free[:, inverse]

    def _usable(self, kind: _Kind, node: NodeFacts) -> frozenset[DeviceId] | None:
        """Return the free devices that requests of the kind can use; None if the node offers the resource itself.

        Sets ``exact`` to False if the devices cannot be counted.
        """
        if kind.resource and kind.resource in node.offered:
            return None
        usable = set()
        inventory, allocator = self._devices.inventory, self._devices.allocator
        for offer in inventory.offers(node):
            if not offer.complete or offer.identity in inventory.used:
                continue
            try:
                if not allocator.matches_selectors(kind.claim, kind.exact, offer):
                    continue
                if allocator.room(kind.claim, "", kind.exact, offer, {}) is None:
                    continue
            except AllocationError:  # the search ends here with an error once the devices before are taken
                self.exact = False
                break
            if first_untolerated(kind.exact.tolerations, taints_of(offer)) is None:
                self.exact = self.exact and offer.local and not offer.device.consumes_counters
                usable.add(offer.identity)
        return frozenset(usable)

    def _merge(self, kinds: Sequence[_Kind], sets: Sequence[Sequence[frozenset[DeviceId] | None]]) -> None:
        """Assign columns to kinds, and set ``columns``. Kinds that can use the same devices share one column.

        ``sets``: for each group of equal nodes, the usable devices of each kind. Sets ``exact`` to False if the devices
        of two kinds only partly overlap, or are equal on some nodes but not on all.
        """
        distinct = set(map(tuple, sets))
        for b, kind in enumerate(kinds):
            for a in range(b):
                if any(device_sets[a] and device_sets[a] == device_sets[b] for device_sets in distinct):
                    kind.column = kinds[a].column
                    break
        used = {column: i for i, column in enumerate(dict.fromkeys(kind.column for kind in kinds))}
        for kind in kinds:
            kind.column = used[kind.column]
        self.columns = tuple(f"\0devices:{i}" for i in range(len(used)))
        for device_sets in distinct:
            for b, kind in enumerate(kinds):
                for a in range(b):
                    one, other = device_sets[a], device_sets[b]
                    if kinds[a].column == kind.column:
                        fits = one == other
                    else:
                        fits = one is None or other is None or not one & other
                    self.exact = self.exact and fits


def _get_counted_demand(pod: PodClass, ctx: Context) -> dict[str, int]:
    """Return the demand that NodeResourcesFit counts, without resources that the profile's arguments ignore."""
    ignored, groups = ctx.profile.ignored_resources, ctx.profile.ignored_resource_groups
    if not ignored and not groups:
        return pod.demand
    return {
        name: amount
        for name, amount in pod.demand.items()
        if not (is_extended(name) and (name in ignored or name.partition("/")[0] in groups))
    }


class _Amounts:
    """Amounts that classes request and use. ``scalars``: resources that the classes to be checked request. Cached with
    the classes.
    """

    def __init__(self, classes: PodClasses, ctx: Context) -> None:
        self.demands: list[Mapping[str, int]] = [_get_counted_demand(pod, ctx) for pod in classes.pods]
        self.taken: list[Mapping[str, int]] = [pod.occupancy for pod in classes.pods]
        checked = self.demands[: classes.checked]
        self.scalars = frozenset(name for demand in checked for name, amount in demand.items() if amount > 0)
        self._matrices: dict[tuple[str, ...], _Matrices] = {}

    def matrices(self, names: tuple[str, ...]) -> _Matrices:
        """Return (amounts that must be free for a pod, amounts that it uses once placed) of each class.

        Each is int64[classes, resources]; CPU is in milli-units.
        """
        matrices = self._matrices.get(names)
        if matrices is None:
            matrices = self._matrices[names] = _matrix(self.demands, names), _matrix(self.taken, names)
        return matrices


_Matrices = tuple[NDArray[np.int64], NDArray[np.int64]]


def _matrix(amounts: Sequence[Mapping[str, int]], names: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the amounts in columns of ``names``: int64[len(amounts), len(names)]; 0 if absent."""
    matrix = np.zeros((len(amounts), len(names)), dtype=np.int64)
    for r, name in enumerate(names):
        matrix[:, r] = [each.get(name, 0) for each in amounts]
    return matrix


class Resources:
    """``names``: the columns: cpu, memory, ephemeral storage, scalar resources by name, then counted devices.

    ``devices``: counted devices, if any.
    """

    def __init__(self, ctx: Context, classes: PodClasses, more: Iterable[str], devices: DeviceCounting | None) -> None:
        self._ctx = ctx
        self._devices = devices
        self._amounts = amounts = classes.memo.get(_Amounts, lambda: _Amounts(classes, ctx))
        scalars = amounts.scalars.union(more).difference(FIXED_RESOURCES)
        self.names: tuple[str, ...] = (*FIXED_RESOURCES, *sorted(scalars))
        self._demands = amounts.demands
        self._taken = amounts.taken
        if devices is not None and devices.columns:
            self.names += devices.columns
            self._demands, self._taken = [*amounts.demands], [*amounts.taken]
            for i, pod in enumerate(classes.pods[: classes.checked]):
                self._demands[i] = {**self._demands[i], **devices.demand(pod)}
                self._taken[i] = {**self._taken[i], **devices.get_used_devices(pod)}

    @property
    def are_plain(self) -> bool:
        """Return whether no device is counted, and no resource of ``names`` is provided by a device class."""
        return self._devices is None and not any(map(self._is_delegated, self.names))

    def amounts(self) -> _Matrices:
        """Return (amounts that must be free for a pod, amounts that it uses once placed) of each class.

        Each is int64[classes, resources]; CPU is in milli-units.
        """
        if self._devices is None:
            return self._amounts.matrices(self.names)
        return _matrix(self._demands, self.names), _matrix(self._taken, self.names)

    def free(self, existing: int) -> NDArray[np.int64]:
        """Return the free amounts of existing nodes: int64[resources, nodes]. CPU is in milli-units.

        ``UNLIMITED_DEVICES`` is added to an amount if DynamicResources, not NodeResourcesFit, decides on the resource
        of that node.
        """
        snapshot, devices = self._ctx.snapshot, self._devices
        free = snapshot.free_of(self.names)
        for name, row in zip(self.names, free, strict=True):
            if devices is not None and self._is_device(name):
                row[:] = devices.free(name)[:existing]
            elif self._is_delegated(name):
                row[snapshot.columns.allocatable.get(name, np.zeros_like(row)) <= 0] += UNLIMITED_DEVICES
        return free

    def free_of_new_node(self, position: int, allocatable: Mapping[str, int], used: Mapping[str, int]) -> list[int]:
        """Return the free amounts of a new node, in the order of ``names``.

        ``position``: index of the node among all nodes. ``used``: amounts of the pods that start with it (DaemonSets).
        """
        amounts = []
        for name in self.names:
            if self._is_device(name) and self._devices is not None:
                amounts.append(int(self._devices.free(name)[position]))
                continue
            have = allocatable.get(name, 0)
            free = _wrap(have - used.get(name, 0))
            amounts.append(free + UNLIMITED_DEVICES if self._is_delegated(name) and have <= 0 else free)
        return amounts

    def readable(self, free: Iterable[int]) -> dict[str, int]:
        """Return free amounts (in the order of ``names``) by resource, without counted devices and added constants."""
        amounts = zip(self.names, free, strict=True)
        return {
            name: n - UNLIMITED_DEVICES if n > UNLIMITED_DEVICES // 2 and self._is_delegated(name) else n
            for name, n in amounts
            if not self._is_device(name)
        }

    def demand(self, class_number: int, allocatable: Mapping[str, int]) -> Mapping[str, int]:
        """Return the amounts that NodeResourcesFit counts for a class on a node with these allocatable amounts."""
        demand = self._demands[class_number]
        if not self._ctx.dra:
            return demand
        return {
            name: amount
            for name, amount in demand.items()
            if not self._is_device(name) and not (allocatable.get(name, 0) <= 0 and self._is_delegated(name))
        }

    def _is_delegated(self, name: str) -> bool:
        """Check whether a device class provides a resource.

        If so, DynamicResources decides on nodes that do not offer the resource.
        """
        return self._ctx.dra and is_scalar(name) and Claims.of(self._ctx).delegable(name)

    @staticmethod
    def _is_device(name: str) -> bool:
        """Return whether a column counts devices."""
        return name.startswith("\0")


def _wrap(value: int) -> int:
    """Return a value as Go's int64 arithmetic wraps it."""
    return (value + 2**63) % 2**64 - 2**63
