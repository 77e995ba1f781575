"""Nodes for a request, for all of its pods or for none (``provisioningrequest/besteffortatomic``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from kscale.ca.errors import INTERNAL_ERROR, AutoscalerError
from kscale.ca.provisioning_requests.conditions import FOUND, LATER, PROVISIONED, marked
from kscale.ca.scale_up.orchestration import Orchestration
from kscale.ca.scale_up.status import NOT_NEEDED, SUCCESSFUL
from kscale.effects import Moment, Progress, Steps, WriteStatus
from kscale.objects.core import Pod
from kscale.objects.provisioning_requests import ProvisioningRequest
from kscale.scheduling.place import PlaceResult, PlaceState, place
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["AtomicProvision", "best_effort_atomic_steps"]

ScaleUp = Callable[[PlaceResult, Sequence[PodRecord]], Steps[Orchestration]]
"""The orchestrator, all or nothing, on the snapshot with what fits and for the pods that do not."""


class AtomicProvision(msgspec.Struct, kw_only=True):
    """``result`` of the scale-up, or that none was needed; ``request`` as it was written.

    ``placed``: what fits already; ``error``: a condition that could not be written although the capacity is there.
    """

    result: str
    request: ProvisioningRequest
    placed: PlaceResult
    done: Orchestration | None = None
    error: AutoscalerError | None = None


def best_effort_atomic_steps(
    snapshot: Snapshot,
    request: ProvisioningRequest,
    pods: Sequence[Pod],
    scale_up: ScaleUp,
    *,
    now: Moment,
    state: PlaceState | None = None,
    profile: SchedulerProfile | None = None,
) -> Steps[AtomicProvision]:
    """Looks for room, and asks the orchestrator for the rest; says in the request what came of it."""
    p = Progress(now)
    placed = place(snapshot, list(pods), state=state, profile=profile)
    left = placed.unschedulable_records
    done: Orchestration | None = None
    if not left:
        result, found = NOT_NEEDED, marked(request, PROVISIONED, "CapacityIsFound", FOUND, p.now)
        problem = "capacity available, but failed to admit workload"
    else:
        done = yield from scale_up(placed, left)
        result, problem = done.status.result, "scale up requested, but failed to admit workload"
        if result == SUCCESSFUL:
            found = marked(request, PROVISIONED, "CapacityIsProvisioned", FOUND, p.now)
        else:
            found = marked(request, PROVISIONED, "CapacityIsNotFound", LATER, p.now, holds=False)
    outcome = yield from p.act(WriteStatus(found))
    error = None
    if outcome.error is not None and result in (NOT_NEEDED, SUCCESSFUL):
        error = AutoscalerError(INTERNAL_ERROR, f"{problem}: {outcome.error.message}")
    return AtomicProvision(result=result, request=found, placed=placed, done=done, error=error)
