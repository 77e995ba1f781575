"""Which pods of a node are evicted before it goes (``actuation/drain.go``, ``utils/daemonset``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kscale.objects.core import Pod
from kscale.objects.owners import is_daemonset_pod, is_mirror_pod
from kscale.objects.pod_annotations import CAPACITY_BUFFER_FAKE_POD, ENABLE_DS_EVICTION, FAKE_POD, pod_annotation

__all__ = ["is_fake_pod", "pods_to_evict"]

_FAKE: Final = ((FAKE_POD, "fakepod"), (CAPACITY_BUFFER_FAKE_POD, "capacityBufferFakePod"))


def is_fake_pod(pod: Pod) -> bool:
    """A pod that the autoscaler made up: for proactive scale-up, or for a capacity buffer."""
    return any(pod_annotation(pod, key) == value for key, value in _FAKE)


def pods_to_evict(pods: Iterable[Pod], *, evict_daemon_sets: bool) -> tuple[list[Pod], list[Pod]]:
    """(DaemonSet pods, other pods) in node order; no mirror pods and none that the autoscaler made up.

    A DaemonSet pod's annotation says whether it is evicted, else ``evict_daemon_sets`` does.
    """
    daemon_set, others = [], []
    for pod in pods:
        if is_mirror_pod(pod) or is_fake_pod(pod):
            continue
        if not is_daemonset_pod(pod):
            others.append(pod)
        elif _evicts(pod, evict_daemon_sets):
            daemon_set.append(pod)
    return daemon_set, others


def _evicts(pod: Pod, default: bool) -> bool:
    said = pod_annotation(pod, ENABLE_DS_EVICTION)
    return default if said is None else said == "true"
