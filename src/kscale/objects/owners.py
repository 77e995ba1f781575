"""Who made a pod (upstream: ``metav1.GetControllerOf``, Cluster Autoscaler ``utils/pod``)."""

from __future__ import annotations

from kscale.objects.core import Pod
from kscale.objects.meta import ObjectMeta, OwnerReference
from kscale.objects.pod_annotations import CONFIG_MIRROR, CONFIG_SOURCE, DAEMONSET_POD, pod_annotation

__all__ = [
    "controller_of",
    "is_daemonset_pod",
    "is_mirror_pod",
    "is_static_pod",
]


def controller_of(metadata: ObjectMeta) -> OwnerReference | None:
    """The first owner reference with ``controller: true``."""
    for owner in metadata.owner_references:
        if owner.controller:
            return owner
    return None


def is_daemonset_pod(pod: Pod) -> bool:
    """Controlled by a DaemonSet, or annotated as if it were."""
    controller = controller_of(pod.metadata)
    if controller is not None and controller.kind == "DaemonSet":
        return True
    return pod_annotation(pod, DAEMONSET_POD) == "true"


def is_mirror_pod(pod: Pod) -> bool:
    """The API's image of a static pod: the annotation is there, whatever its value."""
    return pod_annotation(pod, CONFIG_MIRROR) is not None


def is_static_pod(pod: Pod) -> bool:
    """A pod that a kubelet got from a file or a URL, not from the API server."""
    source = pod_annotation(pod, CONFIG_SOURCE)
    return source is not None and source != "api"
