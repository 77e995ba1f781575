"""What texts of pods stand for: facets and the rest are read once a text, classes are worked out once a combination."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _projection
from kscale.errors import InputError
from kscale.objects.core import Affinity, Pod
from kscale.objects.decode import from_json
from kscale.objects.meta import ObjectMeta, OwnerReference
from kscale.objects.owners import controller_of, is_daemonset_pod
from kscale.objects.validation import check, is_unusual
from kscale.objects.volumes import Volume
from kscale.snapshot.interner import (
    AffinityFacet,
    Interner,
    LabelsFacet,
    PodClass,
    VolumesFacet,
    affinity_facet,
    labels_facet,
    settled,
    stays,
    volumes_facet,
)
from kscale.snapshot.pod_moments import PHASES
from kscale.snapshot.pod_shapes import Shape
from kscale.snapshot.pod_table import GATED, PENDING, TERMINATING
from kscale.snapshot.record import standing_controller

__all__ = ["AFFINITY", "LABELS", "OWNERS", "TOLD_TO_STOP", "VOLUMES", "TextClasses"]

LABELS, AFFINITY, VOLUMES, OWNERS = range(4)
"""Numbers of the facets in a projector's combinations; the rest comes last."""

TOLD_TO_STOP: Final = '"2000-01-01T00:00:00Z"'
"""What stands in a rest for any moment at which a pod was told to stop."""

_UNSEEN: Final = -2
_LARGEST: Final = 1 << 62
T = TypeVar("T")


