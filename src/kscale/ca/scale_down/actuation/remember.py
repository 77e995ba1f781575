"""What the loop's state keeps of deletions: cooldowns, local delays, machines that are on their way out."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from kscale.ca.cluster_state import register_scale_down
from kscale.ca.scale_down.actuation.actions import Action, RegisterFailedScaleDown, RegisterScaleDown
from kscale.ca.scale_down.actuation.results import StartedDeletion
from kscale.ca.state import LoopState, register_group_change

__all__ = ["remember", "remember_start"]


def remember(state: LoopState, action: Action) -> LoopState:
    """The state after an action that asks to be remembered; after any other the state as it is."""
    match action:
        case RegisterScaleDown(group=group, node=node, time=time):
            state = replace(state, cluster=register_scale_down(state.cluster, group, node, time))
            return register_group_change(state, "scale_down", group, time)
        case RegisterFailedScaleDown(group=group, time=time):
            return register_group_change(state, "scale_down_failure", group, time)
    return state


def remember_start(state: LoopState, started: StartedDeletion, now: datetime) -> LoopState:
    """The state after a start; ``now`` is the moment of the loop. Only what fails before it goes on counts as failure.

    The caller works out the expected sizes anew when deletions have begun (:func:`kscale.ca.recalculate`).
    """
    memory = state.scale_down
    if started.result == "ScaleDownNodeDeleteStarted":
        memory = replace(memory, last_scale_down=now)
    if started.error is not None:
        memory = replace(memory, last_failure=now)
    return replace(state, scale_down=memory)
