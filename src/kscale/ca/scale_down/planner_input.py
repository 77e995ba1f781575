"""What a loop of scale-down finds, whichever planner decides."""

from __future__ import annotations

from kscale.ca.by_identity import kept_with
from kscale.ca.kept_groups import settled_groups
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.drainability.context import Listers
from kscale.ca.scale_down.pdb import kept_tracker
from kscale.ca.simulated import without_uncounted_pods
from kscale.ca.state import LoopState
from kscale.effects import Moment, duration
from kscale.objects.core import Node
from kscale.objects.nodegroups import GroupsLike
from kscale.snapshot.snapshot import Snapshot

__all__ = ["PlannerInput"]


class PlannerInput:
    """The cluster at one moment, its groups, and what earlier loops remember.

    ``whole``: the snapshot; ``snapshot``: the same without pods that do not count. ``pdbs`` are charged
    while the loop goes on.
    """

    __slots__ = (
        "before",
        "groups",
        "listers",
        "nodes",
        "now",
        "options",
        "pdbs",
        "snapshot",
        "whole",
    )

    def __init__(
        self,
        snapshot: Snapshot,
        groups: GroupsLike,
        now: Moment,
        options: AutoscalingOptions,
        before: LoopState,
    ) -> None:
        """Raises InputError for a disruption budget with a broken selector."""
        self.now = now
        self.options = options
        self.before = before
        self.whole = snapshot
        self.snapshot = without_uncounted_pods(snapshot, options)
        self.nodes: list[Node] = snapshot.columns.objects
        self.groups = settled_groups(snapshot, groups)
        self.listers: Listers = kept_with(snapshot, ("listers",), [snapshot.informers.workloads], Listers)[0]
        self.pdbs = kept_tracker(snapshot).fork()

    @property
    def settles(self) -> bool:
        """The cluster changed a short time ago: whatever grew, went, or failed to go."""
        memory, options = self.before.scale_down, self.options
        changes = (
            (memory.last_scale_up, options.scale_down_delay_after_add),
            (memory.last_failure, options.scale_down_delay_after_failure),
            (memory.last_scale_down, options.scale_down_delay_after_delete),
        )
        return any(time is not None and self.now - time < duration(delay) for time, delay in changes)
