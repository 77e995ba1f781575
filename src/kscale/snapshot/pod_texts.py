"""Pods straight from the text of a list to columns: what no decision reads is skipped, not decoded.

The text of a pod is reduced to what decisions read and what :mod:`kscale.objects.validation` looks at; names, UIDs and
nodes are noted apart. Pods that are left with one text are one *kind of pod*: decoded, checked and classified once. A
kind with anything unusual about it, and every pod that is written unusually, is read the slow way, so that errors and
warnings are the same.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _projection
from kscale.snapshot.interner import READ_SOURCES, Interner
from kscale.snapshot.mapped import file_of
from kscale.snapshot.pod_kinds import READ_ANNOTATIONS
from kscale.snapshot.pod_table import FINISHED, PLACED
from kscale.snapshot.record import PodRecord
from kscale.snapshot.text_classes import AFFINITY, LABELS, OWNERS, VOLUMES, TextClasses
from kscale.snapshot.usual_texts import usual_names, usual_times

__all__ = ["PodBatch", "PodReader", "ScannedList"]

_NAME, _UID, _NODE, _NOMINATED, _CREATED, _STARTED = range(6)


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
        labels=("facet", LABELS, "keep"),
        owner_references=("facet", OWNERS, "keep"),
        **_kept("namespace", "deletion_timestamp"),
        annotations=("object", dict.fromkeys(READ_ANNOTATIONS, "keep"), ()),
    ),
    spec=_object(
        node_name=("capture", _NODE),
        containers=("array", _CONTAINER),
        init_containers=("array", _CONTAINER),
        ephemeral_containers=("array", _CONTAINER),
        volumes=("facet", VOLUMES, ("array", _VOLUME)),
        affinity=("facet", AFFINITY, "keep"),
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


class PodReader:
    """Reads lists for one interner, with the texts that were seen so far."""

    def __init__(self, interner: Interner, *, finished: bool = False, threads: int = 1) -> None:
        self._threads = threads
        self._projector = _projection.Projector(_RULE, 6, 4)
        self._known = TextClasses(self._projector, interner, finished=finished)

    def scan(self, view: memoryview, source: str, place: str) -> ScannedList | None:
        """The items of a JSON list; None if the text is anything else, damaged text included."""
        scanned = self._projector.scan(view, self._threads)
        if scanned is None:
            return None
        begin, size, combined, at, length, api_version, kind = scanned
        known = self._known
        bound = (length[:, _NODE] > 0) | (length[:, _NOMINATED] > 0)
        known.learn(combined, bound)
        number = np.where(bound, np.append(known.settled, -1)[combined], np.append(known.waiting, -1)[combined])
        fast = (number >= 0) & usual_names(view, at[:, _NAME], length[:, _NAME])
        if (api_version, kind) != ("v1", "PodList"):
            fast &= ~known.of_rest("bare")[np.append(known.rest, -1)[combined] + 1]
        try:
            for slot in (_CREATED, _STARTED):
                fast &= usual_times(view, at[:, slot], length[:, slot])
            chosen = np.flatnonzero(fast)
            pods = self._batch(
                view, source, place, chosen, combined[chosen], number[chosen], at[chosen], length[chosen], begin, size
            )
        except UnicodeDecodeError:
            return None
        return ScannedList(api_version, kind, begin, size, fast, pods)

    def _batch(
        self,
        view: memoryview,
        source: str,
        place: str,
        chosen: NDArray[np.int64],
        combined: NDArray[np.int32],
        class_of: NDArray[np.int64],
        at: NDArray[np.int64],
        length: NDArray[np.int64],
        begin: NDArray[np.int64],
        size: NDArray[np.int64],
    ) -> PodBatch:
        known, rest = self._known, self._known.rest[combined] + 1
        bound = length[:, _NODE] > 0
        where = np.where(bound, at[:, _NODE], at[:, _NOMINATED])
        long = np.where(bound, length[:, _NODE], length[:, _NOMINATED])
        long[long == 0] = -1
        node_of, first = _projection.number_strings(view, where, long)
        state = np.where(node_of >= 0, np.int8(PLACED), known.of_rest("unplaced")[rest])
        state[known.of_rest("done")[rest]] = FINISHED
        return PodBatch(
            view=view,
            source=source,
            place=place,
            where=chosen,
            keys=_projection.joined(known.prefix, rest, view, at[:, _NAME].copy(), length[:, _NAME].copy()),
            class_of=class_of.astype(np.int32),
            state=state,
            node_of=np.where(state == PLACED, node_of, -1).astype(np.int32),
            nodes=_projection.strings(view, where[first], long[first]),
            priority=known.of_rest("priority")[rest],
            controller=known.controller[combined],
            controllers=known.controllers,
            offset=begin[chosen],
            size=size[chosen],
            uid_offset=at[:, _UID].copy(),
            uid_size=np.maximum(length[:, _UID], 0).astype(np.int32),
            kind_of=known.kind[combined],
        )
