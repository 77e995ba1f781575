"""``kscale.place``: places pods one after the other on existing nodes (upstream: HintingSimulator).

Upstream: ``simulator/scheduling/hinting_simulator.go``, ``core/podlistprocessor/filter_out_schedulable.go``.
Implemented in C++: ``_native/src/engine/simulate.cpp`` (nodes to try per pod), ``search.cpp`` (next node that fits).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _engine
from kscale.errors import InputError, StateError
from kscale.objects.argument_types import typed, typed_methods
from kscale.records import API_VERSION, Result, Rows
from kscale.scheduling.coercion import PodsLike, SnapshotLike, inputs_of, pods_of, position_of, priorities_of, short
from kscale.scheduling.devices.ledger import reserve
from kscale.scheduling.equivalent_pods import number_controllers_and_shapes
from kscale.scheduling.fit import fit
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.session import Session
from kscale.snapshot.columns import starts_of_runs
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.pods.rows import PodRows, take_records
from kscale.snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from kscale.scheduling.scores.options import ScoreOptions

__all__ = ["PlaceResult", "PlaceState", "place", "place_in_session"]


@typed_methods()
class PlaceState(msgspec.Struct, frozen=True, kw_only=True):
    """State of the simulator between calls: the scan cursor, and hints (pod UID -> node) of two generations,
    ``hints`` and ``old_hints``.

    A hint that is not used again expires with the second call after it was set.
    """

    cursor: int = 0
    hints: dict[str, str] = {}
    old_hints: dict[str, str] = {}

    def hint(self, uid: str) -> str | None:
        """Return the node where the pod with this ``uid`` was placed last time; None if unknown."""
        return self.hints.get(uid) or self.old_hints.get(uid)

    def to_json(self) -> bytes:
        """Encode the state as JSON, for :meth:`from_json`."""
        return msgspec.json.encode({"version": 1, **msgspec.structs.asdict(self)})

    @staticmethod
    def from_json(text: bytes | str) -> PlaceState:
        """Decode the JSON (``text``) that :meth:`to_json` wrote. Raises StateError for any other text."""
        try:
            data = msgspec.json.decode(text)
            if data.pop("version") != 1:
                raise StateError("a place state of another version")
            return msgspec.convert(data, PlaceState)
        except (msgspec.DecodeError, AttributeError, KeyError, TypeError, RecursionError) as problem:
            raise StateError(f"not a place state: {problem}") from None


@typed_methods()
class PlaceResult(Result):
    """Placement of pods on nodes. ``node``: int32[n] in the order of ``records``, -1 = fits no node, -2 = not tried.

    ``placed``, ``unschedulable``, ``pending`` and ``nodes`` contain names.

    ``records``: pods in the order in which they were tried, by descending priority, then as passed. ``positions``:
    int64[n], their positions among the pods passed.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        records: Sequence[PodRecord],
        positions: NDArray[np.int64],
        node: NDArray[np.int32],
        order: NDArray[np.int32],
        state: PlaceState,
        overflowing: int,
        unmodelled: list[str],
    ) -> None:
        self.snapshot = snapshot
        self.records = records
        self.positions = positions
        self.node = node
        self.state = state
        self.overflowing_controllers = overflowing
        self._order = order
        self.unmodelled = unmodelled
        """Short texts on what pods use and no rule considers."""

    def __repr__(self) -> str:
        nodes = len({*self.node[self._order].tolist()})
        stay = "".join(
            f", {count} {label}"
            for label, outcome in (("fit nowhere", _engine.NOWHERE), ("not tried", _engine.NOT_TRIED))
            if (count := int((self.node == outcome).sum()))
        )
        return f"<PlaceResult: {len(self._order)} of {len(self.node)} pods placed on {nodes} nodes{stay}>"

    def table_rows(self) -> Rows:
        """Return one row per pod: its name, its node, and why it has none."""
        reasons = [("fits no node", self.unschedulable), ("not tried", self.not_tried)]
        placed = [(pod, node, None) for pod, node in self.placed.items()]
        pending = [(pod, None, reason) for reason, pods in reasons for pod in pods]
        return Rows({"pod": str, "node": str, "reason": str}, [*placed, *pending])

    @cached_property
    def unschedulable_positions(self) -> NDArray[np.int64]:
        """Return the positions of the pods that fit no node, in the order in which they were tried: int64[n].

        A position is an index in the sequence of pods that was passed.
        """
        positions: NDArray[np.int64] = self.positions[self.node == _engine.NOWHERE]
        return positions

    @cached_property
    def pending(self) -> list[str]:
        """Return the names of all pods of the call, in the order they were tried."""
        return self.records.keys if isinstance(self.records, PodRows) else [record.key for record in self.records]

    @cached_property
    def nodes(self) -> list[str]:
        """Return the names of the nodes that got pods, in the order of their first pod."""
        names = self.snapshot.nodes
        return [names[row] for row in dict.fromkeys(self.node[self._order].tolist())]

    @cached_property
    def placed(self) -> dict[str, str]:
        """Return pod -> node for the pods that fit, in the order they were placed."""
        names = self.snapshot.nodes
        return {self.records[i].key: names[self.node[i]] for i in self._order.tolist()}

    @cached_property
    def unschedulable(self) -> list[str]:
        """Return the names of pods that fit no node, in the order they were tried."""
        return self._keys_with_outcome(_engine.NOWHERE)

    @cached_property
    def not_tried(self) -> list[str]:
        """Return the names of pods that were not tried, because placing stopped before."""
        return self._keys_with_outcome(_engine.NOT_TRIED)

    def _keys_with_outcome(self, outcome: int) -> list[str]:
        """Return the keys of pods with this value in ``node`` (-1: no node, -2: not tried), in order of the tries."""
        which = np.flatnonzero(self.node == outcome)
        if isinstance(self.records, PodRows):
            return self.records.take(which).keys
        return [self.records[i].key for i in which.tolist()]

    @cached_property
    def unschedulable_records(self) -> list[PodRecord]:
        """Return the records of pods that fit no node, in the order they were tried."""
        return [self.records[i] for i in np.flatnonzero(self.node == _engine.NOWHERE).tolist()]

    @property
    def placed_count(self) -> int:
        """Return how many pods fit."""
        return len(self._order)

    @property
    def placed_in_order(self) -> dict[str, list[str]]:
        """Return node -> pods placed on it, in the order they were placed."""
        pods_by_node: dict[str, list[str]] = {}
        for i in self._order:
            pods_by_node.setdefault(self.snapshot.nodes[self.node[i]], []).append(self.records[i].key)
        return pods_by_node

    @cached_property
    def snapshot_after(self) -> Snapshot:
        """Return the snapshot with these pods placed: the snapshot of the call itself if no pod was placed."""
        if not len(self._order):
            return self.snapshot
        records, nodes = take_records(self.records, self._order), self.node[self._order].tolist()
        return self.snapshot.with_placed(records, nodes, reserve(self.snapshot, records, nodes))

    def explain(self, pod: str) -> str:
        """Return where a pod of the call was placed, or why the pod fits no node, in one line.

        The reason is the text of kube-scheduler's event for the cluster after the placement. ``pod``:
        ``namespace/name``. Raises InputError if the pod is not part of this result.
        """
        if pod in self.placed:
            return f"placed on {self.placed[pod]}"
        if pod in self.not_tried:
            return "not tried: placing stopped before"
        record = next((record for record in self.unschedulable_records if record.key == pod), None)
        if record is None:
            raise InputError(f"pod {pod!r} is not part of this result")
        return fit(self.snapshot_after, [pod if pod in self.snapshot.pending else record.pod]).explain(pod)

    def to_dict(self) -> dict[str, Any]:
        """Return placed pods, unschedulable pods and pods not tried, as plain data with ``kind`` first."""
        return {
            "apiVersion": API_VERSION,
            "kind": type(self).__name__,
            "placed": self.placed,
            "unschedulable": self.unschedulable,
            "notTried": self.not_tried,
        }


