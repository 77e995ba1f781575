"""What the three programs of the Vertical Pod Autoscaler watch alike."""

from __future__ import annotations

import logging
from typing import Final

from kscale.drivers.discovery import discover_steps
from kscale.effects import SECOND, ZERO_TIME, Moment, Progress, StepsOf, Within
from kscale.objects.meta import KubeObject
from kscale.vpa.controllers import WELL_KNOWN, Controllers
from kscale.world.protocols import Change, Watch

__all__ = ["ControllerFeed", "controller_watches", "limit_range_watch", "vpa_watch"]

_log = logging.getLogger(__name__)
_KINDS_FORGOTTEN: Final = 300 * SECOND
_LONGEST: Final = 32 * SECOND  # client-go's discovery gives up then
_VERSIONS: Final = {"ReplicationController": "v1", "Job": "batch/v1", "CronJob": "batch/v1"}
_APPS: Final = "apps/v1"


def vpa_watch(namespace: str = "") -> Watch:
    """All VPAs of a namespace (empty: of all), of whatever recommender."""
    return Watch(kind="VerticalPodAutoscaler", api_version="autoscaling.k8s.io/v1", namespace=namespace, typed=True)


def limit_range_watch(namespace: str = "") -> Watch:
    """Limit ranges."""
    return Watch(kind="LimitRange", api_version="v1", namespace=namespace, typed=True)


def controller_watches(namespace: str = "") -> list[Watch]:
    """The controllers of well-known kinds."""
    return [
        Watch(kind=kind, api_version=_VERSIONS.get(kind, _APPS), namespace=namespace, typed=True)
        for kind in sorted(WELL_KNOWN)
    ]


class ControllerFeed:
    """Controllers as their watches bring them. Changes wait for :meth:`settle`, so that a decision that is under way
    in another thread sees one state."""

    __slots__ = ("_discovered", "_waiting", "controllers")

    def __init__(self, controllers: Controllers) -> None:
        self.controllers = controllers
        self._discovered: Moment = ZERO_TIME
        self._waiting: dict[tuple[str, str, str], KubeObject | None] = {}

    def notice(self, change: Change) -> None:
        """A change of whatever kind; those that are not well known are passed over."""
        item = change.new or change.old
        if change.watch.kind in WELL_KNOWN and item is not None:
            self._waiting[change.watch.kind, item.namespace, item.name] = change.new

    def settle(self) -> Controllers:
        """The controllers with all that has come. To be called while nobody looks at them."""
        waiting, self._waiting = self._waiting, {}
        for key, item in waiting.items():
            if item is None:
                self.controllers.remove(*key)
            else:
                self.controllers.apply(item)
        return self.controllers

    def discover_steps(self, progress: Progress, longest: int = _LONGEST) -> StepsOf[Within, None]:
        """Asks which kinds are served, unless that was done in the last five minutes (upstream resets its mapper so
        often). Where that fails, or takes the ``longest``, what was known stays."""
        if self._discovered != ZERO_TIME and progress.now < self._discovered + _KINDS_FORGOTTEN:
            return
        found = yield from discover_steps(progress, longest)
        if found.error is not None:
            _log.warning("Cannot discover which kinds are served: %s", found.error.message)
            return
        self.controllers.mapper = found.value
        self._discovered = progress.now
