"""Pods that a controller would create, including DaemonSets, the claims that controllers create for a pod, and their
binding to existing volumes.

Random parts of names in upstream are numbers here, and missing UIDs are derived from kind, namespace and name, so the
same input always gives the same pods. The pods of one controller share their spec: replace it, do not modify it.

Upstream: ``pkg/controller``, also ``resourceclaim/controller.go``, ``volume/ephemeral/controller.go`` and
``volume/persistentvolume`` (``FindMatchingVolume``: the smallest volume that is large enough).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kscale.errors import InputError
from kscale.objects.api.apps import CronJob, DaemonSet, Deployment, Job, ReplicaSet, ReplicaSetSpec, StatefulSet
from kscale.objects.api.core import (
    Node,
    ObjectReference,
    Pod,
    PodResourceClaimStatus,
    PodSpec,
    PodStatus,
    PodTemplateSpec,
    ReplicationController,
    Toleration,
)
from kscale.objects.api.meta import KubeObject, ObjectMeta, OwnerReference, ResourceList
from kscale.objects.api.resource import ResourceClaim, ResourceClaimTemplate
from kscale.objects.api.storage import PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus
from kscale.objects.api.volumes import PersistentVolumeClaimVolumeSource, Volume
from kscale.objects.conditions import is_true
from kscale.objects.decode import to_json
from kscale.objects.node_selectors import compile_node_selector
from kscale.objects.pod_admission import BUILT_IN_CLASSES, PodClasses, with_defaults
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import compile_selector
from kscale.objects.taints import first_untolerated

__all__ = [
    "AVAILABLE",
    "WORKLOADS",
    "PodClaims",
    "bind",
    "claims_of",
    "create_claims",
    "daemon_tolerations",
    "daemonset_pod",
    "derived_uid",
    "ephemeral_claims",
    "expand_if_equal",
    "find_volume",
    "is_bound",
    "needs_claims",
    "pod_count",
    "pods_of",
    "replica_set_of",
    "revision_of",
    "should_run",
    "spec_of",
]

# (key, effect, for pods on the host's network only), in upstream's order
_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute", False),
    ("node.kubernetes.io/unreachable", "NoExecute", False),
    ("node.kubernetes.io/disk-pressure", "NoSchedule", False),
    ("node.kubernetes.io/memory-pressure", "NoSchedule", False),
    ("node.kubernetes.io/pid-pressure", "NoSchedule", False),
    ("node.kubernetes.io/unschedulable", "NoSchedule", False),
    ("node.kubernetes.io/network-unavailable", "NoSchedule", True),
)


def daemon_tolerations(spec: PodSpec) -> Iterator[Toleration]:
    """Yield the tolerations that the DaemonSet controller adds to its pods."""
    for key, effect, host_only in _TOLERATED:
        if spec.host_network or not host_only:
            yield Toleration(key=key, operator="Exists", effect=effect)


def should_run(daemonset: DaemonSet, node: Node) -> bool:
    """Return whether the daemon set's node name, node selector, affinity and tolerations allow a pod on the node.

    The node's resources do not count.
    """
    spec = daemonset.spec.template.spec
    if spec.node_name and spec.node_name != node.name:
        return False
    labels = node.metadata.labels or {}
    if any(labels.get(key) != value for key, value in (spec.node_selector or {}).items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    if required is not None and not compile_node_selector(required).matches(labels, node.name):
        return False
    return first_untolerated([*spec.tolerations, *daemon_tolerations(spec)], node.spec.taints) is None


WORKLOADS: Final = (
    "Pod", "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job", "CronJob"
)  # fmt: skip
"""The kinds that :func:`pods_of` takes."""

_NAMESPACE: Final = uuid.UUID("9f1d3b54-6c0e-5d0b-8a53-1a5b1f4c7c1e")
_HASH_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"  # upstream's alphabet, without vowels so that no words appear
_API_VERSIONS: Final = {
    "ReplicationController": "v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1",
    "Job": "batch/v1",
}  # fmt: skip
_replace = msgspec.structs.replace


def derived_uid(kind: str, namespace: str, name: str) -> str:
    """Return a UID for an object without one, always the same for the same kind, namespace and name."""
    return str(uuid.uuid5(_NAMESPACE, f"{kind}/{namespace}/{name}"))


def pods_of(
    workload: KubeObject, replicas: int | None = None, *, classes: PodClasses = BUILT_IN_CLASSES
) -> Iterator[Pod]:
    """Yield the pending pods that a controller would create, as the API server would store them.

    - A suspended or finished job creates none, whatever ``replicas`` is. By default, any other job creates as many pods
      as its parallelism, limited by its missing completions.
    - A cron job creates the pods of its next job, and none while it is suspended.
    - A daemon set creates one pod without a particular node (see :func:`daemonset_pod`).
    - A pod is yielded unchanged, or with ``replicas`` as copies named ``<pod>-0``, ``<pod>-1`` and so on.

    Parameters
    ----------
    workload : KubeObject
    replicas : int, optional
        Number of pods. Default: the object's own number, or 1 without one.
    classes : PodClasses
        Priority and runtime classes of the cluster.

    Raises
    ------
    TypeError
        If the kind creates no pods.
    """
    if isinstance(workload, Pod):
        yield from [workload] if replicas is None else _number_replicas(workload, replicas)
    elif isinstance(workload, Deployment):
        yield from pods_of(replica_set_of(workload), replicas, classes=classes)
    elif isinstance(workload, (ReplicaSet, ReplicationController)):
        template = workload.spec.template or PodTemplateSpec()
        count = _count_replicas(replicas, workload.spec.replicas)
        yield from _number_pods(workload, template, range(count), classes)
    elif isinstance(workload, StatefulSet):
        yield from _create_stateful_pods(workload, _count_replicas(replicas, workload.spec.replicas), classes)
    elif isinstance(workload, DaemonSet):
        for _ in range(_count_replicas(replicas, None)):
            yield daemonset_pod(workload, classes=classes)
    elif isinstance(workload, CronJob):
        if not workload.spec.suspend:
            yield from pods_of(_build_next_job(workload), replicas, classes=classes)
    elif isinstance(workload, Job):
        yield from _create_job_pods(workload, replicas, classes)
    else:
        raise TypeError(f"{type(workload).__name__} creates no pods")


def pod_count(workload: KubeObject) -> int:
    """Return the number of pods that :func:`pods_of` yields, without building them; 1 for kinds that create no pods."""
    if isinstance(workload, CronJob):
        return 0 if workload.spec.suspend else pod_count(_build_next_job(workload))
    if isinstance(workload, (Deployment, ReplicaSet, ReplicationController, StatefulSet)):
        return max(0, _count_replicas(None, workload.spec.replicas))
    if isinstance(workload, Job):
        return max(0, _count_job_pods(workload)) if _is_running(workload) else 0
    return 1


def spec_of(workload: KubeObject) -> PodSpec:
    """Return the spec of a workload's pods, as written; a default spec if the workload has no template.

    Raises InputError if the kind creates no pods.
    """
    if not hasattr(getattr(workload, "spec", None), "template") and not isinstance(workload, (CronJob, Pod)):
        raise InputError(f"a {type(workload).__name__} creates no pods")
    spec: Any = workload.spec  # type: ignore[attr-defined]  # checked above
    if isinstance(workload, CronJob):
        spec = workload.spec.job_template.spec
    if isinstance(workload, Pod):
        return workload.spec
    template: PodTemplateSpec | None = spec.template
    return PodSpec() if template is None else template.spec


def expand_if_equal(workload: KubeObject, *, classes: PodClasses = BUILT_IN_CLASSES) -> tuple[Pod, int] | None:
    """Return one of a controller's pods and their number, if the pods differ only in name and UID.

    None for other workloads, and if there are no pods.
    """
    if isinstance(workload, CronJob):
        return expand_if_equal(_build_next_job(workload), classes=classes) if not workload.spec.suspend else None
    if isinstance(workload, Deployment):
        return expand_if_equal(replica_set_of(workload), classes=classes)
    indexed = isinstance(workload, Job) and workload.spec.completion_mode == "Indexed"
    if indexed or not isinstance(workload, (ReplicaSet, ReplicationController, Job)):
        return None
    count = pod_count(workload)
    return (next(pods_of(workload, 1, classes=classes)), count) if count > 0 else None


def claims_of(workload: KubeObject, default_class: str | None = None) -> Iterator[PersistentVolumeClaim]:
    """Yield the unbound claims that a stateful set creates for its pods.

    ``default_class`` is the storage class of claims that name none. Other workloads have no claims.
    """
    if not isinstance(workload, StatefulSet):
        return
    start = workload.spec.ordinals.start if workload.spec.ordinals else 0
    for ordinal in range(start, start + _count_replicas(None, workload.spec.replicas)):
        for template in workload.spec.volume_claim_templates:
            spec = template.spec
            if spec.storage_class_name is None and default_class is not None:
                spec = _replace(spec, storage_class_name=default_class)
            name, namespace = f"{template.metadata.name}-{workload.name}-{ordinal}", _get_namespace(workload)
            yield PersistentVolumeClaim(
                api_version="v1",
                kind="PersistentVolumeClaim",
                metadata=ObjectMeta(
                    name=name, namespace=namespace, uid=derived_uid("PersistentVolumeClaim", namespace, name)
                ),
                spec=spec,
                status=PersistentVolumeClaimStatus(phase="Pending"),
            )


def _number_replicas(pod: Pod, replicas: int) -> Iterator[Pod]:
    """Yield ``replicas`` copies of a pod, named ``<pod>-0``, ``<pod>-1`` and so on, each with its own UID."""
    for number in range(replicas):
        name = f"{pod.name}-{number}"
        uid = derived_uid("Pod", pod.namespace, name)
        yield _replace(pod, metadata=_replace(pod.metadata, name=name, uid=uid))


def _count_replicas(override: int | None, replicas: int | None) -> int:
    """Return ``override`` if there is one, otherwise ``replicas``, 1 by default."""
    if override is not None:
        return override
    return 1 if replicas is None else replicas


def _get_namespace(workload: KubeObject) -> str:
    """Return the workload's namespace, ``default`` if it has none."""
    return workload.metadata.namespace or "default"


