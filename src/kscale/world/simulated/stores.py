"""A driver's view of a simulated cluster: objects by kind, and one cluster in columns.

Pods change many times between two reads, so the columns apply pod changes only when they are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from kscale.effects import Moment, VirtualTime
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import KubeObject
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot
from kscale.world.protocols import Change, Watch
from kscale.world.simulated.api_server import ApiObjects, Changes, Wanted, build_predicate
from kscale.world.simulated.controllers import HAPPENINGS

__all__ = ["NOT_IN_COLUMNS", "ClusterView", "SimulatedStores"]


_Told = Callable[[str, Changes[Any]], None]
NOT_IN_COLUMNS: Final = frozenset(
    {"ConfigMap", "Event", "HorizontalPodAutoscaler", "VerticalPodAutoscaler", "VerticalPodAutoscalerCheckpoint",
     "Lease", "Deployment", "LimitRange"}
)  # fmt: skip
"""Kinds that a cluster in columns does not use."""


class ClusterView:
    """The cluster as drivers see it: each change becomes visible ``lag`` nanoseconds later. All drivers share it.

    Without a lag, objects are read from the API server. Has a single owner.
    """

    def __init__(self, api: ApiObjects, time: VirtualTime, *, lag: int = 0, cluster: Cluster | None = None) -> None:
        self._api, self._time, self._lag = api, time, lag
        self.cluster = Cluster(texts="pending") if cluster is None else cluster
        self._versions: dict[str, str] = {}
        self._kinds: dict[str, dict[str, KubeObject]] = {}
        self._on: dict[str, dict[str, Pod]] = {}
        self._changed: dict[str, Pod | None] = {}
        self._known: set[str] = set()
        self._calls: dict[str, list[_Told]] = {}
        for item in api:
            self._apply(item.kind, [(item.key, None, item)])
        api.listen_all(self._note_changes, other_than=() if lag else NOT_IN_COLUMNS)

    def listen(self, kinds: Iterable[str], call: _Told) -> None:
        """Register a function that is called with (kind, changes) when drivers get to see changes of these kinds."""
        for kind in kinds:
            if not self._lag and kind in NOT_IN_COLUMNS:
                self._api.listen(kind, partial(call, kind))
            else:
                self._calls.setdefault(kind, []).append(call)

    def _note_changes(self, kind: str, changes: Changes[Any]) -> None:
        """Apply changes now, or schedule this for the end of the lag."""
        if not self._lag:
            self._apply(kind, changes)
        else:
            self._time.at(self._time.now + self._lag, partial(self._apply, kind, changes), rank=HAPPENINGS)

    def _apply(self, kind: str, changes: Changes[KubeObject]) -> None:
        """Make changes of a kind visible, and call the listeners.

        Pods are applied to the columns later (:meth:`settle`).
        """
        if self._lag:
            self._copy(kind, changes)
        if kind == "Pod":
            self._take_pods(changes)  # type: ignore[arg-type]  # the objects are pods
        elif kind not in NOT_IN_COLUMNS:
            for key, _, new in changes:
                if new is None:
                    self.cluster.remove(kind, key)
                else:
                    self.cluster.apply_decoded(new, None)
        for call in self._calls.get(kind, ()):
            call(kind, changes)

    def _copy(self, kind: str, changes: Changes[KubeObject]) -> None:
        """Apply changes to the objects of a kind that drivers see."""
        objects = self._kinds.setdefault(kind, {})
        for key, _, new in changes:
            if new is None:
                objects.pop(key, None)
            else:
                objects[key] = new
        _, old, new = changes[-1]
        self._versions[kind] = (new or old).metadata.resource_version  # type: ignore[union-attr]  # not both are None

    def _take_pods(self, changes: Changes[Pod]) -> None:
        """Store changed pods until :meth:`settle`, and update the pods by node."""
        changed, on = self._changed, self._on
        for key, old, new in changes:
            before = old.spec.node_name if old is not None else ""
            after = new.spec.node_name if new is not None else ""
            if before and before != after:
                pods = on[before]
                pods.pop(key, None)
                if not pods:
                    del on[before]
            if new is None:
                if key in self._known:
                    changed[key] = None
                else:
                    changed.pop(key, None)
                continue
            if after:
                if after not in on:
                    on[after] = {}
                on[after][key] = new
            if key in changed and changed[key] is None:
                del changed[key]  # the pod was deleted and created again: the new one comes last
                self.cluster.remove("Pod", key)
                self._known.discard(key)
            changed[key] = new

    def settle(self) -> None:
        """Apply pending pod changes to the columns."""
        if not self._changed:
            return
        changed, self._changed = self._changed, {}
        removed = [key for key, pod in changed.items() if pod is None]
        self.cluster.apply_pods((pod for pod in changed.values() if pod is not None), removed=removed)
        self._known.update(changed)
        self._known.difference_update(removed)
        self.cluster.tidy()

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the cluster as drivers see it: without the changes of the last ``lag`` nanoseconds."""
        self.settle()
        return self.cluster.snapshot()

    def get_all(self, kind: str) -> Mapping[str, Any]:
        """Return the objects of a kind by key, in the order of arrival."""
        return self._kinds.get(kind, {}) if self._lag else self._api.get_all(kind)

    def get_version(self, kind: str) -> str:
        """Return the newest resource version of a kind that drivers see; empty if there is none."""
        return self._versions.get(kind, "") if self._lag else self._api.get_version(kind)

    def pods_of(self, nodes: Sequence[str]) -> list[Pod]:
        """Return the unfinished pods assigned to the named nodes, node by node."""
        return [
            pod
            for node in nodes
            for pod in self._on.get(node, {}).values()
            if pod.status.phase not in ("Succeeded", "Failed")
        ]

    def all_on(self, node: str) -> list[Pod]:
        """Return all pods of a node, including finished ones."""
        return list(self._on.get(node, {}).values())


