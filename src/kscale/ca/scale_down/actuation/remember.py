"""What the loop's state keeps of deletions: cooldowns, local delays, machines that are on their way out.

Upstream: ``core/static_autoscaler.go`` (the times), ``core/scaledown/actuation/actuator.go`` (DeletionResults).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from kscale.ca.cluster_state import register_scale_down
from kscale.ca.scale_down.actuation.deletion_tracker import NodeDeletionTracker, RegisteredChange
from kscale.ca.scale_down.actuation.results import StartedDeletion
from kscale.ca.state import LoopState, register_group_change
from kscale.effects import Moment, moment
from kscale.objects.argument_types import typed

__all__ = ["caught_up", "remember", "remember_start"]


def remember(state: LoopState, changes: Iterable[RegisteredChange]) -> LoopState:
    """The state after the cloud answered to deletions (what ``take_registered`` of the tracker gives)."""
    for change in changes:
        if change.node is None:
            state = register_group_change(state, "scale_down_failure", change.group, change.time)
        else:
            cluster = register_scale_down(state.cluster, change.group, change.node, change.time)
            state = register_group_change(replace(state, cluster=cluster), "scale_down", change.group, change.time)
    return state


@typed
def caught_up(state: LoopState, tracker: NodeDeletionTracker) -> LoopState:
    """The state with what has become of the deletions of ``tracker`` since it was last looked at."""
    return replace(remember(state, tracker.take_registered()), deletions=tracker.deletions())


def remember_start(state: LoopState, started: StartedDeletion, now: datetime | Moment) -> LoopState:
    """The state after a start; ``now`` is the moment of the loop. Only what fails before it goes on counts as failure.

    The caller works out the expected sizes anew when deletions have begun
    (:func:`kscale.ca.cluster_state.recalculate`).
    """
    now = moment(now)
    memory = state.scale_down
    if started.result == "ScaleDownNodeDeleteStarted":
        memory = replace(memory, last_scale_down=now)
    if started.error is not None:
        memory = replace(memory, last_failure=now)
    return replace(state, scale_down=memory)