@typed
def place(
    snapshot: SnapshotLike,
    pods: PodsLike = None,
    *,
    state: PlaceState | None = None,
    profile: SchedulerProfile | None = None,
    scores: ScoreOptions | None = None,
    unacceptable_nodes: Iterable[str] = (),
    break_on_failure: bool = False,
    max_looks: int | None = None,
) -> PlaceResult:
    """Place pods on existing nodes, highest priority first.

    Each pod goes to the node where it was last time (the hints of ``state``), or to the first node after the cursor
    that it fits (upstream: ``HintingSimulator.TrySchedulePods``).

    Parameters
    ----------
    snapshot : Snapshot or Cluster
        Cluster state. A Cluster is snapshotted first. The snapshot does not change.
    pods : sequence of str, Pod, dict or client object; or manifests, optional
        Pods to place. Default: the snapshot's pending pods. With a Cluster also Deployments and other workloads, as for
        :func:`kscale.fit`.
    state : PlaceState, optional
        State that the previous call returned: scan cursor and hints.
    profile : SchedulerProfile, optional
        Scheduler profile. Default: upstream's default profile.
    scores : ScoreOptions, optional
        If present, every pod goes where kube-scheduler would put it; see Notes.
    unacceptable_nodes : iterable of str
        Names of nodes that get no pods, in addition to cordoned nodes. Unknown names are ignored.
    break_on_failure : bool
        Skip the remaining pods of a priority after the first one that fits no node.
    max_looks : int, optional
        Limit of tries, in place of the deadline that upstream may have; the remaining pods are not tried. Within a
        priority, every pod is tried once for its hint, and once more if that did not place it.

    Returns
    -------
    PlaceResult
        The placement, the snapshot after it, and the state for the next call.

    Raises
    ------
    InputError
        If a pod cannot be read, is not in the snapshot, is passed twice or is on a node, or if ``state`` or
        ``max_looks`` is invalid. With ``scores``, also for hints in ``state``, ``break_on_failure`` and ``max_looks``.

    Notes
    -----
    With ``scores`` (upstream: ``schedulePod``) a pod passes filters, then scores of the nodes that pass, then the
    choice. Among equal scores the first node in list order is taken, where upstream takes a random one. Nodes are tried
    from ``state.cursor`` on (upstream: ``nextStartNodeIndex``) until enough fit the pod; cordoned nodes take pods that
    tolerate it.

    A simulated scheduler calls this function with the pods of one cycle in the order of its queue (equal priorities
    keep their order), continues with ``snapshot_after``, and passes the result's ``state`` to the next call.
    """
    state = _check_state(state)
    snapshot, pods = inputs_of(snapshot, pods)
    records, positions, priorities = _sort_by_priority(pods_of(snapshot, pods, waiting=True))
    look_limit = -1 if max_looks is None else position_of(max_looks, "max_looks")
    if not len(records) and scores is None:
        no_nodes = np.zeros(0, dtype=np.int32)
        after = PlaceState(cursor=state.cursor, old_hints=state.hints)
        return PlaceResult(snapshot, records, positions, no_nodes, no_nodes, after, 0, [])
    unique, class_of = snapshot.distinct_classes(records)
    session = Session(snapshot, unique, profile=profile)
    acceptable = None
    refused = [snapshot.columns.index[name] for name in unacceptable_nodes if name in snapshot.columns.index]
    if refused:
        acceptable = np.ones(len(snapshot.nodes), dtype=np.uint8)
        acceptable[refused] = 0
    if scores is not None:
        if break_on_failure or max_looks is not None or state.hints or state.old_hints:
            raise InputError("scores: kube-scheduler has no hints, no break_on_failure and no max_looks")
        from kscale.scheduling.scores.choosing import choose  # imports six modules that few calls need

        node, order, start = choose(
            snapshot, session, records, unique, class_of, scores, profile, acceptable=acceptable, start=state.cursor
        )
        after = PlaceState(cursor=start)
        return PlaceResult(snapshot, records, positions, node, order, after, 0, session.unmodelled)
    return _try_to_place(
        session,
        (records, positions, priorities),
        class_of,
        state,
        acceptable=acceptable,
        break_on_failure=break_on_failure,
        look_limit=look_limit,
        unmodelled=session.unmodelled,
    )


