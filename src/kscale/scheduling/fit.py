"""``kscale.fit``: which pods fit which nodes, each pod alone.

Upstream: ``simulator/clustersnapshot/predicate/predicate_snapshot.go`` (CheckPredicates).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError
from kscale.objects.api.core import Node, Pod
from kscale.objects.argument_types import typed
from kscale.objects.kinds import DEFAULT_NAMESPACE
from kscale.scheduling.coercion import PodsLike, SnapshotLike, pods_of, record_of, short, snapshot_of
from kscale.scheduling.prefilter import PreFilterReport
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.session import Session
from kscale.scheduling.status import FAILING_PREDICATE, FILTERED_OUT, NO_NODES, PREFILTER_FAILED, Verdict
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
    """Each pod alone against each node.

    ``snapshot``: or a cluster, as it is now. ``pods``: None = the pending ones; names; or objects (structs, dicts, a
    client library's) that are not in the snapshot. ``nodes``: names, None = all. Raises InputError.
    """
    snapshot = snapshot_of(snapshot)
    if isinstance(nodes, str):
        raise InputError(f"nodes is {short(nodes)}: give a list of node names")
    with collector_paused():
        wanted = pods_of(snapshot, pods)
    if nodes is not None:
        unknown = [name for name in nodes if name not in snapshot.columns.index]
        if unknown:
            raise InputError(f"no node {unknown[0]!r} in the snapshot")
    return FitResult(snapshot, wanted, list(snapshot.nodes if nodes is None else nodes), profile)


class FitResult:
    """Verdicts by pod and node. ``pods``, ``nodes``: the names, in order."""

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
        return FitResult, self._made_of  # worked out again where it arrives

    def __repr__(self) -> str:
        fit = (
            f"{np.count_nonzero(self._node_counts)} of {len(self.pods)} pods fit some node" if self.pods else "no pods"
        )
        return f"<FitResult: {fit}; {len(self.nodes)} nodes>"

    def _repr_html_(self) -> str:
        """For a notebook."""
        from kscale.html import notebook

        rows = list(zip(self.pods, self._node_counts.tolist(), strict=True))
        return notebook.listing(repr(self), ("pod", "nodes that it fits"), rows)

    @cached_property
    def codes(self) -> NDArray[np.uint16]:
        """uint16[pod classes, all nodes of the snapshot]: 0 = fits, else the first plug-in that says no."""
        return self.session.engine.verdicts(np.arange(self.session.asked, dtype=np.int32))

    @cached_property
    def class_of(self) -> NDArray[np.int32]:
        """int32[pods]: row of ``codes`` for each pod."""
        return self.session.classes_of(self._classes)

    @cached_property
    def node_numbers(self) -> NDArray[np.int64]:
        """int64[nodes]: column of ``codes`` for each node."""
        return np.array([self.snapshot.columns.index[name] for name in self.nodes], dtype=np.int64)

    @cached_property
    def class_ok(self) -> NDArray[np.bool_]:
        """bool[pod classes, all nodes]."""
        ok: NDArray[np.bool_] = self.codes == 0
        return ok

    @property
    def ok(self) -> NDArray[np.bool_]:
        """bool[pods, nodes], expanded from the verdicts of the classes."""
        result: NDArray[np.bool_] = self.class_ok[self.class_of][:, self.node_numbers]
        return result

    @property
    def _node_counts(self) -> NDArray[np.int64]:
        """int64[pods]: how many of the nodes each pod fits."""
        found: NDArray[np.int64] = np.count_nonzero(self.class_ok[:, self.node_numbers], axis=1)[self.class_of]
        return found

    @cached_property
    def unmodelled(self) -> list[str]:
        """What pods use that no rule here looks at; empty = everything was taken into account."""
        return self.session.unmodelled

    # -- one pod -----------------------------------------------------------------------------------------------------

    def _pod(self, pod: str | Pod | dict[str, Any]) -> tuple[str, int]:
        """Return the pod's name and the number of its class. A pod without a namespace is in ``default``."""
        name = pod if isinstance(pod, str) else record_of(pod).key
        if "/" not in name:
            name = f"{DEFAULT_NAMESPACE}/{name}"
        try:
            pod_class = self._classes[self._index[name]]
        except KeyError:
            raise InputError(f"pod {name!r} is not part of this result") from None
        return name, self.session.number(pod_class)

    def _node(self, node: str | Node) -> tuple[str, int]:
        """Return the node's name and its number."""
        if not isinstance(node, (str, Node)):
            raise InputError(f"a node is {short(node)}, not a node's name or a Node")
        name = node if isinstance(node, str) else node.name
        try:
            return name, self.snapshot.columns.index[name]
        except KeyError:
            raise InputError(f"no node {name!r} in the snapshot") from None

    def prefilter(self, pod: str | Pod | dict[str, Any]) -> PreFilterReport:
        """Every PreFilter on its own: skipped plug-ins, failures, node sets."""
        return self.session.prefilter(self._pod(pod)[1])

    def verdict(self, pod: str | Pod | dict[str, Any], node: str | Node) -> Verdict:
        """The first failing plug-in, where upstream stops, with its texts."""
        name, number = self._pod(pod)
        node_name, row = self._node(node)
        verdict = self.session.verdict(number, row)
        by_filter = verdict.type == FAILING_PREDICATE and verdict.unexpected not in (FILTERED_OUT, PREFILTER_FAILED)
        debug = f'nodeName: "{node_name}"' if by_filter else ""
        return msgspec.structs.replace(verdict, pod=name, node=node_name, debug=debug)

    def verdicts(self, pod: str | Pod | dict[str, Any], node: str | Node) -> list[Verdict]:
        """Every failing Filter on its own, in profile order, with numbers. PreFilter node sets are not applied; a
        plug-in whose PreFilter skipped or failed is left out."""
        name, number = self._pod(pod)
        node_name, row = self._node(node)
        verdicts = self.session.verdicts(number, row)
        return [msgspec.structs.replace(no, pod=name, node=node_name) for no in verdicts]

    def any_node(self, pod: str | Pod | dict[str, Any], *, cursor: int = 0) -> Verdict:
        """The first node that takes the pod, round robin from behind ``cursor``; cordoned nodes are passed over
        (upstream: ``SchedulePodOnAnyNodeMatching``). The result's ``node`` is the one found."""
        name, number = self._pod(pod)
        if self.session.hopeless(number):
            return msgspec.structs.replace(self.session.failed_everywhere(number), pod=name)
        engine = self.session.engine
        engine.cursor = cursor
        found = engine.any_node(number)
        if found < 0:
            return Verdict(pod=name, ok=False, type=NO_NODES)
        return Verdict(pod=name, ok=True, node=self.snapshot.nodes[found])
