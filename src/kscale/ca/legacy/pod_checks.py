"""May the pods of a node be moved? The checks of release 1.3 (``utils/drain``, ``simulator/drain.go``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kscale.ca.scale_down.drainability import blocking_pod_reason
from kscale.ca.scale_down.drainability.context import DrainContext, Listers
from kscale.ca.scale_down.drainability.rules.pdb import over_budget
from kscale.ca.scale_down.drainability.status import BlockingPod
from kscale.effects import SECOND
from kscale.objects.apps import DaemonSet, ReplicaSet, StatefulSet
from kscale.objects.batch import Job
from kscale.objects.core import Pod, ReplicationController
from kscale.objects.meta import KubeObject
from kscale.objects.owners import controller_of, is_mirror_pod
from kscale.objects.pod_annotations import SAFE_TO_EVICT, pod_annotation
from kscale.objects.times import nanoseconds

__all__ = ["PodsToDrain", "pods_to_drain"]

_GONE_AFTER: Final = 12 * 60 * SECOND
_KINDS: Final[dict[str, tuple[type[KubeObject], str]]] = {
    "ReplicationController": (ReplicationController, "replication controller for {} is not available, err: {}"),
    "DaemonSet": (DaemonSet, "daemonset for {} is not present, err: {}"),
    "Job": (Job, "job for {} is not available: err: {}"),
    "ReplicaSet": (ReplicaSet, "replication controller for {} is not available, err: {}"),
    "StatefulSet": (StatefulSet, "statefulset for {} is not available: err: {}"),
}


class PodsToDrain(msgspec.Struct, kw_only=True):
    """The pods to move, in node order; with ``blocking`` the node cannot be drained, for the reason in ``error``."""

    pods: list[Pod] = []
    blocking: BlockingPod | None = None
    error: str | None = None


class _BlockedError(Exception):
    def __init__(self, pod: Pod, reason: str, text: str) -> None:
        self.pod, self.reason, self.text = pod, reason, text


def pods_to_drain(pods: Iterable[Pod], context: DrainContext, *, system: bool, storage: bool) -> PodsToDrain:
    """Judges the pods of a node, up to the first that blocks, and then the disruption budgets.

    ``system``, ``storage``: pods of the system without a budget, and pods with local storage, block. Without listers in
    the context controllers are taken for granted (the fast mode), else they must exist and have replicas to spare.
    """
    found: list[Pod] = []
    try:
        found.extend(pod for pod in pods if _moves(pod, context, system, storage))
        _check_budgets(found, context)
    except _BlockedError as blocked:
        who = BlockingPod(pod=blocked.pod.key, reason=blocked.reason)
        return PodsToDrain(pods=found, blocking=who, error=blocked.text)
    return PodsToDrain(pods=found)


def _moves(pod: Pod, context: DrainContext, system: bool, storage: bool) -> bool:
    deleted = pod.metadata.deletion_timestamp
    if is_mirror_pod(pod) or (deleted is not None and nanoseconds(deleted) + _GONE_AFTER < context.now):
        return False
    kind = _controller(pod, context)
    if kind == "DaemonSet":
        return False
    ended = pod.status.phase == "Failed" or (
        pod.status.phase == "Succeeded" and pod.spec.restart_policy in ("Never", "OnFailure")
    )
    if ended or pod_annotation(pod, SAFE_TO_EVICT) == "true":
        return True
    name = pod.metadata.name
    if kind is None:
        raise _BlockedError(pod, blocking_pod_reason.NOT_REPLICATED, f"{pod.key} is not replicated")
    if system and pod.metadata.namespace == "kube-system" and not context.pdbs.matching(pod):
        text = f"non-daemonset, non-mirrored, non-pdb-assigned kube-system pod present: {name}"
        raise _BlockedError(pod, blocking_pod_reason.UNMOVABLE_KUBE_SYSTEM_POD, text)
    if storage and any(volume.host_path is not None or volume.empty_dir is not None for volume in pod.spec.volumes):
        raise _BlockedError(pod, blocking_pod_reason.LOCAL_STORAGE_REQUESTED, f"pod with local storage present: {name}")
    if pod_annotation(pod, SAFE_TO_EVICT) == "false":
        raise _BlockedError(
            pod, blocking_pod_reason.NOT_SAFE_TO_EVICT_ANNOTATION, f"pod annotated as not safe to evict present: {name}"
        )
    return True


def _controller(pod: Pod, context: DrainContext) -> str | None:
    """The kind of the pod's controller, None if it has none that counts."""
    owner = controller_of(pod.metadata)
    if owner is None or owner.kind not in _KINDS:
        return None
    if context.listers is None:
        return owner.kind
    kind, text = _KINDS[owner.kind]
    controller = context.listers.get(kind, pod.metadata.namespace, owner.name)
    if controller is None:
        error = text.format(pod.key, Listers.not_found(kind, owner.name))
        raise _BlockedError(pod, blocking_pod_reason.CONTROLLER_NOT_FOUND, error)
    if isinstance(controller, ReplicationController | ReplicaSet):
        replicas, least = controller.spec.replicas, context.options.min_replica_count
        if replicas is not None and replicas < least:
            error = f"replication controller for {pod.key} has too few replicas spec: {replicas} min: {least}"
            raise _BlockedError(pod, blocking_pod_reason.MIN_REPLICAS_REACHED, error)
    return owner.kind


def _check_budgets(pods: Sequence[Pod], context: DrainContext) -> None:
    for pdb in context.pdbs.pdbs:
        for pod in pods:
            if pdb.disruptions_allowed < 1 and pdb.matches(pod):
                status = over_budget(pod.key)
                raise _BlockedError(pod, status.blocking_reason, status.error or "")
