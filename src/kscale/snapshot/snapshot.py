"""A cluster at one moment, as columns. Immutable; every decision starts from one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError
from kscale.objects.api.core import Node, Pod
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.times import moment
from kscale.snapshot.caches import Memo
from kscale.snapshot.classes.classifier import Classifier
from kscale.snapshot.classes.interner import Interner, PodClass
from kscale.snapshot.columns import NodeColumns, read_only
from kscale.snapshot.object_store import Informers
from kscale.snapshot.pods.index import PodIndex
from kscale.snapshot.pods.record import ELSEWHERE, GATED, PodRecord
from kscale.snapshot.pods.rows import PlacedPods, PodRows
from kscale.snapshot.pods.table import PodTable, uid_text

__all__ = ["Snapshot"]


_SHOWN: Final = ("placed", "pending")


class Snapshot:
    """Columns of nodes and pods, and the objects that predicates look up. None of it can be written to.

    ``nodes``, ``pods`` (placed), ``pending``: names in input order. ``counts``: how many pods are placed, pending,
    gated and so on. ``used[name]``: int64[N], what placed pods take; ``pod_count``: int64[N]. ``placed_class``,
    ``placed_node``: int32[M], one entry a placed pod, in order of appearance. ``now``: nanoseconds since 1970, if time
    matters to anything in it.
    """

    def __init__(
        self,
        *,
        interner: Interner,
        nodes: NodeColumns,
        informers: Informers,
        used: Mapping[str, NDArray[np.int64]],
        pod_count: NDArray[np.int64],
        table: PodTable,
        placed_rows: NDArray[np.int64],
        placed_node: NDArray[np.int32],
        pending_rows: NDArray[np.int64],
        counts: Mapping[str, int],
        csi: bool,
        dra: bool,
        now: int | None = None,
        added: tuple[PodRecord, ...] = (),
    ) -> None:
        self.interner = interner
        self.columns = nodes
        self.informers = informers
        self.dra = dra
        self.used: Mapping[str, NDArray[np.int64]] = used
        self.pod_count = pod_count
        self.table = table
        self.placed_class: NDArray[np.int32] = table.column("class_of")[placed_rows]
        if added:
            own = np.array([record_class.index for record_class in self.classify(added)], dtype=np.int32)
            self.placed_class = np.append(self.placed_class, own)
        self.placed_node = placed_node
        self.counts: Mapping[str, int] = counts
        self.csi = csi
        self.now = None if now is None else moment(now)
        self._placed_rows = placed_rows
        self._pending_rows = pending_rows
        self._added = added
        self.memo = Memo()
        self._close()

    def _close(self) -> None:
        """From here on nothing is written to: what was worked out of it is kept with it."""
        self.used = MappingProxyType({name: read_only(column) for name, column in self.used.items()})
        self.counts = MappingProxyType(dict(self.counts))
        self.pod_count = read_only(self.pod_count)
        self.placed_class, self.placed_node = read_only(self.placed_class), read_only(self.placed_node)
        self._placed_rows, self._pending_rows = read_only(self._placed_rows), read_only(self._pending_rows)

    def __repr__(self) -> str:
        others = [f"{count} {name}" for name, count in self.counts.items() if count and name not in _SHOWN]
        more = f" ({', '.join(others)})" if others else ""
        return (
            f"<Snapshot: {len(self.columns)} nodes, {len(self.placed_node)} placed pods, "
            f"{len(self._pending_rows)} pending{more}>"
        )

    def __getstate__(self) -> dict[str, Any]:
        """What is derived is left out, and so are the texts of pods that are where they are to be: of those the copy
        tells what decisions read, and no more."""
        derived = {name for name, value in vars(Snapshot).items() if isinstance(value, cached_property)}
        state = {name: value for name, value in vars(self).items() if name not in derived}
        return {
            **state,
            "table": self.table.with_waiting_texts(),
            "used": dict(self.used),
            "counts": dict(self.counts),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._close()

    # -- names -------------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[str, ...]:
        """Node names in list order."""
        return self.columns.names

    @cached_property
    def placed(self) -> PlacedPods:
        """The placed pods themselves, in order of appearance."""
        return PlacedPods(self.table, self._placed_rows, self._added)

    @property
    def pods(self) -> tuple[str, ...]:
        """Placed pods, ``namespace/name``, in order of appearance."""
        return self.placed.keys

    @cached_property
    def pending(self) -> tuple[str, ...]:
        """Pods that wait for a node, ``namespace/name``, in order of appearance."""
        keys = self.table.keys
        return tuple([keys[row] for row in self._pending_rows.tolist()])

    @cached_property
    def pending_records(self) -> PodRows:
        """The pending pods themselves, made when asked for; columns of them without making any."""
        return PodRows(self.table, self._pending_rows)

    @property
    def gated_records(self) -> list[PodRecord]:
        """The pods that wait for their scheduling gates, in order of appearance."""
        return [self.table.record(row) for row in np.flatnonzero(self.table.column("state") == GATED).tolist()]

    @property
    def pod_index(self) -> PodIndex:
        """All pods of the input by namespace and selector, whatever has become of them; pods that a decision placed
        later are not there."""
        return PodIndex(self.table)

    def record(self, key: str) -> PodRecord:
        """A placed or pending pod by name. Raises KeyError."""
        row = self._pending_row_of.get(key)
        if row is None:
            row = self._row_of.get(key)
        if row is not None:
            return self.table.record(row)
        for record in self._added:
            if record.key == key:
                return record
        raise KeyError(key)

    def pod_uid(self, key: str) -> str:
        """Return the UID of a placed or pending pod of the input; empty if it has none, or is not there."""
        row = self._pending_row_of.get(key)
        if row is None:
            row = self._row_of.get(key)
        return "" if row is None else uid_text(self.table, row).decode()

    def whereabouts(self, key: str) -> str:
        """Why a pod of the input is neither pending nor placed here, for messages; empty if it is not in the input."""
        for row, found in enumerate(self.table.keys):
            if found == key and (said := ELSEWHERE.get(int(self.table.column("state")[row]))):
                return said
        return ""

    def records(self, keys: Sequence[str]) -> Sequence[PodRecord]:
        """:meth:`record` of many; columns of them without making any, but for pods that were placed later."""
        if self._added and not {pod.key for pod in self._added}.isdisjoint(keys):
            return [*map(self.record, keys)]
        waiting = self._pending_row_of
        try:
            rows = [waiting[key] for key in keys]
        except KeyError:
            row_of = self._row_of
            rows = [row_of[key] for key in keys]
        return PodRows(self.table, np.array(rows, dtype=np.int64))

    def nodes_of(self, keys: Sequence[str]) -> list[int]:
        """The numbers of the nodes that pods run on, by pod name; -1 = pending. Raises KeyError."""
        known, waiting = len(self._placed_rows), self._pending_row_of
        added = {pod.key: at for at, pod in enumerate(self._added, known)}
        found = []
        for key in keys:
            at = added.get(key, -1)
            if at < 0 and key not in waiting:
                at = int(np.searchsorted(self._placed_rows, self._row_of[key]))  # they rise
            found.append(int(self.placed_node[at]) if at >= 0 else -1)
        return found

    def pod(self, key: str) -> Pod:
        """A placed or pending pod by name. Raises KeyError."""
        return self.record(key).pod

    @cached_property
    def _pending_row_of(self) -> dict[str, int]:
        return dict(zip(self.pending, self._pending_rows.tolist(), strict=True))

    @cached_property
    def _row_of(self) -> dict[str, int]:
        keys = self.table.keys
        return {keys[row]: row for rows in (self._placed_rows, self._pending_rows) for row in rows.tolist()}

    # -- derived -----------------------------------------------------------------------------------------------------

    @cached_property
    def by_class(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(classes, starts, order): placed pods sorted by class; those of ``classes[i]`` are
        ``order[starts[i]:starts[i + 1]]``."""
        order = np.argsort(self.placed_class, kind="stable")
        classes, starts = np.unique(self.placed_class[order], return_index=True)
        return classes.astype(np.int64), np.append(starts, len(order)).astype(np.int64), order.astype(np.int64)

    @cached_property
    def placed_classes(self) -> list[PodClass]:
        """Every class that some placed pod has, in the order of ``by_class``."""
        return [self.interner.classes[i] for i in np.flatnonzero(np.bincount(self.placed_class)).tolist()]

    def nodes_of_class(self, which: int) -> NDArray[np.int32]:
        """The nodes of the placed pods of ``placed_classes[which]``, one entry a pod."""
        _, starts, order = self.by_class
        nodes: NDArray[np.int32] = self.placed_node[order[starts[which] : starts[which + 1]]]
        return nodes

    def free(self, resource: str) -> NDArray[np.int64]:
        """Allocatable minus used of one resource: int64[N]."""
        column = self.columns.allocatable.get(resource)
        have = np.zeros(len(self.columns), np.int64) if column is None else column.copy()
        taken = self.used.get(resource)
        if taken is not None:
            have -= taken
        return have

    @cached_property
    def _classifier(self) -> Classifier:
        return Classifier(self.interner, self.informers.leftovers if self.dra else ())

    def classify(self, pods: Iterable[PodRecord]) -> list[PodClass]:
        """The classes of pods that are not in the snapshot, or not placed in it."""
        return self._classifier.classes(pods)

    def distinct_classes(self, pods: Sequence[PodRecord]) -> tuple[list[PodClass], NDArray[np.int32]]:
        """(the classes of pods as :meth:`classify` tells them, each once in order of appearance; int32[n]: which)."""
        return self._classifier.distinct(pods)

    @cached_property
    def pending_classes(self) -> list[PodClass]:
        """The classes of the pending pods."""
        return self.classify(self.pending_records)

    def with_placed(
        self, pods: Sequence[PodRecord], nodes: Sequence[int], informers: Informers | None = None
    ) -> Snapshot:
        """Another snapshot in which these pods run on these nodes (by number), after those already there.

        ``informers``: what the informers hold then, if that changes.
        """
        classes = self.classify(pods)
        used = {name: column.copy() for name, column in self.used.items()}
        pod_count = self.pod_count.copy()
        for pod_class, node in zip(classes, nodes, strict=True):
            pod_count[node] += 1
            for name, amount in pod_class.occupancy.items():
                if name not in used:
                    used[name] = np.zeros(len(self.columns), np.int64)
                used[name][node : node + 1] += amount  # as an array: sums wrap, as upstream's do
        placed_keys = {pod.key for pod in pods}
        keys = self.table.keys
        keep = np.fromiter(
            (keys[row] not in placed_keys for row in self._pending_rows.tolist()), bool, len(self._pending_rows)
        )
        return Snapshot(
            interner=self.interner,
            nodes=self.columns,
            informers=informers or self.informers,
            used=used,
            pod_count=pod_count,
            table=self.table,
            placed_rows=self._placed_rows,
            placed_node=np.append(self.placed_node, np.array(nodes, np.int32)).astype(np.int32),
            pending_rows=self._pending_rows[keep],
            counts={**self.counts, "placed": self.counts["placed"] + len(pods), "pending": int(keep.sum())},
            csi=self.csi,
            dra=self.dra,
            now=self.now,
            added=(*self._added, *pods),
        )

    def csi_aware(self) -> Snapshot:
        """Return this snapshot for a CSI-node-aware simulation, in which new nodes have the CSINode of their template;
        itself if it is for one already."""
        if self.csi:
            return self
        made = copy(self)
        made.csi, made.memo = True, Memo()
        return made

    def with_nodes(
        self, fresh: Sequence[NodeTemplate] = (), *, without: Collection[str] = (), replaced: Sequence[Node] = ()
    ) -> Snapshot:
        """Another snapshot: without some nodes and what runs on them, with others in the place of those of their names,
        and with new ones (``fresh``) at the end, their pods and devices with them.

        Raises InputError for a new node whose name another one has, KeyError for one to be left out or replaced that is
        not there.
        """
        known = self.columns.index
        for name, count in Counter(each.node.metadata.name for each in fresh).items():
            if count > 1 or (name in known and name not in without):
                raise InputError(f"there are two nodes {name}")
        columns = self.columns.changed(without, replaced, [each.node for each in fresh])
        stays = np.ones(len(self.columns), dtype=np.bool_)
        stays[[known[name] for name in without]] = False
        kept = np.flatnonzero(stays)
        base = self.keeping(stays[self.placed_node]) if without else self
        number = np.full(len(self.columns), -1, dtype=np.int32)
        number[kept] = np.arange(len(columns) - len(fresh), dtype=np.int32)

        def of_nodes(column: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.append(column[kept], np.zeros(len(fresh), dtype=np.int64))

        records, homes = [], []
        for home, each in enumerate(fresh, len(columns) - len(fresh)):
            for pod in each.pods:
                record = PodRecord(pod)
                record.pod_class = self.interner.classify(pod, placed=True)
                records.append(record)
                homes.append(home)
        made = Snapshot(
            interner=self.interner,
            nodes=columns,
            informers=self.informers.with_devices(fresh),
            used={name: of_nodes(column) for name, column in base.used.items()},
            pod_count=of_nodes(base.pod_count),
            table=self.table,
            placed_rows=base.placed.rows,
            placed_node=number[base.placed_node],
            pending_rows=self._pending_rows,
            counts=base.counts,
            csi=self.csi,
            dra=self.dra,
            now=self.now,
            added=base.placed.added,
        )
        return made.with_placed(records, homes) if records else made

    def without_placed(self, gone: NDArray[np.int64]) -> Snapshot:
        """This snapshot without some of the placed pods (``gone``), by position in ``pods``; the very same as the last
        time, if these pods are. Itself if there are none."""
        return self.memo.of(_Without, _Without).of(self, gone) if len(gone) else self

    def keeping(self, keep: NDArray[np.bool_]) -> Snapshot:
        """Another snapshot with only some of the placed pods: ``keep`` is bool[M], in the order of ``placed_class``."""
        used = {name: column.copy() for name, column in self.used.items()}
        pod_count = self.pod_count.copy()
        gone = np.flatnonzero(~keep)
        gone = gone[np.argsort(self.placed_class[gone], kind="stable")]
        classes, nodes = self.placed_class[gone], self.placed_node[gone]
        np.subtract.at(pod_count, nodes, 1)
        starts = np.flatnonzero(np.diff(classes, prepend=-1)).tolist()
        for start, end in pairwise([*starts, len(gone)]):
            for name, amount in self.interner.classes[classes[start]].occupancy.items():
                if amount:  # of what nobody takes any there is no column
                    np.subtract.at(used[name], nodes[start:end], amount)
        of_rows = keep[: len(self._placed_rows)]
        of_added = keep[len(self._placed_rows) :]
        return Snapshot(
            interner=self.interner,
            nodes=self.columns,
            informers=self.informers,
            used=used,
            pod_count=pod_count,
            table=self.table,
            placed_rows=self._placed_rows[of_rows],
            placed_node=self.placed_node[keep],
            pending_rows=self._pending_rows,
            counts={**self.counts, "placed": int(keep.sum())},
            csi=self.csi,
            dra=self.dra,
            now=self.now,
            added=tuple(pod for pod, kept in zip(self._added, of_added, strict=True) if kept),
        )


class _Without:
    """A snapshot without some of its placed pods, for those that were asked for last."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[NDArray[np.int64], Snapshot] | None = None

    def of(self, snapshot: Snapshot, gone: NDArray[np.int64]) -> Snapshot:
        last = self._last
        if last is None or not np.array_equal(last[0], gone):
            keep = np.ones(len(snapshot.placed_node), dtype=np.bool_)
            keep[gone] = False
            last = self._last = gone.copy(), snapshot.keeping(keep)
        return last[1]
