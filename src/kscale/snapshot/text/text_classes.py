"""Map texts of pods to facets and pod classes. Each distinct text is read once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _projection
from kscale.errors import InputError
from kscale.imports import lazy_pattern
from kscale.objects.api.core import Affinity, Pod
from kscale.objects.api.meta import OwnerReference
from kscale.objects.api.volumes import Volume
from kscale.objects.decode import from_json
from kscale.objects.kinds import DEFAULT_NAMESPACE
from kscale.objects.pod_owners import is_daemonset_pod
from kscale.objects.validation import check, is_unusual
from kscale.snapshot.classes.facets import (
    NO_AFFINITY,
    NO_LABELS,
    NO_VOLUMES,
    AffinityFacet,
    LabelsFacet,
    VolumesFacet,
    affinity_facet,
    drop_node_affinity,
    labels_facet,
    stays,
    volumes_facet,
)
from kscale.snapshot.classes.interner import Interner, Prototype
from kscale.snapshot.classes.pod_shapes import Shape
from kscale.snapshot.columns import GATED, PENDING, PHASES, TERMINATING, GrowingColumns

__all__ = [
    "AFFINITY",
    "AFFINITY_RULE",
    "DELETION_PLACEHOLDER",
    "LABELS",
    "OWNERS",
    "VOLUMES",
    "TextCache",
    "TextClasses",
]


T = TypeVar("T")


class TextCache(dict[int, T | None]):
    """Values of texts by number, read on first use; -1 means no text.

    ``read`` returns the value of a text by number, or None if the text is unusual: a pod with it is decoded by itself.
    ``absent`` is the value without a text.
    """

    def __init__(self, read: Callable[[int], T | None], absent: T | None) -> None:
        super().__init__({-1: absent})
        self._read = read

    def __missing__(self, number: int) -> T | None:
        """Read the text of a number, and return its value."""
        value = self[number] = self._read(number)
        return value

    def forget(self, numbers: Iterable[int]) -> None:
        """Remove the values of texts with these numbers, as the numbers may be assigned to other texts."""
        for number in numbers:
            self.pop(number, None)


LABELS, AFFINITY, VOLUMES, OWNERS = range(4)
"""Numbers of the facets in a projector's combinations. The remaining text is the last one."""

DELETION_PLACEHOLDER: Final = '"2000-01-01T00:00:00Z"'
"""Placeholder in the remaining text for the deletion timestamp of a pod."""

_NOT_CLASSIFIED: Final = -2


_UNUSUAL_LOOKS: Final = (0, -1, -1, 0, 0, -1, 0, 0, 0, True, False, False)  # of a pod that is decoded by itself


