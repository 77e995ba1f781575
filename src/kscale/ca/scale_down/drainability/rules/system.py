"""Young pods of the system that no disruption budget covers stay where they are."""

from __future__ import annotations

from kscale.ca.scale_down.drainability import blocking_pod_reason
from kscale.ca.scale_down.drainability.context import DrainContext
from kscale.ca.scale_down.drainability.status import DRAIN_OK, DrainStatus, blocked
from kscale.effects import duration
from kscale.objects.core import Pod
from kscale.objects.times import nanoseconds

__all__ = ["check", "is_old"]

_OK = DrainStatus(outcome=DRAIN_OK)
_UNDEFINED = DrainStatus()


def is_old(pod: Pod, context: DrainContext) -> bool:
    """Whether a pod has been there for ``blocking_system_pod_distruption_timeout``."""
    created = pod.metadata.creation_timestamp
    timeout = duration(context.options.blocking_system_pod_distruption_timeout)
    return created is not None and context.now > nanoseconds(created) + timeout


def check(pod: Pod, context: DrainContext) -> DrainStatus:
    """For kube-system pods without matching PDB: DrainOk once they are older than
    ``blocking_system_pod_distruption_timeout``, BlockDrain before."""
    if pod.metadata.namespace != "kube-system" or context.pdbs.matching(pod):
        return _UNDEFINED
    if is_old(pod, context):
        return _OK
    return blocked(
        blocking_pod_reason.UNMOVABLE_KUBE_SYSTEM_POD,
        f"non-daemonset, non-mirrored, non-pdb-assigned kube-system pod present: {pod.metadata.name}",
    )
