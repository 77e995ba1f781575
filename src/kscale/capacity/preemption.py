"""``kscale preempt``: whom kube-scheduler would evict for a pending pod, and why that node, or why it evicts nobody.

Upstream: ``pkg/scheduler/framework/plugins/defaultpreemption``. The rules are in :mod:`kscale.scheduling.preemption`.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import msgspec

from kscale.capacity.records import Part
from kscale.objects.argument_types import typed
from kscale.objects.times import printed_time
from kscale.records import Record
from kscale.scheduling.coercion import SnapshotLike
from kscale.scheduling.preemption import (
    CRITERIA,
    NO_VICTIMS,
    NOT_HELPFUL,
    NOT_STARTED,
    Candidate,
    Examination,
    examine,
    get_start_time,
)
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.status import fit_error

__all__ = ["PreemptionNode", "PreemptionReport", "VictimPod", "preempt"]


class VictimPod(Part, frozen=True):
    """A pod that would be evicted.

    Attributes
    ----------
    pod : str
        The pod as ``namespace/name``.
    priority : int
        Its priority.
    started : str or None
        Start time of the pod (RFC 3339). None: it has not started.
    violates : bool
        Whether its eviction violates a disruption budget.
    """

    pod: str
    priority: int
    started: str | None
    violates: bool


class PreemptionNode(Part, frozen=True):
    """Verdict on one node.

    Attributes
    ----------
    node : str
        Name of the node.
    outcome : str
        ``chosen`` or ``candidate`` (evicting ``victims`` makes room), ``fits`` (no eviction is needed), ``no-victims``
        (no pod on it has a lower priority), ``not-enough`` (the pod does not fit even without all pods of a lower
        priority), ``not-helpful`` (no eviction removes the cause, such as a taint) or ``not-tried`` (there were enough
        candidates before).
    reasons : list of str
        kube-scheduler's reasons why the pod does not fit.
    causes : list of str
        Why no eviction helps.
    victims : list of VictimPod
        Pods that would be evicted.
    violations : int or None
        Of a candidate: number of victims whose eviction violates a disruption budget. None otherwise.
    highest_priority : int or None
        Of a candidate: highest priority of the victims. None otherwise.
    priority_sum : int or None
        Of a candidate: sum of the priorities of the victims. None otherwise.
    latest_start : str or None
        Of a candidate: earliest start time of the victims with the highest priority (RFC 3339). None otherwise.
    """

    node: str
    outcome: str
    reasons: list[str] = msgspec.field(default_factory=list)
    causes: list[str] = msgspec.field(default_factory=list)
    victims: list[VictimPod] = msgspec.field(default_factory=list)
    violations: int | None = None
    highest_priority: int | None = None
    priority_sum: int | None = None
    latest_start: str | None = None


class PreemptionReport(Record, frozen=True):
    """Decision of kube-scheduler's DefaultPreemption for a pending pod.

    Attributes
    ----------
    pod : str
        The pod as ``namespace/name``.
    priority : int
        Priority of the pod.
    result : str
        ``preempts`` (pods are evicted), ``fits`` (no eviction is needed), ``never`` (the pod has ``preemptionPolicy:
        Never``) or ``does-not-help``.
    node : str or None
        With ``preempts``: the chosen node. None otherwise.
    victims : list of VictimPod
        With ``preempts``: the pods to evict.
    violations : int
        Number of victims whose eviction violates a disruption budget.
    criterion : str
        What decided between several candidates. Empty: nothing had to decide.
    message : str
        kube-scheduler's message if it evicts no pod.
    nodes : list of PreemptionNode
        Verdict on every node, candidates first. Empty with ``never``.
    """

    KIND: ClassVar[str] = "PreemptionReport"
    ROWS: ClassVar[str] = "nodes"

    pod: str
    priority: int
    result: str
    node: str | None
    victims: list[VictimPod]
    violations: int
    criterion: str
    message: str
    nodes: list[PreemptionNode]


@typed
def preempt(
    snapshot: SnapshotLike,
    pod: str,
    *,
    profile: SchedulerProfile | None = None,
    least_percentage: int = 10,
    least_candidates: int = 100,
) -> PreemptionReport:
    """Report whom kube-scheduler would evict for a pending pod, or why preemption does not help.

    Parameters
    ----------
    snapshot : Snapshot or Cluster
        Cluster state. A Cluster is snapshotted first. Pods that are nominated to a node count as placed there.
    pod : str
        Name of the pending pod, ``namespace/name``.
    profile : SchedulerProfile, optional
        Scheduler profile. Default: upstream's default profile.
    least_percentage, least_candidates : int
        Upstream's ``minCandidateNodesPercentage`` and ``minCandidateNodesAbsolute``.

    Returns
    -------
    PreemptionReport
        The node, the victims and the judgement of each node (none for a pod that never preempts).

    Raises
    ------
    InputError
        If the pod is not a pending pod of the snapshot.

    Notes
    -----
    Upstream starts with a random node, kscale with the first in list order. The start decides only which nodes are
    tried if there are more candidates than enough, and between candidates that are equal in every other criterion.
    """
    examination = examine(
        snapshot, pod, profile=profile, least_percentage=least_percentage, least_candidates=least_candidates
    )
    best = None if examination.fitting else examination.best
    position = None if best is None else examination.deciding_criterion()
    victims = [] if best is None else _list_victims(best)
    if examination.never:
        result = "never"
    elif examination.fitting:
        result = "fits"
    else:
        result = "does-not-help" if best is None else "preempts"
    names = examination.snapshot.nodes
    return PreemptionReport(
        pod=examination.record.key,
        priority=examination.record.priority,
        result=result,
        node=None if best is None else names[best.node],
        victims=victims,
        violations=0 if best is None else best.violation_count,
        criterion="" if position is None else CRITERIA[position],
        message=_write_message(examination, result),
        nodes=[] if examination.never else _judge_nodes(examination, best),
    )


def _list_victims(candidate: Candidate) -> list[VictimPod]:
    """Return the pods that a candidate's preemption would evict."""
    return [
        VictimPod(
            pod=victim.record.key,
            priority=victim.record.priority,
            started=_write_start(get_start_time(victim.record)),
            violates=victim in candidate.violating,
        )
        for victim in candidate.victims
    ]