class SimulatedStores:
    """The part of a ClusterView that a driver watches (:class:`kscale.world.protocols.Stores`).

    The first subscriber gets all existing objects as new ones, as from a list. ``is_unread``: see
    :class:`~kscale.world.protocols.InputSources`; changes that it accepts are not counted.
    """

    def __init__(
        self,
        view: ClusterView,
        watches: Sequence[Watch],
        is_unread: Callable[[Changes[Any]], bool] | None = None,
    ) -> None:
        self._view = view
        self._is_unread, self._is_counted = is_unread, False
        self._calls: list[Callable[[Change | None], None]] = []
        self._changes: Counter[str] = Counter()
        self._untyped = frozenset(watch.kind for watch in watches if not watch.typed)
        self._typed: dict[str, tuple[Watch, Wanted | None, dict[str, KubeObject]]] = {}
        for watch in watches:
            if not watch.typed:
                continue
            if watch.kind in self._typed:
                raise ValueError(f"{watch.kind} is watched twice in one way")
            self._typed[watch.kind] = watch, build_predicate(watch), {}
        self._listed = False
        view.listen(sorted(self._untyped | self._typed.keys()), self._count_changes)

    def _count_changes(self, kind: str, changes: Changes[Any]) -> None:
        """Count changes of a kind, update the objects of a typed watch, and notify subscribers."""
        if kind in self._untyped and (self._is_counted or self._is_unread is None or not self._is_unread(changes)):
            self._changes[kind] += len(changes)
            self._is_counted = True
        typed = self._typed.get(kind)
        if typed is None or not self._listed:
            return
        watch, is_wanted, objects = typed
        calls, count = tuple(self._calls), 0
        find = objects.get
        for key, _, new in changes:
            before = find(key)
            if new is not None and (is_wanted is None or is_wanted(new)):
                objects[key] = after = new
            elif before is not None:
                after = None
                del objects[key]
            else:
                continue
            count += 1
            change = Change(watch=watch, old=before, new=after)
            for call in calls:
                call(change)
        if not count:
            return
        if kind not in self._untyped:  # otherwise they have been counted above
            self._changes[kind] += count
        for call in calls:
            call(None)

    def _list(self) -> None:
        """Report all existing objects of typed watches as new."""
        self._listed = True
        for kind in self._typed:
            self._count_changes(kind, [(key, None, item) for key, item in self._view.get_all(kind).items()])

    def changes(self, without: Collection[str] = ()) -> int:
        """Return the number of changes of watched kinds so far, except of the kinds in ``without``.

        Changes of a typed watch count from the first subscription on, and only for objects that the watch selects or
        selected before. Changes that no round reads (``is_unread``) are not counted, unless another change has been
        counted since the last call.
        """
        self._is_counted = False
        return sum(count for kind, count in self._changes.items() if kind not in without)

    # -- Stores ------------------------------------------------------------------------------------------------------

    def subscribe(self, call: Callable[[Change | None], None]) -> Callable[[], None]:
        """Register ``call`` for changes of typed kinds, and return a function that ends this.

        The first subscriber first gets all existing objects as new ones. ``call`` is also called with None, after all
        changes that become visible together.
        """
        self._calls.append(call)
        if not self._listed:
            self._list()
        return lambda: self._calls.remove(call)

    @property
    def synced(self) -> bool:
        """Return True: a simulated store is always listed."""
        return True

    @property
    def settled(self) -> bool:
        """Return True: a simulated store is always consistent."""
        return True

    def snapshot(self, now: Moment | None = None) -> Snapshot:  # noqa: ARG002  # the time matters only for devices that wait; there are none here
        """Return a snapshot of the cluster as drivers see it. ``now`` has no effect."""
        return self._view.snapshot()

    def objects(self, kind: str) -> Sequence[Any]:
        """Return the objects of a kind in the order of arrival.

        There are no objects of a typed watch before the first subscription.
        """
        typed = self._typed.get(kind)
        return list(self._view.get_all(kind).values() if typed is None else typed[2].values())

    def get(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        """Return one object as the watch delivered it, or None.

        There are no objects of a typed watch before the first subscription.
        """
        typed = self._typed.get(kind)
        objects: Mapping[str, Any] = self._view.get_all(kind) if typed is None else typed[2]
        return objects.get(f"{namespace}/{name}" if namespace else name)

    def pods_of(self, nodes: Sequence[str]) -> Sequence[Pod]:
        """Return the active pods assigned to the named nodes, node by node."""
        return self._view.pods_of(nodes)

    def resource_version(self, kind: str) -> str:
        """Return the newest resource version of a kind that drivers see; empty if there is none."""
        return self._view.get_version(kind)
