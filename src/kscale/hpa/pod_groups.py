"""What the calculator reads of pods, as columns, and which pods count how.

Upstream: ``groupPods`` and ``calculateRequests`` in ``replica_calculator.go``. Decided in C++:
``hpa/replica_calculator.hpp`` (``group_of``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kscale._native import _replicas
from kscale.effects import ZERO_TIME, Moment
from kscale.hpa.options import HPAOptions
from kscale.objects.conditions import changed_at
from kscale.objects.core import Container, Pod
from kscale.objects.requests import demand, is_pod_level_resource, is_sidecar
from kscale.objects.times import moment_in

__all__ = ["GROUPS", "PodColumns", "Sample", "SampleColumns", "group_pods", "pod_request", "pod_requests"]

GROUPS: Final = ("ready", "unready", "missing", "ignored")
"""The groups by code. Ignored are deleting and failed pods; the calculators of 1.19.0 and before skip these pods, but
their samples stay in the sums."""

_PHASES: Final = {"Pending": 1, "Running": 2, "Failed": 3}
_READY: Final = {"True": 1, "False": 2, "Unknown": 3}


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a pod: milli-units, when it was taken and over which window (nanoseconds)."""

    value: int
    timestamp: Moment = ZERO_TIME
    window: int = 0


@dataclass(frozen=True, slots=True)
class PodColumns:
    """One row a pod: ``phase``, ``deleting``, ``ready``, ``started`` uint8; ``start``, ``transition`` int64 ns."""

    phase: NDArray[np.uint8]
    deleting: NDArray[np.uint8]
    ready: NDArray[np.uint8]
    started: NDArray[np.uint8]
    start: NDArray[np.int64]
    transition: NDArray[np.int64]

    @classmethod
    def of(cls, pods: Sequence[Pod]) -> PodColumns:
        """The columns of pods in their order."""
        n = len(pods)
        flags = np.zeros((4, n), np.uint8)
        times = np.full((2, n), ZERO_TIME, np.int64)
        for i, pod in enumerate(pods):
            status = pod.status
            flags[0, i] = _PHASES.get(status.phase, 0)
            flags[1, i] = pod.metadata.deletion_timestamp is not None
            for condition in status.conditions:
                if condition.type == "Ready":
                    flags[2, i] = _READY.get(condition.status, 3)
                    times[1, i] = changed_at(pod, condition)
                    break
            if status.start_time is not None:
                flags[3, i] = 1
                times[0, i] = moment_in(pod, status.start_time, "status.startTime")
        return cls(flags[0], flags[1], flags[2], flags[3], times[0], times[1])

    def __len__(self) -> int:
        return len(self.phase)

    def part(self, part: slice) -> PodColumns:
        """Some rows, one after the other."""
        return PodColumns(
            self.phase[part],
            self.deleting[part],
            self.ready[part],
            self.started[part],
            self.start[part],
            self.transition[part],
        )

    @property
    def arrays(
        self,
    ) -> tuple[
        NDArray[np.uint8],
        NDArray[np.uint8],
        NDArray[np.uint8],
        NDArray[np.uint8],
        NDArray[np.int64],
        NDArray[np.int64],
    ]:
        """In the order in which kernels take them."""
        return self.phase, self.deleting, self.ready, self.started, self.start, self.transition


@dataclass(frozen=True, slots=True)
class SampleColumns:
    """Samples in the order of the pods they belong to: ``present`` uint8; ``value``, ``time``, ``window`` int64."""

    present: NDArray[np.uint8]
    value: NDArray[np.int64]
    time: NDArray[np.int64]
    window: NDArray[np.int64]

    @classmethod
    def of(cls, names: Sequence[str], samples: Mapping[str, Sample]) -> SampleColumns:
        """The samples of pods, by name."""
        n = len(names)
        present = np.zeros(n, np.uint8)
        amounts = np.zeros((3, n), np.int64)
        for i, name in enumerate(names):
            sample = samples.get(name)
            if sample is not None:
                present[i] = 1
                amounts[0, i] = sample.value
                amounts[1, i] = sample.timestamp
                amounts[2, i] = sample.window
        return cls(present, amounts[0], amounts[1], amounts[2])

    def part(self, part: slice) -> SampleColumns:
        """Some rows, one after the other."""
        return SampleColumns(self.present[part], self.value[part], self.time[part], self.window[part])

    @property
    def arrays(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """In the order in which kernels take them."""
        return self.present, self.value, self.time, self.window


def group_pods(
    pods: PodColumns, samples: SampleColumns, resource: str, *, options: HPAOptions, now: Moment
) -> NDArray[np.uint8]:
    """The group of every pod, as an index into :data:`GROUPS`. The start-up rules apply to ``cpu`` alone."""
    return _replicas.groups(
        *pods.arrays,
        *samples.arrays,
        resource == "cpu",
        *options.terms(now),
    )


def pod_requests(
    pods: Sequence[Pod], container: str, resource: str, *, options: HPAOptions
) -> tuple[NDArray[np.int64], int, str]:
    """(requests in milli, position of the first pod without one or -1, its error) of every pod, deleting ones too."""
    out = np.zeros(len(pods), np.int64)
    for i, pod in enumerate(pods):
        amount = pod_request(pod, container, resource, options)
        if isinstance(amount, str):
            return out, i, amount
        out[i] = amount
    return out, -1, ""


def pod_request(pod: Any, container: str, resource: str, options: HPAOptions) -> int | str:
    """The request of one pod in milli, of one container or of all; a text where it has none."""
    spec = pod.spec
    level = options.enabled("PodLevelResources")
    if not container and level and spec.resources is not None and _has_pod_level(spec.resources.requests):
        amount = demand(pod).get(resource)
        if amount is None:
            return f"missing pod-level request for {resource} in Pod {pod.metadata.name}"
        return amount.milli_value()
    total = 0
    for each in pod.spec.containers if options.legacy else _running_containers(pod):
        if container and each.name != container:
            continue
        request = (each.resources.requests or {}).get(resource)
        if request is None and options.legacy:
            return f"missing request for {resource}"
        if request is None:
            return f"missing request for {resource} in container {each.name} of Pod {pod.metadata.name}"
        total += request.milli_value()
        if container:
            return request.milli_value()
    if container and not options.legacy:
        return f"container {container} not found in Pod {pod.metadata.name}"
    return (total + 2**63) % 2**64 - 2**63


def _running_containers(pod: Pod) -> list[Container]:
    """Containers that run as long as the pod does: its containers, then its sidecars."""
    return [*pod.spec.containers, *(each for each in pod.spec.init_containers if is_sidecar(each))]


def _has_pod_level(requests: Mapping[str, object] | None) -> bool:
    return any(map(is_pod_level_resource, requests or ()))
