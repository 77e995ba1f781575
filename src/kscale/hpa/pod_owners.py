"""Whose pods an HPA counts: the selector of its target may match pods of other workloads.

Upstream counts every pod that the selector matches and names none of them; the size stays upstream's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from kscale.effects import ZERO_TIME
from kscale.errors import InputError
from kscale.hpa.metric_sources import value_target
from kscale.objects.autoscaling import ExternalMetricSource, HorizontalPodAutoscaler, ObjectMetricSource
from kscale.objects.core import Pod
from kscale.objects.decode import from_dict
from kscale.objects.kinds import group_of
from kscale.objects.meta import ObjectMeta, OwnerReference
from kscale.objects.owners import controller_of
from kscale.snapshot.pod_index import PodIndex
from kscale.snapshot.pod_moments import PHASES

__all__ = ["PodOwners", "counts_pods"]

_TEMPLATE_HASHES: Final = {"pod-template-hash": "Deployment", "rollouts-pod-template-hash": "Rollout"}
"""Labels that end the name of a pod's ReplicaSet, and the kind that makes the ReplicaSet."""
_INTERMEDIATE: Final = frozenset({"ReplicaSet", "Job"})
_LONGEST: Final = 10
"""Owners that are followed, at most: chains have two or three."""

_Owner = tuple[str, str, str]
"""(group, kind, name)."""


def counts_pods(hpa: HorizontalPodAutoscaler) -> bool:
    """Whether a metric of an HPA depends on the pods that the selector matches: all but values per pod of an API."""
    return any(not _is_per_pod(spec.object or spec.external) for spec in hpa.spec.metrics or ())


def _is_per_pod(source: ObjectMetricSource | ExternalMetricSource | None) -> bool:
    return source is not None and value_target(source)[0].endswith("per_pod")


class PodOwners:
    """Counts pods by the workload that they belong to.

    ``objects``: plain data of workloads by (group, kind, namespace, name), as far as they are known.
    """

    def __init__(self, pods: PodIndex, objects: Mapping[tuple[str, str, str, str], Mapping[str, Any]]) -> None:
        self._pods = pods
        self._objects = objects

    def count(self, hpa: HorizontalPodAutoscaler, selector: str) -> dict[str, int]:
        """Count the pods that a selector matches by owner (``Kind/name``; empty: none), the HPA's target first.

        Pods that are being deleted or have failed are left out, as upstream leaves them out.
        """
        namespace, reference = hpa.metadata.namespace, hpa.spec.scale_target_ref
        target = group_of(reference.api_version), reference.kind, reference.name
        selection = self._pods.select(namespace, selector)
        is_counted = (selection.deleted == ZERO_TIME) & (selection.phase != PHASES.index("Failed"))
        shapes, counts = np.unique(selection.shapes[is_counted], return_counts=True)
        owners: Counter[str] = Counter()
        for shape, count in zip(shapes.tolist(), counts.tolist(), strict=True):
            owners[self._owner(selection.exemplar(shape), namespace, target)] += count
        own = f"{target[1]}/{target[2]}"
        return dict(sorted(owners.items(), key=lambda item: (item[0] != own, -item[1], item[0])))

    def _owner(self, pod: Pod, namespace: str, target: _Owner) -> str:
        reference = controller_of(pod.metadata)
        shown: _Owner | None = None
        for _ in range(_LONGEST):
            if reference is None:
                break
            owner = group_of(reference.api_version), reference.kind, reference.name
            if owner == target:
                return f"{owner[1]}/{owner[2]}"
            if shown is None or shown[1] in _INTERMEDIATE:
                shown = owner
            data = self._objects.get((owner[0], owner[1], namespace, owner[2]))
            reference = _maker(pod, owner, target) if data is None else _controller(data)
        return "" if shown is None else f"{shown[1]}/{shown[2]}"


def _controller(data: Mapping[str, Any]) -> OwnerReference | None:
    references = (data.get("metadata") or {}).get("ownerReferences") or []
    try:
        return controller_of(from_dict({"ownerReferences": references}, ObjectMeta))
    except InputError:  # an object that only lends its name is not refused
        return None


def _maker(pod: Pod, owner: _Owner, target: _Owner) -> OwnerReference | None:
    """The owner of a ReplicaSet that is not in the input, by its name: ``NAME-HASH``."""
    if owner[1] != "ReplicaSet":
        return None
    for label, kind in _TEMPLATE_HASHES.items():
        name = owner[2].removesuffix(f"-{(pod.metadata.labels or {}).get(label, '')}")
        if label in (pod.metadata.labels or {}) and name != owner[2]:
            version = "argoproj.io/v1alpha1" if kind == "Rollout" else "apps/v1"
            return OwnerReference(api_version=version, kind=kind, name=name, controller=True)
    name, _, _ = owner[2].rpartition("-")
    if name == target[2] and target[1] in _TEMPLATE_HASHES.values():
        return OwnerReference(api_version=f"{target[0]}/v1", kind=target[1], name=name, controller=True)
    return None
