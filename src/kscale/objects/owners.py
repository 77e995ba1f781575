"""Who made a pod (upstream: ``metav1.GetControllerOf``, Cluster Autoscaler ``utils/pod``)."""

from __future__ import annotations

from typing import Final

from kscale.objects.core import Pod
from kscale.objects.meta import ObjectMeta, OwnerReference

__all__ = [
    "CONFIG_MIRROR_ANNOTATION",
    "CONFIG_SOURCE_ANNOTATION",
    "DAEMONSET_POD_ANNOTATION",
    "controller_of",
    "is_daemonset_pod",
    "is_mirror_pod",
    "is_static_pod",
]

CONFIG_MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
CONFIG_SOURCE_ANNOTATION: Final = "kubernetes.io/config.source"
DAEMONSET_POD_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/daemonset-pod"


def controller_of(metadata: ObjectMeta) -> OwnerReference | None:
    """The first owner reference with ``controller: true``."""
    for owner in metadata.owner_references:
        if owner.controller:
            return owner
    return None


def _annotation(pod: Pod, key: str) -> str | None:
    return pod.metadata.annotations.get(key) if pod.metadata.annotations else None


def is_daemonset_pod(pod: Pod) -> bool:
    """Controlled by a DaemonSet, or annotated as if it were."""
    controller = controller_of(pod.metadata)
    if controller is not None and controller.kind == "DaemonSet":
        return True
    return _annotation(pod, DAEMONSET_POD_ANNOTATION) == "true"


def is_mirror_pod(pod: Pod) -> bool:
    """The API's image of a static pod: the annotation is there, whatever its value."""
    return _annotation(pod, CONFIG_MIRROR_ANNOTATION) is not None


def is_static_pod(pod: Pod) -> bool:
    """A pod that a kubelet got from a file or a URL, not from the API server."""
    source = _annotation(pod, CONFIG_SOURCE_ANNOTATION)
    return source is not None and source != "api"
