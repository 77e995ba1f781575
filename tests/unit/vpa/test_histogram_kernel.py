"""The kernels against the plain Python reference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale._native import _histogram as native
from kscale.effects import ZERO_TIME
from kscale.errors import NativeError
from kscale.vpa.model.histogram import (
    CPU_HISTOGRAM_OPTIONS,
    MEMORY_HISTOGRAM_OPTIONS,
    Histogram,
    HistogramError,
    Histograms,
)
from reference import vpa_gomath as go
from reference import vpa_histogram as plain

HOUR = 3600 * 10**9
DAY = 24 * HOUR
START = 1767582000 * 10**9  # 2026-01-05T03:00:00Z


@given(st.floats(1e-300, 1e300))
def test_log(x: float) -> None:
    assert native.go_log(x) == go.log(x)


@given(st.floats(-1100, 1100))
def test_exp2(x: float) -> None:
    assert native.go_exp2(x) == go.exp2(x)


@given(st.floats(1e-10, 1e10), st.integers(-200, 200))
def test_pow(x: float, y: int) -> None:
    assert native.go_pow(x, float(y)) == go.power(x, float(y))


def test_special_values_of_go_math() -> None:
    assert native.go_log(0.0) == -math.inf
    assert math.isnan(native.go_log(-1.0))
    assert native.go_exp2(-math.inf) == 0.0
    assert native.go_exp2(2000.0) == math.inf
    assert native.go_pow(math.inf, -2.0) == 0.0
    assert native.go_pow(math.inf, 1.0) == math.inf
    assert native.go_int64(math.nan) == native.go_int64(1e300) == -(2**63)
    with pytest.raises(NativeError, match="integral"):
        native.go_pow(2.0, 0.5)


def near_starts(scheme: plain.Scheme) -> st.SearchStrategy[float]:
    nudges = st.sampled_from([0.0, 2.3e-16, -2.3e-16, 1e-13, -1e-13, 1e-11, -1e-11, 1e-9, -1e-9])
    at = st.builds(lambda b, d: scheme.start(b) * (1 + d), st.integers(0, scheme.size - 1), nudges)
    return at | st.floats(0, scheme.max_value * 3) | st.floats(allow_nan=True, allow_infinity=True)


@given(near_starts(plain.CPU), near_starts(plain.MEMORY))
def test_find_bucket_by_table(cores: float, memory: float) -> None:
    assert CPU_HISTOGRAM_OPTIONS.find_buckets([cores]).tolist() == [plain.CPU.find(cores)]
    assert MEMORY_HISTOGRAM_OPTIONS.find_buckets([memory]).tolist() == [plain.MEMORY.find(memory)]


def test_bucket_starts() -> None:
    for options, scheme in ((CPU_HISTOGRAM_OPTIONS, plain.CPU), (MEMORY_HISTOGRAM_OPTIONS, plain.MEMORY)):
        assert options.num_buckets == scheme.size == 176
        assert [options.bucket_start(b) for b in range(176)] == [scheme.start(b) for b in range(176)]


def same(ours: Histogram, reference: plain.Histogram) -> None:
    assert ours.weights.tolist() == reference.weights
    assert (ours.total_weight, ours.min_bucket, ours.max_bucket) == (reference.total, reference.min, reference.max)
    assert ours.reference_time == (ZERO_TIME if reference.reference is None else reference.reference)
    assert ours.is_empty == reference.empty
    for p in (-0.5, 0.0, 0.5, 0.9, 0.95, 1.0, 1.5):
        assert ours.percentile(p) == reference.percentile(p)


times = st.integers(START - 400 * DAY, START + 400 * DAY) | st.integers(START, START + 3 * DAY)
values = st.floats(-1, 1200) | st.floats(0, 2)
weights = st.sampled_from([0.0, 1e-5, 4e-5, 1e-4, 0.1, 1.0]) | st.floats(0, 2)
operations = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["add", "subtract"]), st.integers(0, 2), values, weights, times),
        st.tuples(st.just("merge"), st.integers(0, 2), st.integers(0, 2)),
        st.tuples(st.just("transfer"), st.integers(0, 2), st.integers(0, 2)),
        st.tuples(st.just("scale"), st.integers(0, 2), st.floats(0, 2)),
    ),
    max_size=40,
)


@given(operations, st.sampled_from([0, HOUR, DAY, 3 * DAY + 7, 2000 * DAY]))
def test_operations(steps: list[tuple[Any, ...]], half_life: int) -> None:
    bank = Histograms(CPU_HISTOGRAM_OPTIONS, 3, half_life)
    references = [plain.Histogram(plain.CPU, half_life) for _ in range(3)]
    for name, i, *rest in steps:
        ours, reference = bank.row(i), references[i]
        if name == "add":
            ours.add_sample(*rest)
            reference.add(*rest)
        elif name == "subtract":
            ours.subtract_sample(*rest)
            reference.subtract(*rest)
        elif name == "merge":
            ours.merge(bank.row(rest[0]))
            reference.merge(references[rest[0]])
        elif name == "scale":
            ours.scale(rest[0])
            reference.scale(rest[0])
        else:
            saved = ours.save()
            assert saved.bucket_weights == reference.save()
            ref = None if saved.reference_time == ZERO_TIME else saved.reference_time
            bank.row(rest[0]).load(saved.bucket_weights, saved.total_weight, saved.reference_time)
            references[rest[0]].load(saved.bucket_weights, saved.total_weight, ref)
    for i in range(3):
        same(bank.row(i), references[i])


@given(
    st.lists(st.tuples(st.integers(0, 3), values, weights, times), max_size=60),
    st.sampled_from([0, HOUR, DAY]),
)
def test_batch_is_one_by_one(samples: list[tuple[int, float, float, int]], half_life: int) -> None:
    batch, single = Histograms(CPU_HISTOGRAM_OPTIONS, 4, half_life), Histograms(CPU_HISTOGRAM_OPTIONS, 4, half_life)
    if samples:
        batch.add_samples(*zip(*samples, strict=True))
    for row, *sample in samples:
        single.row(row).add_sample(*sample)
    for name in ("weights", "total", "min_bucket", "max_bucket", "reference"):
        assert np.array_equal(getattr(batch, name), getattr(single, name))
    assert batch.percentiles(0.9).tolist() == [single.row(i).percentile(0.9) for i in range(4)]


def test_invalid_arguments_are_refused() -> None:
    bank = Histograms(CPU_HISTOGRAM_OPTIONS, 2, DAY)
    with pytest.raises(NativeError, match="histogram 2 of 2"):
        bank.add_samples([2], [1.0], [1.0], [START])
    with pytest.raises(NativeError, match="1823"):
        bank.add_samples([0], [1.0], [1.0], [2**63 - 1])
    with pytest.raises(HistogramError, match="out of range"):
        bank.add_samples([0, 0], [1.0, math.inf], [1.0, 1.0], [START, START])
    with pytest.raises(HistogramError, match="sample weight must be non-negative"):
        bank.add_samples([0, 0], [1.0, 1.0], [1.0, -1.0], [START, START])
    with pytest.raises(NativeError, match="unequal"):
        bank.add_samples([0, 0], [1.0], [1.0], [START])
    with pytest.raises(HistogramError, match="scale"):
        bank.row(0).scale(-1.0)
    with pytest.raises(NativeError, match="linear buckets"):
        native.Buckets.linear(1e12, 1.0, 1.0)
    assert bank.row(0).is_empty
