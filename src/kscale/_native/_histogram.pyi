from typing import TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

_I8: TypeAlias = npt.NDArray[np.uint8]
_I32: TypeAlias = npt.NDArray[np.int32]
_I64: TypeAlias = npt.NDArray[np.int64]
_U32: TypeAlias = npt.NDArray[np.uint32]
_F64: TypeAlias = npt.NDArray[np.float64]

UNSET: int
FARTHEST: int
UNPLACED: int
UNASKED: int
ACCEPTED: int
DISCARDED: int
TOO_OLD: int

def go_log(x: float) -> float: ...
def go_exp2(x: float) -> float: ...
def go_pow(x: float, y: float) -> float: ...
def go_int64(x: float) -> int: ...
def look_up(table: _I32, index: _I32, out: _I32) -> bool: ...
def in_order(series: _I32, times: _I64, n_series: int) -> bool: ...
def confidence(first: int, last: int, samples: int, interval: int) -> float: ...
def confidence_multiplier(confidence: float, multiplier: float, exponent: float) -> float: ...

class Fed(TypedDict):
    missing: int
    infinite: int
    negative: int
    late: int
    refused: int
    behind: int
    newest: int

class Buckets:
    @staticmethod
    def linear(max_value: float, bucket_size: float, epsilon: float) -> Buckets: ...
    @staticmethod
    def exponential(max_value: float, first: float, ratio: float, epsilon: float) -> Buckets: ...
    @property
    def size(self) -> int: ...
    def start(self, bucket: int) -> float: ...
    def find(self, values: _F64, out: _I64, exact: bool = False) -> None: ...

class Bank:
    rows: int
    def __init__(
        self,
        buckets: Buckets,
        half_life: int,
        weights: _F64,
        total: _F64,
        min_bucket: _I32,
        max_bucket: _I32,
        reference: _I64,
    ) -> None: ...
    def add(self, rows: _I64, values: _F64, weights: _F64, times: _I64, subtract: bool = False) -> None: ...
    def percentile(self, rows: _I64, p: float, out: _F64) -> None: ...
    def is_empty(self, row: int) -> bool: ...
    def scale(self, row: int, factor: float) -> None: ...
    def shift(self, row: int, reference: int) -> None: ...
    def merge(self, rows: _I64, other: Bank, other_rows: _I64) -> None: ...
    def save(self, rows: _I64, out: _U32) -> None: ...
    def load(self, row: int, index: _I64, weights: _U32, total: float) -> None: ...

class Usage:
    def __init__(
        self,
        aggregate: _I32,
        last_cpu: _I64,
        last_memory: _I64,
        window_end: _I64,
        memory_peak: _I64,
        oom_peak: _I64,
        first_sample: _I64,
        last_sample: _I64,
        samples: _I64,
        interval: _I64,
        oom_ratio: _F64,
        oom_min_bump: _F64,
    ) -> None: ...
    def add_cpu(
        self, bank: Bank, container: _I32, times: _I64, millicores: _I64, status: _I8, threads: int = 1
    ) -> None: ...
    def add_memory(
        self,
        bank: Bank,
        container: _I32,
        times: _I64,
        amounts: _I64,
        status: _I8,
        is_oom: _I8 | None = None,
        threads: int = 1,
        taken: _I64 | None = None,
    ) -> None: ...
    def arranged(
        self, series: _I32, times: _I64, cpu: _F64 | None, memory: _F64 | None, slots: _I32, threads: int = 1
    ) -> tuple[_I32, _I64, _F64 | None, _F64 | None] | None: ...
    def feed(
        self,
        bank: Bank,
        cpu: bool,
        series: _I32,
        times: _I64,
        values: _F64,
        slots: _I32,
        finite: _I64,
        now: int,
        threads: int = 1,
    ) -> Fed: ...
    def add_cpu_grid(
        self,
        bank: Bank,
        group_start: _I64,
        container: _I32,
        times: _I64,
        millicores: _I32,
        discarded: _I64,
        threads: int = 1,
    ) -> None: ...

def recommend(
    cpu: Bank,
    memory: Bank,
    first: _I64,
    last: _I64,
    samples: _I64,
    minimum: _I64,
    percentiles: _F64,
    intervals: _I64,
    margin: float,
    out: _I64,
    threads: int = 1,
) -> None: ...
