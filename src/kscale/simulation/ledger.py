"""What a run comes to: amounts over time are added up exactly, whenever one of them changes."""

from __future__ import annotations

from collections.abc import Callable

from kscale.effects import Moment, VirtualTime
from kscale.objects.core import Node, Pod
from kscale.objects.requests import CPU, demand
from kscale.world.simulated.api_objects import ApiObjects, Changes, one_by_one
from kscale.world.simulated.pods import ENDED, finished

__all__ = ["Ledger", "quantile"]


class Ledger:
    """Listens to the objects of a world.

    Of pods that wait for a node (and may be bound to one): ``waits`` holds nanoseconds of those that were bound or
    given up; those that wait still are told by :meth:`waiting`. Cores are counted in thousandths; integrals over time
    are ``milli`` times nanoseconds. ``of_group`` tells whether a node has a machine of a group: of others nobody knows
    what they cost, and how long they were there is ``ungrouped_time``.
    """

    def __init__(self, api: ApiObjects, time: VirtualTime, of_group: Callable[[Node], bool]) -> None:
        self._time, self._of_group = time, of_group
        self._ungrouped: set[str] = set()
        self.ungrouped_time = 0
        self._since: Moment = time.now
        self._pending: dict[str, tuple[Moment, int]] = {}
        self._cores: dict[str, int] = {}
        self.waits: list[int] = []
        self.nodes = self.most_nodes = 0
        self.pods = 0
        self.allocatable = self.requested = self.wanted = 0
        """Thousandths of cores: of all nodes, of pods on them, of pods that wait."""
        self.allocatable_time = self.requested_time = self.over_time = self.wanted_time = self.pending_time = 0
        for kind, listener in (("Node", one_by_one(self._node)), ("Pod", self._pods)):
            listener(api.present(kind))
            api.listen(kind, listener)

    def settle(self) -> None:
        """Adds up until now."""
        by, self._since = self._time.now - self._since, self._time.now
        if by:
            self.allocatable_time += self.allocatable * by
            self.requested_time += self.requested * by
            self.over_time += max(self.allocatable - self.requested, 0) * by
            self.wanted_time += self.wanted * by
            self.pending_time += len(self._pending) * by
            self.ungrouped_time += len(self._ungrouped) * by

    def waiting(self) -> list[int]:
        """How long those have waited that wait still."""
        return [self._time.now - since for since, _ in self._pending.values()]

    @property
    def pending(self) -> int:
        """How many pods wait."""
        return len(self._pending)

    def _node(self, old: Node | None, new: Node | None) -> None:
        before, after = (0 if each is None else _cores(each) for each in (old, new))
        if before != after or (old is None) != (new is None):
            self.settle()
            self.allocatable += after - before
            self.nodes += (old is None) - (new is None)
            self.most_nodes = max(self.most_nodes, self.nodes)
        if old is None and new is not None and not self._of_group(new):
            self._ungrouped.add(new.name)
        elif old is not None and new is None:
            self._ungrouped.discard(old.name)

    def _pods(self, changes: Changes[Pod]) -> None:
        known: dict[tuple[int, ...], int] = {}
        for _, old, new in changes:
            if old is not None and new is not None and old.spec is new.spec and (
                old.status.phase not in ENDED and new.status.phase not in ENDED) and (
                old.metadata.deletion_timestamp is new.metadata.deletion_timestamp):  # fmt: skip
                continue  # what is looked at is as it was
            pod = old if new is None else new
            assert pod is not None
            uid = pod.metadata.uid
            there = new is not None and not finished(new)
            bound = there and bool(pod.spec.node_name)
            waits = there and not bound and pod.metadata.deletion_timestamp is None and not pod.spec.scheduling_gates
            if bound != (uid in self._cores) or waits != (uid in self._pending) or (bound and old is not None and (
                old.spec.containers is not pod.spec.containers)):  # fmt: skip
                self.settle()
                self._count(uid, _demand(pod, known) if bound or waits else 0, bound=bound, waits=waits)

    def _count(self, key: str, cores: int, *, bound: bool, waits: bool) -> None:
        held = self._cores.pop(key, None)
        if held is not None:
            self.requested -= held
            self.pods -= 1
        if bound:
            self._cores[key] = cores
            self.requested += cores
            self.pods += 1
        since = self._pending.pop(key, None)
        if since is not None:
            self.wanted -= since[1]
            if not waits:
                self.waits.append(self._time.now - since[0])
        if waits:
            self._pending[key] = (self._time.now if since is None else since[0]), cores
            self.wanted += cores


def _cores(node: Node) -> int:
    found = (node.status.allocatable or {}).get(CPU)
    return 0 if found is None else found.milli_value()


def _demand(pod: Pod, known: dict[tuple[int, ...], int]) -> int:
    """``known``: that of others, by the identities of what it goes by."""
    spec = pod.spec
    alike = id(spec.containers), id(spec.init_containers), id(spec.resources), id(spec.overhead)
    cores = known.get(alike)
    if cores is None:
        found = demand(pod).get(CPU)
        cores = known[alike] = 0 if found is None else found.milli_value()
    return cores


def quantile(values: list[int], share: int, of: int) -> int:
    """The smallest value that at least ``share / of`` of all do not exceed; 0 of none."""
    if not values:
        return 0
    ordered = sorted(values)
    return ordered[max(-(-len(ordered) * share // of) - 1, 0)]
