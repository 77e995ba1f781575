"""What a round of the VPA's programs would do to nodes, told before it acts: as a record, and as an event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kscale.capacity.vpa_round_plan import VPARoundPlan
from kscale.effects import Emit, Progress, StepsOf
from kscale.objects.core import Pod
from kscale.objects.meta import KubeObject
from kscale.snapshot.cluster import Cluster
from kscale.vpa.advice.records import Effect
from kscale.world.protocols import Change, Stores, Watch

__all__ = ["RoundPlanner", "plan_watches"]

_KINDS: Final = {
    "Node": "v1",
    "PersistentVolume": "v1",
    "PersistentVolumeClaim": "v1",
    "StorageClass": "storage.k8s.io/v1",
}


def plan_watches() -> list[Watch]:
    """What decides where pods fit, besides pods."""
    return [Watch(kind=kind, api_version=version, typed=True) for kind, version in _KINDS.items()]


class RoundPlanner:
    """Tells of each round. ``tell`` is given every record; an event is sent where it says something new."""

    def __init__(self, tell: Callable[[VPARoundPlan], None]) -> None:
        self._tell = tell
        self._last: Effect | None = None

    @staticmethod
    def looks_at(change: Change) -> bool:
        """Whether a change is of what only plans look at."""
        return change.watch.kind in _KINDS

    @staticmethod
    def seen(stores: Stores) -> Sequence[KubeObject]:
        """What :func:`plan_watches` have brought."""
        return [item for kind in _KINDS for item in stores.objects(kind)]

    @staticmethod
    def cluster(seen: Sequence[KubeObject], pods: Sequence[Pod]) -> Cluster:
        """The cluster that is planned for."""
        return Cluster([*seen, *pods])

    def told_steps(self, plan: VPARoundPlan, progress: Progress) -> StepsOf[Emit, None]:
        """Tells of a round."""
        self._tell(plan)
        event = plan.event
        if event is not None and plan.effect != self._last:
            yield from progress.emit(event)
        self._last = plan.effect
