"""Spare capacity that namespaces ask for (``capacitybuffer``, ``processors/capacitybuffer``).

``replicas``: how many pods a buffer is; ``translation``: what the buffers' controller writes into its status, within
``resource_quotas``; ``reconciling``: that controller as a step machine, with ``fake_pods``, ``managed_template`` and
``scalable_objects``, and when it last was at each buffer (``reconciliation_times``);
``injection``: its pods in a loop of scale-up; ``buffer_events``: what a scale-up says of them."""

from __future__ import annotations

from kscale.ca.capacity_buffers.buffer_events import buffer_events
from kscale.ca.capacity_buffers.conditions import ACTIVE_STRATEGY
from kscale.ca.capacity_buffers.injection import BufferPods, buffer_pods_steps, place_buffer_pods
from kscale.ca.capacity_buffers.reconciling import reconcile_steps
from kscale.ca.capacity_buffers.replicas import CapacityBufferError, buffer_replicas
from kscale.ca.capacity_buffers.resource_quotas import AllocatedQuotas, allocate_quotas
from kscale.ca.capacity_buffers.translation import translate

__all__ = [
    "ACTIVE_STRATEGY",
    "AllocatedQuotas",
    "BufferPods",
    "CapacityBufferError",
    "allocate_quotas",
    "buffer_events",
    "buffer_pods_steps",
    "buffer_replicas",
    "place_buffer_pods",
    "reconcile_steps",
    "translate",
]
