"""A pod must have a controller that will make a new one."""

from __future__ import annotations

from kscale.ca.scale_down.drainability import blocking_pod_reason
from kscale.ca.scale_down.drainability.context import DrainContext
from kscale.ca.scale_down.drainability.status import DrainStatus, blocked
from kscale.objects.core import Pod
from kscale.objects.owners import controller_of

__all__ = ["check"]

_KNOWN = frozenset(("ReplicationController", "Job", "ReplicaSet", "StatefulSet"))
_UNDEFINED = DrainStatus()


def check(pod: Pod, context: DrainContext) -> DrainStatus:
    """BlockDrain for pods without controller; with ``skip_nodes_with_custom_controller_pods`` the controller must
    also be of a known kind."""
    owner = controller_of(pod.metadata)
    custom = context.options.skip_nodes_with_custom_controller_pods
    if owner is not None and (not custom or owner.kind in _KNOWN):
        return _UNDEFINED
    return blocked(blocking_pod_reason.NOT_REPLICATED, f"{pod.key} is not replicated")
