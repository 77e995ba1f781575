"""Requests whose time is over, at the start of a loop (``Refresh`` in ``processors/provreq/processor.go``)."""

from __future__ import annotations

from typing import Final

import msgspec

from kscale.ca.provisioning_requests.classes import is_supported
from kscale.ca.provisioning_requests.conditions import BOOKING_EXPIRED, FAILED, PROVISIONED, has, marked
from kscale.ca.provisioning_requests.loop_requests import LoopRequests
from kscale.effects import SECOND, Delete, Moment, Progress, StepsOf, WriteStatus, later, moment
from kscale.effects.moments import ComparedDuration
from kscale.objects.conditions import changed_at, find
from kscale.objects.provisioning_requests import ProvisioningRequest
from kscale.objects.times import moment_in

__all__ = ["Upkeep", "upkeep_steps"]

BOOKED_FOR: Final[ComparedDuration] = 600 * SECOND
WEEK: Final[ComparedDuration] = 7 * 24 * 3600 * SECOND
_MOST: Final = 20
"""So many conditions are written in one loop."""


class Upkeep(msgspec.Struct, kw_only=True):
    """``namespace/name`` of requests whose booking is over, that were never provided, and that were deleted.

    ``warnings``: what upstream only logs.
    """

    expired: list[str] = []
    failed: list[str] = []
    deleted: list[str] = []
    warnings: list[str] = []


def upkeep_steps(requests: LoopRequests, *, now: Moment, instance: str = "") -> StepsOf[WriteStatus | Delete, Upkeep]:
    """Ends bookings after ten minutes and requests that nothing came of after a week; deletes what ended a week ago.

    Whatever class it is of, a request goes a week after its condition Provisioned or Failed changed, to whatever.
    """
    p, found = Progress(moment(now)), Upkeep()
    expired: list[ProvisioningRequest] = []
    failed: list[ProvisioningRequest] = []
    for request in requests:
        if len(expired) >= _MOST:
            break
        if not is_supported(request, instance) or has(request, BOOKING_EXPIRED, FAILED):
            continue
        provisioned = find(request.status.conditions, PROVISIONED)
        if provisioned is not None and provisioned.status == "True":
            if _over(changed_at(request, provisioned), BOOKED_FOR, now):
                expired.append(request)
        elif len(failed) < _MOST - len(expired) and _over(_made(request), WEEK, now):
            failed.append(request)
    for request in expired:
        reason, text = "CapacityReservationTimeExpired", "Capacity reservation time is expired"
        refusal = yield from requests.write(p, marked(request, BOOKING_EXPIRED, reason, text, p.now))
        _note(found, found.expired, "failed to add BookingExpired condition to", request, refusal)
    for request in failed:
        refusal = yield from requests.write(
            p, marked(request, FAILED, "Expired", "ProvisioningRequest is expired", p.now)
        )
        _note(found, found.failed, "failed to add Failed condition to", request, refusal)
    for request in requests:
        ended = (find(request.status.conditions, type_) for type_ in (PROVISIONED, FAILED))
        if any(each is not None and _over(changed_at(request, each), WEEK, now) for each in ended):
            refusal = yield from requests.delete(p, request)
            _note(found, found.deleted, "Couldn't delete old", request, refusal)
    return found


def _made(request: ProvisioningRequest) -> Moment:
    return moment_in(request, request.metadata.creation_timestamp, "metadata.creationTimestamp")


def _over(since: Moment, length: int, now: Moment) -> bool:
    return later(since, length) < now


def _note(found: Upkeep, done: list[str], what: str, request: ProvisioningRequest, refusal: str) -> None:
    if refusal:
        found.warnings.append(f"{what} ProvReq {request.key}, err: {refusal}")
    else:
        done.append(request.key)
