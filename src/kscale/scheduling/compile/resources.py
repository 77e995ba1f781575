"""Resources as columns: requests of pod classes and free amounts of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kscale.objects.pod_resources import is_extended, is_scalar
from kscale.scheduling.compile.device_counting import PLENTY, DeviceCounting
from kscale.scheduling.compile.pod_classes import PodClasses
from kscale.scheduling.devices.claims import Claims
from kscale.scheduling.profile import Context
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.columns import FIXED_RESOURCES

__all__ = ["Resources"]


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
        """Return the amounts that classes request, and those that they use: int64[classes, resources] each."""
        matrices = self._matrices.get(names)
        if matrices is None:
            matrices = self._matrices[names] = _matrix(self.demands, names), _matrix(self.taken, names)
        return matrices


_Matrices = tuple[NDArray[np.int64], NDArray[np.int64]]


def _matrix(amounts: Sequence[Mapping[str, int]], names: tuple[str, ...]) -> NDArray[np.int64]:
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

    def amounts(self) -> _Matrices:
        """Return the amounts that classes request, and those that they use: int64[classes, resources] each."""
        if self._devices is None:
            return self._amounts.matrices(self.names)
        return _matrix(self._demands, self.names), _matrix(self._taken, self.names)

    def free(self, existing: int) -> NDArray[np.int64]:
        """Return the free amounts of existing nodes: int64[resources, nodes]."""
        return np.stack([self._free(name, existing) for name in self.names])

    def _free(self, name: str, existing: int) -> NDArray[np.int64]:
        if self._is_device(name) and self._devices is not None:
            return self._devices.free(name)[:existing]
        snapshot = self._ctx.snapshot
        free = snapshot.free(name)
        if self._is_delegated(name):
            have = snapshot.columns.allocatable.get(name)
            free[(np.zeros_like(free) if have is None else have) <= 0] += PLENTY
        return free

    def free_of_copy(self, extra: int, allocatable: Mapping[str, int], taken: Mapping[str, int]) -> list[int]:
        """Return the free amounts of a new node, in the order of ``names``; ``extra``: its position among all nodes."""
        amounts = []
        for name in self.names:
            if self._is_device(name) and self._devices is not None:
                amounts.append(int(self._devices.free(name)[extra]))
                continue
            have = allocatable.get(name, 0)
            free = _wrap(have - taken.get(name, 0))
            amounts.append(free + PLENTY if self._is_delegated(name) and have <= 0 else free)
        return amounts

    def readable(self, free: Iterable[int]) -> dict[str, int]:
        """Return free amounts by resource, without counted devices and internal offsets."""
        amounts = zip(self.names, free, strict=True)
        return {
            name: n - PLENTY if n > PLENTY // 2 and self._is_delegated(name) else n
            for name, n in amounts
            if not self._is_device(name)
        }

    def demand(self, number: int, allocatable: Mapping[str, int]) -> Mapping[str, int]:
        """Return the amounts that NodeResourcesFit counts for a class on a node with these allocatable amounts."""
        demand = self._demands[number]
        if not self._ctx.dra:
            return demand
        return {
            name: amount
            for name, amount in demand.items()
            if not self._is_device(name) and not (allocatable.get(name, 0) <= 0 and self._is_delegated(name))
        }

    def _is_delegated(self, name: str) -> bool:
        """Check whether a device class provides a resource.

        Then DynamicResources decides on nodes that do not offer it.
        """
        return self._ctx.dra and is_scalar(name) and Claims.of(self._ctx).delegable(name)

    @staticmethod
    def _is_device(name: str) -> bool:
        return name.startswith("\0")


def _wrap(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63
