"""The conditions of a request (``provisioningrequest/conditions``)."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from msgspec.structs import replace

from kscale.effects import Moment, moment, to_text
from kscale.objects.conditions import is_true
from kscale.objects.meta import Condition
from kscale.objects.provisioning_requests import ProvisioningRequest

__all__ = [
    "ACCEPTED",
    "BOOKING_EXPIRED",
    "FAILED",
    "FOUND",
    "LATER",
    "PROVISIONED",
    "accepted",
    "has",
    "marked",
]

Kind = Literal["Accepted", "BookingExpired", "Failed", "Provisioned"]
ACCEPTED: Final[Kind] = "Accepted"
BOOKING_EXPIRED: Final[Kind] = "BookingExpired"
FAILED: Final[Kind] = "Failed"
PROVISIONED: Final[Kind] = "Provisioned"

FOUND: Final = "Capacity is found in the cluster"
LATER: Final = "Capacity is not found, CA will try to find it later."


def has(request: ProvisioningRequest, *types: Kind) -> bool:
    """Whether any of these conditions is True."""
    return any(is_true(request.status.conditions, type_) for type_ in types)


def marked(
    request: ProvisioningRequest,
    type_: Kind,
    reason: str,
    message: str,
    now: datetime | Moment,
    *,
    holds: bool = True,
    observed: bool = True,
) -> ProvisioningRequest:
    """The request with a condition, which takes the place of the one of its type: with a time of its own, always, and,
    if ``observed``, with the generation of the request."""
    now = moment(now)
    new = Condition(
        type=type_,
        status=str(holds),
        reason=reason,
        message=message,
        last_transition_time=to_text(now),
        observed_generation=(request.metadata.generation or 0) if observed else None,
    )
    conditions = [new if each.type == type_ else each for each in request.status.conditions]
    if new not in conditions:
        conditions.append(new)
    return replace(request, status=replace(request.status, conditions=conditions))


def accepted(request: ProvisioningRequest, now: Moment) -> ProvisioningRequest:
    """Somebody looks at it."""
    return marked(request, ACCEPTED, "Accepted", "ProvisioningRequest is accepted by ClusterAutoscaler", now)
