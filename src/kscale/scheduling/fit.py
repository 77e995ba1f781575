"""Which pods fit which nodes, each pod alone (upstream: ``CheckPredicates``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscale._native import _engine
from kscale.errors import InputError
from kscale.objects.core import Pod
from kscale.scheduling.blame import blame
from kscale.scheduling.plugins import BY_ORDINAL, PROFILE
from kscale.scheduling.plugins.base import ERROR, UNSCHEDULABLE, Plugin, Status
from kscale.scheduling.plugins.inter_pod_affinity import AFFINITY, EXISTING_ANTI_AFFINITY, OWN_ANTI_AFFINITY
from kscale.scheduling.plugins.node_ports import PORT_TAKEN
from kscale.scheduling.plugins.node_resources_fit import insufficient
from kscale.scheduling.plugins.node_volume_limits import TOO_MANY
from kscale.scheduling.plugins.pod_topology_spread import MISSING_KEY, SKEW
from kscale.scheduling.plugins.volume_restrictions import CLAIM_IN_USE, DISK_CONFLICT
from kscale.scheduling.pods import PodsLike, pods_of
from kscale.scheduling.prefilter import PreFilterReport, prefilter_report
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.session import Session
from kscale.scheduling.unmodelled import unmodelled_of
from kscale.scheduling.verdict import FAILING_PREDICATE, NO_NODES, Verdict
from kscale.snapshot.interner import PodClass
from kscale.snapshot.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["DYNAMIC_STATUSES", "FitResult", "fit"]

_USER_PREDICATE = 15

DYNAMIC_STATUSES: dict[tuple[int, int], Status] = {
    (5, 0): PORT_TAKEN,
    (7, 1): DISK_CONFLICT,
    (7, 2): CLAIM_IN_USE,
    (8, 0): TOO_MANY,
    (11, 1): SKEW,
    (11, 2): MISSING_KEY,
    (12, 1): AFFINITY,
    (12, 2): OWN_ANTI_AFFINITY,
    (12, 3): EXISTING_ANTI_AFFINITY,
}


def fit(
    snapshot: Snapshot,
    pods: PodsLike = None,
    nodes: Sequence[str] | None = None,
    *,
    profile: SchedulerProfile | None = None,
) -> FitResult:
    """Each pod alone against each node.

    ``pods``: None = the pending ones; names; or objects that are not in the snapshot. ``nodes``: names, None = all.
    """
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
        self._classes = snapshot.classify(pods)
        self.session = Session(snapshot, self._classes, profile=profile, one_by_one=True)
        self._index = {name: i for i, name in enumerate(self.pods)}
        self._running: dict[int, list[Plugin]] = {}

    @cached_property
    def codes(self) -> NDArray[np.uint32]:
        """uint32[pod classes, all nodes of the snapshot]: the Filter verdict (PreFilter failures not included)."""
        return self.session.engine.verdicts(np.arange(len({c.index for c in self._classes}), dtype=np.int32))

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
        failed = np.array([o.failure is not None for o in self.session.outcomes[: len(self.codes)]], dtype=bool)
        ok: NDArray[np.bool_] = (self.codes == 0) & ~failed[:, None]
        return ok

    @property
    def ok(self) -> NDArray[np.bool_]:
        """bool[pods, nodes], expanded from the verdicts of the classes."""
        result: NDArray[np.bool_] = self.class_ok[self.class_of][:, self.node_numbers]
        return result

    @cached_property
    def unmodelled(self) -> list[str]:
        """What pods use that no rule here looks at; empty = everything was taken into account."""
        return unmodelled_of(self.session)

    # -- one pod -----------------------------------------------------------------------------------------------------

    def _pod(self, pod: str | Pod) -> tuple[str, PodClass, int]:
        name = pod.key if isinstance(pod, Pod) else pod
        try:
            pod_class = self._classes[self._index[name]]
        except KeyError:
            raise InputError(f"pod {name!r} is not part of this result") from None
        return name, pod_class, self.session.number[pod_class.index]

    def _node(self, node: str) -> int:
        try:
            return self.snapshot.columns.index[node]
        except KeyError:
            raise InputError(f"no node {node!r} in the snapshot") from None

    def prefilter(self, pod: str | Pod) -> PreFilterReport:
        """Every PreFilter on its own: skipped plug-ins, failures, node sets."""
        _, pod_class, _ = self._pod(pod)
        return prefilter_report(pod_class, self.session.ctx)

    def verdict(self, pod: str | Pod, node: str) -> Verdict:
        """The first failing plug-in, where upstream stops, with its texts."""
        name, pod_class, number = self._pod(pod)
        n = self._node(node)
        outcome = self.session.outcomes[number]
        if outcome.failure is not None:
            return self._prefilter_failed(name, number, node)
        code = self.session.engine.check(number, n)
        if code == 0:
            return Verdict(pod=name, node=node, ok=True)
        if code == _engine.FILTERED:
            return Verdict(
                pod=name,
                node=node,
                ok=False,
                type=FAILING_PREDICATE,
                plugin=", ".join(sorted(outcome.choosers)),
                code="UnschedulableAndUnresolvable",
                unexpected="PreFilter filtered the Node out",
            )
        if code & 0xFF == _USER_PREDICATE:
            predicate = self.session.profile.predicates[code >> 8]
            return Verdict(
                pod=name,
                node=node,
                ok=False,
                type=FAILING_PREDICATE,
                plugin=predicate.name,
                code=UNSCHEDULABLE,
                reasons=(predicate.reason,),
                debug=f'nodeName: "{node}"',
            )
        plugin = BY_ORDINAL[code & 0xFF]
        status, numbers = self._status(plugin, code >> 8, pod_class, number, n)
        assert status is not None, plugin.name
        reasons, unexpected = status.reasons, ""
        if status.code == ERROR:
            reasons = (f'running "{plugin.name}" filter plugin: {status.reasons[0]}',)
            unexpected = f'unexpected filter status "{ERROR}"'
        return Verdict(
            pod=name,
            node=node,
            ok=False,
            type=FAILING_PREDICATE,
            plugin=plugin.name,
            code=status.code,
            reasons=reasons,
            unexpected=unexpected,
            debug=f'nodeName: "{node}"',
            numbers=numbers,
        )

    def _prefilter_failed(self, name: str, number: int, node: str = "") -> Verdict:
        outcome = self.session.outcomes[number]
        assert outcome.failure is not None
        return Verdict(
            pod=name,
            node=node,
            ok=False,
            type=FAILING_PREDICATE,
            plugin=outcome.plugin,
            code=outcome.failure.code,
            reasons=outcome.failure.reasons,
            unexpected="PreFilter failed",
        )

    def verdicts(self, pod: str | Pod, node: str) -> list[Verdict]:
        """Every failing Filter on its own, in profile order, with numbers. PreFilter node sets are not applied; a
        plug-in whose PreFilter skipped or failed is left out."""
        name, pod_class, number = self._pod(pod)
        n = self._node(node)
        found = []
        dynamic = self.session.engine.dynamic(number, n)
        for plugin in self._filters(pod_class):
            detail, _ = dynamic.get(plugin.ordinal, (-1, -1))
            status, numbers = self._status(plugin, detail, pod_class, number, n)
            if status is not None:
                found.append(
                    Verdict(
                        pod=name,
                        node=node,
                        ok=False,
                        type=FAILING_PREDICATE,
                        plugin=plugin.name,
                        code=status.code,
                        reasons=status.reasons,
                        numbers=numbers,
                    )
                )
        return found

    def _filters(self, pod: PodClass) -> list[Plugin]:
        """The plug-ins whose Filter runs for a class: not disabled, and their PreFilter neither skipped nor failed."""
        found = self._running.get(pod.index)
        if found is None:
            answers = [(plugin, plugin.prefilter(pod, self.session.ctx)) for plugin in PROFILE]
            found = self._running[pod.index] = [
                plugin
                for plugin, answer in answers
                if plugin.name not in self.session.profile.disabled_filters
                and not answer.skip
                and answer.failure is None
            ]
        return found

    def _status(
        self, plugin: Plugin, detail: int, pod: PodClass, number: int, node: int
    ) -> tuple[Status | None, tuple[dict[str, Any], ...]]:
        if plugin.name == "NodeResourcesFit":
            free, slots = self.session.free_on(node)
            allocatable = {
                resource: int(column[node]) for resource, column in self.snapshot.columns.allocatable.items()
            }
            status, short = insufficient(self.session.demand(number, allocatable), free, allocatable, slots)
            return status, tuple({"resource": name, "asked": asked, "free": have} for name, asked, have in short)
        status = plugin.check(pod, self.session.classes.facts(node), self.session.ctx)
        if status is not None and plugin.name == "DynamicResources" and status.code != ERROR:
            return status, blame(self.session, plugin.ordinal, detail, -1, pod, node)
        if status is None:
            status = DYNAMIC_STATUSES.get((plugin.ordinal, detail))
            _, which = self.session.engine.dynamic(number, node).get(plugin.ordinal, (-1, -1))
            return status, blame(self.session, plugin.ordinal, detail, which, pod, node) if status else ()
        return status, ()

    def any_node(self, pod: str | Pod, *, cursor: int = 0) -> Verdict:
        """The first node that takes the pod, round robin from behind ``cursor``; cordoned nodes are passed over
        (upstream: ``SchedulePodOnAnyNodeMatching``). The result's ``node`` is the one found."""
        name, _, number = self._pod(pod)
        if self.session.outcomes[number].failure is not None:
            return self._prefilter_failed(name, number)
        engine = self.session.engine
        engine.cursor = cursor
        found = engine.any_node(number)
        if found < 0:
            return Verdict(pod=name, ok=False, type=NO_NODES)
        return Verdict(pod=name, ok=True, node=self.snapshot.nodes[found])
