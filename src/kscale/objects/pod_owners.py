"""Controllers of pods, and the annotations of pods that decisions read.

A live store keeps no other annotation of a pod that has a node. A decision therefore reads an annotation of a pod with
:func:`pod_annotation`, which accepts only the names of this module: any other name is a type error.

Upstream: ``metav1.GetControllerOf`` and ``utils/pod``.
"""

from __future__ import annotations

from typing import Final, NewType

from kscale.objects.api.core import Pod
from kscale.objects.api.meta import ObjectMeta, OwnerReference

__all__ = [
    "CAPACITY_BUFFER_FAKE_POD",
    "CONFIG_MIRROR",
    "CONFIG_SOURCE",
    "CONSUME_PROVISIONING_REQUEST",
    "DAEMONSET_POD",
    "DEPRECATED_CONSUME_PROVISIONING_REQUEST",
    "DO_NOT_DISRUPT",
    "ENABLE_DS_EVICTION",
    "FAKE_POD",
    "READ_ANNOTATIONS",
    "SAFE_TO_EVICT",
    "SAFE_TO_EVICT_LOCAL_VOLUMES",
    "SCALE_UP_DELAY",
    "PodAnnotation",
    "controller_of",
    "is_daemonset_pod",
    "is_lost_with_node",
    "is_mirror_pod",
    "is_static_pod",
    "pod_annotation",
]


PodAnnotation = NewType("PodAnnotation", str)
"""The name of an annotation that decisions read."""

_declared: list[PodAnnotation] = []


def _declare(name: str) -> PodAnnotation:
    """Add an annotation's name to the list of the annotations that decisions read, and return the name."""
    declared = PodAnnotation(name)
    _declared.append(declared)
    return declared


CONFIG_MIRROR: Final = _declare("kubernetes.io/config.mirror")
CONFIG_SOURCE: Final = _declare("kubernetes.io/config.source")
DAEMONSET_POD: Final = _declare("cluster-autoscaler.kubernetes.io/daemonset-pod")
SAFE_TO_EVICT: Final = _declare("cluster-autoscaler.kubernetes.io/safe-to-evict")
SAFE_TO_EVICT_LOCAL_VOLUMES: Final = _declare("cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes")
ENABLE_DS_EVICTION: Final = _declare("cluster-autoscaler.kubernetes.io/enable-ds-eviction")
SCALE_UP_DELAY: Final = _declare("cluster-autoscaler.kubernetes.io/pod-scale-up-delay")
CONSUME_PROVISIONING_REQUEST: Final = _declare("autoscaling.x-k8s.io/consume-provisioning-request")
DEPRECATED_CONSUME_PROVISIONING_REQUEST: Final = _declare(
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request"
)
FAKE_POD: Final = _declare("podtype")
CAPACITY_BUFFER_FAKE_POD: Final = _declare("podType")
DO_NOT_DISRUPT: Final = _declare("karpenter.sh/do-not-disrupt")

READ_ANNOTATIONS: Final = tuple(_declared)
"""All of them."""


def pod_annotation(pod: Pod, name: PodAnnotation) -> str | None:
    """Return the value of a pod's annotation; None if there is none."""
    annotations = pod.metadata.annotations
    return None if annotations is None else annotations.get(name)


def controller_of(metadata: ObjectMeta) -> OwnerReference | None:
    """Return the first owner reference with ``controller: true``; None if there is none."""
    for owner in metadata.owner_references:
        if owner.controller:
            return owner
    return None


def is_daemonset_pod(pod: Pod) -> bool:
    """Return whether a DaemonSet controls the pod, or an annotation marks it as a pod of a DaemonSet.

    The annotation is ``cluster-autoscaler.kubernetes.io/daemonset-pod`` with the value ``true``.
    """
    controller = controller_of(pod.metadata)
    if controller is not None and controller.kind == "DaemonSet":
        return True
    return pod_annotation(pod, DAEMONSET_POD) == "true"


def is_mirror_pod(pod: Pod) -> bool:
    """Return whether the pod is the API's copy of a static pod: annotated with ``kubernetes.io/config.mirror``."""
    return pod_annotation(pod, CONFIG_MIRROR) is not None


def is_static_pod(pod: Pod) -> bool:
    """Return whether a kubelet read the pod from a file or a URL instead of the API server, by its annotation."""
    source = pod_annotation(pod, CONFIG_SOURCE)
    return source is not None and source != "api"


def is_lost_with_node(pod: Pod) -> bool:
    """Return whether a pod is not recreated elsewhere when its node is lost.

    True for pods of DaemonSets, mirror pods, and pods that have finished.
    """
    return is_daemonset_pod(pod) or is_mirror_pod(pod) or pod.is_finished