class _Head(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""


_HEAD: Final = msgspec.json.Decoder(_Head)
_LABELS_OF: Final = msgspec.json.Decoder(dict[str, str] | None)
_AFFINITY_OF: Final = msgspec.json.Decoder(Affinity | None)
_VOLUMES_OF: Final = msgspec.json.Decoder(list[Volume])
_OWNERS_OF: Final = msgspec.json.Decoder(list[OwnerReference])
_PHASES: Final = {phase: number for number, phase in enumerate(PHASES)}
_TO_NODE: Final = (
    '{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":'
    '[{"key":"metadata.name","operator":"In","values":["'
)
_TO_NODE_END: Final = '"]}]}]}}}'
_TO_SOME_NODE: Final = f"{_TO_NODE}*{_TO_NODE_END}"

AFFINITY_RULE: Final = "blank", _TO_NODE, _TO_NODE_END, _TO_SOME_NODE
"""The projector's rule for an affinity: all that only name a node, as a DaemonSet's pods have them, become equal."""

_NAMESPACE = lazy_pattern(rb'\{(?:"apiVersion":"v1","kind":"Pod",)?"metadata":\{"namespace":"([a-z0-9-]+)"')
"""The beginning of a usual text without the facets, up to the namespace."""

_MAX_MASKED: Final = 1 << 12

_UNUSUAL: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Affinity(msgspec.Struct, frozen=True, eq=False):
    """An affinity of pods.

    ``facet`` is the facet for pods that may move; None if it depends on the node that the affinity names, so that such
    pods are decoded by themselves. ``settled`` is the facet for pods that stay on their node.
    """

    facet: AffinityFacet | None
    settled: AffinityFacet


class _Owner(msgspec.Struct, frozen=True, gc=False):
    """The controller of pods. ``stays``: they stay on their node and are not compared with replicas (``number`` -1)."""

    facet: tuple[str, str, str] | None = None
    number: int = -1
    stays: bool = False


class _Rest(msgspec.Struct, frozen=True, eq=False):
    """Fields of pods with the same remaining text, apart from the facets.

    ``unplaced``: state of a pod without a node; ``done``: whether the pods are finished; ``alone``: whether they are a
    DaemonSet's by owner or annotation; ``bare``: whether they have neither apiVersion nor kind, so that only a PodList
    shows that they are pods.
    """

    prototype: Prototype
    unplaced: int
    done: bool
    priority: int
    alone: bool
    bare: bool
    phase: int
    queueing: int
    text: bytes


class TextClasses:
    """Classes of pods by combination of texts, for one projector and one interner.

    Values are indexed by the combination's number + 1; 0 means none, so the pod is decoded by itself. The texts of a
    ``known`` combination were read. ``waiting`` is the class of a pod without a node, ``settled`` that of a pod with a
    node or a finished one (-1: decode such pods by themselves, -2: not seen yet).
    """

    def __init__(self, projector: _projection.Projector, interner: Interner, *, finished: bool = False) -> None:
        self._projector = projector
        self._interner = interner
        self._finished = finished
        self._bytes = tuple(TextCache(partial(projector.facet_text, facet), None) for facet in range(OWNERS + 1))
        self._labels = TextCache(self._read_labels, NO_LABELS)
        self._affinities = TextCache(self._read_affinity, _Affinity(NO_AFFINITY, NO_AFFINITY))
        self._volumes = TextCache(self._read_volumes, NO_VOLUMES)
        self._owners = TextCache(self._read_owner, _Owner())
        self._rests: TextCache[_Rest] = TextCache(self._read_rest, None)
        self._facets: tuple[TextCache[Any], ...] = self._labels, self._affinities, self._volumes, self._owners
        self._rest_of_masked: dict[bytes, _Rest] = {}  # by text without the namespace
        self._combination_values = GrowingColumns({"values": _projection.POD_LOOKS})
        self.values["known"][0] = True

    @property
    def values(self) -> NDArray[Any]:
        """Return the values of all combinations by number + 1: :data:`kscale._native._projection.POD_LOOKS`."""
        old_size, size = self._combination_values.size, self.size + 1
        if size > old_size:
            self._combination_values.extend_to(size)
            fresh = self._combination_values.arrays["values"][old_size:]
            fresh["waiting"] = fresh["settled"] = -1
        return self._combination_values.arrays["values"]

    def __len__(self) -> int:
        """Return the number of combinations in use."""
        return self._projector.combination_count - self._projector.combinations_free

    @property
    def size(self) -> int:
        """Return an upper limit of the combinations' numbers."""
        return self._projector.combination_count

    def learn(self, pairs: list[int]) -> None:
        """Find the pod classes of combinations, unless known, and store them in :attr:`values`.

        ``pairs``: ``2 * (number + 1)`` for pods without a node, ``2 * (number + 1) + 1`` for pods with a node, as the
        two have different classes.
        """
        values = self.values
        known, done = values["known"], values["done"]
        columns = [(values[name], values[f"{name}_shape"]) for name in ("waiting", "settled")]
        pairs = [pair for pair in pairs if not known[pair >> 1] or columns[pair & 1][0][pair >> 1] == _NOT_CLASSIFIED]
        rows = {place: self._projector.combination_row(place - 1) for place in [pair >> 1 for pair in pairs]}
        for place, row in rows.items():
            if not known[place]:
                values[place] = self._read(*row)
        for bound in (True, False):
            classes, shapes = columns[bound]
            for place in (pair >> 1 for pair in pairs if pair & 1 == bound):
                if classes[place] == _NOT_CLASSIFIED:
                    # A finished pod counts as placed, even without a node.
                    classes[place], shapes[place] = self._classify(rows[place], is_fixed=bound or bool(done[place]))

    def _read(self, labels: int, affinity: int, volumes: int, owner_number: int, rest_number: int) -> tuple[Any, ...]:
        """Parse the texts of a combination, given as their numbers, and return its entry of ``values``.

        Classes and shapes in it are not found yet; :meth:`learn` finds them. If a text is unusual, they are absent: the
        pods are decoded one by one.
        """
        rest, owner = self._rests[rest_number], self._owners[owner_number]
        others = self._labels[labels], self._affinities[affinity], self._volumes[volumes]
        if rest is None or owner is None or None in others:
            return _UNUSUAL_LOOKS
        controller = -1 if rest.alone else owner.number
        return (
            rest.priority, _NOT_CLASSIFIED, _NOT_CLASSIFIED, 0, 0, controller, rest.queueing, rest.unplaced, rest.phase,
            True, rest.done, rest.bare,
        )  # fmt: skip

    def _classify(self, row: list[int], *, is_fixed: bool) -> tuple[int, int]:
        """Return (class, shape) of a combination without unusual texts, given as the numbers of its texts.

        ``is_fixed``: whether its pods have a node or are finished. (-1, 0) means that such pods must be decoded one by
        one.
        """
        affinity, owner = self._affinities[row[AFFINITY]], self._owners[row[OWNERS]]
        assert affinity is not None  # callers pass only usable combinations
        assert owner is not None
        selection = affinity.settled if owner.stays and is_fixed else affinity.facet
        if selection is None:
            return -1, 0
        class_of = self._class(row, selection, owner.facet)
        return class_of, self._shape(row, class_of)

    def _class(self, row: list[int], selection: AffinityFacet, owner: tuple[str, str, str] | None) -> int:
        """Return the number of the pod class of a combination of texts, which is created if it is new.

        ``row``: numbers of the texts; ``selection``: the pod's node selector and affinity; ``owner``: its controller.
        """
        rest, labels, volumes = self._rests[row[-1]], self._labels[row[LABELS]], self._volumes[row[VOLUMES]]
        assert rest is not None  # callers pass only usable combinations
        assert labels is not None
        assert volumes is not None
        return self._interner.variant(rest.prototype, labels, selection, volumes, owner).index

    def _shape(self, row: list[int], class_of: int) -> int:
        """Return the shape number of a combination with this class, given as the numbers of its texts."""
        rest = self._rests[row[-1]]
        assert rest is not None  # callers pass only usable combinations
        texts = tuple([texts[number] for texts, number in zip(self._bytes, row, strict=False)])  # without the rest
        stay = stays(self._interner.classes[class_of].owner)
        make_shape = partial(Shape, None, (rest.text, *texts), settled=stay)
        return self._interner.shape((class_of, texts[VOLUMES], rest.text), make_shape)

    # -- lifetimes ---------------------------------------------------------------------------------------------------

    def replace_interner(
        self,
        interner: Interner,
        classes: NDArray[np.bool_],
        shapes: NDArray[np.bool_],
        controllers: NDArray[np.bool_],
    ) -> None:
        """Use another interner, which lacks the classes, shapes and controllers that are marked (bool by number)."""
        self._interner = interner
        outdated = _is_marked(controllers, self.values["controller"])
        for name in ("waiting", "settled"):
            outdated |= _is_marked(classes, self.values[name]) | _is_marked(shapes, self.values[f"{name}_shape"])
        outdated[0] = False
        owners = [
            (text, owner.number) for text, owner in self._owners.items() if owner is not None and owner.number >= 0
        ]
        removed = _is_marked(controllers, np.array([number for _, number in owners], dtype=np.int32)).tolist()
        self._owners.forget(text for (text, _), is_removed in zip(owners, removed, strict=True) if is_removed)
        self.values["known"][outdated] = False  # their texts stay known
        for name in ("waiting_shape", "settled_shape"):
            self.values[name][outdated] = 0

    def retain(self, keep: NDArray[np.bool_]) -> None:
        """Forget the combinations that are not in ``keep`` (bool by number), and the texts that only they have."""
        *facets, rests = self._projector.retain(keep.view(np.uint8))
        for facet_texts, cached, in_use in zip(self._facets, self._bytes, facets, strict=True):
            removed = np.flatnonzero(~in_use).tolist()
            facet_texts.forget(removed)
            cached.forget(removed)
        self._rests.forget(np.flatnonzero(~rests).tolist())
        self._rest_of_masked.clear()
        forgotten = np.flatnonzero(~keep) + 1
        self.values[forgotten] = 0
        self.values["waiting"][forgotten] = self.values["settled"][forgotten] = -1

    # -- texts -------------------------------------------------------------------------------------------------------

    def _read_rest(self, number: int) -> _Rest | None:
        """Read the text of a pod without the facets, and return its fields.

        Texts that differ only in the namespace are decoded and checked once. None if pods with this text must be
        decoded one by one: the text is invalid, repeats a key, has another kind, or fails validation, or the pod has
        resource claims.
        """
        text = self._projector.text(number)
        place = _NAMESPACE.match(text)
        if place is None:
            return self._decode_rest(text)
        masked = text[: place.start(1)] + text[place.end(1) :]
        first = self._rest_of_masked.get(masked)
        if first is None:
            rest = self._decode_rest(text)
            if rest is not None:
                if len(self._rest_of_masked) == _MAX_MASKED:
                    self._rest_of_masked.clear()
                self._rest_of_masked[masked] = rest
            return rest
        return msgspec.structs.replace(first, prototype=first.prototype.in_namespace(place[1].decode()), text=text)

    def _decode_rest(self, text: bytes) -> _Rest | None:
        """Decode and check the text of a pod without the facets; None as in :meth:`_read_rest`."""
        if _projection.repeats_a_key(text):
            return None
        try:
            pod = from_json(text, Pod)
            bare = (pod.api_version, pod.kind) != ("v1", "Pod")
            if bare and _HEAD.decode(text).kind:
                return None
        except (InputError, *_UNUSUAL):
            return None
        pod.metadata.name = "x"  # the real name is read separately; pods with an invalid name are not read here
        pod.metadata.namespace = pod.metadata.namespace or DEFAULT_NAMESPACE
        if pod.spec.resource_claims or check(pod):
            return None  # the class of a pod with claims includes its name
        waits = GATED if pod.spec.scheduling_gates else PENDING
        return _Rest(
            prototype=self._interner.prototype(pod),
            unplaced=waits if pod.metadata.deletion_timestamp is None else TERMINATING,
            done=not self._finished and pod.status.phase in ("Succeeded", "Failed"),
            priority=pod.spec.priority or 0,
            alone=is_daemonset_pod(pod),
            bare=bare,
            phase=_PHASES.get(pod.status.phase, 0),
            queueing=self._interner.queueings.get(pod),
            text=text,
        )

    def _text(self, facet: int, number: int) -> bytes:
        """Return the text of a facet. Raises DecodeError if it repeats a key."""
        text = self._projector.facet_text(facet, number)
        if _projection.repeats_a_key(text):
            raise msgspec.DecodeError("a key comes twice")
        return text

    def _read_labels(self, number: int) -> LabelsFacet | None:
        """Decode the text of labels; None if it is invalid or repeats a key."""
        with suppress(*_UNUSUAL):
            return labels_facet(_LABELS_OF.decode(self._text(LABELS, number)))
        return None

    def _read_affinity(self, number: int) -> _Affinity | None:
        """Decode the text of an affinity; None if it is unusual or cannot be decoded.

        Affinities of a DaemonSet's pods, which differ only in the node that they name, share one number
        (:data:`AFFINITY_RULE`). It means no affinity for a DaemonSet's pod that has its node; other pods with it are
        decoded one by one.
        """
        if self._projector.facet_text(AFFINITY, number) == _TO_SOME_NODE.encode():
            return _Affinity(None, NO_AFFINITY)
        with suppress(*_UNUSUAL):
            affinity = _AFFINITY_OF.decode(self._text(AFFINITY, number))
            if affinity is None or not is_unusual(affinity):
                facet = affinity_facet(affinity)
                return _Affinity(facet, facet if facet[0][0] is None else drop_node_affinity(facet))
        return None

    def _read_volumes(self, number: int) -> VolumesFacet | None:
        """Decode the text of volumes; None if it is unusual or has generic ephemeral volumes."""
        with suppress(*_UNUSUAL):
            volumes = _VOLUMES_OF.decode(self._text(VOLUMES, number))
            if all(volume.ephemeral is None for volume in volumes):  # with one, its name is part of its class
                return volumes_facet(volumes)
        return None

    def _read_owner(self, number: int) -> _Owner | None:
        """Decode the text of owner references to the controller; None if it is unusual."""
        with suppress(*_UNUSUAL):
            references = _OWNERS_OF.decode(self._text(OWNERS, number))
            owner = next((each for each in references if each.controller), None)  # as controller_of has it
            if owner is None:
                return _Owner()
            facet = owner.api_version, owner.kind, owner.name
            return (
                _Owner(facet, -1, stays=True) if stays(facet) else _Owner(facet, self._interner.controller(owner.uid))
            )
        return None


def _is_marked(marks: NDArray[np.bool_], numbers: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which numbers are marked in ``marks``; numbers below 0 are not."""
    marked: NDArray[np.bool_] = np.append(marks, [False])[np.minimum(numbers, len(marks))]
    return marked & (numbers >= 0)
