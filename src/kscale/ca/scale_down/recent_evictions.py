"""Pods that were evicted a moment ago and may not have been created anew yet (``core/scaledown/planner``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kscale.ca.scale_down.drainability.context import Listers
from kscale.objects.apps import ReplicaSet, StatefulSet
from kscale.objects.batch import Job
from kscale.objects.core import Pod, ReplicationController
from kscale.objects.meta import OwnerReference
from kscale.objects.owners import is_daemonset_pod, is_mirror_pod, is_static_pod

__all__ = ["missing_replicas", "pods_to_inject"]

_KINDS = frozenset(("StatefulSet", "Job", "ReplicaSet", "ReplicationController"))


def missing_replicas(owner: OwnerReference, namespace: str, listers: Listers) -> int | None:
    """How many pods the controller still wants; None if it is not there."""
    match owner.kind:
        case "StatefulSet":
            if (found := listers.get(StatefulSet, namespace, owner.name)) is not None:
                return _or_one(found.spec.replicas) - found.status.current_replicas
        case "ReplicaSet":
            if (replica_set := listers.get(ReplicaSet, namespace, owner.name)) is not None:
                return _or_one(replica_set.spec.replicas) - replica_set.status.replicas
        case "ReplicationController":
            if (controller := listers.get(ReplicationController, namespace, owner.name)) is not None:
                return _or_one(controller.spec.replicas) - controller.status.replicas
        case "Job":
            if (job := listers.get(Job, namespace, owner.name)) is not None:
                target = _or_one(job.spec.parallelism)
                if job.spec.completions is not None:
                    target = min(target, job.spec.completions - job.status.succeeded)
                return target - job.status.active
    return None


def _or_one(replicas: int | None) -> int:
    return 1 if replicas is None else replicas


def pods_to_inject(evicted: Iterable[Pod], listers: Listers) -> list[Pod]:
    """The evicted pods that a controller will create again, as many as it lacks; pods without one always."""
    injected: Counter[str] = Counter()
    found = []
    for pod in evicted:
        if is_static_pod(pod) or is_mirror_pod(pod) or is_daemonset_pod(pod):
            continue
        owner = next((owner for owner in pod.metadata.owner_references or () if owner.kind in _KINDS), None)
        if owner is not None:
            missing = missing_replicas(owner, pod.metadata.namespace, listers)
            if missing is not None:
                if injected[owner.uid] >= missing:
                    continue
                injected[owner.uid] += 1
        found.append(pod)
    return found
