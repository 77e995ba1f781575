"""A snapshot that may be changed and put back: what a simulation works on (upstream: ``PredicateSnapshot``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kscale._native import _engine
from kscale.errors import InputError
from kscale.objects.nodegroup import NodeTemplate
from kscale.scheduling.pods import PodsLike, pods_of
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.session import Session
from kscale.snapshot.interner import PodClass
from kscale.snapshot.snapshot import Snapshot

__all__ = ["View"]


class View:
    """A single-owner, mutable view of a snapshot; the snapshot itself never changes.

    ``pods`` (None = the pending ones) are what may be checked and placed, ``templates`` what may be added. Nodes have
    numbers: those of the snapshot first, added ones behind them. ``fork`` opens a level that ``revert`` forgets and
    ``commit`` keeps; levels nest. All work is proportional to what is touched. Not for two threads at once.
    """

    __slots__ = ("_added", "_numbers", "_on_node", "engine", "session", "snapshot", "templates")

    def __init__(
        self,
        snapshot: Snapshot,
        pods: PodsLike = None,
        *,
        templates: Sequence[NodeTemplate] = (),
        profile: SchedulerProfile | None = None,
        cursor: int = 0,
    ) -> None:
        records = pods_of(snapshot, pods)
        classes = snapshot.classify(records)
        self.snapshot = snapshot
        self.templates = list(templates)
        self.session = Session(snapshot, classes, templates, profile, present=snapshot.placed_classes)
        self.engine = self.session.engine
        self.engine.cursor = cursor
        number = self.session.number
        self._numbers: dict[str, int] = {
            record.key: number[pod.index] for record, pod in zip(records, classes, strict=True)
        }
        self._added: list[tuple[int, int]] = []
        self._on_node: dict[int, list[int]] | None = None

    # -- levels ------------------------------------------------------------------------------------------------------

    def fork(self) -> None:
        """Open a level."""
        self.engine.fork()

    def revert(self) -> None:
        """Forget everything since the last fork. The scan cursor stays, as upstream's does."""
        self.engine.revert()
        del self._added[self.engine.nodes - len(self.snapshot.columns) :]

    def commit(self) -> None:
        """Make what was done since the last fork part of the level below."""
        self.engine.commit()

    def checksum(self) -> int:
        """Equal states have equal sums: every counter, domain, port, reference and claim on devices goes into it."""
        return self.engine.checksum()

    # -- nodes -------------------------------------------------------------------------------------------------------

    def add(self, template: int = 0, copy: int | None = None) -> int:
        """Add a copy of ``templates[template]``; returns the new node's number. ``copy`` numbers its name."""
        if copy is None:
            copy = len(self._added)
        self._added.append((template, copy))
        return self.engine.add(self.session.templates[template], copy)

    def remove(self, node: str | int) -> list[int]:
        """Remove a node of the snapshot with its pods; returns the session numbers of the pods' classes.

        A pod that was placed by this view has to be taken off first.
        """
        n = self.number(node)
        pods = self._pods_on(n)
        for pod in pods:
            self.engine.unplace(pod, n)
        self.engine.remove_node(n)
        return pods

    def _pods_on(self, node: int) -> list[int]:
        if self._on_node is None:
            number = self.session.number
            found: dict[int, list[int]] = {}
            for class_index, n in zip(
                self.snapshot.placed_class.tolist(), self.snapshot.placed_node.tolist(), strict=True
            ):
                found.setdefault(n, []).append(number[class_index])
            self._on_node = found
        return self._on_node.get(node, [])

    def number(self, node: str | int) -> int:
        """A node by name or number. Raises InputError for a name that the snapshot does not have."""
        if isinstance(node, int):
            return node
        try:
            return self.snapshot.columns.index[node]
        except KeyError:
            raise InputError(f"no node {node!r} in the snapshot") from None

    def node_name(self, node: int) -> str:
        """The name of a node by number."""
        existing = len(self.snapshot.columns)
        if node < existing:
            return self.snapshot.nodes[node]
        template, copy = self._added[node - existing]
        return f"{self.templates[template].node.metadata.name}-e-{copy}"

    def free(self, node: str | int) -> tuple[dict[str, int], int]:
        """(free amounts by resource, free pod places)."""
        return self.session.free_on(self.number(node))

    # -- pods --------------------------------------------------------------------------------------------------------

    def pod(self, pod: str | int) -> int:
        """A pod's class by pod name or session number. Raises InputError."""
        if isinstance(pod, int):
            return pod
        try:
            return self._numbers[pod]
        except KeyError:
            raise InputError(f"pod {pod!r} was not given to this view") from None

    def class_of(self, pod: str | int) -> PodClass:
        """What predicates read of a pod."""
        return self.session.pods[self.pod(pod)]

    def fits(self, pod: str | int, node: str | int) -> bool:
        """Whether the pod passes every predicate on the node now."""
        return self.engine.check(self.pod(pod), self.number(node)) == _engine.FITS

    def place(self, pod: str | int, node: str | int) -> None:
        """Put the pod on the node without asking (upstream: ``ForceAddPod``)."""
        self.engine.place(self.pod(pod), self.number(node))

    def unplace(self, pod: str | int, node: str | int) -> None:
        """Take a pod off the node."""
        self.engine.unplace(self.pod(pod), self.number(node))

    def schedule(self, pod: str | int, node: str | int) -> bool:
        """Put the pod on the node if it fits there (upstream: ``SchedulePod``)."""
        number, n = self.pod(pod), self.number(node)
        if self.engine.check(number, n) != _engine.FITS:
            return False
        self.engine.place(number, n)
        return True

    def schedule_anywhere(self, pod: str | int, acceptable: Any = None) -> int | None:
        """Put the pod on the first node behind the cursor that takes it; the node's number, or None.

        ``acceptable``: uint8[nodes], 0 = not this one.
        """
        number = self.pod(pod)
        node = self.engine.any_node(number, acceptable)
        if node < 0:
            return None
        self.engine.place(number, node)
        return node
