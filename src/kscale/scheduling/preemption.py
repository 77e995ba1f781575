"""Selects the pods that DefaultPreemption evicts to make room for a pod of higher priority.

Differences in ties: upstream starts with a random node, kscale with the first in list order. Of nodes that rank
equally the first is taken. Pods of equal importance keep their order.

Upstream: ``pkg/scheduler/framework/plugins/defaultpreemption``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
import numpy as np

from kscale._native import _engine
from kscale.errors import InputError
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.argument_types import typed
from kscale.objects.selectors import SelectorError, SelectorIndex, compile_selector
from kscale.objects.times import ZERO_TIME, moment_in
from kscale.scheduling.coercion import SnapshotLike, snapshot_of
from kscale.scheduling.fit import fit
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.session import Session
from kscale.scheduling.status import UNSCHEDULABLE
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "CRITERIA",
    "NOT_HELPFUL",
    "NOT_STARTED",
    "NO_VICTIMS",
    "Candidate",
    "Candidates",
    "Examination",
    "Preemption",
    "Victim",
    "examine",
    "get_start_time",
    "preempt",
]

NOT_STARTED: Final = 2**63 - 1
"""Start of a pod that has not started: it sorts last."""
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
    """Number of candidate nodes to find: ``least_percentage`` percent of the nodes (``minCandidateNodesPercentage``),
    but not fewer than ``least_candidates`` (``minCandidateNodesAbsolute``).
    """

    least_percentage: int = 10
    least_candidates: int = 100


@typed
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
        Upstream's ``minCandidateNodesPercentage`` and ``minCandidateNodesAbsolute``. The search stops after that number
        of candidate nodes if evicting the victims of one of them violates no budget.

    Returns
    -------
    Preemption or None
        The node and the victims. None if no eviction helps, or the pod does not preempt (``preemptionPolicy: Never``).
        Nodes that the pod fits without evictions are not considered.

    Raises
    ------
    InputError
        If the pod is not a pending pod of the snapshot.
    """
    examination = examine(
        snapshot,
        pod,
        budgets=budgets,
        profile=profile,
        least_percentage=least_percentage,
        least_candidates=least_candidates,
        explain=False,
    )
    best = examination.best
    if best is None:
        return None
    victims = tuple(victim.record.key for victim in best.victims)
    return Preemption(
        pod=pod, node=examination.snapshot.nodes[best.node], victims=victims, violations=best.violation_count
    )


NO_VICTIMS: Final = "No preemption victims found for incoming pod"
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"


class Examination(NamedTuple):
    """Examines the nodes of ``snapshot`` for the pending pod ``record``, as DefaultPreemption does.

    ``never``: the pod does not preempt (``preemptionPolicy: Never``), and nothing was tried. ``fitting``: nodes that
    the pod fits without evictions. ``failures``: for each other node that is no candidate the reasons, upstream's
    :data:`NO_VICTIMS` and :data:`NOT_HELPFUL` or those of the filters that reject the pod even so. ``candidates``: in
    the order in which they were tried; ``untried``: nodes that were not tried, as there were enough candidates.
    ``causes``: why evictions do not help on nodes with :data:`NOT_HELPFUL`.
    """

    snapshot: Snapshot
    record: PodRecord
    never: bool
    fitting: list[int]
    failures: dict[int, tuple[str, ...]]
    candidates: list[Candidate]
    untried: list[int]
    causes: Mapping[int, tuple[str, ...]] = MappingProxyType({})

    @property
    def best(self) -> Candidate | None:
        """Return the candidate that is chosen; None if there are no candidates."""
        return min(self.candidates, key=Candidate.rank, default=None)

    def deciding_criterion(self) -> int | None:
        """Return the position in :data:`CRITERIA` of the criterion that leaves one candidate only.

        None if there are fewer than two candidates; the last criterion is the order of the nodes.
        """
        left = self.candidates
        if len(left) < 2:
            return None
        for position in range(len(CRITERIA) - 1):
            lowest = min(candidate.rank()[position] for candidate in left)
            left = [candidate for candidate in left if candidate.rank()[position] == lowest]
            if len(left) == 1:
                return position
        return len(CRITERIA) - 1


