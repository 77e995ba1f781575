"""The scheduler: pods without a node get one, or are told that there is none for them.

What fits where, and which of the nodes that fit is taken, is :func:`kscale.scheduling.place.place`'s to say: the one
that kube-scheduler's scores put first, or without scores the first in list order. Who has to go for a pod of a higher
priority is :func:`kscale.scheduling.preemption.preempt`'s.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kscale.effects import VirtualTime
from kscale.objects.core import Node, Pod
from kscale.scheduling.fork import fork
from kscale.scheduling.place import PlaceResult, PlaceState, place
from kscale.scheduling.preemption import Candidates, preempt
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.scores.options import ScoreOptions
from kscale.snapshot.snapshot import Snapshot
from kscale.world.simulated.api_objects import ApiObjects, Changes, one_by_one
from kscale.world.simulated.pods import bound, delete_pod, disrupted, finished, unschedulable
from kscale.world.simulated.shared_parts import SharedParts
from kscale.world.simulated.turns import SCHEDULER, Turn
from kscale.world.simulated.view import ClusterView

__all__ = ["Scheduler"]

_STORAGE: Final = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass")


class Scheduler:
    """Takes all pods that wait at one moment together, by priority, then in the order in which they came.

    A pod without a place is looked at again when something has changed that could make room for it: a node, a pod that
    went or asks for less, a claim or a volume, and for a pod with affinity or spread also one that came.
    With ``preemption`` it may make others end; it is nominated to their node until they are gone, or until it fits on
    some node before that.
    """

    def __init__(
        self,
        api: ApiObjects,
        view: ClusterView,
        time: VirtualTime,
        scores: ScoreOptions | None = None,
        *,
        profile: SchedulerProfile | None = None,
        preemption: Candidates | None = None,
    ) -> None:
        self._api, self._view, self._scores = api, view, scores
        self._profile, self._preemption = profile, preemption
        self._victims: dict[str, list[Pod]] = {}
        self._shared = SharedParts()
        self._state = PlaceState()
        self._waiting: dict[str, None] = {}
        self._refused: dict[str, None] = {}
        self._turn = Turn(time, self._schedule, SCHEDULER)
        self._pods(api.present("Pod"))
        api.listen("Pod", self._pods)
        api.listen("Node", one_by_one(self._node))
        for kind in _STORAGE:
            api.listen(kind, lambda _: self._look_again())

    def _pods(self, changes: Changes[Pod]) -> None:
        for key, before, after in changes:
            if not self._refused and before is not None and before.spec.node_name and (
                after is not None and after.spec.node_name):  # fmt: skip
                continue  # it has its node, and nobody waits for what it leaves
            if after is None or finished(after):
                if before is not None:
                    self._waiting.pop(key, None)
                    self._refused.pop(key, None)
                    if before.spec.node_name and not finished(before):
                        self._look_again()
            elif after.spec.node_name or after.metadata.deletion_timestamp is not None:
                self._waiting.pop(key, None)
                self._refused.pop(key, None)
                if self._refused and before is not None and before.spec.node_name and _could_leave_more(before, after):
                    self._look_again()
            elif not after.spec.scheduling_gates and key not in self._refused and key not in self._waiting:
                self._waiting[key] = None
                self._turn.ask()

    def _node(self, old: Node | None, new: Node | None) -> None:
        if new is not None and (old is None or _could_take_more(old, new)):
            self._look_again()

    def _look_again(self) -> None:
        if self._refused:
            self._waiting = {**self._refused, **self._waiting}
            self._refused = {}
            self._turn.ask()

    def _choose(self, snapshot: Snapshot, pods: list[str]) -> PlaceResult:
        """Where they go, highest priority first."""
        if self._scores is None:
            return place(snapshot, pods, profile=self._profile)
        placed = place(snapshot, pods, profile=self._profile, scores=self._scores, state=self._state)
        self._state = placed.state
        return placed

    def _schedule(self) -> None:
        self._end_nominations()
        self._look_elsewhere([key for key in self._waiting if key in self._victims])
        waiting = [key for key in self._waiting if key not in self._victims]
        self._refused.update(dict.fromkeys(key for key in self._waiting if key in self._victims))
        self._waiting = {}
        if not waiting:
            return
        snapshot = self._view.snapshot()
        placed = self._choose(snapshot, waiting)
        found, at = placed.placement, self._api.now_text
        message = f"0/{len(snapshot.nodes)} nodes are available."
        find = self._api.find
        self._api.put_pods((key, bound(find("Pod", key), node, at, self._shared)) for key, node in found.items())
        for key in waiting:
            if key in found:
                continue
            self._refused[key] = None
            pod = self._api.find("Pod", key)
            if not pod.status.conditions:
                self._api.put(unschedulable(pod, message, at))
        if self._preemption is not None:
            self._preempt(placed, self._preemption)
        if found and any(_looks_at_others(self._api.find("Pod", key)) for key in self._refused):
            self._look_again()  # whom they want to be with may be there now

    # -- preemption --------------------------------------------------------------------------------------------------

    def _end_nominations(self) -> None:
        """Of those whose victims are gone, and of those that are gone themselves."""
        for key, victims in list(self._victims.items()):
            pod: Pod | None = self._api.find("Pod", key)
            if pod is None or pod.spec.node_name:
                del self._victims[key]
            elif all(self._api.same(each) is None for each in victims):
                self._end_nomination(pod)

    def _look_elsewhere(self, nominated: list[str]) -> None:
        """Ends the nominations of those that fit on a node by now, whether their victims are gone or not; each sees the
        places of those before it, the most important first."""
        if not nominated:
            return
        trial = fork(self._view.snapshot(), nominated, profile=self._profile)
        pods: list[Pod] = [self._api.find("Pod", key) for key in nominated]
        for pod in sorted(pods, key=lambda each: -(each.spec.priority or 0)):
            reserved = trial.where(pod.key)
            if reserved is not None:
                trial.unplace(pod.key, reserved)
            if trial.schedule_anywhere(pod.key) is not None:
                self._end_nomination(pod)
            elif reserved is not None:
                trial.place(pod.key, reserved)

    def _end_nomination(self, pod: Pod) -> None:
        del self._victims[pod.key]
        self._api.put(_nominated(pod, ""))

    def _preempt(self, placed: PlaceResult, candidates: Candidates) -> None:
        """Makes room for those that found no place."""
        snapshot = placed.snapshot_after
        for key in placed.unschedulable:
            made = preempt(snapshot, key, profile=self._profile, **candidates._asdict())
            if made is None:
                continue
            record = snapshot.record(key)
            snapshot = snapshot.with_placed([record], [snapshot.columns.index[made.node]])
            victims: list[Pod] = [self._api.find("Pod", name) for name in made.victims]
            for each in victims:
                if each.key in self._victims:  # it waits for a place itself, and may look for another
                    self._end_nomination(each)
                    self._look_again()
                elif each.metadata.deletion_timestamp is None:
                    delete_pod(self._api, self._api.put(disrupted(each, self._api.now_text)))
            self._victims[key] = victims
            self._api.put(_nominated(self._api.find("Pod", key), made.node))


def _nominated(pod: Pod, node: str) -> Pod:
    return replace(pod, status=replace(pod.status, nominated_node_name=node))


def _looks_at_others(pod: Pod) -> bool:
    return pod.spec.affinity is not None or bool(pod.spec.topology_spread_constraints)


def _could_leave_more(old: Pod, new: Pod) -> bool:
    """Whether a pod on a node asks for something else since it changed, or counts for something else."""
    return (
        old.spec.containers != new.spec.containers
        or old.metadata.labels != new.metadata.labels
        or [each.allocated_resources for each in old.status.container_statuses]
        != [each.allocated_resources for each in new.status.container_statuses]
    )


def _could_take_more(old: Node, new: Node) -> bool:
    """Whether another pod may fit on a node since it changed."""
    return (
        old.spec.unschedulable != new.spec.unschedulable
        or old.spec.taints != new.spec.taints
        or old.metadata.labels != new.metadata.labels
        or old.status.allocatable != new.status.allocatable
    )
