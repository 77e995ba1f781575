"""A pod's controller must exist, and must have replicas to spare."""

from __future__ import annotations

from kscale.ca.scale_down.drainability import blocking_pod_reason
from kscale.ca.scale_down.drainability.context import DrainContext, Listers
from kscale.ca.scale_down.drainability.status import DrainStatus, blocked
from kscale.objects.apps import DaemonSet, ReplicaSet, StatefulSet
from kscale.objects.batch import Job
from kscale.objects.core import Pod, ReplicationController
from kscale.objects.meta import KubeObject, OwnerReference
from kscale.objects.owners import controller_of, is_daemonset_pod

__all__ = ["check"]

_UNDEFINED = DrainStatus()
_APPS = "apps"


def check(pod: Pod, context: DrainContext) -> DrainStatus:
    """BlockDrain for pods whose controller is missing or has too few replicas; else undefined.

    The controller is looked up by name in the pod's own namespace.
    """
    owner = controller_of(pod.metadata)
    if context.listers is None or owner is None or owner.api_version.count("/") > 1:
        return _UNDEFINED
    group = owner.api_version.rpartition("/")[0]
    if owner.kind == "ReplicationController":
        return _replicated(pod, owner, context, context.listers, ReplicationController)
    if is_daemonset_pod(pod):
        if owner.kind == "DaemonSet" and group == _APPS:
            return _present(pod, owner, context.listers, DaemonSet, "daemonset for {} is not present, err: {}")
        return _UNDEFINED
    if owner.kind == "Job":
        return _present(pod, owner, context.listers, Job, "job for {} is not available: err: {}")
    if owner.kind == "ReplicaSet":
        return _replicated(pod, owner, context, context.listers, ReplicaSet)
    if owner.kind == "StatefulSet" and group == _APPS:
        return _present(pod, owner, context.listers, StatefulSet, "statefulset for {} is not available: err: {}")
    return _UNDEFINED


def _present(pod: Pod, owner: OwnerReference, listers: Listers, kind: type[KubeObject], text: str) -> DrainStatus:
    if listers.get(kind, pod.metadata.namespace, owner.name) is None:
        return blocked(
            blocking_pod_reason.CONTROLLER_NOT_FOUND, text.format(pod.key, Listers.not_found(kind, owner.name))
        )
    return _UNDEFINED


def _replicated(
    pod: Pod,
    owner: OwnerReference,
    context: DrainContext,
    listers: Listers,
    kind: type[ReplicationController | ReplicaSet],
) -> DrainStatus:
    controller = listers.get(kind, pod.metadata.namespace, owner.name)
    text = f"replication controller for {pod.key} "
    if controller is None:
        error = f"{text}is not available, err: {Listers.not_found(kind, owner.name)}"
        return blocked(blocking_pod_reason.CONTROLLER_NOT_FOUND, error)
    minimum = context.options.min_replica_count
    replicas = controller.spec.replicas
    if replicas is not None and replicas < minimum:
        # Upstream prints the address of the number where the number is meant.
        return blocked(
            blocking_pod_reason.MIN_REPLICAS_REACHED, f"{text}has too few replicas spec: <address> min: {minimum}"
        )
    return _UNDEFINED
