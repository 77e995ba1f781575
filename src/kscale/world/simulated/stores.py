"""What a driver sees of a simulated world (:class:`kscale.world.protocols.TellingStores`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from kscale.effects import Moment
from kscale.objects.core import Pod
from kscale.objects.meta import KubeObject, object_key
from kscale.snapshot.snapshot import Snapshot
from kscale.world.protocols import Change, Watch
from kscale.world.simulated.api_objects import Changes
from kscale.world.simulated.selections import Wanted, wanted
from kscale.world.simulated.view import ClusterView

__all__ = ["SimulatedStores"]


class SimulatedStores:
    """The view of the world, cut down to what a driver watches (:class:`kscale.world.protocols.Stores`).

    What is there at the beginning is told as new to the first who subscribes, as a list would.
    """

    def __init__(self, view: ClusterView, watches: Sequence[Watch]) -> None:
        self._view = view
        self._calls: list[Callable[[Change | None], None]] = []
        self._changes: Counter[str] = Counter()
        self._untyped = frozenset(watch.kind for watch in watches if not watch.typed)
        self._typed: dict[str, tuple[Watch, Wanted | None, dict[str, KubeObject]]] = {}
        for watch in watches:
            if not watch.typed:
                continue
            if watch.kind in self._typed:
                raise ValueError(f"{watch.kind} is watched twice in one way")
            self._typed[watch.kind] = watch, wanted(watch), {}
        self._listed = False
        view.listen(sorted(self._untyped | self._typed.keys()), self._seen)

    def _seen(self, kind: str, changes: Changes[Any]) -> None:
        if kind in self._untyped:
            self._changes[kind] += len(changes)
        found = self._typed.get(kind)
        if found is None or not self._listed:
            return
        watch, is_wanted, objects = found
        for key, _, new in changes:
            before = objects.get(key)
            after = new if new is not None and (is_wanted is None or is_wanted(new)) else None
            if after is not None:
                objects[key] = after
            elif before is not None:
                del objects[key]
            else:
                continue
            self._changes[kind] += 1
            change = Change(watch=watch, old=before, new=after)
            for call in tuple(self._calls):
                call(change)

    def _list(self) -> None:
        self._listed = True
        for kind in self._typed:
            self._seen(kind, [(key, None, item) for key, item in self._view.of(kind).items()])

    def changes(self, without: Collection[str] = ()) -> int:
        """How often something that is watched has changed, but for some kinds."""
        return sum(count for kind, count in self._changes.items() if kind not in without)

    # -- what it tells ------------------------------------------------------------------------------------------------

    def subscribe(self, call: Callable[[Change | None], None]) -> Callable[[], None]:
        """Calls a function after each change of a typed kind. Gives what ends that."""
        self._calls.append(call)
        if not self._listed:
            self._list()
        return lambda: self._calls.remove(call)

    @property
    def synced(self) -> bool:
        """Always."""
        return True

    @property
    def settled(self) -> bool:
        """Always."""
        return True

    def snapshot(self, now: Moment | None = None) -> Snapshot:  # noqa: ARG002 - this world has no devices that wait
        """The cluster at this moment."""
        return self._view.snapshot()

    def objects(self, kind: str) -> Sequence[Any]:
        """The objects of a kind, in the order in which they came."""
        typed = self._typed.get(kind)
        return list(self._view.of(kind).values() if typed is None else typed[2].values())

    def get(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        """One object, as far as the watch has brought it."""
        key = object_key(namespace, name)
        typed = self._typed.get(kind)
        found: KubeObject | None = (self._view.of(kind) if typed is None else typed[2]).get(key)
        return found

    def pods_of(self, nodes: Sequence[str]) -> Sequence[Pod]:
        """The pods that are assigned to nodes and have not ended, node by node."""
        return self._view.pods_of(nodes)

    def resource_version(self, kind: str) -> str:
        """The newest version seen of a kind."""
        return self._view.version.get(kind, "")
