"""Pods that were read from one text, as columns."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _pod_columns

__all__ = ["PodBatch"]

_NUMBER: Final = {name: number for number, name in enumerate(_pod_columns.COLUMNS)}


class PodBatch(msgspec.Struct, frozen=True, eq=False):
    """Pods by ``keys``, and what :meth:`column` tells of each, as :class:`~kscale.snapshot.pod_table.PodTable` has it,
    but for these.

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
    columns: NDArray[np.int64]  # [of kscale._native._pod_columns.COLUMNS, pod]

    def __len__(self) -> int:
        return len(self.keys)

    def column(self, name: str) -> NDArray[np.int64]:
        """One entry a pod."""
        found: NDArray[np.int64] = self.columns[_NUMBER[name]]
        return found

    @property
    def texts(self) -> NDArray[np.int64]:
        """Where the texts are, the managed fields in them and the UIDs: ``begin`` to ``uid_size``."""
        return self.columns[_NUMBER["begin"] : _NUMBER["uid_size"] + 1]

    def pick(self, which: slice | NDArray[np.int64]) -> PodBatch:
        """Some of the pods."""
        keys = self.keys[which] if isinstance(which, slice) else [self.keys[i] for i in which.tolist()]
        return msgspec.structs.replace(self, keys=keys, columns=np.ascontiguousarray(self.columns[:, which]))

    def uid(self, i: int) -> bytes:
        """The UID of one of them, empty if it has none."""
        at = int(self.column("uid_at")[i])
        return bytes(self.view[at : at + int(self.column("uid_size")[i])])
