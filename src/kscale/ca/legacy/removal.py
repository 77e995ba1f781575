"""Do the pods of a node fit elsewhere? Every candidate on the whole cluster (release 1.3, ``simulator/cluster.go``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from kscale._native import _engine
from kscale.ca.legacy.pod_checks import pods_to_drain
from kscale.ca.legacy.usage_tracker import UsageTracker
from kscale.ca.scale_down import reasons
from kscale.ca.scale_down.drainability.context import DrainContext
from kscale.ca.scale_down.moving_pods import MovingPods, moving_pods
from kscale.ca.scale_down.removal_answers import RemovableNode, UnremovableCandidate
from kscale.effects import Moment
from kscale.objects.core import Node, Pod
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.session import Session
from kscale.snapshot.snapshot import Snapshot

__all__ = ["LegacySimulator"]

_MASTER = ("component", "kube-apiserver")


class LegacySimulator:
    """``everything``: the cluster with expendable pods, ``snapshot``: without. ``hints``: pod -> node of the last loop.

    ``index``: node numbers; ``new_hints``: where pods went in this loop. Relations are registered in ``usage``.
    """

    def __init__(
        self,
        everything: Snapshot,
        snapshot: Snapshot,
        *,
        usage: UsageTracker,
        hints: Mapping[str, str],
        now: Moment,
        profile: SchedulerProfile | None = None,
    ) -> None:
        self.index: dict[str, int] = snapshot.columns.index
        self.new_hints: dict[str, str] = {}
        self._usage, self._hints, self._now = usage, hints, now
        self._names = snapshot.nodes
        self._all = moving_pods(everything)
        self._all_on = _by_node(self._all, len(self._names))
        self._pods = moving_pods(snapshot)
        self._on = _by_node(self._pods, len(self._names))
        classes = self._pods.classes()
        session = Session(snapshot, classes, profile=profile, moving=True)
        self._engine = session.engine
        number = np.zeros(len(snapshot.interner.classes), dtype=np.int32)
        number[[of.index for of in classes]] = session.classes_of(classes)
        self._class = number[self._pods.class_of]
        self._takes = np.array([_takes_pods(node) for node in snapshot.columns.objects], dtype=np.uint8)

    def pods_on(self, node: str) -> list[Pod]:
        """The pods of a node that are not expendable."""
        return [self._pods.pod(i) for i in self._on[self.index[node]]]

    def empty(self, names: Iterable[str], context: DrainContext) -> list[str]:
        """The nodes without any pod to move, expendable ones counted; budgets are not asked."""
        alone = DrainContext(context.now, context.options)
        found = []
        for name in names:
            pods = [self._all.pod(i) for i in self._all_on[self.index[name]]]
            checked = pods_to_drain(pods, alone, system=True, storage=True)
            if checked.blocking is None and not checked.pods:
                found.append(name)
        return found

    def masters(self) -> set[str]:
        """Nodes that run an API server."""
        key, value = _MASTER
        found: set[str] = set()
        for kind in range(len(self._all.exemplars)):
            metadata = self._all.exemplars[kind].metadata
            if metadata.namespace == "kube-system" and (metadata.labels or {}).get(key) == value:
                found.update(self._names[n] for n in self._all.node[self._all.kind_of == kind].tolist())
        return found

    def find_places(self, name: str, keys: Sequence[str]) -> RemovableNode | UnremovableCandidate:
        """A place on other nodes for these pods of a node, in order: where it was last time, or the first in the list.

        Other candidates take pods like any other node, and nothing stays placed.
        """
        engine, n = self._engine, self.index[name]
        here = self._on[n]
        wanted = set(keys)
        moving = [i for i in here if self._pods.names[i] in wanted]
        takes = self._takes.copy()
        takes[n] = 0
        placement: dict[str, str] = {}
        engine.fork()
        try:
            engine.vacate(n, self._class[here])
            for i in moving:
                key, of = self._pods.names[i], int(self._class[i])
                to = self.index.get(self._hints.get(key, ""), -1)
                if to < 0 or not takes[to] or engine.check(of, to) != _engine.FITS:
                    engine.cursor = engine.alive_nodes - 1  # the search begins behind it, at the head of the list
                    to = engine.any_node(of, takes)
                if to < 0:
                    return UnremovableCandidate(node=name, reason=reasons.NO_PLACE_TO_MOVE_PODS, homeless=key)
                engine.place(of, to)
                placement[key] = self._names[to]
                self.new_hints[key] = self._names[to]
                self._usage.register(name, self._names[to], self._now)
        finally:
            engine.revert()
        return RemovableNode.of(name, placement)


def _by_node(pods: MovingPods, nodes: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(nodes)]
    for i, n in enumerate(pods.node.tolist()):
        found[n].append(i)
    return found


def _takes_pods(node: Node) -> bool:
    """The predicate of that time on node conditions: ready, on the network, with room on its disk, not cordoned."""
    bad = {"OutOfDisk": "True", "DiskPressure": "True", "NetworkUnavailable": "True"}
    for condition in node.status.conditions:
        if condition.type == "Ready" and condition.status != "True":
            return False
        if bad.get(condition.type) == condition.status:
            return False
    return not node.spec.unschedulable
