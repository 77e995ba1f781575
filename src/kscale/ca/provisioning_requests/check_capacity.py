"""Whether there is room for requests as the cluster is (``provisioningrequest/checkcapacity``). No node is added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from kscale.ca.provisioning_requests.conditions import FAILED, FOUND, LATER, PROVISIONED, accepted, marked
from kscale.ca.scale_up.status import ERROR, NO_OPTIONS_AVAILABLE, NOT_TRIED, SUCCESSFUL
from kscale.effects import Moment, Progress, StepsOf, WriteStatus
from kscale.objects.core import Pod
from kscale.objects.provisioning_requests import ProvisioningRequest
from kscale.scheduling.place import PlaceState, place
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.snapshot import Snapshot

__all__ = ["CapacityChecks", "check_capacity_steps"]

_NO_RETRY: Final = "noRetry"
_WORTH: Final = (NOT_TRIED, NO_OPTIONS_AVAILABLE, ERROR, SUCCESSFUL)
"""What counts for more stands further behind."""


class CapacityChecks(msgspec.Struct, kw_only=True):
    """``result``: the best of all; one that is ``ScaleUpSuccessful`` starts the cooldown of scale-down, too.

    - ``requests``: as they were written, with their conditions; ``snapshot``: with the pods of those that fit.
    - ``state``: the simulator's; ``errors``: of writes; ``warnings``: what upstream only logs.
    """

    result: str = NOT_TRIED
    requests: list[ProvisioningRequest] = []
    snapshot: Snapshot
    state: PlaceState
    errors: list[str] = []
    warnings: list[str] = []


def check_capacity_steps(
    snapshot: Snapshot,
    requests: Sequence[tuple[ProvisioningRequest, Sequence[Pod]]],
    *,
    now: Moment,
    state: PlaceState | None = None,
    profile: SchedulerProfile | None = None,
) -> StepsOf[WriteStatus, CapacityChecks]:
    """Asks for each request with its pods, in order, whether all of them fit; if so, they stay for the next request.

    How many requests there are in a batch (``--check-capacity-provisioning-request-max-batch-size``) and how long it
    may take is the caller's. Conditions are written when all have been asked.
    """
    p, found = Progress(now), CapacityChecks(snapshot=snapshot, state=state or PlaceState())
    for given, pods in requests:
        request = accepted(given, p.now)
        done = place(found.snapshot, list(pods), state=found.state, profile=profile, break_on_failure=True)
        found.state = done.state
        if done.placed_count == len(pods):
            found.snapshot, result = done.snapshot_after, SUCCESSFUL
            request = marked(request, PROVISIONED, "CapacityIsFound", FOUND, p.now)
        else:
            result = NO_OPTIONS_AVAILABLE
            request = _not_found(request, found.warnings, p.now)
        found.result = max(found.result, result, key=_WORTH.index)
        found.requests.append(request)
    for request in found.requests:
        error = (yield from p.act(WriteStatus(request))).error
        if error is not None:
            found.errors.append(f"error during ScaleUp: failed to update ProvReq {request.key}, err: {error.message}")
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
