"""Stores that informers fill: one cluster in columns, and objects of typed kinds."""

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
    """Objects of one kind as part of a cluster: their bytes are read natively, and never become structs.

    An object that cannot be read is skipped (:attr:`unreadable`), as by an :class:`ObjectSink`.

    What a list brings is taken up as it comes: until it has come to its end the cluster is ``settled`` only if nothing
    of the kind was there before.
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
        return self._settled

    @property
    def unreadable(self) -> int:
        return self._skipped.count

    def begin(self) -> None:
        self._leave(_AnotherListError())
        self._listing = self._cluster.relist(self._kind)
        self._listing.__enter__()
        self._settled = False

    def page(self, data: bytes) -> tuple[str, str]:
        listing = self._listing
        if listing is None:
            raise InputError(f"a page of {self._kind}, and no list has begun")
        found = listing.pages(data)
        self._skip(found.problems)
        return found.version, found.continue_

    def events(self, data: bytes) -> Absorbed:
        source = self._cluster if self._listing is None else self._listing
        found = source.watched(data)
        self._skip(found.problems)
        error = None
        if found.error is not None:
            error = ApiError(found.error.message, found.error.code, found.error.reason)
        return Absorbed(
            used=found.used,
            events=found.events,
            version=found.version,
            only_added=data.count(b'{"type":"ADDED"') >= found.events,
            synced=found.synced,
            error=error,
        )

    def settle(self) -> None:
        self._leave(None)
        self._settled = True

    def _skip(self, problems: Sequence[Problem]) -> None:
        """Report objects that cannot be read: the first problem of each. Raises InputError for one without a name."""
        for problem in {each.object: each for each in reversed(problems)}.values():
            name = problem.object.partition(" (")[2]  # items[3] (ResourceClaim team-a/gpu)
            if " " not in name:
                raise InputError(f"a {self._kind} without an identity: {problem}")
            self._skipped.report(name, problem)

    def _leave(self, error: Exception | None) -> None:
        """Leaving with an error drops nothing."""
        listing, self._listing = self._listing, None
        if listing is not None:
            listing.__exit__(None if error is None else type(error), error, None)


class _AnotherListError(Exception):
    """The list is given up."""


class KubernetesStores:
    """Runs the informers of a driver and holds what they bring (:class:`kscale.world.protocols.LiveStores`).

    Belongs to the thread of its loop. ``csi`` and ``dra``: how the snapshot is looked at. ``streaming``: lists are
    asked for as streams where the server can. ``turn`` is held while the cluster changes: whoever works with snapshots
    in another thread holds it, too, because they share what a cluster has learnt of classes and names
    (:class:`kscale.drivers.live.Live`). ``observe`` is told what the informers do.
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
        seen: set[tuple[str, bool]] = set()
        for watch in watches:
            if (watch.kind, watch.typed) in seen:
                raise ValueError(f"{watch.kind} is watched twice in one way")
            seen.add((watch.kind, watch.typed))
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
                told=lambda: self._tell(None),
                observe=observe,
            )
            self.informers.append(informer)

    def _sink(self, watch: Watch) -> Sink:
        if not watch.typed:
            return ClusterSink(self.cluster, watch.kind)
        sink = self._typed[watch.kind] = ObjectSink(watch, self._tell)
        return sink

    async def run(self) -> None:
        """Runs all informers, for ever."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run(), name=f"watch {informer.watch.kind}")

    def _tell(self, change: Change | None) -> None:
        for call in tuple(self._calls):
            call(change)

    # -- LiveStores --------------------------------------------------------------------------------------------------

    async def caught_up(self) -> None:
        """Waits until what the watches have brought so far is taken up."""
        for informer in self.informers:
            await informer.caught_up()

    def subscribe(self, call: Callable[[Change | None], None]) -> Callable[[], None]:
        """Calls a function after each change of a typed kind, and with None whenever ``settled`` may have become true.
        Gives what ends that."""
        self._calls.append(call)
        return lambda: self._calls.remove(call)

    @property
    def synced(self) -> bool:
        """Every kind that was asked for has been listed once."""
        return all(informer.synced for informer in self.informers)

    @property
    def settled(self) -> bool:
        """Besides, no kind is being listed anew: what is there is a state that once was."""
        return all(informer.settled for informer in self.informers)

    def waiting_for(self) -> Iterator[tuple[Watch, ApiError | None]]:
        """The kinds that have not been listed yet, and why."""
        return ((each.watch, each.last_error) for each in self.informers if not each.synced)

    def snapshot(self, now: Moment | None = None) -> Snapshot:
        """The cluster at this moment; ``now``: by when devices that wait for conditions have to be ready."""
        return self.cluster.snapshot(csi=self._csi, dra=self._dra, now=now)

    def objects(self, kind: str) -> Sequence[KubeObject]:
        """The objects of a kind, in the order in which they came."""
        sink = self._typed.get(kind)
        return list(self.cluster.all(kind) if sink is None else sink.objects.values())

    def get(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        """One object, as far as the watch has brought it."""
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
        """The pods that are assigned to nodes and have not ended, node by node."""
        snapshot = self.snapshot()
        numbers = {name: i for i, name in enumerate(snapshot.nodes)}
        found: list[Pod] = []
        for name in nodes:
            number = numbers.get(name)
            if number is None:
                continue
            placed = (snapshot.placed[at].pod for at in np.flatnonzero(snapshot.placed_node == number).tolist())
            found += [pod for pod in placed if pod.spec.node_name == name]  # and not only nominated
        return found

    def resource_version(self, kind: str) -> str:
        """The newest version seen of a kind."""
        return next((each.version for each in self.informers if each.watch.kind == kind), "")
