"""A decaying histogram, sample aggregation and the estimators, one container at a time, as obvious as they get.

Times and durations are nanoseconds; None is Go's zero time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from reference import vpa_gomath as go

YEAR_ONE = -62135596800 * 10**9
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def wrap(n: int) -> int:
    return (n + 2**63) % 2**64 - 2**63


@dataclass(frozen=True)
class Scheme:
    max_value: float
    first: float
    ratio: float
    epsilon: float

    def index(self, x: float) -> float:
        return go.log(x * (self.ratio - 1) / self.first + 1) / go.log(self.ratio)

    @property
    def size(self) -> int:
        return go.to_int64(math.ceil(self.index(self.max_value))) + 1

    def find(self, value: float) -> int:
        if value < self.first:
            return 0
        return min(go.to_int64(self.index(value)), self.size - 1)

    def start(self, bucket: int) -> float:
        if bucket == 0:
            return 0.0
        return self.first * (go.power(self.ratio, float(bucket)) - 1) / (self.ratio - 1)


CPU = Scheme(1000.0, 0.01, 1.0 + 0.05, 0.001 * 0.1)
MEMORY = Scheme(1e12, 1e7, 1.0 + 0.05, 0.001 * 0.1)


class Histogram:
    def __init__(self, scheme: Scheme, half_life: int = 0) -> None:
        self.scheme = scheme
        self.half_life = half_life
        self.weights = [0.0] * scheme.size
        self.total = 0.0
        self.min = scheme.size - 1
        self.max = 0
        self.reference: int | None = None

    def tighten(self) -> None:
        while self.weights[self.min] < self.scheme.epsilon and self.min < self.scheme.size - 1:
            self.min += 1
        while self.weights[self.max] < self.scheme.epsilon and self.max > 0:
            self.max -= 1

    def scale(self, factor: float) -> None:
        for b in range(self.min, self.max + 1):
            self.weights[b] *= factor
        self.total *= factor
        self.tighten()

    def shift(self, time: int) -> None:
        rest = (time - YEAR_ONE) % self.half_life
        new = time - rest if 2 * rest < self.half_life else time + self.half_life - rest
        old = YEAR_ONE if self.reference is None else self.reference
        distance = max(INT64_MIN, min(INT64_MAX, old - new))
        self.scale(go.ldexp(1.0, math.floor(float(distance) / float(self.half_life) + 0.5)))
        self.reference = new

    def factor(self, time: int) -> float:
        if self.half_life == 0:
            return 1.0
        if self.reference is None or time > self.reference + wrap(self.half_life * 100):
            self.shift(time)
        assert self.reference is not None
        return go.exp2(float(time - self.reference) / float(self.half_life))

    def add(self, value: float, weight: float, time: int = 0) -> None:
        weight = weight * self.factor(time)
        b = self.scheme.find(value)
        self.weights[b] += weight
        self.total += weight
        if self.weights[b] >= self.scheme.epsilon:
            self.min = min(self.min, b)
            self.max = max(self.max, b)

    def subtract(self, value: float, weight: float, time: int = 0) -> None:
        weight = weight * self.factor(time)
        b = self.scheme.find(value)
        for_total, for_bucket = self.total - weight, self.weights[b] - weight
        self.total = 0.0 if for_total < self.scheme.epsilon else for_total
        self.weights[b] = 0.0 if for_bucket < self.scheme.epsilon else for_bucket
        self.tighten()

    @property
    def empty(self) -> bool:
        return self.weights[self.min] < self.scheme.epsilon

    def percentile(self, p: float) -> float:
        if self.empty:
            return 0.0
        threshold = p * self.total
        total = 0.0
        b = self.min
        while b < self.max:
            total += self.weights[b]
            if total >= threshold:
                break
            b += 1
        return self.scheme.start(b + 1 if b < self.scheme.size - 1 else b)

    def merge(self, other: Histogram) -> None:
        if self.half_life and self.reference != other.reference:
            if self.reference is None or (other.reference is not None and self.reference < other.reference):
                assert other.reference is not None
                self.shift(other.reference)
            else:
                other.shift(self.reference)
        for b in range(other.min, other.max + 1):
            self.weights[b] += other.weights[b]
        self.total += other.total
        self.min = min(self.min, other.min)
        self.max = max(self.max, other.max)

    def save(self) -> dict[int, int]:
        span = range(self.min, self.max + 1)
        heaviest = max((self.weights[b] for b in span), default=0.0)
        if not heaviest:
            return {}
        saved = {b: math.floor(self.weights[b] * (10000.0 / heaviest) + 0.5) for b in span}
        return {b: w for b, w in saved.items() if w > 0}

    def load(self, weights: dict[int, int], total: float, reference: int | None) -> None:
        units = sum(weights.values())
        if units:
            for b, w in weights.items():
                self.min = min(self.min, b)
                self.max = max(self.max, b)
                self.weights[b] += w * (total / float(units))
            self.total += total
            self.tighten()
        if self.half_life:
            self.reference = reference


def amount(x: float) -> int:
    if x > 1e14:
        return 10**14
    if x < 0:
        return 0
    return go.to_int64(x)


@dataclass
class Aggregate:
    """What all containers of one name and label set share."""

    half_life: int
    interval: int
    oom_ratio: float = 1.2
    oom_min_bump: float = 104857600.0
    first: int | None = None
    last: int | None = None
    samples: int = 0
    cpu: Histogram = field(init=False)
    memory: Histogram = field(init=False)

    def __post_init__(self) -> None:
        self.cpu = Histogram(CPU, self.half_life)
        self.memory = Histogram(MEMORY, self.half_life)


@dataclass
class Container:
    aggregate: Aggregate
    last_cpu: int | None = None
    last_memory: int | None = None
    window_end: int | None = None
    memory_peak: int = 0
    oom_peak: int = 0

    def add_cpu(self, time: int, millicores: int) -> str:
        if millicores < 0 or (self.last_cpu is not None and time <= self.last_cpu):
            return "discarded"
        a = self.aggregate
        a.cpu.add(millicores / 1000.0, 0.1, time)
        a.last = time if a.last is None else max(a.last, time)
        a.first = time if a.first is None else min(a.first, time)
        a.samples += 1
        self.last_cpu = time
        return "accepted"

    def add_memory(self, time: int, size: int, oom: bool = False) -> str:
        a = self.aggregate
        if size < 0 or (not oom and self.last_memory is not None and time < self.last_memory):
            return "discarded"
        self.last_memory = time
        if self.window_end is None:
            self.window_end = time
        new = False
        if time < self.window_end:
            old = max(self.memory_peak, self.oom_peak)
            if old != 0 and size > old:
                a.memory.subtract(float(old), 1.0, self.window_end)
                new = True
        else:
            self.window_end += (time - self.window_end) // a.interval * a.interval + a.interval
            self.memory_peak = self.oom_peak = 0
            new = True
        if new:
            a.memory.add(float(size), 1.0, self.window_end)
            if oom:
                self.oom_peak = size
            else:
                self.memory_peak = size
        return "accepted"

    def record_oom(self, time: int, requested: int) -> str:
        a = self.aggregate
        if self.last_memory is not None and time < self.last_memory - a.interval:
            return "too old"
        used = max(requested, self.memory_peak)
        needed = max(used + amount(a.oom_min_bump), amount(float(used) * a.oom_ratio))
        return self.add_memory(time, needed, oom=True)


def confidence(a: Aggregate, interval: int) -> float:
    first, last = (YEAR_ONE if t is None else t for t in (a.first, a.last))
    minutes = float(interval // 60_000_000_000) + float(interval % 60_000_000_000) / (60 * 1e9)
    return min(float(last - first) / float(interval), float(a.samples) / minutes)


def divide(a: float, b: float) -> float:
    return a / b if b else math.inf


def times(a: float, b: float) -> float:
    return a * b


def recommend(
    a: Aggregate, percentiles: list[list[float]], interval: int, margin: float, minimum: list[int]
) -> list[list[int]]:
    """[resource][target, lower, upper]"""
    sure = confidence(a, interval)
    result = []
    for resource in range(2):
        line = []
        for which in range(3):
            p = percentiles[resource][which]
            value = amount(a.cpu.percentile(p) * 1000.0) if resource == 0 else amount(a.memory.percentile(p))
            value += amount(float(value) * margin)
            if which == 1:
                value = amount(float(value) * go.power(1.0 + divide(0.001, sure), -2.0))
            if which == 2:
                value = amount(float(value) * go.power(1.0 + divide(1.0, sure), 1.0))
            line.append(max(value, minimum[resource]))
        result.append(line)
    return result