class _Head(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""


_HEAD: Final = msgspec.json.Decoder(_Head)
_LABELS_OF: Final = msgspec.json.Decoder(dict[str, str] | None)
_AFFINITY_OF: Final = msgspec.json.Decoder(Affinity | None)
_VOLUMES_OF: Final = msgspec.json.Decoder(list[Volume])
_OWNERS_OF: Final = msgspec.json.Decoder(list[OwnerReference])
_PHASES: Final = {phase: number for number, phase in enumerate(PHASES)}
_UNUSUAL: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Affinity(msgspec.Struct, frozen=True, eq=False):
    """``number``, ``settled_number``: equal for what makes equal classes, of a pod that moves and of one that stays."""

    facet: AffinityFacet
    settled: AffinityFacet
    number: int
    settled_number: int


class _Owner(msgspec.Struct, frozen=True, gc=False):
    """The controller of pods. ``number``: -1 = its pods stand alone."""

    facet: tuple[str, str, str] | None = None
    number: int = -1


class _Rest(msgspec.Struct, frozen=True, eq=False):
    """What the pods of one text have in common besides the facets. ``unplaced``: the state of one that has no node;
    ``done``: whether they are finished; ``alone``: by annotation a DaemonSet's; ``bare``: without apiVersion and kind,
    so that only a PodList tells that they are pods."""

    number: int
    prototype: PodClass
    unplaced: int
    done: bool
    priority: int
    alone: bool
    bare: bool
    prefix: str
    phase: int
    text: bytes


class _Known(Generic[T]):
    """What texts stand for, by number, -1 = no text. Those that stand for None make a pod be read the slow way.

    ``columns``: values of what they stand for, by number + 1; 0 for texts that are not usable.
    """

    def __init__(
        self, read: Callable[[int], T | None], absent: T | None, **columns: tuple[Callable[[T], Any], Any]
    ) -> None:
        self._read = read
        self._made_by = {name: made_by for name, (made_by, _) in columns.items()}
        self.values: list[T | None] = []  # by number + 1
        self.columns: dict[str, NDArray[Any]] = {name: np.zeros(0, dtype) for name, (_, dtype) in columns.items()}
        self._known = np.zeros(0, dtype=np.bool_)
        self._usable = np.zeros(0, dtype=np.bool_)
        self._grow(1)
        self._set(0, absent)

    def learn(self, numbers: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Read the texts that are new; whether each is usable."""
        self._grow(int(numbers.max(initial=-1)) + 2)
        seen = np.unique(numbers) + 1
        for at in seen[~self._known[seen]].tolist():
            self._set(at, self._read(at - 1))
        usable: NDArray[np.bool_] = self._usable[numbers + 1]
        return usable

    def _grow(self, size: int) -> None:
        more = size - len(self.values)
        if more > 0:
            self.values += [None] * more
            for name, column in self.columns.items():
                self.columns[name] = np.append(column, np.zeros(more, column.dtype))
            self._known = np.append(self._known, np.zeros(more, dtype=np.bool_))
            self._usable = np.append(self._usable, np.zeros(more, dtype=np.bool_))

    def _set(self, at: int, found: T | None) -> None:
        self.values[at] = found
        self._known[at] = True
        if found is not None:
            self._usable[at] = True
            for name, made_by in self._made_by.items():
                self.columns[name][at] = made_by(found)


class TextClasses:
    """The classes of pods by combination of texts, for one projector and one interner.

    Columns, one entry a combination: ``waiting``, ``settled``: the class of a pod without a node, and of one that has
    one or is finished (-1: read such pods the slow way; -2: none was seen yet); ``waiting_shape``, ``settled_shape``:
    their shapes, 0 = none was seen yet; ``controller``, ``rest``. ``prefix``: of names, by number of the rest + 1.
    """

    def __init__(self, projector: _projection.Projector, interner: Interner, *, finished: bool = False) -> None:
        self._projector = projector
        self._interner = interner
        self._finished = finished
        self._same: dict[Any, int] = {}
        self._bytes: tuple[dict[int, bytes], ...] = ({}, {}, {}, {})  # texts of facets that shapes hold
        self._labels = _Known(self._read_labels, labels_facet(None))
        self._affinities = _Known(
            self._read_affinity,
            self._affinity(None),
            moving=(lambda each: each.number, np.int64),
            staying=(lambda each: each.settled_number, np.int64),
        )
        self._volumes = _Known(self._read_volumes, volumes_facet([]))
        self._owners = _Known(
            self._read_owner,
            _Owner(),
            number=(lambda owner: owner.number, np.int32),
            stays=(lambda owner: stays(owner.facet), np.bool_),
        )
        self._rests: _Known[_Rest] = _Known(
            self._read_rest,
            None,
            unplaced=(lambda rest: rest.unplaced, np.int8),
            done=(lambda rest: rest.done, np.bool_),
            priority=(lambda rest: rest.priority, np.int64),
            alone=(lambda rest: rest.alone, np.bool_),
            bare=(lambda rest: rest.bare, np.bool_),
            phase=(lambda rest: rest.phase, np.int8),
        )
        self.prefix = [""]
        self._combinations: NDArray[np.int32] = np.zeros((0, 5), dtype=np.int32)
        none = np.zeros(0, dtype=np.int32)
        self.waiting, self.settled, self.controller = none, none, none
        self.waiting_shape, self.settled_shape = none, none

    @property
    def rest(self) -> NDArray[np.int32]:
        """The number of the rest by combination."""
        return self._combinations[:, -1]

    def of_rest(self, name: str) -> NDArray[Any]:
        """A column by number of the rest + 1: ``unplaced``, ``done``, ``priority``, ``alone``, ``bare`` or
        ``phase``."""
        return self._rests.columns[name]

    def learn(self, combined: NDArray[np.int32], bound: NDArray[np.bool_]) -> None:
        """Classify the combinations that pods have, for pods with a node and for those without. ``combined``: -1 =
        none."""
        known = len(self._combinations)
        self._combinations = self._projector.combinations()
        if len(self._combinations) > known:
            self._append(self._combinations[known:])
        settled_now = _unseen(combined[bound], self.settled)
        waiting_now = _unseen(combined[~bound], self.waiting)
        if len(settled_now):
            classes = self._classes(settled_now, np.ones(len(settled_now), dtype=np.bool_))
            self.settled[settled_now], self.settled_shape[settled_now] = classes, self._shapes(settled_now, classes)
        if len(waiting_now):  # a finished pod counts as placed, without a node, too
            classes = self._classes(waiting_now, self.of_rest("done")[self.rest[waiting_now] + 1])
            self.waiting[waiting_now], self.waiting_shape[waiting_now] = classes, self._shapes(waiting_now, classes)

    def _shapes(self, which: NDArray[np.int64], classes: NDArray[np.int32]) -> NDArray[np.int32]:
        """The shapes of combinations whose pods have these classes."""
        first, alike = _alike(classes, self._combinations[which, VOLUMES], self.rest[which])
        numbers = np.empty(len(first), dtype=np.int32)
        for i, at in enumerate(first.tolist()):
            combination, class_of = self._combinations[which[at]].tolist(), int(classes[at])
            rest = self._rests.values[combination[-1] + 1]
            assert rest is not None  # only combinations that are usable are asked about
            texts = tuple(self._facet_bytes(facet, number) for facet, number in enumerate(combination[:-1]))
            stay = stays(self._interner.classes[class_of].owner)
            made = partial(Shape, None, (rest.text, *texts), settled=stay)
            numbers[i] = self._interner.shape((class_of, texts[VOLUMES], rest.text), made)
        return numbers[alike]

    def _facet_bytes(self, facet: int, number: int) -> bytes | None:
        if number < 0:
            return None
        found = self._bytes[facet].get(number)
        if found is None:
            found = self._bytes[facet][number] = self._projector.facet_text(facet, number)
        return found

    def _append(self, fresh: NDArray[np.int32]) -> None:
        """Read the texts of new combinations."""
        rests = fresh[:, -1]
        usable = self._rests.learn(rests)
        self.prefix += [""] * (len(self._rests.values) - len(self.prefix))
        for number in np.unique(rests).tolist():
            if (rest := self._rests.values[number + 1]) is not None:
                self.prefix[number + 1] = rest.prefix
        facets: tuple[_Known[Any], ...] = self._labels, self._affinities, self._volumes, self._owners
        for number, known in enumerate(facets):
            usable[usable] = known.learn(fresh[usable, number])
        none = np.where(usable, np.int32(_UNSEEN), np.int32(-1))
        controller = np.full(len(fresh), -1, dtype=np.int32)
        standing = usable & ~self.of_rest("alone")[rests + 1]
        controller[standing] = self._owners.columns["number"][fresh[standing, OWNERS] + 1]
        self.waiting = np.append(self.waiting, none)
        self.settled = np.append(self.settled, none)
        nothing = np.zeros(len(fresh), dtype=np.int32)
        self.waiting_shape = np.append(self.waiting_shape, nothing)
        self.settled_shape = np.append(self.settled_shape, nothing)
        self.controller = np.append(self.controller, controller)

    def _classes(self, which: NDArray[np.int64], fixed: NDArray[np.bool_]) -> NDArray[np.int32]:
        """The classes of combinations; ``fixed``: those of pods that are where they are to be."""
        labels, affinity, volumes, owners, rests = (column + 1 for column in self._combinations[which].T)
        stay = self._owners.columns["stays"][owners] & fixed
        moving, staying = (self._affinities.columns[name][affinity] for name in ("moving", "staying"))
        first, inverse = _alike(labels, np.where(stay, staying, moving), volumes, owners, rests)
        classes = np.empty(len(first), dtype=np.int32)
        columns = (labels, affinity, volumes, owners, rests, stay)
        for i, of in enumerate(zip(*(column[first].tolist() for column in columns), strict=True)):
            rest, node = self._rests.values[of[4]], self._affinities.values[of[1]]
            with_labels, mounted = self._labels.values[of[0]], self._volumes.values[of[2]]
            owner = self._owners.values[of[3]]
            assert rest is not None  # only combinations that are usable are asked about
            assert node is not None
            assert with_labels is not None
            assert mounted is not None
            assert owner is not None
            selection = node.settled if of[5] else node.facet
            classes[i] = self._interner.variant(
                rest.number, rest.prototype, with_labels, selection, mounted, owner.facet
            ).index
        return classes[inverse]

    # -- texts -------------------------------------------------------------------------------------------------------

    def _read_rest(self, number: int) -> _Rest | None:
        """Decode and check what is left of pods without the facets."""
        text = self._projector.text(number)
        if _projection.repeats_a_key(text):
            return None
        try:
            head = _HEAD.decode(text)
            bare = not head.kind
            if (head.api_version, head.kind) != ("v1", "Pod") and not bare:
                return None
            pod = from_json(text, Pod)
        except (InputError, *_UNUSUAL):
            return None
        pod.metadata.name = "x"  # noted apart; an empty or odd one never gets here
        if pod.spec.resource_claims or check(pod):
            return None  # with claims its name is part of its class
        waits = GATED if pod.spec.scheduling_gates else PENDING
        own, prototype = self._interner.prototype(pod, placed=True)
        return _Rest(
            number=own,
            prototype=prototype,
            unplaced=waits if pod.metadata.deletion_timestamp is None else TERMINATING,
            done=not self._finished and pod.status.phase in ("Succeeded", "Failed"),
            priority=pod.spec.priority or 0,
            alone=is_daemonset_pod(pod),
            bare=bare,
            prefix=f"{pod.metadata.namespace}/" if pod.metadata.namespace else "",
            phase=_PHASES.get(pod.status.phase, 0),
            text=text,
        )

    def _text(self, facet: int, number: int) -> bytes:
        """The text of a facet; raises DecodeError for one with a key twice."""
        text = self._projector.facet_text(facet, number)
        if _projection.repeats_a_key(text):
            raise msgspec.DecodeError("a key comes twice")
        return text

    def _read_labels(self, number: int) -> LabelsFacet | None:
        with suppress(*_UNUSUAL):
            return labels_facet(_LABELS_OF.decode(self._text(LABELS, number)))
        return None

    def _affinity(self, affinity: Affinity | None) -> _Affinity:
        moving = affinity_facet(affinity)
        staying = moving if moving[0][0] is None else settled(moving)
        numbers = [self._same.setdefault(facet[0], len(self._same)) for facet in (moving, staying)]
        return _Affinity(moving, staying, *numbers)

    def _read_affinity(self, number: int) -> _Affinity | None:
        with suppress(*_UNUSUAL):
            affinity = _AFFINITY_OF.decode(self._text(AFFINITY, number))
            if affinity is None or not is_unusual(affinity):
                return self._affinity(affinity)
        return None

    def _read_volumes(self, number: int) -> VolumesFacet | None:
        with suppress(*_UNUSUAL):
            volumes = _VOLUMES_OF.decode(self._text(VOLUMES, number))
            if all(volume.ephemeral is None for volume in volumes):  # with one, its name is part of its class
                return volumes_facet(volumes)
        return None

    def _read_owner(self, number: int) -> _Owner | None:
        with suppress(*_UNUSUAL):
            references = _OWNERS_OF.decode(self._text(OWNERS, number))
            pod = Pod(metadata=ObjectMeta(owner_references=references))
            owner, uid = controller_of(pod.metadata), standing_controller(pod)
            return _Owner(
                (owner.api_version, owner.kind, owner.name) if owner else None,
                self._interner.controller(uid),
            )
        return None


def _unseen(numbers: NDArray[np.int32], known: NDArray[np.int32]) -> NDArray[np.int64]:
    """Which combinations occur in ``numbers``, where -1 is none, and have no class yet."""
    found = np.zeros(len(known), dtype=np.bool_)
    found[numbers[numbers >= 0]] = True
    return np.flatnonzero(found & (known == _UNSEEN))


def _alike(*columns: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of columns of integers from -1 on: (the first of each that are alike, in order; int64[n]: which)."""
    key, size = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        width = int(column.max(initial=-1)) + 2
        if size * width > _LARGEST:
            values, key = np.unique(key, return_inverse=True)
            key, size = key.reshape(-1), len(values)
        key = key * width + (column.astype(np.int64) + 1)
        size *= width
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse.reshape(-1)]
