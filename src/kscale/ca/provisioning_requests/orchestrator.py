"""Scale-ups for ProvisioningRequests: check-capacity and best-effort-atomic.

Upstream: ``provisioningrequest/orchestrator``, ``checkcapacity``, ``besteffortatomic``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from kscale.ca.errors import INTERNAL_ERROR, ErrorRecord
from kscale.ca.provisioning_requests.processors import (
    HintingSimulator,
    ProvisioningRequestProcessor,
    get_consumed_request,
)
from kscale.ca.provisioning_requests.requests import (
    BEST_EFFORT_ATOMIC_CLASS,
    CAPACITY_FOUND_MESSAGE,
    CAPACITY_NOT_FOUND_MESSAGE,
    FAILED_CONDITION,
    PROVISIONED_CONDITION,
    LoopRequests,
    is_check_capacity_request,
    mark_accepted,
    set_request_condition,
)
from kscale.ca.scale_up.expansion import ScaleUpContext
from kscale.ca.scale_up.orchestrator import OrchestratorAction, OrchestratorResult, orchestrate_substeps
from kscale.ca.scale_up_status import (
    SCALE_UP_ERROR,
    SCALE_UP_NO_OPTIONS_AVAILABLE,
    SCALE_UP_NOT_NEEDED,
    SCALE_UP_NOT_TRIED,
    SCALE_UP_SUCCESSFUL,
    ScaleUpStatus,
)
from kscale.effects import Action, Moment, Progress, StepsOf, Wait, WriteStatus, duration, moment
from kscale.objects.api.cluster_autoscaler import ProvisioningRequest
from kscale.objects.api.core import Pod
from kscale.objects.names import go_quote
from kscale.scheduling.place import PlaceResult
from kscale.snapshot.pods.record import PodRecord, pod_record
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "AtomicProvisionResult",
    "CheckCapacityResult",
    "WrapperOrchestrator",
    "check_capacity_steps",
    "provision_best_effort_atomic_steps",
]


_NO_RETRY_PARAMETER: Final = "noRetry"
_RESULT_PRECEDENCE: Final = (SCALE_UP_NOT_TRIED, SCALE_UP_NO_OPTIONS_AVAILABLE, SCALE_UP_ERROR, SCALE_UP_SUCCESSFUL)
"""Results in order of increasing precedence."""


class CheckCapacityResult(msgspec.Struct, kw_only=True):
    """Result of checking the capacity for requests.

    - ``result``: the best result of all requests; ``ScaleUpSuccessful`` starts the cooldown of scale-down, too.
    - ``requests``: the requests as written, with their conditions.
    - ``snapshot``: the cluster with the pods of the requests that fit; ``placement``: pod -> node.
    - ``errors``: failed writes; ``warnings``: what upstream only logs.
    """

    result: str = SCALE_UP_NOT_TRIED
    requests: list[ProvisioningRequest] = []
    snapshot: Snapshot
    placement: dict[str, str] = {}
    errors: list[str] = []
    warnings: list[str] = []

    @property
    def error(self) -> ErrorRecord | None:
        """Return one error that combines all errors; None without errors."""
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
) -> StepsOf[WriteStatus | Wait, CheckCapacityResult]:
    """Check for each request in order whether all its pods fit. If so, they stay placed for the next request.

    ``asked``: each request with its pods. No further request is checked after ``timebox`` nanoseconds (None: no limit).
    Conditions are written to ``requests`` after all checks. ``simulator`` places the pods and keeps its hints and
    cursor.
    """
    p, checked = Progress(moment(now)), CheckCapacityResult(snapshot=snapshot)
    for original, pods in asked:
        request = mark_accepted(original, p.now)
        done = simulator.try_schedule(checked.snapshot, pods, break_on_failure=True)
        if done.placed_count == len(pods):
            checked.snapshot, result = done.snapshot_after, SCALE_UP_SUCCESSFUL
            checked.placement |= done.placed
            request = set_request_condition(
                request, PROVISIONED_CONDITION, "CapacityIsFound", CAPACITY_FOUND_MESSAGE, p.now
            )
        else:
            result = SCALE_UP_NO_OPTIONS_AVAILABLE
            request = _set_not_found_condition(request, checked.warnings, p.now)
        checked.result = max(checked.result, result, key=_RESULT_PRECEDENCE.index)
        checked.requests.append(request)
        if timebox is not None and (yield from p.clock()) - now > timebox:
            break
    for request in checked.requests:
        error = yield from requests.write(p, request)
        if error:
            checked.errors.append(f"error during ScaleUp: failed to update ProvReq {request.key}, err: {error}")
            checked.result = max(checked.result, SCALE_UP_ERROR, key=_RESULT_PRECEDENCE.index)
    return checked


def _set_not_found_condition(request: ProvisioningRequest, warnings: list[str], now: Moment) -> ProvisioningRequest:
    """Return the request with the condition for missing capacity.

    That is ``Failed`` if the request has the parameter ``noRetry``, otherwise a false ``Provisioned``. Another value
    than "true" and "false" of the parameter adds a warning.
    """
    again = (request.spec.parameters or {}).get(_NO_RETRY_PARAMETER, "false")
    if again == "true":
        return set_request_condition(
            request, FAILED_CONDITION, "CapacityIsNotFound", "CA could not find requested capacity", now
        )
    if again != "false":
        warnings.append(
            f"Ignoring Parameter {_NO_RETRY_PARAMETER} with invalid value: {again} in ProvisioningRequest: "
            f'{request.name}. Supported values are: "true", "false"'
        )
    return set_request_condition(
        request, PROVISIONED_CONDITION, "CapacityIsNotFound", CAPACITY_NOT_FOUND_MESSAGE, now, holds=False
    )


_ActionType = TypeVar("_ActionType", bound=Action)

ScaleUpRunner = Callable[[PlaceResult, Sequence[PodRecord]], StepsOf[_ActionType, OrchestratorResult]]
"""The orchestrator, all or nothing, on the snapshot with what fits and for the pods that do not."""


class AtomicProvisionResult(msgspec.Struct, kw_only=True):
    """Result of a scale-up for an atomic request. ``status`` is the result for the loop.

    ``done``: the scale-up, None if none was needed; ``existing``: pod -> node, for pods that need no new node of a
    request that is provided; ``failure``: the scale-up succeeded, but the request's status could not be written.
    """

    status: ScaleUpStatus
    done: OrchestratorResult | None = None
    existing: Mapping[str, str] = {}
    failure: ErrorRecord | None = None


def provision_best_effort_atomic_steps(
    snapshot: Snapshot,
    request: ProvisioningRequest,
    pods: Sequence[Pod],
    requests: LoopRequests,
    simulator: HintingSimulator,
    scale_up: ScaleUpRunner[_ActionType],
    *,
    now: Moment,
) -> StepsOf[_ActionType | WriteStatus, AtomicProvisionResult]:
    """Place the pods of a request on existing nodes, and scale up for the rest.

    ``scale_up`` is called with the placement and the remaining pods, if there are any; it returns the steps of the
    scale-up. The outcome is written to the conditions of the request in ``requests``. ``simulator`` keeps its hints and
    cursor.
    """
    p = Progress(moment(now))
    placed = simulator.try_schedule(snapshot, pods)
    left = placed.unschedulable_records
    if not left:
        error = yield from requests.write(p, _set_provisioned_condition(request, "CapacityIsFound", p.now))
        if error:
            return AtomicProvisionResult(
                status=_build_error_status(f"capacity available, but failed to admit workload: {error}")
            )
        return AtomicProvisionResult(status=ScaleUpStatus(result=SCALE_UP_NOT_NEEDED), existing=placed.placed)
    done = yield from scale_up(placed, left)
    simulator.cursor = done.cursor
    if done.status.result == SCALE_UP_SUCCESSFUL:
        error = yield from requests.write(p, _set_provisioned_condition(request, "CapacityIsProvisioned", p.now))
        text = f"scale up requested, but failed to admit workload: {error}"
        failure = ErrorRecord(type=INTERNAL_ERROR, message=text) if error else None
        return AtomicProvisionResult(status=done.status, done=done, existing=placed.placed, failure=failure)
    yield from requests.write(
        p, _set_provisioned_condition(request, "CapacityIsNotFound", p.now, CAPACITY_NOT_FOUND_MESSAGE, holds=False)
    )
    status = done.status
    if status.error is not None:
        status = _build_error_status(f"error during ScaleUp: {status.error.message}")
    return AtomicProvisionResult(status=status, done=done)


def _set_provisioned_condition(
    request: ProvisioningRequest, reason: str, now: Moment, message: str = CAPACITY_FOUND_MESSAGE, *, holds: bool = True
) -> ProvisioningRequest:
    """Return the request with the condition Provisioned; ``holds``: whether its status is True.

    The condition has no ``observedGeneration``, as upstream writes none for the class best-effort-atomic.
    """
    return set_request_condition(request, PROVISIONED_CONDITION, reason, message, now, holds=holds, observed=False)


def _build_error_status(message: str) -> ScaleUpStatus:
    """Build the result of a failed scale-up, with an internal error."""
    return ScaleUpStatus(result=SCALE_UP_ERROR, error=ErrorRecord(type=INTERNAL_ERROR, message=message))


WrapperOrchestratorAction = OrchestratorAction | WriteStatus


class WrapperOrchestrator(msgspec.Struct, eq=False):
    """Replaces :func:`~kscale.ca.scale_up.orchestrator.orchestrate_substeps` in loops with provisioning requests.

    The simulated cluster is unchanged after a scale-up for a request.
    """

    provisioning: ProvisioningRequestProcessor

    def orchestrate_in(
        self, p: Progress, snapshot: Snapshot, pods: Iterable[Pod | PodRecord], context: ScaleUpContext
    ) -> StepsOf[WrapperOrchestratorAction, OrchestratorResult]:
        """Run one scale-up: either for the pods of the injected request or for the other pods, which take turns.

        The pods of the other kind are in ``waiting_turn`` of the result.
        """
        provisioning, records = self.provisioning, [pod_record(pod) for pod in pods]
        request_records = [record for record in records if record.key in provisioning.injected]
        others = [record for record in records if record.key not in provisioning.injected]
        memory = provisioning.memory
        is_requests_turn = bool(request_records) and (memory.requests_next or not others)
        provisioning.memory = replace(memory, requests_next=not is_requests_turn)
        if not is_requests_turn:
            done = yield from orchestrate_substeps(p, snapshot, others, context)
            return replace(done, waiting_turn=[record.key for record in request_records])

        def scale_up(placed: PlaceResult, left: Sequence[PodRecord]) -> StepsOf[OrchestratorAction, OrchestratorResult]:
            rest = replace(context, all_or_nothing=True, cursor=placed.state.cursor)
            return orchestrate_substeps(p, placed.snapshot_after, left, rest)

        simulator = HintingSimulator(provisioning.memory.hints, cursor=context.cursor, profile=provisioning.profile)
        nothing = OrchestratorResult.without_options(
            ScaleUpStatus(result=SCALE_UP_NOT_TRIED),
            context.state,
            context.groups,
            context.templates,
            context.initializers,
        )
        pods_of_request = [record.pod for record in request_records]
        done = yield from self._provide(p, snapshot, pods_of_request, simulator, scale_up, nothing)
        provisioning.memory = replace(provisioning.memory, hints=simulator.hints)
        return replace(done, cursor=simulator.cursor, waiting_turn=[record.key for record in others])

    def _provide(
        self,
        p: Progress,
        snapshot: Snapshot,
        pods: Sequence[Pod],
        simulator: HintingSimulator,
        scale_up: ScaleUpRunner[OrchestratorAction],
        nothing: OrchestratorResult,
    ) -> StepsOf[WrapperOrchestratorAction, OrchestratorResult]:
        """Check or provide the capacity for the request that ``pods`` belong to, by its class.

        ``scale_up``: as in :func:`provision_best_effort_atomic_steps`. Returns ``nothing`` if no class handles the
        request.
        """
        provisioning, requests, options = self.provisioning, self.provisioning.requests, self.provisioning.options
        request = requests.get(f"{pods[0].namespace}/{get_consumed_request(pods[0])}")
        batch = options.check_capacity_batch_processing
        is_batch = batch and options.check_capacity_provisioning_request_max_batch_size > 1
        asked: list[tuple[ProvisioningRequest, list[Pod]]] = []
        if is_batch:
            asked = yield from provisioning.batch(p.now)
        elif request is not None and is_check_capacity_request(request, options.check_capacity_processor_instance):
            asked = [(request, list(pods))]
        if asked:
            if batch:
                provisioning.memory = replace(provisioning.memory, last_processed=p.now)
            timebox = duration(options.check_capacity_provisioning_request_batch_timebox) if is_batch else None
            checks = yield from check_capacity_steps(snapshot, asked, requests, simulator, now=p.now, timebox=timebox)
            provisioning.warnings += checks.warnings
            keys = {pod.key for pod in pods}
            existing = {name: node for name, node in checks.placement.items() if name in keys}
            status = ScaleUpStatus(result=checks.result, error=checks.error)
            return replace(nothing, status=status, existing=existing)
        if request is None or request.spec.provisioning_class_name != BEST_EFFORT_ATOMIC_CLASS:
            return nothing
        provisioned = yield from provision_best_effort_atomic_steps(
            snapshot, request, pods, requests, simulator, scale_up, now=p.now
        )
        done = provisioned.done or nothing
        return replace(done, status=provisioned.status, existing=provisioned.existing, failure=provisioned.failure)
