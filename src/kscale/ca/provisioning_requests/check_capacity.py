"""Whether there is room for requests as the cluster is (``provisioningrequest/checkcapacity``). No node is added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from kscale.ca.errors import INTERNAL_ERROR, ErrorRecord
from kscale.ca.provisioning_requests.conditions import FAILED, FOUND, LATER, PROVISIONED, accepted, marked
from kscale.ca.provisioning_requests.hinting_simulator import HintingSimulator
from kscale.ca.provisioning_requests.loop_requests import LoopRequests
from kscale.ca.scale_up.status import ERROR, NO_OPTIONS_AVAILABLE, NOT_TRIED, SUCCESSFUL
from kscale.effects import Moment, Progress, StepsOf, Wait, WriteStatus, moment
from kscale.objects.core import Pod
from kscale.objects.names import go_quote
from kscale.objects.provisioning_requests import ProvisioningRequest
from kscale.snapshot.snapshot import Snapshot

__all__ = ["CapacityChecks", "check_capacity_steps"]

_NO_RETRY: Final = "noRetry"
_WORTH: Final = (NOT_TRIED, NO_OPTIONS_AVAILABLE, ERROR, SUCCESSFUL)
"""What counts for more stands further behind."""


class CapacityChecks(msgspec.Struct, kw_only=True):
    """``result``: the best of all; one that is ``ScaleUpSuccessful`` starts the cooldown of scale-down, too.

    ``requests``: as they were written, with their conditions; ``snapshot``: with the pods of those that fit,
    ``placement``: where (pod -> node); ``errors``: of writes; ``warnings``: what upstream only logs.
    """

    result: str = NOT_TRIED
    requests: list[ProvisioningRequest] = []
    snapshot: Snapshot
    placement: dict[str, str] = {}
    errors: list[str] = []
    warnings: list[str] = []

    @property
    def error(self) -> ErrorRecord | None:
        """All errors in one."""
        if not self.errors:
            return None
        first, *others = sorted(set(self.errors))
        if others:
            first = f"{first} ...and other concurrent errors: [{', '.join(map(go_quote, others))}]"
        return ErrorRecord(type=INTERNAL_ERROR, message=first)


def check_capacity_steps(
    snapshot: Snapshot,
    asked: Sequence[tuple[ProvisioningRequest, Sequence[Pod]]],
    requests: LoopRequests,
    simulator: HintingSimulator,
    *,
    now: Moment,
    timebox: int | None = None,
) -> StepsOf[WriteStatus | Wait, CapacityChecks]:
    """Asks for each request with its pods, in order, whether all of them fit; if so, they stay for the next request.

    ``timebox``: no further request is looked at after so many nanoseconds; None: there is no such limit. Conditions are
    written, to ``requests``, when all have been asked.
    """
    p, found = Progress(moment(now)), CapacityChecks(snapshot=snapshot)
    for given, pods in asked:
        request = accepted(given, p.now)
        done = simulator.try_schedule(found.snapshot, pods, break_on_failure=True)
        if done.placed_count == len(pods):
            found.snapshot, result = done.snapshot_after, SUCCESSFUL
            found.placement |= done.placement
            request = marked(request, PROVISIONED, "CapacityIsFound", FOUND, p.now)
        else:
            result = NO_OPTIONS_AVAILABLE
            request = _not_found(request, found.warnings, p.now)
        found.result = max(found.result, result, key=_WORTH.index)
        found.requests.append(request)
        if timebox is not None and (yield from p.clock()) - now > timebox:
            break
    for request in found.requests:
        refusal = yield from requests.write(p, request)
        if refusal:
            found.errors.append(f"error during ScaleUp: failed to update ProvReq {request.key}, err: {refusal}")
            found.result = max(found.result, ERROR, key=_WORTH.index)
    return found


def _not_found(request: ProvisioningRequest, warnings: list[str], now: Moment) -> ProvisioningRequest:
    again = (request.spec.parameters or {}).get(_NO_RETRY, "false")
    if again == "true":
        return marked(request, FAILED, "CapacityIsNotFound", "CA could not find requested capacity", now)
    if again != "false":
        warnings.append(
            f"Ignoring Parameter {_NO_RETRY} with invalid value: {again} in ProvisioningRequest: {request.name}. "
            'Supported values are: "true", "false"'
        )
    return marked(request, PROVISIONED, "CapacityIsNotFound", LATER, now, holds=False)
