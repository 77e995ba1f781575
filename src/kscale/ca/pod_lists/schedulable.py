"""Pods that fit on nodes that exist (``core/podlistprocessor/filter_out_schedulable.go``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kscale.ca.events import Event
from kscale.objects.core import Pod
from kscale.scheduling.place import PlaceResult, PlaceState, place
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.snapshot import Snapshot

__all__ = ["Unplaced", "count_degradation", "without_schedulable"]

_STARTED: Final = (
    "Autoscaler is unable to handle the large amount of unschedulable pods. Consider reducing the rate of adding new "
    "pods, so autoscaler could auto recover."
)
_STOPPED: Final = "Autoscaler exited from GracefulDegradationMode and works normally."


class Unplaced(msgspec.Struct, kw_only=True):
    """``pods`` that fit nowhere, by priority; ``placed`` says where the others went and has the snapshot after."""

    pods: list[Pod]
    placed: PlaceResult


def without_schedulable(
    snapshot: Snapshot,
    pods: Sequence[Pod],
    *,
    state: PlaceState | None = None,
    profile: SchedulerProfile | None = None,
    unacceptable_nodes: Iterable[str] = (),
) -> Unplaced:
    """Places what fits, highest priority first, and keeps the placements: what is estimated later sees them."""
    placed = place(snapshot, pods, state=state, profile=profile, unacceptable_nodes=unacceptable_nodes)
    return Unplaced(pods=[record.pod for record in placed.unschedulable_records], placed=placed)


def count_degradation(counter: int, unprocessed: int, config_map: str) -> tuple[int, list[Event]]:
    """The counter of loops that ran out of time, and the event of the first such loop and of the first good one.

    Only asked where graceful degradation is enabled; ``unprocessed`` is how many pods were not looked at,
    ``config_map`` the status map's ``namespace/name``.
    """

    def say(kind: str, reason: str, message: str) -> list[Event]:
        return [Event(object=f"ConfigMap/{config_map}", type=kind, reason=reason, message=message)]

    if unprocessed > 0:
        return counter + 1, say("Warning", "GracefulDegradationStarted", _STARTED) if counter == 0 else []
    return 0, say("Normal", "GracefulDegradationStopped", _STOPPED) if counter > 0 else []
