"""``kscale.fit``: checks which pods fit which nodes, each pod alone.

Upstream: ``simulator/clustersnapshot/predicate/predicate_snapshot.go`` (CheckPredicates).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError
from kscale.objects.api.core import Node, Pod
from kscale.objects.argument_types import typed, typed_methods
from kscale.objects.kinds import DEFAULT_NAMESPACE
from kscale.records import Result, Rows
from kscale.scheduling.coercion import PodsLike, SnapshotLike, inputs_of, pods_of, record_of, short
from kscale.scheduling.compile.pod_classes import PreFilterReport
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.session import Session
from kscale.scheduling.status import FAILING_PREDICATE, FILTERED_OUT, NO_NODES, PREFILTER_FAILED, Verdict, fit_error
from kscale.snapshot.caches import collector_paused
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["FitResult", "fit"]


@typed
def fit(
    snapshot: SnapshotLike,
    pods: PodsLike = None,
    nodes: Sequence[str] | None = None,
    *,
    profile: SchedulerProfile | None = None,
) -> FitResult:
    """Check each pod alone against each node.

    Parameters
    ----------
    snapshot : Snapshot or Cluster
        Cluster state. A Cluster is snapshotted first.
    pods : sequence of str, Pod, dict or client object; or manifests, optional
        Names of pods, or pods that are not in the snapshot. Default: the snapshot's pending pods. With a Cluster also
        Deployments and other workloads, see Examples.
    nodes : sequence of str, optional
        Names of nodes. Default: all nodes.
    profile : SchedulerProfile, optional
        Scheduler profile. Default: upstream's default profile.

    Returns
    -------
    FitResult
        Verdicts by pod and node, computed on demand.

    Raises
    ------
    InputError
        If a pod cannot be read or is named twice, or a named pod or node is not in the snapshot.

    Examples
    --------
    A workload is passed as an object, as a path or as the text of manifests, alone or in a list with the objects that
    come with it. It is applied to a copy of the cluster as :func:`kscale.apply_manifests` does. ``place``,
    ``estimate`` and ``estimate_many`` take the same.

    >>> import kscale
    >>> amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    >>> node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": amounts}}
    >>> container = {"name": "app", "resources": {"requests": {"cpu": "3"}}}
    >>> template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    >>> spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    >>> web = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    >>> cluster = kscale.load(node)
    >>> kscale.fit(cluster, web)
    <FitResult: 3 of 3 pods fit some node; 1 nodes>
    >>> kscale.place(cluster, web)
    <PlaceResult: 1 of 3 pods placed on 1 nodes, 2 fit nowhere>
    >>> kscale.estimate(cluster, web, template=node)
    <EstimateResult: 3 nodes like n for 3 pods>
    """
    snapshot, pods = inputs_of(snapshot, pods)
    if isinstance(nodes, str):
        raise InputError(f"nodes is {short(nodes)}: give a list of node names")
    with collector_paused():
        checked_pods = pods_of(snapshot, pods)
    if nodes is not None:
        unknown = [name for name in nodes if name not in snapshot.columns.index]
        if unknown:
            raise InputError(f"no node {unknown[0]!r} in the snapshot")
    return FitResult(snapshot, checked_pods, list(snapshot.nodes if nodes is None else nodes), profile)


@typed_methods(late=True)
class FitResult(Result):
    """Verdicts by pod and node. ``pods``, ``nodes``: their names, in order.

    Each pod is checked alone: the result places nothing.
    """

    def __init__(
        self, snapshot: Snapshot, pods: Sequence[PodRecord], nodes: list[str], profile: SchedulerProfile | None
    ) -> None:
        self.snapshot = snapshot
        self.nodes = nodes
        self.pods = [pod.key for pod in pods]
        self._made_of = snapshot, pods, nodes, profile
        with collector_paused():
            self._classes = snapshot.classify(pods)
            self.session = Session(snapshot, self._classes, profile=profile, one_by_one=True)
        self._index = {name: i for i, name in enumerate(self.pods)}

    def __reduce__(self) -> tuple[type[FitResult], tuple[Any, ...]]:
        return FitResult, self._made_of  # recomputed after unpickling

    def __repr__(self) -> str:
        fit = (
            f"{np.count_nonzero(self._node_counts)} of {len(self.pods)} pods fit some node" if self.pods else "no pods"
        )
        return f"<FitResult: {fit}; {len(self.nodes)} nodes>"

    def table_rows(self) -> Rows:
        """Return one row per pod: its name and the number of nodes that it fits."""
        counts = self._node_counts.tolist()
        return Rows({"pod": str, "nodes": int}, list(zip(self.pods, counts, strict=True)))

    @cached_property
    def codes(self) -> NDArray[np.uint16]:
        """Return the engine's verdict on each class of the checked pods and each node: uint16[pod classes, nodes].

        0: the pod fits; otherwise the code of the first plug-in that fails. :attr:`class_of` has the row of each pod.
        The columns are all nodes of the snapshot (:attr:`node_numbers`).
        """
        return self.session.engine.verdicts(np.arange(self.session.checked_count, dtype=np.int32))

    @cached_property
    def class_of(self) -> NDArray[np.int32]:
        """Return the row of ``codes`` for each pod: int32[pods]."""
        return self.session.classes_of(self._classes)

    @cached_property
    def node_numbers(self) -> NDArray[np.int64]:
        """Return the index of each of ``nodes`` in the columns of ``codes``: int64[nodes]."""
        return np.array([self.snapshot.columns.index[name] for name in self.nodes], dtype=np.int64)

    @cached_property
    def class_ok(self) -> NDArray[np.bool_]:
        """Return whether each pod class fits each node of the snapshot: bool[pod classes, nodes of the snapshot]."""
        ok: NDArray[np.bool_] = self.codes == 0
        return ok

    @property
    def ok(self) -> NDArray[np.bool_]:
        """Return bool[pods, nodes]: whether each pod fits each node, expanded from the pod classes."""
        result: NDArray[np.bool_] = self.class_ok[self.class_of][:, self.node_numbers]
        return result

    @property
    def _node_counts(self) -> NDArray[np.int64]:
        """Return how many of the nodes each pod fits: int64[pods]."""
        counts: NDArray[np.int64] = np.count_nonzero(self.class_ok[:, self.node_numbers], axis=1)[self.class_of]
        return counts

    @cached_property
    def unschedulable(self) -> list[str]:
        """Return the names of the pods that fit none of the nodes."""
        return [self.pods[i] for i in np.flatnonzero(self._node_counts == 0).tolist()]

    @cached_property
    def unmodelled(self) -> list[str]:
        """Return short texts about features that pods use and no rule considers; empty if there are none."""
        return self.session.unmodelled

    # -- one pod -----------------------------------------------------------------------------------------------------

    def _pod(self, pod: str | Pod | dict[str, Any]) -> tuple[str, int]:
        """Return the pod's name and the session number of its class.

        A pod without a namespace is in ``default``. Raises InputError if the pod is not part of this result.
        """
        name = pod if isinstance(pod, str) else record_of(pod).key
        if "/" not in name:
            name = f"{DEFAULT_NAMESPACE}/{name}"
        try:
            pod_class = self._classes[self._index[name]]
        except KeyError:
            raise InputError(f"pod {name!r} is not part of this result") from None
        return name, self.session.number(pod_class)

    def _node(self, node: str | Node) -> tuple[str, int]:
        """Return the node's name and position in the snapshot. Raises InputError if the snapshot has no such node."""
        if not isinstance(node, (str, Node)):
            raise InputError(f"a node is {short(node)}, not a node's name or a Node")
        name = node if isinstance(node, str) else node.name
        try:
            return name, self.snapshot.columns.index[name]
        except KeyError:
            raise InputError(f"no node {name!r} in the snapshot") from None

    def prefilter(self, pod: str | Pod | dict[str, Any]) -> PreFilterReport:
        """Return the result of every PreFilter, each run separately: skipped plug-ins, failures and node sets.

        Raises InputError if the pod is not part of this result.
        """
        return self.session.prefilter(self._pod(pod)[1])

    def verdict(self, pod: str | Pod | dict[str, Any], node: str | Node) -> Verdict:
        """Return the verdict on a pod and a node, with texts: the first failing plug-in, where upstream stops.

        Raises InputError if the pod is not part of this result, or the snapshot has no such node.
        """
        name, number = self._pod(pod)
        node_name, row = self._node(node)
        verdict = self.session.verdict(number, row)
        by_filter = verdict.type == FAILING_PREDICATE and verdict.unexpected not in (FILTERED_OUT, PREFILTER_FAILED)
        debug = f'nodeName: "{node_name}"' if by_filter else ""
        return msgspec.structs.replace(verdict, pod=name, node=node_name, debug=debug)

    def verdicts(self, pod: str | Pod | dict[str, Any], node: str | Node) -> list[Verdict]:
        """Return a verdict for each failing Filter, each run separately, in profile order, with the compared values.

        Empty if all pass. PreFilter node sets are not applied. A plug-in whose PreFilter skipped or failed is left out.
        Raises InputError if the pod is not part of this result, or the snapshot has no such node.
        """
        name, number = self._pod(pod)
        node_name, row = self._node(node)
        verdicts = self.session.verdicts(number, row)
        return [msgspec.structs.replace(failure, pod=name, node=node_name) for failure in verdicts]

    def explain(self, pod: str | Pod | dict[str, Any]) -> str:
        """Return which of the nodes a pod fits, or why the pod fits none, in one line.

        The reasons have the form of kube-scheduler's FailedScheduling event. Raises InputError if the pod is not part
        of this result.
        """
        name, _ = self._pod(pod)
        verdicts = [self.verdict(name, node) for node in self.nodes]
        fitting = [verdict.node for verdict in verdicts if verdict.ok]
        if fitting:
            more = f" and {len(fitting) - 1:,} more" if len(fitting) > 1 else ""
            return f"fits {fitting[0]}{more} of {len(self.nodes):,} nodes"
        failure = next((", ".join(each.reasons) for each in verdicts if each.unexpected == PREFILTER_FAILED), "")
        reasons = Counter(reason for verdict in verdicts for reason in verdict.why)
        return fit_error(reasons, len(self.nodes), failure)

    def any_node(self, pod: str | Pod | dict[str, Any], *, cursor: int = 0) -> Verdict:
        """Return a verdict that names the first node that the pod fits, round robin from the node after ``cursor`` on.

        All nodes of the snapshot are tried, not only :attr:`nodes`; cordoned ones are skipped. If no node fits, ``ok``
        is False and no node is named. Raises InputError if the pod is not part of this result. Upstream:
        ``SchedulePodOnAnyNodeMatching``.
        """
        name, number = self._pod(pod)
        if self.session.fails_prefilter(number):
            return msgspec.structs.replace(self.session.failed_everywhere(number), pod=name)
        engine = self.session.engine
        engine.cursor = cursor
        node = engine.any_node(number)
        if node < 0:
            return Verdict(pod=name, ok=False, type=NO_NODES)
        return Verdict(pod=name, ok=True, node=self.snapshot.nodes[node])
