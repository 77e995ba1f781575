"""Reads manifests and applies them to a cluster; their pods are pending."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from kscale.errors import InputError, Problem
from kscale.objects.api.apps import DaemonSet
from kscale.objects.api.core import Namespace, Node, Pod
from kscale.objects.api.meta import CustomWorkload, KubeObject
from kscale.objects.api.policy import ResourceQuota
from kscale.objects.api.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeStatus,
    StorageClass,
    default_storage_class,
)
from kscale.objects.argument_types import typed
from kscale.objects.kinds import DEFAULT_NAMESPACE, custom_kind_key, group_of, is_custom_group
from kscale.objects.pod_admission import COMPLETING_KINDS, PodClasses, with_defaults
from kscale.objects.pod_resources import CPU, MEMORY
from kscale.objects.workloads import (
    AVAILABLE,
    WORKLOADS,
    bind,
    claims_of,
    create_claims,
    derived_uid,
    find_volume,
    is_bound,
    needs_claims,
    pod_count,
    pods_of,
    spec_of,
)
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.loading import LoadReport, load_objects

__all__ = [
    "MAX_REPLICAS",
    "AppliedManifests",
    "Manifests",
    "apply_manifests",
    "check_count",
    "completing_classes",
    "find_object",
    "read_manifests",
    "with_manifests",
    "with_objects",
]

_WAITS: Final = "WaitForFirstConsumer"
MAX_REPLICAS: Final = 5_000_000
"""Maximum number of pods that one workload may create."""


class Manifests(msgspec.Struct, frozen=True):
    """The objects of manifests: workloads, other objects, and the report of reading."""

    workloads: list[KubeObject]
    """Pods, Deployments and other objects that make pods, in order."""
    objects: list[KubeObject]
    """All other objects of kinds that kscale reads, in order: claims, classes, namespaces, ..."""
    report: LoadReport
    """Objects that were read or left out."""

    @property
    def custom_resources(self) -> list[str]:
        """Return the kinds of custom resources with their numbers, such as ``2 Kafka.kafka.strimzi.io``."""
        counts = {kind: count for kind, count in self.report.skipped.items() if is_custom_group(kind.partition(".")[2])}
        workloads = Counter(
            custom_kind_key(group_of(item.api_version), item.kind)
            for item in self.objects
            if isinstance(item, CustomWorkload)
        )
        return [f"{count:,} {kind}" for kind, count in (*counts.items(), *workloads.items())]

    def list_unmodelled(self, cluster: Cluster) -> list[str]:
        """Return a line for each custom resource, and for each ResourceQuota that may limit the workloads' pods.

        Results about the workloads do not take these into account. ``cluster`` includes the objects of the manifests.
        """
        namespaces = {item.namespace or DEFAULT_NAMESPACE for item in self.workloads}
        quotas = [
            f"ResourceQuota {item.key}"
            for item in cluster.all("ResourceQuota")
            if item.namespace in namespaces and _limits_pods(item)
        ]
        return [
            *(f"{item} (custom resource: which pods it makes is not known)" for item in self.custom_resources),
            *(f"{quota} (whether its namespace may create the pods)" for quota in quotas),
        ]

    def unknown_classes(self, classes: PodClasses) -> list[str]:
        """Return the names of priority and runtime classes that the workloads use and ``classes`` does not have."""
        names = [name for workload in self.workloads for name in classes.unknown(spec_of(workload))]
        return list(dict.fromkeys(names))


def _limits_pods(quota: ResourceQuota) -> bool:
    """Return whether a quota limits the number of pods, or the resources that pods request."""
    names = {**(quota.spec.hard or {}), **(quota.status.hard or {})}
    return any(
        name in ("pods", "count/pods", CPU, MEMORY, "ephemeral-storage")
        or (name.startswith(("requests.", "limits.", "hugepages-")) and name != "requests.storage")
        for name in names
    )


def read_manifests(*sources: Any, namespace: str = DEFAULT_NAMESPACE) -> Manifests:
    """Read manifests (paths, ``-``, or data). The last of several objects with one kind and name counts.

    Parameters
    ----------
    *sources : path, bytes or data
        What :func:`kscale.load` takes. Documents of kinds that kscale does not read are counted in ``report``.
    namespace : str
        The namespace of objects that name none.

    Raises
    ------
    InputError
        If a source or an object cannot be read, or nothing in the sources makes pods.
    """
    report = LoadReport()
    # The last object of a name wins, as it does when the manifests are applied; the report warns of the others.
    named: dict[tuple[str, str] | int, KubeObject] = {}
    for i, item in enumerate(load_objects(*sources, namespace=namespace, report=report)):
        named[(_kind(item.obj), item.obj.key) if item.obj.name else i] = item.obj
    loaded = [*named.values()]
    workloads = [item for item in loaded if _kind(item) in WORKLOADS]
    manifests = Manifests(workloads, [item for item in loaded if _kind(item) not in WORKLOADS], report)
    if not workloads:
        source_names = ", ".join(str(source) for source in sources if isinstance(source, str))
        others = [f"{count:,} {kind}" for kind, count in (*report.read.items(), *report.skipped.items())]
        message = f"holds none of {', '.join(WORKLOADS)}"
        if others:
            message += f", but {', '.join(others)}"
        if manifests.custom_resources:
            message += "; which pods a custom resource makes is not known"
        raise InputError(Problem(message, source_names))
    return manifests


def _kind(item: KubeObject) -> str:
    """Return the object's kind, or the name of its class if the kind is empty."""
    return item.kind or type(item).__name__