def place_in_session(
    session: Session, pods: Sequence[PodRecord], *, state: PlaceState, max_looks: int | None = None
) -> PlaceResult:
    """Place pods as :func:`place` does, from ``state`` on, in a session that has their classes.

    The session's engine keeps the placed pods. Rules that the session does not consider (:attr:`Session.unmodelled`)
    are not part of the result.
    """
    if isinstance(pods, PodRows):
        number_controllers_and_shapes(pods)  # cached also for the pods that the caller takes from these
    ordered = _sort_by_priority(pods)
    unique, class_of = session.snapshot.distinct_classes(pods)
    look_limit = -1 if max_looks is None else position_of(max_looks, "max_looks")
    of_ordered = session.classes_of(unique)[class_of[ordered[1]]]
    return _try_to_place(session, ordered, of_ordered, state, look_limit=look_limit)


def _try_to_place(
    session: Session,
    pods: tuple[Sequence[PodRecord], NDArray[np.int64], NDArray[np.int64]],
    class_of: NDArray[np.int32],
    state: PlaceState,
    *,
    look_limit: int,
    acceptable: NDArray[np.uint8] | None = None,
    break_on_failure: bool = False,
    unmodelled: Sequence[str] = (),
) -> PlaceResult:
    """Place pods on the nodes of a session, whose engine keeps them.

    ``pods``: the result of :func:`_sort_by_priority`; ``class_of``: int32[n], their classes in the session;
    ``look_limit``: number of tries, -1 = unlimited; ``acceptable``: uint8[nodes], 0 excludes a node; ``unmodelled``:
    copied to the result.
    """
    records, positions, priorities = pods
    snapshot, engine, count = session.snapshot, session.engine, len(records)
    hints = np.full(count, -1, dtype=np.int32)
    if state.hints or state.old_hints:
        index = snapshot.columns.index
        for i, uid in enumerate(records.uids() if isinstance(records, PodRows) else (r.uid for r in records)):
            name = state.hint(uid)
            if name is not None:
                hints[i] = index.get(name, -1)
    controller, shape = number_controllers_and_shapes(records)
    begins = starts_of_runs(priorities)
    engine.cursor = state.cursor
    node, order, overflowing = _engine.try_schedule(
        engine,
        class_of,
        hints,
        shape,
        controller,
        np.append(begins, count).astype(np.int32),
        acceptable=acceptable,
        break_on_failure=break_on_failure,
        max_looks=look_limit,
    )
    placed_on = map(snapshot.nodes.__getitem__, node[order].tolist())
    hints_after = state.hints | dict(zip(_uids_at(records, order), placed_on, strict=True))
    after = PlaceState(cursor=engine.cursor, hints={}, old_hints=hints_after)
    return PlaceResult(snapshot, records, positions, node, order, after, overflowing, list(unmodelled))


