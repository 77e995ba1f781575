"""An immutable snapshot of a cluster at one moment, as columns; the input of every decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError, Problem, UnknownNodeError, show_value
from kscale.objects.api.core import Node, Pod
from kscale.objects.argument_types import typed_methods
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.times import moment
from kscale.snapshot.caches import TypedCache
from kscale.snapshot.classes.interner import Interner, PodClass
from kscale.snapshot.columns import (
    EXCLUSION_REASONS,
    FINISHED,
    GATED,
    PENDING,
    PLACED,
    TERMINATING,
    NodeColumns,
    read_only,
)
from kscale.snapshot.object_store import Informers
from kscale.snapshot.pods.index import PodIndex
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.pods.rows import Classifier, PlacedPods, PodRows
from kscale.snapshot.pods.table import PodTable, uid_text

__all__ = ["Snapshot", "count_states", "without_lost_nodes"]


_SHOWN: Final = ("placed", "pending")


@typed_methods(
    late=(
        "classify",
        "distinct_classes",
        "keeping",
        "nodes_of",
        "pod",
        "record",
        "records",
        "with_nodes",
        "with_placed",
    )
)
class Snapshot:
    """Columns of nodes and pods, and the objects that predicates look up. Read-only.

    ``nodes``, ``pods`` (placed), ``pending``: names in input order. ``counts``: numbers of placed, pending, gated and
    other pods. ``used[name]``: int64[N], what placed pods use; ``pod_count``: int64[N]. ``placed_class``,
    ``placed_node``: int32[M], one entry per placed pod, in order of appearance. ``now``: nanoseconds since 1970, if
    anything in the snapshot depends on time.
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
        added_class: NDArray[np.int32] | None = None,
        placed_class: NDArray[np.int32] | None = None,
    ) -> None:
        self.interner = interner
        self.columns = nodes
        self.informers = informers
        self.dra = dra
        self.used: Mapping[str, NDArray[np.int64]] = used
        self.pod_count = pod_count
        self.table = table
        if placed_class is None:
            placed_class = table.columns["class_of"].take(placed_rows)
        self.placed_class: NDArray[np.int32] = placed_class
        if added:
            own = added_class
            if own is None:
                own = np.array([record_class.index for record_class in self.classify(added)], dtype=np.int32)
            self.placed_class = np.append(self.placed_class, own)
        self.placed_node = placed_node
        self.counts: Mapping[str, int] = counts
        self.csi = csi
        self.now = None if now is None else moment(now)
        self._placed_rows = placed_rows
        self._pending_rows = pending_rows
        self._added = added
        self.memo = TypedCache()
        self._freeze()

    def _freeze(self) -> None:
        """Make the columns read-only, because results computed from them are cached."""
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

    def _repr_html_(self) -> str:
        """Return the nodes with their pods and requests as HTML, for notebooks."""
        from kscale.html import markup

        placed = np.bincount(self.placed_node, minlength=len(self.columns)).tolist()
        cpu, memory = (self.used.get(name) for name in ("cpu", "memory"))
        rows = [
            (
                name,
                placed[i],
                "" if cpu is None else f"{cpu[i] / 1000:,.4g}",
                "" if memory is None else f"{memory[i] / 2**30:,.4g}",
            )
            for i, name in enumerate(self.nodes[: markup.ROWS + 1])
        ]
        title = repr(self) if len(rows) == len(self.columns) else f"{self!r} (the first {markup.ROWS} nodes)"
        return markup.listing(title, ["node", "pods", "requested cpu", "requested GiB"], rows[: markup.ROWS])

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without derived attributes and without the texts of bound and finished pods.

        The copy has only what decisions read of these pods.
        """
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
        self._freeze()

    # -- names -------------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the node names in list order."""
        return self.columns.names

    @cached_property
    def placed(self) -> PlacedPods:
        """Return the placed pods, in order of appearance."""
        return PlacedPods(self.table, self._placed_rows, self._added)

    @property
    def pods(self) -> tuple[str, ...]:
        """Return ``namespace/name`` of each placed pod, in order of appearance."""
        return self.placed.keys

    @cached_property
    def pending(self) -> tuple[str, ...]:
        """Return ``namespace/name`` of each pending pod, in order of appearance."""
        keys = self.table.keys
        return tuple([keys[row] for row in self._pending_rows.tolist()])

    @cached_property
    def pending_records(self) -> PodRows:
        """Return the pending pods. Records are built on access; the columns of the result need no record."""
        return PodRows(self.table, self._pending_rows)

    @property
    def gated_records(self) -> list[PodRecord]:
        """Return the pods with scheduling gates, in order of appearance."""
        return [self.table.record(row) for row in np.flatnonzero(self.table.columns["state"] == GATED).tolist()]

    @property
    def pod_index(self) -> PodIndex:
        """Return an index by namespace and selector of all pods of the input, in any state.

        Pods that :meth:`with_placed` added are not included.
        """
        return PodIndex(self.table)

    def record(self, key: str) -> PodRecord:
        """Return a placed or pending pod's record by name. Raises KeyError."""
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
        """Return the UID of a placed or pending pod of the input; empty if the pod is absent or has no UID."""
        row = self._pending_row_of.get(key)
        if row is None:
            row = self._row_of.get(key)
        return "" if row is None else uid_text(self.table, row).decode()

    def describe_location(self, key: str) -> str:
        """Return why a pod of the input is neither pending nor placed, for messages.

        Empty if the pod is not in the input.
        """
        for row, other_key in enumerate(self.table.keys):
            if other_key == key and (reason := EXCLUSION_REASONS.get(int(self.table.columns["state"][row]))):
                return reason
        return ""

    def records(self, keys: Sequence[str]) -> Sequence[PodRecord]:
        """Return :meth:`record` of many pods. Raises KeyError.

        The result is a :class:`PodRows`, whose columns need no decoded pods, unless some of the pods were placed later.
        """
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
        """Return the indices of the nodes of pods (``keys``: ``namespace/name``); -1 = pending.

        Raises KeyError for a pod that is neither placed nor pending.
        """
        placed_count, waiting = len(self._placed_rows), self._pending_row_of
        added = {pod.key: at for at, pod in enumerate(self._added, placed_count)}
        numbers = []
        for key in keys:
            at = added.get(key, -1)
            if at < 0 and key not in waiting:
                at = int(np.searchsorted(self._placed_rows, self._row_of[key]))  # rows are in ascending order
            numbers.append(int(self.placed_node[at]) if at >= 0 else -1)
        return numbers

    def pod(self, key: str) -> Pod:
        """Return a placed or pending pod by name. Raises KeyError."""
        return self.record(key).pod

    @cached_property
    def _pending_row_of(self) -> dict[str, int]:
        """Return the table's rows of the pending pods by ``namespace/name``."""
        return dict(zip(self.pending, self._pending_rows.tolist(), strict=True))

    @cached_property
    def _row_of(self) -> dict[str, int]:
        """Return the table's rows of the placed and pending pods by ``namespace/name``."""
        keys = self.table.keys
        return {keys[row]: row for rows in (self._placed_rows, self._pending_rows) for row in rows.tolist()}

    # -- derived data ------------------------------------------------------------------------------------------------

    @cached_property
    def placed_by_class(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the placed pods sorted by class, as (classes, starts, order).

        The pods of ``classes[i]`` are ``order[starts[i]:starts[i + 1]]``.
        """
        order = np.argsort(self.placed_class, kind="stable")
        classes, starts = np.unique(self.placed_class[order], return_index=True)
        return classes.astype(np.int64), np.append(starts, len(order)).astype(np.int64), order.astype(np.int64)

    @cached_property
    def placed_classes(self) -> list[PodClass]:
        """Return the classes of the placed pods, each once, in the order of :attr:`placed_by_class`."""
        return [self.interner.classes[i] for i in np.flatnonzero(np.bincount(self.placed_class)).tolist()]

    def nodes_of_class(self, which: int) -> NDArray[np.int32]:
        """Return the index of the node of each placed pod of ``placed_classes[which]``: int32[pods].

        Raises InputError if there is no such class.
        """
        classes, starts, order = self.placed_by_class
        if not 0 <= which < len(classes):
            raise InputError(Problem(f"{show_value(which)} is not one of the {len(classes)} classes", field="which"))
        nodes: NDArray[np.int32] = self.placed_node[order[starts[which] : starts[which + 1]]]
        return nodes

    def free(self, resource: str) -> NDArray[np.int64]:
        """Return allocatable minus used of a resource: int64[N], in milli-units of CPU or units of others."""
        free: NDArray[np.int64] = self.free_of((resource,))[0]
        return free

    def free_of(self, resources: Sequence[str]) -> NDArray[np.int64]:
        """Return allocatable minus used of resources: int64[resources, N], in milli-units of CPU or units of others."""
        free = np.zeros((len(resources), len(self.columns)), np.int64)
        for row, name in zip(free, resources, strict=True):
            row += self.columns.allocatable.get(name, 0)
            row -= self.used.get(name, 0)
        return free

    @cached_property
    def _classifier(self) -> Classifier:
        """Return a classifier for pods outside the snapshot."""
        return Classifier(self.interner, self.informers.leftovers if self.dra else ())

    def classify(self, pods: Iterable[PodRecord]) -> list[PodClass]:
        """Return the class of each pod, in order. The pods must not be placed in the snapshot."""
        return self._classifier.classes(pods)

    def distinct_classes(self, pods: Sequence[PodRecord]) -> tuple[list[PodClass], NDArray[np.int32]]:
        """Return the distinct classes of pods, in order of appearance, and each pod's index into them (int32[n]).

        Classes are those of :meth:`classify`.
        """
        return self._classifier.distinct(pods)

    @cached_property
    def pending_classes(self) -> list[PodClass]:
        """Return the class of each pending pod, in the order of :attr:`pending_records`."""
        return self.classify(self.pending_records)

    def _derive(self, **changes: Any) -> Snapshot:
        """Return a new snapshot with some of the constructor's arguments replaced (``changes``)."""
        arguments: dict[str, Any] = {
            "interner": self.interner, "nodes": self.columns, "informers": self.informers, "used": self.used,
            "pod_count": self.pod_count, "table": self.table, "placed_rows": self._placed_rows,
            "placed_node": self.placed_node, "pending_rows": self._pending_rows, "counts": self.counts,
            "csi": self.csi, "dra": self.dra, "now": self.now, "added": self._added,
            "added_class": self.placed_class[len(self._placed_rows) :],
        }  # fmt: skip
        return Snapshot(**{**arguments, **changes})

    def with_placed(
        self, pods: Sequence[PodRecord], nodes: Sequence[int], informers: Informers | None = None
    ) -> Snapshot:
        """Return another snapshot with more placed pods, which are no longer pending.

        Parameters
        ----------
        pods : sequence of PodRecord
            They follow the pods that are already placed.
        nodes : sequence of int
            Index of each pod's node.
        informers : Informers, optional
            Changed objects. Default: those of this snapshot.

        Raises
        ------
        InputError
            If there is not one node for each pod, or a node does not exist.
        """
        nodes = list(nodes)
        if len(nodes) != len(pods):
            raise InputError(Problem(f"{len(nodes)} nodes for {len(pods)} pods", field="nodes"))
        count = len(self.columns)
        if nodes and not 0 <= min(nodes) <= max(nodes) < count:
            position = next(i for i, node in enumerate(nodes) if not 0 <= node < count)
            text = f"{show_value(nodes[position])} is not the index of one of the {count} nodes"
            raise InputError(Problem(text, field=f"nodes[{position}]"))
        return _AfterPlacement(self, pods if isinstance(pods, PodRows) else list(pods), nodes, informers)

    def _place(self, pods: Sequence[PodRecord], nodes: Sequence[int], informers: Informers | None) -> Snapshot:
        """Compute the snapshot that :meth:`with_placed` returns."""
        classes = self.classify(pods)
        used = {name: column.copy() for name, column in self.used.items()}
        where = np.array(nodes, np.int32)
        pod_count = self.pod_count + np.bincount(where, minlength=len(self.columns))
        for name in dict.fromkeys(name for pod_class in dict.fromkeys(classes) for name in pod_class.occupancy):
            if name not in used:
                used[name] = np.zeros(len(self.columns), np.int64)
            amounts = np.array([pod_class.occupancy.get(name, 0) for pod_class in classes], np.int64)
            np.add.at(used[name], where, amounts)  # sums wrap, as upstream's do
        placed_keys = {pod.key for pod in pods}
        keys = self.table.keys
        keep = np.fromiter(
            (keys[row] not in placed_keys for row in self._pending_rows.tolist()), bool, len(self._pending_rows)
        )
        return self._derive(
            informers=informers or self.informers,
            used=used,
            pod_count=pod_count,
            placed_node=np.append(self.placed_node, where).astype(np.int32),
            pending_rows=self._pending_rows[keep],
            counts={**self.counts, "placed": self.counts["placed"] + len(pods), "pending": int(keep.sum())},
            added=(*self._added, *pods),
            added_class=np.append(
                self.placed_class[len(self._placed_rows) :], np.array([each.index for each in classes], np.int32)
            ).astype(np.int32),
        )

    def csi_aware(self) -> Snapshot:
        """Return a CSI-node-aware copy, in which new nodes get the CSINode of their template.

        Returns this snapshot if it is CSI-node-aware already.
        """
        if self.csi:
            return self
        result = copy(self)
        result.csi, result.memo = True, TypedCache()
        return result

    def with_nodes(
        self, fresh: Sequence[NodeTemplate] = (), *, without: Collection[str] = (), replaced: Sequence[Node] = ()
    ) -> Snapshot:
        """Return another snapshot with nodes removed, replaced and added.

        Parameters
        ----------
        fresh : sequence of NodeTemplate
            New nodes, added at the end with their pods and devices.
        without : collection of str
            Names of nodes to remove, together with their pods.
        replaced : sequence of Node
            Nodes that replace those of the same names.

        Raises
        ------
        InputError
            If another node has the name of a new one.
            The error is also a KeyError if a node to remove or replace does not exist, or a node to replace is removed.
        """
        node_index = self.columns.index
        for name in without:
            if name not in node_index:
                raise UnknownNodeError(f"no node {show_value(name)}")
        for name in (node.metadata.name for node in replaced):
            if name not in node_index or name in without:
                raise UnknownNodeError(f"no node {show_value(name)}")
        for name, count in Counter(each.node.metadata.name for each in fresh).items():
            if count > 1 or (name in node_index and name not in without):
                raise InputError(f"there are two nodes {name}")
        columns = self.columns.with_changes(without, replaced, [each.node for each in fresh])
        stays = np.ones(len(self.columns), dtype=np.bool_)
        stays[[node_index[name] for name in without]] = False
        kept_nodes = np.flatnonzero(stays)
        base = self.keeping(stays[self.placed_node]) if without else self
        number = np.full(len(self.columns), -1, dtype=np.int32)
        number[kept_nodes] = np.arange(len(columns) - len(fresh), dtype=np.int32)

        def of_nodes(column: NDArray[np.int64]) -> NDArray[np.int64]:
            """Return the column's entries of the nodes that stay, then zeros for new nodes."""
            return np.append(column[kept_nodes], np.zeros(len(fresh), dtype=np.int64))

        records, homes = [], []
        for node, each in enumerate(fresh, len(columns) - len(fresh)):
            for pod in each.pods:
                record = PodRecord(pod)
                record.pod_class = self.interner.classify(pod, placed=True)
                records.append(record)
                homes.append(node)
        result = base._derive(  # noqa: SLF001  # an object of the same class
            nodes=columns,
            informers=self.informers.with_devices(fresh),
            used={name: of_nodes(column) for name, column in base.used.items()},
            pod_count=of_nodes(base.pod_count),
            placed_node=number[base.placed_node],
        )
        return result.with_placed(records, homes) if records else result

    def without_placed(self, removed: NDArray[np.int64]) -> Snapshot:
        """Return this snapshot without the placed pods at the positions ``removed`` (in ``pods``).

        If the positions equal those of the last call, the same result is returned; without positions, this snapshot
        is. Raises InputError unless ``removed`` has one dimension and integers that are positions.
        """
        removed = np.asarray(removed)
        if removed.ndim != 1 or (len(removed) and removed.dtype.kind not in "iu"):
            raise InputError(Problem("positions of placed pods expected", field="removed"))
        if len(removed) and not 0 <= removed.min() <= removed.max() < len(self.placed_node):
            text = f"positions {removed.min()} to {removed.max()}, of {len(self.placed_node)} placed pods"
            raise InputError(Problem(text, field="removed"))
        return self.memo.get(_Without, _Without).remove_pods(self, removed) if len(removed) else self

    def keeping(self, keep: NDArray[np.bool_]) -> Snapshot:
        """Return another snapshot with only some of the placed pods.

        ``keep`` is bool[M], in the order of ``placed_class``.
        """
        used = {name: column.copy() for name, column in self.used.items()}
        pod_count = self.pod_count.copy()
        removed = np.flatnonzero(~keep)
        removed = removed[np.argsort(self.placed_class[removed], kind="stable")]
        classes, nodes = self.placed_class[removed], self.placed_node[removed]
        np.subtract.at(pod_count, nodes, 1)
        starts = np.flatnonzero(np.diff(classes, prepend=-1)).tolist()
        for start, end in pairwise([*starts, len(removed)]):
            for name, amount in self.interner.classes[classes[start]].occupancy.items():
                if amount:  # a resource that nobody uses has no column
                    np.subtract.at(used[name], nodes[start:end], amount)
        of_rows = keep[: len(self._placed_rows)]
        of_added = keep[len(self._placed_rows) :]
        return self._derive(
            used=used,
            pod_count=pod_count,
            placed_rows=self._placed_rows[of_rows],
            placed_node=self.placed_node[keep],
            counts={**self.counts, "placed": int(keep.sum())},
            added=tuple(pod for pod, is_kept in zip(self._added, of_added, strict=True) if is_kept),
            added_class=self.placed_class[len(self._placed_rows) :][of_added],
        )


def _read_computed(name: str) -> Any:
    """Return a cached property that reads the attribute ``name`` of ``self._computed``."""
    return cached_property(lambda self: getattr(self._computed, name))


class _Computed(Snapshot):
    """A snapshot whose columns are computed when one of them is read first."""

    _result: Snapshot | None

    @property
    def _computed(self) -> Snapshot:
        """Return the snapshot with computed columns."""
        raise NotImplementedError

    def __reduce__(self) -> Any:
        """Return the computed snapshot as what is copied and pickled."""
        return copy, (self._computed,)

    if not TYPE_CHECKING:  # attributes of any other snapshot
        used = _read_computed("used")
        pod_count = _read_computed("pod_count")
        placed_class = _read_computed("placed_class")
        placed_node = _read_computed("placed_node")
        counts = _read_computed("counts")
        _placed_rows = _read_computed("_placed_rows")
        _pending_rows = _read_computed("_pending_rows")
        _added = _read_computed("_added")


class _AfterLosses(_Computed):
    """A snapshot from which nodes were lost. ``compute`` returns it with its columns."""

    def __init__(
        self, before: Snapshot, columns: NodeColumns, table: PodTable, compute: Callable[[], Snapshot]
    ) -> None:
        self.interner, self.informers, self.columns, self.table = before.interner, before.informers, columns, table
        self.dra, self.csi, self.now, self.memo = before.dra, before.csi, before.now, TypedCache()
        self._compute: Callable[[], Snapshot] | None = compute
        self._result = None

    @property
    def _computed(self) -> Snapshot:
        """Return the snapshot with computed columns."""
        compute = self._compute
        if compute is not None:
            self._result, self._compute = compute(), None
        assert self._result is not None  # computed above
        return self._result

    if not TYPE_CHECKING:
        placed = _read_computed("placed")


class _AfterPlacement(_Computed):
    """A snapshot with more placed pods."""

    def __init__(
        self, before: Snapshot, pods: Sequence[PodRecord], nodes: Sequence[int], informers: Informers | None
    ) -> None:
        self.interner, self.columns, self.table, self.informers = (
            before.interner,
            before.columns,
            before.table,
            informers or before.informers,
        )
        self.dra, self.csi, self.now, self.memo = before.dra, before.csi, before.now, TypedCache()
        self._inputs: tuple[Snapshot, Sequence[PodRecord], Sequence[int], Informers | None] | None
        self._inputs = before, pods, nodes, informers
        self._result = None

    @property
    def _computed(self) -> Snapshot:
        """Compute the snapshot on the first call, after the earlier snapshots that it is based on, and return it."""
        if self._result is None:
            chain = [self]
            while isinstance(before := chain[-1]._before, _AfterPlacement):  # noqa: SLF001  # an object of the same class
                chain.append(before)
            for each in reversed(chain):  # not recursively, as there may be very many
                each._compute()  # noqa: SLF001  # an object of the same class
        assert self._result is not None  # computed above
        return self._result

    @property
    def _before(self) -> Snapshot | None:
        """Return the snapshot before the placement; None once the columns of this snapshot are computed."""
        inputs = self._inputs
        return None if inputs is None else inputs[0]

    def _compute(self) -> None:
        """Compute the columns, unless this or another thread has done so, and release the snapshot before."""
        if (inputs := self._inputs) is not None:
            before, pods, nodes, informers = inputs
            self._result = before._place(pods, nodes, informers)  # noqa: SLF001  # a method of the base class
            self._inputs = None


class _Removal(NamedTuple):
    """A snapshot without some of its placed pods.

    ``find_positions`` returns the positions of these pods. ``rule``: that of :func:`without_placed_by`, None for other
    calls.
    """

    find_positions: Callable[[], NDArray[np.int64]]
    result: Snapshot
    rule: Hashable = None


class _Without:
    """Cache of the last snapshot without some of its placed pods. Threads replace ``last``, and do not modify it."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: _Removal | None = None

    def remove_pods(self, snapshot: Snapshot, removed: NDArray[np.int64], rule: Hashable = None) -> Snapshot:
        """Return ``snapshot`` without the placed pods at the positions ``removed``.

        The last result is cached, also under ``rule`` for :func:`without_placed_by`.
        """
        last = self.last
        if last is None or not np.array_equal(last.find_positions(), removed):
            keep = np.ones(len(snapshot.placed_node), dtype=np.bool_)
            keep[removed] = False
            positions = removed.copy()
            last = self.last = _Removal(lambda: positions, snapshot.keeping(keep), rule)
        elif rule is not None and last.rule != rule:
            last = self.last = last._replace(rule=rule)
        return last.result


def without_placed_by(snapshot: Snapshot, rule: Hashable, find: Callable[[Snapshot], NDArray[np.int64]]) -> Snapshot:
    """Return the snapshot without the placed pods at the positions that ``find(snapshot)`` returns.

    ``rule`` identifies ``find``: if the last call for this snapshot had an equal rule, its result is returned without
    calling ``find``. After :func:`without_lost_nodes`, a result for the earlier snapshot is used in the same way.
    """
    cache = snapshot.memo.get(_Without, _Without)
    last = cache.last
    if last is not None and last.rule == rule:
        return last.result
    removed = find(snapshot)
    return cache.remove_pods(snapshot, removed, rule) if len(removed) else snapshot


def count_states(state: NDArray[np.int8], placed: int) -> dict[str, int]:
    """Return the ``counts`` of a snapshot from the states of its table's pods; ``placed`` of them have a known node."""

    def count(which: int) -> int:
        return int(np.count_nonzero(state == which))

    return {
        "placed": placed,
        "pending": count(PENDING),
        "gated": count(GATED),
        "terminating": count(TERMINATING),
        "finished": count(FINISHED),
        "on unknown nodes": count(PLACED) - placed,
    }


def without_lost_nodes(snapshot: Snapshot, names: Collection[str], table: PodTable) -> Snapshot:
    """Return the snapshot that the cluster has after some nodes were lost and pods were created that have no node.

    The columns of the remaining nodes and pods are selected from those of ``snapshot``, not computed again.

    Parameters
    ----------
    snapshot : Snapshot
        A snapshot as :meth:`Cluster.snapshot` returns it: no decision has placed pods in it.
    names : collection of str
        The lost nodes.
    table : PodTable
        The table of ``snapshot`` without the pods that are bound to the lost nodes and with the created pods
        (:meth:`PodTable.exchanging`).
    """
    columns = snapshot.columns
    stays = np.ones(len(columns), dtype=np.bool_)
    stays[[columns.index[name] for name in names]] = False
    state, columns = table.columns["state"], columns.with_changes(names, (), ())
    is_kept = stays.take(snapshot.placed_node)
    pending, counts = np.flatnonzero(state == PENDING), count_states(state, int(np.count_nonzero(is_kept)))

    def compute() -> Snapshot:
        return _select_nodes(snapshot, stays, is_kept, columns, table, pending, counts)

    last = snapshot.memo.get(_Without, _Without).last
    if last is None:
        return compute()
    # Decisions on the result leave out the same pods, if they exist, and read only the snapshot without these.
    result, fewer = _AfterLosses(snapshot, columns, table, compute), last.result
    result.memo.get(BeforeLosses, lambda: BeforeLosses(snapshot, stays))

    def find_positions() -> NDArray[np.int64]:
        removed = last.find_positions()
        return (np.cumsum(is_kept) - 1)[removed[is_kept[removed]]]

    others = _select_nodes(fewer, stays, stays.take(fewer.placed_node), columns, table, pending, counts)
    result.memo.get(_Without, _Without).last = _Removal(find_positions, others, last.rule)
    return result


def _select_nodes(
    snapshot: Snapshot,
    stays: NDArray[np.bool_],
    is_kept: NDArray[np.bool_],
    columns: NodeColumns,
    table: PodTable,
    pending: NDArray[np.int64],
    counts: Mapping[str, int],
) -> Snapshot:
    """Return ``snapshot`` without some nodes and the pods on them.

    ``stays``: bool[nodes], which nodes remain; ``is_kept``: bool[placed pods], which pods are on these; ``columns``:
    columns of these nodes; ``table`` and ``pending``: the pods, and the rows of pending ones; ``counts``: numbers of
    pods by state, apart from placed ones.
    """
    number = stays.cumsum(dtype=np.int32) - np.int32(1)
    remaining, nodes = is_kept.nonzero()[0], stays.nonzero()[0]
    placed_node = number.take(snapshot.placed_node.take(remaining))
    result = snapshot._derive(  # noqa: SLF001  # this module defines the class
        nodes=columns,
        used={name: column.take(nodes) for name, column in snapshot.used.items()},
        pod_count=snapshot.pod_count.take(nodes),
        table=table,
        placed_rows=snapshot._placed_rows.take(remaining),  # noqa: SLF001  # as above
        placed_node=placed_node,
        placed_class=snapshot.placed_class.take(remaining),
        pending_rows=pending,
        counts={**counts, "placed": len(placed_node)},
    )
    result.memo.get(BeforeLosses, lambda: BeforeLosses(snapshot, stays))
    return result


class BeforeLosses:
    """The snapshot from which nodes were lost (:func:`without_lost_nodes`), cached with the snapshot after that.

    ``snapshot`` has the same objects, and all placed pods of the other snapshot. ``nodes``: int64[n], which of its
    nodes remain.
    """

    __slots__ = ("nodes", "snapshot")

    def __init__(self, snapshot: Snapshot, stays: NDArray[np.bool_]) -> None:
        self.snapshot = snapshot
        self.nodes = stays.nonzero()[0]

    @staticmethod
    def find(snapshot: Snapshot) -> BeforeLosses | None:
        """Return the snapshot before the loss of nodes, and the remaining nodes.

        None if ``snapshot`` does not come from :func:`without_lost_nodes`.
        """
        return snapshot.memo.find(BeforeLosses)
