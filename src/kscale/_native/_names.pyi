from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

class NameTable:
    def __init__(self, keys: Iterable[str]) -> None: ...
    def __len__(self) -> int: ...
    def rows(self, keys: Iterable[str]) -> NDArray[np.int64]: ...

class RowIndex:
    def __len__(self) -> int: ...
    def copy(self) -> RowIndex: ...
    def add(self, keys: list[str], rows: NDArray[np.int64]) -> None: ...
    def move(self, keys: list[str], rows: NDArray[np.int64], first: int) -> None: ...
    def remove(self, keys: list[str], rows: NDArray[np.int64]) -> None: ...
    # ``names`` must be a list: tables whose rows change have one.
    def row(self, key: str, names: Sequence[str]) -> int: ...
    def plan(
        self,
        keys: list[str],
        names: Sequence[str],
        version: NDArray[np.int64],
        held: NDArray[np.int64],
        deleted: NDArray[np.bool_] | None,
        anew: bool,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]: ...

def group_rows(number: NDArray[np.int32], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
def select_rows(
    starts: NDArray[np.int64], rows: NDArray[np.int64], begin: NDArray[np.int64], groups: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
def number_values(values: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]: ...
def equivalence_groups(
    controller: NDArray[np.int32], shape: NDArray[np.int32], most: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]: ...
def other_objects(now: list[Any], before: list[Any]) -> NDArray[np.int64]: ...
def changes(rows: NDArray[np.int64], columns: list[NDArray[Any]], values: NDArray[np.int64]) -> NDArray[np.int64]: ...
def add_placed(
    rows: NDArray[np.int64],
    state: NDArray[np.int8],
    placed: int,
    class_of: NDArray[np.int32],
    at: NDArray[np.int32],
    sign: int,
    known: NDArray[np.uint8],
    count: NDArray[np.int64],
    sums: list[NDArray[np.int64] | None],
    amounts: list[NDArray[np.int64]],
) -> list[int] | None: ...
def have_uids(
    rows: NDArray[np.int64],
    buffers: list[memoryview],
    source: NDArray[np.int32],
    offset: NDArray[np.int64],
    uid_offset: NDArray[np.int32],
    uid_size: NDArray[np.int32],
    data: Buffer,
    at: NDArray[np.int64],
    size: NDArray[np.int64],
) -> NDArray[np.uint8]: ...

ROW_COLUMNS: tuple[str, ...]

def put_rows(
    removed: NDArray[np.int64],
    rows: NDArray[np.int64],
    existing: int,
    columns: list[NDArray[Any]],
    values: NDArray[np.int64],
    unchanged: int,
    named: tuple[int, ...],
    gone: int,
    placed: int,
    live: Buffer,
    whole: Buffer,
    known: NDArray[np.uint8],
    count: NDArray[np.int64],
    sums: list[NDArray[np.int64] | None],
    amounts: list[NDArray[np.int64]],
) -> tuple[list[int], list[tuple[int, int, int]], bool] | None: ...
