"""Pod classes: pods that no predicate can distinguish share one class, and all columns refer to classes.

The fields that predicates read are extracted once per class, as plain values. Facets that many classes share
(tolerations, node selection, identity) have numbers of their own, so that verdicts are computed per pair of facets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from threading import Lock
from typing import Any, Final, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.objects.api.core import (
    NodeSelector,
    Pod,
    PodAffinityTerm,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from kscale.objects.api.volumes import Volume
from kscale.objects.pod_resources import ExtendedRequest
from kscale.snapshot.caches import TypedCache
from kscale.snapshot.classes.facets import (
    NO_AFFINITY,
    AffinityFacet,
    AmountsFacet,
    FrameKey,
    HostPort,
    LabelsFacet,
    QueueingNumbers,
    VolumesFacet,
    amounts_facet,
    frame_fields,
    frame_key,
    pod_facets,
)
from kscale.snapshot.classes.pod_shapes import Shape, shape_key
from kscale.snapshot.columns import GrowingColumns

__all__ = ["REMOVED_CLASS", "Interner", "Numbering", "PodClass", "Prototype", "RefCountedNumbers"]


K = TypeVar("K")


class Numbering(Generic[K]):
    """Numbers for keys. A key keeps its number while it is in use; numbers of discarded keys are reused.

    ``keys`` has the keys by number, None for free numbers. None is not a valid key.
    """

    __slots__ = ("_free", "_number", "keys")

    def __init__(self) -> None:
        self.keys: list[K | None] = []
        self._number: dict[K, int] = {}
        self._free: list[int] = []

    def get(self, key: K) -> int | None:
        """Return the number assigned to a key; None if the key is not in use."""
        return self._number.get(key)

    @property
    def next(self) -> int:
        """Return the number that the next call of :meth:`add` will assign.

        Other threads read without a lock, so store the new key's value under this number before calling :meth:`add`.
        """
        return self._free[-1] if self._free else len(self.keys)

    def add(self, key: K) -> int:
        """Add a new key and return its number."""
        number = self.next
        if number < len(self.keys):
            self._free.pop()
            self.keys[number] = key
        else:
            self.keys.append(key)
        self._number[key] = number
        return number

    def discard(self, numbers: Iterable[int]) -> None:
        """Remove the keys of these numbers; :meth:`add` reuses the numbers. Numbers without a key are ignored."""
        for number in numbers:
            key = self.keys[number]
            if key is not None:
                del self._number[key]
                self.keys[number] = None
                self._free.append(number)

    def __copy__(self) -> Numbering[K]:
        """Return an independent copy."""
        duplicate: Numbering[K] = Numbering()
        duplicate.keys, duplicate._number = self.keys.copy(), self._number.copy()
        duplicate._free = self._free.copy()
        return duplicate


class RefCountedNumbers(Generic[K]):
    """Numbers and use counts of keys. A number is never reused, even after its key is removed."""

    __slots__ = ("_key", "_next", "_number", "_used")

    def __init__(self) -> None:
        self._number: dict[K, int] = {}
        self._key: dict[int, K] = {}
        self._used: dict[int, int] = {}
        self._next = 0

    def acquire(self, key: K) -> int:
        """Return the number assigned to a key and increment its use count."""
        number = self._number.get(key)
        if number is None:
            number = self._number[key] = self._next
            self._next += 1
            self._key[number] = key
            self._used[number] = 1
        else:
            self._used[number] += 1
        return number

    def get(self, key: K) -> int | None:
        """Return the number assigned to a key; None if nothing uses the key."""
        return self._number.get(key)

    def release(self, number: int) -> bool:
        """Decrement the use count of the key with this number, and remove the key if it is no longer used.

        Returns whether the key was removed.
        """
        count = self._used[number]
        if count > 1:
            self._used[number] = count - 1
            return False
        del self._used[number], self._number[self._key.pop(number)]
        return True

    def __copy__(self) -> RefCountedNumbers[K]:
        """Return an independent copy."""
        duplicate: RefCountedNumbers[K] = RefCountedNumbers()
        duplicate._number, duplicate._key, duplicate._next = self._number.copy(), self._key.copy(), self._next
        duplicate._used = self._used.copy()
        return duplicate


class PodClass(msgspec.Struct, frozen=True, eq=False, kw_only=True, gc=False):
    """The fields of a pod that predicates read. Amounts are int64 in milli-units of CPU, bytes and counts.

    ``requested`` has the exact CPU and memory behind ``occupancy``, in billionths of a core and of a byte.
    """

    index: int
    namespace: str
    labels: dict[str, str] | None
    terminating: bool
    node_name: str
    tolerations: tuple[Toleration, ...]
    node_selector: dict[str, str] | None
    node_affinity: NodeSelector | None
    ports: tuple[HostPort, ...]
    demand: dict[str, int]
    extended: tuple[ExtendedRequest, ...]
    occupancy: dict[str, int]
    affinity: tuple[PodAffinityTerm, ...]
    anti_affinity: tuple[PodAffinityTerm, ...]
    preferred_affinity: tuple[WeightedPodAffinityTerm, ...]
    preferred_anti_affinity: tuple[WeightedPodAffinityTerm, ...]
    spread: tuple[TopologySpreadConstraint, ...] | None
    volumes: tuple[Volume, ...]
    pod_name: str
    pod_uid: str
    claims: tuple[tuple[str, str | None, str | None], ...]
    claim_statuses: tuple[tuple[str, str | None], ...]
    features: frozenset[str]
    owner: tuple[str, str, str] | None
    first_request: tuple[float, float] | None
    requested: tuple[int, int]
    tolerations_id: int
    selection_id: int
    identity_id: int

    @property
    def has_claims(self) -> bool:
        """Whether some volume is a claim, named or generic ephemeral."""
        return bool(self.volumes) and any(
            v.persistent_volume_claim is not None or v.ephemeral is not None for v in self.volumes
        )


REMOVED_CLASS: Final = PodClass(
    index=-1, namespace="", labels=None, terminating=False, node_name="", tolerations=(), node_selector=None,
    node_affinity=None, ports=(), demand={}, extended=(), occupancy={}, affinity=(), anti_affinity=(),
    preferred_affinity=(), preferred_anti_affinity=(), spread=None, volumes=(), pod_name="", pod_uid="", claims=(),
    claim_statuses=(), features=frozenset(), owner=None, first_request=None, requested=(0, 0), tolerations_id=-1,
    selection_id=-1, identity_id=-1,
)  # fmt: skip
"""Placeholder in the row of a class that was removed because nothing uses it."""


class Prototype(msgspec.Struct, frozen=True):
    """A class without the parts that :meth:`Interner.variant` adds.

    ``frame`` is the key of its fields other than ``amounts``; ``base`` is a class with these fields only.
    """

    frame: FrameKey
    base: PodClass
    amounts: AmountsFacet

    def in_namespace(self, namespace: str) -> Prototype:
        """Return the prototype of the same pod in another namespace."""
        base = msgspec.structs.replace(self.base, namespace=namespace)
        return Prototype((namespace, *self.frame[1:]), base, self.amounts)


_ClassKey = tuple[int, Any, Any, Any, Any, tuple[str, str, str] | None]
"""Number of the frame, and the equality keys of amounts, labels, affinity, volumes and owner. The garbage collector
does not track such keys, however many classes there are.
"""


class Interner:
    """Numbers for the classes, shapes and controllers of the pods of a cluster and of its snapshots.

    :meth:`without` builds another interner without unused entries for the cluster's further work; existing snapshots
    keep theirs. Remaining entries keep their number and object there. Numbers of removed entries are reused, so
    ``classes[cls.index] is cls`` tells whether a class belongs to an interner, and values cached by number (``memo``)
    belong to one interner.

    ``classes``, ``identities`` (one class per namespace, labels and whether it terminates), ``shapes`` (from 1) and
    ``controllers`` (UIDs) are lists by number; free numbers have :data:`REMOVED_CLASS`, None or the empty text.
    ``queueings`` are numbers for how pods are queued, shared by all interners that derive from one.
    """

    def __init__(self) -> None:
        self.classes: list[PodClass] = []
        self.identities: list[PodClass] = []
        self.shapes: list[Shape | None] = [None]
        self.controllers: list[str] = []
        self.made = 0  # classes, shapes and controllers that are new in this interner
        self.queueings = QueueingNumbers()
        self.memo = TypedCache()
        self._class_of: Numbering[_ClassKey] = Numbering()
        self._identity: Numbering[Any] = Numbering()
        self._identity_users: list[int] = []  # classes, by number of the identity
        self._shape_of: Numbering[Any] = Numbering()
        self._shape_of.add(object())  # 0 = not known yet
        self._controller_of: Numbering[str] = Numbering()
        self._frames: RefCountedNumbers[FrameKey] = RefCountedNumbers()
        self._base_of_frame: dict[int, PodClass] = {}  # by number of the frame
        self._tolerations: RefCountedNumbers[bytes] = RefCountedNumbers()
        self._selections: RefCountedNumbers[Any] = RefCountedNumbers()
        self._requested: set[int] = set()  # classes requested for pods outside the cluster
        self._identity_of = GrowingColumns({"identity": np.int32})  # by number of the class
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        derived = ("_lock", "_identity_of")
        with self._lock:
            return {name: copy(value) for name, value in vars(self).items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock(), _identity_of=GrowingColumns({"identity": np.int32}))

    def without(
        self, classes: NDArray[np.bool_], shapes: NDArray[np.bool_], controllers: NDArray[np.bool_]
    ) -> tuple[Interner, NDArray[np.bool_]]:
        """Return a copy of this interner without unused entries, and which classes were removed.

        Parameters
        ----------
        classes, shapes, controllers : bool arrays
            True for the numbers that nothing uses. Classes that :meth:`classify` returned without ``stored`` are
            not removed.

        Returns
        -------
        interner : Interner
            The copy; this interner is not changed.
        classes : bool array
            True for the removed classes, by number.
        """
        remaining = Interner()
        with self._lock:
            classes = classes.copy()
            classes[[number for number in self._requested if number < len(classes)]] = False
            for name in ("classes", "identities", "shapes", "controllers", "_class_of", "_identity", "_shape_of",
                         "_controller_of", "_tolerations", "_selections", "_frames", "_base_of_frame",
                         "_identity_users"):  # fmt: skip
                setattr(remaining, name, copy(getattr(self, name)))
            remaining._lock = self._lock
            remaining.queueings = self.queueings
        removed = [number for number in np.flatnonzero(classes).tolist() if remaining.classes[number].index >= 0]
        remaining._forget(removed)
        remaining._class_of.discard(removed)
        removed = np.flatnonzero(shapes).tolist()
        remaining._shape_of.discard(removed)
        for number in removed:
            remaining.shapes[number] = None
        removed = np.flatnonzero(controllers).tolist()
        remaining._controller_of.discard(removed)
        for number in removed:
            remaining.controllers[number] = ""
        return remaining, classes

    def _forget(self, numbers: list[int]) -> None:
        """Remove classes by number, and what only they used: identities, tolerations, selections and frames."""
        idle = []
        for number in numbers:
            removed = self.classes[number]
            self.classes[number] = REMOVED_CLASS
            self._tolerations.release(removed.tolerations_id)
            self._selections.release(removed.selection_id)
            key = self._class_of.keys[number]
            if key is not None and self._frames.release(key[0]):
                del self._base_of_frame[key[0]]
            self._identity_users[removed.identity_id] -= 1
            if not self._identity_users[removed.identity_id]:
                idle.append(removed.identity_id)
        self._identity.discard(idle)
        for identity in idle:
            self.identities[identity] = REMOVED_CLASS

    def shape(self, key: Any, make: Callable[[], Shape]) -> int:
        """Return the number (from 1) assigned to a shape's key (:func:`~kscale.snapshot.classes.pod_shapes.shape_key`).

        A new key gets a new number, and its shape is created by ``make()`` and stored.
        """
        number = self._shape_of.get(key)
        if number is None:
            with self._lock:
                number = self._shape_of.get(key)
                if number is None:
                    _set_value(self.shapes, self._shape_of.next, make())
                    number = self._shape_of.add(key)
                    self.made += 1
        return number

    def shape_of(self, pod: Pod, class_of: int) -> int:
        """Return the number assigned to a pod's shape, on first use. ``class_of`` is the number of the pod's class."""
        return self.shape(shape_key(pod, class_of), lambda: Shape(pod))

    def controller(self, uid: str | None) -> int:
        """Return the number assigned to a controller's UID on first use; -1 for None."""
        if uid is None:
            return -1
        number = self._controller_of.get(uid)
        if number is None:
            with self._lock:
                number = self._controller_of.get(uid)
                if number is None:
                    _set_value(self.controllers, self._controller_of.next, uid)
                    number = self._controller_of.add(uid)
                    self.made += 1
        return number

    def identity_of(self, classes: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the identity number (of namespace, labels, whether terminating) for each class number: int32[n]."""
        with self._lock:
            computed = self._identity_of.size
            if computed < len(self.classes):
                self._identity_of.extend_to(len(self.classes))
                self._identity_of.arrays["identity"][computed:] = [each.identity_id for each in self.classes[computed:]]
            identities: NDArray[np.int32] = self._identity_of.arrays["identity"][classes]
        return identities

    def classify(
        self, pod: Pod, *, placed: bool, moves: bool = False, stored: bool = False, named: bool = False
    ) -> PodClass:
        """Return the class of a pod; a new class is added to this interner.

        Parameters
        ----------
        pod : Pod
        placed : bool
            True if the pod has a node. The class then ignores the node's name, and the node affinity of a DaemonSet's
            pod, which only names this node.
        moves : bool
            True if a placed pod may be placed elsewhere: the node affinity of a DaemonSet's pod then counts.
        stored : bool
            True if the caller stores the pod in a table, which shows that the class is in use. Otherwise this
            interner records the class as requested, and :meth:`without` does not remove it.
        named : bool
            True if the pod needs a class of its own, by name and UID. Pods with resource claims or generic ephemeral
            volumes always have one.
        """
        frame, amounts, labels, affinity, volumes, owner = pod_facets(pod, placed=placed, moves=moves, named=named)
        pod_class = self.variant(self._prototype(pod, frame, amounts), labels, affinity, volumes, owner)
        if not stored:
            self._requested.add(pod_class.index)
        return pod_class

    def prototype(self, pod: Pod) -> Prototype:
        """Return the prototype of a pod that counts as placed; :meth:`variant` completes it to a class."""
        return self._prototype(pod, frame_key(pod, placed=True, named=False), amounts_facet(pod))

    def _prototype(self, pod: Pod, frame: FrameKey, amounts: AmountsFacet) -> Prototype:
        """Return the prototype of a pod with this frame and these amounts.

        The base class is taken from an existing class with the same frame; otherwise it is built from the pod.
        """
        number = self._frames.get(frame)
        cached = None if number is None else self._base_of_frame.get(number)
        if cached is None:
            cached = PodClass(
                index=-1, labels=None, demand={}, extended=(), occupancy={}, volumes=(), owner=None, first_request=None,
                requested=(0, 0), identity_id=-1, selection_id=-1, tolerations_id=-1,
                **NO_AFFINITY[1], **frame_fields(pod, frame),
            )  # fmt: skip
        return Prototype(frame, cached, amounts)

    def variant(
        self,
        prototype: Prototype,
        labels: LabelsFacet,
        affinity: AffinityFacet,
        volumes: VolumesFacet,
        owner: tuple[str, str, str] | None,
    ) -> PodClass:
        """Complete a prototype with labels, affinity, volumes and controller, and return the class.

        A class that does not exist yet is added.
        """
        rest = prototype.amounts[0], labels[0], affinity[0], volumes[0], owner
        with self._lock:  # several threads may use snapshots of one cluster
            frame = self._frames.get(prototype.frame)
            index = None if frame is None else self._class_of.get((frame, *rest))
            if index is not None:
                return self.classes[index]
            return self._add_class(prototype, labels, affinity, volumes, owner)

    def _add_class(
        self,
        prototype: Prototype,
        labels: LabelsFacet,
        affinity: AffinityFacet,
        volumes: VolumesFacet,
        owner: tuple[str, str, str] | None,
    ) -> PodClass:
        """Add the class that :meth:`variant` did not find, and return it. The caller holds the lock."""
        base, amounts = prototype.base, prototype.amounts
        _, _, _, tolerations, selector, *_ = prototype.frame
        identity = base.namespace, labels[0], base.terminating
        identity_id = self._identity.get(identity)
        fresh = identity_id is None
        if identity_id is None:
            _set_value(self._identity_users, self._identity.next, 0)
            identity_id = self._identity.add(identity)
        self._identity_users[identity_id] += 1
        index = self._class_of.next
        pod_class = msgspec.structs.replace(
            base,
            index=index,
            labels=labels[1],
            volumes=volumes[1],
            owner=owner,
            identity_id=identity_id,
            selection_id=self._selections.acquire((selector, affinity[0][0])),
            tolerations_id=self._tolerations.acquire(tolerations),
            **(affinity[1] if affinity[0] != NO_AFFINITY[0] else {}),
            **amounts[1],
        )
        if fresh:
            _set_value(self.identities, identity_id, pod_class)
        _set_value(self.classes, index, pod_class)
        if index < self._identity_of.size:
            self._identity_of.arrays["identity"][index] = identity_id
        frame = self._frames.acquire(prototype.frame)
        self._base_of_frame.setdefault(frame, base)
        self._class_of.add((frame, amounts[0], labels[0], affinity[0], volumes[0], owner))
        self.made += 1
        return pod_class


T = TypeVar("T")


def _set_value(values: list[T], number: int, value: T) -> None:
    """Store ``value`` in ``values[number]``, or append it if ``number`` is the length of the list."""
    if number == len(values):
        values.append(value)
    else:
        values[number] = value
