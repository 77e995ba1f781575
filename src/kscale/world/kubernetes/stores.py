"""Stores that informers fill: a cluster in columns, and objects of typed kinds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from kscale.effects import ApiError, Moment, Observation
from kscale.errors import InputError, Problem
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import KubeObject, object_key
from kscale.snapshot.cluster import Cluster, Relist
from kscale.snapshot.snapshot import Snapshot
from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.informer import Absorbed, Informer, ObjectSink, Sink, Unreadable
from kscale.world.kubernetes.reflector import Reflector
from kscale.world.kubernetes.resources import Resources
from kscale.world.protocols import Change, Clock, Watch

__all__ = ["ClusterSink", "KubernetesStores"]


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