def _build_owner(workload: KubeObject) -> OwnerReference:
    """Return the owner reference of the pods to their workload."""
    kind = workload.kind or type(workload).__name__
    return OwnerReference(
        api_version=workload.api_version or _API_VERSIONS[kind],
        kind=kind,
        name=workload.name,
        uid=workload.metadata.uid or derived_uid(kind, _get_namespace(workload), workload.name),
        controller=True,
        block_owner_deletion=True,
    )


def _build_pod(
    workload: KubeObject, template: PodTemplateSpec, name: str, spec: PodSpec, labels: dict[str, str] | None
) -> Pod:
    """Build a pending pod of a workload."""
    namespace = _get_namespace(workload)
    metadata = ObjectMeta(
        name=name,
        namespace=namespace,
        uid=derived_uid("Pod", namespace, name),
        labels=labels,
        annotations=template.metadata.annotations,
        owner_references=[_build_owner(workload)],
        finalizers=template.metadata.finalizers,
    )
    return Pod(api_version="v1", kind="Pod", metadata=metadata, spec=spec, status=PodStatus(phase="Pending"))


def _number_pods(workload: KubeObject, template: PodTemplateSpec, numbers: range, classes: PodClasses) -> Iterator[Pod]:
    """Yield a workload's pods, named ``<workload>-<number>`` for each of ``numbers``.

    Upstream has five random characters instead of the number.
    """
    labels = template.metadata.labels
    spec = with_defaults(template.spec, labels, classes, _get_namespace(workload))
    for number in numbers:
        yield _build_pod(workload, template, f"{workload.name}-{number}", spec, labels)


