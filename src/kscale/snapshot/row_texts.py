"""Texts of rows of the table of pods, copied from one buffer to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kscale._native import _projection
from kscale.snapshot.pod_batch import PodBatch
from kscale.snapshot.pod_columns import COLUMN
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
    block, (offset, _, mark) = _projection.copy_texts(
        buffer, np.stack([at, size, at, none, uid_at, uid_size]), (size > 0).view(np.uint8)
    )
    return CopiedRows(block, offset, mark - offset, np.where(size > 0, size, uid_size))


def refer_to_batch(texts: TextStore, batch: PodBatch, to: NDArray[np.int64]) -> None:
    """Texts of a batch stay where they are: writes the columns that say where, of those of the table of pods."""
    begin, size = batch.column("begin"), batch.column("size")
    to[COLUMN["source"]] = texts.refer(batch.view, int(size.sum()))
    to[COLUMN["offset"]] = begin
    to[COLUMN["size"]] = size
    to[COLUMN["uid_offset"]] = batch.column("uid_at") - begin


def copy_batch(texts: TextStore, batch: PodBatch, keep: NDArray[np.bool_], to: NDArray[np.int64]) -> None:
    """Texts of a batch are copied, or the UIDs alone where they are not to be kept: writes the columns that say where,
    of those of the table of pods."""
    block, (offset, size, mark) = _projection.copy_texts(batch.view, batch.texts, keep.view(np.uint8))
    number, begin = texts.add(block)
    to[COLUMN["source"]] = number
    to[COLUMN["offset"]] = offset + begin
    to[COLUMN["size"]] = size
    to[COLUMN["uid_offset"]] = mark - offset
