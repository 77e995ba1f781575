"""Capacity that is asked for before the pods (``provisioningrequest``, ``processors/provreq``).

In the order of a loop: ``upkeep`` (requests that are too old), ``consumers`` (pods that wait for one), ``injection``
(the next request as pods), ``booking`` (capacity that is kept), then ``wrapper_orchestrator`` (requests and other pods
take turns) with ``check_capacity`` and ``best_effort_atomic`` (the two classes). ``in_loop`` puts them together.
"""

from __future__ import annotations

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
from kscale.ca.state.loop_state import ProvisioningState, RetryTimes

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
