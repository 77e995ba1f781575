"""UIDs of pods: where their texts are kept, they stay there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kscale._native import _projection, _rows
from kscale.snapshot.columns import distinct
from kscale.snapshot.mapped import file_of

if TYPE_CHECKING:
    from kscale.snapshot.pod_table import PodTable

__all__ = ["have_uids", "uid_text", "uids_of"]


def uid_text(table: PodTable, row: int) -> bytes:
    """The UID of the pod of a row; empty if it has none."""
    found = table.records.get(row)
    if found is not None:
        return b"" if found.uid == found.key else found.uid.encode()
    source, size = int(table.column("source")[row]), int(table.column("uid_size")[row])
    if source < 0 or size <= 0:
        return b""
    at = int(table.column("offset")[row]) + int(table.column("uid_offset")[row])
    return bytes(table.buffers[source][at : at + size])


def have_uids(
    table: PodTable, rows: NDArray[np.int64], view: memoryview, at: NDArray[np.int64], size: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """bool[n]: whether the pod of each row has the UID at a place of a text, or one of the two has none."""
    source, held = table.column("source")[rows], table.column("uid_size")[rows].astype(np.int64)
    begin = table.column("offset")[rows] + table.column("uid_offset")[rows]
    inside = source >= 0
    fits = (size <= 0) | (inside & (held <= 0))
    which = np.flatnonzero(inside & ~fits)
    fits[which] = _rows.same_texts(
        table.buffers, source[which], begin[which], held[which], view, at[which], size[which]
    )
    for i in np.flatnonzero(~inside & ~fits).tolist():
        uid = uid_text(table, int(rows[i]))
        fits[i] = not uid or uid == bytes(view[int(at[i]) : int(at[i] + size[i])])
    return fits


def uids_of(table: PodTable, rows: NDArray[np.int64]) -> list[str]:
    """UIDs of the pods of some rows, or their keys where they have none."""
    found = np.empty(len(rows), dtype=np.object_)
    source, size = table.column("source")[rows], table.column("uid_size")[rows].astype(np.int64)
    at = table.column("offset")[rows] + table.column("uid_offset")[rows]
    written = (source >= 0) & (size > 0)
    for number in distinct(source[source >= 0]).tolist():
        mapped = file_of(table.buffers[number])
        if mapped is not None:
            mapped.check()
        which = np.flatnonzero(written & (source == number))
        found[which] = _projection.strings(table.buffers[number], at[which], size[which])
    for i in np.flatnonzero(~written).tolist():
        row = int(rows[i])
        found[i] = table.record(row).uid if source[i] == -1 else table.keys[row]
    uids: list[str] = found.tolist()
    return uids