def _uids_at(records: Sequence[PodRecord], positions: NDArray[np.int32]) -> list[str]:
    """Return the UIDs of the pods at the given positions, or the keys of pods without UID."""
    if isinstance(records, PodRows):
        return records.take(positions.astype(np.int64)).uids()
    return [records[i].uid for i in positions.tolist()]


def _check_state(state: Any) -> PlaceState:
    """Return the state, or an empty one for None. Raises InputError for other values."""
    if state is None:
        return PlaceState()
    if not isinstance(state, PlaceState):
        raise InputError(f"state is {short(state)}, not a PlaceState")
    position_of(state.cursor, "state.cursor")
    for label, hints in (("state.hints", state.hints), ("state.old_hints", state.old_hints)):
        if not isinstance(hints, dict):
            raise InputError(f"{label} is {short(hints)}, not pod UIDs and their nodes")
    return state


def _sort_by_priority(records: Sequence[PodRecord]) -> tuple[Sequence[PodRecord], NDArray[np.int64], NDArray[np.int64]]:
    """Return pods by descending priority, their positions among ``records``, and their priorities.

    The sort is stable.
    """
    priorities = priorities_of(records)
    order = np.argsort(~priorities, kind="stable")  # ~ reverses the order as - does, but does not overflow
    if isinstance(records, PodRows) and (priorities[1:] <= priorities[:-1]).all():
        return records, order, priorities  # in order already
    taken = records.take(order) if isinstance(records, PodRows) else [records[i] for i in order.tolist()]
    return taken, order, priorities[order]
