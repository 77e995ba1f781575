"""Spare capacity that namespaces ask for (``capacitybuffer``, ``processors/capacitybuffer``).

``replicas``: how many pods a buffer is; ``translation``: what the buffers' controller writes into its status;
``injection``: its pods in a loop of scale-up; ``told``: what a scale-up says of them. Quotas of namespaces
(``ResourceQuota``) do not cut buffers here.
"""

from __future__ import annotations

from kscale.ca.capacity_buffers.buffer_events import ToldBuffers, tell_buffers
from kscale.ca.capacity_buffers.conditions import ACTIVE_STRATEGY
from kscale.ca.capacity_buffers.injection import BufferPods, buffer_pods_steps
from kscale.ca.capacity_buffers.replicas import CapacityBufferError, buffer_replicas
from kscale.ca.capacity_buffers.translation import translate

__all__ = [
    "ACTIVE_STRATEGY",
    "BufferPods",
    "CapacityBufferError",
    "ToldBuffers",
    "buffer_pods_steps",
    "buffer_replicas",
    "tell_buffers",
    "translate",
]
