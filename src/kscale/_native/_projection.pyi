from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy import bool_, int32, int64, uint8
from numpy.typing import NDArray
from typing_extensions import Buffer

Rule: TypeAlias = str | tuple[Any, ...]

class Places:
    def __len__(self) -> int: ...
    def names(self, data: Buffer, which: NDArray[int64], slot: int) -> list[str]: ...
    def part(self, first: int, end: int) -> tuple[NDArray[int64], NDArray[int64]]: ...
    def have(self, slots: tuple[int, ...], first: int) -> NDArray[bool_]: ...

class Lines:
    @property
    def used(self) -> int: ...
    @property
    def types(self) -> bytes: ...
    def __len__(self) -> int: ...
    def columns(
        self,
    ) -> tuple[NDArray[int64], NDArray[int64], NDArray[int64], NDArray[int32], NDArray[int64], NDArray[int64]]: ...
    def unknown(self, looks: NDArray[Any]) -> list[int]: ...
    def pods(
        self, looks: NDArray[Any], states: tuple[int, int], namespace: str, nodes: StringNumbers
    ) -> tuple[NDArray[bool_] | None, list[str], NDArray[int64], list[tuple[int, int]]] | None: ...

class Projector:
    def __init__(self, rule: Rule, slots: int, facets: int) -> None: ...
    def add_plain(self, kinds: Iterable[tuple[str, str, Rule]]) -> None: ...
    def scan(
        self,
        data: Buffer,
        threads: int = 1,
        grain: int = ...,
        kind: tuple[bytes, bytes] = ...,
        meanwhile: Callable[[NDArray[int64], NDArray[int64], NDArray[int32], Places, int], object] | None = ...,
    ) -> tuple[NDArray[int64], NDArray[int64], NDArray[int32], Places, str, str, bytes] | None: ...
    def lines(self, data: Buffer, threads: int = 1, grain: int = ..., kind: tuple[bytes, bytes] = ...) -> Lines: ...
    def combinations(self) -> NDArray[int32]: ...
    def combination_row(self, i: int) -> list[int]: ...
    @property
    def combination_count(self) -> int: ...
    @property
    def combinations_free(self) -> int: ...
    def retain(self, keep: NDArray[uint8]) -> list[NDArray[bool_]]: ...
    def __len__(self) -> int: ...
    def text(self, i: int) -> bytes: ...
    def facet_text(self, facet: int, i: int) -> bytes: ...

class StringNumbers:
    @property
    def strings(self) -> list[str]: ...
    def __len__(self) -> int: ...
    def number(self, data: Buffer, at: NDArray[int64], length: NDArray[int64]) -> NDArray[int32]: ...

def strings(data: Buffer, at: NDArray[int64], length: NDArray[int64]) -> list[str]: ...
def copy_texts(
    data: Buffer, spans: NDArray[int64], keep: NDArray[uint8], room: Callable[[int], Buffer]
) -> tuple[int, NDArray[int64]]: ...
def repeats_a_key(data: Buffer, levels: int = ...) -> bool: ...
def json_members(data: Buffer) -> NDArray[int64] | None: ...
def json_elements(data: Buffer) -> NDArray[int64] | None: ...
def json_extent(data: Buffer) -> tuple[int, int]: ...
def exceeds_depth(data: Buffer, levels: int) -> bool: ...

POD_SLOTS: tuple[str, ...]
POD_COLUMNS: tuple[str, ...]
POD_LOOKS: np.dtype[Any]

def read_pods(
    data: Buffer,
    listed: bool,
    first: int,
    begin: NDArray[np.int64],
    size: NDArray[np.int64],
    combined: NDArray[np.int32],
    at: NDArray[np.int64],
    length: NDArray[np.int64],
    looks: NDArray[Any],
    states: tuple[int, int],
    namespace: str,
) -> tuple[NDArray[np.bool_], list[str], NDArray[np.int64], list[tuple[int, int]]] | None: ...

TABLE_COLUMNS: tuple[str, ...]

class _Texts(Protocol):
    def reserve(self, size: int) -> Buffer: ...
    def fill(self, size: int) -> tuple[int, int]: ...

def table_values(
    data: Buffer,
    columns: NDArray[np.int64],
    which: NDArray[np.int64],
    sources: NDArray[np.int32],
    table: tuple[int, ...],
    node: NDArray[np.int32],
    first_stamp: int,
    seen: bool,
    texts: _Texts | None,
    every: bool,
    finished: int,
) -> NDArray[np.int64]: ...

ODD_METRIC_TEXTS: Sequence[str]

def read_pod_metrics(
    text: bytes | memoryview,
) -> (
    tuple[
        list[str],
        NDArray[np.int32],
        NDArray[np.int32],
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.int32],
        list[NDArray[np.int64]],
        list[NDArray[np.uint8]],
        list[str],
        list[str],
        list[str],
        list[str],
        list[tuple[str, int, int, str]],
        list[str] | None,
    ]
    | None
): ...
def sample_pod_metrics(
    ends: NDArray[np.int64],
    time: NDArray[np.int64],
    window: NDArray[np.int64],
    container: NDArray[np.int32],
    amount: NDArray[np.int64],
    present: NDArray[np.uint8],
    named: int,
    rows: NDArray[np.int64],
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]: ...
def moments(texts: list[str | None]) -> tuple[NDArray[np.int64], list[int]]: ...
def newest_time(
    text: bytes | memoryview, begin: NDArray[np.int64], size: NDArray[np.int64]
) -> tuple[int, list[bytes]]: ...
def plain_label(text: str) -> tuple[str, str] | None: ...
def is_plain_name(text: str) -> bool: ...
def cached_conversion(kind: type, convert: Callable[[type, Any], Any], most: int) -> Callable[[type, Any], Any]: ...