def _hash_template(template: PodTemplateSpec, collisions: int = 0) -> str:
    """Return a hash (ten characters) of the template and of the number of ``collisions`` of earlier hashes.

    Upstream hashes a dump of its Go structs instead, so its hashes differ.
    """
    from hashlib import blake2b  # imported here because it loads OpenSSL

    salt = str(collisions).encode() if collisions else b""
    number = int.from_bytes(blake2b(to_json(template) + salt, digest_size=8).digest(), "big")
    text = ""
    for _ in range(10):
        number, rest = divmod(number, len(_HASH_ALPHABET))
        text += _HASH_ALPHABET[rest]
    return text


def revision_of(workload: StatefulSet) -> str:
    """Return the value of the label ``controller-revision-hash`` of pods of the current template."""
    return f"{workload.name}-{_hash_template(workload.spec.template)}"


def replica_set_of(deployment: Deployment, *, collisions: int = 0) -> ReplicaSet:
    """Return the replica set that a deployment would create for its current template.

    ``collisions`` (``status.collisionCount``): how often the name already belonged to another replica set. This number
    changes the hash in the name.
    """
    template = deployment.spec.template
    own = _hash_template(template, collisions)
    labels = {**(template.metadata.labels or {}), "pod-template-hash": own}
    template = _replace(template, metadata=_replace(template.metadata, labels=labels))
    selector = deployment.spec.selector
    if selector is not None:
        selector = _replace(selector, match_labels={**(selector.match_labels or {}), "pod-template-hash": own})
    name, namespace = f"{deployment.name}-{own}", _get_namespace(deployment)
    owner = OwnerReference(
        api_version=deployment.api_version or "apps/v1",
        kind="Deployment",
        name=deployment.name,
        uid=deployment.metadata.uid or derived_uid("Deployment", namespace, deployment.name),
        controller=True,
        block_owner_deletion=True,
    )
    return ReplicaSet(
        api_version="apps/v1",
        kind="ReplicaSet",
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=derived_uid("ReplicaSet", namespace, name),
            labels=labels,
            owner_references=[owner],
        ),
        spec=ReplicaSetSpec(replicas=deployment.spec.replicas, selector=selector, template=template),
    )


