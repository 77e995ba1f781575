"""Provisioning requests among the pods of one loop, in upstream's order (``processors/provreq``)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec
import numpy as np
from msgspec.structs import replace

from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists.waiting import WaitingPods
from kscale.ca.provisioning_requests.booking import booking_steps
from kscale.ca.provisioning_requests.consumers import request_of, without_consumers
from kscale.ca.provisioning_requests.hinting_simulator import HintingSimulator
from kscale.ca.provisioning_requests.injection import (
    InjectedRequests,
    RetryBackoff,
    check_capacity_batch_steps,
    next_request_steps,
)
from kscale.ca.provisioning_requests.loop_requests import LoopRequests
from kscale.ca.provisioning_requests.state import ProvisioningState
from kscale.ca.provisioning_requests.upkeep import upkeep_steps
from kscale.effects import Delete, Emit, Moment, Progress, StepsOf, WriteStatus, duration, moment
from kscale.objects.core import Pod
from kscale.objects.provisioning_requests import ProvisioningRequest
from kscale.scheduling.place import PlaceResult
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.informers import Informers
from kscale.snapshot.snapshot import Snapshot

__all__ = ["ProcessedPods", "Provisioning"]

_CONSUMES = "pods that consume a provisioning request"


class ProcessedPods(msgspec.Struct, kw_only=True):
    """The pods that need nodes, requests considered.

    ``consuming``: how many consume a request; ``snapshot_after``: with the pods whose capacity is booked; ``cursor``:
    where the scan over nodes stands.
    """

    waiting: WaitingPods
    consuming: int
    snapshot_after: Snapshot
    cursor: int


class Provisioning:
    """The provisioning requests of a loop under way: its parts are called in the order in which they stand here.

    ``memory``: what the next loop will be handed; ``injected``: the pods that stand for a request, with that request
    (``namespace/name`` both); ``warnings``: what upstream only logs.
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
            memory, hints=self._of_requests(memory.hints), booking_hints=self._of_requests(memory.booking_hints)
        )
        self._instance = options.check_capacity_processor_instance
        self._backoff = RetryBackoff(
            first=duration(options.provisioning_request_initial_backoff_time),
            last=duration(options.provisioning_request_max_backoff_time),
            most=options.provisioning_request_max_backoff_cache_size,
        )
        self.injected: dict[str, str] = {}

    def _of_requests(self, hints: Mapping[str, str]) -> dict[str, str]:
        """The hints of pods whose requests are there: a pod's UID is ``namespace/request-set-number``."""
        return {uid: node for uid, node in hints.items() if uid.rsplit("-", 2)[0] in self.requests}

    def upkeep(self, now: datetime | Moment) -> StepsOf[WriteStatus | Delete, None]:
        """Ends what is too old."""
        now = moment(now)
        done = yield from upkeep_steps(self.requests, now=now, instance=self._instance)
        self.warnings += done.warnings

    def process(
        self, p: Progress, waiting: WaitingPods, snapshot: Snapshot, cursor: int
    ) -> StepsOf[Emit | WriteStatus, ProcessedPods]:
        """The pods without those that consume a request, and with those of the next one."""
        pods = [record.pod for record in waiting.records]
        found = without_consumers(pods)
        yield from p.emit(*found.events)
        gone = {id(pod) for pod in found.consumers}
        kept = waiting.take(np.flatnonzero([id(pod) not in gone for pod in pods]))
        kept = kept.followed_by((yield from self._inject(p.now)))
        booked = yield from self._book(snapshot, cursor, p.now)
        return ProcessedPods(
            waiting=kept,
            consuming=len(gone),
            snapshot_after=snapshot if booked is None else booked.snapshot_after,
            cursor=cursor if booked is None else booked.state.cursor,
        )

    def _inject(self, now: Moment) -> StepsOf[WriteStatus, list[Pod]]:
        """The pods of the next request."""
        found = yield from next_request_steps(
            self.requests,
            self.memory.retries,
            now=now,
            instance=self._instance,
            batch=self.options.check_capacity_batch_processing,
            backoff=self._backoff,
        )
        self._remember(found)
        self.injected = {pod.key: request.key for request, of_request in found.requests for pod in of_request}
        return [pod for _, of_request in found.requests for pod in of_request]

    def _book(self, snapshot: Snapshot, cursor: int, now: Moment) -> StepsOf[WriteStatus, PlaceResult | None]:
        """Where the pods go whose capacity is kept; None: there are none."""
        every = snapshot.placed.where(_CONSUMES, _consumes, np.arange(len(snapshot.placed_node)))
        there = [snapshot.placed[at].pod for at in every.tolist()]
        booking = yield from booking_steps(self.requests, there, now=now, instance=self._instance)
        self.warnings += booking.warnings
        if not booking.pods:
            return None
        simulator = HintingSimulator(self.memory.booking_hints, cursor=cursor, profile=self.profile)
        placed = simulator.try_schedule(snapshot, booking.pods)
        self.memory = replace(self.memory, booking_hints=simulator.hints)
        return placed

    def outcomes(self) -> dict[str, tuple[str, str]]:
        """Return, for each injected pod, the request that it stands for and the message of its newest condition."""
        messages = {}
        for key in dict.fromkeys(self.injected.values()):
            request = self.requests.get(key)
            conditions = [] if request is None else [each for each in request.status.conditions if each.message]
            newest = max((each.last_transition_time or "" for each in conditions), default="")
            last = [each.message for each in conditions if (each.last_transition_time or "") == newest]
            messages[key] = last[-1] if last else ""
        return {pod: (key, messages[key]) for pod, key in self.injected.items()}

    def batch(self, now: datetime | Moment) -> StepsOf[WriteStatus, list[tuple[ProvisioningRequest, list[Pod]]]]:
        """The requests that check capacity together."""
        now = moment(now)
        found = yield from check_capacity_batch_steps(
            self.requests,
            self.memory.retries,
            most=self.options.check_capacity_provisioning_request_max_batch_size,
            now=now,
            instance=self._instance,
            backoff=self._backoff,
        )
        self._remember(found)
        return found.requests

    def _remember(self, found: InjectedRequests) -> None:
        self.warnings += found.warnings
        processed = self.memory.last_processed if found.processed is None else found.processed
        self.memory = replace(self.memory, retries=found.retries, last_processed=processed)


def _consumes(pod: Pod) -> bool:
    return request_of(pod) is not None
