"""Selects the pods that DefaultPreemption evicts to make room for a pod of higher priority.

Differences in ties: upstream starts with a random node, kscale with the first in list order. Of nodes that rank
equally the first is taken. Pods of equal importance keep their order.

Upstream: ``pkg/scheduler/framework/plugins/defaultpreemption``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from kscale._native import _engine
from kscale.errors import InputError
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.selectors import SelectorError, SelectorIndex, compile_selector
from kscale.objects.times import ZERO_TIME, nanoseconds
from kscale.scheduling.coercion import SnapshotLike, snapshot_of
from kscale.scheduling.fit import fit
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.session import Session
from kscale.scheduling.status import UNSCHEDULABLE
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["Candidates", "Preemption", "preempt"]

_NOT_BEGUN: Final = 2**63 - 1
_OFFSET: Final = 2**31  # what upstream adds to each priority before it sums them


class Preemption(msgspec.Struct, frozen=True, kw_only=True):
    """``pod`` fits ``node`` after ``victims`` are evicted (the most important first). ``violations``: how many of these
    evictions violate a disruption budget.
    """

    pod: str
    node: str
    victims: tuple[str, ...]
    violations: int


class Candidates(NamedTuple):
    """How many candidate nodes are enough: ``least_percentage`` percent of the nodes (``minCandidateNodesPercentage``),
    but at least ``least_candidates`` (``minCandidateNodesAbsolute``).
    """

    least_percentage: int = 10
    least_candidates: int = 100


def preempt(
    snapshot: SnapshotLike,
    pod: str,
    *,
    budgets: Iterable[PodDisruptionBudget] | None = None,
    profile: SchedulerProfile | None = None,
    least_percentage: int = 10,
    least_candidates: int = 100,
) -> Preemption | None:
    """Simulate kube-scheduler's DefaultPreemption for a pending pod that fits no node.

    Parameters
    ----------
    snapshot : Snapshot or Cluster
        Cluster state. Pods that are nominated to a node count as placed there.
    pod : str
        Name of the pending pod.
    budgets : iterable of PodDisruptionBudget, optional
        Disruption budgets. Default: the snapshot's.
    profile : SchedulerProfile, optional
        Scheduler profile. Default: upstream's default profile.
    least_percentage, least_candidates : int
        Upstream's ``minCandidateNodesPercentage`` and ``minCandidateNodesAbsolute``. The search stops after so many
        candidate nodes if evicting the victims of one of them violates no budget.

    Returns
    -------
    Preemption or None
        The node and the victims. None if no eviction helps, or the pod does not preempt (``preemptionPolicy: Never``).

    Raises
    ------
    InputError
        If the pod is not a pending pod of the snapshot.
    """
    snapshot = snapshot_of(snapshot)
    record = _pending_record(snapshot, pod)
    if record.pod.spec.preemption_policy == "Never":
        return None
    fits = fit(snapshot, [pod], profile=profile)
    nodes = [index for index, name in enumerate(snapshot.nodes) if fits.verdict(pod, name).code == UNSCHEDULABLE]
    enough = min(max(len(nodes) * least_percentage // 100, least_candidates), len(nodes))
    dry_run = _DryRun(snapshot, record, _Budgets.of(snapshot, budgets), profile)
    without: list[_Candidate] = []
    against: list[_Candidate] = []
    for node in nodes:
        candidate = dry_run.on(node)
        if candidate is not None:
            (against if candidate.violations else without).append(candidate)
            if without and len(without) + len(against) >= enough:
                break
    best = min([*without, *against], key=_Candidate.rank, default=None)
    if best is None:
        return None
    victims = tuple(each.record.key for each in best.victims)
    return Preemption(pod=pod, node=snapshot.nodes[best.node], victims=victims, violations=best.violations)


def _pending_record(snapshot: Snapshot, pod: str) -> PodRecord:
    if pod not in snapshot.pending:
        raise InputError(f"no pending pod {pod!r} in the snapshot")
    return snapshot.record(pod)


class _Placed(msgspec.Struct, frozen=True, eq=False):
    """A pod that may be evicted; ``number``: the dry run session's number of its class as it runs."""

    record: PodRecord
    pod_class: PodClass
    number: int

    @property
    def importance(self) -> tuple[int, int]:
        """Return a sort key; the most important pod has the lowest (``MoreImportantPod``)."""
        return -self.record.priority, _get_start_time(self.record)


def _get_start_time(record: PodRecord) -> int:
    """Return when the pod started; a pod that has not started sorts last."""
    if record.facts is not None:
        started = record.facts.started
        return _NOT_BEGUN if started == ZERO_TIME else started
    text = record.pod.status.start_time
    return nanoseconds(text) if text else _NOT_BEGUN


