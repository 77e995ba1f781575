"""How much of a node's devices is given away (``simulator/dynamicresources/utils/utilization.go``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kscale.ca.errors import AutoscalerError
from kscale.objects.meta import object_key
from kscale.objects.quantity import Quantity
from kscale.objects.resource import Counter, Device, ResourceClaim, ResourceSlice

__all__ = ["highest_pool_utilization", "pool_utilizations"]

_Counters = dict[str, dict[str, Quantity]]


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
    """Every counter set stands for one piece of hardware: the mean of their most used counters."""
    pieces = len({item.counter_set for device in devices for item in device.consumes_counters})
    if pieces == 0:
        return 0.0
    total: _Counters = {}
    for item in slices:
        for counters in item.spec.shared_counters:
            _add(total, counters.name, counters.counters)
    consumed: _Counters = {}
    for device in devices:
        if device.name in allocated:
            for consumption in device.consumes_counters:
                _add(consumed, consumption.counter_set, consumption.counters)
    utilization = 0.0
    for name, counters_of_set in sorted(total.items()):
        used = consumed.get(name, {})
        highest = max(
            (
                float(used[counter].value()) / float(amount.value())
                for counter, amount in counters_of_set.items()
                if counter in used and not amount.is_zero
            ),
            default=0.0,
        )
        utilization += max(0.0, highest) / pieces
    return utilization


def _add(into: _Counters, name: str, counters: dict[str, Counter] | None) -> None:
    for counter, amount in (counters or {}).items():
        have = into.setdefault(name, {})
        have[counter] = have[counter] + amount.value if counter in have else amount.value
