"""A mutable cluster that takes objects and returns snapshots, and ``kscale.load`` for files, data and objects.

A watch, a dump or a simulation feeds a cluster. Not in upstream.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from functools import partial, wraps
from threading import RLock
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.errors import ConcurrentUseError, InputError, Problem, show_value
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import Int64, KubeObject
from kscale.objects.argument_types import typed_methods
from kscale.objects.kinds import item_kind, with_namespace
from kscale.objects.times import moment
from kscale.snapshot.caches import collector_paused
from kscale.snapshot.changes import ChangedKeys, Page, Watched
from kscale.snapshot.classes.interner import Interner
from kscale.snapshot.columns import PENDING, PLACED, NodeColumns
from kscale.snapshot.loading import Loaded, LoadReport, decode_plain_object, load_batches, load_objects
from kscale.snapshot.object_store import Informers, ObjectStore, kind_name
from kscale.snapshot.pods.index import PodIndex
from kscale.snapshot.pods.store import DescribedPods, PodStore, Texts
from kscale.snapshot.pods.table import PodTable
from kscale.snapshot.snapshot import Snapshot, count_states
from kscale.snapshot.text.pod_reader import PodBatch, PodReader, ScannedList
from kscale.snapshot.text.sources import DecodedItems
from kscale.snapshot.watching import Applying, StoredObjects, decode_object, watch

__all__ = ["Cluster", "Relist", "load"]

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Busy:
    """Lock of one object: the thread that holds it may call further methods of the object."""

    __slots__ = ("changes", "changing", "lock")

    def __init__(self) -> None:
        self.lock = RLock()
        self.changing = 0
        """Number of nested calls of methods that change the object."""
        self.changes = 0
        """Number of calls so far of methods that change the object, by which iterators notice a change."""


def changing(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Decorate a method that changes the object: it raises ConcurrentUseError while another thread uses the object.

    The method never waits. Another thread may use the object after the method has returned.
    """
    return _guarded(method, changes=True)


