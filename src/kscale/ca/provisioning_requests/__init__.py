"""Capacity that is asked for before the pods (``provisioningrequest``, ``processors/provreq``).

In the order of a loop: ``upkeep`` (requests that are too old), ``consumers`` (pods that wait for one), ``injection``
(the next request as pods), ``booking`` (capacity that is kept), then ``wrapper_orchestrator`` (requests and other pods
take turns) with ``check_capacity`` and ``best_effort_atomic`` (the two classes). ``in_loop`` puts them together.
"""

from __future__ import annotations

from kscale.ca.provisioning_requests.best_effort_atomic import AtomicProvision, best_effort_atomic_steps
from kscale.ca.provisioning_requests.booking import Booking, booking_steps
from kscale.ca.provisioning_requests.check_capacity import CapacityChecks, check_capacity_steps
from kscale.ca.provisioning_requests.classes import BEST_EFFORT_ATOMIC, CHECK_CAPACITY, is_supported
from kscale.ca.provisioning_requests.conditions import marked
from kscale.ca.provisioning_requests.consumers import WithoutConsumers, without_consumers
from kscale.ca.provisioning_requests.hinting_simulator import HintingSimulator
from kscale.ca.provisioning_requests.in_loop import Provisioning
from kscale.ca.provisioning_requests.injection import (
    InjectedRequests,
    RetryBackoff,
    check_capacity_batch_steps,
    next_request_steps,
)
from kscale.ca.provisioning_requests.loop_requests import LoopRequests
from kscale.ca.provisioning_requests.pods import MissingTemplatesError, pods_of_request
from kscale.ca.provisioning_requests.state import ProvisioningState, RetryTimes
from kscale.ca.provisioning_requests.upkeep import Upkeep, upkeep_steps
from kscale.ca.provisioning_requests.wrapper_orchestrator import WrapperOrchestrator

__all__ = [
    "BEST_EFFORT_ATOMIC",
    "CHECK_CAPACITY",
    "AtomicProvision",
    "Booking",
    "CapacityChecks",
    "HintingSimulator",
    "InjectedRequests",
    "LoopRequests",
    "MissingTemplatesError",
    "Provisioning",
    "ProvisioningState",
    "RetryBackoff",
    "RetryTimes",
    "Upkeep",
    "WithoutConsumers",
    "WrapperOrchestrator",
    "best_effort_atomic_steps",
    "booking_steps",
    "check_capacity_batch_steps",
    "check_capacity_steps",
    "is_supported",
    "marked",
    "next_request_steps",
    "pods_of_request",
    "upkeep_steps",
    "without_consumers",
]
