"""Pods of requests on nodes that exist (``simulator/scheduling/hinting_simulator.go``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kscale.objects.core import Pod
from kscale.scheduling.place import PlaceResult, PlaceState, place
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.snapshot import Snapshot

__all__ = ["HintingSimulator"]


class HintingSimulator:
    """Places pods, each where it was last time if it still fits. No hint is dropped, also of what is taken back.

    ``cursor``: where the scan over nodes stands; ``hints``: pod UID -> node.
    """

    def __init__(
        self, hints: Mapping[str, str] | None = None, *, cursor: int = 0, profile: SchedulerProfile | None = None
    ) -> None:
        self.hints = dict(hints or {})
        self.cursor = cursor
        self._profile = profile

    def try_schedule(self, snapshot: Snapshot, pods: Sequence[Pod], *, break_on_failure: bool = False) -> PlaceResult:
        """Where the pods go; see :func:`kscale.place`."""
        before = PlaceState(cursor=self.cursor, hints=self.hints)
        found = place(snapshot, list(pods), state=before, profile=self._profile, break_on_failure=break_on_failure)
        self.cursor, self.hints = found.state.cursor, found.state.old_hints
        return found
