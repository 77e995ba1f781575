"""Waiting for others who want to be done with a node before it goes (``actuation/delay.go``)."""

from __future__ import annotations

from typing import Final

from kscale.ca.errors import API_CALL_ERROR, AutoscalerError
from kscale.effects import SECOND, Get, Progress, StepsOf, Wait
from kscale.effects.moments import OtherDuration
from kscale.objects.core import Node

__all__ = ["DELAY_DELETION_ANNOTATION_PREFIX", "wait_for_delay_deletion"]

DELAY_DELETION_ANNOTATION_PREFIX: Final = "delay-deletion.cluster-autoscaler.kubernetes.io/"
POLL_INTERVAL: Final[OtherDuration] = 5 * SECOND


def wait_for_delay_deletion(p: Progress, node: Node, timeout: int) -> StepsOf[Get | Wait, AutoscalerError | None]:
    """Until no annotation asks to wait, or ``timeout`` nanoseconds are over (0: at once); the node goes in either case.

    Only a node that cannot be read is an error. ``node`` is as it was when its deletion was decided.
    """
    if not timeout or not _is_delayed(node):
        return None
    until = p.now + timeout
    # The first look comes an interval from now, the last one when the time is up.
    while p.now < until:
        yield from p.wait(min(POLL_INTERVAL, until - p.now))
        outcome = yield from p.act(Get(kind="Node", name=node.metadata.name, watched=True))
        if outcome.error is not None:
            text = f"failed to get node {node.metadata.name}: {outcome.error.message}"
            return AutoscalerError(API_CALL_ERROR, text)
        if not _is_delayed(outcome.value):
            return None
    return None


def _is_delayed(node: Node) -> bool:
    return any(key.startswith(DELAY_DELETION_ANNOTATION_PREFIX) for key in node.metadata.annotations or ())
