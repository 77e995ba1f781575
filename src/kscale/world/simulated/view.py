"""The cluster as its watches have brought it: objects by kind, and one cluster in columns that all drivers look at.

Pods change a hundred times between two looks: the columns take up what has become of them when somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from kscale.effects import VirtualTime
from kscale.objects.core import Pod
from kscale.objects.meta import KubeObject
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot
from kscale.world.simulated.api_objects import ApiObjects, Changes
from kscale.world.simulated.turns import HAPPENINGS

__all__ = ["NOT_IN_COLUMNS", "ClusterView"]

_Told = Callable[[str, Changes[Any]], None]
NOT_IN_COLUMNS: Final = frozenset(
    {"ConfigMap", "Event", "HorizontalPodAutoscaler", "VerticalPodAutoscaler", "VerticalPodAutoscalerCheckpoint",
     "Lease", "Deployment", "LimitRange"}
)  # fmt: skip
"""Kinds that a cluster in columns has no use for."""


class ClusterView:
    """What has been seen of a world ``lag`` nanoseconds after it came about; the same for every driver.

    ``version``: by kind, the newest that was seen. Single owner.
    """

    def __init__(self, api: ApiObjects, time: VirtualTime, *, lag: int = 0, cluster: Cluster | None = None) -> None:
        self._time, self._lag = time, lag
        self.cluster = Cluster(texts="pending") if cluster is None else cluster
        self.version: dict[str, str] = {}
        self._kinds: dict[str, dict[str, KubeObject]] = {}
        self._on: dict[str, dict[str, Pod]] = {}
        self._changed: dict[str, Pod | None] = {}
        self._known: set[str] = set()
        self._calls: dict[str, list[_Told]] = {}
        for item in api:
            self._take(item.kind, [(item.key, None, item)])
        api.listen_all(self._heard)

    def listen(self, kinds: Iterable[str], call: _Told) -> None:
        """Tells (kind, changes) of what is seen of some kinds from now on."""
        for kind in kinds:
            self._calls.setdefault(kind, []).append(call)

    def _heard(self, kind: str, changes: Changes[Any]) -> None:
        if not self._lag:
            self._take(kind, changes)
        else:
            self._time.at(self._time.now + self._lag, partial(self._take, kind, changes), rank=HAPPENINGS)

    def _take(self, kind: str, changes: Changes[KubeObject]) -> None:
        held = self._kinds.setdefault(kind, {})
        for key, _, new in changes:
            if new is None:
                held.pop(key, None)
            else:
                held[key] = new
        _, old, new = changes[-1]
        self.version[kind] = (new or old).metadata.resource_version  # type: ignore[union-attr]  # one of the two is there
        if kind == "Pod":
            self._take_pods(changes)  # type: ignore[arg-type]  # they are pods
        elif kind not in NOT_IN_COLUMNS:
            for key, _, new in changes:
                if new is None:
                    self.cluster.remove(kind, key)
                else:
                    self.cluster.apply_decoded(new, None)
        for call in self._calls.get(kind, ()):
            call(kind, changes)

    def _take_pods(self, changes: Changes[Pod]) -> None:
        changed, on = self._changed, self._on
        for key, old, new in changes:
            before = old.spec.node_name if old is not None else ""
            after = new.spec.node_name if new is not None else ""
            if before and before != after:
                held = on[before]
                held.pop(key, None)
                if not held:
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
                del changed[key]  # one that was deleted before: the new one comes last
                self.cluster.remove("Pod", key)
                self._known.discard(key)
            changed[key] = new

    def settle(self) -> None:
        """The columns take up what has become of pods."""
        if not self._changed:
            return
        changed, self._changed = self._changed, {}
        gone = [key for key, pod in changed.items() if pod is None]
        self.cluster.apply_pods((pod for pod in changed.values() if pod is not None), gone=gone)
        self._known.update(changed)
        self._known.difference_update(gone)
        self.cluster.tidy()

    def snapshot(self) -> Snapshot:
        """The cluster in columns."""
        self.settle()
        return self.cluster.snapshot()

    def of(self, kind: str) -> Mapping[str, Any]:
        """The objects of a kind by key, in the order in which they came."""
        return self._kinds.get(kind, {})

    def pods_of(self, nodes: Sequence[str]) -> list[Pod]:
        """The pods that are assigned to nodes and have not ended, node by node."""
        return [
            pod
            for node in nodes
            for pod in self._on.get(node, {}).values()
            if pod.status.phase not in ("Succeeded", "Failed")
        ]

    def all_on(self, node: str) -> list[Pod]:
        """All pods of a node, those that have ended too."""
        return list(self._on.get(node, {}).values())
