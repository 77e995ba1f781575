"""Simulation of node removals: find new places for the pods (upstream: ``simulator/cluster.go``: RemovalSimulator).

The search for places is C++ (``_native/src/engine/removal.cpp``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from datetime import datetime
from functools import cached_property, partial
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _engine
from kscale.ca import unremovable_reasons
from kscale.ca.nodes import TO_BE_DELETED_TAINT
from kscale.ca.options import AutoscalingOptions, default_options
from kscale.ca.pod_lists import TPU_RESOURCE_PREFIX, clear_tpu_requests
from kscale.ca.scale_down.drainability import DrainContext, Listers, build_over_budget_status
from kscale.ca.scale_down.moving_pods import (
    CODE_DAEMON_SET,
    CODE_MOVES,
    CODE_MOVES_UNLESS_PDB,
    CODE_WAITS,
    DrainCodes,
    MovingPods,
    PdbCoverage,
    get_moving_pods,
)
from kscale.ca.scale_down.pdb import RemainingPdbTracker
from kscale.ca.unremovable_reasons import BlockingPod
from kscale.effects import SECOND, Moment, moment
from kscale.objects.api.core import Pod, Taint
from kscale.objects.argument_types import typed
from kscale.scheduling.place import PlaceState
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.session import Session
from kscale.snapshot.caches import cached_by_identity
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "CompiledRemoval",
    "PodMoves",
    "RemovableNode",
    "RemovalResult",
    "RemovalSimulator",
    "UnremovableCandidate",
    "get_compiled_removal",
    "simulate_removals",
]


class PodMoves(msgspec.Struct, frozen=True, eq=False):
    """Pods of removable nodes, concatenated: int32[n] pods, their drain codes and their destination nodes."""

    pods: NDArray[np.int32]
    codes: NDArray[np.uint8]
    to: NDArray[np.int32]
    keys: Sequence[str]
    nodes: Sequence[str]


class RemovableNode:
    """A node that can be removed.

    ``risky``: budgets do not allow all of its pods to be evicted at once. ``drain``: it has pods to move. ``waits``: it
    has pods that must finish first. Names of pods are computed on access.
    """

    __slots__ = ("_first", "_last", "_moves", "drain", "node", "risky", "waits")

    def __init__(
        self, node: str, moves: PodMoves, first: int, last: int, *, risky: bool, drain: bool, waits: bool
    ) -> None:
        self.node = node
        self.risky = risky
        self.drain = drain
        self.waits = waits
        self._moves = moves
        self._first = first
        self._last = last

    @classmethod
    def of(cls, node: str, placement: dict[str, str]) -> RemovableNode:
        """Create a removable node from the ``placement`` (pod -> node) of all its pods."""
        numbers = np.arange(len(placement), dtype=np.int32)
        codes = np.full(len(placement), CODE_MOVES, dtype=np.uint8)
        moves = PodMoves(numbers, codes, numbers, list(placement), list(placement.values()))
        return cls(node, moves, 0, len(placement), risky=False, drain=bool(placement), waits=False)

    def __repr__(self) -> str:
        return f"RemovableNode({self.node!r}, placement={self.placement!r}, risky={self.risky})"

    def _find_move_indices(self, low: int, high: int) -> NDArray[np.int64]:
        """Return the indices, in the arrays of ``_moves``, of the node's pods whose code is ``low`` to ``high``."""
        codes = self._moves.codes[self._first : self._last]
        return self._first + np.flatnonzero((codes >= low) & (codes <= high))

    def _names(self, low: int, high: int) -> list[str]:
        """Return the keys (``namespace/name``) of the node's pods with codes from ``low`` to ``high``."""
        keys = self._moves.keys
        return [keys[i] for i in self._moves.pods[self._find_move_indices(low, high)].tolist()]

    @property
    def pods_to_reschedule(self) -> list[str]:
        """List the pods that move to another node, ``namespace/name``, in node order."""
        return self._names(CODE_MOVES_UNLESS_PDB, CODE_MOVES)

    @property
    def daemon_set_pods(self) -> list[str]:
        """List the DaemonSet pods, which are removed with the node."""
        return self._names(CODE_DAEMON_SET, CODE_DAEMON_SET)

    @property
    def on_completion_pods(self) -> list[str]:
        """List the pods that must finish before the node is removed."""
        return self._names(CODE_WAITS, CODE_WAITS)

    @property
    def placement(self) -> dict[str, str]:
        """Map each pod to reschedule to its node right after this removal (a later one may move it again)."""
        moves, which = self._moves, self._find_move_indices(CODE_MOVES_UNLESS_PDB, CODE_MOVES)
        to = moves.to[which].tolist()
        return {moves.keys[i]: moves.nodes[n] for i, n in zip(moves.pods[which].tolist(), to, strict=True)}


