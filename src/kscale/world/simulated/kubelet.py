"""Simulated kubelets: pods pull images, start, become ready, finish, and are resized in place.

Upstream: ``pkg/kubelet/allocation`` (deferred resizes are retried in the order of ``sortPendingResizes``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kscale.effects import SECOND, Moment, PatchOperation, VirtualTime
from kscale.objects.api.apps import StatefulSet
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import Condition, ResourceList, object_key
from kscale.objects.conditions import find, with_condition
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.pod_owners import controller_of
from kscale.objects.pod_resources import demand, is_guaranteed, occupancy
from kscale.world.simulated.api_server import ApiObjects, Changes, PatchError, RefusedError, json_patch, one_by_one
from kscale.world.simulated.controllers import HAPPENINGS, ScheduledCall
from kscale.world.simulated.load import DurationDistribution, RandomDraws
from kscale.world.simulated.pods import ENDED, SharedParts, end_pod, is_finished, start_pod, with_ready
from kscale.world.simulated.stores import ClusterView

__all__ = ["Kubelet", "PodTimes", "Resizing"]


_STATEFUL: Final = "StatefulSet"


class PodTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of a pod's life.

    ``pull``: from binding to the pulled image. ``start``: from then to running. ``readiness``: from running to ready.
    ``termination``: from deletion to removal, at most the grace period. ``work``: from running to completion (None:
    it never completes).
    """

    pull: DurationDistribution = DurationDistribution.fixed(0)
    start: DurationDistribution = DurationDistribution.fixed(SECOND)
    readiness: DurationDistribution = DurationDistribution.fixed(0)
    termination: DurationDistribution = DurationDistribution.fixed(SECOND)
    work: DurationDistribution | None = None


_Acts = Callable[[list[tuple[str, Pod]]], None]
"""Changes pods, passed with their keys, that are due at the same time."""


class Kubelet:
    """Kubelets of all nodes. ``times`` returns the durations of a pod.

    Pods whose change is due at the same moment change together.
    """

    def __init__(
        self, api: ApiObjects, time: VirtualTime, draws: RandomDraws, times: Callable[[Pod], PodTimes]
    ) -> None:
        self._api, self._time, self._draws, self._times = api, time, draws, times
        self._shared = SharedParts()
        self._due: dict[tuple[Moment, _Acts], dict[tuple[str, str], None]] = {}
        """Keys and UIDs of pods with a scheduled change, by time and change."""
        self._before: Counter[str] = Counter()
        """Pod key -> number of earlier StatefulSet pods with this key."""
        api.listen("StatefulSet", one_by_one(self._forget))
        api.listen("Pod", self._pods)
        self._pods(api.present("Pod"))

    def _pods(self, changes: Changes[Pod]) -> None:
        """Schedule the start or completion of newly bound pods, and the removal of terminating ones."""
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
                    grace = (meta.deletion_grace_period_seconds or 0) * SECOND
                    self._schedule(min(takes, grace), key, new, self._remove)
            elif old is None or not old.spec.node_name:
                times, draw = self._times(new), self._draw
                if new.status.phase != "Running":
                    takes = draw(times.pull, "pull", key) + draw(times.start, "start", key)
                    self._schedule(takes, key, new, self._start)
                elif times.work is not None:
                    self._schedule(draw(times.work, "work", key), key, new, self._end_pods)

    def _note(self, key: str, deleted: Pod | None) -> None:
        """Count a deleted pod of an existing StatefulSet, so that the next pod of this name draws new durations.

        Other pods are ignored.
        """
        owner = None if deleted is None or deleted.metadata.generate_name else controller_of(deleted.metadata)
        if deleted is not None and owner is not None and owner.kind == _STATEFUL:
            stateful_set = self._api.find(_STATEFUL, object_key(deleted.metadata.namespace, owner.name))
            if stateful_set is not None and stateful_set.metadata.uid == owner.uid:
                self._before[key] += 1

    def _forget(self, old: StatefulSet | None, new: StatefulSet | None) -> None:
        """Handle a change of a StatefulSet: if it was deleted, drop the counts of its deleted pods."""
        if old is not None and new is None:
            for key in [pod_key for pod_key in self._before if pod_key.rpartition("-")[0] == old.key]:
                del self._before[key]

    def _draw(self, spread: DurationDistribution, purpose: str, key: str) -> int:
        """Return the random duration (nanoseconds) of a ``purpose`` for the pod ``key``: the same at each call."""
        return self._draws.duration(spread, purpose, key, self._before.get(key, 0))

    def _schedule(self, by: int, key: str, pod: Pod, act: _Acts) -> None:
        """Schedule ``act`` on a pod in ``by`` nanoseconds, together with other pods that are due then."""
        due = self._time.now + by, act
        waiting = self._due.get(due)
        if waiting is None:
            waiting = self._due[due] = {}
            self._time.at(due[0], partial(self._run_due, due), rank=HAPPENINGS)
        waiting[key, pod.metadata.uid] = None

    def _run_due(self, due: tuple[Moment, _Acts]) -> None:
        """Run a scheduled change on the pods that still exist."""
        pods = [(key, self._api.get_if_same(key, uid)) for key, uid in self._due.pop(due)]
        due[1]([(key, pod) for key, pod in pods if pod is not None])

    def _start(self, pods: list[tuple[str, Pod]]) -> None:
        """Start pods, given as (key, pod), that are not being deleted; schedule their readiness and completion."""
        started_pods: list[tuple[str, Pod]] = []
        now_text, draw = self._api.now_text, self._draw
        for key, pod in pods:
            if pod.metadata.deletion_timestamp is not None:
                continue
            times = self._times(pod)
            readiness = draw(times.readiness, "readiness", key)
            started_pods.append((key, start_pod(pod, now_text, self._shared, ready=not readiness)))
            if readiness:
                self._schedule(readiness, key, pod, self._mark_ready)
            if times.work is not None:
                self._schedule(draw(times.work, "work", key), key, pod, self._end_pods)
        self._api.put_pods(started_pods)

    def _mark_ready(self, pods: list[tuple[str, Pod]]) -> None:
        """Set the Ready condition of pods, given as (key, pod), that have not finished."""
        now_text, shared = self._api.now_text, self._shared
        self._api.put_pods((key, with_ready(pod, now_text, shared)) for key, pod in pods if not is_finished(pod))

    def _end_pods(self, pods: list[tuple[str, Pod]]) -> None:
        """Complete pods, given as (key, pod), that are neither finished nor being deleted."""
        now_text = self._api.now_text
        self._api.put_pods(
            (key, end_pod(pod, now_text))
            for key, pod in pods
            if not is_finished(pod) and pod.metadata.deletion_timestamp is None
        )

    def _remove(self, pods: list[tuple[str, Pod]]) -> None:
        """Remove terminated pods, given as (key, pod), from the API."""
        self._api.remove_pods(key for key, _ in pods)


