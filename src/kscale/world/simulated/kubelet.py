"""The kubelets of all nodes: pods are pulled, start, become ready, do their work and end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from kscale.effects import SECOND, Moment, VirtualTime
from kscale.objects.apps import StatefulSet
from kscale.objects.core import Pod
from kscale.objects.meta import object_key
from kscale.objects.owners import controller_of
from kscale.world.simulated.api_objects import ApiObjects, Changes, one_by_one
from kscale.world.simulated.draws import Draws, Spread
from kscale.world.simulated.pods import ENDED, ended, finished, started, with_ready
from kscale.world.simulated.shared_parts import SharedParts
from kscale.world.simulated.turns import HAPPENINGS

__all__ = ["Kubelet", "PodTimes"]

_STATEFUL: Final = "StatefulSet"


class PodTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long pods take. ``pull``: from being bound to the image being there; ``start``: from then to running;
    ``readiness``: from running to ready; ``termination``: from being told to end to being gone, at most the grace that
    they are given; ``work``: from running to the end of their work (None: there is none)."""

    pull: Spread = Spread.fixed(0)
    start: Spread = Spread.fixed(SECOND)
    readiness: Spread = Spread.fixed(0)
    termination: Spread = Spread.fixed(SECOND)
    work: Spread | None = None


_Acts = Callable[[list[tuple[str, Pod]]], None]
"""What becomes of pods, with their keys, that are due together."""


class Kubelet:
    """``times`` tells of a pod how long it takes. What becomes of several pods at one moment does so together."""

    def __init__(self, api: ApiObjects, time: VirtualTime, draws: Draws, times: Callable[[Pod], PodTimes]) -> None:
        self._api, self._time, self._draws, self._times = api, time, draws, times
        self._shared = SharedParts()
        self._due: dict[tuple[Moment, _Acts], dict[tuple[str, str], None]] = {}
        """Keys and UIDs of pods that something becomes of, by when and what."""
        self._before: Counter[str] = Counter()
        """By key: how many pods of a stateful set have had it before."""
        api.listen("StatefulSet", one_by_one(self._forget))
        api.listen("Pod", self._pods)
        self._pods(api.present("Pod"))

    def _pods(self, changes: Changes[Pod]) -> None:
        for key, old, new in changes:
            if new is None:
                self._note(key, old)
                continue
            if not new.spec.node_name or new.status.phase in ENDED:
                continue
            meta = new.metadata
            if meta.deletion_timestamp is not None:
                if old is None or old.metadata.deletion_grace_period_seconds != meta.deletion_grace_period_seconds:
                    takes = self._draw(self._times(new).termination, "termination", key)
                    most = (meta.deletion_grace_period_seconds or 0) * SECOND
                    self._later(min(takes, most), key, new, self._remove)
            elif old is None or not old.spec.node_name:
                times, draw = self._times(new), self._draw
                if new.status.phase != "Running":
                    takes = draw(times.pull, "pull", key) + draw(times.start, "start", key)
                    self._later(takes, key, new, self._start)
                elif times.work is not None:
                    self._later(draw(times.work, "work", key), key, new, self._end)

    def _note(self, key: str, gone: Pod | None) -> None:
        """The next one of this name draws anew; names that are made are never used again."""
        owner = None if gone is None or gone.metadata.generate_name else controller_of(gone.metadata)
        if gone is not None and owner is not None and owner.kind == _STATEFUL:
            held = self._api.find(_STATEFUL, object_key(gone.metadata.namespace, owner.name))
            if held is not None and held.metadata.uid == owner.uid:
                self._before[key] += 1

    def _forget(self, old: StatefulSet | None, new: StatefulSet | None) -> None:
        if old is not None and new is None:
            for key in [each for each in self._before if each.rpartition("-")[0] == old.key]:
                del self._before[key]

    def _draw(self, spread: Spread, purpose: str, key: str) -> int:
        return self._draws.duration(spread, purpose, key, self._before.get(key, 0))

    def _later(self, by: int, key: str, pod: Pod, act: _Acts) -> None:
        due = self._time.now + by, act
        waiting = self._due.get(due)
        if waiting is None:
            waiting = self._due[due] = {}
            self._time.at(due[0], partial(self._take, due), rank=HAPPENINGS)
        waiting[key, pod.metadata.uid] = None

    def _take(self, due: tuple[Moment, _Acts]) -> None:
        found = [(key, self._api.same_under(key, uid)) for key, uid in self._due.pop(due)]
        due[1]([(key, pod) for key, pod in found if pod is not None])

    def _start(self, pods: list[tuple[str, Pod]]) -> None:
        begun: list[tuple[str, Pod]] = []
        at, draw = self._api.now_text, self._draw
        for key, pod in pods:
            if pod.metadata.deletion_timestamp is not None:
                continue
            times = self._times(pod)
            readiness = draw(times.readiness, "readiness", key)
            begun.append((key, started(pod, at, self._shared, ready=not readiness)))
            if readiness:
                self._later(readiness, key, pod, self._ready)
            if times.work is not None:
                self._later(draw(times.work, "work", key), key, pod, self._end)
        self._api.put_pods(begun)

    def _ready(self, pods: list[tuple[str, Pod]]) -> None:
        at, shared = self._api.now_text, self._shared
        self._api.put_pods((key, with_ready(pod, at, shared)) for key, pod in pods if not finished(pod))

    def _end(self, pods: list[tuple[str, Pod]]) -> None:
        at = self._api.now_text
        self._api.put_pods(
            (key, ended(pod, at)) for key, pod in pods if not finished(pod) and pod.metadata.deletion_timestamp is None
        )

    def _remove(self, pods: list[tuple[str, Pod]]) -> None:
        self._api.remove_pods(key for key, _ in pods)
