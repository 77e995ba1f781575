from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

def calculate_replicas(
    mode: NDArray[np.uint8],
    cpu: NDArray[np.uint8],
    given: NDArray[np.uint8],
    current: NDArray[np.int32],
    target: NDArray[np.int64],
    down: NDArray[np.float64],
    up: NDArray[np.float64],
    pods_begin: NDArray[np.int64],
    pods_end: NDArray[np.int64],
    samples: NDArray[np.int64],
    requests: NDArray[np.int64],
    bad_request: NDArray[np.int32],
    extra_count: NDArray[np.int64],
    extra_sum: NDArray[np.int64],
    values_begin: NDArray[np.int64],
    values_end: NDArray[np.int64],
    phase: NDArray[np.uint8],
    deleting: NDArray[np.uint8],
    ready: NDArray[np.uint8],
    started: NDArray[np.uint8],
    start: NDArray[np.int64],
    transition: NDArray[np.int64],
    sample_present: NDArray[np.uint8],
    sample_value: NDArray[np.int64],
    sample_time: NDArray[np.int64],
    sample_window: NDArray[np.int64],
    request: NDArray[np.int64],
    value: NDArray[np.int64],
    now: int,
    cpu_initialization: int,
    initial_readiness: int,
    release: int = 0,
    threads: int = 1,
) -> tuple[
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int64],
    NDArray[np.uint8],
    NDArray[np.uint8],
    NDArray[np.int32],
    NDArray[np.float64],
]: ...
def pod_groups(
    phase: NDArray[np.uint8],
    deleting: NDArray[np.uint8],
    ready: NDArray[np.uint8],
    started: NDArray[np.uint8],
    start: NDArray[np.int64],
    transition: NDArray[np.int64],
    sample_present: NDArray[np.uint8],
    sample_value: NDArray[np.int64],
    sample_time: NDArray[np.int64],
    sample_window: NDArray[np.int64],
    cpu: bool,
    now: int,
    cpu_initialization: int,
    initial_readiness: int,
    release: int = 0,
) -> NDArray[np.uint8]: ...

class Rules(Protocol):
    @property
    def select(self) -> NDArray[np.uint8]: ...
    @property
    def window(self) -> NDArray[np.int32]: ...
    @property
    def begin(self) -> NDArray[np.int64]: ...
    @property
    def end(self) -> NDArray[np.int64]: ...
    @property
    def type(self) -> NDArray[np.uint8]: ...
    @property
    def value(self) -> NDArray[np.int32]: ...
    @property
    def period(self) -> NDArray[np.int32]: ...

class History(Protocol):
    @property
    def begin(self) -> NDArray[np.int64]: ...
    @property
    def capacity(self) -> NDArray[np.int64]: ...
    @property
    def size(self) -> NDArray[np.int64]: ...
    @property
    def values(self) -> NDArray[np.int32]: ...
    @property
    def times(self) -> NDArray[np.int64]: ...
    @property
    def outdated(self) -> NDArray[np.uint8]: ...

def normalize(
    active: NDArray[np.uint8],
    behavior: NDArray[np.uint8],
    current: NDArray[np.int32],
    proposal: NDArray[np.int32],
    minimum: NDArray[np.int32],
    maximum: NDArray[np.int32],
    up: Rules,
    down: Rules,
    past: History,
    added: History,
    removed: History,
    downscale_window: int,
    now: int,
    threads: int = 1,
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]: ...
def store_events(
    rescaled: NDArray[np.uint8],
    before: NDArray[np.int32],
    after: NDArray[np.int32],
    up: Rules,
    down: Rules,
    added: History,
    removed: History,
    now: int,
) -> None: ...

class Targets(Protocol):
    @property
    def scale_error(self) -> NDArray[np.uint8]: ...
    @property
    def current(self) -> NDArray[np.int32]: ...
    @property
    def minimum(self) -> NDArray[np.int32]: ...
    @property
    def maximum(self) -> NDArray[np.int32]: ...
    @property
    def object_metric(self) -> NDArray[np.uint8]: ...
    @property
    def behavior(self) -> NDArray[np.uint8]: ...
    @property
    def selector_error(self) -> NDArray[np.uint8]: ...
    @property
    def refused(self) -> NDArray[np.uint8]: ...
    @property
    def fresh(self) -> NDArray[np.uint8]: ...
    @property
    def metrics_begin(self) -> NDArray[np.int64]: ...
    @property
    def metrics_end(self) -> NDArray[np.int64]: ...

def branches(
    targets: Targets, status: NDArray[np.uint8], scale_to_zero: bool, legacy: bool = False
) -> NDArray[np.uint8]: ...
def decide(
    targets: Targets,
    replicas: NDArray[np.int32],
    metric_error: NDArray[np.uint8],
    up: Rules,
    down: Rules,
    past: History,
    added: History,
    removed: History,
    status: NDArray[np.uint8],
    reason: NDArray[np.uint8],
    time: NDArray[np.int64],
    now: int,
    downscale_window: int,
    scale_to_zero: bool,
    legacy: bool = False,
    threads: int = 1,
) -> tuple[
    NDArray[np.uint8],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.uint8],
    NDArray[np.uint8],
    NDArray[np.uint8],
    NDArray[np.uint8],
    NDArray[np.uint8],
]: ...

class Metric(Protocol):
    @property
    def mode(self) -> int: ...
    @property
    def cpu(self) -> bool: ...
    @property
    def target(self) -> int: ...
    @property
    def request(self) -> int: ...
    @property
    def time(self) -> NDArray[np.int64]: ...
    @property
    def load(self) -> NDArray[np.float64]: ...

def replay(
    ticks: int,
    metrics: Sequence[Metric],
    recorded: NDArray[np.int32] | None,
    up: Rules,
    down: Rules,
    *,
    tolerance_down: float,
    tolerance_up: float,
    cpu_initialization: int,
    initial_readiness: int,
    minimum: int,
    maximum: int,
    behavior: bool,
    scale_to_zero: bool,
    release: int,
    downscale_window: int,
    startup: int,
    lag: int,
    period: int,
    window: int,
    begin: int,
    start: int,
) -> tuple[
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int64],
]: ...
def to_int64(x: float) -> int: ...
def to_int32(x: float) -> int: ...