def _create_stateful_pods(workload: StatefulSet, count: int, classes: PodClasses) -> Iterator[Pod]:
    """Yield pods ``<set>-<ordinal>``, each with claims ``<template>-<set>-<ordinal>``, hostname and labels."""
    template = workload.spec.template
    start = workload.spec.ordinals.start if workload.spec.ordinals else 0
    revision = revision_of(workload)
    claims = [claim.metadata.name for claim in workload.spec.volume_claim_templates]
    other_volumes = [volume for volume in template.spec.volumes if volume.name not in claims]
    base = _replace(template.spec, subdomain=workload.spec.service_name)
    for ordinal in range(start, start + count):
        name = f"{workload.name}-{ordinal}"
        labels = {
            **(template.metadata.labels or {}),
            "apps.kubernetes.io/pod-index": str(ordinal),
            "controller-revision-hash": revision,
            "statefulset.kubernetes.io/pod-name": name,
        }
        spec = with_defaults(base, labels, classes, _get_namespace(workload))
        spec.hostname = name
        spec.volumes = [
            *(
                Volume(
                    name=claim,
                    persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name=f"{claim}-{name}"),
                )
                for claim in claims
            ),
            *other_volumes,
        ]
        yield _build_pod(workload, template, name, spec, labels)


def daemonset_pod(workload: DaemonSet, node_name: str = "", *, classes: PodClasses = BUILT_IN_CLASSES) -> Pod:
    """Return a pod of a daemon set, named ``<set>-<node>`` and placed on ``node_name``.

    Without a node the pod is named ``<set>-0``, and keeps the node name of its template. The pod has the tolerations of
    the DaemonSet controller, for nodes that are not ready, unreachable, under pressure or cordoned, and with host
    network also for nodes without a network.
    """
    template = workload.spec.template
    spec = template.spec
    tolerations = list(spec.tolerations)
    for added in daemon_tolerations(spec):
        same = [
            index
            for index, item in enumerate(tolerations)
            if (item.key, item.effect, item.operator, item.value) == (added.key, added.effect, "Exists", "")
        ]
        if same:
            tolerations[same[0]] = added
        else:
            tolerations.append(added)
    labels = template.metadata.labels
    spec = with_defaults(_replace(spec, tolerations=tolerations), labels, classes, _get_namespace(workload))
    spec.node_name = node_name or spec.node_name
    return _build_pod(workload, template, f"{workload.name}-{node_name or 0}", spec, labels)


def _build_next_job(workload: CronJob) -> Job:
    """Return the next job of a cron job, ``<name>-next``."""
    template = workload.spec.job_template
    name, namespace = f"{workload.name}-next", _get_namespace(workload)
    return Job(
        api_version="batch/v1",
        kind="Job",
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=derived_uid("Job", namespace, name),
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
        ),
        spec=template.spec,
    )


def _is_running(workload: Job) -> bool:
    """Check whether a Job is neither suspended nor finished."""
    conditions = workload.status.conditions
    return not (workload.spec.suspend or is_true(conditions, "Complete") or is_true(conditions, "Failed"))


def _count_job_pods(workload: Job) -> int:
    """Return how many pods a job runs at the same time: its parallelism, limited by missing completions."""
    spec, status = workload.spec, workload.status
    count = 1 if spec.parallelism is None else spec.parallelism
    if spec.completions is not None:
        count = min(count, max(0, spec.completions - status.succeeded))
    return count


