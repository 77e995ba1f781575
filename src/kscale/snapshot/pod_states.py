"""Where a pod stands."""

from __future__ import annotations

from typing import Final

from kscale.objects.core import Pod

__all__ = ["ELSEWHERE", "FINISHED", "GATED", "GONE", "PENDING", "PLACED", "TERMINATING", "state_of"]

GONE, PLACED, PENDING, GATED, TERMINATING, FINISHED = -1, 0, 1, 2, 3, 4
"""States of a row of the table of pods; ``GONE``: it has no pod any more."""

ELSEWHERE: Final = {
    GATED: "waits for its scheduling gates",
    TERMINATING: "is being deleted",
    FINISHED: "has finished",
    PLACED: "runs on a node that is not in the input",
}
"""Why a pod of a snapshot's input is neither placed nor pending there, for messages."""


def state_of(pod: Pod, *, finished: bool = False) -> int:
    """Placed: bound, or nominated to a node; finished pods and gated ones are not looked at.

    ``finished``: take finished pods for what they would be if they were not.
    """
    if not finished and pod.status.phase in ("Succeeded", "Failed"):
        return FINISHED
    if pod.spec.node_name or pod.status.nominated_node_name:
        return PLACED
    if pod.metadata.deletion_timestamp is not None:
        return TERMINATING
    return GATED if pod.spec.scheduling_gates else PENDING
