"""Pods that were read from one text, as columns."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["PodBatch"]

_COLUMNS = (
    "where", "class_of", "state", "bound", "node_of", "priority", "controller", "begin", "size", "cut_at", "cut_size",
    "uid_at", "uid_size", "shape", "created", "started", "deleted", "since", "ready", "phase",
    "version", "queueing", "combined",
)  # fmt: skip


class PodBatch(msgspec.Struct, frozen=True, eq=False):
    """Columns, one entry a pod, as :class:`~kscale.snapshot.pod_table.PodTable` has them, but for these.

    ``where``: its position among the items of the text; ``bound``: whether it is bound to its node, not only nominated;
    ``node_of``: into ``nodes`` (which has those of other batches, too, and grows), -1 = none; ``begin``, ``size``:
    where its text is in ``view``; ``cut_at``, ``cut_size``: where its managed fields are (-1: none); ``uid_at``,
    ``uid_size``: its UID. ``source``, ``place``: the file and the place in it, for messages.
    """

    view: memoryview
    source: str
    place: str
    keys: list[str]
    nodes: list[str]
    where: NDArray[np.int64]
    class_of: NDArray[np.int32]
    state: NDArray[np.int8]
    bound: NDArray[np.bool_]
    node_of: NDArray[np.int32]
    priority: NDArray[np.int64]
    controller: NDArray[np.int32]
    begin: NDArray[np.int64]
    size: NDArray[np.int64]
    cut_at: NDArray[np.int64]
    cut_size: NDArray[np.int64]
    uid_at: NDArray[np.int64]
    uid_size: NDArray[np.int64]
    shape: NDArray[np.int32]
    created: NDArray[np.int64]
    started: NDArray[np.int64]
    deleted: NDArray[np.int64]
    since: NDArray[np.int64]
    ready: NDArray[np.int8]
    phase: NDArray[np.int8]
    version: NDArray[np.int64]
    queueing: NDArray[np.int32]
    combined: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.keys)

    def pick(self, which: slice | NDArray[np.int64]) -> PodBatch:
        """Some of the pods."""
        keys = self.keys[which] if isinstance(which, slice) else [self.keys[i] for i in which.tolist()]
        return msgspec.structs.replace(self, keys=keys, **{name: getattr(self, name)[which] for name in _COLUMNS})

    def uid(self, i: int) -> bytes:
        """The UID of one of them, empty if it has none."""
        at = int(self.uid_at[i])
        return bytes(self.view[at : at + int(self.uid_size[i])])
