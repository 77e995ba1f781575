"""A cluster that changes: objects in, snapshots out. What a watch, a dump or a simulation feeds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from kscale.objects.core import Node, Pod
from kscale.objects.kinds import kind_of
from kscale.objects.meta import KubeObject
from kscale.snapshot.columns import Growing, NodeColumns
from kscale.snapshot.informers import INFORMED_KINDS, Informers
from kscale.snapshot.interner import Interner
from kscale.snapshot.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from kscale.snapshot.loading import LoadReport

__all__ = ["FINISHED", "GATED", "GONE", "PENDING", "PLACED", "TERMINATING", "Cluster"]

# States of a pod row.
GONE, PLACED, PENDING, GATED, TERMINATING, FINISHED = -1, 0, 1, 2, 3, 4


def state_of(pod: Pod, *, finished: bool = False) -> int:
    """Where a pod stands. Placed: bound, or nominated to a node; finished pods and gated ones are not looked at.

    ``finished``: take finished pods for what they would be if they were not.
    """
    if not finished and pod.status.phase in ("Succeeded", "Failed"):
        return FINISHED
    if pod.spec.node_name or pod.status.nominated_node_name:
        return PLACED
    if pod.metadata.deletion_timestamp is not None:
        return TERMINATING
    return GATED if pod.spec.scheduling_gates else PENDING


class Cluster:
    """Objects by kind and key, and the running sums that snapshots are made of.

    ``apply`` adds or replaces in place (a pod under an old key with another UID replaces the old one); ``remove``
    closes the gap. Node order is the order of first appearance. A snapshot that was handed out never changes.

    ``finished``: pods in phase Succeeded or Failed occupy their nodes like others (upstream's listers leave them out,
    and so does a cluster by default). ``report``: what :func:`kscale.load` read.
    """

    def __init__(self, objects: Iterable[Any] = (), *, finished: bool = False) -> None:
        self.report: LoadReport = _no_report()
        self._finished = finished
        self.interner = Interner()
        self.objects: dict[str, dict[str, KubeObject]] = {}
        self._nodes: dict[str, Node] = {}
        self._node_columns: NodeColumns | None = None
        self._informers: Informers | None = None
        # pods, by row
        self._row_of: dict[str, int] = {}
        self._keys: list[str] = []
        self._pods: list[PodRecord] = []
        self._class = Growing(np.int32)
        self._at = Growing(np.int32)
        self._state = Growing(np.int8)
        # what placed pods take, by node name, whether the node is known or not
        self._name_ids: dict[str, int] = {}
        self._used: dict[str, Growing] = {}
        self._count = Growing(np.int64)
        for item in objects:
            self.apply(item)

    # -- changing ----------------------------------------------------------------------------------------------------

    def apply(self, item: Any) -> None:
        """Add or replace an object: a kscale struct, a dict, or a Kubernetes client object."""
        if not isinstance(item, KubeObject):
            from kscale.snapshot.reading import decode_any

            for each, raw in decode_any(item):
                self.apply_decoded(each, raw)
            return
        self.apply_decoded(item, None)

    def apply_decoded(self, item: KubeObject, raw: msgspec.Raw | dict[str, Any] | None) -> None:
        """``apply`` for an object that is decoded already; ``raw`` is the API data that it came from."""
        if isinstance(item, Pod):
            self._apply_pod(item, raw)
        elif isinstance(item, Node):
            self._nodes[item.name] = item
            self._node_columns = None
        else:
            kind = _kind(item)
            self.objects.setdefault(kind, {})[item.key] = item
            if kind in INFORMED_KINDS:
                self._informers = None

    def remove(self, item: Any) -> bool:
        """Remove an object (or what has its kind and key); False if it was not there."""
        if isinstance(item, Pod):
            return self._remove_pod(item.key)
        if isinstance(item, Node):
            self._node_columns = None
            return self._nodes.pop(item.name, None) is not None
        if not isinstance(item, KubeObject):
            from kscale.snapshot.reading import decode_any

            removed = [self.remove(each) for each, _ in decode_any(item)]
            return all(removed)
        kind = _kind(item)
        if kind in INFORMED_KINDS:
            self._informers = None
        return self.objects.get(kind, {}).pop(item.key, None) is not None

    def _apply_pod(self, pod: Pod, raw: msgspec.Raw | dict[str, Any] | None) -> None:
        key = pod.key
        state = state_of(pod, finished=self._finished)
        record = PodRecord(pod, raw)
        pod_class = self.interner.classify(pod, placed=state == PLACED)
        at = self._name_id(pod.spec.node_name or pod.status.nominated_node_name) if state == PLACED else -1
        row = self._row_of.get(key)
        if row is None:
            self._row_of[key] = len(self._keys)
            self._keys.append(key)
            self._pods.append(record)
            self._class.append(pod_class.index)
            self._at.append(at)
            self._state.append(state)
        else:
            self._take(row, -1)
            self._pods[row] = record
            self._class.array[row] = pod_class.index
            self._at.array[row] = at
            self._state.array[row] = state
        self._take(self._row_of[key], 1)

    def _remove_pod(self, key: str) -> bool:
        row = self._row_of.pop(key, None)
        if row is None:
            return False
        self._take(row, -1)
        self._state.array[row] = GONE
        self._pods[row] = _NO_POD
        return True

    def _name_id(self, name: str) -> int:
        found = self._name_ids.get(name)
        if found is None:
            found = self._name_ids[name] = len(self._name_ids)
            self._count.extend_to(found + 1)
            for column in self._used.values():
                column.extend_to(found + 1)
        return found

    def _take(self, row: int, sign: int) -> None:
        at = int(self._at.array[row])
        if at < 0 or self._state.array[row] != PLACED:
            return
        self._count.array[at] += sign
        for name, amount in self.interner.classes[self._class.array[row]].occupancy.items():
            column = self._used.get(name)
            if column is None:
                column = self._used[name] = Growing(np.int64)
                column.extend_to(len(self._name_ids))
            column.array[at] += sign * amount

    # -- looking -----------------------------------------------------------------------------------------------------

    def pod(self, key: str) -> Pod:
        """A pod by ``namespace/name``. Raises KeyError."""
        return self._pods[self._row_of[key]].pod

    def pods(self) -> Iterator[Pod]:
        """All pods in order of first appearance."""
        return (self._pods[row].pod for row in self._row_of.values())

    def nodes(self) -> Iterator[Node]:
        """All nodes in list order."""
        return iter(self._nodes.values())

    def all(self, kind: str) -> Iterator[Any]:
        """All objects of a kind in order of first appearance."""
        if kind == "Pod":
            return self.pods()
        if kind == "Node":
            return self.nodes()
        return iter(self.objects.get(kind, {}).values())

    def __iter__(self) -> Iterator[KubeObject]:
        yield from self.nodes()
        yield from self.pods()
        for found in self.objects.values():
            yield from found.values()

    def snapshot(self, *, csi: bool = False, dra: bool = False) -> Snapshot:
        """The cluster as it is now. ``csi``: CSI-node-aware simulation; ``dra``: dynamic resource allocation."""
        if self._node_columns is None:
            self._node_columns = NodeColumns(self._nodes.values())
        if self._informers is None:
            self._informers = Informers.of({kind: dict(found) for kind, found in self.objects.items()})
        nodes = self._node_columns
        name_ids = np.fromiter((self._name_ids.get(name, -1) for name in nodes.names), np.int64, len(nodes))
        node_of = np.full(len(self._name_ids) + 1, -1, dtype=np.int32)
        node_of[name_ids] = np.arange(len(nodes), dtype=np.int32)
        node_of[-1] = -1
        known = name_ids >= 0

        def of_nodes(column: Growing) -> np.ndarray[Any, np.dtype[np.int64]]:
            out = np.zeros(len(nodes), dtype=np.int64)
            out[known] = column.array[name_ids[known]]
            return out

        state = self._state.array
        at = node_of[self._at.array]
        placed = np.flatnonzero((state == PLACED) & (at >= 0))
        return Snapshot(
            interner=self.interner,
            nodes=nodes,
            informers=self._informers,
            used={name: of_nodes(column) for name, column in self._used.items()},
            pod_count=of_nodes(self._count),
            placed_rows=placed,
            placed_class=self._class.array[placed].copy(),
            placed_node=at[placed].copy(),
            pending_rows=np.flatnonzero(state == PENDING),
            pods=list(self._pods),
            keys=self._keys,
            counts={
                "placed": len(placed),
                "pending": int((state == PENDING).sum()),
                "gated": int((state == GATED).sum()),
                "terminating": int((state == TERMINATING).sum()),
                "finished": int((state == FINISHED).sum()),
                "on unknown nodes": int(((state == PLACED) & (at < 0)).sum()),
            },
            csi=csi,
            dra=dra,
        )


def _no_report() -> LoadReport:
    from kscale.snapshot.loading import LoadReport

    return LoadReport()


_NO_POD = PodRecord(Pod())


def _kind(item: KubeObject) -> str:
    if item.kind:
        return item.kind
    found = kind_of(type(item))
    if found is None:
        raise TypeError(f"{type(item).__name__} is not a Kubernetes object that kscale knows")
    return found[1]