def reading(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Decorate a method that only reads: it raises ConcurrentUseError while another thread changes the object.

    Calls of several threads run one after the other, because results are computed on first use.
    """
    return _guarded(method, changes=False)


def _guarded(method: Callable[Concatenate[S, P], R], *, changes: bool) -> Callable[Concatenate[S, P], R]:
    """Return the method with the object's lock (``_busy``) held during each call.

    ``changes``: the method changes the object. A call raises ConcurrentUseError instead of waiting if another thread
    holds the lock, and the call or the other thread changes the object.
    """

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        busy: Busy = self._busy  # type: ignore[attr-defined]  # each class that uses this decorator has it
        if not busy.lock.acquire(blocking=False):
            if changes or busy.changing:
                raise _concurrent_use(self, method.__name__)
            busy.lock.acquire()
        busy.changing += changes
        busy.changes += changes
        try:
            return method(self, *args, **kwargs)
        finally:
            busy.changing -= changes
            busy.lock.release()

    return call


def _concurrent_use(owned: object, method: str) -> ConcurrentUseError:
    """Build the error of a call of ``method`` while another thread changes the object ``owned``."""
    return ConcurrentUseError(
        f"{type(owned).__name__}.{method}: another thread is using this cluster, which has one owner at a time: "
        "use a lock of your own, or pass snapshots to other threads"
    )


def _unchanged(busy: Busy, method: str, items: Callable[[], Iterable[T]]) -> Iterator[T]:
    """Yield the result of ``items()``; raise ConcurrentUseError if the cluster changes before the last one.

    ``busy``: the cluster's lock, which is not held between items; ``method``: name of the method, for the error.
    """
    changes, iterator = busy.changes, iter(items())
    while True:
        if busy.changing or busy.changes != changes:
            raise ConcurrentUseError(
                f"Cluster.{method}: the cluster changed during the iteration: iterate over list(cluster.{method}(...))"
            )
        try:
            item = next(iterator)
        except StopIteration:
            return
        yield item


class _ListMetadata(msgspec.Struct, rename={"resource_version": "resourceVersion", "continue_": "continue",
                                            "remaining": "remainingItemCount"}):  # fmt: skip
    resource_version: str = ""
    continue_: str = ""
    remaining: Int64 | None = None


class _List(msgspec.Struct, rename="camel"):
    """A list without its items, or another JSON object."""

    kind: str = ""
    metadata: _ListMetadata | None = None
    items: msgspec.Raw = msgspec.Raw(b"null")
    message: str = ""


_LISTS: Final = msgspec.json.Decoder(_List)
_METADATA: Final = msgspec.json.Decoder(_ListMetadata | None)
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Relist:
    """Context manager that replaces a kind's objects by a list, from :meth:`kscale.snapshot.cluster.Cluster.relist`.

    On exit, objects of the kind that were not seen are removed; ``change.removed`` has their keys then. Nothing is
    removed after an exception, or if the list is incomplete, which raises InputError. ``change``: all differences since
    entry; ``version``: the resource version of the list, to watch from.
    """

    def __init__(self, kind: str, contents: StoredObjects, busy: Busy) -> None:
        self.kind = kind
        self.version = ""
        self._changes: list[ChangedKeys] = []
        self._contents = contents
        self._busy = busy  # the cluster's
        self._complete = False

    @property
    def change(self) -> ChangedKeys:
        """Return the keys of this kind that were added, modified or removed since the context was entered."""
        self._changes = [ChangedKeys.concatenate(self._changes)]
        return self._changes[0]

    @changing
    def __enter__(self) -> Self:
        self._contents.begin(self.kind)
        return self

    @changing
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        missing = self._contents.end(self.kind)
        if kind is not None:
            return
        if not self._complete:
            raise InputError(f"the list of {self.kind} is incomplete: nothing was removed")
        self._contents.drop(self.kind, missing)
        self._contents.pods.tidy()
        self._changes.append(ChangedKeys(removed=missing))

    @changing
    def pages(self, data: bytes | bytearray | memoryview) -> Page:
        """Apply a page of the list (``data``), a response of the API server; the last one has no ``continue``.

        Raises InputError if the data are not a list of this kind.
        """
        view = memoryview(data)
        scanned = self._contents.pods.reader.scan(view, "", "items")
        if scanned is None:
            return self._empty(view)
        self._check(scanned.kind)
        try:
            metadata = _METADATA.decode(scanned.metadata or b"null") or _ListMetadata()
        except _UNREADABLE as error:
            raise InputError(f"a list of {self.kind} with damaged metadata: {error}") from None
        applying = Applying(self._contents, view, scanned.items(), None, self.kind)
        own = item_kind(scanned.kind)

        def slowly(at: int, text: memoryview) -> None:
            """Apply one object that was not read as columns. Raises InputError if it is of another kind."""
            obj = decode_object(text, scanned.api_version if own else "", own)
            if isinstance(obj, str) or obj.kind != self.kind:
                raise InputError(f"not a {self.kind}")
            applying.put(at, obj, text)

        applying.run(slowly, "items[{at}]")
        self._contents.pods.tidy()
        return self._add_page(metadata, applying.change(self.kind), tuple(applying.problems))

    def _check(self, kind: str) -> None:
        """Raise InputError unless ``kind`` is that of a list of this context's objects, such as ``PodList``."""
        own = item_kind(kind)
        if not kind.endswith("List") or own not in ("", self.kind):
            raise InputError(f"not a list of {self.kind} but a {kind or 'text without a kind'}")

    def _empty(self, view: memoryview) -> Page:
        """Apply a page (the text ``view``) whose ``items`` are null, and return it.

        Raises InputError if the text is not such a list of this context's kind.
        """
        try:
            str(view, "utf-8")  # msgspec does not check the values that it skips
            page = _LISTS.decode(view)
        except _UNREADABLE as error:
            raise InputError(f"not a list of {self.kind}: {error}") from None
        if page.kind == "Status":
            raise InputError(f"the API server answered with an error, not with a list: {page.message or 'no message'}")
        self._check(page.kind)
        if bytes(page.items) != b"null":
            raise InputError(f"a list of {self.kind} whose items are no list, or that has a key twice")
        return self._add_page(page.metadata or _ListMetadata(), ChangedKeys(), ())

    def _add_page(self, metadata: _ListMetadata, change: ChangedKeys, problems: tuple[Problem, ...]) -> Page:
        """Record what a page of the list changed, and return the page. ``metadata``: that of the list in the page."""
        self.version = metadata.resource_version
        self._changes.append(change)
        self._complete = not metadata.continue_
        return Page(
            version=metadata.resource_version,
            continue_=metadata.continue_,
            remaining=metadata.remaining,
            change=change,
            problems=problems,
        )

    @changing
    def watched(self, lines: bytes | bytearray | memoryview) -> Watched:
        """Apply events of a streaming list (``sendInitialEvents=true``).

        The list is complete with the bookmark that says so; more events may follow. Same input and result as
        :meth:`kscale.snapshot.cluster.Cluster.watched`.
        """
        view = memoryview(lines)
        result = watch(self._contents, view, self._contents.pods.reader.lines(view))
        self._contents.pods.tidy()
        self.version = result.version or self.version
        self._changes.append(result.changes.get(self.kind, ChangedKeys()))
        self._complete = self._complete or result.synced
        return result


@typed_methods(
    constructor=True,
    late=(
        "apply",
        "apply_decoded",
        "apply_batch",
        "apply_described",
        "apply_pods",
        "describe_pods",
        "has_pod",
        "pod",
        "remove",
        "tidy",
        "watched",
    ),
)
class Cluster:
    """Objects by kind and key, and the running sums from which snapshots are built.

    ``apply`` adds or replaces in place (a pod under an old key with another UID replaces the old one); ``remove``
    closes the gap. Node order is the order of first appearance. A snapshot never changes after it was returned.

    Use a cluster from one thread at a time. It may be handed over from one thread to another between two calls; a call
    while another thread changes it raises :class:`~kscale.errors.ConcurrentUseError` and changes nothing. Threads may
    take snapshots at the same time if nobody changes the cluster. An iterator (``pods``, ``nodes``, ``all``) raises the
    same error if the cluster changes before its end. Snapshots may be shared by threads.

    Parameters
    ----------
    finished : bool
        Whether pods in phase Succeeded or Failed occupy their nodes. By default they do not, as upstream's listers omit
        them.
    texts : str
        Pods whose text is stored: ``all``, or ``pending`` for those that are neither bound to a node nor finished. Of
        other pods, :meth:`pod` returns only the fields that decisions read. Managed fields are never stored.
    threads : int, optional
        Number of threads that read long texts. Default: the number of CPUs. The result does not depend on it.

    Notes
    -----
    ``report`` has what :func:`kscale.load` read.
    """

    def __init__(
        self,
        objects: Iterable[Any] = (),
        *,
        finished: bool = False,
        texts: Texts = "all",
        threads: int | None = None,
    ) -> None:
        if texts not in ("all", "pending"):
            raise InputError(f'texts is "all" or "pending", not {show_value(texts)}')
        if threads is not None and threads < 1:
            raise InputError(f"threads must be at least 1, not {threads}")
        self.report = LoadReport()
        pods = PodStore(finished=finished, texts=texts, threads=threads or os.cpu_count() or 1)
        self._contents = StoredObjects(pods, ObjectStore())
        self._snapshots: dict[tuple[bool, bool], Snapshot] = {}
        self._busy = Busy()
        for item in objects:
            self.apply(item)

    def __repr__(self) -> str:
        others = self._contents.objects.counts()
        counts = {"Node": others.pop("Node"), "Pod": len(self._contents.pods), **others}
        texts = [f"{count:,} {kind}" for kind, count in counts.items() if count]
        return f"<Cluster: {', '.join(texts) or 'empty'}>"

    def _repr_html_(self) -> str:
        """Return the number of objects by kind as HTML, for notebooks."""
        from kscale.html import markup

        others = self._contents.objects.counts()
        rows = [("Node", others.pop("Node")), ("Pod", len(self._contents.pods))]
        rows += [(kind, count) for kind, count in others.items() if count]
        return markup.listing(repr(self), ["kind", "objects"], rows)

    @reading
    def copy(self) -> Cluster:
        """Return an independent copy with the same objects, without reading or classifying them again."""
        result = Cluster.__new__(Cluster)
        contents = StoredObjects(self._contents.pods.copy(), self._contents.objects.copy())
        vars(result).update(vars(self), _contents=contents, _snapshots={}, _busy=Busy())
        return result

    @reading
    def __getstate__(self) -> dict[str, Any]:
        """Return the state without derived attributes."""
        state = {**vars(self), "_snapshots": {}}
        del state["_busy"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _busy=Busy())

    @property
    def interner(self) -> Interner:
        """Return the interner that numbers classes and shapes of pods now."""
        return self._contents.pods.interner

    @property
    def reader(self) -> PodReader:
        """Return the reader of texts for this cluster."""
        return self._contents.pods.reader

    # -- changing ----------------------------------------------------------------------------------------------------

    @changing
    def apply(self, item: Any) -> None:
        """Add or replace an object (``item``): a kscale struct, a dict, or a Kubernetes client object.

        Of a list, all items are applied. Raises InputError for anything else, and for an object that cannot be read.
        """
        if isinstance(item, KubeObject):
            self.apply_decoded(item, None)
        else:
            for each, raw in decode_any(item):
                self.apply_decoded(each, raw)
        self._tidy()

    @changing
    def tidy(self) -> None:
        """Remove unused classes, texts and rows, once many have accumulated. The objects stay the same.

        Methods that change the cluster call this at their end, unless their description says otherwise.
        """
        self._tidy()

    def _tidy(self) -> None:
        """Do the work of :meth:`tidy`, for methods that hold the lock."""
        self._contents.pods.tidy()
        if not self._contents.pods.table.frozen:
            self._snapshots.clear()

    @changing
    def apply_decoded(self, item: KubeObject, raw: msgspec.Raw | dict[str, Any] | None) -> None:
        """Apply a decoded object (``item``), without :meth:`tidy`.

        ``raw`` is the API data that the object was decoded from.
        """
        self._put(item, raw)

    def _put(self, item: KubeObject, raw: msgspec.Raw | dict[str, Any] | None) -> None:
        """Do the work of :meth:`apply_decoded`, for callers that hold the lock or own the cluster alone."""
        if isinstance(item, Pod):
            self._contents.pods.put(item, raw)
        else:
            self._contents.objects.put(item)

    @changing
    def apply_pods(self, pods: Iterable[Pod], *, removed: Iterable[str] = ()) -> None:
        """Remove the pods with the keys ``removed``, then add or replace ``pods``. Does not call :meth:`tidy`.

        Keys that do not exist are ignored. Do not modify the structs afterwards: parts that several pods share are
        classified once. Raises InputError for an invalid time: then none of ``pods`` was applied, but the pods with the
        keys ``removed`` were removed.
        """
        self._contents.pods.drop(removed)
        self._contents.pods.put_all(pods)

    @reading
    def describe_pods(self, pods: Iterable[Pod]) -> DescribedPods:
        """Classify pods and compute their table rows, without adding the pods to the cluster.

        Pass the result to :meth:`apply_described` of this cluster or a copy, as often as needed. Do not modify the
        structs afterwards. Raises InputError for an invalid time.
        """
        return self._contents.pods.describe(pods)

    @changing
    def apply_described(self, pods: DescribedPods, *, removed: Iterable[str] = ()) -> None:
        """Add or replace pods that :meth:`describe_pods` has described. Does not call :meth:`tidy`.

        ``removed``: keys of pods to remove first, as in :meth:`apply_pods`.
        """
        self._contents.pods.drop(removed)
        self._contents.pods.put_described(pods)

    @changing
    def apply_batch(self, batch: PodBatch) -> ChangedKeys:
        """Apply a batch of pods that this cluster's :attr:`reader` has read, and return the changed keys.

        The cluster refers to the batch's texts and does not copy them. Does not call :meth:`tidy`.
        """
        return self._contents.pods.put_batch(batch, refer=True, anew=True)

    def has_pod(self, key: str) -> bool:
        """Return whether there is a pod ``namespace/name``."""
        return key in self._contents.pods

    @overload
    def remove(self, item: Any, /) -> bool: ...
    @overload
    def remove(self, kind: str, key: str, /, uid: str = "") -> bool: ...
    @changing
    def remove(self, item: Any, key: str | None = None, /, uid: str = "") -> bool:
        """Remove an object, given as such or by kind and key, and return whether it existed.

        Parameters
        ----------
        item : object or str
            A struct, dict or client object, or the kind. Of a list, all items are removed; the result is then True only
            if all existed.
        key : str, optional
            ``namespace/name``, or ``name`` without a namespace.
        uid : str
            UID of the object to remove by key. If both UIDs are set and differ, nothing is removed: the key belongs to
            a newer object, and a late deletion of the old one has no effect.
        """
        if key is not None:
            kind = item
        elif not isinstance(item, KubeObject):
            removed = [self.remove(each) for each, _ in decode_any(item)]
            return all(removed)
        else:
            kind, uid = kind_name(item), item.metadata.uid
            key = item.name if kind == "Node" else with_namespace(item).key
        if kind != "Pod":
            return self._contents.objects.remove(kind, key, uid)
        removed_pod = self._contents.pods.remove(key, uid)
        self.tidy()
        return removed_pod

    @changing
    def watched(self, lines: bytes | bytearray | memoryview) -> Watched:
        """Apply what a watch returned (``lines``): events as the API server writes them, one per line, of any kinds, in
        order.

        Text after the last line end counts only if it is a complete event. :attr:`Watched.used` is the number of bytes
        read; put the rest in front of the next chunk. Bytes may therefore be cut anywhere::

            data = left + chunk
            result = cluster.watched(data)
            left = data[result.used:]

        ``problems`` reports lines that are not events and objects that cannot be read; the other events are applied.
        """
        view = memoryview(lines).toreadonly()
        result = watch(self._contents, view, self.reader.lines(view))
        self._tidy()
        return result

    def relist(self, kind: str) -> Relist:
        """Return a context manager that replaces the objects of a kind by a new list.

        With ``with cluster.relist("Pod") as listing:``, pass the pages of a list to ``listing.pages``, or the events of
        a streaming list to ``listing.watched``. Objects whose version is already stored are skipped. On exit, objects
        that were not seen are removed; ``listing.change`` has all differences.
        """
        return Relist(kind, self._contents, self._busy)

    @changing
    def replace(self, kind: str, pages: Iterable[bytes | bytearray | memoryview]) -> ChangedKeys:
        """Replace all objects of a kind by the objects of a list, given as its pages or the chunks of one page.

        Does what :meth:`relist` does, in one call. Returns the changed keys. Raises InputError, and removes nothing, if
        an object cannot be read or the list is incomplete; objects that were read stay applied.
        """
        with self.relist(kind) as listing:
            problems = [problem for page in pages for problem in listing.pages(page).problems]
            if problems:
                raise InputError(problems)
        return listing.change

    # -- queries -----------------------------------------------------------------------------------------------------

    @reading
    def pod(self, key: str) -> Pod:
        """Return a pod by ``namespace/name``. Raises KeyError."""
        return self._contents.pods.record(key).pod

    def pods(self) -> Iterator[Pod]:
        """Yield all pods in order of first appearance.

        Raises ConcurrentUseError if the cluster changes before the end.
        """
        return _unchanged(self._busy, "pods", self._contents.pods.pods)

    def pods_on(self, nodes: Collection[str]) -> Iterator[Pod]:
        """Yield the pods bound to ``nodes`` (names), finished ones included, in order of first appearance.

        Only these pods are decoded. Raises ConcurrentUseError if the cluster changes before the end.
        """
        return _unchanged(self._busy, "pods_on", lambda: self._contents.pods.pods_on(nodes))

    @reading
    def keys_on(self, nodes: Collection[str]) -> list[str]:
        """Return the keys of the pods bound to ``nodes`` in the order of :meth:`pods_on`, without decoding any."""
        return self._contents.pods.keys_on(nodes)

    def nodes(self) -> Iterator[Node]:
        """Yield all nodes in list order. Raises ConcurrentUseError if the cluster changes before the end."""
        return _unchanged(self._busy, "nodes", self._contents.objects.nodes)

    def all(self, kind: str) -> Iterator[Any]:
        """Yield all objects of a kind in order of first appearance; nothing for an unknown kind.

        Raises ConcurrentUseError if the cluster changes before the end.
        """
        if kind == "Pod":
            return self.pods()
        return _unchanged(self._busy, "all", lambda: self._contents.objects.get_kind(kind).values())

    @reading
    def keys(self, kind: str) -> list[str]:
        """Return the keys of all objects of a kind in order of first appearance, without decoding any."""
        return self._contents.pods.keys() if kind == "Pod" else self._contents.objects.keys(kind)

    @reading
    def resource_version(self, kind: str, key: str) -> str:
        """Return the resource version of an object; empty if it has none. Raises KeyError."""
        if kind == "Pod":
            return self._contents.pods.version(key)
        return self._contents.objects.get_kind(kind)[key].metadata.resource_version

    @property
    def objects(self) -> dict[str, dict[str, KubeObject]]:
        """Return all objects except nodes and pods, by kind and key. Do not modify the result."""
        return self._contents.objects.objects

    def __iter__(self) -> Iterator[KubeObject]:
        yield from self.nodes()
        yield from self.pods()
        yield from self._contents.objects

    @reading
    def pod_index(self) -> PodIndex:
        """Return an index of the current pods by namespace and selector.

        Equals :attr:`Snapshot.pod_index`, without building a snapshot.
        """
        return PodIndex(self._contents.pods.table.freeze())

    @reading
    def snapshot(self, *, csi: bool = False, dra: bool = False, now: datetime | int | None = None) -> Snapshot:
        """Return a snapshot of the current cluster.

        Returns the same object, with its cached results, while nothing changes.

        Parameters
        ----------
        csi : bool
            CSI-node-aware simulation.
        dra : bool
            Dynamic resource allocation.
        now : datetime or int, optional
            Time by which devices with binding conditions must be ready: an aware datetime, or nanoseconds since 1970.
            None means no time limit.

        Raises
        ------
        InputError
            If ``now`` is invalid.
        """
        at = None if now is None else moment(now)
        objects, table = self._contents.objects, self._contents.pods.table.freeze()
        nodes, informers = objects.columns(), objects.informers()
        if not (dra and informers.binding):
            at = None  # nothing in the snapshot depends on the time
        cached = self._snapshots.get((csi, dra))
        if (
            cached is None
            or cached.table is not table
            or cached.columns is not nodes
            or cached.informers is not informers
            or cached.now != at
        ):
            cached = self._snapshots[csi, dra] = self._snapshot(nodes, informers, table, csi=csi, dra=dra, now=at)
        return cached

    def _snapshot(
        self, nodes: NodeColumns, informers: Informers, table: PodTable, *, csi: bool, dra: bool, now: int | None
    ) -> Snapshot:
        """Build a snapshot of the stored pods, for :meth:`snapshot`, which caches it.

        Parameters
        ----------
        nodes : NodeColumns
            The cluster's nodes.
        informers : Informers
            The other objects that predicates read, such as volumes and claims.
        table : PodTable
            The stored pods, frozen.
        csi, dra : bool
            Whether predicates consider CSI nodes, and dynamic resource allocation.
        now : int or None
            Time by which devices with binding conditions must be ready, in nanoseconds since 1970. None: no time limit.

        Returns
        -------
        Snapshot
            A new snapshot.
        """
        pods = self._contents.pods
        sums = pods.sums
        numbers = pods.nodes.find(nodes.names)
        node_of = np.full(len(pods.nodes) + 1, -1, dtype=np.int32)
        node_of[numbers] = np.arange(len(nodes), dtype=np.int32)
        node_of[-1] = -1
        exists = numbers >= 0

        def of_nodes(column: NDArray[np.int64]) -> NDArray[np.int64]:
            """Return a column by number of the name as a column in list order; 0 for nodes that no pod names."""
            out = np.zeros(len(exists), dtype=np.int64)
            out[exists] = column[numbers[exists]]
            return out

        state = table.columns["state"]
        at = node_of.take(table.columns["at"])
        placed, pending = np.flatnonzero((state == PLACED) & (at >= 0)), np.flatnonzero(state == PENDING)
        return Snapshot(
            interner=self.interner,
            nodes=nodes,
            informers=informers,
            used={name: of_nodes(column) for name, column in sums.used.items()},
            pod_count=of_nodes(sums.count),
            table=table,
            placed_rows=placed,
            placed_node=at.take(placed),
            pending_rows=pending,
            counts=count_states(state, len(placed)),
            csi=csi,
            dra=dra,
            now=now,
        )


def decode_any(item: Any) -> Iterator[tuple[KubeObject, Any]]:
    """Yield (object, API data) of each object in one item: a dict, a list kind, or a client object.

    Raises InputError for a name or path: pass an object, or use :func:`kscale.load` for a file.
    """
    if item is None or isinstance(item, (str, os.PathLike)):
        raise InputError(
            f"{item!r} is not an object: give a struct, or a dict with kind and metadata, "
            "as {'kind': 'Node', 'metadata': {'name': 'n1'}}; kscale.load reads files"
        )
    yield from load_objects(item, validate=False)


def load(
    *sources: Any,
    strict: bool = True,
    report: LoadReport | None = None,
    threads: int | None = None,
    texts: Texts = "all",
) -> Cluster:
    """Read a cluster from files and data. :func:`kscale.load` checks its arguments and then calls this function.

    Raises InputError at the end with all problems; if not ``strict``, with those of sources that cannot be read at all.
    """
    report = LoadReport() if report is None else report
    cluster = Cluster(texts=texts, threads=threads)
    with collector_paused():
        scan = partial(_scan, cluster)
        for item in load_batches(*sources, strict=strict, report=report, scan=scan, is_stored=cluster.has_pod):
            if isinstance(item, Loaded):
                cluster._put(item.obj, item.raw)  # noqa: SLF001  # a new cluster, which only this function has, needs no lock
            elif isinstance(item, DecodedItems):
                cluster._contents.objects.put_all(item.objects)  # noqa: SLF001  # as above
            else:
                report.count_batch(item, cluster.apply_batch(item))
        cluster.tidy()
    cluster.report = report
    return cluster


def _scan(cluster: Cluster, view: memoryview, source: str, place: str) -> ScannedList | None:
    """Scan a text with the cluster's reader, and reserve rows for the list's pods. None if it is not a JSON list.

    ``source`` and ``place`` name the input, and the list in it, in messages.
    """
    pods = cluster._contents.pods  # noqa: SLF001  # as above
    # Objects that are decoded later keep the text.
    scanned = pods.reader.scan(view, source, place, decode_plain_object, plain=pods.texts == "all")
    if scanned is not None:
        pods.table.growing.reserve(len(pods.table) + scanned.pod_count)
    return scanned
