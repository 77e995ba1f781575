"""Usage samples and out-of-memory kills as columns, and the kills found in pods and eviction events (upstream:
``pkg/recommender/input/oom/observer.go``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kscale.effects import ZERO_TIME, from_text
from kscale.errors import InputError, Problem
from kscale.objects.api.core import ContainerStateTerminated, Event, Pod
from kscale.objects.argument_types import typed
from kscale.objects.quantity import Quantity, QuantityError
from kscale.vpa.resources import MEMORY, get_current_resources

__all__ = [
    "CPU_SAMPLE",
    "MEMORY_SAMPLE",
    "OOM",
    "ContainerName",
    "OutOfMemory",
    "Usage",
    "find_last_oom_kills",
    "find_memory_evictions",
    "find_oom_kills",
    "to_usage",
]


CPU_SAMPLE: Final = 0
MEMORY_SAMPLE: Final = 1
OOM: Final = 2

ContainerName = tuple[str, str, str]
"""(namespace, pod, container)."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage samples and OOM kills as columns, in the order in which they are added to the state.

    ``containers[container[i]]`` used ``value[i]`` at ``time[i]``. ``container`` int32[n]; ``time`` int64[n],
    nanoseconds since 1970; ``value`` int64[n], millicores or bytes (for an OOM: the memory that the container had
    requested); ``kind`` uint8[n] or one number for all: :data:`CPU_SAMPLE`, :data:`MEMORY_SAMPLE`, :data:`OOM`.
    """

    containers: Sequence[ContainerName]
    container: npt.NDArray[np.int32]
    time: npt.NDArray[np.int64]
    value: npt.NDArray[np.int64]
    kind: npt.NDArray[np.uint8] | int

    def __post_init__(self) -> None:
        n = len(self.container)
        kinds = n if isinstance(self.kind, int) else len(self.kind)
        if not n == len(self.time) == len(self.value) == kinds:
            raise InputError(f"usage columns of unequal length: {n}, {len(self.time)}, {len(self.value)}, {kinds}")
        if n and not 0 <= int(self.container.min()) <= int(self.container.max()) < len(self.containers):
            raise InputError(f"usage names a container outside the {len(self.containers)} listed ones")

    @classmethod
    def from_events(cls, events: Iterable[tuple[ContainerName, int, int, int]]) -> Usage:
        """Build the columns from ``events``: tuples (container, time in nanoseconds, value, kind)."""
        names: dict[ContainerName, int] = {}
        rows = [(names.setdefault(name, len(names)), time, value, kind) for name, time, value, kind in events]
        columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
        return cls(
            list(names),
            np.array(columns[0], np.int32),
            np.array(columns[1], np.int64),
            np.array(columns[2], np.int64),
            np.array(columns[3], np.uint8),
        )

    def __len__(self) -> int:
        return len(self.container)


_OOM_KILLED: Final = "OOMKilled"


class OutOfMemory(NamedTuple):
    """A container that was killed. ``memory``: the bytes that it requested (if it was evicted: that it used)."""

    container: ContainerName
    time: int
    """Nanoseconds since 1970."""
    memory: int


@typed
def find_oom_kills(old: Pod, new: Pod) -> list[OutOfMemory]:
    """Find the OOM kills of regular containers between two versions of a pod from a watch (``OnUpdate``).

    The memory of a kill is the container's request: in ``new`` if the container is still terminated, in ``old`` if it
    runs again. Containers without a status in ``old`` are skipped. Raises :class:`InputError` if the time of a kill is
    invalid.
    """
    before = {status.name: status for status in old.status.container_statuses}
    kills = []
    for status in new.status.container_statuses:
        past = before.get(status.name)
        if past is None:
            continue
        restarted = status.restart_count > past.restart_count
        ended, last = status.state.terminated, status.last_state.terminated
        if _is_oom_killed(ended) and (past.state.terminated is None or restarted):
            kills.append(_build_oom_kill(new, status.name, ended))
        elif status.state.running is not None and past.state.running is not None and restarted and _is_oom_killed(last):
            kills.append(_build_oom_kill(old, status.name, last))
    return kills


def find_last_oom_kills(pods: Iterable[Pod], problems: list[str] | None = None) -> list[OutOfMemory]:
    """Find the OOM kills in the statuses of regular containers, by time, as in a dump with one version of each pod.

    A kill without a time is skipped. A kill with an invalid time is left out with a message in ``problems``; without
    ``problems`` it raises :class:`InputError`.
    """
    kills = []
    for pod in pods:
        for status in pod.status.container_statuses:
            for ended in (status.state.terminated, status.last_state.terminated):
                if ended is None or not _is_oom_killed(ended) or not ended.finished_at:
                    continue
                try:
                    kills.append(_build_oom_kill(pod, status.name, ended))
                except InputError as error:
                    if problems is None:
                        raise
                    problems.append(f"A kill for memory cannot be read: {error}")
    return sorted(kills, key=lambda one: one.time)


@typed
def find_memory_evictions(event: Event) -> list[OutOfMemory]:
    """Find the containers that used too much memory, according to a pod's ``Evicted`` event.

    ``memory`` of each result is the container's usage in bytes. Empty for other events, and unless the event's three
    annotations have the same number of entries. Entries of another resource, or with an invalid amount, are skipped.
    Raises :class:`InputError` if the event's time is invalid.
    """
    if event.reason != "Evicted" or event.involved_object.kind != "Pod":
        return []

    def listed(annotation: str) -> list[str]:
        """Return the entries of an annotation; empty if it is missing."""
        text = (event.metadata.annotations or {}).get(annotation)
        return [] if text is None else text.split(",")

    names, used, starved = map(listed, ("offending_containers", "offending_containers_usage", "starved_resource"))
    if not len(names) == len(used) == len(starved):
        return []
    pod = event.involved_object.namespace, event.involved_object.name
    time = _parse_oom_time(event.metadata.creation_timestamp, f"Event {event.key}", "metadata.creationTimestamp")
    kills = []
    for name, amount, resource in zip(names, used, starved, strict=True):
        if resource != MEMORY:
            continue
        try:
            memory = Quantity(amount).value()
        except QuantityError:
            continue
        kills.append(OutOfMemory((*pod, name), time, memory))
    return kills


def to_usage(events: Iterable[OutOfMemory]) -> Usage:
    """Convert OOM kills to the recommender's input."""
    return Usage.from_events((one.container, one.time, one.memory, OOM) for one in events)


def _is_oom_killed(ended: ContainerStateTerminated | None) -> bool:
    """Check whether the container was terminated because it ran out of memory."""
    return ended is not None and ended.reason == _OOM_KILLED


def _build_oom_kill(pod: Pod, container: str, ended: ContainerStateTerminated | None) -> OutOfMemory:
    """Build the kill of a container, with the memory (bytes) that it requests; 0 without a request.

    Raises InputError if the time of the kill is invalid.
    """
    requests, _ = get_current_resources(pod, container)
    asked = (requests or {}).get(MEMORY)
    field = f"status.containerStatuses[{container}] ... terminated.finishedAt"
    time = _parse_oom_time(ended.finished_at, f"Pod {pod.key}", field) if ended is not None else ZERO_TIME
    return OutOfMemory((pod.namespace, pod.name, container), time, asked.value() if asked is not None else 0)


def _parse_oom_time(text: str | None, source: str, field: str) -> int:
    """Parse a time to nanoseconds; the zero time for None.

    Raises InputError, which names ``source`` and ``field``, if the text is not a time.
    """
    try:
        return from_text(text)
    except ValueError as error:
        raise InputError(Problem(str(error), object=source, field=field)) from None