CRITERIA: Final = (
    "fewest violations of disruption budgets",
    "lowest priority of the most important victim",
    "lowest sum of the victims' priorities",
    "fewest victims",
    "latest start of the most important victims",
    "first node in list order",
)
"""Criteria that compare candidates, in this order (``pickOneNodeForPreemption``)."""


@typed
def examine(
    snapshot: SnapshotLike,
    pod: str,
    *,
    budgets: Iterable[PodDisruptionBudget] | None = None,
    profile: SchedulerProfile | None = None,
    least_percentage: int = 10,
    least_candidates: int = 100,
    explain: bool = True,
) -> Examination:
    """Judge every node as DefaultPreemption does. The arguments are those of :func:`preempt`.

    ``explain``: whether the result says why a pod does not fit a node even after evictions; the texts take time.
    Raises InputError if the pod is not a pending pod of the snapshot.
    """
    snapshot = snapshot_of(snapshot)
    record = _pending_record(snapshot, pod)
    if record.pod.spec.preemption_policy == "Never":
        return Examination(snapshot, record, True, [], {}, [], list(range(len(snapshot.nodes))))
    fits = fit(snapshot, [pod], profile=profile)
    fitting: list[int] = []
    failures: dict[int, tuple[str, ...]] = {}
    causes: dict[int, tuple[str, ...]] = {}
    nodes = []
    for index, name in enumerate(snapshot.nodes):
        verdict = fits.verdict(pod, name)
        if verdict.ok:
            fitting.append(index)
        elif verdict.code == UNSCHEDULABLE:
            nodes.append(index)
        else:
            failures[index] = (NOT_HELPFUL,)
            causes[index] = verdict.why
    enough = min(max(len(nodes) * least_percentage // 100, least_candidates), len(nodes))
    dry_run = _DryRun(snapshot, record, _Budgets.of(snapshot, budgets), profile, explain=explain)
    candidates: list[Candidate] = []
    is_harmless = False
    untried: list[int] = []
    for position, node in enumerate(nodes):
        result = dry_run.on(node)
        if isinstance(result, tuple):
            failures[node] = result
            continue
        candidates.append(result)
        is_harmless |= not result.violation_count
        if is_harmless and len(candidates) >= enough:
            untried = nodes[position + 1 :]
            break
    return Examination(snapshot, record, False, fitting, failures, candidates, untried, causes)


def _pending_record(snapshot: Snapshot, pod: str) -> PodRecord:
    """Return the record of a pending pod. Raises InputError if the snapshot has no such pending pod."""
    if pod not in snapshot.pending:
        raise InputError(f"no pending pod {pod!r} in the snapshot")
    return snapshot.record(pod)


class Victim(msgspec.Struct, frozen=True, eq=False):
    """A running pod (``record``, of the class ``pod_class``) that may be evicted.

    ``number``: the dry run session's number of its class as it runs.
    """

    record: PodRecord
    pod_class: PodClass
    number: int

    @property
    def importance(self) -> tuple[int, int]:
        """Return a sort key (negated priority, start time); the most important pod has the lowest.

        Upstream: ``MoreImportantPod``.
        """
        return -self.record.priority, get_start_time(self.record)


def get_start_time(record: PodRecord) -> int:
    """Return when the pod of a ``record`` started, in nanoseconds; a pod that has not started sorts last."""
    if record.facts is not None:
        started = record.facts.started
        return NOT_STARTED if started == ZERO_TIME else started
    text = record.pod.status.start_time
    return moment_in(record.pod, text, "status.startTime") if text else NOT_STARTED


class Candidate(msgspec.Struct, frozen=True):
    """A node and its victims, at least one, the most important first.

    ``violating``: those of them whose eviction violates a disruption budget.
    """

    node: int
    victims: Sequence[Victim]
    violating: frozenset[Victim] = frozenset()

    @property
    def violation_count(self) -> int:
        """Return how many of the evictions violate a disruption budget."""
        return len(self.violating)

    def rank(self) -> tuple[int, int, int, int, int]:
        """Return a sort key; the candidate with the lowest key is chosen (``pickOneNodeForPreemption``).

        Its items: number of evictions that violate a budget, highest priority of a victim, sum of priorities (each plus
        2**31), number of victims, and a negated start time. That is the time of the victim of the highest priority
        that started first.
        """
        pods = [each.record for each in self.victims]
        highest = pods[0].priority
        return (
            self.violation_count,
            highest,
            sum(each.priority + _OFFSET for each in pods),
            len(pods),
            -min(get_start_time(each) for each in pods if each.priority == highest),
        )


class _DryRun:
    """Simulates evictions, one node after the other (``SelectVictimsOnNode``). Pods are removed and put back by
    class.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        record: PodRecord,
        budgets: _Budgets,
        profile: SchedulerProfile | None,
        *,
        explain: bool,
    ) -> None:
        self._snapshot, self._budgets, self._explains = snapshot, budgets, explain
        [coming] = snapshot.classify([record])
        self._session = Session(snapshot, [coming], profile=profile, present=snapshot.placed_classes)
        self._coming = self._session.number(coming)
        lower = np.flatnonzero(snapshot.placed.priorities < record.priority)
        self._lower = lower[np.argsort(snapshot.placed_node[lower], kind="stable")]
        self._begins = np.searchsorted(snapshot.placed_node[self._lower], np.arange(len(snapshot.nodes) + 1))

    def on(self, node: int) -> Candidate | tuple[str, ...]:
        """Return a node's candidate with its victims, or the reasons why no eviction there helps or is needed.

        If the pod does not fit even after evictions, the reasons are empty unless ``explain`` of :func:`examine` is
        set. The simulated evictions are reverted.
        """
        lower, engine = self._less_important(node), self._session.engine
        if not lower:
            return (NO_VICTIMS,)
        engine.fork()
        try:
            for each in lower:
                engine.unplace(each.number, node)
            if not self._fits_on(node):
                return self._session.verdict(self._coming, node).why if self._explains else ()
            violating, others = self._budgets.split(lower)
            against = [each for each in violating if not self._stays(each, node)]
            evicted = {*against, *(each for each in others if not self._stays(each, node))}
        finally:
            engine.revert()
        victims = [each for each in lower if each in evicted]
        return Candidate(node, victims, frozenset(against)) if victims else ("expected at least one victim pod",)

    def _less_important(self, node: int) -> list[Victim]:
        """Return the pods of a lower priority than the preemptor's on a node, the most important first."""
        snapshot, pods = self._snapshot, []
        for row in self._lower[self._begins[node] : self._begins[node + 1]].tolist():
            pod_class = snapshot.interner.classes[snapshot.placed_class[row]]
            pods.append(Victim(snapshot.placed[row], pod_class, self._session.number(pod_class)))
        return sorted(pods, key=lambda each: each.importance)

    def _fits_on(self, node: int) -> bool:
        """Check whether the preemptor fits on a node now."""
        return self._session.engine.check(self._coming, node) == _engine.FITS

    def _stays(self, pod: Victim, node: int) -> bool:
        """Put an evicted pod back if the preemptor still fits then; return whether it was put back.

        Otherwise the state is unchanged.
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

    def split(self, pods: Sequence[Victim]) -> tuple[list[Victim], list[Victim]]:
        """Split pods into (those whose eviction violates a budget, the others).

        They are evicted in the order of ``pods``. Each eviction uses up its budgets, even if it violates one, but only
        within this call.
        """
        left = [each.status.disruptions_allowed for each in self._budgets]
        violating: list[Victim] = []
        others: list[Victim] = []
        for pod in pods:
            covering = self._covering(pod)
            for i in covering:
                left[i] -= 1
            (violating if any(left[i] < 0 for i in covering) else others).append(pod)
        return violating, others

    def _covering(self, pod: Victim) -> list[int]:
        """Return the indices of budgets that select the pod and do not list the pod as disrupted already."""
        pod_class = pod.pod_class
        if pod_class.index not in self._known:
            self._known[pod_class.index] = (
                [*self._index.matching(pod_class.namespace, pod_class.labels)] if pod_class.labels else []
            )
        name = pod.record.key.partition("/")[2]
        return [i for i in self._known[pod_class.index] if name not in (self._budgets[i].status.disrupted_pods or ())]
