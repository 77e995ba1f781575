"""Upstream's own tables on estimators, and from samples to recommendations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kscale._native import _histogram
from kscale.effects import ZERO_TIME
from kscale.objects.selectors import parse_selector
from kscale.vpa import RecommenderOptions, RecommenderState, Usage
from kscale.vpa.model.saved_state import CPU_SAMPLE, MEMORY_SAMPLE, OOM, AggregateStore, add_usage
from kscale.vpa.recommender.estimators import estimate_resources, get_minimum_resources, recommend_pod_resources
from kscale.vpa.resources import scale_amount
from unit.vpa.builders import vpa
from unit.vpa.recorder import DAY, MIB, NAME, T0, Recorder


def estimated(store: AggregateStore, containers: int = 1, **options: Any) -> list[list[int]]:
    created: list[list[int]] = estimate_resources(
        store, np.full(1, containers, np.int64), RecommenderOptions(**options)
    )[0].tolist()
    return created


def store_with(first: int = ZERO_TIME, last: int = ZERO_TIME, samples: int = 0) -> AggregateStore:
    store = AggregateStore(RecommenderOptions())
    store.take_row()
    store.first[0], store.last[0], store.samples[0] = first, last, samples
    return store


@pytest.mark.parametrize(
    ("days", "lower", "upper"),
    [
        (5 / 1440, 0.6027931021179738, 289.0),
        (1 / 24, 0.95367431640625, 25.0),
        (0.5, 0.9960119680798085, 3.0),
        (1, 0.9980029960049943, 2.0),
        (7, 0.9997143469271157, 1.1428571428571428),
        (8, 0.9997500468671889, 1.125),
        (0, 0.0, float("inf")),
    ],
)
def test_confidence_multipliers(days: float, lower: float, upper: float) -> None:
    assert _histogram.confidence_multiplier(days, 0.001, -2.0) == lower
    assert _histogram.confidence_multiplier(days, 1.0, 1.0) == upper


def test_confidence_is_the_lesser_of_time_and_samples() -> None:
    minute = 60 * 10**9
    assert _histogram.confidence(T0, T0 + 16 * minute, 9, DAY) == 0.00625
    assert _histogram.confidence(T0, T0 + 16 * minute, 9, 18 * minute) == 0.5
    assert _histogram.confidence(ZERO_TIME, ZERO_TIME, 0, DAY) == 0.0


@pytest.mark.parametrize(("confidence", "cpu", "memory"), [(0.00625, 907460, 907460000000), (0.5, 4521, 4521600000)])
def test_confidence_multiplies_what_was_used(confidence: float, cpu: int, memory: int) -> None:
    factor = _histogram.confidence_multiplier(confidence, 0.1, 2.0)
    assert (scale_amount(3140, factor), scale_amount(3140000000, factor)) == (cpu, memory)


@pytest.mark.parametrize(("exponent", "expected"), [(1.0, 10**14), (-1.0, 0)])
def test_confidence_of_nothing(exponent: float, expected: int) -> None:
    assert scale_amount(3140, _histogram.confidence_multiplier(0.0, 1.0, exponent)) == expected


def test_safety_margin() -> None:
    assert [base + scale_amount(base, 0.1) for base in (3140, 3140000000)] == [3454, 3454000000]


@pytest.mark.parametrize(("p", "cpu", "memory"), [(0.2, 1.0, 1e9), (0.5, 2.0, 2e9)])
def test_percentiles_of_a_few_samples(p: float, cpu: float, memory: float) -> None:
    store = store_with()
    for i in (1, 2, 3):
        store.cpu.row(0).add_sample(float(i), 1.0, T0)
        store.memory.row(0).add_sample(i * 1e9, 1.0, T0)
    assert store.cpu.row(0).percentile(p) == pytest.approx(cpu, rel=0.05)
    assert store.memory.row(0).percentile(p) == pytest.approx(memory, rel=0.05)


def test_more_than_the_minimum_is_left_alone() -> None:
    store = store_with()
    store.cpu.row(0).add_sample(3.14, 1.0, T0)
    store.memory.row(0).add_sample(4e8, 1.0, T0)
    low = estimated(store, pod_recommendation_min_cpu_millicores=200.0, pod_recommendation_min_memory_mb=19.0)
    none = estimated(store, pod_recommendation_min_cpu_millicores=0.0, pod_recommendation_min_memory_mb=0.0)
    assert [low[0][0], low[1][0]] == [none[0][0], none[1][0]]


@pytest.mark.parametrize("resources", [["memory"], ["cpu", "memory"], []])
def test_controlled_resources(resources: list[str]) -> None:
    """Of several containers, which come out by name."""
    state = RecommenderState()
    one = state.add_pod("default", "pod", {"app": "x"}, "Running", T0)
    for name in ("b", "a"):
        state.add_container(one, name, T0)
    vpa_ = vpa(policies=[{"containerName": "*", "controlledResources": resources}])
    (created,) = recommend_pod_resources(state, [state.add_vpa(vpa_, parse_selector("app=x"))])
    assert [item.container_name for item in created.container_recommendations] == ["a", "b"]
    for item in created.container_recommendations:
        for amounts in (item.target, item.lower_bound, item.upper_bound):
            assert list(amounts or {}) == resources


def test_nothing_is_known() -> None:
    assert estimated(store_with()) == [[25, 25, 25], [262144000] * 3]


@pytest.mark.parametrize(("containers", "cpu", "memory"), [(1, 25, 262144000), (2, 12, 131072000), (3, 8, 87381333)])
def test_minimums(containers: int, cpu: int, memory: int) -> None:
    assert get_minimum_resources(np.array([containers]), RecommenderOptions()).tolist() == [[cpu, memory]]


def test_no_history_gives_the_widest_bounds() -> None:
    store = store_with()
    store.cpu.row(0).add_sample(3.14, 1.0, T0)
    (target, lower, upper), _ = estimated(store)
    assert (lower, upper) == (25, 10**14)
    assert target > 3140


def test_end_to_end_cpu() -> None:
    recorder = Recorder()
    start = 1767582000 * 10**9
    recorder.add(*((start + 1800 * 10**9 * i, 100 + 10 * (i % 12), CPU_SAMPLE) for i in range(48)))
    store = recorder.state.store
    h = store.cpu.row(0)
    assert (h.reference_time, h.total_weight) == (1767571200 * 10**9, 7.497302312729814)
    assert (h.min_bucket, h.max_bucket, h.weights[8]) == (8, 14, 1.161096539906809)
    assert [h.percentile(p) for p in (0.5, 0.9, 0.95)] == [0.17712982846464703, 0.2157856358822734, 0.2157856358822734]
    for time, size in ((1767668400, 300), (1767754800, 350)):  # peaks of two windows
        store.memory.row(0).add_sample(float(size * MIB), 1.0, time * 10**9)
    created = estimated(store)
    assert created == [[247, 191, 7657], [442809964, 417390860, 13727108884]]


def test_end_to_end_a_week() -> None:
    recorder = Recorder()
    start = 1767571200 * 10**9
    events = [(NAME, start + 60 * 10**9 * i, 50 + i % 100, CPU_SAMPLE) for i in range(11520)]
    add_usage(recorder.state, Usage.from_events(events), start)
    h = recorder.state.store.cpu.row(0)
    assert (h.total_weight, h.min_bucket, h.max_bucket) == (52963.01292431593, 4, 11)
    assert estimated(recorder.state.store)[0] == [163, 125, 204]
    assert h.save().bucket_weights == {4: 3562, 5: 7752, 6: 7461, 7: 8057, 8: 8693, 9: 8756, 10: 10000, 11: 4141}


def test_end_to_end_oom() -> None:
    recorder = Recorder()
    recorder.add((T0, 300 * MIB, MEMORY_SAMPLE), (T0, 300 * MIB, OOM))
    assert set(recorder.memory()) == {23}
    assert recorder.state.store.memory.row(0).percentile(0.9) == pytest.approx(445019988, abs=1)
    assert estimated(recorder.state.store)[1][0] == 511772986
