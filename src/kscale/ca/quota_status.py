"""What the controller of CapacityQuotas writes into their status (``resourcequotas/capacityquota``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from kscale.ca.quota import NODES, VALID, CountedNodes
from kscale.effects import Moment, Patch, to_text
from kscale.objects.base import ResourceList
from kscale.objects.conditions import with_condition
from kscale.objects.core import Node
from kscale.objects.decode import to_dict
from kscale.objects.meta import Condition
from kscale.objects.quantity import Quantity
from kscale.objects.quota import CapacityQuota, CapacityQuotaStatus, CapacityQuotaUsage
from kscale.objects.selectors import EVERYTHING, Selector, SelectorError, compile_selector

__all__ = ["RECONCILED", "quota_status", "status_patch"]

RECONCILED = "Reconciled"


def quota_status(quota: CapacityQuota, nodes: Iterable[Node], now: Moment) -> CapacityQuotaStatus:
    """The status as it should be: whether the quota is valid, and what its nodes have of what it limits.

    The very same object if that is what it is already. Virtual kubelets do not count.
    """
    generation = quota.metadata.generation
    held = quota.status
    conditions = held.conditions

    def mark(type_: str, holds: bool, reason: str, message: str) -> None:
        nonlocal conditions
        new = Condition(
            type=type_,
            status=str(holds),
            reason=reason,
            message=message,
            last_transition_time=to_text(now),
            observed_generation=generation or None,
        )
        conditions = with_condition(conditions, new)

    try:
        selector = EVERYTHING if quota.spec.selector is None else compile_selector(quota.spec.selector)
    except SelectorError as error:
        shown = msgspec.json.encode(to_dict(quota.spec.selector)).decode()
        mark(VALID, False, "ValidationFailed", f"spec.selector: Invalid value: {shown}: {error}")
        mark(RECONCILED, False, "ReconciliationFailed", "Validation failed")
        used = held.used
    else:
        mark(VALID, True, "ValidationSucceeded", "CapacityQuota is valid")
        mark(RECONCILED, True, "ReconciliationSucceeded", "CapacityQuota successfully reconciled")
        used = CapacityQuotaUsage(resources=_usage(quota, selector, nodes))
    found = replace(held, conditions=conditions, used=used, observed_generation=generation or None)
    return held if found == held else found


def _usage(quota: CapacityQuota, selector: Selector, nodes: Iterable[Node]) -> ResourceList:
    counted = [node for node in CountedNodes.among(nodes).nodes if selector.matches(node.metadata.labels)]
    return {name: _sum(name, counted) for name in quota.spec.limits.resources or {}}


def _sum(name: str, nodes: Sequence[Node]) -> Quantity:
    if name == NODES:
        return Quantity.from_int(len(nodes))
    return Quantity.sum(amount for node in nodes if (amount := (node.status.capacity or {}).get(name)) is not None)


def status_patch(quota: CapacityQuota, status: CapacityQuotaStatus) -> Patch:
    """What is written: a resource that is not limited any more goes from what is used."""
    data: dict[str, Any] = to_dict(status)
    before = quota.status.used.resources if quota.status.used is not None else {}
    after = status.used.resources if status.used is not None else {}
    for name in before.keys() - after.keys():
        data.setdefault("used", {}).setdefault("resources", {})[name] = None
    return Patch(
        kind="CapacityQuota",
        api_version=quota.api_version,
        name=quota.name,
        type="merge",
        subresource="status",
        resource_version=quota.metadata.resource_version,
        patch={"status": data},
    )
