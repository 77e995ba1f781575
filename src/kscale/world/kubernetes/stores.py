"""Stores that informers fill: a cluster in columns, and objects of typed kinds."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np

from kscale.effects import ApiError, Moment, Observation
from kscale.errors import InputError, Problem
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import KubeObject, is_older_version, object_key
from kscale.objects.kinds import find_kind
from kscale.snapshot.cluster import Cluster, Relist
from kscale.snapshot.snapshot import Snapshot
from kscale.world.kubernetes.client import Client, read_status
from kscale.world.kubernetes.informer import Absorbed, Informer, Sink, Unreadable
from kscale.world.kubernetes.reflector import Reflector
from kscale.world.kubernetes.resources import Resources
from kscale.world.protocols import Change, Clock, Watch
from kscale.world.server_data import (
    INITIAL_EVENTS_END,
    Bookmark,
    ServerEvent,
    UnreadableError,
    UnreadableObjectError,
    read_change,
    read_event,
    read_json,
    read_list,
    read_object,
)

__all__ = ["ClusterSink", "KubernetesStores", "ObjectSink"]


_log = logging.getLogger(__name__)
_CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})


class ObjectSink:
    """Sink that keeps the objects of one kind as structs.

    ``changed`` is called after each change. A list replaces all objects at its end, with deletions first (client-go's
    ``Replace``); until then the old objects stay.

    An object that cannot be read is skipped (:attr:`unreadable`). Its last readable version stays; an object that was
    never readable is absent. If an object does not even contain its name, the list or watch fails, since the
    object would otherwise count as deleted.
    """

    __slots__ = ("_changed", "_listing", "_skipped", "_type", "objects", "watch")

    def __init__(self, watch: Watch, changed: Callable[[Change], None]) -> None:
        self.watch = watch
        self.objects: dict[str, KubeObject] = {}
        """Objects by ``namespace/name``, in the order of arrival."""
        self._type = find_kind(watch.api_version, watch.kind) or KubeObject
        self._changed = changed
        self._listing: dict[str, KubeObject] | None = None
        self._skipped = Unreadable(watch.kind)

    @property
    def settled(self) -> bool:
        """Return True: there is nothing to wait for after a list."""
        return True

    @property
    def unreadable(self) -> int:
        """Return how many objects could not be read."""
        return self._skipped.count

    def begin(self) -> None:
        """Begin a new list; an unfinished one is discarded."""
        self._listing = {}

    def read_page(self, data: bytes) -> tuple[str, str]:
        """Add a page to the list in progress (or store its objects at once if there is none).

        Returns (resource version, continue token). Unreadable objects are skipped. Raises InputError if the data is not
        a list, or an object has no name.
        """
        try:
            page = read_list(data)
        except UnreadableError as error:
            raise InputError(f"not a list of {self.watch.kind}: {error}") from None
        if not page.kind.endswith("List"):
            raise InputError(f"not a list of {self.watch.kind} but a {page.kind or 'text without a kind'}")
        for raw in page.items:
            try:
                self._insert(self._read(raw))
            except UnreadableObjectError as error:
                self._skip(error)
        return page.resource_version, page.continue_

    def settle(self) -> None:
        """End a list: report objects that it does not contain as deleted, then store the others.

        Objects whose version has not changed are not reported. No effect if no list is in progress.
        """
        listed, self._listing = self._listing, None
        if listed is None:
            return
        for key in [key for key in self.objects if key not in listed]:
            old = self.objects.pop(key)
            self._changed(Change(watch=self.watch, old=old, missed=True))
        for new in listed.values():
            self._store(new)

    def read_events(self, data: bytes) -> Absorbed:
        """Apply the complete lines of a watch, up to the first ERROR event.

        Unreadable objects are skipped; events of an unknown type are logged. Raises InputError if a line is not a watch
        event, or an object has no name.
        """
        end = data.rfind(b"\n") + 1
        count, version, only_added, synced, failed = 0, "", True, False, None
        for line in data[:end].splitlines():
            if not line.strip():
                continue
            change = read_change(line, self._type)
            if change is not None:
                count += 1
                only_added = only_added and change[0] == "ADDED"
                version = _newest(version, self._apply(change[0], self._set_kind(change[1])))
                continue
            try:
                event = read_event(line)
            except UnreadableError as error:
                raise InputError(f"not a watch of {self.watch.kind}: {error}") from None
            if event.type == "ERROR":
                failed = read_status(event.object) or ApiError("an ERROR event without a status", reason="Unknown")
                break
            count += 1
            only_added = only_added and event.type == "ADDED"
            if event.type == "BOOKMARK":
                try:
                    meta = read_json(event.object, Bookmark).metadata
                except UnreadableError as error:
                    raise InputError(f"not a bookmark of {self.watch.kind}: {error}") from None
                if (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true":
                    synced, version = True, ""  # the version of a list is that of this bookmark
                version = _newest(version, meta.resource_version)
            elif event.type in _CHANGES:
                version = _newest(version, self._apply_slowly(event))
            else:
                _log.error("Unknown watch event %r of %s", event.type, self.watch.kind)
        return Absorbed(end, count, version, only_added, synced, failed)

    def _apply(self, type_: str, new: KubeObject) -> str:
        """Apply an event (``type_``: ``ADDED``, ``MODIFIED`` or ``DELETED``) and return its object's version."""
        if type_ != "DELETED":
            return self._insert(new)
        self._remove(new.key, new)
        return new.metadata.resource_version

    def _apply_slowly(self, event: ServerEvent) -> str:
        """Apply an event whose object may be unreadable, and return the object's resource version.

        An unreadable object is skipped; if it was deleted, the object with its name is removed.
        """
        try:
            return self._apply(event.type, self._read(event.object))
        except UnreadableObjectError as error:
            if event.type == "DELETED" and error.head.name:
                self._remove(object_key(error.head.namespace, error.head.name))
            self._skip(error)
            return error.head.resource_version

    def _remove(self, key: str, last: KubeObject | None = None) -> None:
        """Remove an object if it is present, and report the change.

        ``last``: final version of the object (None: cannot be read). During a list the object is only removed from the
        list.
        """
        if self._listing is not None:
            self._listing.pop(key, None)
        elif (old := self.objects.pop(key, None)) is not None:
            self._changed(Change(watch=self.watch, old=last or old))

    def _skip(self, error: UnreadableObjectError) -> None:
        """Log and count an unreadable object. During a list its last readable version stays in the list.

        Raises InputError if the object has no name.
        """
        head = error.head
        if not head.name:
            raise InputError(f"a {self.watch.kind} without an identity: {error}") from None
        key = object_key(head.namespace, head.name)
        self._skipped.report(key, error)
        if self._listing is not None and key in self.objects:
            self._listing.setdefault(key, self.objects[key])

    def _read(self, raw: msgspec.Raw) -> KubeObject:
        """Decode an object. Raises UnreadableObjectError."""
        return self._set_kind(read_object(raw, self._type))

    def _set_kind(self, obj: KubeObject) -> KubeObject:
        """Set kind and version of an object in place, note that it is readable, and return it."""
        obj.kind, obj.api_version = self.watch.kind, self.watch.api_version
        self._skipped.forget(obj.key)
        return obj

    def _insert(self, new: KubeObject) -> str:
        """Add an object to the list in progress, or else store it, and return its resource version."""
        if self._listing is not None:
            self._listing[new.key] = new
        else:
            self._store(new)
        return new.metadata.resource_version

    def _store(self, new: KubeObject) -> None:
        """Store an object and report the change. No effect if the stored one has the same resource version."""
        old = self.objects.get(new.key)
        version = new.metadata.resource_version
        if old is not None and version and old.metadata.resource_version == version:
            return
        self.objects[new.key] = new
        self._changed(Change(watch=self.watch, old=old, new=new))


