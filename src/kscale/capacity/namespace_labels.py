"""Finds pods that select namespaces by labels (``namespaceSelector``), which only Namespace objects provide."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kscale.objects.api.core import PodAffinityTerm, PodSpec
from kscale.objects.api.meta import KubeObject
from kscale.objects.workloads import pod_count, spec_of
from kscale.snapshot.pod_states import FINISHED, REMOVED
from kscale.snapshot.snapshot import Snapshot

__all__ = ["pods_in_doubt", "selects_by_labels", "warning"]


def selects_by_labels(spec: PodSpec) -> bool:
    """Check whether a required term of a pod's (anti-)affinity selects namespaces by labels."""
    affinity = spec.affinity
    if affinity is None:
        return False
    return _select_by_labels(
        term
        for pod_affinity in (affinity.pod_affinity, affinity.pod_anti_affinity)
        if pod_affinity
        for term in pod_affinity.required
    )


def _select_by_labels(terms: Iterable[PodAffinityTerm]) -> bool:
    """Check whether a term has a namespace selector; an empty one matches every namespace and does not count."""
    selectors = (term.namespace_selector for term in terms)
    return any(item is not None and bool(item.match_labels or item.match_expressions) for item in selectors)


def pods_in_doubt(snapshot: Snapshot, workloads: Iterable[KubeObject] = ()) -> int:
    """Count the pods, of the snapshot and of workloads, that select namespaces by labels.

    Returns 0 if the snapshot has Namespace objects.
    """
    if snapshot.informers.namespaces:
        return 0
    more = sum(pod_count(item) for item in workloads if selects_by_labels(spec_of(item)))
    affected_classes = [
        pod.index for pod in snapshot.interner.classes if _select_by_labels((*pod.affinity, *pod.anti_affinity))
    ]
    if not affected_classes:
        return more
    table = snapshot.table
    is_present = ~np.isin(table.columns["state"], (FINISHED, REMOVED))
    return more + int(np.isin(table.columns["class_of"][is_present], affected_classes).sum())


def warning(pods: int) -> str:
    """Return the warning about such pods."""
    choose = "1 pod chooses" if pods == 1 else f"{pods:,} pods choose"
    return f"{choose} namespaces by their labels (namespaceSelector), which are not known: no Namespace in the input"
