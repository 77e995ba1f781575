"""Pods straight from the text of a list to columns: what no decision reads is skipped, not decoded.

The text of a pod is reduced to what decisions read and what :mod:`kscale.objects.validation` looks at; names, UIDs and
nodes are noted apart. Pods that are left with one text are one *kind of pod*: decoded, checked and classified once. A
kind with anything unusual about it, and every pod that is written unusually, is read the slow way, so that errors and
warnings are the same.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _projection
from kscale.errors import InputError
from kscale.objects.core import Affinity, Container, Pod, PodSpec
from kscale.objects.decode import from_json
from kscale.objects.meta import ObjectMeta, OwnerReference
from kscale.objects.owners import controller_of, is_daemonset_pod
from kscale.objects.validation import check
from kscale.objects.volumes import Volume
from kscale.snapshot.interner import (
    READ_SOURCES,
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
from kscale.snapshot.mapped import file_of
from kscale.snapshot.pod_kinds import READ_ANNOTATIONS
from kscale.snapshot.pod_table import FINISHED, GATED, PENDING, PLACED, TERMINATING
from kscale.snapshot.record import PodRecord, standing_controller
from kscale.snapshot.usual_texts import odd_names, usual_times

__all__ = ["PodBatch", "PodReader", "ScannedList"]

_NAME, _UID, _NODE, _NOMINATED, _CREATED, _STARTED = range(6)
_LABELS, _AFFINITY, _VOLUMES, _OWNERS = range(4)
_UNSEEN = -2


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _object(need: tuple[str, ...] = (), /, **keys: Any) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    return "object", {_camel(key): rule for key, rule in keys.items()}, tuple(map(_camel, need))


def _kept(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "keep")


_CONTAINER: Final = _object(
    **_kept("name", "resources", "ports", "restart_policy", "restart_policy_rules"),
    volume_mounts=("array", _object(("bind_mount_options",), bind_mount_options="keep")),
)
_VOLUME: Final = _object(
    (*READ_SOURCES, "host_path", "empty_dir"),
    host_path=("object", {"-": "keep"}, ()),  # that there is one, not what it says
    empty_dir=_object(medium="keep"),
    **_kept("name", *READ_SOURCES),
)
_STATUS: Final = ("array", _object(**_kept("name", "allocated_resources", "resources")))
_RULE: Final = _object(
    **_kept("api_version", "kind"),
    metadata=_object(
        name=("capture", _NAME),
        uid=("capture", _UID),
        creation_timestamp=("capture", _CREATED),
        labels=("facet", _LABELS, "keep"),
        owner_references=("facet", _OWNERS, "keep"),
        **_kept("namespace", "deletion_timestamp"),
        annotations=("object", dict.fromkeys(READ_ANNOTATIONS, "keep"), ()),
    ),
    spec=_object(
        node_name=("capture", _NODE),
        containers=("array", _CONTAINER),
        init_containers=("array", _CONTAINER),
        ephemeral_containers=("array", _CONTAINER),
        volumes=("facet", _VOLUMES, ("array", _VOLUME)),
        affinity=("facet", _AFFINITY, "keep"),
        **_kept(
            "restart_policy", "node_selector", "host_network", "host_users", "tolerations", "priority",
            "preemption_policy", "overhead", "topology_spread_constraints", "scheduling_gates", "resource_claims",
            "resources", "termination_grace_period_seconds",
        ),
    ),
    status=_object(
        nominated_node_name=("capture", _NOMINATED),
        start_time=("capture", _STARTED),
        conditions=("array", _object(("type",), type=("equals", '"PodResizePending"'), reason="keep")),
        container_statuses=_STATUS,
        init_container_statuses=_STATUS,
        **_kept("phase", "resource_claim_statuses", "allocated_resources", "resources"),
    ),
)  # fmt: skip


class _Head(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""


_HEAD: Final = msgspec.json.Decoder(_Head)


class PodBatch(msgspec.Struct, frozen=True, eq=False):
    """Pods that stand one after the other in a list: columns as :class:`~kscale.snapshot.pod_table.PodTable` has them.

    ``node_of``: into ``nodes``, -1 = none; ``where``: position in the list, for messages.
    """

    view: memoryview
    source: str
    place: str
    where: NDArray[np.int64]
    keys: list[str]
    class_of: NDArray[np.int32]
    state: NDArray[np.int8]
    node_of: NDArray[np.int32]
    nodes: list[str]
    priority: NDArray[np.int64]
    controller: NDArray[np.int32]
    controllers: list[str]
    offset: NDArray[np.int64]
    size: NDArray[np.int64]
    uid_offset: NDArray[np.int64]
    uid_size: NDArray[np.int32]
    kind_of: NDArray[np.int32]

    def record(self, i: int) -> PodRecord:
        """One of the pods."""
        owner, offset, uid_at = int(self.controller[i]), int(self.offset[i]), int(self.uid_offset[i])
        return PodRecord.lazy(
            self.keys[i],
            bytes(self.view[uid_at : uid_at + int(self.uid_size[i])]).decode(),
            int(self.priority[i]),
            None if owner < 0 else self.controllers[owner],
            raw=msgspec.Raw(self.view[offset : offset + int(self.size[i])]),
            mapped=file_of(self.view),
        )

    def pick(self, which: slice) -> PodBatch:
        """Some of the pods."""
        columns = {
            name: getattr(self, name)[which]
            for name in (
                "where", "class_of", "state", "node_of", "priority", "controller", "offset", "size", "uid_offset",
                "uid_size", "kind_of",
            )
        }  # fmt: skip
        return msgspec.structs.replace(self, keys=self.keys[which], **columns)


class ScannedList(msgspec.Struct, frozen=True, eq=False):
    """A list of objects: where its items are; ``pods`` has those of which ``fast`` is true, in order."""

    api_version: str
    kind: str
    begin: NDArray[np.int64]
    size: NDArray[np.int64]
    fast: NDArray[np.bool_]
    pods: PodBatch


_LABELS_OF: Final = msgspec.json.Decoder(dict[str, str] | None)
_AFFINITY_OF: Final = msgspec.json.Decoder(Affinity | None)
_VOLUMES_OF: Final = msgspec.json.Decoder(list[Volume])
_OWNERS_OF: Final = msgspec.json.Decoder(list[OwnerReference])
_UNUSUAL: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Owner(msgspec.Struct, frozen=True, gc=False):
    """The controller of pods. ``number``: -1 = its pods stand alone."""

    facet: tuple[str, str, str] | None = None
    number: int = -1


_Parts = tuple[int, PodClass, LabelsFacet, AffinityFacet, VolumesFacet, tuple[str, str, str] | None]
"""What makes a class, as :meth:`Interner.variant` takes it; a controller comes last."""


class _Rest(msgspec.Struct, frozen=True, eq=False):
    """What the pods of one text have in common besides the facets. ``alone``: by annotation a DaemonSet's."""

    number: int
    prototype: PodClass
    unplaced: int
    done: bool
    priority: int
    alone: bool
    prefix: str