def _newest(version: str, later: str) -> str:
    """Return ``later``, or ``version`` if ``later`` is empty or an older resource version."""
    return version if not later or is_older_version(later, version) else later


class ClusterSink:
    """Sink that feeds objects of one kind into a cluster.

    The native reader parses their bytes without creating structs.

    An object that cannot be read is skipped (:attr:`unreadable`), as by :class:`ObjectSink`.

    Call :meth:`begin` before the pages of a list and :meth:`settle` after them. Each page is applied immediately.
    Deleted objects are removed from the cluster when the list ends.
    """

    __slots__ = ("_cluster", "_kind", "_listing", "_settled", "_skipped")

    def __init__(self, cluster: Cluster, kind: str) -> None:
        self._cluster = cluster
        self._kind = kind
        self._listing: Relist | None = None
        self._settled = True
        self._skipped = Unreadable(kind)

    @property
    def settled(self) -> bool:
        """Return whether the last list is complete; True if no list has begun."""
        return self._settled

    @property
    def unreadable(self) -> int:
        """Return how many objects could not be read."""
        return self._skipped.count

    def begin(self) -> None:
        """Begin a new list; a list in progress is abandoned."""
        self._leave(_AnotherListError())
        self._listing = self._cluster.relist(self._kind)
        self._listing.__enter__()
        self._settled = False

    def read_page(self, data: bytes) -> tuple[str, str]:
        """Store one page of a list, a JSON text, in the cluster.

        Returns (resource version of the list, continue token; empty after the last page). Raises InputError if no list
        is in progress (:meth:`begin`), if the data is not a list, or if an object has no name.
        """
        listing = self._listing
        if listing is None:
            raise InputError(f"a page of {self._kind}, and no list has begun")
        result = listing.pages(data)
        self._skip(result.problems)
        return result.version, result.continue_

    def read_events(self, data: bytes) -> Absorbed:
        """Apply the complete lines of a watch response to the cluster. The result says how many bytes were used.

        Unreadable objects are skipped. Raises InputError if the data is not a watch, or an object has no name.
        """
        source = self._cluster if self._listing is None else self._listing
        result = source.watched(data)
        self._skip(result.problems)
        error = None
        if result.error is not None:
            error = ApiError(result.error.message, result.error.code, result.error.reason)
        return Absorbed(
            used=result.used,
            events=result.events,
            version=result.version,
            only_added=data.count(b'{"type":"ADDED"') >= result.events,
            synced=result.synced,
            error=error,
        )

    def settle(self) -> None:
        """End a list: remove the objects of the kind that it does not contain."""
        self._leave(None)
        self._settled = True

    def _skip(self, problems: Sequence[Problem]) -> None:
        """Log and count unreadable objects, each with its first problem. Raises InputError if an object has no name."""
        for problem in {item.object: item for item in reversed(problems)}.values():
            name = problem.object.partition(" (")[2]  # items[3] (ResourceClaim team-a/gpu)
            if " " not in name:
                raise InputError(f"a {self._kind} without an identity: {problem}")
            self._skipped.report(name, problem)

    def _leave(self, error: Exception | None) -> None:
        """End the list in progress, if any.

        ``error`` None: the list is complete, so objects that it does not contain are removed. Otherwise none are
        removed.
        """
        listing, self._listing = self._listing, None
        if listing is not None:
            listing.__exit__(None if error is None else type(error), error, None)


