"""Whether the devices that a claim has will do on a node (upstream: ``dynamicresources``, Filter, and there
``isClaimReadyForBinding`` and ``isClaimTimeout``)."""

from __future__ import annotations

from datetime import timedelta

from kscale.objects.meta import Condition
from kscale.objects.node_selectors import compile_node_selector
from kscale.objects.resource import DeviceRequestAllocationResult, ResourceClaim
from kscale.objects.times import duration, moment_of
from kscale.scheduling.facts import NodeFacts

__all__ = ["available", "binding_failed", "skips_operations"]

_OPTIONAL_OPERATIONS = "DRAOptionalNodeOperations"
"""What a node declares that can do without the operations which a device says it may skip."""


def available(claim: ResourceClaim, node: NodeFacts, now: int | None, timeout: timedelta) -> bool:
    """Whether an allocated claim can be used from the node; ``now`` and ``timeout``: see :func:`binding_failed`."""
    given = claim.status.allocation
    if given is None:
        return True
    selector = given.node_selector
    if selector is not None and not compile_node_selector(selector).matches(node.labels, node.name):
        return False
    if skips_operations(claim) and _OPTIONAL_OPERATIONS not in node.features:
        return False
    return not binding_failed(claim, now, timeout)


def skips_operations(claim: ResourceClaim) -> bool:
    """Whether a node must be able to do without some operation."""
    given = claim.status.allocation
    return given is not None and any(result.skip_node_operations for result in given.devices.results)


def binding_failed(claim: ResourceClaim, now: int | None, timeout: timedelta) -> bool:
    """Whether the devices of an allocated claim will not do: a condition says that binding failed, or what they wait
    for did not come within ``timeout`` of their allocation (``now`` None: they may take any time)."""
    given = claim.status.allocation
    if given is None:
        return False
    for result in given.devices.results:
        if not result.binding_conditions:
            continue
        conditions = _conditions(claim, result)
        if conditions is None:
            return _late(claim, now, timeout)
        if any(_true(conditions, name) for name in result.binding_failure_conditions):
            return True
        if not all(_true(conditions, name) for name in result.binding_conditions):
            return _late(claim, now, timeout)
    return False


def _conditions(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> dict[str, Condition] | None:
    """What the driver says of the device, the first of each type; None = nothing."""
    for device in claim.status.devices:
        if (device.driver, device.pool, device.device) == (result.driver, result.pool, result.device):
            return {condition.type: condition for condition in reversed(device.conditions)}
    return None


def _true(conditions: dict[str, Condition], name: str) -> bool:
    return name in conditions and conditions[name].status == "True"


def _late(claim: ResourceClaim, now: int | None, timeout: timedelta) -> bool:
    given = claim.status.allocation
    if now is None or given is None or not given.allocation_timestamp:
        return False
    return moment_of(given.allocation_timestamp) + duration(timeout) < now