def _create_job_pods(workload: Job, override: int | None, classes: PodClasses) -> Iterator[Pod]:
    """Yield the pods that a job creates; none if it is suspended or finished, whatever ``override`` is.

    ``override``: number of pods. None: the job's own number.
    """
    if not _is_running(workload):
        return
    spec = workload.spec
    count = _count_job_pods(workload) if override is None else override
    owner = _build_owner(workload)
    indexed = spec.completion_mode == "Indexed"
    for number in range(count):
        name = f"{workload.name}-{number}"
        labels = {
            **(spec.template.metadata.labels or {}),
            "batch.kubernetes.io/controller-uid": owner.uid,
            "batch.kubernetes.io/job-name": workload.name,
            "controller-uid": owner.uid,
            "job-name": workload.name,
        }
        template = spec.template
        if indexed:
            labels["batch.kubernetes.io/job-completion-index"] = str(number)
            annotations = {
                **(template.metadata.annotations or {}),
                "batch.kubernetes.io/job-completion-index": str(number),
            }
            template = _replace(template, metadata=_replace(template.metadata, annotations=annotations))
        yield _build_pod(
            workload, template, name, with_defaults(template.spec, labels, classes, _get_namespace(workload)), labels
        )


_ENTRY: Final = "resource.kubernetes.io/pod-claim-name"


class PodClaims(msgspec.Struct, frozen=True):
    """A pod after its claims were created."""

    pod: Pod
    """With a UID, and with the names of its claims in its status."""
    resource_claims: list[ResourceClaim]
    """The claims from templates, without devices."""
    volume_claims: list[PersistentVolumeClaim]
    """The claims of ephemeral volumes, unbound."""


def needs_claims(spec: PodSpec) -> bool:
    """Return whether each pod of this spec gets claims of its own: from claim templates or ephemeral volumes."""
    return any(entry.resource_claim_template_name for entry in spec.resource_claims) or any(
        volume.ephemeral is not None for volume in spec.volumes
    )


def create_claims(
    pod: Pod,
    templates: Mapping[tuple[str, str], ResourceClaimTemplate],
    default_class: str | None = None,
) -> PodClaims:
    """Create the claims of a pod as the controllers would, and return them with a copy of the pod that names them.

    Parameters
    ----------
    pod : Pod
        A pod with a namespace; it is not changed. Its copy gets a UID if the pod has none.
    templates : mapping
        ResourceClaimTemplates by (namespace, name). An entry of ``resourceClaims`` whose template is missing
        gets no claim, and the pod waits for it.
    default_class : str, optional
        The storage class of ephemeral volumes that name none.
    """
    if not pod.metadata.uid:
        uid = derived_uid("Pod", pod.namespace, pod.name)
        pod = replace(pod, metadata=replace(pod.metadata, uid=uid))
    statuses = list(pod.status.resource_claim_statuses)
    existing = {status.name for status in statuses}
    created: list[ResourceClaim] = []
    for entry in pod.spec.resource_claims:
        template = templates.get((pod.namespace, entry.resource_claim_template_name or ""))
        if template is None or entry.name in existing:
            continue
        # Upstream draws five random characters. Here they derive from the pod's UID.
        name = f"{pod.name}-{entry.name}-{derived_uid('ResourceClaim', pod.metadata.uid, entry.name)[:5]}"
        statuses.append(PodResourceClaimStatus(name=entry.name, resource_claim_name=name))
        created.append(_from_template(pod, template, entry.name, name))
    if created:
        pod = replace(pod, status=replace(pod.status, resource_claim_statuses=statuses))
    volume_claims = [
        claim
        if claim.spec.storage_class_name is not None or default_class is None
        else replace(claim, spec=replace(claim.spec, storage_class_name=default_class))
        for claim in ephemeral_claims(pod)
    ]
    return PodClaims(pod, created, volume_claims)


def ephemeral_claims(pod: Pod) -> list[PersistentVolumeClaim]:
    """Return the unbound claims of a pod's generic ephemeral volumes, which exist as long as the pod."""
    return [
        PersistentVolumeClaim(
            api_version="v1",
            kind="PersistentVolumeClaim",
            metadata=ObjectMeta(
                name=f"{pod.name}-{volume.name}", namespace=pod.namespace, owner_references=[_build_reference(pod)]
            ),
            spec=volume.ephemeral.volume_claim_template.spec,
            status=PersistentVolumeClaimStatus(phase="Pending"),
        )
        for volume in pod.spec.volumes
        if volume.ephemeral is not None and volume.ephemeral.volume_claim_template is not None
    ]


