"""Completes a recorded cluster: objects that no dump contains but workloads need, and run times of pods."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain, count
from typing import Final

from msgspec.structs import replace

from kscale.objects.api.apps import Deployment, ReplicaSet, StatefulSet
from kscale.objects.api.core import Pod, PodTemplateSpec
from kscale.objects.api.meta import KubeObject, ObjectMeta
from kscale.objects.api.storage import StorageClass, default_storage_class
from kscale.objects.pod_owners import controller_of
from kscale.objects.selectors import SelectorError, compile_selector
from kscale.objects.workloads import derived_uid, replica_set_of
from kscale.world.simulated.kubelet import PodTimes

__all__ = ["RESTARTED", "TimesByOwner", "complete_objects"]


RESTARTED: Final = frozenset({"DaemonSet", "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"})
"""Kinds of workloads whose containers are started again when they end: their pods never do."""


class TimesByOwner:
    """Durations of pods, by the workload that owns them.

    Those of a ReplicaSet's pods are its Deployment's, unless ``times`` has the ReplicaSet itself. The usual ``work``
    applies to pods of jobs and to pods without a controller only.
    """

    def __init__(self, times: Mapping[str, PodTimes], usual: PodTimes) -> None:
        self._times, self._usual, self._endless = times, usual, replace(usual, work=None)

    def __call__(self, pod: Pod) -> PodTimes:
        """Return the durations of a pod: those given for its workload, else the usual ones."""
        owner = controller_of(pod.metadata)
        return self._usual if owner is None else self._find(owner.kind, pod, owner.name)

    def _find(self, kind: str, pod: Pod, name: str) -> PodTimes:
        """Return the times of a pod whose controller has this kind and name.

        If the controller has no entry, the entry of its Deployment counts (for a ReplicaSet). Without that, the times
        are the usual ones, which have no end if pods of this kind are restarted.
        """
        namespace = pod.metadata.namespace
        times = self._times.get(f"{kind}/{namespace}/{name}")
        if times is None and kind == "ReplicaSet" and "pod-template-hash" in (pod.metadata.labels or {}):
            times = self._times.get(f"Deployment/{namespace}/{name.rpartition('-')[0]}")
        if times is not None:
            return times
        return self._endless if kind in RESTARTED else self._usual


_HASH: Final = "pod-template-hash"
_STANDARD: Final = "standard"
_IS_DEFAULT: Final = {"storageclass.kubernetes.io/is-default-class": "true"}


def complete_objects(objects: Sequence[KubeObject], later: Sequence[KubeObject] = ()) -> list[KubeObject]:
    """Return the objects of a cluster together with missing objects that they need.

    Added are ReplicaSets between Deployments and their pods, and storage classes of StatefulSets, also of StatefulSets
    in ``later``. The volumes of these classes are created where the pod is. Deployments without a UID get one.
    """
    named = [_with_uid(item) if isinstance(item, Deployment) else item for item in objects]
    return [*named, *_replica_sets(named), *_storage_classes([*named, *later])]


def _with_uid(held: Deployment) -> Deployment:
    """Return the Deployment with a UID, derived from its name if it has none."""
    meta = held.metadata
    uid = meta.uid or derived_uid("Deployment", meta.namespace or "default", meta.name)
    return replace(held, metadata=replace(meta, uid=uid))


def _replica_sets(objects: Iterable[KubeObject]) -> list[ReplicaSet]:
    """Build the missing ReplicaSets that own pods of a Deployment.

    The ReplicaSet with the newest pod has the Deployment's current template. Pods that no Deployment selects are
    skipped.
    """
    known_uids = {item.metadata.uid for item in objects if isinstance(item, ReplicaSet)}
    deployments = [item for item in objects if isinstance(item, Deployment)]
    pods_of: dict[str, list[Pod]] = {}
    for item in objects:
        owner = controller_of(item.metadata) if isinstance(item, Pod) else None
        if isinstance(item, Pod) and owner is not None and owner.kind == "ReplicaSet" and owner.uid not in known_uids:
            pods_of.setdefault(owner.uid, []).append(item)
    sets_of: dict[str, list[tuple[Deployment, list[Pod]]]] = {}
    for pods in pods_of.values():
        owning_deployment = next((each for each in deployments if _selects(each, pods[0])), None)
        if owning_deployment is not None:
            sets_of.setdefault(owning_deployment.metadata.uid, []).append((owning_deployment, pods))
    return [
        _replica_set(deployment, pods, is_current=pods is max((each for _, each in sets), key=_get_newest_creation))
        for sets in sets_of.values()
        for deployment, pods in sets
    ]


def _selects(deployment: Deployment, pod: Pod) -> bool:
    """Check whether a Deployment's selector matches a pod in its namespace; False if the selector is invalid."""
    if (deployment.metadata.namespace or "default") != (pod.metadata.namespace or "default"):
        return False
    try:
        return compile_selector(deployment.spec.selector).matches(pod.metadata.labels)
    except SelectorError:
        return False


