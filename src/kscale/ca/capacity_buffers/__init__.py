"""Spare capacity that namespaces ask for (``capacitybuffer``, ``processors/capacitybuffer``).

``replicas``: how many pods a buffer is; ``translation``: what the buffers' controller writes into its status;
``injection``: its pods in a loop of scale-up; ``buffer_events``: what a scale-up says of them. Quotas of namespaces
(``ResourceQuota``) do not cut buffers here.
"""

from __future__ import annotations

from kscale.ca.capacity_buffers.buffer_events import buffer_events
from kscale.ca.capacity_buffers.conditions import ACTIVE_STRATEGY
from kscale.ca.capacity_buffers.injection import BufferPods, buffer_pods_steps
from kscale.ca.capacity_buffers.replicas import CapacityBufferError, buffer_replicas
from kscale.ca.capacity_buffers.translation import translate

__all__ = [
    "ACTIVE_STRATEGY",
    "BufferPods",
    "CapacityBufferError",
    "buffer_events",
    "buffer_pods_steps",
    "buffer_replicas",
    "translate",
]
