"""Pods that choose namespaces by their labels (``namespaceSelector``), which Namespace objects alone tell."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kscale.objects.api.core import PodAffinityTerm, PodSpec
from kscale.objects.api.meta import KubeObject
from kscale.objects.workloads import pod_count, spec_of
from kscale.snapshot.pods.record import FINISHED, GONE
from kscale.snapshot.snapshot import Snapshot

__all__ = ["asks_labels", "pods_in_doubt", "warning"]


def asks_labels(spec: PodSpec) -> bool:
    """Whether some required term of a pod's affinity, or anti-affinity, selects namespaces by labels."""
    affinity = spec.affinity
    if affinity is None:
        return False
    return _ask(term for each in (affinity.pod_affinity, affinity.pod_anti_affinity) if each for term in each.required)


def _ask(terms: Iterable[PodAffinityTerm]) -> bool:
    """An empty selector means every namespace, known or not."""
    selectors = (term.namespace_selector for term in terms)
    return any(each is not None and bool(each.match_labels or each.match_expressions) for each in selectors)


def pods_in_doubt(snapshot: Snapshot, workloads: Iterable[KubeObject] = ()) -> int:
    """How many pods of a snapshot that has no Namespace, and of workloads, ask for labels of namespaces."""
    if snapshot.informers.namespaces:
        return 0
    more = sum(pod_count(item) for item in workloads if asks_labels(spec_of(item)))
    asking = [pod.index for pod in snapshot.interner.classes if _ask((*pod.affinity, *pod.anti_affinity))]
    if not asking:
        return more
    table = snapshot.table
    there = ~np.isin(table.column("state"), (FINISHED, GONE))
    return more + int(np.isin(table.column("class_of")[there], asking).sum())


def warning(pods: int) -> str:
    """What is said of them."""
    choose = "1 pod chooses" if pods == 1 else f"{pods:,} pods choose"
    return f"{choose} namespaces by their labels (namespaceSelector), which are not known: no Namespace in the input"
