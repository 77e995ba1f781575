"""How long pods take, workload by workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from kscale.objects.core import Pod
from kscale.objects.owners import controller_of
from kscale.world.simulated.kubelet import PodTimes

__all__ = ["RESTARTED", "TimesByOwner"]

RESTARTED: Final = frozenset({"DaemonSet", "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"})
"""Kinds of workloads whose containers are started again when they end: their pods never do."""


class TimesByOwner:
    """How long pods take, by the workload that they belong to; a replica set's count as its deployment's. The ``work``
    that is usual is that of jobs' pods and of pods that nobody controls."""

    def __init__(self, times: Mapping[str, PodTimes], usual: PodTimes) -> None:
        self._times, self._usual, self._endless = times, usual, replace(usual, work=None)

    def __call__(self, pod: Pod) -> PodTimes:
        owner = controller_of(pod.metadata)
        return self._usual if owner is None else self._find(owner.kind, pod, owner.name)

    def _find(self, kind: str, pod: Pod, name: str) -> PodTimes:
        namespace = pod.metadata.namespace
        found = self._times.get(f"{kind}/{namespace}/{name}")
        if found is None and kind == "ReplicaSet" and "pod-template-hash" in (pod.metadata.labels or {}):
            found = self._times.get(f"Deployment/{namespace}/{name.rpartition('-')[0]}")
        if found is not None:
            return found
        return self._endless if kind in RESTARTED else self._usual
