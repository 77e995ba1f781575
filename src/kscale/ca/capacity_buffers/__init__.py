"""Spare capacity that namespaces ask for (``capacitybuffer``, ``processors/capacitybuffer``).

``replicas``: how many pods a buffer is; ``translation``: what the buffers' controller writes into its status, within
``resource_quotas``; ``reconciling``: that controller as a step machine, with ``fake_pods``, ``managed_template`` and
``scalable_objects``, and when it last was at each buffer (``reconciliation_times``);
``injection``: its pods in a loop of scale-up; ``build_buffer_events``: what a scale-up says of them."""

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