class _Columns(msgspec.Struct, eq=False):
    """One entry a combination of texts. ``waiting``, ``settled``: the class of a pod without a node, and of one that
    has one or is finished; -1: read such pods the slow way; -2: none was seen yet. ``unplaced``: the state of a pod
    that has no node; ``done``: whether it is finished; ``kind``: of a pod that has a node, 0 = none was seen yet."""

    waiting: list[int] = []
    settled: list[int] = []
    kind: list[int] = []
    unplaced: list[int] = []
    done: list[bool] = []
    priority: list[int] = []
    controller: list[int] = []
    prefix: list[str] = []


class PodReader:
    """Reads lists for one interner, with the texts that were seen so far."""

    def __init__(self, interner: Interner, *, finished: bool = False, threads: int = 1) -> None:
        self._interner = interner
        self._threads = threads
        self._finished = finished
        self._projector = _projection.Projector(_RULE, 6, 4)
        self._columns = _Columns()
        self._reader = interner.kind()  # tells its texts from those of other readers
        self._parts: list[_Parts | None] = []
        # by number of the text, -1 = absent; None: read such pods the slow way
        self._rests: dict[int, _Rest | None] = {}
        self._labels: dict[int, LabelsFacet | None] = {-1: labels_facet(None)}
        self._affinities: dict[int, AffinityFacet | None] = {-1: affinity_facet(None)}
        self._volumes: dict[int, VolumesFacet | None] = {-1: volumes_facet([])}
        self._owners: dict[int, _Owner | None] = {-1: _Owner()}
        self._controllers: dict[str, int] = {}

    def scan(self, view: memoryview, source: str, place: str) -> ScannedList | None:
        """The items of a JSON list; None if the text is anything else, damaged text included."""
        scanned = self._projector.scan(view, self._threads)
        if scanned is None:
            return None
        begin, size, combined, at, length, api_version, kind = scanned
        pods_only = (api_version, kind) == ("v1", "PodList")
        bound = (length[:, _NODE] > 0) | (length[:, _NOMINATED] > 0)
        self._learn_all(combined, bound, pods_only)
        columns = self._columns
        number = np.where(bound, np.array([*columns.settled, -1])[combined], np.array([*columns.waiting, -1])[combined])
        fast = (number >= 0) & (length[:, _NAME] > 0)
        try:
            for slot in (_CREATED, _STARTED):
                fast &= usual_times(view, at[:, slot], length[:, slot])
            chosen = np.flatnonzero(fast)
            names = _projection.strings(view, at[chosen, _NAME], length[chosen, _NAME])
            if odd := odd_names(names):
                fast[chosen[odd]] = False
                chosen = np.flatnonzero(fast)
                names = _projection.strings(view, at[chosen, _NAME], length[chosen, _NAME])
            pods = self._batch(
                view, source, place, chosen, names, combined[chosen], number[chosen], at[chosen], length[chosen],
                begin, size,
            )  # fmt: skip
        except UnicodeDecodeError:
            return None
        return ScannedList(api_version, kind, begin, size, fast, pods)

    # -- texts -------------------------------------------------------------------------------------------------------

    def _learn_all(self, combined: NDArray[np.int32], bound: NDArray[np.bool_], pods_only: bool) -> None:
        """Classify the combinations that pods of this list have, for pods with a node and for those without."""
        columns, combinations = self._columns, self._projector.combinations()
        for each in combinations[len(self._parts) :].tolist():
            self._parts.append(self._learn(pods_only, *each))
        missing = _unseen(combined[bound], columns.settled), _unseen(combined[~bound], columns.waiting)
        for number in np.flatnonzero(missing[0] | missing[1]).tolist():
            parts = self._parts[number]
            assert parts is not None
            fixed = parts
            if parts[3][0][0] is not None and stays(parts[-1]):
                fixed = (*parts[:3], settled(parts[3]), *parts[4:])
            if missing[0][number]:
                columns.settled[number] = settled_class = self._interner.variant(*fixed).index
                _, _, volumes, _, rest = combinations[number].tolist()
                columns.kind[number] = self._interner.kind(("text", self._reader, settled_class, volumes, rest))
            if missing[1][number]:  # a finished pod counts as placed, without a node, too
                columns.waiting[number] = self._interner.variant(*(fixed if columns.done[number] else parts)).index

    def _learn(
        self, pods_only: bool, labels: int, affinity: int, volumes: int, owners: int, rest: int
    ) -> _Parts | None:
        """The parts of the classes of a combination, None: read such pods the slow way; and a line of the columns."""
        if rest not in self._rests:
            self._rests[rest] = self._rest(self._projector.text(rest), pods_only)
        common = self._rests[rest]
        columns, parts, controller = self._columns, None, -1
        if common is not None:
            with_labels = self._labels[labels] if labels in self._labels else self._labels_of(labels)
            selection = self._affinities[affinity] if affinity in self._affinities else self._affinity_of(affinity)
            mounted = self._volumes[volumes] if volumes in self._volumes else self._volumes_of(volumes)
            owner = self._owners[owners] if owners in self._owners else self._owner_of(owners)
            if not (with_labels is None or selection is None or mounted is None or owner is None):
                parts = common.number, common.prototype, with_labels, selection, mounted, owner.facet
                controller = -1 if common.alone else owner.number
        columns.waiting.append(-1 if parts is None else _UNSEEN)
        columns.settled.append(-1 if parts is None else _UNSEEN)
        columns.kind.append(0)
        columns.controller.append(controller)
        columns.unplaced.append(common.unplaced if common else PENDING)
        columns.done.append(common.done if common else False)
        columns.priority.append(common.priority if common else 0)
        columns.prefix.append(common.prefix if common else "")
        return parts

    def _rest(self, text: bytes, pods_only: bool) -> _Rest | None:
        """Decode and check what is left of pods without the facets."""
        try:
            head = _HEAD.decode(text)
            if (head.api_version, head.kind) != ("v1", "Pod") and not (pods_only and not head.kind):
                return None
            pod = from_json(text, Pod)
        except (InputError, *_UNUSUAL):
            return None
        pod.metadata.name = "x"  # noted apart; an empty or odd one never gets here
        if pod.spec.resource_claims or check(pod):
            return None  # with claims its name is part of its class
        waits = GATED if pod.spec.scheduling_gates else PENDING
        number, prototype = self._interner.prototype(pod, placed=True)
        return _Rest(
            number=number,
            prototype=prototype,
            unplaced=waits if pod.metadata.deletion_timestamp is None else TERMINATING,
            done=not self._finished and pod.status.phase in ("Succeeded", "Failed"),
            priority=pod.spec.priority or 0,
            alone=is_daemonset_pod(pod),
            prefix=f"{pod.metadata.namespace}/" if pod.metadata.namespace else "",
        )

    def _labels_of(self, number: int) -> LabelsFacet | None:
        found: LabelsFacet | None = None
        with suppress(*_UNUSUAL):
            found = labels_facet(_LABELS_OF.decode(self._projector.facet_text(_LABELS, number)))
        self._labels[number] = found
        return found

    def _affinity_of(self, number: int) -> AffinityFacet | None:
        found: AffinityFacet | None = None
        with suppress(*_UNUSUAL):
            affinity = _AFFINITY_OF.decode(self._projector.facet_text(_AFFINITY, number))
            bare = Pod(
                metadata=ObjectMeta(name="x", namespace="x"), spec=PodSpec(containers=[Container()], affinity=affinity)
            )
            if not check(bare):
                found = affinity_facet(affinity)
        self._affinities[number] = found
        return found

    def _volumes_of(self, number: int) -> VolumesFacet | None:
        found: VolumesFacet | None = None
        with suppress(*_UNUSUAL):
            volumes = _VOLUMES_OF.decode(self._projector.facet_text(_VOLUMES, number))
            if all(volume.ephemeral is None for volume in volumes):  # with one, its name is part of its class
                found = volumes_facet(volumes)
        self._volumes[number] = found
        return found

    def _owner_of(self, number: int) -> _Owner | None:
        found: _Owner | None = None
        with suppress(*_UNUSUAL):
            references = _OWNERS_OF.decode(self._projector.facet_text(_OWNERS, number))
            pod = Pod(metadata=ObjectMeta(owner_references=references))
            owner, uid = controller_of(pod.metadata), standing_controller(pod)
            found = _Owner(
                (owner.api_version, owner.kind, owner.name) if owner else None,
                -1 if uid is None else self._controllers.setdefault(uid, len(self._controllers)),
            )
        self._owners[number] = found
        return found

    # -- pods --------------------------------------------------------------------------------------------------------

    def _batch(
        self,
        view: memoryview,
        source: str,
        place: str,
        chosen: NDArray[np.int64],
        names: list[str],
        combined: NDArray[np.int32],
        class_of: NDArray[np.int64],
        at: NDArray[np.int64],
        length: NDArray[np.int64],
        begin: NDArray[np.int64],
        size: NDArray[np.int64],
    ) -> PodBatch:
        known = self._columns
        bound = length[:, _NODE] > 0
        where = np.where(bound, at[:, _NODE], at[:, _NOMINATED])
        long = np.where(bound, length[:, _NODE], length[:, _NOMINATED])
        long[long == 0] = -1
        node_of, first = _projection.number_strings(view, where, long)
        state = np.where(node_of >= 0, np.int8(PLACED), np.array(known.unplaced, dtype=np.int8)[combined])
        state[np.array(known.done, dtype=np.bool_)[combined]] = FINISHED
        prefix = known.prefix
        return PodBatch(
            view=view,
            source=source,
            place=place,
            where=chosen,
            keys=[prefix[number] + name for number, name in zip(combined.tolist(), names, strict=True)],
            class_of=class_of.astype(np.int32),
            state=state,
            node_of=np.where(state == PLACED, node_of, -1).astype(np.int32),
            nodes=_projection.strings(view, where[first], long[first]),
            priority=np.array(known.priority, dtype=np.int64)[combined],
            controller=np.array(known.controller, dtype=np.int32)[combined],
            controllers=list(self._controllers),
            offset=begin[chosen],
            size=size[chosen],
            uid_offset=at[:, _UID].copy(),
            uid_size=np.maximum(length[:, _UID], 0).astype(np.int32),
            kind_of=np.array(known.kind, dtype=np.int32)[combined],
        )


def _unseen(numbers: NDArray[np.int32], known: list[int]) -> NDArray[np.bool_]:
    """Which combinations occur in ``numbers``, where -1 is none, and have no class yet."""
    found = np.zeros(len(known), dtype=np.bool_)
    found[numbers[numbers >= 0]] = True
    found &= np.array(known, dtype=np.int64) == _UNSEEN
    return found
