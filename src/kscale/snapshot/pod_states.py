"""States, phases and readiness of pods, as the numbers that columns have."""

from __future__ import annotations

from typing import Final

from kscale.objects.api.core import Pod

__all__ = [
    "EXCLUSION_REASONS",
    "FINISHED",
    "GATED",
    "PENDING",
    "PHASES",
    "PLACED",
    "READY",
    "REMOVED",
    "TERMINATING",
    "state_of",
]

READY: Final = ("", "True", "False", "Unknown")
"""Status of a pod's Ready condition by number; 0 = the pod has no such condition."""

PHASES: Final = ("", "Pending", "Running", "Failed", "Succeeded", "Unknown")
"""Phases by number. Any other text is 0."""

REMOVED, PLACED, PENDING, GATED, TERMINATING, FINISHED = -1, 0, 1, 2, 3, 4
"""States of a row of the table of pods; ``REMOVED``: it has no pod any more."""

EXCLUSION_REASONS: Final = {
    GATED: "waits for its scheduling gates",
    TERMINATING: "is being deleted",
    FINISHED: "has finished",
    PLACED: "runs on a node that is not in the input",
}
"""Reasons for messages: why a pod of the input is neither placed nor pending in the snapshot."""


def state_of(pod: Pod, *, finished: bool = False) -> int:
    """Return the pod's state number. A bound or nominated pod is placed, unless it is finished.

    ``finished`` treats finished pods as if they were still running.
    """
    if not finished and pod.status.phase in ("Succeeded", "Failed"):
        return FINISHED
    if pod.spec.node_name or pod.status.nominated_node_name:
        return PLACED
    if pod.metadata.deletion_timestamp is not None:
        return TERMINATING
    return GATED if pod.spec.scheduling_gates else PENDING
