"""``kscale.fork``: a copy of a snapshot that a simulation can change and restore.

Upstream: ``simulator/clustersnapshot/predicate/predicate_snapshot.go`` (PredicateSnapshot).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, cast

from kscale._native import _engine
from kscale.errors import ArgumentError, InputError, StateError
from kscale.objects.argument_types import typed, typed_methods
from kscale.objects.nodegroup import NodeTemplate
from kscale.scheduling.coercion import (
    MAX_COUNT,
    PodsLike,
    SnapshotLike,
    TemplateLike,
    inputs_of,
    mask_of,
    pods_of,
    position_of,
    short,
    template_of,
)
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.session import Session
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.pods.rows import PodRows
from kscale.snapshot.snapshot import Snapshot

__all__ = ["Fork", "fork"]

_NOWHERE = -1


@typed
def fork(
    snapshot: SnapshotLike,
    pods: PodsLike = None,
    *,
    templates: Sequence[TemplateLike] = (),
    profile: SchedulerProfile | None = None,
    cursor: int = 0,
) -> Fork:
    """Return a mutable copy of a snapshot.

    Parameters
    ----------
    snapshot : Snapshot or Cluster
        Cluster state. A Cluster is snapshotted first.
    pods : sequence of str, Pod, dict or client object, optional
        Pods that may be checked and placed. Default: the snapshot's pending pods.
    templates : sequence of Node, NodeTemplate, NodeGroup or dict
        Templates of nodes that may be added.
    profile : SchedulerProfile, optional
        Scheduler profile. Default: upstream's default profile.
    cursor : int
        Number of the node after which the round-robin scan over nodes starts.

    Returns
    -------
    Fork
        The copy. The snapshot itself never changes.

    Raises
    ------
    InputError
        If a pod or a template cannot be read, if a named pod is not in the snapshot or is named twice, and for an
        invalid ``cursor``.
    ArgumentError
        If ``templates`` is a text instead of a list of templates.
    """
    snapshot, pods = inputs_of(snapshot, pods)
    if not isinstance(cast("object", templates), Sequence) or isinstance(templates, str | bytes):
        raise ArgumentError("templates", short(templates), "a list of node templates", type(templates).__name__)
    prepared = [template_of(template, snapshot.columns.objects) for template in templates]
    return Fork(snapshot, pods, templates=prepared, profile=profile, cursor=cursor)


@typed_methods(late=True)
class Fork:
    """Mutable copy of a snapshot with a single owner. The snapshot itself never changes.

    ``pods`` (None: the pending ones) may be checked and placed, ``templates`` may be added, ``cursor`` is where the
    scan over nodes starts. Nodes have numbers: first those of the snapshot, then added ones. :meth:`fork` opens a level
    that :meth:`revert` undoes and :meth:`commit` keeps; levels nest. The cost of an operation is proportional to what
    it changes. Not safe for concurrent use by threads.

    The fork tracks the node of each of its pods: a pod can be placed once, and removed from the node that it is on. A
    pod that runs in the snapshot and is passed by name is on its node from the start. Where a method takes a pod, the
    session number of a class stands for any pod of that class; such pods are only counted. An operation that would
    violate this raises InputError and changes nothing.
    """

    __slots__ = (
        "_added",
        "_anonymous",
        "_at",
        "_bases",
        "_copies",
        "_existing",
        "_home",
        "_index",
        "_log",
        "_lost",
        "_marks",
        "_mine",
        "_moved",
        "_numbers",
        "_on_node",
        "_own",
        "engine",
        "session",
        "snapshot",
        "templates",
    )

    def __init__(
        self,
        snapshot: Snapshot,
        pods: PodsLike = None,
        *,
        templates: Sequence[NodeTemplate] = (),
        profile: SchedulerProfile | None = None,
        cursor: int = 0,
    ) -> None:
        """Compile the snapshot, pods and templates. Raises InputError for pods or a cursor as :func:`fork` does."""
        cursor = position_of(cursor, "cursor")
        if isinstance(pods, Iterable) and not isinstance(pods, PodRows | str | bytes | dict):
            pods = [*pods]
        records = pods_of(snapshot, pods)
        classes = snapshot.classify(records)
        self.snapshot = snapshot
        self.templates = list(templates)
        self.session = Session(snapshot, classes, templates, profile, present=snapshot.placed_classes)
        self.engine = self.session.engine
        self.engine.cursor = cursor
        number = self.session.number
        self._numbers: dict[str, int] = {record.key: number(pod) for record, pod in zip(records, classes, strict=True)}
        self._index = snapshot.columns.index
        self._existing = len(snapshot.columns)
        self._added: list[str] = []
        self._copies: dict[str, int] = {}  # name of an added node -> its number
        self._bases = [f"{template.node.metadata.name}-e-" for template in self.templates]
        names = [pod for pod in pods if isinstance(pod, str)] if isinstance(pods, list) else []
        self._at = {key: node for key, node in zip(names, snapshot.nodes_of(names), strict=True) if node >= 0}
        self._home = frozenset(self._at)  # the pods that run in the snapshot
        self._moved: dict[str, int] = {}  # 1 = a pod of the snapshot that is no longer on its node there
        self._mine: dict[tuple[int, int], int] = {}  # (class, node) -> pods that were placed by class
        self._lost: dict[tuple[int, int], int] = {}  # (class, node) -> pods of the snapshot, removed by class
        self._own: dict[int, int] = {}  # node -> pods that this fork placed on it
        self._on_node: dict[int, list[tuple[str, int]]] | None = None
        self._anonymous: dict[int, Counter[int]] = {}
        self._log: list[tuple[dict[Any, int], Any, int | None]] = []
        self._marks: list[int] = []

    def __repr__(self) -> str:
        placed = sum(self._own.values())
        return f"<Fork: {self.engine.alive_nodes} nodes, {len(self._added)} of them added, {placed} pods placed>"

    def __reduce__(self) -> NoReturn:
        raise StateError("a fork cannot be pickled or copied: pickle its snapshot, and fork that again")

    # -- levels ------------------------------------------------------------------------------------------------------

    def fork(self) -> None:
        """Open a level: :meth:`revert` undoes all changes made from now on, and :meth:`commit` keeps them."""
        self.engine.fork()
        self._marks.append(len(self._log))

    def revert(self) -> None:
        """Undo everything since the last ``fork``. The scan cursor stays, as upstream's does.

        Raises StateError if no level is open.
        """
        if not self._marks:
            raise StateError("revert: nothing was forked")
        self.engine.revert()
        log, mark = self._log, self._marks.pop()
        while len(log) > mark:
            table, key, value = log.pop()
            if value is None:
                del table[key]
            else:
                table[key] = value
        added = self._added
        for _ in range(len(added) - self.engine.nodes + self._existing):
            del self._copies[added.pop()]

    def commit(self) -> None:
        """Merge the changes since the last ``fork`` into the level below. Raises StateError if no level is open."""
        if not self._marks:
            raise StateError("commit: nothing was forked")
        self.engine.commit()
        self._marks.pop()
        if not self._marks:
            self._log.clear()

    def checksum(self) -> int:
        """Return a checksum of the state; equal states have equal checksums.

        The state includes every counter, topology domain, host port, volume reference and device claim.
        """
        return self.engine.checksum()

    def _set_logged(self, table: dict[Any, int], key: Any, value: int) -> None:
        """Set ``table[key]`` to ``value``; log the old entry if there is a mark to which the fork may be reverted."""
        if self._marks:
            self._log.append((table, key, table.get(key)))
        table[key] = value

    def _add_to(self, table: dict[Any, int], key: Any, amount: int) -> None:
        """Add an amount to an entry of ``table``; see :meth:`_set_logged`."""
        self._set_logged(table, key, table.get(key, 0) + amount)

    # -- nodes -------------------------------------------------------------------------------------------------------

    def add(self, template: int = 0, copy: int | None = None) -> int:
        """Add a copy of ``templates[template]``, and return the new node's number.

        ``copy`` is the number in its name; default: the next number that no node has. Raises InputError for an unknown
        template, and for the number of an existing node.
        """
        if type(template) is not int or not 0 <= template < len(self._bases):
            raise InputError(f"there is no template {template!r}: this fork has {len(self._bases)}")
        base, copies = self._bases[template], self._copies
        if copy is None:
            copy = len(self._added)
            name = f"{base}{copy}"
            while name in copies or name in self._index:
                copy += 1
                name = f"{base}{copy}"
        else:
            copy = position_of(copy, "copy", MAX_COUNT)
            name = f"{base}{copy}"
            if name in copies or name in self._index:
                raise InputError(f"there is a node {name!r} already")
        number = self.engine.add(self.session.templates[template], copy)
        self._added.append(name)
        copies[name] = number
        return number

    def remove(self, node: str | int) -> list[int]:
        """Remove a node and the snapshot's pods on it, and return the session numbers of their classes.

        Raises InputError if the node does not exist, or if a pod that this fork placed is on the node; remove such pods
        first.
        """
        n = self.number(node)
        if self._own.get(n):
            pods = [key for key, location in self._at.items() if location == n and not self._is_at_home(key)]
            pods += [
                f"one of class {number}" for (number, location), count in self._mine.items() if location == n and count
            ]
            named = ", ".join(pods[:5]) + (" ..." if len(pods) > 5 else "")
            raise InputError(f"node {self.node_name(n)!r} has pods that this fork placed: remove them first: {named}")
        left = Counter({number: count for (number, location), count in self._lost.items() if location == n})
        removed: list[int] = []
        for key, number in self._snapshot_pods(n):
            if key:
                if key in self._moved:
                    continue
                self._record_leaving(key)
            elif left[number]:
                left[number] -= 1
                continue
            removed.append(number)
            self.engine.unplace(number, n)
        self.engine.remove_node(n)
        return removed

    def _snapshot_pods(self, node: int) -> list[tuple[str, int]]:
        """Return the pods that the snapshot has on a node as (name, session number of the class).

        The name is "" for pods that were not passed to this fork.
        """
        if self._on_node is None:
            number, classes, home = self.session.number, self.snapshot.interner.classes, self._home
            keys = self.snapshot.pods if home else [""] * len(self.snapshot.placed_node)
            pods_by_node: dict[int, list[tuple[str, int]]] = {}
            for key, class_index, n in zip(
                keys, self.snapshot.placed_class.tolist(), self.snapshot.placed_node.tolist(), strict=True
            ):
                pods_by_node.setdefault(n, []).append((key if key in home else "", number(classes[class_index])))
            self._on_node = pods_by_node
        return self._on_node.get(node, [])

    def number(self, node: str | int) -> int:
        """Return the number of a node that is passed by name or number.

        Raises InputError if the node does not exist or was removed.
        """
        if isinstance(node, str):
            n = self._index.get(node, -1)
            if n < 0:
                n = self._copies.get(node, -1)
            if n < 0:
                raise InputError(f"no node {node!r} in the snapshot")
        else:
            n = self._check_node(node)
        if not self.engine.alive(n):
            raise InputError(f"node {self.node_name(n)!r} was removed from this fork")
        return n

    def _check_node(self, node: Any) -> int:
        """Return ``node`` if it is the number of a node. Raises InputError for any other value."""
        count = self.engine.nodes
        if isinstance(node, int) and 0 <= node < count:
            return node
        return position_of(node, "the number of a node", count - 1)

    def node_name(self, node: int) -> str:
        """Return the name of a node by number. Raises InputError if the number is out of range."""
        node = self._check_node(node)
        return self.snapshot.nodes[node] if node < self._existing else self._added[node - self._existing]

    def free(self, node: str | int) -> tuple[dict[str, int], int]:
        """Return a node's free amounts by resource, and its free pod slots.

        Raises InputError if the node does not exist.
        """
        return self.session.free_on(self.number(node))

    # -- pods --------------------------------------------------------------------------------------------------------

    def pod(self, pod: str | int) -> int:
        """Return the session number of a pod's class, for a pod's name or the number of a class.

        Raises InputError if the pod was not passed to this fork, or the number is out of range.
        """
        if not isinstance(pod, str):
            return position_of(pod, "the number of a pod's class", len(self.session.pods) - 1)
        try:
            return self._numbers[pod]
        except KeyError:
            raise InputError(f"pod {pod!r} was not passed to this fork") from None

    def class_of(self, pod: str | int) -> PodClass:
        """Return the class of a pod, i.e. what predicates read of it. Raises InputError if the pod is unknown."""
        return self.session.pods[self.pod(pod)]

    def where(self, pod: str) -> int | None:
        """Return the number that identifies the node that a pod of this fork is on; None if the pod is on no node.

        Raises InputError if the pod was not passed to this fork.
        """
        self.pod(pod)
        node = self._at.get(pod, _NOWHERE)
        return None if node == _NOWHERE else node

    def fits(self, pod: str | int, node: str | int) -> bool:
        """Check whether the pod passes every predicate on the node in the current state.

        Raises InputError for an unknown pod or node, and for a class that only placed pods have.
        """
        return self.engine.check(self._get_checkable_class(pod), self.number(node)) == _engine.FITS

    def place(self, pod: str | int, node: str | int) -> None:
        """Place the pod on the node without checks (upstream: ``ForceAddPod``).

        Raises InputError if the pod is on a node, or if the pod or the node is unknown.
        """
        number, n = self.pod(pod), self.number(node)
        self._check_unplaced(pod)
        self._place(pod, number, n)

    def unplace(self, pod: str | int, node: str | int) -> None:
        """Remove a pod from the node. Raises InputError if the pod is not on the node.

        The number of a class removes a pod that was placed by this number, or else one of the snapshot's pods of the
        class that were not passed to this fork.
        """
        number, n = self.pod(pod), self.number(node)
        if isinstance(pod, str):
            if self._at.get(pod, _NOWHERE) != n:
                raise InputError(f"pod {pod!r} is not on node {self.node_name(n)!r}: it was not placed there")
            if self._is_at_home(pod):
                self.engine.unplace(self._class_there(pod, n), n)
            else:
                self.engine.unplace(number, n)
                self._add_to(self._own, n, -1)
            self._record_leaving(pod)
            return
        location = number, n
        if self._mine.get(location):
            self.engine.unplace(number, n)
            self._add_to(self._mine, location, -1)
            self._add_to(self._own, n, -1)
            return
        if n not in self._anonymous:
            self._anonymous[n] = Counter(class_number for key, class_number in self._snapshot_pods(n) if not key)
        if self._anonymous[n][number] <= self._lost.get(location, 0):
            raise InputError(f"no pod of class {number} is on node {self.node_name(n)!r}, but for those with a name")
        self.engine.unplace(number, n)
        self._add_to(self._lost, location, 1)

    def schedule(self, pod: str | int, node: str | int) -> bool:
        """Place the pod on the node if it fits there, and return whether it does (upstream: ``SchedulePod``).

        Raises InputError if the pod is on a node, for an unknown pod or node, and for a class that only placed pods
        have.
        """
        number, n = self._get_checkable_class(pod), self.number(node)
        self._check_unplaced(pod)
        if self.engine.check(number, n) != _engine.FITS:
            return False
        self._place(pod, number, n)
        return True

    def schedule_each(self, pods: Sequence[str | int], nodes: Sequence[int]) -> list[int]:
        """Place each pod on the node in the same position if it fits there, in this order.

        ``nodes``: numbers of nodes; -1 = none. Returns the positions of the pods that were not placed. Raises
        InputError for a node that does not exist, and as :meth:`schedule` does, and ValueError for lists of different
        lengths; pods before the failing one stay placed.
        """
        for node in {*nodes} - {_NOWHERE}:
            self.number(node)
        refused = []
        check, place, checked_count = self.engine.check, self.engine.place, self.session.checked_count
        placed: Counter[tuple[int, int]] = Counter()
        try:
            for i, (pod, node) in enumerate(zip(pods, nodes, strict=True)):
                if node == _NOWHERE:
                    refused.append(i)
                elif type(pod) is not int or not 0 <= pod < checked_count:
                    if not self.schedule(pod, node):
                        refused.append(i)
                elif check(pod, node) == _engine.FITS:
                    place(pod, node)
                    placed[pod, node] += 1
                else:
                    refused.append(i)
        finally:
            for location, count in placed.items():
                self._add_to(self._mine, location, count)
                self._add_to(self._own, location[1], count)
        return refused

    def schedule_anywhere(self, pod: str | int, acceptable: Any = None) -> int | None:
        """Place the pod on the first node after the cursor that it fits; return the node's number, None if none fits.

        Cordoned nodes are skipped. The cursor moves to the node. ``acceptable``: one boolean per node; False excludes
        the node. Raises InputError if the pod is unknown, is on a node or cannot be checked, and for another form of
        ``acceptable``.
        """
        number = self._get_checkable_class(pod)
        self._check_unplaced(pod)
        if acceptable is not None:
            acceptable = mask_of(acceptable, "acceptable", self.engine.nodes)
        node = self.engine.any_node(number, acceptable)
        if node < 0:
            return None
        self._place(pod, number, node)
        return node

    def _get_checkable_class(self, pod: str | int) -> int:
        """Return the session number of a pod's class.

        Raises InputError for an unknown pod, and for a class that only placed pods have, which cannot be checked.
        """
        number = self.pod(pod)
        if number >= self.session.checked_count:
            raise InputError(
                f"class {number} belongs to placed pods only: fit checks need pods that were passed to fork()"
            )
        return number

    def _is_at_home(self, pod: str) -> bool:
        """Check whether a pod is still on the node that it has in the snapshot."""
        return pod in self._home and pod not in self._moved

    def _record_leaving(self, pod: str) -> None:
        """Record that a pod is on no node; also that it left the node that it has in the snapshot, if it has one."""
        self._set_logged(self._at, pod, _NOWHERE)
        if pod in self._home:
            self._set_logged(self._moved, pod, 1)

    def _class_there(self, pod: str, node: int) -> int:
        """Return the session number of the class that a pod of the snapshot has on its ``node``.

        It differs from the class of the same pod as a pending pod, which would require that node by name.
        """
        return next(number for key, number in self._snapshot_pods(node) if key == pod)

    def _check_unplaced(self, pod: str | int) -> None:
        """Raise InputError if the pod is on a node."""
        node = self._at.get(pod, _NOWHERE) if isinstance(pod, str) else _NOWHERE
        if node != _NOWHERE:
            raise InputError(f"pod {pod!r} is on node {self.node_name(node)!r} already: remove it first")

    def _place(self, pod: str | int, number: int, node: int) -> None:
        """Place a pod of class ``number`` on a node, without checks."""
        self.engine.place(number, node)
        if isinstance(pod, str):
            self._set_logged(self._at, pod, node)
        else:
            self._add_to(self._mine, (number, node), 1)
        self._add_to(self._own, node, 1)