def _build_reference(pod: Pod) -> OwnerReference:
    """Return the owner reference of a claim to its pod."""
    return OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.metadata.uid, controller=True)


def _from_template(pod: Pod, template: ResourceClaimTemplate, entry: str, name: str) -> ResourceClaim:
    """Return the claim that a template creates for an ``entry`` of a pod's ``resourceClaims``."""
    template_metadata = template.spec.metadata
    return ResourceClaim(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaim",
        metadata=ObjectMeta(
            name=name,
            namespace=pod.namespace,
            uid=derived_uid("ResourceClaim", pod.namespace, name),
            labels=template_metadata.labels,
            annotations={**(template_metadata.annotations or {}), _ENTRY: entry},
            owner_references=[_build_reference(pod)],
        ),
        spec=template.spec.spec,
    )


AVAILABLE: Final = "Available"
_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_FILESYSTEM: Final = "Filesystem"
_NONE: Final = Quantity("0")


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Return whether a claim names a volume, and an annotation says that the binding is completed."""
    return bool(claim.spec.volume_name) and _COMPLETED in (claim.metadata.annotations or {})


def find_volume(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], node: Node | None = None
) -> PersistentVolume | None:
    """Return the smallest volume that a claim can be bound to, or None.

    If the claim names a volume, only that one is possible. A volume that is reserved for the claim (``claimRef``) needs
    no further match; one that is reserved for another claim is not possible. Any other volume must be available, and
    match class, mode, access modes, selector and size of the claim.

    Parameters
    ----------
    claim : PersistentVolumeClaim
    volumes : iterable of PersistentVolume
        The first of several volumes of the same size wins.
    node : Node, optional
        The node of the claim's pod, from which a volume that is not reserved must be accessible.
    """
    candidates = [volume for volume in volumes if _can_bind(claim, volume, node)]
    return min(candidates, key=lambda volume: _get_storage(volume.spec.capacity), default=None)


def bind(claim: PersistentVolumeClaim, volume: PersistentVolume) -> tuple[PersistentVolumeClaim, PersistentVolume]:
    """Return copies of the claim and the volume that are bound to each other."""
    owner = claim.metadata
    holder = ObjectReference(
        kind=claim.kind or "PersistentVolumeClaim",
        namespace=owner.namespace,
        name=owner.name,
        uid=owner.uid,
        api_version="v1",
    )
    bound_volume = replace(
        volume, spec=replace(volume.spec, claim_ref=holder), status=replace(volume.status, phase="Bound")
    )
    annotations = {**(owner.annotations or {}), _COMPLETED: "yes"}
    status = PersistentVolumeClaimStatus(
        phase="Bound", access_modes=volume.spec.access_modes, capacity=volume.spec.capacity
    )
    spec = replace(claim.spec, volume_name=volume.name)
    return replace(claim, metadata=replace(owner, annotations=annotations), spec=spec, status=status), bound_volume


def _get_storage(amounts: ResourceList | None) -> Quantity:
    """Return the storage in a list of amounts; zero if absent."""
    return (amounts or {}).get("storage", _NONE)


def _can_bind(claim: PersistentVolumeClaim, volume: PersistentVolume, node: Node | None) -> bool:
    """Check whether a claim can be bound to a volume, by the rules of :func:`find_volume`.

    ``node``: must be able to access the volume, unless the volume is reserved for the claim. None: any node.
    """
    holder, claim_spec, volume_spec = volume.spec.claim_ref, claim.spec, volume.spec
    if claim_spec.volume_name and claim_spec.volume_name != volume.name:
        return False
    if holder is not None:
        same = (holder.namespace, holder.name) == (claim.namespace, claim.name)
        return same and holder.uid in ("", claim.metadata.uid)
    reach = volume_spec.node_affinity.required if volume_spec.node_affinity else None
    return (
        volume.status.phase == AVAILABLE
        and volume_spec.storage_class_name == (claim_spec.storage_class_name or "")
        and (volume_spec.volume_mode or _FILESYSTEM) == (claim_spec.volume_mode or _FILESYSTEM)
        and set(claim_spec.access_modes) <= set(volume_spec.access_modes)
        and (claim_spec.selector is None or compile_selector(claim_spec.selector).matches(volume.metadata.labels))
        and _get_storage(volume_spec.capacity) >= _get_storage(claim_spec.resources.requests)
        and (node is None or reach is None or compile_node_selector(reach).matches(node.metadata.labels or {}, ""))
    )