def _write_start(started: int) -> str | None:
    """Format the start time of a pod (nanoseconds since 1970); None if the pod has not started."""
    return None if started == NOT_STARTED else printed_time(started)


def _write_message(examination: Examination, result: str) -> str:
    """Return kube-scheduler's message if it evicts no pod for the examined one, which does not fit; otherwise empty."""
    if result == "never":
        return "preemption: not eligible due to preemptionPolicy=Never."
    if result != "does-not-help":
        return ""
    counts = Counter(reason for reasons in examination.failures.values() for reason in reasons)
    return f"preemption: {fit_error(counts, len(examination.snapshot.nodes))}"


def _judge_nodes(examination: Examination, best: Candidate | None) -> list[PreemptionNode]:
    """Return the verdict on each node: candidates by rank, then nodes that fit, that fail, and that were not tried."""
    names = examination.snapshot.nodes
    rows = []
    for candidate in sorted(examination.candidates, key=Candidate.rank):
        violations, highest, _, _, start = candidate.rank()
        rows.append(
            PreemptionNode(
                node=names[candidate.node],
                outcome="chosen" if candidate is best else "candidate",
                victims=_list_victims(candidate),
                violations=violations,
                highest_priority=highest,
                priority_sum=sum(victim.record.priority for victim in candidate.victims),
                latest_start=_write_start(-start),
            )
        )
    rows += [PreemptionNode(node=names[n], outcome="fits") for n in examination.fitting]
    for n, reasons in sorted(examination.failures.items()):
        if reasons == (NO_VICTIMS,):
            outcome = "no-victims"
        else:
            outcome = "not-helpful" if reasons == (NOT_HELPFUL,) else "not-enough"
        causes = list(examination.causes.get(n, ()))
        rows.append(PreemptionNode(node=names[n], outcome=outcome, reasons=list(reasons), causes=causes))
    return rows + [PreemptionNode(node=names[n], outcome="not-tried") for n in examination.untried]
