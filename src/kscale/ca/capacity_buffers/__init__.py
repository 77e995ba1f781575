"""Capacity buffers: spare capacity that namespaces request (upstream: ``capacitybuffer``,
``processors/capacitybuffer``).

``controller``: the controller that writes the status of buffers, within resource quotas. ``pod_templates``: templates
and fake pods of buffers. ``injection``: the fake pods of buffers in a loop of scale-up, and their events.
"""

from __future__ import annotations

from kscale.ca.capacity_buffers.controller import (
    ACTIVE_PROVISIONING_STRATEGY,
    AllocatedQuotas,
    CapacityBufferError,
    allocate_quotas,
    compute_buffer_replicas,
    reconcile_buffers_steps,
    translate_buffer,
)
from kscale.ca.capacity_buffers.injection import (
    InjectedBufferPods,
    build_buffer_events,
    inject_buffer_pods_steps,
    place_buffer_pods,
)

__all__ = [
    "ACTIVE_PROVISIONING_STRATEGY",
    "AllocatedQuotas",
    "CapacityBufferError",
    "InjectedBufferPods",
    "allocate_quotas",
    "build_buffer_events",
    "compute_buffer_replicas",
    "inject_buffer_pods_steps",
    "place_buffer_pods",
    "reconcile_buffers_steps",
    "translate_buffer",
]
