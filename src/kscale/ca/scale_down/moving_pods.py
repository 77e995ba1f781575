"""The pods of a snapshot as scale-down simulates them, with their drainability as numbers.

Upstream: ``simulator/drain.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace as replace_context
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kscale.ca.scale_down.drainability import DrainContext, Rule, default_rules, evaluate_rules, is_old_system_pod
from kscale.ca.scale_down.pdb import RemainingPdbTracker
from kscale.ca.unremovable_reasons import BLOCK_DRAIN, SKIP_DRAIN, UNDEFINED_OUTCOME, WAIT_FOR_COMPLETION, DrainStatus
from kscale.objects.api.core import Pod
from kscale.objects.pod_owners import is_daemonset_pod
from kscale.objects.times import ZERO_TIME
from kscale.snapshot.caches import TypedCache, cached_by_identity
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.classes.pod_shapes import renumber, shape_key
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.pods.rows import number_similar_pods, shapes_of
from kscale.snapshot.pods.table import uids_of
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "CODE_BLOCKS",
    "CODE_DAEMON_SET",
    "CODE_MOVES",
    "CODE_MOVES_UNLESS_PDB",
    "CODE_SKIPPED",
    "CODE_WAITS",
    "DrainCodes",
    "MovingPods",
    "PdbCoverage",
    "get_moving_pods",
]


_UIDS_KEY = "UIDs of pods"

V = TypeVar("V")


class _LazyPodNames(Sequence[str]):
    """Keys (``namespace/name``) of pods, looked up on access; pickled as a tuple."""

    __slots__ = ("_keys", "_more", "_rows")

    def __init__(self, keys: Sequence[str], rows: NDArray[np.int64], more: Sequence[PodRecord]) -> None:
        self._keys, self._rows, self._more = keys, rows, more

    def __len__(self) -> int:
        return len(self._rows) + len(self._more)

    def __getitem__(self, i: int) -> str:  # type: ignore[override]  # slices are not supported
        known = len(self._rows)
        return self._keys[self._rows[i]] if i < known else self._more[i - known].key

    def __reduce__(self) -> tuple[type[tuple[str, ...]], tuple[list[str]]]:
        return tuple, (list(self),)


class MovingPods:
    """Placed pods of a snapshot, in order, followed by the additional pods ``more``.

    ``kind_of``: int32[n] into ``exemplars``; ``class_of``: int32[n], classes by number in the interner; ``priority``:
    int64[n]; ``node``: int32[n], -1 for additional pods; ``names``: ``namespace/name``. ``memo`` caches what is
    computed from these pods alone.
    """

    __slots__ = (
        "_more",
        "_numbers",
        "_rows",
        "_snapshot",
        "class_of",
        "exemplars",
        "kind_of",
        "memo",
        "names",
        "node",
        "priority",
    )

    def __init__(self, snapshot: Snapshot, more: Sequence[PodRecord] = ()) -> None:
        self._snapshot = snapshot
        self.memo = TypedCache()
        self._numbers: tuple[NDArray[np.int32], dict[str, int]] | None = None
        self._rows, added = snapshot.placed.rows, snapshot.placed.added
        self._more = (*added, *more)
        interner, table = snapshot.interner, snapshot.table
        classes = snapshot.placed_class
        if more:
            behind = [interner.classify(record.pod, placed=True, moves=True).index for record in more]
            classes = np.append(classes, np.array(behind, dtype=np.int32))
        kinds = number_similar_pods(table, self._rows)
        priority = table.columns["priority"][self._rows]
        if self._more:
            own = classes[len(self._rows) :].tolist()
            others = int(kinds.max(initial=-1)) + 1
            known: dict[tuple[object, ...], int] = {}
            numbers = [
                known.setdefault(
                    (*shape_key(record.pod, c), record.pod.metadata.deletion_timestamp), others + len(known)
                )
                for record, c in zip(self._more, own, strict=True)
            ]
            kinds = np.append(kinds, np.array(numbers, dtype=np.int32))
            priority = np.append(priority, np.array([record.priority for record in self._more], dtype=np.int64))
        self.class_of: NDArray[np.int32] = classes
        self.kind_of, first = renumber(kinds)
        self.priority: NDArray[np.int64] = priority
        node = np.append(snapshot.placed_node, np.full(len(more), -1, np.int32)) if more else snapshot.placed_node
        self.node: NDArray[np.int32] = node.astype(np.int32, copy=False)
        self.names: Sequence[str] = _LazyPodNames(table.keys, self._rows, self._more)
        self.exemplars: list[Pod] = self._exemplars(first)

    def _exemplars(self, first: NDArray[np.int64]) -> list[Pod]:
        """Return the exemplar of each kind; ``first``: position of the kind's first pod, ascending.

        The exemplar is that of the pod's shape, which is the same object in all snapshots. In three cases it is the
        first pod itself: if this pod or the shape's exemplar is terminating, if the pod was added to the snapshot, and
        if it is an additional pod (``more``).
        """
        table, shapes = self._snapshot.table, self._snapshot.interner.shapes
        listed = first[first < len(self._rows)]
        rows = self._rows[listed]
        terminating = table.columns["deleted"][rows] != ZERO_TIME
        exemplars = []
        for i, number in enumerate(shapes_of(table, rows).tolist()):
            shape = shapes[number]
            assert shape is not None  # the shape of an existing pod
            exemplars.append(shape.exemplar)
            if shape.stops:
                terminating[i] = True
        for i in np.flatnonzero(terminating).tolist():
            exemplars[i] = self.pod(int(listed[i]))
        return exemplars + [self.pod(i) for i in first[len(listed) :].tolist()]

    def __len__(self) -> int:
        return len(self.kind_of)

    def record(self, i: int) -> PodRecord:
        """Return the record of the pod at position ``i``."""
        rows = self._rows
        return self._snapshot.table.record(int(rows[i])) if i < len(rows) else self._more[i - len(rows)]

    def pod(self, i: int) -> Pod:
        """Return the pod at position ``i``, decoded."""
        return self.record(i).pod

    def compute_per_kind(self, key: tuple[Any, ...], function: Callable[[Pod], V]) -> list[V]:
        """Return ``function(exemplar)`` for each kind of pod, in the order of ``exemplars``.

        Values are cached between snapshots by ``key`` and exemplar, and reused while the exemplar is the same object.
        ``key`` must contain the purpose, and everything besides the pod on which the values depend.
        """
        return cached_by_identity(self._snapshot.interner.memo, key, self.exemplars, function)

    def classes(self) -> list[PodClass]:
        """Return the scheduling classes of the pods, each once."""
        if len(self.class_of) == len(self._snapshot.placed_class):
            return self._snapshot.placed_classes
        classes = self._snapshot.interner.classes
        return [classes[i] for i in np.unique(self.class_of).tolist()]

    def uids_of(self, which: NDArray[np.int32]) -> list[str]:
        """Return the hint keys of the pods at the positions ``which``: the UID, or the name of a pod without one."""
        known = len(self._rows)
        uids = uids_of(self._snapshot.table, self._rows[which[which < known]])
        for at in np.flatnonzero(which >= known).tolist():  # ascending, so that each is inserted at its final position
            uids.insert(at, self._more[which[at] - known].uid)
        return uids

    @property
    def uid_numbers(self) -> tuple[NDArray[np.int32], dict[str, int]]:
        """Return the number of each pod's hint key (int32[n]), and the number (from 1) by hint key.

        A hint key is read once in the life of a pod.
        """
        if self._numbers is None:
            table, rows = self._snapshot.table, self._rows
            stamps, memo = table.columns["stamp"][rows], table.memo
            with memo.lock:
                known, numbers = memo.get_numbers(_UIDS_KEY), memo.values(_UIDS_KEY)
                missing = np.flatnonzero(known[stamps] == 0)
                for stamp, uid in zip(stamps[missing].tolist(), uids_of(table, rows[missing]), strict=True):
                    known[stamp] = numbers.setdefault(uid, len(numbers) + 1)
                more = [numbers.setdefault(record.uid, len(numbers) + 1) for record in self._more]
                self._numbers = np.append(known[stamps], np.array(more, dtype=np.int32)), numbers
        return self._numbers


def get_moving_pods(snapshot: Snapshot) -> MovingPods:
    """Return the placed pods, cached with the snapshot."""
    return snapshot.memo.get(MovingPods, lambda: MovingPods(snapshot))


CODE_MOVES_UNLESS_PDB, CODE_MOVES, CODE_DAEMON_SET, CODE_WAITS, CODE_SKIPPED, CODE_BLOCKS = range(6)
"""Drain codes (verdicts on a pod): moved unless a disruption budget forbids it; moved; of a DaemonSet, ends with the
node; its completion is waited for; ignored; blocks the drain."""
_SYSTEM_NAMESPACE = "kube-system"
_TIME_DEPENDENT, _AGE_DEPENDENT = 255, 254
_MAX_CONTEXTS = 4
"""Number of cached contexts: a loop uses contexts with and without controllers and budgets."""


class DrainCodes:
    """Drain code (``CODE_...``) of each pod (``codes``: uint8[pods]), from the rules of :func:`get_drain_status`.

    The last rule, on disruption budgets, is left out: budgets change, so callers check them each time. The code is
    computed once for the exemplar of each kind of pods. Only the rule on kube-system pods also reads the creation time,
    so the pods that it decides on are checked one by one.
    """

    __slots__ = ("_before_system", "_context", "_pods", "_rules", "codes")

    def __init__(self, pods: MovingPods, context: DrainContext) -> None:
        self._pods = pods
        self._context = context
        self._rules = default_rules(context.options)
        names = [rule.name for rule in self._rules]
        self._before_system = self._rules[: names.index("System")] if "System" in names else None
        listers, options = context.listers, context.options
        replica_shortages = None if listers is None else listers.replica_shortages(options.min_replica_count)
        of_kind = np.array(
            pods.compute_per_kind(("drain codes", replica_shortages, options), self._get_timeless_code),
            dtype=np.uint8,
        )
        for kind in np.flatnonzero(of_kind == _TIME_DEPENDENT).tolist():
            of_kind[kind] = self._get_code(pods.exemplars[kind], context)
        self.codes: NDArray[np.uint8] = of_kind.take(pods.kind_of)
        aging = np.flatnonzero(self.codes == _AGE_DEPENDENT)
        self.codes[aging] = pods.memo.get(_AgeDependentPods, _AgeDependentPods).codes_of(
            pods, aging, context, self._rules[:-1]
        )

    def _get_timeless_code(self, pod: Pod) -> int:
        """Return the drain code of an exemplar, computed without budgets so that it can be cached.

        ``_TIME_DEPENDENT`` for a terminating pod, ``_AGE_DEPENDENT`` as in :meth:`_get_code`.
        """
        if pod.metadata.deletion_timestamp is not None:
            return _TIME_DEPENDENT
        return self._get_code(pod, replace_context(self._context, pdbs=RemainingPdbTracker()))

    def _get_code(self, pod: Pod, context: DrainContext) -> int:
        """Return the drain code of an exemplar.

        ``_AGE_DEPENDENT`` for a kube-system pod that reaches the rule on such pods: this rule reads the creation time
        and the budgets, which differ by pod.
        """
        if pod.metadata.namespace != _SYSTEM_NAMESPACE or self._before_system is None:
            return _compute_code(pod, context, self._rules[:-1])
        code = _compute_code(pod, context, self._before_system)
        return _AGE_DEPENDENT if code == CODE_MOVES_UNLESS_PDB else code

    def status(self, i: int) -> DrainStatus:
        """Return the verdict of all rules on the pod at position ``i``, with the current budgets."""
        pods = self._pods
        pod = pods.exemplars[pods.kind_of[i]]
        if pod.metadata.namespace == _SYSTEM_NAMESPACE:
            pod = pods.pod(i)
        else:  # the text needs only the name of other pods
            pod = replace(pod, metadata=replace(pod.metadata, name=pods.names[i].rpartition("/")[2]))
        return evaluate_rules(pod, self._context, self._rules)


def _compute_code(pod: Pod, context: DrainContext, rules: Sequence[Rule]) -> int:
    """Return the drain code (``CODE_...``) of a pod by these ``rules``."""
    outcome = evaluate_rules(pod, context, rules).outcome
    if outcome == BLOCK_DRAIN:
        return CODE_BLOCKS
    if outcome == SKIP_DRAIN:
        return CODE_SKIPPED
    if outcome == WAIT_FOR_COMPLETION:
        return CODE_WAITS
    if outcome == UNDEFINED_OUTCOME:
        return CODE_MOVES_UNLESS_PDB
    return CODE_DAEMON_SET if is_daemonset_pod(pod) else CODE_MOVES


class _AgeDependentPods(msgspec.Struct, eq=False):
    """Pods that are checked one by one, as time passes; cached with all pods.

    The only time check of their rules is whether a system pod is old enough
    (:func:`~kscale.ca.scale_down.drainability.is_old_system_pod`), so each is checked once young and once old.
    """

    _pods: dict[int, Pod] = {}
    _last: list[tuple[tuple[Any, ...], dict[tuple[int, bool], int]]] = []

    def codes_of(
        self, pods: MovingPods, which: NDArray[np.int64], context: DrainContext, rules: Sequence[Rule]
    ) -> list[int]:
        """Return the drain codes (``CODE_...``) of the pods at the positions ``which`` by these ``rules``."""
        codes = []
        known = self._get_cached_codes(context)
        for i in which.tolist():
            pod = self._pods.get(i)
            if pod is None:
                pod = self._pods[i] = pods.pod(i)
            asked = i, is_old_system_pod(pod, context)
            code = known.get(asked)
            if code is None:
                code = known[asked] = _compute_code(pod, context, rules)
            codes.append(code)
        return codes

    def _get_cached_codes(self, context: DrainContext) -> dict[tuple[int, bool], int]:
        """Return the cached codes for contexts that are equal to this one except for the time.

        The keys are (position of the pod, whether the pod is old).
        """
        budgets = context.pdbs.family if context.pdbs.pdbs else None
        key = context.listers, context.options, budgets
        for asked, known in self._last:
            if asked == key:
                return known
        new_codes: dict[tuple[int, bool], int] = {}
        self._last = [(key, new_codes), *self._last[: _MAX_CONTEXTS - 1]]
        return new_codes


class PdbCoverage:
    """Which budgets cover each pod: those of pod i are ``ids[start[s]:start[s + 1]]`` with ``s = of_pod[i]``.

    ``of_pod``, ``start``, ``ids``: int32; ``ids`` are positions in the tracker's list.
    """

    __slots__ = ("ids", "of_pod", "start")

    def __init__(self, pods: MovingPods, tracker: RemainingPdbTracker) -> None:
        sets: dict[tuple[int, ...], int] = {(): 0}
        of_kind = np.zeros(len(pods.exemplars), dtype=np.int32)
        if tracker.pdbs:
            covering = pods.compute_per_kind(("budgets", tracker.family), tracker.covering)
            of_kind[:] = [sets.setdefault(budget_ids, len(sets)) for budget_ids in covering]
        self.of_pod: NDArray[np.int32] = of_kind.take(pods.kind_of)
        self.start: NDArray[np.int32] = np.cumsum([0, *map(len, sets)]).astype(np.int32)
        self.ids: NDArray[np.int32] = np.array([i for covering in sets for i in covering], dtype=np.int32)

    @classmethod
    def of(cls, pods: MovingPods, tracker: RemainingPdbTracker) -> PdbCoverage:
        """Return which budgets of the tracker cover each pod, cached for all trackers with the same budgets."""
        cached = pods.memo.get(_CachedPdbCoverage, _CachedPdbCoverage)
        if cached.last is None or cached.last[0] is not tracker.family:
            cached.last = tracker.family, cls(pods, tracker)
        return cached.last[1]


class _CachedPdbCoverage(msgspec.Struct, eq=False):
    """The coverage of the last budgets, cached with the pods."""

    last: tuple[object, PdbCoverage] | None = None
