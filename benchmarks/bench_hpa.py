"""HPA decisions: 10,000 HPAs with 20 pods each.

    python -m pytest benchmarks/bench_hpa.py --benchmark-enable

Conditions: columns as :mod:`kscale.hpa.encode` makes them (pods of one HPA in a row, samples in the order of the pods);
100 namespaces; every HPA has a behavior and the histories of a steady run; two threads. Answers are asserted against
the slow path on a sample of the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kscale.effects import SECOND, from_text
from kscale.hpa.behavior import History, Rules
from kscale.hpa.columns import MetricRows, PodTable, SampleTable, TargetColumns, calculate
from kscale.hpa.decide import decide_columns
from kscale.hpa.defaults import apply_defaults
from kscale.hpa.encode import Encoded
from kscale.hpa.memory import ConditionColumns, Memory
from kscale.hpa.options import HPAOptions
from kscale.hpa.pod_groups import PodColumns, SampleColumns
from kscale.hpa.replay import Plant, replay
from kscale.hpa.replay_input import Load
from kscale.hpa.state import Recommendation, ScaleEvent
from kscale.objects.autoscaling import (
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerBehavior,
    HorizontalPodAutoscalerSpec,
    HPAScalingPolicy,
    HPAScalingRules,
    MetricSpec,
    MetricTarget,
    ResourceMetricSource,
)
from kscale.objects.quantity import Quantity

HPAS, PODS = 10_000, 20
NOW = from_text("2026-03-01T12:00:00Z")
OPTIONS = HPAOptions()
THREADS = 2


@pytest.fixture(scope="module")
def world() -> dict[str, Any]:
    rng = np.random.default_rng(7)
    n = HPAS * PODS
    pods = PodColumns(
        np.full(n, 2, np.uint8),
        np.zeros(n, np.uint8),
        np.ones(n, np.uint8),
        np.ones(n, np.uint8),
        np.full(n, NOW - 3600 * SECOND, np.int64),
        np.full(n, NOW - 3000 * SECOND, np.int64),
    )
    pods.phase[rng.random(n) < 0.02] = 1
    pods.ready[rng.random(n) < 0.03] = 2
    usage = rng.integers(100, 900, n)
    keys = [f"ns-{hpa % 100}/web-{hpa}-{pod}" for hpa in range(HPAS) for pod in range(PODS)]
    time = np.full(n, NOW - 10 * SECOND, np.int64)
    window = np.full(n, 15 * SECOND, np.int64)
    begin = np.arange(HPAS, dtype=np.int64) * PODS
    one = np.ones(HPAS, np.int64)
    rows = MetricRows(
        mode=np.zeros(HPAS, np.uint8),
        cpu=np.ones(HPAS, np.uint8),
        given=np.zeros(HPAS, np.uint8),
        invalid=np.zeros(HPAS, np.uint8),
        current=np.full(HPAS, PODS, np.int32),
        target=np.full(HPAS, 50, np.int64),
        down=np.full(HPAS, 0.1),
        up=np.full(HPAS, 0.1),
        pods_begin=begin,
        pods_end=begin + PODS,
        samples=begin,
        requests=begin,
        bad_request=np.full(HPAS, -1, np.int32),
        extra_count=one * 0,
        extra_sum=one * 0,
        values_begin=one * 0,
        values_end=one * 0,
    )
    policies = [
        HPAScalingPolicy(type="Pods", value=4, period_seconds=60),
        HPAScalingPolicy(type="Percent", value=50, period_seconds=60),
    ]
    up = Rules.of([HPAScalingRules(select_policy="Max", policies=policies)] * HPAS, 0)
    down = Rules.of([HPAScalingRules(select_policy="Max", policies=policies)] * HPAS, 300)
    targets = TargetColumns(
        scale_error=np.zeros(HPAS, np.uint8),
        current=np.full(HPAS, PODS, np.int32),
        minimum=np.full(HPAS, 2, np.int32),
        maximum=np.full(HPAS, 100, np.int32),
        object_metric=np.zeros(HPAS, np.uint8),
        behavior=np.ones(HPAS, np.uint8),
        selector_error=np.zeros(HPAS, np.uint8),
        fresh=np.zeros(HPAS, np.uint8),
        metrics_begin=np.arange(HPAS, dtype=np.int64),
        metrics_end=np.arange(HPAS, dtype=np.int64) + 1,
    )
    past = [Recommendation(PODS, NOW - age * 15 * SECOND) for age in range(21, 0, -1)]
    changes = [ScaleEvent(2, NOW - 45 * SECOND)]
    memory = Memory(
        np.zeros(HPAS, np.uint8),
        History.recommendations([past] * HPAS),
        History.events([changes] * HPAS),
        History.events([()] * HPAS),
        ConditionColumns(
            np.ones((HPAS, 4), np.uint8), np.zeros((HPAS, 4), np.uint8), np.full((HPAS, 4), NOW - SECOND, np.int64)
        ),
    )
    samples = SampleColumns(np.ones(n, np.uint8), usage.astype(np.int64), time, window)
    requests = np.full(n, 1000, np.int64)
    encoded = Encoded(targets, rows, pods, samples, requests, np.empty(0, np.int64), up, down)
    return {"encoded": encoded, "memory": memory, "keys": keys, "usage": samples.value, "time": time, "window": window}


def test_replica_calculation(benchmark: Any, world: dict[str, Any]) -> None:
    """Target: 2 ms."""
    given: Encoded = world["encoded"]
    found = benchmark(
        calculate,
        given.rows,
        given.pods,
        given.samples,
        given.requests,
        given.values,
        options=OPTIONS,
        now=NOW,
        threads=THREADS,
    )
    assert found.error.max() == 0
    for row in range(0, HPAS, 997):
        here = slice(row * PODS, (row + 1) * PODS)
        counted = given.pods.phase[here] == 2  # old pods: one that is not ready was ready once
        assert found.utilization[row] == given.samples.value[here][counted].sum() * 100 // (1000 * counted.sum())


@pytest.mark.parametrize("order", ["listed", "shuffled"])
def test_join_samples_by_name(benchmark: Any, world: dict[str, Any], order: str) -> None:
    """Target: 60 ms in full, in the order in which APIs list (by name), pods' index included."""
    keys = world["keys"]
    chosen = np.arange(len(keys)) if order == "listed" else np.random.default_rng(3).permutation(len(keys))
    given = [keys[i] for i in chosen]
    usage, time, window = world["usage"][chosen], world["time"], world["window"]

    def join() -> SampleTable:
        table = SampleTable(PodTable(keys))
        table.update(given, usage, time, window)
        return table

    table = benchmark(join)
    assert np.array_equal(table.columns.value, world["usage"])


