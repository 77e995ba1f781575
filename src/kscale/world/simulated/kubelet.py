"""The kubelets of all nodes: pods are pulled, start, become ready, do their work and end."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kscale.effects import SECOND, VirtualTime
from kscale.objects.core import Pod
from kscale.objects.meta import KubeObject
from kscale.world.simulated.api_objects import ApiObjects
from kscale.world.simulated.draws import Draws, Spread
from kscale.world.simulated.pods import ended, finished, started, with_ready
from kscale.world.simulated.shared_parts import SharedParts
from kscale.world.simulated.turns import HAPPENINGS

__all__ = ["Kubelet", "PodTimes"]


class PodTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long pods take. ``pull``: from being bound to the image being there; ``start``: from then to running;
    ``readiness``: from running to ready; ``termination``: from being told to end to being gone, at most the grace that
    they are given; ``work``: from running to the end of their work (None: there is none)."""

    pull: Spread = Spread.fixed(0)
    start: Spread = Spread.fixed(SECOND)
    readiness: Spread = Spread.fixed(0)
    termination: Spread = Spread.fixed(SECOND)
    work: Spread | None = None


class Kubelet:
    """``times`` tells of a pod how long it takes."""

    def __init__(self, api: ApiObjects, time: VirtualTime, draws: Draws, times: Callable[[Pod], PodTimes]) -> None:
        self._api, self._time, self._draws, self._times = api, time, draws, times
        self._shared = SharedParts()
        api.listen("Pod", self._pod)
        for pod in api.of("Pod").values():
            self._pod(None, pod)

    def _pod(self, old: KubeObject | None, new: KubeObject | None) -> None:
        if not isinstance(new, Pod) or not new.spec.node_name or finished(new):
            return
        before = old if isinstance(old, Pod) else None
        meta = new.metadata
        if meta.deletion_timestamp is not None:
            if before is None or before.metadata.deletion_grace_period_seconds != meta.deletion_grace_period_seconds:
                takes = self._draw(new, "termination", self._times(new).termination)
                most = (meta.deletion_grace_period_seconds or 0) * SECOND
                self._later(min(takes, most), new, self._remove)
        elif before is None or not before.spec.node_name:
            if new.status.phase != "Running":
                times = self._times(new)
                takes = self._draw(new, "pull", times.pull) + self._draw(new, "start", times.start)
                self._later(takes, new, self._start)
            elif (work := self._times(new).work) is not None:
                self._later(self._draw(new, "work", work), new, self._end)

    def _draw(self, pod: Pod, purpose: str, spread: Spread) -> int:
        return self._draws.duration(spread, purpose, pod.key)

    def _later(self, by: int, pod: Pod, call: Callable[[Pod], None]) -> None:
        def act() -> None:
            now = self._api.same(pod)
            if now is not None:
                call(now)

        self._time.at(self._time.now + by, act, rank=HAPPENINGS)

    def _start(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is not None:
            return
        times = self._times(pod)
        readiness = self._draw(pod, "readiness", times.readiness)
        self._api.put(started(pod, self._api.now_text, self._shared, ready=not readiness))
        if readiness:
            self._later(readiness, pod, self._ready)
        if times.work is not None:
            self._later(self._draw(pod, "work", times.work), pod, self._end)

    def _ready(self, pod: Pod) -> None:
        if not finished(pod):
            self._api.put(with_ready(pod, self._api.now_text, self._shared))

    def _end(self, pod: Pod) -> None:
        if not finished(pod) and pod.metadata.deletion_timestamp is None:
            self._api.put(ended(pod, self._api.now_text))

    def _remove(self, pod: Pod) -> None:
        self._api.remove(pod)
