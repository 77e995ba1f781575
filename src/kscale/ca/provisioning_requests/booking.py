"""Capacity that was found is kept for a while (``bookCapacity`` in ``processors/provreq/processor.go``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from kscale.ca.provisioning_requests.classes import is_supported
from kscale.ca.provisioning_requests.conditions import BOOKING_EXPIRED, FAILED, PROVISIONED, has, marked
from kscale.ca.provisioning_requests.consumers import request_of
from kscale.ca.provisioning_requests.loop_requests import LoopRequests
from kscale.ca.provisioning_requests.pods import MissingTemplatesError
from kscale.effects import Moment, Progress, StepsOf, WriteStatus, moment
from kscale.objects.core import Pod
from kscale.objects.provisioning_requests import ProvisioningRequest

__all__ = ["Booking", "booking_steps"]


class Booking(msgspec.Struct, kw_only=True):
    """``pods``: to be placed on the snapshot (:func:`kscale.place`), so that nobody else takes their places."""

    pods: list[Pod] = []
    warnings: list[str] = []


def booking_steps(
    requests: LoopRequests, placed: Iterable[Pod], *, now: Moment, instance: str = ""
) -> StepsOf[WriteStatus, Booking]:
    """The pods of requests that are provided and whose own pods are not all there yet.

    ``placed``: the pods on the nodes of the snapshot.
    """
    p, found = Progress(moment(now)), Booking()
    there = Counter(f"{pod.namespace}/{name}" for pod in placed if (name := request_of(pod)) is not None)
    for request in requests:
        if not _is_kept(request, instance):
            continue
        if there[request.key] >= request.pod_count:
            text = "Capacity booking consumed: all pods scheduled"
            written = marked(request, BOOKING_EXPIRED, "CapacityBookingConsumed", text, p.now)
        else:
            try:
                found.pods += requests.pods_of(request)
                continue
            except MissingTemplatesError as error:
                written = marked(request, FAILED, "FailedToBookCapacity", f"Couldn't create pods, err: {error}", p.now)
        refusal = yield from requests.write(p, written)
        if refusal:
            found.warnings.append(f"failed to add a condition to ProvReq {request.key}, err: {refusal}")
    return found


def _is_kept(request: ProvisioningRequest, instance: str) -> bool:
    """``ShouldCapacityBeBooked``."""
    ended = has(request, FAILED, BOOKING_EXPIRED)
    return is_supported(request, instance) and has(request, PROVISIONED) and not ended
