"""The next requests as pods that need nodes (``processors/provreq/injector.go``)."""

from __future__ import annotations

from typing import Final

import msgspec

from kscale.ca.provisioning_requests.classes import checks_capacity, is_supported
from kscale.ca.provisioning_requests.conditions import FAILED, PROVISIONED, accepted, has, marked
from kscale.ca.provisioning_requests.loop_requests import LoopRequests
from kscale.ca.provisioning_requests.pods import MissingTemplatesError
from kscale.ca.provisioning_requests.state import RetryTimes
from kscale.effects import SECOND, Moment, Progress, StepsOf, WriteStatus, later, moment
from kscale.effects.moments import OtherDuration
from kscale.objects.conditions import changed_at, find
from kscale.objects.core import Pod
from kscale.objects.provisioning_requests import ProvisioningRequest

__all__ = ["InjectedRequests", "RetryBackoff", "check_capacity_batch_steps", "next_request_steps"]


class RetryBackoff(msgspec.Struct, kw_only=True, frozen=True):
    """How long a request for which nothing was found waits: ``first``, then twice as long each time up to ``last``
    (nanoseconds); ``most`` requests are remembered, 0: all."""

    first: OtherDuration = 60 * SECOND
    last: OtherDuration = 600 * SECOND
    most: int = 1000


_BACKOFF: Final = RetryBackoff()


class InjectedRequests(msgspec.Struct, kw_only=True):
    """``requests``: those whose turn it is, with their pods.

    ``retries`` go into the next loop; ``processed``: when a request was last accepted or given up, None for none;
    ``warnings``: what upstream only logs.
    """

    requests: list[tuple[ProvisioningRequest, list[Pod]]] = []
    retries: RetryTimes = {}
    processed: Moment | None = None
    warnings: list[str] = []


def next_request_steps(
    requests: LoopRequests,
    retries: RetryTimes,
    *,
    now: Moment,
    instance: str = "",
    batch: bool = False,
    backoff: RetryBackoff = _BACKOFF,
) -> StepsOf[WriteStatus, InjectedRequests]:
    """The first request, in the order given, that nothing came of yet and that has waited long enough.

    It is marked as accepted first; if that cannot be written, it is the next one's turn. With ``batch``
    (``--check-capacity-batch-processing``) requests that check capacity are accepted when that happens, not here.
    """
    p, found = Progress(moment(now)), InjectedRequests(retries=dict(retries))
    for request in requests:
        if not is_supported(request, instance) or not _is_available(request, found.retries, backoff, p.now):
            continue
        pods = yield from _pods(p, requests, request, found)
        if pods is None:
            continue
        if not (batch and checks_capacity(request, instance)):
            request = accepted(request, p.now)
            refusal = yield from requests.write(p, request)
            if refusal:
                _warn(found, "Accepted", request, refusal)
                continue
        found.processed = p.now
        found.requests.append((request, pods))
        break
    return found


def check_capacity_batch_steps(
    requests: LoopRequests,
    retries: RetryTimes,
    *,
    most: int,
    now: Moment,
    instance: str = "",
    backoff: RetryBackoff = _BACKOFF,
) -> StepsOf[WriteStatus, InjectedRequests]:
    """Up to ``most`` requests that check capacity, by the same rules. A request that has just been injected waits
    anew, as upstream has it: its next failure has been counted."""
    p, found = Progress(moment(now)), InjectedRequests(retries=dict(retries))
    for request in requests:
        if len(found.requests) >= most:
            break
        if not checks_capacity(request, instance) or not _is_available(request, found.retries, backoff, p.now):
            continue
        pods = yield from _pods(p, requests, request, found)
        if pods is not None:
            found.requests.append((request, pods))
    return found


def _pods(
    p: Progress, requests: LoopRequests, request: ProvisioningRequest, found: InjectedRequests
) -> StepsOf[WriteStatus, list[Pod] | None]:
    """Its pods; None: there are none, and it has failed."""
    try:
        return requests.pods_of(request)
    except MissingTemplatesError as error:
        failed = marked(request, FAILED, "FailedToCreatePods", str(error), p.now)
    refusal = yield from requests.write(p, failed)
    if refusal:
        _warn(found, "Failed", request, refusal)
    found.processed = p.now
    return None


def _warn(found: InjectedRequests, what: str, request: ProvisioningRequest, refusal: str) -> None:
    found.warnings.append(f"failed add {what} condition to ProvReq {request.key}, err: {refusal}")


def _is_available(request: ProvisioningRequest, retries: RetryTimes, backoff: RetryBackoff, now: Moment) -> bool:
    """Whether its turn may come; it waits for longer after the next failure then."""
    uid = request.metadata.uid
    if has(request, FAILED, PROVISIONED):
        retries.pop(uid, None)
        return False
    provisioned = find(request.status.conditions, PROVISIONED)
    if provisioned is None:
        return True
    if provisioned.status != "False":
        return False
    known = retries.pop(uid, None)
    wait = backoff.first if known is None else known
    due = later(changed_at(request, provisioned), wait) < now
    if due or known is not None:
        retries[uid] = min(2 * wait, backoff.last) if due else wait
    if 0 < backoff.most < len(retries):
        del retries[next(iter(retries))]
    return due