def _get_newest_creation(pods: list[Pod]) -> str:
    """Return the newest creation time of the pods (RFC 3339), empty if unknown."""
    return max(pod.metadata.creation_timestamp or "" for pod in pods)


def _replica_set(deployment: Deployment, pods: list[Pod], *, is_current: bool) -> ReplicaSet:
    """Build the ReplicaSet that owns the pods, under the name in the pods' owner reference.

    ``is_current``: whether it has the Deployment's current template; otherwise its template is the first pod without
    its node. Its size is the number of pods.
    """
    pod = pods[0]
    owner = controller_of(pod.metadata)
    assert owner is not None
    base = replica_set_of(deployment)
    template = deployment.spec.template
    if not is_current:
        template = PodTemplateSpec(
            metadata=ObjectMeta(labels=pod.metadata.labels, annotations=pod.metadata.annotations),
            spec=replace(pod.spec, node_name=""),
        )
    template_hash = (pod.metadata.labels or {}).get(_HASH)
    hash_label = {} if template_hash is None else {_HASH: template_hash}
    labels = {**(template.metadata.labels or {}), **hash_label}
    selector = deployment.spec.selector
    if selector is not None:
        selector = replace(selector, match_labels={**(selector.match_labels or {}), **hash_label})
    template = replace(template, metadata=replace(template.metadata, labels=labels))
    return replace(
        base,
        metadata=replace(base.metadata, name=owner.name, uid=owner.uid, labels=labels),
        spec=replace(base.spec, replicas=len(pods), selector=selector, template=template),
    )


def _find_free_name(name: str, taken: Container[str]) -> str:
    """Return the name, or the first name with a number appended that is not taken."""
    numbered = (f"{name}-{number}" for number in count(1))
    return next(candidate for candidate in chain([name], numbered) if candidate not in taken)


def _storage_classes(objects: Iterable[KubeObject]) -> list[StorageClass]:
    """Build the storage classes that claims of StatefulSets name and ``objects`` lacks.

    Includes a default class if a claim names none and there is no default.
    """
    existing = [item for item in objects if isinstance(item, StorageClass)]
    names = {item.name for item in existing}
    default = default_storage_class(existing)
    missing: dict[str, dict[str, str] | None] = {}
    for item in objects:
        for claim in item.spec.volume_claim_templates if isinstance(item, StatefulSet) else ():
            name = claim.spec.storage_class_name
            if name is None and default is None:
                missing[_find_free_name(_STANDARD, names)] = _IS_DEFAULT
            elif name and name not in names:
                missing.setdefault(name, None)
    return [
        StorageClass(
            api_version="storage.k8s.io/v1",
            kind="StorageClass",
            metadata=ObjectMeta(name=name, annotations=annotations),
            provisioner="kscale.dev/simulated",
            volume_binding_mode="WaitForFirstConsumer",
        )
        for name, annotations in missing.items()
    ]
