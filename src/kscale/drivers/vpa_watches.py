"""Watches, intervals and round plans that the three VPA programs share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from kscale.drivers.driver import discover_steps
from kscale.effects import SECOND, ZERO_TIME, Emit, Moment, Progress, StepsOf, Within
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import KubeObject
from kscale.snapshot.cluster import Cluster
from kscale.vpa.advice.records import Effect
from kscale.vpa.controllers import WELL_KNOWN_KINDS, Controllers
from kscale.world.protocols import Change, Stores, Watch

if TYPE_CHECKING:
    from kscale.capacity.vpa_round_plan import VPARoundPlan

__all__ = [
    "ControllerFeed",
    "RoundPlanner",
    "Ticker",
    "controller_watches",
    "limit_range_watch",
    "plan_watches",
    "vpa_watch",
]


class Ticker:
    """Ticks every ``interval`` nanoseconds from the start time ``begun``.

    At most one tick is stored while nobody waits; further ticks are lost.
    """

    __slots__ = ("_begun", "due", "interval")

    def __init__(self, interval: int, begun: Moment) -> None:
        self.interval = interval
        self._begun = begun
        self.due = begun + interval
        """The next tick."""

    def clock_set(self, by: int) -> None:
        """Apply a change of the clock by ``by`` nanoseconds, so that remaining waits are unchanged."""
        self._begun += by
        self.due += by

    def advance(self, now: Moment) -> None:
        """Set ``due`` to the first tick after ``now``; ticks up to ``now`` are taken or lost."""
        self.due = self._begun + ((now - self._begun) // self.interval + 1) * self.interval


_log = logging.getLogger(__name__)
_KINDS_FORGOTTEN: Final = 300 * SECOND
_LONGEST: Final = 32 * SECOND  # client-go's discovery timeout
_VERSIONS: Final = {"ReplicationController": "v1", "Job": "batch/v1", "CronJob": "batch/v1"}
_APPS: Final = "apps/v1"


def vpa_watch(namespace: str = "") -> Watch:
    """Return the watch of all VPAs of a namespace (empty for all namespaces), whatever their recommender."""
    return Watch(kind="VerticalPodAutoscaler", api_version="autoscaling.k8s.io/v1", namespace=namespace, typed=True)


def limit_range_watch(namespace: str = "") -> Watch:
    """Return the watch of limit ranges in a namespace (empty for all namespaces)."""
    return Watch(kind="LimitRange", api_version="v1", namespace=namespace, typed=True)


def controller_watches(namespace: str = "") -> list[Watch]:
    """Return the watches of well-known controller kinds in a namespace (empty for all namespaces)."""
    return [
        Watch(kind=kind, api_version=_VERSIONS.get(kind, _APPS), namespace=namespace, typed=True)
        for kind in sorted(WELL_KNOWN_KINDS)
    ]


class ControllerFeed:
    """Controllers, updated from their watches.

    Changes are applied by :meth:`settle` only, so that a decision in another thread sees a consistent state.
    """

    __slots__ = ("_discovered", "_waiting", "controllers")

    def __init__(self, controllers: Controllers) -> None:
        self.controllers = controllers
        self._discovered: Moment = ZERO_TIME
        self._waiting: dict[tuple[str, str, str], KubeObject | None] = {}

    def notice(self, change: Change) -> None:
        """Store a change until :meth:`settle`; changes of other than well-known kinds are ignored."""
        item = change.new or change.old
        if change.watch.kind in WELL_KNOWN_KINDS and item is not None:
            self._waiting[change.watch.kind, item.namespace, item.name] = change.new

    def settle(self) -> Controllers:
        """Apply the stored changes and return the controllers. Call it while nobody reads them."""
        waiting, self._waiting = self._waiting, {}
        for key, item in waiting.items():
            if item is None:
                self.controllers.remove(*key)
            else:
                self.controllers.apply(item)
        return self.controllers

    def discover_steps(self, progress: Progress, longest: int = _LONGEST) -> StepsOf[Within, None]:
        """Request which kinds the API server serves, unless that was done in the last five minutes.

        Upstream resets its mapper at the same interval. If the request fails or takes more than ``longest``
        nanoseconds, the previous result is kept.
        """
        if self._discovered != ZERO_TIME and progress.now < self._discovered + _KINDS_FORGOTTEN:
            return
        discovery = yield from discover_steps(progress, longest)
        if discovery.error is not None:
            _log.warning("Cannot discover which kinds are served: %s", discovery.error.message)
            return
        self.controllers.mapper = discovery.value
        self._discovered = progress.now


_KINDS: Final = {
    "Node": "v1",
    "PersistentVolume": "v1",
    "PersistentVolumeClaim": "v1",
    "StorageClass": "storage.k8s.io/v1",
}


def plan_watches() -> list[Watch]:
    """Return the watches of objects, besides pods, that decide where pods fit."""
    return [Watch(kind=kind, api_version=version, typed=True) for kind, version in _KINDS.items()]


class RoundPlanner(msgspec.Struct, eq=False):
    """Reports the plan of each round. ``report`` is called with every plan; events are emitted for new effects only."""

    _report: Callable[[VPARoundPlan], None]
    _last: Effect | None = None

    @staticmethod
    def is_plan_input(change: Change) -> bool:
        """Check whether a change is of a kind that is watched only for plans."""
        return change.watch.kind in _KINDS

    @staticmethod
    def list_objects(stores: Stores) -> Sequence[KubeObject]:
        """Return the objects that the watches of :func:`plan_watches` delivered."""
        return [item for kind in _KINDS for item in stores.objects(kind)]

    @staticmethod
    def cluster(objects: Sequence[KubeObject], pods: Sequence[Pod]) -> Cluster:
        """Build a cluster of the objects (:meth:`list_objects`) and pods."""
        return Cluster([*objects, *pods])

    def report_steps(self, plan: VPARoundPlan, progress: Progress) -> StepsOf[Emit, None]:
        """Report the plan of a round, and emit its event if the effect is not that of the previous round."""
        self._report(plan)
        event = plan.event
        if event is not None and plan.effect != self._last:
            yield from progress.emit(event)
        self._last = plan.effect
