from typing import Any, TypeAlias

from numpy import bool_, int8, int32, int64, uint8
from numpy.typing import NDArray
from typing_extensions import Buffer

Rule: TypeAlias = str | tuple[Any, ...]

class Projector:
    def __init__(self, rule: Rule, slots: int, facets: int) -> None: ...
    def scan(
        self, data: Buffer, threads: int = 1, grain: int = ..., kind: bytes = b""
    ) -> (
        tuple[NDArray[int64], NDArray[int64], NDArray[int32], NDArray[int64], NDArray[int64], str, str, bytes] | None
    ): ...
    def lines(
        self, data: Buffer, threads: int = 1, grain: int = ..., kind: bytes = b""
    ) -> tuple[
        int,
        NDArray[int8],
        NDArray[int64],
        NDArray[int64],
        NDArray[int64],
        NDArray[int32],
        NDArray[int64],
        NDArray[int64],
    ]: ...
    def combinations(self) -> NDArray[int32]: ...
    def __len__(self) -> int: ...
    def text(self, i: int) -> bytes: ...
    def facet_text(self, facet: int, i: int) -> bytes: ...

def number_strings(
    data: Buffer, at: NDArray[int64], length: NDArray[int64]
) -> tuple[NDArray[int32], NDArray[int64]]: ...
def strings(data: Buffer, at: NDArray[int64], length: NDArray[int64]) -> list[str]: ...
def joined(
    prefixes: list[str], which: NDArray[int32], data: Buffer, at: NDArray[int64], length: NDArray[int64]
) -> list[str]: ...
def plain_names(data: Buffer, at: NDArray[int64], length: NDArray[int64]) -> NDArray[bool_]: ...
def printed_moments(data: Buffer, at: NDArray[int64], length: NDArray[int64]) -> NDArray[int64]: ...
def printed_numbers(data: Buffer, at: NDArray[int64], length: NDArray[int64]) -> NDArray[int64]: ...
def copy_texts(
    data: Buffer,
    at: NDArray[int64],
    size: NDArray[int64],
    cut_at: NDArray[int64],
    cut_size: NDArray[int64],
    mark_at: NDArray[int64],
    mark_size: NDArray[int64],
    keep: NDArray[uint8],
) -> tuple[bytearray, NDArray[int64], NDArray[int64], NDArray[int64]]: ...
def repeats_a_key(data: Buffer, levels: int = ...) -> bool: ...