_RESOURCES = ("cpu", "memory")
_PENDING = "PodResizePending"


class Resizing:
    """In-place resize of pods, at once or as soon as their node has room."""

    def __init__(self, api: ApiObjects, view: ClusterView, time: VirtualTime) -> None:
        self._api, self._view = api, view
        self._deferred: dict[str, dict[str, None]] = {}
        self._roomier: dict[str, None] = {}
        self._turn = ScheduledCall(time, self._try_again, HAPPENINGS)
        self._pods(api.present("Pod"))
        if self._deferred:
            self._roomier = dict.fromkeys(self._deferred)
            self._turn.schedule()
        api.listen("Pod", self._pods)

    def resize(self, pod: Pod, patch: Sequence[PatchOperation]) -> None:
        """Change the requests of a pod's containers with a JSON patch.

        If the node has no room now, the resize is deferred and the pod's allocated resources stay. Raises
        :class:`RefusedError` if the patch does not apply or the pod could never fit on its node.
        """
        try:
            data: Any = json_patch(to_dict(pod), msgspec.to_builtins(patch))
        except PatchError as error:
            raise RefusedError(str(error), 422, "Invalid") from None
        patched = from_dict(data, Pod)
        after = replace(pod, spec=replace(pod.spec, containers=patched.spec.containers))
        node = self._node_of(pod)
        if node is not None and _exceeds(demand(after), node.status.allocatable or {}):
            text = f'pods "{pod.name}" is forbidden: the node does not have enough capacity'
            raise RefusedError(text, 403, "Forbidden", ("NodeCapacity",))
        if node is None or pod.status.phase != "Running":
            self._api.put(after)
        elif self._has_room(after, node):
            self._api.put(_set_allocated_resources(after))
        else:
            self._api.put(_mark_resize_deferred(_fill_allocated_resources(after, pod), self._api.now_text))

    def _node_of(self, pod: Pod) -> Node | None:
        """Return the node of a pod; None if it has none or the node does not exist."""
        node: Node | None = self._api.find("Node", pod.spec.node_name) if pod.spec.node_name else None
        return node

    def _has_room(self, pod: Pod, node: Node) -> bool:
        """Check whether a pod's requests fit on the node beside its other pods (CPU and memory)."""
        total = demand(pod)
        for other in self._view.pods_of([node.name]):
            if other.key != pod.key:
                total = _sum(total, _get_occupied_resources(other))
        return not _exceeds(total, node.status.allocatable or {})

    # -- deferred resizes --------------------------------------------------------------------------------------------

    def _pods(self, changes: Changes[Pod]) -> None:
        """Record changes of pods with deferred resizes, and changes that may free resources for them."""
        put_off: dict[int, bool] = {}  # by identity of conditions, which many pods share
        for key, old, new in changes:
            after = new if new is not None and new.spec.node_name else None
            waits = False
            if after is not None:
                conditions = id(after.status.conditions)
                if conditions not in put_off:
                    put_off[conditions] = _is_resize_deferred(after)
                waits = put_off[conditions] and not is_finished(after)
            if waits or self._deferred:
                self._note(key, old if old is not None and old.spec.node_name else None, after, waits=waits)

    def _note(self, key: str, before: Pod | None, after: Pod | None, *, waits: bool) -> None:
        """Record whether the resize of a pod on a node is deferred (``waits``).

        ``before`` and ``after``: the pod before and after a change, None if it had or has no node. If the pod takes
        less of its node than before, the deferred resizes of the node are tried again.
        """
        if after is not None and waits:
            self._deferred.setdefault(after.spec.node_name, {})[key] = None
        elif before is not None and key in (deferred := self._deferred.get(before.spec.node_name, {})):
            del deferred[key]
            if not deferred:
                del self._deferred[before.spec.node_name]
        if before is not None and before.spec.node_name in self._deferred and _takes_less(before, after):
            self._roomier[before.spec.node_name] = None
            self._turn.schedule()

    def _try_again(self) -> None:
        """Apply deferred resizes on nodes whose resources were freed, as far as there is room."""
        roomier, self._roomier = self._roomier, {}
        for name in roomier:
            pods: list[Pod] = [self._api.find("Pod", key) for key in self._deferred.get(name, ())]
            for pod in sorted(pods, key=_get_resize_order):
                node = self._node_of(pod)
                if node is not None and self._has_room(pod, node):
                    self._api.put(_set_allocated_resources(pod))


