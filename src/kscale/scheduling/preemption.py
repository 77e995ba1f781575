"""Which pods have to go so that one of a higher priority has a place (upstream: ``plugins/defaultpreemption``,
``framework/preemption``).

Where upstream draws the node that it begins with, it is the first in list order here; of nodes that are equal in all
that counts the first is taken; pods that are equally important keep the order in which they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kscale.errors import InputError
from kscale.objects.core import Pod
from kscale.objects.policy import PodDisruptionBudget
from kscale.objects.selectors import Selector, SelectorError, compile_selector
from kscale.objects.times import ZERO_TIME, nanoseconds
from kscale.scheduling.doors import SnapshotLike, snapshot_of
from kscale.scheduling.fit import fit
from kscale.scheduling.fork import Fork
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.status import UNSCHEDULABLE
from kscale.snapshot.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["Preemption", "preempt"]

_NOT_BEGUN: Final = 2**63 - 1
_OFFSET: Final = 2**31  # what upstream adds to each priority before it sums them


class Preemption(msgspec.Struct, frozen=True, kw_only=True):
    """``pod`` gets a place on ``node`` once ``victims`` are gone (the most important first). ``violations``: so many of
    them go against their disruption budgets."""

    pod: str
    node: str
    victims: tuple[str, ...]
    violations: int


def preempt(
    snapshot: SnapshotLike,
    pod: str,
    *,
    budgets: Iterable[PodDisruptionBudget] | None = None,
    profile: SchedulerProfile | None = None,
    least_percentage: int = 10,
    least_candidates: int = 100,
) -> Preemption | None:
    """What kube-scheduler's DefaultPreemption does for a pending pod, by name, that no node takes; None: nothing helps,
    or the pod does not preempt (``preemptionPolicy: Never``).

    Pods that are nominated to a node count as if they were there. ``budgets``: None: the snapshot's.
    ``least_percentage``, ``least_candidates``: ``minCandidateNodesPercentage`` and ``minCandidateNodesAbsolute``; so
    many nodes are enough, if the victims of one of them go against no budget. Raises InputError.
    """
    snapshot = snapshot_of(snapshot)
    record = _pending(snapshot, pod)
    if record.pod.spec.preemption_policy == "Never":
        return None
    found = fit(snapshot, [pod], profile=profile)
    lower = _lower(snapshot, record.priority)
    nodes = [name for name in snapshot.nodes if found.verdict(pod, name).code == UNSCHEDULABLE]
    enough = min(max(len(nodes) * least_percentage // 100, least_candidates), len(nodes))
    candidates = _Candidates(snapshot, pod, lower, _Budgets.of(snapshot, budgets), profile)
    without: list[_Candidate] = []
    against: list[_Candidate] = []
    for name in nodes:
        candidate = candidates.on(name)
        if candidate is not None:
            (against if candidate.violations else without).append(candidate)
            if without and len(without) + len(against) >= enough:
                break
    best = min([*without, *against], key=_Candidate.rank, default=None)
    if best is None:
        return None
    victims = tuple(each.key for each in best.victims)
    return Preemption(pod=pod, node=best.node, victims=victims, violations=best.violations)


def _pending(snapshot: Snapshot, pod: str) -> PodRecord:
    if pod not in snapshot.pending:
        raise InputError(f"no pending pod {pod!r} in the snapshot")
    return snapshot.record(pod)


def _lower(snapshot: Snapshot, priority: int) -> dict[str, list[PodRecord]]:
    """By node, the pods of a lower priority, the most important first (``MoreImportantPod``)."""
    found: dict[str, list[PodRecord]] = {}
    for record, node in zip(snapshot.placed, snapshot.placed_node.tolist(), strict=True):
        if record.priority < priority:
            found.setdefault(snapshot.nodes[node], []).append(record)
    return {node: sorted(records, key=_importance) for node, records in found.items()}


def _importance(record: PodRecord) -> tuple[int, int]:
    return -record.priority, _started(record)


def _started(record: PodRecord) -> int:
    """When it started; what has not comes last, as if it did now."""
    if record.facts is not None:
        started = record.facts.started
        return _NOT_BEGUN if started == ZERO_TIME else started
    text = record.pod.status.start_time
    return nanoseconds(text) if text else _NOT_BEGUN


class _Candidate(msgspec.Struct, frozen=True):
    """A node, and who has to go there; there is somebody."""

    node: str
    victims: Sequence[PodRecord]
    violations: int

    def rank(self) -> tuple[int, int, int, int, int]:
        """The least is taken (``pickOneNodeForPreemption``)."""
        highest = self.victims[0].priority
        return (
            self.violations,
            highest,
            sum(each.priority + _OFFSET for each in self.victims),
            len(self.victims),
            -min(_started(each) for each in self.victims if each.priority == highest),
        )


class _Candidates:
    """Tries what would be without some pods."""

    def __init__(
        self,
        snapshot: Snapshot,
        pod: str,
        lower: Mapping[str, Sequence[PodRecord]],
        budgets: _Budgets,
        profile: SchedulerProfile | None,
    ) -> None:
        self._pod, self._lower, self._budgets = pod, lower, budgets
        names = [pod, *(record.key for records in lower.values() for record in records)]
        self._fork = Fork(snapshot, names, profile=profile)

    def on(self, node: str) -> _Candidate | None:
        """Who has to go from a node (``SelectVictimsOnNode``); None: that nobody can make room there, or need to."""
        lower, fork = self._lower.get(node, ()), self._fork
        if not lower:
            return None
        fork.fork()
        try:
            for each in lower:
                fork.unplace(each.key, node)
            if not fork.fits(self._pod, node):
                return None
            violating, others = self._budgets.split(lower)
            against = [each for each in violating if not self._stays(each, node)]
            gone = {each.key for each in against} | {each.key for each in others if not self._stays(each, node)}
        finally:
            fork.revert()
        victims = [each for each in lower if each.key in gone]
        return _Candidate(node, victims, len(against)) if victims else None

    def _stays(self, record: PodRecord, node: str) -> bool:
        """Whether there is room for a pod beside the one that comes; then it is back."""
        self._fork.place(record.key, node)
        if self._fork.fits(self._pod, node):
            return True
        self._fork.unplace(record.key, node)
        return False


class _Budgets:
    """How many disruptions each budget allows still."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._budgets: list[tuple[PodDisruptionBudget, Selector]] = []
        for each in budgets:
            try:
                selector = compile_selector(each.spec.selector)
            except SelectorError:
                continue  # it selects nothing
            if selector.requirements:
                self._budgets.append((each, selector))

    @classmethod
    def of(cls, snapshot: Snapshot, budgets: Iterable[PodDisruptionBudget] | None) -> _Budgets:
        """Those that are given, or the snapshot's."""
        return cls(snapshot.informers.budgets if budgets is None else budgets)

    def split(self, records: Sequence[PodRecord]) -> tuple[list[PodRecord], list[PodRecord]]:
        """(pods whose end would go against a budget, the others), if they end in this order."""
        left = [each.status.disruptions_allowed for each, _ in self._budgets]
        violating: list[PodRecord] = []
        others: list[PodRecord] = []
        for record in records:
            covering = self._covering(record.pod)
            for i in covering:
                left[i] -= 1
            (violating if any(left[i] < 0 for i in covering) else others).append(record)
        return violating, others

    def _covering(self, pod: Pod) -> list[int]:
        labels: Any = pod.metadata.labels
        return [
            i
            for i, (budget, selector) in enumerate(self._budgets)
            if labels
            and budget.metadata.namespace == pod.metadata.namespace
            and selector.matches(labels)
            and pod.name not in (budget.status.disrupted_pods or {})
        ]
