"""Pods that would lose data with the node."""

from __future__ import annotations

from kscale.ca.scale_down.drainability import blocking_pod_reason
from kscale.ca.scale_down.drainability.context import DrainContext
from kscale.ca.scale_down.drainability.status import DrainStatus, blocked
from kscale.objects.core import Pod
from kscale.objects.pod_annotations import SAFE_TO_EVICT_LOCAL_VOLUMES, pod_annotation
from kscale.objects.volumes import Volume

__all__ = ["check", "is_local"]

_UNDEFINED = DrainStatus()


def check(pod: Pod, context: DrainContext) -> DrainStatus:
    """BlockDrain for a hostPath volume, or an emptyDir that is not in memory, that no annotation names as safe."""
    del context
    safe = (pod_annotation(pod, SAFE_TO_EVICT_LOCAL_VOLUMES) or "").split(",")
    if not any(is_local(volume) and volume.name not in safe for volume in pod.spec.volumes):
        return _UNDEFINED
    return blocked(blocking_pod_reason.LOCAL_STORAGE_REQUESTED, f"pod with local storage present: {pod.metadata.name}")


def is_local(volume: Volume) -> bool:
    """On the node's own disk."""
    if volume.host_path is not None:
        return True
    return volume.empty_dir is not None and volume.empty_dir.get("medium") != "Memory"