class _Candidate(msgspec.Struct, frozen=True):
    """A node and its victims, at least one."""

    node: int
    victims: Sequence[_Placed]
    violations: int

    def rank(self) -> tuple[int, int, int, int, int]:
        """Return a sort key; the candidate with the lowest is taken (``pickOneNodeForPreemption``)."""
        pods = [each.record for each in self.victims]
        highest = pods[0].priority
        return (
            self.violations,
            highest,
            sum(each.priority + _OFFSET for each in pods),
            len(pods),
            -min(_get_start_time(each) for each in pods if each.priority == highest),
        )


class _DryRun:
    """Simulates evictions, one node after the other (``SelectVictimsOnNode``). Pods are removed and put back by
    class.
    """

    def __init__(
        self, snapshot: Snapshot, record: PodRecord, budgets: _Budgets, profile: SchedulerProfile | None
    ) -> None:
        self._snapshot, self._budgets = snapshot, budgets
        [coming] = snapshot.classify([record])
        self._session = Session(snapshot, [coming], profile=profile, present=snapshot.placed_classes)
        self._coming = self._session.number(coming)
        lower = np.flatnonzero(snapshot.placed.priorities < record.priority)
        self._lower = lower[np.argsort(snapshot.placed_node[lower], kind="stable")]
        self._begins = np.searchsorted(snapshot.placed_node[self._lower], np.arange(len(snapshot.nodes) + 1))

    def on(self, node: int) -> _Candidate | None:
        """Return a node's candidate with its victims; None if evictions there do not help or are not needed."""
        lower, engine = self._less_important(node), self._session.engine
        if not lower:
            return None
        engine.fork()
        try:
            for each in lower:
                engine.unplace(each.number, node)
            if not self._fits_on(node):
                return None
            violating, others = self._budgets.split(lower)
            against = [each for each in violating if not self._stays(each, node)]
            evicted = {*against, *(each for each in others if not self._stays(each, node))}
        finally:
            engine.revert()
        victims = [each for each in lower if each in evicted]
        return _Candidate(node, victims, len(against)) if victims else None

    def _less_important(self, node: int) -> list[_Placed]:
        """Return the pods of a lower priority on a node, the most important first."""
        snapshot, pods = self._snapshot, []
        for row in self._lower[self._begins[node] : self._begins[node + 1]].tolist():
            pod_class = snapshot.interner.classes[snapshot.placed_class[row]]
            pods.append(_Placed(snapshot.placed[row], pod_class, self._session.number(pod_class)))
        return sorted(pods, key=lambda each: each.importance)

    def _fits_on(self, node: int) -> bool:
        """Check whether the preemptor fits on a node now."""
        return self._session.engine.check(self._coming, node) == _engine.FITS

    def _stays(self, pod: _Placed, node: int) -> bool:
        """Check whether an evicted pod fits beside the preemptor.

        If so it is placed again. Otherwise the state is unchanged.
        """
        self._session.engine.place(pod.number, node)
        if self._fits_on(node):
            return True
        self._session.engine.unplace(pod.number, node)
        return False


class _Budgets:
    """Remaining disruptions allowed by each budget."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._budgets = list(budgets)
        self._index: SelectorIndex[int] = SelectorIndex()
        self._known: dict[int, list[int]] = {}
        for i, each in enumerate(self._budgets):
            try:
                selector = compile_selector(each.spec.selector)
            except SelectorError:
                continue  # an invalid selector selects nothing
            if selector.requirements:
                self._index.add(each.metadata.namespace, selector, i)

    @classmethod
    def of(cls, snapshot: Snapshot, budgets: Iterable[PodDisruptionBudget] | None) -> _Budgets:
        """Build from ``budgets``, or from the snapshot's budgets if None."""
        return cls(snapshot.informers.budgets if budgets is None else budgets)

    def split(self, pods: Sequence[_Placed]) -> tuple[list[_Placed], list[_Placed]]:
        """Split pods into those whose eviction violates a budget and the others, if they are evicted in this order."""
        left = [each.status.disruptions_allowed for each in self._budgets]
        violating: list[_Placed] = []
        others: list[_Placed] = []
        for pod in pods:
            covering = self._covering(pod)
            for i in covering:
                left[i] -= 1
            (violating if any(left[i] < 0 for i in covering) else others).append(pod)
        return violating, others

    def _covering(self, pod: _Placed) -> list[int]:
        """Return the indices of budgets that select the pod and do not list it as disrupted yet."""
        pod_class = pod.pod_class
        if pod_class.index not in self._known:
            self._known[pod_class.index] = (
                [*self._index.matching(pod_class.namespace, pod_class.labels)] if pod_class.labels else []
            )
        name = pod.record.key.partition("/")[2]
        return [i for i in self._known[pod_class.index] if name not in (self._budgets[i].status.disrupted_pods or ())]
