"""Taking nodes away one after the other, and finding new places for their pods (``simulator/cluster.go``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kscale.ca.clock import SECOND, moment_ns
from kscale.ca.nodes import TO_BE_DELETED_TAINT
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down import reasons
from kscale.ca.scale_down.drain_codes import DAEMON, MOVES, WAITS, DrainCodes
from kscale.ca.scale_down.drainability.context import DrainContext, Listers
from kscale.ca.scale_down.drainability.status import BlockingPod
from kscale.ca.scale_down.pdb import RemainingPdbTracker
from kscale.objects.core import Container, Pod, Taint
from kscale.scheduling.place import PlaceState
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.session import Session
from kscale.snapshot.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["RemovableNode", "RemovalResult", "RemovalSimulator", "UnremovableCandidate", "simulate_removals"]

_TPU_PREFIX = "cloud-tpus.google.com/"


class RemovableNode(msgspec.Struct, kw_only=True, rename="camel"):
    """A node that can go. Pods by ``namespace/name`` in node order; ``placement``: where each pod to reschedule went
    at that moment (a later removal may have moved it again); ``risky``: budgets do not let the pods go all at once."""

    node: str
    pods_to_reschedule: list[str] = []
    daemon_set_pods: list[str] = []
    on_completion_pods: list[str] = []
    risky: bool = False
    placement: dict[str, str] = {}


class UnremovableCandidate(msgspec.Struct, kw_only=True, rename="camel"):
    """A node that has to stay. ``homeless``: the pod that no node took, for the reason ``NoPlaceToMovePods``;
    ``error``: upstream's text for the reason ``BlockedByPod``."""

    node: str
    reason: str
    blocking_pod: BlockingPod | None = None
    homeless: str | None = None
    error: str | None = None


class RemovalResult(msgspec.Struct, kw_only=True):
    """Candidates in the order in which they were decided, and what the simulator remembers afterwards."""

    removable: list[RemovableNode]
    unremovable: list[UnremovableCandidate]
    state: PlaceState
    pdbs: RemainingPdbTracker


