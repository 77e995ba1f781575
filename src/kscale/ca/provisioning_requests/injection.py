"""The next request as pods that need nodes (``processors/provreq/injector.go``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from kscale.ca.provisioning_requests.classes import checks_capacity, is_supported
from kscale.ca.provisioning_requests.conditions import FAILED, PROVISIONED, accepted, has, marked
from kscale.ca.provisioning_requests.pods import MissingTemplatesError, pods_of_request
from kscale.effects import SECOND, Moment, Progress, StepsOf, WriteStatus, from_text, later
from kscale.objects.conditions import find
from kscale.objects.core import Pod, PodTemplate
from kscale.objects.provisioning_requests import ProvisioningRequest

__all__ = ["InjectedRequest", "RetryTimes", "next_request_steps"]

_FIRST: Final = 60 * SECOND
_LAST: Final = 600 * SECOND
_MOST: Final = 1000

RetryTimes = dict[str, int]
"""How long a request waits after its next failure (nanoseconds, by uid), the one used last at the end."""


class InjectedRequest(msgspec.Struct, kw_only=True):
    """``request``: the one whose turn it is, as accepted, None for none; ``pods``: its pods.

    ``retries`` go into the next loop; ``warnings``: what upstream only logs.
    """

    request: ProvisioningRequest | None = None
    pods: list[Pod] = []
    retries: RetryTimes = {}
    warnings: list[str] = []


def next_request_steps(
    requests: Iterable[ProvisioningRequest],
    templates: Mapping[str, PodTemplate],
    retries: RetryTimes,
    *,
    now: Moment,
    instance: str = "",
    batch: bool = False,
) -> StepsOf[WriteStatus, InjectedRequest]:
    """The first request, in the order given, that nothing came of yet and that has waited long enough.

    ``templates`` by ``namespace/name``. It is marked as accepted first; if that cannot be written, it is the next one's
    turn. With ``batch`` (``--check-capacity-batch-processing``) requests that check capacity are accepted when that
    happens, not here.
    """
    p, found = Progress(now), InjectedRequest(retries=dict(retries))
    for request in requests:
        if not is_supported(request, instance):
            continue
        if has(request, FAILED, PROVISIONED):
            found.retries.pop(request.metadata.uid, None)
            continue
        if not _is_due(request, found.retries, p.now):
            continue
        try:
            pods = pods_of_request(request, templates)
        except MissingTemplatesError as error:
            failed = marked(request, FAILED, "FailedToCreatePods", str(error), p.now)
            yield from _written(p, failed, "Failed", found)
            continue
        if not (batch and checks_capacity(request, instance)):
            request = accepted(request, p.now)
            if not (yield from _written(p, request, "Accepted", found)):
                continue
        found.request, found.pods = request, pods
        break
    return found


def _written(
    p: Progress, request: ProvisioningRequest, what: str, found: InjectedRequest
) -> StepsOf[WriteStatus, bool]:
    error = (yield from p.act(WriteStatus(request))).error
    if error is not None:
        found.warnings.append(f"failed add {what} condition to ProvReq {request.key}, err: {error.message}")
    return error is None


def _is_due(request: ProvisioningRequest, retries: RetryTimes, now: Moment) -> bool:
    """Whether its turn may come; it waits for longer after the next failure then."""
    provisioned = find(request.status.conditions, PROVISIONED)
    if provisioned is None:
        return True
    if provisioned.status != "False":
        return False
    uid = request.metadata.uid
    known = retries.pop(uid, None)
    wait = _FIRST if known is None else known
    due = later(from_text(provisioned.last_transition_time), wait) < now
    if due or known is not None:
        retries[uid] = min(2 * wait, _LAST) if due else wait
    if len(retries) > _MOST:
        del retries[next(iter(retries))]
    return due
