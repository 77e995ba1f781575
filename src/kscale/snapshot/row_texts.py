"""Texts of rows of the table of pods, copied from one buffer to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kscale._native import _projection
from kscale.snapshot.pod_batch import PodBatch
from kscale.snapshot.texts import TextStore

__all__ = ["CopiedRows", "copy_batch", "copy_rows", "refer_to_batch"]


class CopiedRows(NamedTuple):
    """Texts one after the other; where the text of each row is, where its UID is from there on, and how many bytes of
    the old buffer the row used."""

    block: bytearray
    offset: NDArray[np.int64]
    uid_offset: NDArray[np.int64]
    used: NDArray[np.int64]


def copy_rows(buffer: memoryview, column: Callable[[str], NDArray[Any]], rows: NDArray[np.int64]) -> CopiedRows:
    """The texts that rows have in a buffer, or their UIDs alone; ``column``: a column of the table by name."""
    at, size = column("offset")[rows], column("size")[rows].astype(np.int64)
    uid_at, uid_size = at + column("uid_offset")[rows], column("uid_size")[rows].astype(np.int64)
    none = np.full(len(rows), -1, dtype=np.int64)
    keep = (size > 0).view(np.uint8)
    block, offset, _, mark = _projection.copy_texts(buffer, at, size, at, none, uid_at, uid_size, keep)
    return CopiedRows(block, offset, mark - offset, np.where(size > 0, size, uid_size))


def refer_to_batch(texts: TextStore, batch: PodBatch, of: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Columns of some pods of a batch whose texts stay where they are."""
    size = batch.size[of]
    number = texts.refer(batch.view, int(size.sum()))
    return {
        "source": np.full(len(of), number, dtype=np.int32),
        "offset": batch.begin[of],
        "size": size,
        "uid_offset": batch.uid_at[of] - batch.begin[of],
        "uid_size": batch.uid_size[of],
    }


def copy_batch(
    texts: TextStore, batch: PodBatch, of: NDArray[np.int64], keep: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    """Columns of some pods of a batch whose texts are copied, or their UIDs alone where they are not to be kept."""
    block, offset, size, mark = _projection.copy_texts(
        batch.view, batch.begin[of], batch.size[of], batch.cut_at[of], batch.cut_size[of], batch.uid_at[of],
        batch.uid_size[of], keep.view(np.uint8),
    )  # fmt: skip
    number, begin = texts.add(block)
    return {
        "source": np.full(len(of), number, dtype=np.int32),
        "offset": offset + begin,
        "size": size,
        "uid_offset": mark - offset,
        "uid_size": batch.uid_size[of],
    }
