"""Which pods of a node are evicted before it goes (``actuation/drain.go``, ``utils/daemonset``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kscale.objects.core import Pod
from kscale.objects.owners import is_daemonset_pod, is_mirror_pod

__all__ = ["ENABLE_DS_EVICTION", "is_fake_pod", "pods_to_evict"]

ENABLE_DS_EVICTION: Final = "cluster-autoscaler.kubernetes.io/enable-ds-eviction"
_FAKE: Final = (("podtype", "fakepod"), ("podType", "capacityBufferFakePod"))


def is_fake_pod(pod: Pod) -> bool:
    """A pod that the autoscaler made up: for proactive scale-up, or for a capacity buffer."""
    annotations = pod.metadata.annotations or {}
    return any(annotations.get(key) == value for key, value in _FAKE)


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
    said = (pod.metadata.annotations or {}).get(ENABLE_DS_EVICTION)
    return default if said is None else said == "true"
