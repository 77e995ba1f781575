"""Containers killed for memory, as the difference of two versions of a pod, and from eviction events.

(upstream: ``pkg/recommender/input/oom/observer.go``)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kscale.effects import ZERO_TIME, from_text
from kscale.errors import InputError, Problem
from kscale.objects.argument_types import typed
from kscale.objects.core import ContainerStateTerminated, Event, Pod
from kscale.objects.quantity import Quantity, QuantityError
from kscale.vpa.model.usage import OOM, ContainerName, Usage
from kscale.vpa.resources import MEMORY, current_resources

__all__ = ["OutOfMemory", "evicted_for_memory", "last_out_of_memory", "out_of_memory", "usage_of"]

_KILLED: Final = "OOMKilled"


class OutOfMemory(NamedTuple):
    """A container that was killed; ``memory``: the bytes that it had requested (evicted: that it used)."""

    container: ContainerName
    time: int
    """Nanoseconds since 1970."""
    memory: int


@typed
def out_of_memory(old: Pod, new: Pod) -> list[OutOfMemory]:
    """What a watch saw between two versions of a pod (``OnUpdate``).

    A container that is now ended by the kill had what the new version requests; one that runs again had what the old
    version requested.
    """
    before = {status.name: status for status in old.status.container_statuses}
    found = []
    for status in new.status.container_statuses:
        past = before.get(status.name)
        if past is None:
            continue
        restarted = status.restart_count > past.restart_count
        ended, last = status.state.terminated, status.last_state.terminated
        if _was_killed(ended) and (past.state.terminated is None or restarted):
            found.append(_of(new, status.name, ended))
        elif status.state.running is not None and past.state.running is not None and restarted and _was_killed(last):
            found.append(_of(old, status.name, last))
    return found


def last_out_of_memory(pods: Iterable[Pod], problems: list[str] | None = None) -> list[OutOfMemory]:
    """The kills that pods still tell of, in order of time: what a dump shows, which has one version of each pod.

    A kill at a time that is none is left out, and ``problems`` say so; without them it raises :class:`InputError`.
    """
    found = []
    for pod in pods:
        for status in pod.status.container_statuses:
            for ended in (status.state.terminated, status.last_state.terminated):
                if ended is None or not _was_killed(ended) or not ended.finished_at:
                    continue
                try:
                    found.append(_of(pod, status.name, ended))
                except InputError as error:
                    if problems is None:
                        raise
                    problems.append(f"A kill for memory cannot be read: {error}")
    return sorted(found, key=lambda one: one.time)


@typed
def evicted_for_memory(event: Event) -> list[OutOfMemory]:
    """What an ``Evicted`` event of a pod says about containers that used more memory than the node had.

    The three annotations list as many entries each, or the event says nothing.
    """
    if event.reason != "Evicted" or event.involved_object.kind != "Pod":
        return []

    def listed(annotation: str) -> list[str]:
        text = (event.metadata.annotations or {}).get(annotation)
        return [] if text is None else text.split(",")

    names, used, starved = map(listed, ("offending_containers", "offending_containers_usage", "starved_resource"))
    if not len(names) == len(used) == len(starved):
        return []
    pod = event.involved_object.namespace, event.involved_object.name
    time = _time(event.metadata.creation_timestamp, f"Event {event.key}", "metadata.creationTimestamp")
    found = []
    for name, amount, resource in zip(names, used, starved, strict=True):
        if resource != MEMORY:
            continue
        try:
            memory = Quantity(amount).value()
        except QuantityError:
            continue
        found.append(OutOfMemory((*pod, name), time, memory))
    return found


def usage_of(events: Iterable[OutOfMemory]) -> Usage:
    """The events as the recommender takes them in."""
    return Usage.from_events((one.container, one.time, one.memory, OOM) for one in events)


def _was_killed(ended: ContainerStateTerminated | None) -> bool:
    return ended is not None and ended.reason == _KILLED


def _of(pod: Pod, container: str, ended: ContainerStateTerminated | None) -> OutOfMemory:
    requests, _ = current_resources(pod, container)
    asked = (requests or {}).get(MEMORY)
    field = f"status.containerStatuses[{container}] ... terminated.finishedAt"
    time = _time(ended.finished_at, f"Pod {pod.key}", field) if ended is not None else ZERO_TIME
    return OutOfMemory((pod.namespace, pod.name, container), time, asked.value() if asked is not None else 0)


def _time(text: str | None, source: str, field: str) -> int:
    try:
        return from_text(text)
    except ValueError as error:
        raise InputError(Problem(str(error), object=source, field=field)) from None
