"""Decide which placed pods may be evicted: drain rules, Karpenter's ``do-not-disrupt``, and disruption budgets.

Upstream: ``simulator/drainability`` (:mod:`kscale.ca.scale_down.drainability`), Karpenter's ``utils/pod/scheduling.go``
(``IsDisruptable``), ``pkg/registry/core/pod/storage/eviction.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kscale.ca.nodes import SCALE_DOWN_DISABLED_KEY, TO_BE_DELETED_TAINT, has_taint
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.drainability import DrainContext, Listers
from kscale.ca.scale_down.moving_pods import (
    CODE_BLOCKS,
    CODE_MOVES,
    CODE_WAITS,
    DrainCodes,
    PdbCoverage,
    get_moving_pods,
)
from kscale.ca.scale_down.pdb import get_cached_pdb_tracker
from kscale.ca.scale_down.plan import explain_blocking_pod
from kscale.ca.unremovable_reasons import NOT_ENOUGH_PDB
from kscale.capacity.fit import summarize_rejections
from kscale.capacity.losses import make_pending
from kscale.capacity.records import Part
from kscale.effects import Moment
from kscale.objects.api.core import Node, Pod
from kscale.objects.pod_owners import DO_NOT_DISRUPT, pod_annotation
from kscale.objects.times import moment_in, parse_duration
from kscale.scheduling.place import place
from kscale.scheduling.scores.options import ScoreOptions
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "DISRUPTION_DISABLED",
    "SEVERAL_BUDGETS",
    "WAITS_FOR_COMPLETION",
    "Evictions",
    "PodHold",
    "Relocation",
    "get_protection",
    "is_protected",
    "node_hold",
    "relocate",
]

DISRUPTION_DISABLED = "DoNotDisruptAnnotation"
SEVERAL_BUDGETS = "SeveralPodDisruptionBudgets"
WAITS_FOR_COMPLETION = "WaitsForCompletion"


class PodHold(Part, frozen=True):
    """A pod that keeps its node from being removed.

    Attributes
    ----------
    pod : str
        The pod as ``namespace/name``.
    rule : str
        The drain rule that decides.
    reason : str
        The reason as upstream names it.
    why : str
        The reason in words.
    budget : str
        The PodDisruptionBudget that allows no eviction, as ``namespace/name``. Empty: none.
    """

    pod: str
    rule: str
    reason: str
    why: str
    budget: str = ""


class Evictions:
    """Verdicts on the eviction of each placed pod of a snapshot at a moment.

    ``codes``: uint8[pods], the codes of :mod:`kscale.ca.scale_down.moving_pods`, where ``CODE_BLOCKS`` includes pods
    that Karpenter must not disrupt and pods of several budgets, which the eviction API refuses. ``allowed``:
    int64[budgets], the disruptions that each budget allows now; ``budgets``: their keys. A pod that is not ready is
    charged to its budget like a ready one.
    """

    def __init__(self, snapshot: Snapshot, now: Moment, options: AutoscalingOptions) -> None:
        self.snapshot = snapshot
        self.now = now
        self.options = options
        self.pods = pods = get_moving_pods(snapshot)
        self._tracker = get_cached_pdb_tracker(snapshot).fork()
        listers = Listers(snapshot.informers.workloads)
        self._drain = DrainCodes(pods, DrainContext(now, options, listers, self._tracker))
        self._coverage = PdbCoverage.of(pods, self._tracker)
        self.budgets = [pdb.key for pdb in self._tracker.pdbs]
        self.allowed = np.array([pdb.disruptions_allowed for pdb in self._tracker.pdbs], dtype=np.int64)
        self.codes: NDArray[np.uint8] = self._drain.codes.copy()
        self._not_disrupted = self._find_protected()
        per_set = np.diff(self._coverage.start)
        self._several = (per_set[self._coverage.of_pod] > 1) & (self.codes <= CODE_MOVES)
        self.codes[self._not_disrupted | self._several] = CODE_BLOCKS

    def _find_protected(self) -> NDArray[np.bool_]:
        """Return which pods the annotation ``karpenter.sh/do-not-disrupt`` protects now: bool[pods].

        DaemonSet and mirror pods count as well, as in Karpenter.
        """
        pods = self.pods
        values = pods.compute_per_kind(("do not disrupt",), get_protection)
        protected = np.array([value == "true" for value in values], dtype=bool)[pods.kind_of]
        timed = np.array([value not in (None, "true") for value in values], dtype=bool)
        for i in np.flatnonzero(timed[pods.kind_of]).tolist():
            protected[i] = is_protected(pods.pod(i), self.now)
        return protected

    def covering(self, pod: int) -> list[int]:
        """Return the positions in ``budgets`` of the PodDisruptionBudgets that cover the pod at position ``pod``."""
        coverage = self._coverage
        begin = coverage.of_pod[pod]
        covering: list[int] = coverage.ids[coverage.start[begin] : coverage.start[begin + 1]].tolist()
        return covering

    @property
    def moves(self) -> NDArray[np.bool_]:
        """Return which pods a drain of their node evicts, if disruption budgets allow it: bool[pods]."""
        return self.codes <= CODE_MOVES

    def holds(self, pod: int) -> PodHold | None:
        """Return why the pod at position ``pod`` keeps its node now.

        None if it may be evicted or ends with the node.
        """
        code = int(self.codes[pod])
        key = self.pods.names[pod]
        if self._not_disrupted[pod]:
            value = pod_annotation(self.pods.exemplars[self.pods.kind_of[pod]], DO_NOT_DISRUPT)
            why = f"{key} is annotated {DO_NOT_DISRUPT}={value}"
            return PodHold(pod=key, rule="DoNotDisrupt", reason=DISRUPTION_DISABLED, why=why)
        if self._several[pod]:
            names = " and ".join(self.budgets[i] for i in self.covering(pod))
            why = f"{key} has several PodDisruptionBudgets ({names}): the eviction API refuses such pods"
            return PodHold(pod=key, rule="PDB", reason=SEVERAL_BUDGETS, why=why)
        if code == CODE_WAITS:
            why = f"{key} is to finish first (cluster-autoscaler.kubernetes.io/safe-to-evict=on-completion)"
            return PodHold(pod=key, rule="OnCompletion", reason=WAITS_FOR_COMPLETION, why=why)
        if code == CODE_BLOCKS:
            status = self._drain.status(pod)
            why = explain_blocking_pod(key, status.blocking_reason, self._tracker, self.options, self.snapshot)
            return PodHold(pod=key, rule=status.rule, reason=status.blocking_reason, why=why)
        if code <= CODE_MOVES:
            exhausted = [self.budgets[i] for i in self.covering(pod) if self.allowed[i] < 1]
            if exhausted:
                why = f"{key}: PodDisruptionBudget {exhausted[0]} allows no eviction now"
                return PodHold(pod=key, rule="PDB", reason=NOT_ENOUGH_PDB, why=why, budget=exhausted[0])
        return None

    def holding(self) -> NDArray[np.bool_]:
        """Return which pods keep their node now (those for which :meth:`holds` has a reason): bool[pods]."""
        exhausted = np.zeros(len(self._coverage.start), dtype=bool)
        for s, (begin, end) in enumerate(zip(self._coverage.start[:-1], self._coverage.start[1:], strict=True)):
            exhausted[s] = bool((self.allowed[self._coverage.ids[begin:end]] < 1).any())
        is_held: NDArray[np.bool_] = self.moves & exhausted[self._coverage.of_pod]
        is_held |= (self.codes == CODE_BLOCKS) | (self.codes == CODE_WAITS)
        return is_held

    def split_into_waves(self, pods: Sequence[int]) -> list[list[int]]:
        """Split pods, by position, into as few waves of evictions as their budgets allow; the order stays.

        Each wave may use up all disruptions that every budget allows now, as evicted pods become ready elsewhere before
        the next wave. ``pods`` must not contain pods of a budget that allows none.
        """
        waves: list[list[int]] = []
        used: dict[int, int] = {}
        for pod in pods:
            covering = self.covering(pod)
            wave = max((used.get(budget, 0) // max(1, int(self.allowed[budget])) for budget in covering), default=0)
            for budget in covering:
                used[budget] = used.get(budget, 0) + 1
            while len(waves) <= wave:
                waves.append([])
            waves[wave].append(pod)
        return waves


def get_protection(pod: Pod) -> str | None:
    """Return the value of ``karpenter.sh/do-not-disrupt`` if it can protect the pod, otherwise None.

    A pod that has ended or is being deleted is not protected, nor is one with an invalid value.
    """
    if pod.metadata.deletion_timestamp is not None or pod.is_finished:
        return None
    value = pod_annotation(pod, DO_NOT_DISRUPT)
    return value if value == "true" or (value is not None and _parse_protection(value) is not None) else None


def is_protected(pod: Pod, now: Moment) -> bool:
    """Return whether the annotation ``karpenter.sh/do-not-disrupt`` protects a pod at a moment.

    Its value is ``true``, or how long the pod is protected after its start (always, if it has not started).
    """
    value = get_protection(pod)
    if value is None or value == "true":
        return value == "true"
    limit, started = _parse_protection(value), pod.status.start_time
    return limit is not None and (started is None or now - moment_in(pod, started, "status.startTime") < limit)


def _parse_protection(value: str) -> int | None:
    """Parse a positive Go duration and return nanoseconds; None for any other text, which Karpenter ignores."""
    try:
        limit = parse_duration(value)
    except ValueError:
        return None
    return limit if limit > 0 else None


def node_hold(node: Node) -> tuple[str, str] | None:
    """Return (reason, explanation) if an annotation or a taint forbids the removal of a node, otherwise None."""
    annotations = node.metadata.annotations or {}
    if annotations.get(SCALE_DOWN_DISABLED_KEY) == "true":
        return "ScaleDownDisabledAnnotation", f"annotated {SCALE_DOWN_DISABLED_KEY}=true"
    if annotations.get(DO_NOT_DISRUPT) == "true":
        return DISRUPTION_DISABLED, f"annotated {DO_NOT_DISRUPT}=true"
    if has_taint(node, TO_BE_DELETED_TAINT):
        return "CurrentlyBeingDeleted", "is being deleted already"
    return None


@dataclass(frozen=True, slots=True)
class Relocation:
    """Result of :func:`relocate`.

    ``snapshot``: with the drained nodes cordoned and the evicted pods on their new nodes; ``targets``: the new node of
    each evicted pod, by its position in the first snapshot; ``pending``: those without a node, with the message of
    kube-scheduler. ``origin``: int64[placed pods], the position in the first snapshot of each pod that is placed now.
    """

    snapshot: Snapshot
    targets: dict[int, str]
    pending: dict[int, str]
    origin: NDArray[np.int64]


def relocate(
    snapshot: Snapshot,
    nodes: Collection[str],
    waves: Sequence[Sequence[int]],
    scores: ScoreOptions,
    record_of: Callable[[int], PodRecord] | None = None,
    *,
    explain: bool = True,
) -> Relocation:
    """Cordon nodes, evict pods wave by wave, and let kube-scheduler choose a new node for each.

    Parameters
    ----------
    snapshot : Snapshot
        The cluster before.
    nodes : collection of str
        Names of the nodes to cordon. They take no pod, not even one that tolerates the cordon.
    waves : sequence of sequence of int
        Positions in ``snapshot.pods`` of the pods that are evicted together. A pod that finds no node is tried again
        in each later wave.
    scores : ScoreOptions
        The scheduler's choice among nodes that a pod fits; of equal ones the first in list order.
    record_of : callable, optional
        Called with the position of an evicted pod in each wave in which it is tried; returns its record as it waits for
        a node. Default: a new one.
    explain : bool
        Whether ``pending`` has messages, which take time, and not empty texts.

    Returns
    -------
    Relocation
        The snapshot after the last wave, the new node of each pod that got one in any wave, and why the others have
        none.
    """
    if record_of is None:

        def record_of(position: int) -> PodRecord:
            """Return the record of a placed pod as it waits for a node."""
            return PodRecord(make_pending(snapshot.placed[position].pod))

    index = snapshot.columns.index
    cordoned = []
    for name in nodes:
        node = snapshot.columns.objects[index[name]]
        if not node.spec.unschedulable:
            cordoned.append(replace(node, spec=replace(node.spec, unschedulable=True)))
    current = snapshot.with_nodes(replaced=cordoned) if cordoned else snapshot
    origin = np.arange(len(snapshot.pods), dtype=np.int64)
    targets: dict[int, str] = {}
    waiting_pods: list[int] = []
    events: dict[int, str] = {}
    for wave in waves:
        evicted = np.isin(origin, np.array(wave, dtype=np.int64))
        current, origin = current.keeping(~evicted), origin[~evicted]
        tried = [*waiting_pods, *wave]
        pods = [record_of(i) for i in tried]
        by_key = dict(zip((pod.key for pod in pods), tried, strict=True))
        placed = place(current, pods, scores=scores, unacceptable_nodes=nodes)
        current = placed.snapshot_after
        origin = np.append(origin, [by_key[key] for key in placed.placed]).astype(np.int64)
        targets.update((by_key[key], node) for key, node in placed.placed.items())
        waiting_pods = [by_key[key] for key in placed.unschedulable]
        if waiting_pods and wave is waves[-1]:
            for record in placed.unschedulable_records:
                event = summarize_rejections(current, [record])[1] if explain else ""
                events[by_key[record.key]] = event
    return Relocation(current, targets, events, origin)