def _get_resize_order(pod: Pod) -> tuple[bool, int, bool]:
    """Return the sort key of deferred resizes (``sortPendingResizes``).

    First are pods whose requests do not grow, of higher priority, and of the Guaranteed class. Equal pods stay in the
    order in which they were deferred.
    """
    requested, has = demand(pod), _get_occupied_resources(pod)
    grows = any(name in requested and (name not in has or requested[name] > has[name]) for name in _RESOURCES)
    return grows, -(pod.spec.priority or 0), not is_guaranteed(pod)


def _is_resize_deferred(pod: Pod) -> bool:
    """Check whether the pod waits for a resize that the node has no room for now."""
    condition = find(pod.status.conditions, _PENDING)
    return condition is not None and condition.reason == "Deferred"


def _get_occupied_resources(pod: Pod) -> ResourceList:
    """Return the resources that a pod occupies on its node: while a resize is deferred, those allocated before it."""
    if not _is_resize_deferred(pod):
        return occupancy(pod)
    statuses = pod.status.container_statuses
    allocated = {item.name: item.allocated_resources for item in statuses if item.allocated_resources is not None}
    containers = [
        replace(item, resources=replace(item.resources, requests=allocated.get(item.name, item.resources.requests)))
        for item in pod.spec.containers
    ]
    return demand(replace(pod, spec=replace(pod.spec, containers=containers)))


def _takes_less(before: Pod, after: Pod | None) -> bool:
    """Return whether a change of a pod may free resources on its node."""
    if after is None or is_finished(after):
        return not is_finished(before)
    return before.spec.containers is not after.spec.containers or _list_allocated_resources(
        before
    ) != _list_allocated_resources(after)


def _list_allocated_resources(pod: Pod) -> list[ResourceList | None]:
    """Return the allocated resources of each container; None where none are recorded."""
    return [status.allocated_resources for status in pod.status.container_statuses]


def _fill_allocated_resources(pod: Pod, before: Pod) -> Pod:
    """Return the pod with its previous requests as allocated resources where none are recorded."""
    requests_before = {item.name: item.resources.requests for item in before.spec.containers}
    statuses = [
        replace(item, allocated_resources=requests_before.get(item.name)) if item.allocated_resources is None else item
        for item in pod.status.container_statuses
    ]
    return replace(pod, status=replace(pod.status, container_statuses=statuses))


def _mark_resize_deferred(pod: Pod, at: str) -> Pod:
    """Return the pod with the condition that its resize is deferred. ``at``: time of the condition in API format."""
    condition = Condition(type=_PENDING, status="True", reason="Deferred", last_transition_time=at)
    conditions = with_condition(pod.status.conditions, condition)
    return replace(pod, status=replace(pod.status, conditions=conditions))


def _set_allocated_resources(pod: Pod) -> Pod:
    """Return the pod without the condition of a pending resize, and with the resources of its spec in its status.

    Only the statuses of its containers change: allocated resources (the requests) and resources.
    """
    containers = {item.name: item for item in pod.spec.containers}
    statuses = [
        replace(
            item,
            allocated_resources=containers[item.name].resources.requests,
            resources=containers[item.name].resources,
        )
        for item in pod.status.container_statuses
    ]
    conditions = [item for item in pod.status.conditions if item.type != _PENDING]
    return replace(pod, status=replace(pod.status, container_statuses=statuses, conditions=conditions))


def _sum(one: ResourceList, other: ResourceList) -> ResourceList:
    """Return the sums of the resources of ``one``; resources that only ``other`` has are left out."""
    return {name: one[name] + other[name] if name in other else one[name] for name in one}


def _exceeds(amounts: ResourceList, room: ResourceList) -> bool:
    """Check whether CPU or memory exceeds ``room``. A resource that ``room`` does not have is not compared."""
    return any(name in room and name in amounts and amounts[name].cmp(room[name]) > 0 for name in _RESOURCES)
