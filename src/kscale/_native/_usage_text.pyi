from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_I32: TypeAlias = npt.NDArray[np.int32]
_I64: TypeAlias = npt.NDArray[np.int64]
_F64: TypeAlias = npt.NDArray[np.float64]
_Names: TypeAlias = tuple[str, str, str, str]

SKIPPED: int
TIME: int
CPU: int
MEMORY: int
NAME: int
MOST_NAMES: int

_Rows: TypeAlias = tuple[_I64, _F64 | None, _F64 | None, _I32, list[_Names]]

class CsvRows:
    def __init__(self, roles: Sequence[int], unit: int) -> None: ...
    def read(self, text: bytes | memoryview) -> _Rows | None: ...

def csv_rows(text: bytes | memoryview, roles: Sequence[int], unit: int) -> _Rows | None: ...

class SeriesNumbers:
    def number(self, columns: Sequence[tuple[_I32, _I32] | None], out: _I32) -> list[tuple[int, int, int, int]]: ...

def points(text: bytes | memoryview, milliseconds: _I64, values: _F64, offset: int = 0) -> int: ...
def scaled(values: _I64, unit: int, most: int, out: _I64) -> int | None: ...
