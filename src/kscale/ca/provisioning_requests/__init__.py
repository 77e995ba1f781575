"""ProvisioningRequests: capacity that is requested before the pods exist (upstream: ``provisioningrequest``,
``processors/provreq``).

``processors``: expiry, consumers, injection and capacity booking, in the order of a loop. ``orchestrator``: scale-ups
for the classes check-capacity and best-effort-atomic, in turn with those for other pods.
"""

from __future__ import annotations

from kscale.ca.loop_state import ProvisioningState, RetryTimes
from kscale.ca.provisioning_requests.orchestrator import (
    AtomicProvisionResult,
    CheckCapacityResult,
    WrapperOrchestrator,
    check_capacity_steps,
    provision_best_effort_atomic_steps,
)
from kscale.ca.provisioning_requests.processors import (
    BookingResult,
    ConsumersResult,
    HintingSimulator,
    InjectedRequests,
    ProvisioningRequestProcessor,
    RefreshResult,
    RetryBackoff,
    book_capacity_steps,
    filter_out_consumers,
    get_check_capacity_batch_steps,
    inject_next_request_steps,
    refresh_requests_steps,
)
from kscale.ca.provisioning_requests.requests import (
    BEST_EFFORT_ATOMIC_CLASS,
    CHECK_CAPACITY_CLASS,
    LoopRequests,
    MissingTemplatesError,
    build_request_pods,
    is_supported_request,
    set_request_condition,
)

__all__ = [
    "BEST_EFFORT_ATOMIC_CLASS",
    "CHECK_CAPACITY_CLASS",
    "AtomicProvisionResult",
    "BookingResult",
    "CheckCapacityResult",
    "ConsumersResult",
    "HintingSimulator",
    "InjectedRequests",
    "LoopRequests",
    "MissingTemplatesError",
    "ProvisioningRequestProcessor",
    "ProvisioningState",
    "RefreshResult",
    "RetryBackoff",
    "RetryTimes",
    "WrapperOrchestrator",
    "book_capacity_steps",
    "build_request_pods",
    "check_capacity_steps",
    "filter_out_consumers",
    "get_check_capacity_batch_steps",
    "inject_next_request_steps",
    "is_supported_request",
    "provision_best_effort_atomic_steps",
    "refresh_requests_steps",
    "set_request_condition",
]
