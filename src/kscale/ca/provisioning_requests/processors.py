"""Processors of ProvisioningRequests in a loop: expiry, consumers, injection and capacity booking.

Upstream: ``processors/provreq``, ``simulator/scheduling/hinting_simulator.go``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from kscale.ca.events import build_pod_event
from kscale.ca.loop_state import ProvisioningState, RetryTimes
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists import CONSUME_ANNOTATIONS, PendingPodList
from kscale.ca.provisioning_requests.requests import (
    BOOKING_EXPIRED_CONDITION,
    FAILED_CONDITION,
    PROVISIONED_CONDITION,
    LoopRequests,
    MissingTemplatesError,
    has_condition,
    is_check_capacity_request,
    is_supported_request,
    mark_accepted,
    set_request_condition,
)
from kscale.effects import SECOND, Delete, Emit, Event, Moment, Progress, StepsOf, WriteStatus, duration, later, moment
from kscale.effects.moments import ComparedDuration, OtherDuration
from kscale.objects.api.cluster_autoscaler import ProvisioningRequest
from kscale.objects.api.core import Pod
from kscale.objects.conditions import changed_at, find
from kscale.objects.pod_owners import pod_annotation
from kscale.objects.times import created_at
from kscale.scheduling.place import PlaceResult, PlaceState, place
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.object_store import Informers
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "BookingResult",
    "ConsumersResult",
    "HintingSimulator",
    "InjectedRequests",
    "ProcessedPods",
    "ProvisioningRequestProcessor",
    "RefreshResult",
    "RetryBackoff",
    "book_capacity_steps",
    "filter_out_consumers",
    "get_check_capacity_batch_steps",
    "get_consumed_request",
    "inject_next_request_steps",
    "refresh_requests_steps",
]


class HintingSimulator:
    """Places pods, each on its previous node if it still fits there.

    Hints are never dropped, not even those of reverted placements. ``cursor``: where the scan over nodes stands;
    ``hints``: pod UID -> node.
    """

    def __init__(
        self, hints: Mapping[str, str] | None = None, *, cursor: int = 0, profile: SchedulerProfile | None = None
    ) -> None:
        self.hints = dict(hints or {})
        self.cursor = cursor
        self._profile = profile

    def try_schedule(self, snapshot: Snapshot, pods: Sequence[Pod], *, break_on_failure: bool = False) -> PlaceResult:
        """Place the pods and return the result (:func:`kscale.place`).

        ``break_on_failure``: place no more pods of a priority after the first one that fits nowhere. The next call
        starts with the hints and the cursor of this one.
        """
        before = PlaceState(cursor=self.cursor, hints=self.hints)
        result = place(snapshot, list(pods), state=before, profile=self._profile, break_on_failure=break_on_failure)
        self.cursor, self.hints = result.state.cursor, result.state.old_hints
        return result


_MAX_EVENTS: Final = 50


class ConsumersResult(msgspec.Struct, kw_only=True):
    """Pods without a request, pods that consume one, and the events about the first fifty consumers."""

    pods: list[Pod] = []
    consumers: list[Pod] = []
    events: list[Event] = []


def get_consumed_request(pod: Pod) -> str | None:
    """Return the name of the request that a pod consumes, from its annotation or the old annotation.

    None if there are none.
    """
    return next((name for key in CONSUME_ANNOTATIONS if (name := pod_annotation(pod, key)) is not None), None)


def filter_out_consumers(pods: Iterable[Pod]) -> ConsumersResult:
    """Separate the pods that consume a request from the others, with events about the first 50 consumers."""
    result = ConsumersResult()
    for pod in pods:
        name = get_consumed_request(pod)
        if name is None:
            result.pods.append(pod)
            continue
        result.consumers.append(pod)
        if len(result.events) < _MAX_EVENTS:
            request_key = f"{pod.namespace}/{name}"
            text = (
                f"Unschedulable pod didn't trigger scale-up, because it's consuming ProvisioningRequest {request_key}"
            )
            result.events.append(build_pod_event(pod, "Normal", "", text))
    return result


DEFAULT_RESERVATION_TIME: Final[ComparedDuration] = 600 * SECOND
DEFAULT_EXPIRATION_TIME: Final[ComparedDuration] = 7 * 24 * 3600 * SECOND
_MAX_UPDATED: Final = 20
"""So many conditions are written in one loop."""


class RefreshResult(msgspec.Struct, kw_only=True):
    """Requests (``namespace/name``) whose booking expired, that failed, and that were deleted.

    ``warnings``: what upstream only logs.
    """

    expired: list[str] = []
    failed: list[str] = []
    deleted: list[str] = []
    warnings: list[str] = []


def refresh_requests_steps(
    requests: LoopRequests, *, now: Moment, instance: str = ""
) -> StepsOf[WriteStatus | Delete, RefreshResult]:
    """Mark old bookings as expired and old requests as failed, and delete requests that ended a week ago.

    - A booking expires after ten minutes.
    - A request without any result fails after a week.
    - A request of any class is deleted a week after its condition Provisioned or Failed changed, whatever the status.

    At most 20 requests are marked in one call; further ones wait for the next loop.

    ``instance`` is ``--check-capacity-processor-instance`` (:func:`is_supported_request`). The result has the keys of
    the marked and deleted requests, and a warning for each failed write or deletion. Raises InputError if a time of a
    request is invalid.
    """
    p, result = Progress(moment(now)), RefreshResult()
    expired: list[ProvisioningRequest] = []
    failed: list[ProvisioningRequest] = []
    for request in requests:
        if len(expired) >= _MAX_UPDATED:
            break
        if not is_supported_request(request, instance) or has_condition(
            request, BOOKING_EXPIRED_CONDITION, FAILED_CONDITION
        ):
            continue
        provisioned = find(request.status.conditions, PROVISIONED_CONDITION)
        if provisioned is not None and provisioned.status == "True":
            if _has_passed(changed_at(request, provisioned), DEFAULT_RESERVATION_TIME, now):
                expired.append(request)
        elif len(failed) < _MAX_UPDATED - len(expired) and _has_passed(
            created_at(request), DEFAULT_EXPIRATION_TIME, now
        ):
            failed.append(request)
    for request in expired:
        reason, text = "CapacityReservationTimeExpired", "Capacity reservation time is expired"
        error = yield from requests.write(
            p, set_request_condition(request, BOOKING_EXPIRED_CONDITION, reason, text, p.now)
        )
        _record_outcome(result, result.expired, "failed to add BookingExpired condition to", request, error)
    for request in failed:
        error = yield from requests.write(
            p, set_request_condition(request, FAILED_CONDITION, "Expired", "ProvisioningRequest is expired", p.now)
        )
        _record_outcome(result, result.failed, "failed to add Failed condition to", request, error)
    for request in requests:
        ended = (find(request.status.conditions, type_) for type_ in (PROVISIONED_CONDITION, FAILED_CONDITION))
        if any(
            each is not None and _has_passed(changed_at(request, each), DEFAULT_EXPIRATION_TIME, now) for each in ended
        ):
            error = yield from requests.delete(p, request)
            _record_outcome(result, result.deleted, "Couldn't delete old", request, error)
    return result


def _has_passed(since: Moment, length: int, now: Moment) -> bool:
    """Check whether more than ``length`` nanoseconds have passed between ``since`` and ``now``."""
    return later(since, length) < now


def _record_outcome(
    result: RefreshResult, done: list[str], message: str, request: ProvisioningRequest, error: str
) -> None:
    """Record whether an action on the request succeeded (``error`` is empty).

    Success: adds the request's key to ``done``. Error: adds a warning that begins with ``message`` to ``result``.
    """
    if error:
        result.warnings.append(f"{message} ProvReq {request.key}, err: {error}")
    else:
        done.append(request.key)


class BookingResult(msgspec.Struct, kw_only=True):
    """Pods of booked capacity. ``pods`` must be placed on the snapshot (:func:`kscale.place`) to reserve their
    places.
    """

    pods: list[Pod] = []
    warnings: list[str] = []


def book_capacity_steps(
    requests: LoopRequests, placed: Iterable[Pod], *, now: Moment, instance: str = ""
) -> StepsOf[WriteStatus, BookingResult]:
    """Return the pods whose capacity is booked: all pods of each provisioned request that lacks pods on nodes.

    A request lacks pods if fewer are on nodes than it requested. Otherwise it is marked as expired; it is marked as
    failed if its pods cannot be built. ``placed`` are the pods on the nodes of the snapshot. ``instance``: as in
    :func:`is_supported_request`.
    """
    p, result = Progress(moment(now)), BookingResult()
    pod_counts = Counter(f"{pod.namespace}/{name}" for pod in placed if (name := get_consumed_request(pod)) is not None)
    for request in requests:
        if not _should_book_capacity(request, instance):
            continue
        if pod_counts[request.key] >= request.pod_count:
            text = "Capacity booking consumed: all pods scheduled"
            written = set_request_condition(request, BOOKING_EXPIRED_CONDITION, "CapacityBookingConsumed", text, p.now)
        else:
            try:
                result.pods += requests.pods_of(request)
                continue
            except MissingTemplatesError as error:
                written = set_request_condition(
                    request, FAILED_CONDITION, "FailedToBookCapacity", f"Couldn't create pods, err: {error}", p.now
                )
        refusal = yield from requests.write(p, written)
        if refusal:
            result.warnings.append(f"failed to add a condition to ProvReq {request.key}, err: {refusal}")
    return result


def _should_book_capacity(request: ProvisioningRequest, instance: str) -> bool:
    """Check whether capacity is booked for the request (``ShouldCapacityBeBooked``).

    It is if this autoscaler (``instance``) handles the request, and the request is provisioned and has neither failed
    nor expired.
    """
    ended = has_condition(request, FAILED_CONDITION, BOOKING_EXPIRED_CONDITION)
    return is_supported_request(request, instance) and has_condition(request, PROVISIONED_CONDITION) and not ended


class RetryBackoff(msgspec.Struct, kw_only=True, frozen=True):
    """Back-off of requests without capacity: ``first``, then twice as long each time up to ``last`` (nanoseconds).

    ``most``: maximum number of requests that are stored, 0 for no limit.
    """

    first: OtherDuration = 60 * SECOND
    last: OtherDuration = 600 * SECOND
    most: int = 1000


_DEFAULT_BACKOFF: Final = RetryBackoff()


class InjectedRequests(msgspec.Struct, kw_only=True):
    """Requests to process now, with their pods (``requests``).

    ``retries`` go into the next loop; ``processed``: when a request was last accepted or given up, None for none;
    ``warnings``: what upstream only logs.
    """

    requests: list[tuple[ProvisioningRequest, list[Pod]]] = []
    retries: RetryTimes = {}
    processed: Moment | None = None
    warnings: list[str] = []


def inject_next_request_steps(
    requests: LoopRequests,
    retries: RetryTimes,
    *,
    now: Moment,
    instance: str = "",
    batch: bool = False,
    backoff: RetryBackoff = _DEFAULT_BACKOFF,
) -> StepsOf[WriteStatus, InjectedRequests]:
    """Inject the pods of the first pending request, in the given order, that has waited long enough.

    ``retries``: how long failed requests wait, by UID; it is not changed, the result has the new ones. The request is
    marked as accepted first; if that write fails, or if pod templates are missing (the request is then marked as
    failed), the next request is tried. With ``batch`` (``--check-capacity-batch-processing``) check-capacity requests
    are accepted during the check, not here. The result has no request if none is due.
    """
    p, injected = Progress(moment(now)), InjectedRequests(retries=dict(retries))
    for request in requests:
        if not is_supported_request(request, instance) or not _is_due(request, injected.retries, backoff, p.now):
            continue
        pods = yield from _build_pods_or_fail(p, requests, request, injected)
        if pods is None:
            continue
        if not (batch and is_check_capacity_request(request, instance)):
            request = mark_accepted(request, p.now)
            error = yield from requests.write(p, request)
            if error:
                _add_condition_warning(injected, "Accepted", request, error)
                continue
        injected.processed = p.now
        injected.requests.append((request, pods))
        break
    return injected


def get_check_capacity_batch_steps(
    requests: LoopRequests,
    retries: RetryTimes,
    *,
    max_requests: int,
    now: Moment,
    instance: str = "",
    backoff: RetryBackoff = _DEFAULT_BACKOFF,
) -> StepsOf[WriteStatus, InjectedRequests]:
    """Return up to ``max_requests`` pending check-capacity requests that have waited long enough, with their pods.

    ``retries``: how long failed requests wait, by UID. It is not changed; the result has the new waiting times. Each
    time a retried request is found due, its waiting time doubles. A request that :func:`inject_next_request_steps` has
    just found due may therefore not be due again here, as in upstream. A request whose pod templates are missing is
    marked as failed and not returned.
    """
    p, injected = Progress(moment(now)), InjectedRequests(retries=dict(retries))
    for request in requests:
        if len(injected.requests) >= max_requests:
            break
        if not is_check_capacity_request(request, instance) or not _is_due(request, injected.retries, backoff, p.now):
            continue
        pods = yield from _build_pods_or_fail(p, requests, request, injected)
        if pods is not None:
            injected.requests.append((request, pods))
    return injected


def _build_pods_or_fail(
    p: Progress, requests: LoopRequests, request: ProvisioningRequest, injected: InjectedRequests
) -> StepsOf[WriteStatus, list[Pod] | None]:
    """Build the pods of a request. If a template is missing, mark the request as failed and return None.

    In that case also sets ``injected.processed``, and adds a warning to ``injected`` if the mark cannot be written.
    """
    try:
        return requests.pods_of(request)
    except MissingTemplatesError as error:
        failed = set_request_condition(request, FAILED_CONDITION, "FailedToCreatePods", str(error), p.now)
    refusal = yield from requests.write(p, failed)
    if refusal:
        _add_condition_warning(injected, "Failed", request, refusal)
    injected.processed = p.now
    return None


def _add_condition_warning(
    injected: InjectedRequests, condition_type: str, request: ProvisioningRequest, error: str
) -> None:
    """Add a warning to ``injected`` that the condition of the type ``condition_type`` could not be written."""
    injected.warnings.append(f"failed add {condition_type} condition to ProvReq {request.key}, err: {error}")


def _is_due(request: ProvisioningRequest, retries: RetryTimes, backoff: RetryBackoff, now: Moment) -> bool:
    """Check whether a request may be processed now. A new request needs not wait; a retry waits after each attempt.

    Updates ``retries``: doubles the waiting time of a retry that is due, removes the entry of a request that failed or
    is provisioned, and removes the oldest entry if there are too many. Raises InputError if the time of the condition
    is malformed.
    """
    uid = request.metadata.uid
    if has_condition(request, FAILED_CONDITION, PROVISIONED_CONDITION):
        retries.pop(uid, None)
        return False
    provisioned = find(request.status.conditions, PROVISIONED_CONDITION)
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


_CONSUMERS_KEY = "pods that consume a provisioning request"


class ProcessedPods(msgspec.Struct, kw_only=True):
    """The pods that need nodes, requests considered.

    ``consuming``: how many consume a request; ``snapshot_after``: with the pods whose capacity is booked; ``cursor``:
    where the scan over nodes stands.
    """

    waiting: PendingPodList
    consuming: int
    snapshot_after: Snapshot
    cursor: int


class ProvisioningRequestProcessor:
    """Processes the provisioning requests of a loop. Call its methods in the order of their definition.

    ``memory`` is the state for the next loop. ``injected`` maps the pods that stand for a request to that request
    (``namespace/name`` both). ``warnings`` are what upstream only logs.
    """

    def __init__(
        self,
        informers: Informers,
        options: AutoscalingOptions,
        memory: ProvisioningState,
        profile: SchedulerProfile | None,
        warnings: list[str],
    ) -> None:
        self.requests = LoopRequests(informers.provisioning_requests, informers.pod_templates)
        self.options, self.profile, self.warnings = options, profile, warnings
        self.memory = replace(
            memory, hints=self._filter_hints(memory.hints), booking_hints=self._filter_hints(memory.booking_hints)
        )
        self._instance = options.check_capacity_processor_instance
        self._backoff = RetryBackoff(
            first=duration(options.provisioning_request_initial_backoff_time),
            last=duration(options.provisioning_request_max_backoff_time),
            most=options.provisioning_request_max_backoff_cache_size,
        )
        self.injected: dict[str, str] = {}

    def _filter_hints(self, hints: Mapping[str, str]) -> dict[str, str]:
        """Return the hints (pod UID -> node) of pods of existing requests.

        A pod's UID is ``namespace/request-set-number``.
        """
        return {uid: node for uid, node in hints.items() if uid.rsplit("-", 2)[0] in self.requests}

    def maintain(self, now: datetime | Moment) -> StepsOf[WriteStatus | Delete, None]:
        """Refresh the requests (:func:`refresh_requests_steps`) and collect the warnings.

        Raises InputError if ``now`` is not a time, or if a time of a request is invalid.
        """
        now = moment(now)
        done = yield from refresh_requests_steps(self.requests, now=now, instance=self._instance)
        self.warnings += done.warnings

    def process(
        self, p: Progress, waiting: PendingPodList, snapshot: Snapshot, cursor: int
    ) -> StepsOf[Emit | WriteStatus, ProcessedPods]:
        """Remove the pods that consume a request, append those of the next request, and book capacity.

        ``waiting``: the pending pods; ``cursor``: where the scan over the nodes of ``snapshot`` stands. Returns the
        remaining pods, the number of removed ones, and the snapshot and the cursor after the booked pods were placed.
        """
        pods = [record.pod for record in waiting.records]
        filtered = filter_out_consumers(pods)
        yield from p.emit(*filtered.events)
        consumer_ids = {id(pod) for pod in filtered.consumers}
        remaining = waiting.take(np.flatnonzero([id(pod) not in consumer_ids for pod in pods]))
        remaining = remaining.followed_by((yield from self._inject(p.now)))
        booked = yield from self._book(snapshot, cursor, p.now)
        return ProcessedPods(
            waiting=remaining,
            consuming=len(consumer_ids),
            snapshot_after=snapshot if booked is None else booked.snapshot_after,
            cursor=cursor if booked is None else booked.state.cursor,
        )

    def _inject(self, now: Moment) -> StepsOf[WriteStatus, list[Pod]]:
        """Return the pods of the next request, and store them in ``injected``; empty if no request is due."""
        injection = yield from inject_next_request_steps(
            self.requests,
            self.memory.retries,
            now=now,
            instance=self._instance,
            batch=self.options.check_capacity_batch_processing,
            backoff=self._backoff,
        )
        self._record_injection(injection)
        self.injected = {pod.key: request.key for request, request_pods in injection.requests for pod in request_pods}
        return [pod for _, request_pods in injection.requests for pod in request_pods]

    def _book(self, snapshot: Snapshot, cursor: int, now: Moment) -> StepsOf[WriteStatus, PlaceResult | None]:
        """Place the pods for which capacity is booked on the nodes of ``snapshot``.

        Returns the placement; None if there are no such pods. ``cursor``: where the scan over nodes stands. Stores the
        hints and warnings.
        """
        consumer_positions = snapshot.placed.where(_CONSUMERS_KEY, _is_consumer, np.arange(len(snapshot.placed_node)))
        consumer_pods = [snapshot.placed[position].pod for position in consumer_positions.tolist()]
        booking = yield from book_capacity_steps(self.requests, consumer_pods, now=now, instance=self._instance)
        self.warnings += booking.warnings
        if not booking.pods:
            return None
        simulator = HintingSimulator(self.memory.booking_hints, cursor=cursor, profile=self.profile)
        placed = simulator.try_schedule(snapshot, booking.pods)
        self.memory = replace(self.memory, booking_hints=simulator.hints)
        return placed

    def outcomes(self) -> dict[str, tuple[str, str]]:
        """Map each injected pod to (key of its request, message of the request's newest condition).

        The message is empty if no condition has one.
        """
        messages = {}
        for key in dict.fromkeys(self.injected.values()):
            request = self.requests.get(key)
            conditions = [] if request is None else [each for each in request.status.conditions if each.message]
            newest = max((each.last_transition_time or "" for each in conditions), default="")
            last = [each.message for each in conditions if (each.last_transition_time or "") == newest]
            messages[key] = last[-1] if last else ""
        return {pod: (key, messages[key]) for pod, key in self.injected.items()}

    def batch(self, now: datetime | Moment) -> StepsOf[WriteStatus, list[tuple[ProvisioningRequest, list[Pod]]]]:
        """Return the check-capacity requests of this batch with their pods.

        Stores warnings, retry times and the time of processing.
        """
        now = moment(now)
        injection = yield from get_check_capacity_batch_steps(
            self.requests,
            self.memory.retries,
            max_requests=self.options.check_capacity_provisioning_request_max_batch_size,
            now=now,
            instance=self._instance,
            backoff=self._backoff,
        )
        self._record_injection(injection)
        return injection.requests

    def _record_injection(self, injection: InjectedRequests) -> None:
        """Store the warnings, retry times and processing time of an injection."""
        self.warnings += injection.warnings
        processed = self.memory.last_processed if injection.processed is None else injection.processed
        self.memory = replace(self.memory, retries=injection.retries, last_processed=processed)


def _is_consumer(pod: Pod) -> bool:
    """Check whether the pod consumes a ProvisioningRequest."""
    return get_consumed_request(pod) is not None