class UnremovableCandidate(msgspec.Struct, kw_only=True, rename="camel"):
    """A node that cannot be removed.

    ``homeless``: the pod that fits on no other node, for the reason ``NoPlaceToMovePods``. ``blocking_pod``: the pod
    that must not be moved, and ``error``: upstream's text about it, for the reason ``BlockedByPod``. None for other
    reasons.
    """

    node: str
    reason: str
    blocking_pod: BlockingPod | None = None
    homeless: str | None = None
    error: str | None = None


class RemovalResult:
    """Candidates in the order in which they were decided, and what the simulator remembers afterwards.

    ``removable``, ``unremovable``; ``pdbs``: what is left of the budgets; ``state``: cursor and hints as they stood,
    written down when they are first read.
    """

    def __init__(
        self,
        removable: list[RemovableNode],
        unremovable: list[UnremovableCandidate],
        pdbs: RemainingPdbTracker,
        remembered: Callable[[], PlaceState],
    ) -> None:
        self.removable = removable
        self.unremovable = unremovable
        self.pdbs = pdbs
        self._remembered = remembered

    @cached_property
    def state(self) -> PlaceState:
        """Return the cursor and the hints after the simulation."""
        return self._remembered()


class CompiledRemoval:
    """Pods on their nodes, compiled for simulated moves; the state that a simulator changes.

    ``moves_as``: int32[pods], the session's class number that each pod has when it is placed elsewhere.
    """

    __slots__ = ("moves_as", "pods", "removals", "session")

    def __init__(self, snapshot: Snapshot, pods: MovingPods, profile: SchedulerProfile | None) -> None:
        classes = pods.classes()
        stripped = _strip_tpu_classes(snapshot, pods, classes)
        self.pods = pods
        self.session = Session(snapshot, dict.fromkeys([*classes, *stripped.values()]), profile=profile, moving=True)
        number = self.session.numbers(len(snapshot.interner.classes))
        runs_as = number[pods.class_of]
        for of, without in stripped.items():
            number[of] = self.session.classes_of([without])[0]
        self.moves_as: NDArray[np.int32] = number[pods.class_of] if stripped else runs_as
        self.removals = _engine.Removals(
            self.session.engine, runs_as, self.moves_as, np.ascontiguousarray(pods.priority), pods.node
        )

    def copy(self) -> CompiledRemoval:
        """Return an independent copy."""
        duplicate = copy(self)
        duplicate.session = self.session.copy()
        duplicate.removals = self.removals.copy(duplicate.session.engine)
        return duplicate


class _CachedCompilation(msgspec.Struct, eq=False):
    """The last compilation of a snapshot, unchanged by any simulator, cached with the snapshot.

    ``asked``: it was requested once. Most snapshots are compiled for one request only, so the first request gets the
    compilation itself instead of a copy.
    """

    asked: bool = False
    last: tuple[SchedulerProfile | None, CompiledRemoval] | None = None


def get_compiled_removal(
    snapshot: Snapshot, profile: SchedulerProfile | None, pods: MovingPods, *, more: bool = False
) -> CompiledRemoval:
    """Compile the placed ``pods`` of a snapshot for one simulator, which may change the result.

    From the second call on, a compilation is cached with the snapshot, and each call returns a copy of it. Nothing is
    cached with ``more`` (there are additional pods), nor if devices are kept in a ledger.
    """
    if more:
        return CompiledRemoval(snapshot, pods, profile)
    cache = snapshot.memo.get(_CachedCompilation, _CachedCompilation)
    if cache.last is not None and cache.last[0] == profile:
        return cache.last[1].copy()
    compiled = CompiledRemoval(snapshot, pods, profile)
    asked, cache.asked = cache.asked, True
    if compiled.session.has_ledger or not asked:
        return compiled
    cache.last = profile, compiled
    return compiled.copy()


