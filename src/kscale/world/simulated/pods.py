"""Status changes of a pod from creation to completion, shared by controllers, scheduler and kubelet.

Objects of the simulated API server are never changed in place, so pods share equal parts. This saves memory, and code
that processes many pods can process each part once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from kscale.effects import to_text
from kscale.objects.api.core import Container, ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus
from kscale.objects.api.meta import Condition
from kscale.objects.conditions import with_condition
from kscale.world.simulated.api_server import ApiObjects

__all__ = [
    "ENDED",
    "SharedParts",
    "bound",
    "delete_pod",
    "delete_pods",
    "disrupt_pod",
    "end_pod",
    "is_finished",
    "start_pod",
    "unschedulable",
    "with_ready",
]


_Made = TypeVar("_Made")


class SharedParts(msgspec.Struct, eq=False):
    """Cache of the parts created at the current moment. Has a single owner."""

    _at: str = ""
    _known: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def get_or_build(self, at: str, make: Callable[..., _Made], sources: tuple[Any, ...], *how: Hashable) -> _Made:
        """Return ``make(*sources, *how)``, cached by identity of the sources while ``at`` is the same time."""
        if at != self._at:
            self._at, self._known = at, {}
        key = make, *map(id, sources), *how
        cached = self._known.get(key)
        if cached is None:  # the sources are kept alive so that their ids are not reused
            cached = self._known[key] = sources, make(*sources, *how)
        result: _Made = cached[1]
        return result


_GRACE: Final = 30  # seconds; the API server's default
ENDED: Final = frozenset({"Succeeded", "Failed"})
"""Phases of :func:`is_finished` pods, for code that processes many pods."""


def is_finished(pod: Pod) -> bool:
    """Return whether the pod is Succeeded or Failed."""
    return pod.status.phase in ENDED


def bound(pod: Pod, node: str, at: str, shared: SharedParts) -> Pod:
    """Return the pod assigned to a node, in phase Pending, with PodScheduled as its only condition.

    ``at``: current time in API format. ``shared``: cache of parts that pods share.
    """
    status = shared.get_or_build(at, _build_bound_status, (pod.status,), at, shared)
    return replace(pod, spec=replace(pod.spec, node_name=node), status=status)


def _build_bound_status(status: PodStatus, at: str, shared: SharedParts) -> PodStatus:
    """Return the status of a pod that gets a node. ``at`` and ``shared`` as in :func:`bound`."""
    conditions = shared.get_or_build(at, _build_scheduled_condition, (), at)
    return replace(status, phase="Pending", conditions=conditions)


def _build_scheduled_condition(at: str) -> list[Condition]:
    """Return the conditions of a pod that has a node. ``at``: time in API format."""
    return [Condition(type="PodScheduled", status="True", last_transition_time=at)]


def unschedulable(pod: Pod, message: str, at: str) -> Pod:
    """Return the pod with PodScheduled=False as its only condition, which has the scheduler's message.

    ``at``: time in API format.
    """
    condition = Condition(
        type="PodScheduled", status="False", reason="Unschedulable", message=message, last_transition_time=at
    )
    return replace(pod, status=replace(pod.status, conditions=[condition]))


def disrupt_pod(pod: Pod, at: str) -> Pod:
    """Return the pod with the condition DisruptionTarget, set when the scheduler preempts it.

    ``at``: time in API format.
    """
    condition = Condition(
        type="DisruptionTarget", status="True", reason="PreemptionByScheduler", last_transition_time=at
    )
    return replace(pod, status=replace(pod.status, conditions=with_condition(pod.status.conditions, condition)))


def start_pod(pod: Pod, at: str, shared: SharedParts, *, ready: bool) -> Pod:
    """Return the pod in phase Running with running containers, whose readiness is ``ready``.

    ``at``: current time in API format. ``shared``: cache of parts that pods share.
    """
    sources = pod.status, pod.spec.containers
    return replace(pod, status=shared.get_or_build(at, _build_started_status, sources, at, shared, ready))


def _build_started_status(
    status: PodStatus, containers: list[Container], at: str, shared: SharedParts, ready: bool
) -> PodStatus:
    """Return ``status`` with phase Running and the statuses of running ``containers``.

    ``at`` is the start time, unless the status already has one. ``shared``, ``ready``: as in :func:`start_pod`.
    """
    conditions = shared.get_or_build(at, _started_conditions, (status.conditions,), at, "True" if ready else "False")
    container_statuses = shared.get_or_build(at, _running, (containers,), at, ready)
    return replace(
        status,
        phase="Running",
        start_time=status.start_time or at,
        conditions=conditions,
        container_statuses=container_statuses,
    )


def _started_conditions(before: list[Condition], at: str, ready: str) -> list[Condition]:
    """Return the conditions of a started pod. Of the conditions ``before``, only PodScheduled stays.

    ``ready``: status of Ready and ContainersReady, ``True`` or ``False``. ``at``: time in API format.
    """
    return [
        *(condition for condition in before if condition.type == "PodScheduled"),
        Condition(type="Initialized", status="True", last_transition_time=at),
        Condition(type="ContainersReady", status=ready, last_transition_time=at),
        Condition(type="Ready", status=ready, last_transition_time=at),
    ]


def _running(containers: list[Container], at: str, ready: bool) -> list[ContainerStatus]:
    """Return the statuses of containers that run since ``at``, with their requests as allocated resources."""
    return [
        ContainerStatus(
            name=container.name,
            image=container.image,
            ready=ready,
            started=True,
            state=ContainerState(running={"startedAt": at}),
            allocated_resources=container.resources.requests,
            resources=container.resources,
        )
        for container in containers
    ]


def with_ready(pod: Pod, at: str, shared: SharedParts) -> Pod:
    """Return a started pod with ready containers and the condition Ready.

    Only existing container statuses and the conditions Ready and ContainersReady are changed.
    ``at``: current time in API format. ``shared``: cache of parts that pods share.
    """
    return replace(pod, status=shared.get_or_build(at, _build_ready_status, (pod.status,), at, shared))


def _build_ready_status(status: PodStatus, at: str, shared: SharedParts) -> PodStatus:
    """Return the status of a ready pod. ``at`` and ``shared`` as in :func:`with_ready`."""
    conditions = shared.get_or_build(at, _ready_conditions, (status.conditions,), at)
    container_statuses = shared.get_or_build(at, _ready_statuses, (status.container_statuses,))
    return replace(status, conditions=conditions, container_statuses=container_statuses)


def _ready_conditions(before: list[Condition], at: str) -> list[Condition]:
    """Return ``before`` with Ready and ContainersReady set to True, where present. ``at``: time in API format."""
    return [
        replace(condition, status="True", last_transition_time=at)
        if condition.type in ("ContainersReady", "Ready")
        else condition
        for condition in before
    ]


def _ready_statuses(before: list[ContainerStatus]) -> list[ContainerStatus]:
    """Return the container statuses as ready."""
    return [replace(status, ready=True) for status in before]


def end_pod(pod: Pod, at: str) -> Pod:
    """Return the pod in phase Succeeded with terminated containers. ``at``: current time in API format."""
    conditions = [
        replace(item, status="False", reason="PodCompleted", last_transition_time=at)
        if item.type in ("ContainersReady", "Ready")
        else item
        for item in pod.status.conditions
    ]
    done = ContainerState(terminated=ContainerStateTerminated(reason="Completed", finished_at=at))
    statuses = [replace(item, ready=False, started=False, state=done) for item in pod.status.container_statuses]
    status = replace(pod.status, phase="Succeeded", conditions=conditions, container_statuses=statuses)
    return replace(pod, status=status)


def delete_pod(api: ApiObjects, pod: Pod, grace: int | None = None) -> None:
    """Delete a pod as the API server does.

    A pod without a node, a finished pod and a grace period of 0 are removed at once. Other pods get a deletion
    timestamp, or an earlier one than before. ``grace``: seconds; None means the pod's own grace period.
    """
    delete_pods(api, (pod,), grace)


def delete_pods(api: ApiObjects, pods: Iterable[Pod], grace: int | None = None) -> None:
    """Delete distinct pods as :func:`delete_pod` does.

    Pods that are removed, and pods that terminate, change together.
    """
    removed: list[str] = []
    terminating: list[tuple[str, Pod]] = []
    for pod in pods:
        metadata, seconds = pod.metadata, grace
        if seconds is None:
            seconds = pod.spec.termination_grace_period_seconds
        seconds = _GRACE if seconds is None else max(seconds, 0)
        if not pod.spec.node_name or is_finished(pod) or seconds == 0:
            removed.append(pod.key)
        elif metadata.deletion_timestamp is None or seconds < (metadata.deletion_grace_period_seconds or 0):
            ends = to_text((api.now // 10**9 + seconds) * 10**9)
            metadata = replace(metadata, deletion_timestamp=ends, deletion_grace_period_seconds=seconds)
            terminating.append((pod.key, replace(pod, metadata=metadata)))
    if removed:
        api.remove_pods(removed)
    if terminating:
        api.put_pods(terminating)
