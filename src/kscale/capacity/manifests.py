"""A cluster with manifests that are not in it yet, as if they had been applied and nothing had been scheduled since."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from kscale.capacity.fit import check_count
from kscale.errors import InputError, Problem
from kscale.objects.apps import DaemonSet
from kscale.objects.core import Pod
from kscale.objects.meta import KubeObject
from kscale.objects.pod_defaults import PodClasses, with_defaults
from kscale.objects.storage import default_storage_class
from kscale.objects.workloads import claims_of, pods_of
from kscale.snapshot.cluster import Cluster

__all__ = ["with_manifests"]

_COMPLETING = ("PriorityClass", "RuntimeClass", "LimitRange")


def with_manifests(cluster: Cluster, workloads: Iterable[KubeObject]) -> tuple[Cluster, list[str]]:
    """A copy of the cluster with the pods of workloads, pending, and the names of these pods.

    Pods are as the API server would store them, with the cluster's priority classes, runtime classes and limit ranges;
    a StatefulSet's claims are made; a DaemonSet is added itself: its pods come with new nodes. What is in the cluster
    already by the same name is replaced. Raises InputError for pods that admission would refuse and for too many.
    """
    made = cluster.copy()
    classes = PodClasses.of(item for kind in _COMPLETING for item in cluster.all(kind))
    default = default_storage_class(cluster.all("StorageClass"))
    names: dict[str, None] = {}
    problems: list[Problem] = []
    for workload in workloads:
        namespace = workload.namespace or "default"
        if isinstance(workload, DaemonSet):
            made.apply(workload)
            continue
        check_count(workload)
        for claim in claims_of(workload, default):
            made.apply(claim)
        for pod in pods_of(workload, classes=classes):
            plugin, message = classes.refusal(pod.spec, namespace)
            if message:
                kind = workload.kind or type(workload).__name__
                problems.append(Problem(f"{plugin} would refuse its pods: {message}", object=f"{kind} {workload.key}"))
                break
            if isinstance(workload, Pod):
                spec = with_defaults(pod.spec, pod.metadata.labels, classes, namespace)
                pod = replace(pod, spec=replace(spec, node_name=""))
            made.apply(pod)
            names[pod.key] = None
    if problems:
        raise InputError(problems)
    return made, list(names)