def _strip_tpu_classes(snapshot: Snapshot, pods: MovingPods, classes: Sequence[PodClass]) -> dict[int, PodClass]:
    """Return, for each class with TPU requests, the class without them, by the number of the class with them."""
    stripped = {}
    asks = cached_by_identity(snapshot.interner.memo, ("TPU",), classes, _requests_tpu)
    for of in [each for each, does in zip(classes, asks, strict=True) if does]:
        first = int(np.flatnonzero(pods.class_of == of.index)[0])
        [plain] = clear_tpu_requests([pods.pod(first)])
        stripped[of.index] = snapshot.interner.classify(plain, placed=True, moves=True)
    return stripped


def _requests_tpu(of: PodClass) -> bool:
    """Check whether pods of the class request TPUs."""
    return any(name.startswith(TPU_RESOURCE_PREFIX) for name in of.occupancy)


_NO_PODS: Final = np.zeros(0, dtype=np.int32)


class RemovalSimulator:
    """The cluster while nodes are removed from it. Every success changes it for the following candidates.

    ``state``: scan cursor and hints to start with. ``more``: pods besides those of the snapshot that
    :meth:`place_more` may place. As in upstream, hints and cursor are kept when a candidate fails. ``pods``: all
    movable pods; pods are identified by their position there.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        now: datetime | Moment,
        options: AutoscalingOptions | None = None,
        listers: Listers | None = None,
        pdbs: RemainingPdbTracker | None = None,
        state: PlaceState | None = None,
        profile: SchedulerProfile | None = None,
        more: Sequence[PodRecord] = (),
    ) -> None:
        time, state = moment(now), state or PlaceState()
        self.snapshot = snapshot
        self.options = options or default_options()
        self.pdbs = RemainingPdbTracker() if pdbs is None else pdbs
        self._profile, self._more = profile, more
        self._listers = listers
        self._state = state
        self._index = snapshot.columns.index
        self._names = snapshot.nodes
        self._begun: CompiledRemoval | None = None
        self.pods = MovingPods(snapshot, more) if more else get_moving_pods(snapshot)
        self._first_more = len(self.pods) - len(more)
        self.set_time(time)

    @property
    def _compiled(self) -> CompiledRemoval:
        """Return the state of the simulation, compiled on first use: most loops simulate no node."""
        compiled = self._begun
        if compiled is None:
            compiled = self._begun = get_compiled_removal(
                self.snapshot, self._profile, self.pods, more=bool(self._more)
            )
            state = self._state
            compiled.session.engine.cursor = state.cursor
            if state.hints or state.old_hints:
                compiled.removals.set_hints(self._number_hints(state, 0))
            compiled.session.engine.set_ghost_rows(compiled.session.mask_rows_without_taint(self._leaving))
        return compiled

    @property
    def engine(self) -> _engine.Engine:
        """Return the packing engine."""
        return self._compiled.session.engine

    def _number_hints(self, state: PlaceState, first: int) -> NDArray[np.int32]:
        """Return the hinted node of each pod from position ``first`` on, as node positions: int32[n], -1 = none."""
        numbers, known = self.pods.uid_numbers
        index = self._index
        of_number = np.full(len(known) + 1, -1, dtype=np.int32)
        for hints in (state.old_hints, state.hints):  # newer hints take precedence
            for uid, name in hints.items():
                if name and uid in known:
                    of_number[known[uid]] = index.get(name, -1)
        node_hints: NDArray[np.int32] = of_number[numbers[first:]]
        return node_hints

    def set_time(self, now: datetime | Moment) -> None:
        """Set the time at which the following candidates are checked.

        Raises InputError if it is not a time.
        """
        now = moment(now)
        self._drain = DrainCodes(self.pods, DrainContext(now, self.options, self._listers, self.pdbs))
        self._budgets = PdbCoverage.of(self.pods, self.pdbs)
        # A node that is being removed carries this taint; topology spread constraints may honour it.
        self._leaving = Taint(key=TO_BE_DELETED_TAINT, value=str(now // SECOND), effect="NoSchedule")
        if self._begun is not None:
            self.engine.set_ghost_rows(self._begun.session.mask_rows_without_taint(self._leaving))

    # -- queries -----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> PlaceState:
        """Return the current cursor and hints."""
        return self.save_state()()

    def save_state(self) -> Callable[[], PlaceState]:
        """Return a function that builds the state of placement from the current cursor and hints."""
        if self._begun is None:
            return partial(
                _write_place_state, self.pods, _NO_PODS, self._names, _NO_PODS, self._state.cursor, self._state
            )
        pods, nodes = self._begun.removals.new_hints()
        return partial(_write_place_state, self.pods, pods, self._names, nodes, self.engine.cursor, self._state)

    def numbers_on(self, node: str) -> list[int]:
        """Return the positions of the pods that are on a node now, in node order."""
        positions: list[int] = self._compiled.removals.on(self._index[node]).tolist()
        return positions

    def pods_on(self, node: str) -> list[Pod]:
        """Return the decoded pods that are on a node now, in node order."""
        return [self.pods.pod(i) for i in self.numbers_on(node)]

    def mask(self, names: Iterable[str]) -> NDArray[np.uint8]:
        """Return uint8[nodes] with 1 for the named nodes; unknown names are ignored."""
        mask = np.zeros(len(self._names), dtype=np.uint8)
        mask[[self._index[name] for name in names if name in self._index]] = 1
        return mask

    # -- simulation --------------------------------------------------------------------------------------------------

    def place_more(self, state: PlaceState, acceptable: NDArray[np.uint8] | None = None) -> PlaceState:
        """Place the additional pods (``more``), by decreasing priority, beside the pods that are placed.

        ``state`` has their hints. ``acceptable``: uint8[nodes], 1 = may take pods (default: every node). Returns the
        hints of ``state``, with the nodes of the placed pods as new hints; its cursor is not kept. Of each priority,
        pods after the first that fits nowhere are not placed.
        """
        first = self._first_more
        by_priority = np.argsort(-self.pods.priority[first:], kind="stable")
        priority = self.pods.priority[first:][by_priority]
        pods = (by_priority + first).tolist()
        alone = np.full(len(pods), -1, dtype=np.int32)
        groups = [0, *(np.flatnonzero(np.diff(priority)) + 1).tolist(), len(pods)]
        node, order, _ = _engine.try_schedule(
            self.engine,
            self._compiled.moves_as[pods],
            self._number_hints(state, first)[by_priority],
            alone,
            alone,
            np.array(groups, dtype=np.int32),
            acceptable=acceptable,
            break_on_failure=True,
        )
        fresh = {}
        for i in order.tolist():
            pod, n = pods[i], int(node[i])
            self._compiled.removals.put(pod, n)
            fresh[self.pods.record(pod).uid] = self._names[n]
        return PlaceState(hints={**state.hints, **fresh}, old_hints=state.old_hints)

    def judge(
        self,
        candidates: Sequence[str],
        destinations: NDArray[np.uint8],
        *,
        limit: int | None = None,
        atomic: NDArray[np.uint8] | None = None,
        persist: bool = True,
        charge_pdbs: bool = True,
    ) -> list[RemovableNode | UnremovableCandidate]:
        """Check whether nodes can be removed one after the other (upstream: ``SimulateNodeRemoval``).

        Returns a verdict on each candidate in order. ``destinations``: uint8[nodes], 1 = may take pods; a removed node
        is no destination any more. With ``limit`` the check stops after ``limit`` removable nodes, not counting those
        marked in ``atomic``; the candidates after that have no verdict. ``persist``: later candidates see the cluster
        without the removed nodes, and with their pods moved. ``charge_pdbs``: moved pods reduce the remaining
        disruption budgets (``pdbs``).
        """
        if not candidates:
            return []
        budgets, left = self._budgets, self._get_allowed_disruptions()
        raw_results = self._compiled.removals.run(
            self._number_nodes(candidates),
            destinations,
            self._drain.codes,
            budgets.of_pod,
            budgets.start,
            budgets.ids,
            left,
            atomic=atomic,
            limit=limit,
            persist=persist,
            charge=charge_pdbs,
        )
        before = [pdb.disruptions_allowed for pdb in self.pdbs.pdbs]
        answers = self._convert_results(candidates, *raw_results)
        for pdb, now, was in zip(self.pdbs.pdbs, left.tolist(), before, strict=True):
            if now != was:
                pdb.disruptions_allowed = now
        return answers

    def judge_alone(
        self, candidates: Sequence[str], destinations: NDArray[np.uint8], *, threads: int | None = None
    ) -> list[RemovableNode | UnremovableCandidate]:
        """Return a verdict on each of the ``candidates``: whether it could be removed if no other node was.

        The simulated cluster does not change. ``destinations``: uint8[nodes], 1 = may take pods. ``threads``: None =
        the number of CPUs; the results do not depend on it.
        """
        if not candidates:
            return []
        budgets = self._budgets
        raw_results = self._compiled.removals.alone(
            self._number_nodes(candidates),
            destinations,
            self._drain.codes,
            budgets.of_pod,
            budgets.start,
            budgets.ids,
            self._get_allowed_disruptions(),
            threads=(os.cpu_count() or 1) if threads is None else threads,
        )
        return self._convert_results(candidates, *raw_results)

    def _number_nodes(self, names: Iterable[str]) -> NDArray[np.int32]:
        """Return the positions of nodes by name: int32[n], -1 = unknown."""
        index = self._index
        return np.fromiter((index.get(name, -1) for name in names), np.int32)

    def _get_allowed_disruptions(self) -> NDArray[np.int64]:
        """Return the disruptions that each budget still allows: int64[budgets]."""
        return np.array([pdb.disruptions_allowed for pdb in self.pdbs.pdbs], dtype=np.int64)

    def _convert_results(
        self,
        candidates: Sequence[str],
        outcomes: NDArray[np.int8],
        risky: NDArray[np.uint8],
        pod: NDArray[np.int32],
        start: NDArray[np.int64],
        pods: NDArray[np.int32],
        to: NDArray[np.int32],
    ) -> list[RemovableNode | UnremovableCandidate]:
        """Convert the kernel's arrays to a verdict on each candidate; candidates that were not checked are left out.

        ``outcomes`` (``_engine.REMOVABLE``, ...), ``risky`` (1: see :class:`RemovableNode`) and ``pod`` (position of
        the pod that prevents the removal) have one entry per candidate. The pods of candidate ``c`` are
        ``pods[start[c]:start[c + 1]]``, and ``to`` has their destinations.
        """
        keys = self.pods.names
        codes = self._drain.codes[pods]
        moves = PodMoves(pods, codes, to, keys, self._names)
        drain = _any_in_ranges(codes <= CODE_MOVES, start)
        waits = _any_in_ranges(codes == CODE_WAITS, start)
        begin = start.tolist()
        answers: list[RemovableNode | UnremovableCandidate] = []
        for c, (name, outcome, pod_index) in enumerate(zip(candidates, outcomes.tolist(), pod.tolist(), strict=True)):
            if outcome == _engine.REMOVABLE:
                answers.append(
                    RemovableNode(
                        name, moves, begin[c], begin[c + 1], risky=bool(risky[c]), drain=drain[c], waits=waits[c]
                    )
                )
            elif outcome == _engine.NO_PLACE:
                answers.append(
                    UnremovableCandidate(
                        node=name, reason=unremovable_reasons.NO_PLACE_TO_MOVE_PODS, homeless=keys[pod_index]
                    )
                )
            elif outcome == _engine.BLOCKED:
                answers.append(self._build_blocked_candidate(name, pod_index))
            elif outcome == _engine.NOT_THERE:
                answers.append(UnremovableCandidate(node=name, reason=unremovable_reasons.NO_NODE_INFO))
            else:
                break
        return answers

    def _build_blocked_candidate(self, node: str, pod: int) -> UnremovableCandidate:
        """Build the verdict on a node that the pod at position ``pod`` blocks."""
        key = self.pods.names[pod]
        held_by_budget = self._drain.codes[pod] == CODE_MOVES_UNLESS_PDB  # the budgets may have changed meanwhile
        status = build_over_budget_status(key) if held_by_budget else self._drain.status(pod)
        blocking = BlockingPod(pod=key, reason=status.blocking_reason)
        return UnremovableCandidate(
            node=node, reason=unremovable_reasons.BLOCKED_BY_POD, blocking_pod=blocking, error=status.error or ""
        )

    def run(
        self,
        candidates: Iterable[str],
        destinations: Iterable[str] | None = None,
        *,
        persist: bool = True,
        charge_pdbs: bool = True,
    ) -> RemovalResult:
        """Simulate candidates in order, and return the removable and the unremovable ones.

        The parameters are those of :func:`simulate_removals`.
        """
        mask = np.ones(len(self._names), np.uint8) if destinations is None else self.mask(destinations)
        answers = self.judge(list(candidates), mask, persist=persist, charge_pdbs=charge_pdbs)
        return RemovalResult(
            removable=[answer for answer in answers if isinstance(answer, RemovableNode)],
            unremovable=[answer for answer in answers if isinstance(answer, UnremovableCandidate)],
            pdbs=self.pdbs,
            remembered=self.save_state(),
        )

    def drop_old_hints(self) -> None:
        """Forget the hints that were not used since the last call (upstream's ``DropOldHints``)."""
        state = self.state
        self._state = PlaceState(cursor=state.cursor, old_hints=state.hints)
        if self._begun is not None:
            self._begun.removals.set_hints(self._number_hints(self._state, 0))


def _write_place_state(
    pods: MovingPods,
    which: NDArray[np.int32],
    names: Sequence[str],
    nodes: NDArray[np.int32],
    cursor: int,
    before: PlaceState,
) -> PlaceState:
    """Return ``before`` with the cursor and with new hints: pods ``which`` on ``nodes`` (positions in ``names``)."""
    fresh = {uid: names[node] for uid, node in zip(pods.uids_of(which), nodes.tolist(), strict=True)}
    return PlaceState(cursor=cursor, hints={**before.hints, **fresh}, old_hints=before.old_hints)


def _any_in_ranges(true: NDArray[np.bool_], start: NDArray[np.int64]) -> list[bool]:
    """Return whether any of ``true[start[i]:start[i + 1]]`` is True, for each ``i``."""
    before = np.append(0, np.cumsum(true))
    flags: list[bool] = (before[start[1:]] > before[start[:-1]]).tolist()
    return flags


@typed
def simulate_removals(
    snapshot: Snapshot,
    candidates: Iterable[str],
    *,
    now: datetime | Moment,
    destinations: Collection[str] | None = None,
    options: AutoscalingOptions | None = None,
    listers: Listers | None = None,
    pdbs: RemainingPdbTracker | None = None,
    state: PlaceState | None = None,
    persist: bool = True,
    charge_pdbs: bool = True,
    profile: SchedulerProfile | None = None,
) -> RemovalResult:
    """Simulate the removal of the candidates, one after the other, and where their pods go.

    Parameters
    ----------
    snapshot : Snapshot
        The cluster.
    candidates : iterable of str
        Names of nodes, in order. An unknown node is unremovable.
    now : datetime or Moment
        Time of the simulation.
    destinations : collection of str, optional
        Nodes that may take pods (None: every node). A node takes no more pods after its simulated removal.
    options : AutoscalingOptions, optional
        Default: upstream's defaults.
    listers : Listers, optional
        Controllers of pods. Default: those of the snapshot.
    pdbs : RemainingPdbTracker, optional
        Disruption budgets. Default: those of the snapshot.
    state : PlaceState, optional
        Cursor and hints of earlier simulations.
    persist : bool
        Keep simulated removals for the next candidates. If False, every candidate sees the original cluster.
    charge_pdbs : bool
        Charge removed pods to the budgets; this changes ``pdbs``.
    profile : SchedulerProfile, optional
        Default: the default scheduler's.

    Returns
    -------
    RemovalResult
        Removable and unremovable nodes, with reasons, and the remaining budgets.

    Raises
    ------
    SelectorError
        For an invalid budget (:class:`kscale.objects.selectors.SelectorError`).
    InputError
        If ``now`` is not a time.
    """
    time = moment(now)
    simulator = RemovalSimulator(
        snapshot,
        now=time,
        options=options,
        listers=Listers(snapshot.informers.workloads) if listers is None else listers,
        pdbs=RemainingPdbTracker(snapshot.informers.budgets) if pdbs is None else pdbs,
        state=state,
        profile=profile,
    )
    return simulator.run(candidates, destinations, persist=persist, charge_pdbs=charge_pdbs)
