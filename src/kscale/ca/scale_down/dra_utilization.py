"""How much of a node's devices is given away (``simulator/dynamicresources/utils/utilization.go``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kscale.ca.errors import AutoscalerError
from kscale.objects.meta import object_key
from kscale.objects.quantity import Quantity
from kscale.objects.resource import Device, ResourceClaim, ResourceSlice

__all__ = ["highest_pool_utilization", "pool_utilizations"]


def highest_pool_utilization(slices: Iterable[ResourceSlice], claims: Iterable[ResourceClaim]) -> tuple[str, float]:
    """(``driver/pool``, utilisation) of the fullest pool; of equally full ones the last by name. No slices: ("", 0).

    ``claims`` are those of the node's pods, each once. Raises :class:`AutoscalerError` for a claim that is not
    allocated and for a pool whose newest generation is incomplete.
    """
    name, highest = "", 0.0
    for pool, utilization in sorted(pool_utilizations(slices, claims).items()):
        if utilization >= highest:
            name, highest = "/".join(pool), utilization
    return name, highest


def pool_utilizations(slices: Iterable[ResourceSlice], claims: Iterable[ResourceClaim]) -> dict[tuple[str, str], float]:
    """Utilisation by (driver, pool). Errors as :func:`highest_pool_utilization`."""
    allocated = _allocated(claims)
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for item in slices:
        pools.setdefault((item.spec.driver, item.spec.pool.name), []).append(item)
    return {pool: _utilization(_current(pool[1], pools[pool]), allocated.get(pool, set())) for pool in pools}


def _allocated(claims: Iterable[ResourceClaim]) -> dict[tuple[str, str], set[str]]:
    devices: dict[tuple[str, str], set[str]] = {}
    for claim in claims:
        allocation = claim.status.allocation
        if allocation is None:
            name = object_key(claim.metadata.namespace, claim.metadata.name)
            raise AutoscalerError("", f"claim {name} not allocated")
        for result in allocation.devices.results:
            if not result.admin_access:  # an administrator's look does not reserve the device
                devices.setdefault((result.driver, result.pool), set()).add(result.device)
    return devices


def _current(pool: str, slices: Sequence[ResourceSlice]) -> list[ResourceSlice]:
    newest = max(0, *(item.spec.pool.generation for item in slices))
    current = [item for item in slices if item.spec.pool.generation == newest]
    if current and current[0].spec.pool.resource_slice_count != len(current):
        raise AutoscalerError(
            "",
            f'pool "{pool}" error: newest generation: {newest}, slice count: '
            f"{current[0].spec.pool.resource_slice_count} - found only {len(current)} slices",
        )
    return current


def _utilization(slices: Sequence[ResourceSlice], allocated: set[str]) -> float:
    devices = [device for item in slices for device in item.spec.devices]
    if any(item.spec.shared_counters for item in slices):
        return _partitionable(slices, devices, allocated)
    if not devices:
        return 0.0
    return sum(device.name in allocated for device in devices) / len(devices)


def _partitionable(slices: Sequence[ResourceSlice], devices: Sequence[Device], allocated: set[str]) -> float:
    """Every counter set stands for one piece of hardware: the mean of their most used counters.

    Sets are summed in the order of the slices, each as its slice has it, whatever others of its name say.
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