class _AnotherListError(Exception):
    """The list is abandoned."""


class KubernetesStores:
    """Runs the informers of a driver and stores their objects (:class:`kscale.world.protocols.LiveStores`).

    Belongs to the thread of its event loop. ``csi`` and ``dra`` are options of the snapshot. ``streaming``: lists are
    requested as streams where the server supports it. ``turn`` is held while the cluster changes. Code that uses
    snapshots in another thread must hold it too, because snapshots share the cluster's tables of classes and names
    (:class:`kscale.drivers.live.Live`). ``observe`` receives the metrics of the informers.
    """

    def __init__(
        self,
        client: Client,
        watches: Sequence[Watch],
        clock: Clock,
        *,
        resources: Resources | None = None,
        cluster: Cluster | None = None,
        csi: bool = False,
        dra: bool = False,
        streaming: bool = True,
        turn: asyncio.Lock | None = None,
        rng: random.Random | None = None,
        observe: Callable[[Observation], None] = lambda _: None,
    ) -> None:
        self.cluster = Cluster(texts="pending") if cluster is None else cluster
        self._csi, self._dra = csi, dra
        self._calls: list[Callable[[Change | None], None]] = []
        self._typed: dict[str, ObjectSink] = {}
        self.informers: list[Informer] = []
        resources = resources or Resources(client)
        rng = rng or random.Random()
        watched: set[tuple[str, bool]] = set()
        for watch in watches:
            if (watch.kind, watch.typed) in watched:
                raise ValueError(f"{watch.kind} is watched twice in one way")
            watched.add((watch.kind, watch.typed))
            reflector = Reflector(streaming=streaming, paged=not watch.typed, rng=rng)
            informer = Informer(
                client,
                resources,
                watch,
                self._sink(watch),
                clock,
                reflector=reflector,
                turn=None if watch.typed else turn,
                rng=rng,
                notify=lambda: self._notify(None),
                observe=observe,
            )
            self.informers.append(informer)

    def _sink(self, watch: Watch) -> Sink:
        """Create the sink of a watch. The sink of a typed watch is registered under its kind."""
        if not watch.typed:
            return ClusterSink(self.cluster, watch.kind)
        sink = self._typed[watch.kind] = ObjectSink(watch, self._notify)
        return sink

    async def run(self) -> None:
        """Run all informers until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run(), name=f"watch {informer.watch.kind}")

    def _notify(self, change: Change | None) -> None:
        """Call all subscribers with ``change``."""
        for call in tuple(self._calls):
            call(change)

    # -- LiveStores --------------------------------------------------------------------------------------------------

    async def caught_up(self) -> None:
        """Wait until the events received so far have been applied."""
        for informer in self.informers:
            await informer.caught_up()

    def subscribe(self, call: Callable[[Change | None], None]) -> Callable[[], None]:
        """Register a function that is called after each change of a typed kind, and return a function that ends this.

        It is also called with None whenever ``settled`` may have become true.
        """
        self._calls.append(call)
        return lambda: self._calls.remove(call)

    @property
    def synced(self) -> bool:
        """Return whether every requested kind has been listed once."""
        return all(informer.synced for informer in self.informers)

    @property
    def settled(self) -> bool:
        """Return whether every kind is listed and none is being listed again, so the state is consistent."""
        return all(informer.settled for informer in self.informers)

    def waiting_for(self) -> Iterator[tuple[Watch, ApiError | None]]:
        """Return an iterator of (watch, last error or None) for the watches that have not been listed yet."""
        return ((informer.watch, informer.last_error) for informer in self.informers if not informer.synced)

    def snapshot(self, now: Moment | None = None) -> Snapshot:
        """Return a snapshot of the current cluster.

        ``now`` is the time for devices that wait for binding conditions.
        """
        return self.cluster.snapshot(csi=self._csi, dra=self._dra, now=now)

    def objects(self, kind: str) -> Sequence[KubeObject]:
        """Return the objects of a kind in the order of arrival."""
        sink = self._typed.get(kind)
        return list(self.cluster.all(kind) if sink is None else sink.objects.values())

    def get(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        """Return one object as last seen by the watch, or None."""
        key = object_key(namespace, name)
        sink = self._typed.get(kind)
        if sink is not None:
            return sink.objects.get(key)
        if kind == "Pod":
            try:
                return self.cluster.pod(key)
            except KeyError:
                return None
        if kind == "Node":
            return next((node for node in self.cluster.nodes() if node.name == name), None)
        return self.cluster.objects.get(kind, {}).get(key)

    def pods_of(self, nodes: Sequence[str]) -> Sequence[Pod]:
        """Return the active pods assigned to the named nodes, node by node.

        Nominated pods are left out; unknown nodes have no pods.
        """
        snapshot = self.snapshot()
        numbers = {name: i for i, name in enumerate(snapshot.nodes)}
        pods: list[Pod] = []
        for name in nodes:
            number = numbers.get(name)
            if number is None:
                continue
            placed = (snapshot.placed[row].pod for row in np.flatnonzero(snapshot.placed_node == number).tolist())
            pods += [pod for pod in placed if pod.spec.node_name == name]  # a nominated pod is not assigned
        return pods

    def resource_version(self, kind: str) -> str:
        """Return the newest resource version seen of a kind; empty if it is not watched."""
        return next((informer.version for informer in self.informers if informer.watch.kind == kind), "")
