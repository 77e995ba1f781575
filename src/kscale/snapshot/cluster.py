"""A cluster that changes: objects in, snapshots out. What a watch, a dump or a simulation feeds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.objects.core import Node, Pod
from kscale.objects.kinds import kind_of
from kscale.objects.meta import KubeObject
from kscale.snapshot.columns import Growing, NodeColumns
from kscale.snapshot.informers import INFORMED_KINDS, Informers
from kscale.snapshot.interner import Interner
from kscale.snapshot.pod_table import FINISHED, GATED, PENDING, PLACED, TERMINATING, PodTable
from kscale.snapshot.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from kscale.snapshot.loading import LoadReport
    from kscale.snapshot.pod_texts import PodBatch

__all__ = ["Cluster"]

_FEW = 16  # pods of a batch that are not worth working on columns


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
        self._changes = _NodeChanges()
        self._node_columns = NodeColumns()
        self._informers = Informers.of({})
        self._changed_kinds: set[str] = set()
        self._row_of: dict[str, int] = {}
        self._pods = PodTable(self.interner.classes)
        self._numbered: tuple[list[str], NDArray[np.int32]] | None = None
        # what placed pods take, by node name, whether the node is known or not
        self._name_ids: dict[str, int] = {}
        self._used: dict[str, Growing] = {}
        self._count = Growing(np.int64)
        for item in objects:
            self.apply(item)

    def copy(self) -> Cluster:
        """Another cluster with the same objects: what happens to one does not happen to the other. Nothing is read or
        classified anew."""
        made = Cluster.__new__(Cluster)
        vars(made).update(
            vars(self),
            objects={kind: dict(found) for kind, found in self.objects.items()},
            _numbered=None,
            _nodes=dict(self._nodes),
            _row_of=dict(self._row_of),
            _name_ids=dict(self._name_ids),
            _changes=self._changes.copy(),
            _changed_kinds=set(self._changed_kinds),
            _pods=self._pods.copy(),
            _used={name: column.copy() for name, column in self._used.items()},
            _count=self._count.copy(),
        )
        return made

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
            self._changes.apply(item.name, self._node_columns)
        else:
            kind = _kind(item)
            self.objects.setdefault(kind, {})[item.key] = item
            if kind in INFORMED_KINDS:
                self._changed_kinds.add(kind)

    def remove(self, item: Any) -> bool:
        """Remove an object (or what has its kind and key); False if it was not there.

        An item with a UID removes no object with another: under its key there is a newer one by then, and a late word
        of the old one's end changes nothing. An item without UID, or one held without, goes by kind and key alone.
        """
        if isinstance(item, Pod):
            return self._remove_pod(item)
        if isinstance(item, Node):
            if not _same(self._nodes.get(item.name), item):
                return False
            del self._nodes[item.name]
            self._changes.remove(item.name)
            return True
        if not isinstance(item, KubeObject):
            from kscale.snapshot.reading import decode_any

            removed = [self.remove(each) for each, _ in decode_any(item)]
            return all(removed)
        kind = _kind(item)
        if not _same(self.objects.get(kind, {}).get(item.key), item):
            return False
        if kind in INFORMED_KINDS:
            self._changed_kinds.add(kind)
        del self.objects[kind][item.key]
        return True

    def _apply_pod(self, pod: Pod, raw: msgspec.Raw | dict[str, Any] | None) -> None:
        state = state_of(pod, finished=self._finished)
        class_of = self.interner.classify(pod, placed=state in (PLACED, FINISHED)).index
        at = self._name_id(pod.spec.node_name or pod.status.nominated_node_name) if state == PLACED else -1
        self._put(PodRecord(pod, raw), class_of, at, state)

    def _put(self, record: PodRecord, class_of: int, at: int, state: int) -> None:
        row = self._row_of.get(record.key)
        if row is None:
            row = self._row_of[record.key] = self._pods.append(record, class_of, at, state)
        else:
            self._take(row, -1)
            self._pods.replace(row, record, class_of, at, state)
        self._take(row, 1)

    def apply_batch(self, batch: PodBatch) -> None:
        """``apply`` for pods that were read to columns with this cluster's interner."""
        row_of = self._row_of
        if self._numbered is None or self._numbered[0] is not batch.nodes:
            numbers = [*map(self._name_id, batch.nodes), -1]  # no node takes the last
            self._numbered = batch.nodes, np.array(numbers, dtype=np.int32)
        at = self._numbered[1][batch.node_of]
        keys, again = batch.keys, np.zeros(len(batch.keys), dtype=np.bool_)
        if len(keys) <= _FEW:
            again[:] = True
        elif len(set(keys)) < len(keys) or not row_of.keys().isdisjoint(keys):
            known = {key for key in keys if key in row_of}
            for i, key in enumerate(keys):
                again[i] = key in known
                known.add(key)
        first = np.flatnonzero(~again)
        if len(first):
            self._append_many(batch, at, first)
        for i in np.flatnonzero(again).tolist():
            self._put(batch.record(i), int(batch.class_of[i]), int(at[i]), int(batch.state[i]))

    def _append_many(self, batch: PodBatch, at: NDArray[np.int32], which: NDArray[np.int64]) -> None:
        """Pods that are not there yet."""
        table = self._pods
        if not table.buffers or table.buffers[-1] is not batch.view:
            table.buffers = [*table.buffers, batch.view]
        controllers = np.array([*map(table.controller_number, batch.controllers), -1], dtype=np.int32)
        every = len(which) == len(batch.keys)
        keys = batch.keys if every else [batch.keys[i] for i in which.tolist()]
        class_of, at, state = batch.class_of[which], at[which], batch.state[which]
        rows = table.extend(
            keys,
            class_of=class_of,
            at=at,
            state=state,
            priority=batch.priority[which],
            controller=controllers[batch.controller[which]],
            source=np.full(len(keys), len(table.buffers) - 1, dtype=np.int32),
            offset=batch.offset[which],
            size=batch.size[which],
            uid_offset=batch.uid_offset[which],
            uid_size=batch.uid_size[which],
            kind_of=batch.kind_of[which],
        )
        self._row_of.update(zip(keys, rows.tolist(), strict=True))
        placed = state == PLACED
        self._take_many(class_of[placed], at[placed])

    def _remove_pod(self, pod: Pod) -> bool:
        row = self._row_of.get(pod.key)
        if row is None:
            return False
        uid = pod.metadata.uid
        if uid and self._pods.record(row).uid not in (uid, pod.key):  # the key stands for a missing one
            return False
        del self._row_of[pod.key]
        self._take(row, -1)
        self._pods.drop(row)
        if len(self._pods) > 2 * len(self._row_of) + _FEW:
            self._pods = self._pods.compacted()
            self._row_of = {key: i for i, key in enumerate(self._pods.keys)}
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
        table = self._pods
        at = int(table.column("at")[row])
        if at < 0 or table.column("state")[row] != PLACED:
            return
        self._count.array[at] += sign
        for name, amount in self.interner.classes[table.column("class_of")[row]].occupancy.items():
            cell = self._used_of(name)[at : at + 1]  # as an array: sums wrap, as upstream's do
            if sign > 0:
                cell += amount
            else:
                cell -= amount

    def _used_of(self, resource: str) -> NDArray[Any]:
        column = self._used.get(resource)
        if column is None:
            column = self._used[resource] = Growing(np.int64)
            column.extend_to(len(self._name_ids))
        return column.array

    def _take_many(self, class_of: NDArray[np.int32], at: NDArray[np.int32]) -> None:
        self._count.array[:] += np.bincount(at, minlength=self._count.size)
        numbers, position = np.unique(class_of, return_inverse=True)
        taken = [self.interner.classes[number].occupancy for number in numbers.tolist()]
        for name in dict.fromkeys(name for amounts in taken for name in amounts):
            amount = np.array([amounts.get(name, 0) for amounts in taken], dtype=np.int64)
            np.add.at(self._used_of(name), at, amount[position])

    # -- looking -----------------------------------------------------------------------------------------------------

    def pod(self, key: str) -> Pod:
        """A pod by ``namespace/name``. Raises KeyError."""
        return self._pods.record(self._row_of[key]).pod

    def pods(self) -> Iterator[Pod]:
        """All pods in order of first appearance."""
        return (self._pods.record(row).pod for row in self._row_of.values())

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
        if self._changes:
            self._node_columns = self._changes.of(self._node_columns, self._nodes)
            self._changes = _NodeChanges()
        if self._changed_kinds:
            self._informers = self._informers.changed(self.objects, self._changed_kinds)
            self._changed_kinds = set()
        nodes, table = self._node_columns, self._pods.freeze()
        name_ids = np.fromiter((self._name_ids.get(name, -1) for name in nodes.names), np.int64, len(nodes))
        node_of = np.full(len(self._name_ids) + 1, -1, dtype=np.int32)
        node_of[name_ids] = np.arange(len(nodes), dtype=np.int32)
        node_of[-1] = -1
        known = name_ids >= 0

        def of_nodes(column: Growing) -> NDArray[np.int64]:
            out = np.zeros(len(nodes), dtype=np.int64)
            out[known] = column.array[name_ids[known]]
            return out

        state = table.column("state")
        at = node_of[table.column("at")]
        placed = np.flatnonzero((state == PLACED) & (at >= 0))
        return Snapshot(
            interner=self.interner,
            nodes=nodes,
            informers=self._informers,
            used={name: of_nodes(column) for name, column in self._used.items()},
            pod_count=of_nodes(self._count),
            table=table,
            placed_rows=placed,
            placed_node=at[placed],
            pending_rows=np.flatnonzero(state == PENDING),
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

    def __getstate__(self) -> dict[str, Any]:
        """What is derived is left out."""
        return {**self.__dict__, "_numbered": None}


class _NodeChanges:
    """What happened to the nodes since their columns were made."""

    def __init__(self) -> None:
        self.removed: set[str] = set()
        self.replaced: dict[str, None] = {}
        self.appended: dict[str, None] = {}

    def copy(self) -> _NodeChanges:
        """The same, on its own."""
        made = _NodeChanges()
        made.removed, made.replaced, made.appended = set(self.removed), dict(self.replaced), dict(self.appended)
        return made

    def __bool__(self) -> bool:
        return bool(self.removed or self.replaced or self.appended)

    def apply(self, name: str, base: NodeColumns) -> None:
        """A node was added, or replaced in place."""
        in_place = name in base.index and name not in self.removed
        (self.replaced if in_place else self.appended)[name] = None

    def remove(self, name: str) -> None:
        """A node that was there was removed."""
        if name in self.appended:
            del self.appended[name]
        else:
            self.replaced.pop(name, None)
            self.removed.add(name)

    def of(self, base: NodeColumns, nodes: dict[str, Node]) -> NodeColumns:
        """The columns now."""
        if not len(base):
            return NodeColumns(nodes.values())
        replaced = [nodes[name] for name in self.replaced]
        return base.changed(self.removed, replaced, [nodes[name] for name in self.appended])


def _no_report() -> LoadReport:
    from kscale.snapshot.loading import LoadReport

    return LoadReport()


def _same(held: KubeObject | None, item: KubeObject) -> bool:
    """Whether what is held under an item's key may be the item."""
    if held is None:
        return False
    return held.metadata.uid == item.metadata.uid or not (held.metadata.uid and item.metadata.uid)


def _kind(item: KubeObject) -> str:
    if item.kind:
        return item.kind
    found = kind_of(type(item))
    if found is None:
        raise TypeError(f"{type(item).__name__} is not a Kubernetes object that kscale knows")
    return found[1]
