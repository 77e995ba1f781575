"""How a pod stands in the scheduler's queue: what lists of waiting pods go by, besides the pod's class and when it was
made."""

from __future__ import annotations

from threading import Lock
from typing import Any, Final, NamedTuple

from kscale.objects.conditions import find
from kscale.objects.core import Pod
from kscale.objects.pod_annotations import DAEMONSET_POD, SCALE_UP_DELAY, pod_annotation

__all__ = ["Queueing", "QueueingNumbers"]

_MOST: Final = 1 << 12


class Queueing(NamedTuple):
    """``scheduled``: status and reason of the condition PodScheduled; ``daemonset``: whether an annotation makes it a
    DaemonSet's pod; ``delay``: how long its annotation wants it to wait."""

    scheduler: str
    scheduled: tuple[str, str] | None
    priority: int | None
    daemonset: bool
    delay: str | None

    @classmethod
    def of(cls, pod: Pod) -> Queueing:
        """That of a pod."""
        condition = find(pod.status.conditions, "PodScheduled")
        return cls(
            pod.spec.scheduler_name,
            None if condition is None else (condition.status, condition.reason),
            pod.spec.priority,
            pod_annotation(pod, DAEMONSET_POD) == "true",
            pod_annotation(pod, SCALE_UP_DELAY),
        )


class QueueingNumbers:
    """A number from 1 for how pods wait, below 0 where the pod's annotation is spoken of, which names the pod: 0 is
    none. Equal ones stand for the same; of very many those that were met first are forgotten, and get other numbers."""

    __slots__ = ("_last", "_lock", "_numbers")

    def __init__(self) -> None:
        self._lock = Lock()
        self._last = 0
        self._numbers: dict[Queueing, int] = {}

    def __getstate__(self) -> tuple[int, dict[Queueing, int]]:
        with self._lock:
            return self._last, self._numbers.copy()

    def __setstate__(self, state: Any) -> None:
        self._lock = Lock()
        self._last, self._numbers = state

    def of(self, pod: Pod) -> int:
        """The number of how a pod waits."""
        queueing = Queueing.of(pod)
        found = self._numbers.get(queueing)
        if found is not None:
            return found
        with self._lock:  # snapshots of one cluster may be used from several threads
            found = self._numbers.get(queueing)
            if found is None:
                if len(self._numbers) == _MOST:
                    self._numbers.clear()
                self._last += 1
                found = self._numbers[queueing] = self._last if queueing.delay is None else -self._last
            return found
