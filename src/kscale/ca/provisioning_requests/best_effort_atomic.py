"""Nodes for a request, for all of its pods or for none (``provisioningrequest/besteffortatomic``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from kscale.ca.errors import INTERNAL_ERROR, ErrorRecord
from kscale.ca.provisioning_requests.conditions import FOUND, LATER, PROVISIONED, marked
from kscale.ca.provisioning_requests.hinting_simulator import HintingSimulator
from kscale.ca.provisioning_requests.loop_requests import LoopRequests
from kscale.ca.scale_up.orchestration import Orchestration
from kscale.ca.scale_up.status import ERROR, NOT_NEEDED, SUCCESSFUL, ScaleUpStatus
from kscale.effects import Action, Moment, Progress, StepsOf, WriteStatus, moment
from kscale.objects.core import Pod
from kscale.objects.provisioning_requests import ProvisioningRequest
from kscale.scheduling.place import PlaceResult
from kscale.snapshot.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["AtomicProvision", "best_effort_atomic_steps"]

_A = TypeVar("_A", bound=Action)

ScaleUp = Callable[[PlaceResult, Sequence[PodRecord]], StepsOf[_A, Orchestration]]
"""The orchestrator, all or nothing, on the snapshot with what fits and for the pods that do not."""


class AtomicProvision(msgspec.Struct, kw_only=True):
    """``status`` is what the loop is told.

    ``done``: the scale-up, None if none was needed; ``existing``: pod -> node, for pods that need no new node of a
    request that is provided; ``failure``: the scale-up succeeded, but the request was not told.
    """

    status: ScaleUpStatus
    done: Orchestration | None = None
    existing: Mapping[str, str] = {}
    failure: ErrorRecord | None = None


def best_effort_atomic_steps(
    snapshot: Snapshot,
    request: ProvisioningRequest,
    pods: Sequence[Pod],
    requests: LoopRequests,
    simulator: HintingSimulator,
    scale_up: ScaleUp[_A],
    *,
    now: Moment,
) -> StepsOf[_A | WriteStatus, AtomicProvision]:
    """Looks for room, and asks the orchestrator for the rest; says in the request, to ``requests``, what came of it."""
    p = Progress(moment(now))
    placed = simulator.try_schedule(snapshot, pods)
    left = placed.unschedulable_records
    if not left:
        refusal = yield from requests.write(p, _marked(request, "CapacityIsFound", p.now))
        if refusal:
            return AtomicProvision(status=_failed(f"capacity available, but failed to admit workload: {refusal}"))
        return AtomicProvision(status=ScaleUpStatus(result=NOT_NEEDED), existing=placed.placement)
    done = yield from scale_up(placed, left)
    simulator.cursor = done.cursor
    if done.status.result == SUCCESSFUL:
        refusal = yield from requests.write(p, _marked(request, "CapacityIsProvisioned", p.now))
        text = f"scale up requested, but failed to admit workload: {refusal}"
        failure = ErrorRecord(type=INTERNAL_ERROR, message=text) if refusal else None
        return AtomicProvision(status=done.status, done=done, existing=placed.placement, failure=failure)
    yield from requests.write(p, _marked(request, "CapacityIsNotFound", p.now, LATER, holds=False))
    status = done.status
    if status.error is not None:
        status = _failed(f"error during ScaleUp: {status.error.message}")
    return AtomicProvision(status=status, done=done)


def _marked(
    request: ProvisioningRequest, reason: str, now: Moment, message: str = FOUND, *, holds: bool = True
) -> ProvisioningRequest:
    """With the condition Provisioned: this class of requests is told by a server-side apply that leaves the observed
    generation out."""
    return marked(request, PROVISIONED, reason, message, now, holds=holds, observed=False)


def _failed(message: str) -> ScaleUpStatus:
    return ScaleUpStatus(result=ERROR, error=ErrorRecord(type=INTERNAL_ERROR, message=message))
