"""Capacity that was found is kept for a while (``bookCapacity`` in ``processors/provreq/processor.go``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from kscale.ca.provisioning_requests.classes import is_supported
from kscale.ca.provisioning_requests.conditions import BOOKING_EXPIRED, FAILED, PROVISIONED, has, marked
from kscale.ca.provisioning_requests.consumers import request_of
from kscale.ca.provisioning_requests.pods import MissingTemplatesError, pods_of_request
from kscale.effects import Moment, Progress, StepsOf, WriteStatus
from kscale.objects.core import Pod, PodTemplate
from kscale.objects.provisioning_requests import ProvisioningRequest

__all__ = ["Booking", "booking_steps"]


class Booking(msgspec.Struct, kw_only=True):
    """``pods``: to be placed on the snapshot (:func:`kscale.place`), so that nobody else takes their places."""

    pods: list[Pod] = []
    warnings: list[str] = []


def booking_steps(
    requests: Iterable[ProvisioningRequest],
    templates: Mapping[str, PodTemplate],
    placed: Iterable[Pod],
    *,
    now: Moment,
    instance: str = "",
) -> StepsOf[WriteStatus, Booking]:
    """The pods of requests that are provided and whose own pods are not all there yet.

    ``templates`` by ``namespace/name``; ``placed``: the pods on the nodes of the snapshot.
    """
    p, found = Progress(now), Booking()
    there = Counter(f"{pod.namespace}/{name}" for pod in placed if (name := request_of(pod)) is not None)
    for request in requests:
        if not _is_kept(request, instance):
            continue
        if there[f"{request.namespace}/{request.name}"] >= request.pod_count:
            text = "Capacity booking consumed: all pods scheduled"
            written = marked(request, BOOKING_EXPIRED, "CapacityBookingConsumed", text, p.now)
        else:
            try:
                found.pods += pods_of_request(request, templates)
                continue
            except MissingTemplatesError as error:
                written = marked(request, FAILED, "FailedToBookCapacity", f"Couldn't create pods, err: {error}", p.now)
        refusal = (yield from p.act(WriteStatus(written))).error
        if refusal is not None:
            found.warnings.append(f"failed to add a condition to ProvReq {request.key}, err: {refusal.message}")
    return found


def _is_kept(request: ProvisioningRequest, instance: str) -> bool:
    """``ShouldCapacityBeBooked``."""
    ended = has(request, FAILED, BOOKING_EXPIRED)
    return is_supported(request, instance) and has(request, PROVISIONED) and not ended
