"""Pods whose disruption budget is used up."""

from __future__ import annotations

from kscale.ca.scale_down.drainability import blocking_pod_reason
from kscale.ca.scale_down.drainability.context import DrainContext
from kscale.ca.scale_down.drainability.status import DrainStatus, blocked
from kscale.objects.core import Pod

__all__ = ["check", "is_exhausted", "over_budget"]

_UNDEFINED = DrainStatus()


def is_exhausted(pod: Pod, context: DrainContext) -> bool:
    """Whether some budget that covers the pod allows no more disruption."""
    return any(pdb.disruptions_allowed < 1 for pdb in context.pdbs.matching(pod))


def over_budget(key: str) -> DrainStatus:
    """BlockDrain for the pod ``namespace/name``: a budget that covers it allows no disruption."""
    return blocked(blocking_pod_reason.NOT_ENOUGH_PDB, f"not enough pod disruption budget to move {key}")


def check(pod: Pod, context: DrainContext) -> DrainStatus:
    """BlockDrain if any matching budget allows no disruption."""
    return over_budget(pod.key) if is_exhausted(pod, context) else _UNDEFINED