class RemovalSimulator:
    """The cluster while nodes are taken from it. Every success changes it for the candidates that follow.

    ``state``: scan cursor and hints to start with. ``more``: pods besides those of the snapshot that
    :meth:`place_more` may place. Neither hints nor the cursor are put back when a candidate fails: upstream keeps
    them, too.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        now: datetime,
        options: AutoscalingOptions | None = None,
        listers: Listers | None = None,
        pdbs: RemainingPdbTracker | None = None,
        state: PlaceState | None = None,
        profile: SchedulerProfile | None = None,
        more: Sequence[PodRecord] = (),
    ) -> None:
        state = state or PlaceState()
        self.snapshot = snapshot
        self.options = options or AutoscalingOptions()
        self.pdbs = RemainingPdbTracker() if pdbs is None else pdbs
        self._listers = listers
        self._state = state
        self._index = snapshot.columns.index
        self._names = snapshot.nodes
        records = [*snapshot.placed_records, *more]
        self._first_more = len(snapshot.placed_records)
        self.pods: list[Pod] = [record.pod for record in records]
        self._keys = [*snapshot.pods, *(record.key for record in more)]
        self._uids = [record.uid for record in records]
        priorities = [record.priority for record in records]
        self._priority: NDArray[np.int64] | None = (
            np.array(priorities, dtype=np.int64) if len(set(priorities)) > 1 else None
        )
        classify = snapshot.interner.classify
        classes = [snapshot.interner.classes[i] for i in snapshot.placed_class.tolist()]
        classes += [classify(record.pod, placed=True) for record in more]
        tpu = {of.index for of in dict.fromkeys(classes) if any(name.startswith(_TPU_PREFIX) for name in of.occupancy)}
        moved = {
            i: classify(_without_tpu(self.pods[i]), placed=True)
            for i, of in enumerate(classes if tpu else ())
            if of.index in tpu
        }
        self._classes = classes
        session = Session(snapshot, dict.fromkeys([*classes, *moved.values()]), profile=profile, moving=True)
        self.engine = session.engine
        self.engine.cursor = state.cursor
        self._session = session
        self._class = session.classes_of(classes)
        self._moving = self._class
        if moved:
            self._moving = self._class.copy()
            self._moving[list(moved)] = session.classes_of(moved.values())
        self._on_node: list[list[int]] = [[] for _ in self._names]
        for pod, node in enumerate(snapshot.placed_node.tolist()):
            self._on_node[node].append(pod)
        self._hint = self._hints(state, range(len(records)))
        self._hinted = np.zeros(len(records), dtype=np.bool_)
        self._moved: list[int] = []
        self.set_time(now)

    def _hints(self, state: PlaceState, pods: Iterable[int]) -> NDArray[np.int32]:
        found = np.full(len(self.pods), -1, dtype=np.int32)
        if state.hints or state.old_hints:
            for i in pods:
                name = state.hint(self._uids[i])
                if name is not None:
                    found[i] = self._index.get(name, -1)
        return found

    def set_time(self, now: datetime) -> None:
        """The moment that the following candidates are judged at."""
        now_ns = moment_ns(now)
        self._context = DrainContext(now_ns, self.options, self._listers, self.pdbs)
        self._drain = DrainCodes(self.pods, self._classes, self._context)
        # A node on its way out carries this taint; topology spread constraints may honour it.
        taint = Taint(key=TO_BE_DELETED_TAINT, value=str(now_ns // SECOND), effect="NoSchedule")
        self.engine.set_ghost_rows(self._session.counters.leaving(taint, self.engine.n_rows))

    # -- looking -----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> PlaceState:
        """Cursor and hints as they stand."""
        fresh = {self._uids[i]: self._names[self._hint[i]] for i in np.flatnonzero(self._hinted).tolist()}
        return PlaceState(
            cursor=self.engine.cursor, hints={**self._state.hints, **fresh}, old_hints=self._state.old_hints
        )

    def pods_on(self, node: str) -> list[Pod]:
        """The pods of a node now, in node order."""
        return [self.pods[i] for i in self._on_node[self._index[node]]]

    def numbers_on(self, node: str) -> list[int]:
        """The same, as positions in ``pods``."""
        return self._on_node[self._index[node]]

    def drain_codes(self, context: DrainContext) -> DrainCodes:
        """The pods as another context sees them."""
        return DrainCodes(self.pods, self._classes, context)

    def mask(self, names: Iterable[str]) -> NDArray[np.uint8]:
        """uint8[nodes]: 1 for the named nodes; names that the snapshot does not have are passed over."""
        found = np.zeros(len(self._names), dtype=np.uint8)
        found[[self._index[name] for name in names if name in self._index]] = 1
        return found

    # -- acting ------------------------------------------------------------------------------------------------------

    def place_more(self, state: PlaceState, acceptable: NDArray[np.uint8] | None = None) -> PlaceState:
        """Place the ``more`` pods with hints of their own; what was placed stays. Returns the state of these hints."""
        pods = list(range(self._first_more, len(self.pods)))
        pods, node, order = self._schedule(pods, self._hints(state, pods), acceptable)
        fresh = {}
        for i in order:
            pod, n = pods[i], int(node[i])
            self._on_node[n].append(pod)
            fresh[self._uids[pod]] = self._names[n]
        return PlaceState(hints={**state.hints, **fresh}, old_hints=state.old_hints)

    def _schedule(
        self, pods: list[int], hint: NDArray[np.int32], acceptable: NDArray[np.uint8] | None
    ) -> tuple[list[int], NDArray[np.int32], list[int]]:
        """(pods by priority, node of each, positions in the order of placing)."""
        count = len(pods)
        starts = [0, count]
        rows = np.array(pods, dtype=np.int64)
        if self._priority is not None:
            priority = self._priority[rows]
            if (priority != priority[0]).any():
                by_priority = np.argsort(-priority, kind="stable")
                rows = rows[by_priority]
                priority = priority[by_priority]
                pods = rows.tolist()
                starts = [0, *(np.flatnonzero(priority[1:] != priority[:-1]) + 1).tolist(), count]
        # Replicas of a pod that failed are not remembered: the first failure ends its priority anyway.
        alone = np.full(count, -1, dtype=np.int32)
        node, order, _ = self.engine.try_schedule(
            self._moving[rows],
            hint[rows],
            alone,
            alone,
            np.array(starts, dtype=np.int32),
            acceptable=acceptable,
            break_on_failure=True,
        )
        return pods, node, order.tolist()

    def simulate(
        self, name: str, destinations: NDArray[np.uint8], *, persist: bool = True
    ) -> RemovableNode | UnremovableCandidate:
        """Whether a node can go now and its pods fit on others (upstream: ``SimulateNodeRemoval``).

        ``destinations``: uint8[nodes], 1 = may take pods. ``persist``: a success stays.
        """
        n = self._index.get(name)
        if n is None or not self.engine.alive(n):
            return UnremovableCandidate(node=name, reason=reasons.NO_NODE_INFO)
        here = self._on_node[n]
        drain, keys = self._drain, self._keys
        blocking = drain.first_blocking(here)
        if blocking is not None:
            status = drain.status(blocking)
            blocker = BlockingPod(pod=keys[blocking], reason=status.blocking_reason)
            return UnremovableCandidate(
                node=name, reason=reasons.BLOCKED_BY_POD, blocking_pod=blocker, error=status.error
            )
        codes = [drain.code(i) for i in here]
        moving = [i for i, code in zip(here, codes, strict=True) if code <= MOVES]
        result = RemovableNode(node=name, pods_to_reschedule=[keys[i] for i in moving])
        if len(moving) < len(here):
            result.daemon_set_pods = [keys[i] for i, code in zip(here, codes, strict=True) if code == DAEMON]
            result.on_completion_pods = [keys[i] for i, code in zip(here, codes, strict=True) if code == WAITS]
        self._moved = moving
        if not moving and not persist:
            return result
        engine = self.engine
        engine.fork()
        engine.vacate(n, self._class[here])
        if moving:
            was = destinations[n]
            destinations[n] = 0
            pods, node, order = self._schedule(moving, self._hint, destinations)
            destinations[n] = was
            placed = [pods[i] for i in order]
            at = node[order]
            self._hint[placed] = at
            self._hinted[placed] = True
            if len(order) < len(moving):
                engine.revert()
                homeless = next(pods[i] for i in range(len(pods)) if node[i] == -1)
                return UnremovableCandidate(node=name, reason=reasons.NO_PLACE_TO_MOVE_PODS, homeless=keys[homeless])
            names = self._names
            result.placement = {keys[pod]: names[to] for pod, to in zip(placed, at.tolist(), strict=True)}
        if not persist:
            engine.revert()
            return result
        engine.remove_ghost(n)
        engine.commit()
        if moving:
            for pod, to in zip(placed, at.tolist(), strict=True):
                self._on_node[to].append(pod)
            if self._moving is not self._class:
                self._class[placed] = self._moving[placed]
        self._on_node[n] = []
        return result

    def charge(self, node: RemovableNode) -> bool:
        """Charge the pods of the node that was just found removable to their budgets.

        Whether the budgets do not let them go all at once.
        """
        if not node.pods_to_reschedule or not self.pdbs.pdbs:
            return False
        charged: dict[int, int] = {}
        by_id = {}
        for i in self._moved:
            for pdb in self._drain.budgets(i):
                by_id[id(pdb)] = pdb
                charged[id(pdb)] = charged.get(id(pdb), 0) + 1
        risky = any(pdb.disruptions_allowed < charged[key] for key, pdb in by_id.items())
        for key, pdb in by_id.items():
            pdb.disruptions_allowed -= charged[key]
        return risky

    def run(
        self,
        candidates: Iterable[str],
        destinations: Iterable[str] | None = None,
        *,
        persist: bool = True,
        charge_pdbs: bool = True,
    ) -> RemovalResult:
        """Simulate candidates in order. ``destinations``: names (None = every node); a removed node is none any more.

        ``persist`` False: every candidate sees the cluster as it was. ``charge_pdbs`` False: budgets stay untouched.
        """
        mask = np.ones(len(self._names), np.uint8) if destinations is None else self.mask(destinations)
        removable: list[RemovableNode] = []
        unremovable: list[UnremovableCandidate] = []
        for name in candidates:
            found = self.simulate(name, mask, persist=persist)
            if isinstance(found, UnremovableCandidate):
                unremovable.append(found)
                continue
            if charge_pdbs:
                found.risky = self.charge(found)
            if persist:
                mask[self._index[name]] = 0
            removable.append(found)
        return RemovalResult(removable=removable, unremovable=unremovable, state=self.state, pdbs=self.pdbs)

    def drop_old_hints(self) -> None:
        """Hints that were not used since the last call are forgotten (``DropOldHints``)."""
        state = self.state
        self._state = PlaceState(cursor=state.cursor, old_hints=state.hints)
        self._hint = self._hints(self._state, range(len(self.pods)))
        self._hinted[:] = False


def _without_tpu(pod: Pod) -> Pod:
    def strip(container: Container) -> Container:
        requests = container.resources.requests or {}
        kept = {name: amount for name, amount in requests.items() if not name.startswith(_TPU_PREFIX)}
        return replace(container, resources=replace(container.resources, requests=kept))

    return replace(pod, spec=replace(pod.spec, containers=[strip(each) for each in pod.spec.containers]))


def simulate_removals(
    snapshot: Snapshot,
    candidates: Iterable[str],
    *,
    now: datetime,
    destinations: Collection[str] | None = None,
    options: AutoscalingOptions | None = None,
    listers: Listers | None = None,
    pdbs: RemainingPdbTracker | None = None,
    state: PlaceState | None = None,
    persist: bool = True,
    charge_pdbs: bool = True,
    profile: SchedulerProfile | None = None,
) -> RemovalResult:
    """Which of the candidates can go, one after the other, and where their pods land.

    Without ``listers`` and ``pdbs`` the snapshot's own controllers and disruption budgets count. The rest as in
    :meth:`RemovalSimulator.run`. Raises :class:`kscale.objects.selectors.SelectorError` for a broken budget.
    """
    simulator = RemovalSimulator(
        snapshot,
        now=now,
        options=options,
        listers=Listers(snapshot.informers.workloads) if listers is None else listers,
        pdbs=RemainingPdbTracker(snapshot.informers.budgets) if pdbs is None else pdbs,
        state=state,
        profile=profile,
    )
    return simulator.run(candidates, destinations, persist=persist, charge_pdbs=charge_pdbs)