def completing_classes(cluster: Cluster) -> PodClasses:
    """Return the cluster's objects from which admission fills in fields of new pods, such as PriorityClasses."""
    return PodClasses.of(item for kind in COMPLETING_KINDS for item in cluster.all(kind))


def with_objects(cluster: Cluster, objects: Sequence[KubeObject]) -> Cluster:
    """Return a copy of the cluster as if the objects had been applied to it; without objects, the cluster itself.

    An object replaces an existing object of the same kind and name. UID and status of the existing object are kept if
    the new one has none. New objects get the API server's defaults. All unbound claims of the cluster get the default
    storage class, and are bound to suitable volumes, unless their storage class waits for the first pod.
    """
    if not objects:
        return cluster
    applied = cluster.copy()
    for item in objects:
        existing = find_object(applied, item)
        applied.apply(_apply_api_defaults(item if existing is None else _on_top_of(item, existing)))
    default = default_storage_class(applied.all("StorageClass"))
    for claim in list(applied.all("PersistentVolumeClaim")):
        if claim.spec.storage_class_name is None and default is not None and not claim.spec.volume_name:
            applied.apply(replace(claim, spec=replace(claim.spec, storage_class_name=default)))
    _bind_claims(applied)
    return applied


def find_object(cluster: Cluster, item: KubeObject) -> KubeObject | None:
    """Return the cluster's object of the same kind and name; None if there is none."""
    if isinstance(item, Node):
        return next((node for node in cluster.nodes() if node.name == item.name), None)
    return cluster.objects.get(_kind(item), {}).get(item.key)


def _on_top_of(item: KubeObject, known: KubeObject) -> KubeObject:
    """Return ``item`` as `kubectl apply` stores it if the object ``known`` exists already."""
    annotations = {**(known.metadata.annotations or {}), **(item.metadata.annotations or {})}
    metadata = replace(
        item.metadata,
        uid=item.metadata.uid or known.metadata.uid,
        creation_timestamp=item.metadata.creation_timestamp or known.metadata.creation_timestamp,
        annotations=annotations or None,
        owner_references=item.metadata.owner_references or known.metadata.owner_references,
    )
    item = replace(item, metadata=metadata)
    new, old = cast(Any, item), cast(Any, known)  # not every kind has a status
    if "status" in item.__struct_fields__ and new.status == type(new)().status:
        item = replace(item, status=old.status)
    if isinstance(item, PersistentVolumeClaim) and isinstance(known, PersistentVolumeClaim):
        spec = replace(
            item.spec,
            volume_name=item.spec.volume_name or known.spec.volume_name,
            storage_class_name=item.spec.storage_class_name
            if item.spec.storage_class_name is not None
            else known.spec.storage_class_name,
        )
        item = replace(item, spec=spec)
    if isinstance(item, PersistentVolume) and isinstance(known, PersistentVolume) and item.spec.claim_ref is None:
        item = replace(item, spec=replace(item.spec, claim_ref=known.spec.claim_ref))
    return item


def _apply_api_defaults(item: KubeObject) -> KubeObject:
    """Return a new object with those of the API server's defaults that decisions read."""
    if not item.metadata.uid:
        uid = derived_uid(_kind(item), item.namespace, item.name)
        item = replace(item, metadata=replace(item.metadata, uid=uid))
    if isinstance(item, Namespace):
        labels = {**(item.metadata.labels or {}), "kubernetes.io/metadata.name": item.name}
        return replace(item, metadata=replace(item.metadata, labels=labels))
    if isinstance(item, StorageClass) and not item.volume_binding_mode:
        return replace(item, volume_binding_mode="Immediate")
    if isinstance(item, PersistentVolumeClaim) and not item.status.phase:
        return replace(item, status=replace(item.status, phase="Pending"))
    if isinstance(item, PersistentVolume) and not item.status.phase:
        return replace(item, status=PersistentVolumeStatus(phase=AVAILABLE))
    return item