def test_join_the_same_pods_again(benchmark: Any, world: dict[str, Any]) -> None:
    """The next scrape: the same names, other values."""
    keys = world["keys"]
    table = SampleTable(PodTable(keys))
    table.update(keys, world["usage"], world["time"], world["window"])
    benchmark(table.update, keys, world["usage"], world["time"], world["window"])
    assert np.array_equal(table.columns.value, world["usage"])


def test_join_one_percent_of_changes(benchmark: Any, world: dict[str, Any]) -> None:
    """Target: in proportion to the changes."""
    keys = world["keys"]
    table = SampleTable(PodTable(keys))
    table.update(keys, world["usage"], world["time"], world["window"])
    changed = keys[::100]
    value = np.full(len(changed), 5, np.int64)
    unknown = benchmark(table.update, changed, value, world["time"][: len(changed)], world["window"][: len(changed)])
    assert not len(unknown)
    assert table.columns.value[0] == 5


def test_full_reconcile(benchmark: Any, world: dict[str, Any]) -> None:
    """Target: 20 ms."""
    given: Encoded = world["encoded"]
    found = benchmark(decide_columns, given, world["memory"], now=NOW, options=OPTIONS, threads=THREADS)
    assert len(found) == HPAS
    single = decide_columns(given, world["memory"], now=NOW, options=OPTIONS, threads=1)
    assert np.array_equal(found.desired, single.desired)
    assert found.rescaled.sum() > 0
    assert (found.memory.past.size == 22 - 1).any() or (found.memory.past.size == 22).any()


def test_replay_of_a_week(benchmark: Any) -> None:
    """Target: 0.5 s for one HPA over 7 days at 15 s."""
    week = 7 * 24 * 3600
    time = NOW + np.arange(0, week, 60, dtype=np.int64) * SECOND
    load = 20 + 15 * np.sin(np.arange(len(time)) * 2 * np.pi / 1440)
    target = MetricTarget(type="Utilization", average_utilization=60)
    spec = HorizontalPodAutoscalerSpec(
        scale_target_ref=CrossVersionObjectReference(kind="Deployment", name="web", api_version="apps/v1"),
        max_replicas=200,
        metrics=[MetricSpec(type="Resource", resource=ResourceMetricSource(name="cpu", target=target))],
        behavior=HorizontalPodAutoscalerBehavior(),
    )
    hpa = apply_defaults(HorizontalPodAutoscaler(spec=spec))
    found = benchmark(replay, hpa, Load(time, load), Plant(request=Quantity("1")))
    assert len(found.time) == (week - 60) // 15 + 1
    # Afloat at the crest: what 35 cores need at 60 %, within the tolerance.
    assert 35 / 0.6 / 1.1 - 1 <= found.replicas.max() <= 35 / 0.6 * 1.1 + 1