def _bind_claims(cluster: Cluster) -> None:
    """Bind unbound claims of ``cluster`` to suitable volumes, as the volume controller does; modifies ``cluster``.

    Claims whose storage class waits for the first pod are left unbound.
    """
    waiting = {item.name for item in cluster.all("StorageClass") if item.volume_binding_mode == _WAITS}
    for claim in list(cluster.all("PersistentVolumeClaim")):
        if is_bound(claim) or (claim.spec.storage_class_name in waiting and not claim.spec.volume_name):
            continue
        volume = find_volume(claim, cluster.all("PersistentVolume"))
        if volume is not None:
            bound_claim, bound_volume = bind(claim, volume)
            cluster.apply(bound_volume)
            cluster.apply(bound_claim)


def with_manifests(cluster: Cluster, workloads: Iterable[KubeObject]) -> tuple[Cluster, list[str]]:
    """Return (copy of the cluster with the workloads' pods as pending pods, names of these pods).

    Pods are as the API server would store them, with the cluster's priority classes, runtime classes and limit ranges.
    Claims of StatefulSets and from pods' templates are created, unless they exist. A DaemonSet itself is added: its
    pods come with new nodes. Existing pods and DaemonSets of the same name are replaced. Raises InputError for pods
    that admission would refuse and for too many pods.
    """
    result = cluster.copy()
    classes = completing_classes(cluster)
    default = default_storage_class(cluster.all("StorageClass"))
    names: dict[str, None] = {}
    problems: list[Problem] = []
    for workload in workloads:
        namespace = workload.namespace or "default"
        if isinstance(workload, DaemonSet):
            result.apply(workload)
            continue
        check_count(workload)
        _create(result, claims_of(workload, default))
        for pod in pods_of(workload, classes=classes):
            plugin, message = classes.refusal(pod.spec, namespace)
            if message:
                kind = workload.kind or type(workload).__name__
                problems.append(Problem(f"{plugin} would refuse its pods: {message}", object=f"{kind} {workload.key}"))
                break
            if isinstance(workload, Pod):
                spec = with_defaults(pod.spec, pod.metadata.labels, classes, namespace)
                pod = replace(pod, spec=replace(spec, node_name=""))
            if needs_claims(pod.spec):
                created = create_claims(pod, classes.claim_templates, default)
                pod = created.pod
                _create(result, (*created.resource_claims, *created.volume_claims))
            result.apply(pod)
            names[pod.key] = None
    if problems:
        raise InputError(problems)
    return result, list(names)


def check_count(workload: KubeObject) -> None:
    """Raise InputError for a workload of more than :data:`MAX_REPLICAS` pods."""
    count = pod_count(workload)
    if count > MAX_REPLICAS:
        kind = workload.kind or type(workload).__name__
        field = "spec.parallelism" if kind in ("Job", "CronJob") else "spec.replicas"
        message = f"{count:,} pods are more than the {MAX_REPLICAS:,} that are tried"
        raise InputError(Problem(message, object=f"{kind} {workload.key}", field=field))


class AppliedManifests(NamedTuple):
    """A cluster after manifests were applied to it, and the pending pods that they create."""

    cluster: Cluster
    """A copy; the cluster that was passed does not change."""
    pods: list[str]
    """``namespace/name`` of each new pod, in the order of the manifests."""
    unmodelled: list[str]
    """Short texts on what an answer about these pods does not consider."""


@typed
def apply_manifests(cluster: Cluster, *sources: Any, namespace: str = DEFAULT_NAMESPACE) -> AppliedManifests:
    """Apply manifests to a copy of a cluster, as the API server and the controllers would.

    Deployments, StatefulSets, Jobs and other workloads become pending pods; their claims are created. All other
    objects, such as PriorityClasses or PersistentVolumeClaims, are added or replaced. Not in upstream.

    Parameters
    ----------
    cluster : Cluster
    *sources : path, bytes or data
        What :func:`kscale.load` takes: files, directories, dicts, objects, a ``List`` as ``helm template`` writes it.
    namespace : str
        The namespace of objects that name none.

    Returns
    -------
    AppliedManifests
        The new cluster, the names of the new pods, and what is not modelled.

    Raises
    ------
    InputError
        If a source cannot be read, contains no workload, or admission would refuse its pods.

    Examples
    --------
    >>> import kscale
    >>> amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    >>> node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": amounts}}
    >>> container = {"name": "app", "resources": {"requests": {"cpu": "3"}}}
    >>> template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    >>> spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    >>> web = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    >>> applied = kscale.apply_manifests(kscale.load(node), web)
    >>> kscale.place(applied.cluster, applied.pods)
    <PlaceResult: 1 of 3 pods placed on 1 nodes, 2 fit nowhere>
    """
    manifests = read_manifests(*sources, namespace=namespace)
    changed, pods = with_manifests(with_objects(cluster, manifests.objects), manifests.workloads)
    return AppliedManifests(changed, pods, manifests.list_unmodelled(changed))


def _create(cluster: Cluster, claims: Iterable[KubeObject]) -> None:
    """Add the claims that the cluster does not have yet. Existing claims stay as they are, as with controllers."""
    for claim in claims:
        if find_object(cluster, claim) is None:
            cluster.apply(claim)
