"""HPA decisions: 10,000 HPAs, through the public function with 100,000 pods of a cluster, and kernels over 200,000.

    python -m pytest benchmarks/bench_hpa.py --benchmark-enable

``KSCALE_BENCH_SCALE`` (default 1) multiplies the numbers of HPAs and pods, and the targets with them.

The public function (``hpa.decide``): HPAs and scales as structs, pods in a ``Cluster``, one list of pod metrics.
JSON decoding is measured separately. ``cold``: no earlier round; ``next_round``: 1 % of the pods have new metrics and
1 % of the HPAs and scales are other objects. Kernels: columns as :mod:`kscale.hpa.batch.inputs` builds them, 100
namespaces; every HPA has a behavior and the histories of a steady run; two threads. Answers are asserted on a sample
of the rows.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import kscale
from kscale._native._names import NameTable
from kscale.effects import SECOND, Action, GetMetric, GetScale, Outcome, from_text, run_virtually
from kscale.hpa.api.validation import apply_defaults
from kscale.hpa.batch.columns import (
    ConditionColumns,
    KernelState,
    MetricRows,
    StateStore,
    TargetColumns,
    calculate_rows,
)
from kscale.hpa.batch.decisions import Decisions, decide, decide_columns
from kscale.hpa.batch.inputs import BatchColumns
from kscale.hpa.batch.reconcile_all import BatchResult, reconcile_all
from kscale.hpa.batch.requests import MetricLists
from kscale.hpa.controller.behavior import HistoryColumns, ScalingRuleColumns, StateColumns
from kscale.hpa.controller.replica_calculator import PodColumns, SampleColumns
from kscale.hpa.controller.scale_target import SelectorStore
from kscale.hpa.controller.state import Recommendation, ScaleEvent
from kscale.hpa.dump.reader import read_dump
from kscale.hpa.dump.report import hpa_report
from kscale.hpa.options import HPAOptions
from kscale.hpa.replay import Load, Plant, replay
from kscale.objects.api.autoscaling import (
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerBehavior,
    HorizontalPodAutoscalerSpec,
    HPAScalingPolicy,
    HPAScalingRules,
    MetricSpec,
    MetricTarget,
    ResourceMetricSource,
    Scale,
    ScaleSpec,
    ScaleStatus,
)
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.kinds import RESTMapper
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.quantity import Quantity

SCALE = float(os.environ.get("KSCALE_BENCH_SCALE", "1"))
HPAS, PODS = max(100, round(10_000 * SCALE)), 20
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
        failure=np.zeros(HPAS, np.uint8),
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
    up = ScalingRuleColumns.from_rules([HPAScalingRules(select_policy="Max", policies=policies)] * HPAS, 0)
    down = ScalingRuleColumns.from_rules([HPAScalingRules(select_policy="Max", policies=policies)] * HPAS, 300)
    targets = TargetColumns(
        scale_error=np.zeros(HPAS, np.uint8),
        current=np.full(HPAS, PODS, np.int32),
        minimum=np.full(HPAS, 2, np.int32),
        maximum=np.full(HPAS, 100, np.int32),
        object_metric=np.zeros(HPAS, np.uint8),
        behavior=np.ones(HPAS, np.uint8),
        selector_error=np.zeros(HPAS, np.uint8),
        refused=np.zeros(HPAS, np.uint8),
        fresh=np.zeros(HPAS, np.uint8),
        metrics_begin=np.arange(HPAS, dtype=np.int64),
        metrics_end=np.arange(HPAS, dtype=np.int64) + 1,
    )
    past = [Recommendation(PODS, NOW - age * 15 * SECOND) for age in range(21, 0, -1)]
    changes = [ScaleEvent(2, NOW - 45 * SECOND)]
    memory = KernelState(
        StateColumns(
            np.zeros(HPAS, np.uint8),
            HistoryColumns.recommendations([past] * HPAS),
            HistoryColumns.events([changes] * HPAS),
            HistoryColumns.events([()] * HPAS),
        ),
        ConditionColumns(
            np.ones((HPAS, 4), np.uint8), np.zeros((HPAS, 4), np.uint8), np.full((HPAS, 4), NOW - SECOND, np.int64)
        ),
    )
    samples = SampleColumns(np.ones(n, np.uint8), usage.astype(np.int64), time, window)
    requests = np.full(n, 1000, np.int64)
    encoded = BatchColumns(targets, rows, pods, samples, requests, np.empty(0, np.int64), up, down)
    return {"encoded": encoded, "memory": memory, "keys": keys, "usage": samples.value, "time": time, "window": window}


PODS_PER_HPA = 10  # of each HPA


def pod_name(hpa: int, pod: int) -> str:
    return f"web-{hpa}-{pod}"


def pod_metrics(usage: NDArray[np.int64], which: NDArray[np.int64]) -> bytes:
    items = [
        {
            "metadata": {
                "name": pod_name(*divmod(pod, PODS_PER_HPA)),
                "namespace": f"ns-{pod // PODS_PER_HPA % 100}",
                "labels": {"app": f"web-{pod // PODS_PER_HPA}"},
            },
            "timestamp": "2026-03-01T11:59:50Z",
            "window": "15.1s",
            "containers": [{"name": "main", "usage": {"cpu": f"{used}m", "memory": "10Mi"}}],
        }
        for pod, used in zip(which.tolist(), usage.tolist(), strict=True)
    ]
    return json.dumps({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": items}).encode()


def cluster_pods() -> bytes:
    items = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": pod_name(hpa, pod),
                "namespace": f"ns-{hpa % 100}",
                "labels": {"app": f"web-{hpa}"},
            },
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}]},
            "status": {
                "phase": "Running",
                "startTime": "2026-03-01T10:00:00Z",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T10:00:20Z"}],
            },
        }
        for hpa in range(HPAS)
        for pod in range(PODS_PER_HPA)
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()


def an_hpa(number: int) -> HorizontalPodAutoscaler:
    name, since = f"web-{number}", "2026-03-01T11:00:00Z"
    conditions = [("AbleToScale", "ReadyForNewScale"), ("ScalingActive", "ValidMetricFound")]
    document = {
        "metadata": {"name": name, "namespace": f"ns-{number % 100}", "uid": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 2,
            "maxReplicas": 100,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
                }
            ],
        },
        "status": {
            "currentReplicas": PODS_PER_HPA,
            "desiredReplicas": PODS_PER_HPA,
            "conditions": [
                {"type": type_, "status": "True", "reason": reason, "lastTransitionTime": since}
                for type_, reason in conditions
            ],
        },
    }
    return apply_defaults(from_dict(document, HorizontalPodAutoscaler))


def a_scale(number: int) -> Scale:
    return Scale(
        spec=ScaleSpec(replicas=PODS_PER_HPA), status=ScaleStatus(replicas=PODS_PER_HPA, selector=f"app=web-{number}")
    )


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    pods = np.arange(HPAS * PODS_PER_HPA)
    usage = np.random.default_rng(7).integers(100, 900, len(pods))
    return {
        "hpas": [an_hpa(number) for number in range(HPAS)],
        "scales": {f"ns-{number % 100}/web-{number}": a_scale(number) for number in range(HPAS)},
        "usage": usage,
        "metrics": pod_metrics(usage, pods),
        "pods": cluster_pods(),
    }


def check_sizes(decisions: Decisions, usage: NDArray[np.int64]) -> None:
    """cpu 50 % of 1 core a pod, tolerance 0.1, at most twice the size."""
    for row in range(0, HPAS, 97):
        percent = int(usage[row * PODS_PER_HPA : (row + 1) * PODS_PER_HPA].sum()) * 100 // (1000 * PODS_PER_HPA)
        ratio = percent / 50
        expected = PODS_PER_HPA if 0.9 <= ratio <= 1.1 else math.ceil(ratio * PODS_PER_HPA)
        assert decisions.proposal[row] == expected
        assert decisions.desired[row] == max(
            PODS_PER_HPA, min(expected, 2 * PODS_PER_HPA)
        )  # a fresh controller does not shrink


def test_read_pod_metrics(benchmark: Any, objects: dict[str, Any]) -> None:
    """The JSON of 100,000 pods."""
    usage = benchmark.pedantic(PodUsage.from_json, (objects["metrics"],), rounds=3)
    assert len(usage) == HPAS * PODS_PER_HPA


def test_decide_cold(benchmark: Any, objects: dict[str, Any]) -> None:
    """Target: 150 ms."""

    def before() -> tuple[tuple[Any, ...], dict[str, Any]]:
        metrics = MetricLists()
        metrics.read_pod_metrics(objects["metrics"])
        return (objects["hpas"], objects["scales"], kscale.load(objects["pods"]), metrics), {"now": NOW}

    result = benchmark.pedantic(decide, setup=before, rounds=3)
    check_sizes(result, objects["usage"])


def test_decide_next_round(benchmark: Any, objects: dict[str, Any]) -> None:
    """Target: 10 ms for 1 % of changes."""
    cluster, metrics = kscale.load(objects["pods"]), MetricLists()
    metrics.read_pod_metrics(objects["metrics"])
    hpas, scales, usage = list(objects["hpas"]), dict(objects["scales"]), objects["usage"].copy()
    rng = np.random.default_rng(11)
    last = [decide(hpas, scales, cluster, metrics, now=NOW)]

    def before() -> tuple[tuple[Any, ...], dict[str, Any]]:
        pods = rng.choice(len(usage), len(usage) // 100, replace=False)
        usage[pods] = rng.integers(100, 900, len(pods))
        metrics.replace_pod_metrics(metrics.usage().with_changes(PodUsage.from_json(pod_metrics(usage[pods], pods))))
        for number in rng.choice(HPAS, HPAS // 100, replace=False).tolist():
            hpas[number], scales[f"ns-{number % 100}/web-{number}"] = an_hpa(number), a_scale(number)
        return (hpas, scales, cluster, metrics), {"now": NOW, "previous": last[-1]}

    def run(*arguments: Any, **more: Any) -> Decisions:
        last.append(decide(*arguments, **more))
        return last[-1]

    result = benchmark.pedantic(run, setup=before, rounds=5)
    percent = usage.reshape(HPAS, PODS_PER_HPA).sum(1) * 100 // (1000 * PODS_PER_HPA)
    proposal = np.where((percent >= 45) & (percent <= 55), PODS_PER_HPA, np.ceil(percent / 50 * PODS_PER_HPA))
    assert np.array_equal(result.proposal.filled(-1)[::97], proposal[::97])


@pytest.mark.parametrize("order", ["by_kind", "by_application"])
def test_report_of_a_dump(benchmark: Any, tmp_path: Path, order: str) -> None:
    """What ``kscale hpa`` answers from files of 2,000 HPAs and 20,000 pods with their metrics. Target: 0.6 s.

    ``by_application``: each Deployment with its HPA, its pods and the usage of each, in one list.
    """
    hpas = min(2000, HPAS)
    items = json.loads(cluster_pods())["items"][: hpas * PODS_PER_HPA]
    for number in range(hpas):
        name, namespace = f"web-{number}", f"ns-{number % 100}"
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main"}]}}
        spec = {"replicas": PODS_PER_HPA, "selector": {"matchLabels": labels}, "template": template}
        metadata = {"name": name, "namespace": namespace}
        items.append({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
        items.append({**to_dict(an_hpa(number)), "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"})
    usage = np.random.default_rng(7).integers(100, 900, hpas * PODS_PER_HPA)
    metrics = pod_metrics(usage, np.arange(len(usage)))
    files = [tmp_path / "cluster.json"]
    if order == "by_kind":
        files.append(tmp_path / "metrics.json")
        files[1].write_bytes(metrics)
    else:
        head = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics"}
        usage_items = [{**head, **each} for each in json.loads(metrics)["items"]]
        pods, others = items[: hpas * PODS_PER_HPA], items[hpas * PODS_PER_HPA :]
        pairs = [each for pair in zip(pods, usage_items, strict=True) for each in pair]
        size = 2 * PODS_PER_HPA
        items = [
            each
            for number in range(hpas)
            for each in (*others[2 * number : 2 * number + 2], *pairs[size * number : size * (number + 1)])
        ]
    files[0].write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    report = benchmark.pedantic(lambda: hpa_report(read_dump(*map(str, files)), now=NOW), rounds=2)
    assert len(report.hpas) == hpas
    assert report.hpas[0].current_replicas == PODS_PER_HPA


def test_reconcile_all(benchmark: Any, objects: dict[str, Any]) -> None:
    """A sync of 10,000 HPAs with 100,000 pods as a live driver runs it, without HTTP: every status is another than
    before, 5 % of the sizes too. Target: 2 s."""
    hpas, scales, cluster = objects["hpas"], objects["scales"], kscale.load(objects["pods"])
    store = SelectorStore()
    for hpa in hpas:
        store.put_if_absent(hpa.metadata.namespace, hpa.metadata.name)
        scales[hpa.key].metadata.namespace, scales[hpa.key].metadata.name = hpa.metadata.namespace, hpa.metadata.name
    usage = np.random.default_rng(3).integers(460, 540, HPAS * PODS_PER_HPA)
    usage[: HPAS * PODS_PER_HPA // 20] = 900
    pods = np.arange(HPAS * PODS_PER_HPA)
    texts = {
        f"ns-{number}": pod_metrics(usage[of], pods[of])
        for number in range(100)
        for of in [pods // PODS_PER_HPA % 100 == number]
    }
    counts: Counter[str] = Counter()

    def perform(action: Action, at: int) -> Outcome:
        counts[type(action).__name__] += 1
        if isinstance(action, GetMetric):
            return Outcome(at=at, value=PodUsage.from_json(texts[action.namespace]))
        if isinstance(action, GetScale):
            return Outcome(at=at, value=scales[f"{action.namespace}/{action.name}"])
        return Outcome(at=at)

    def sync() -> BatchResult:
        counts.clear()
        steps = reconcile_all(
            hpas, StateStore(), cluster, scales=scales, now=NOW, options=OPTIONS, selectors=store, mapper=RESTMapper()
        )
        result: BatchResult = run_virtually(lambda _: steps, perform, now=NOW)
        return result

    result = benchmark.pedantic(sync, rounds=2)
    assert len(result.keys) == HPAS
    assert (counts["WriteStatus"], counts["PutScale"], counts["GetMetric"]) == (HPAS, HPAS // 20, 100)


def test_kernel_replica_calculation(benchmark: Any, world: dict[str, Any]) -> None:
    """Target: 2 ms."""
    batch_columns: BatchColumns = world["encoded"]
    result = benchmark(
        calculate_rows,
        batch_columns.rows,
        batch_columns.pods,
        batch_columns.samples,
        batch_columns.requests,
        batch_columns.values,
        options=OPTIONS,
        now=NOW,
        threads=THREADS,
    )
    assert result.error.max() == 0
    for row in range(0, HPAS, 997):
        here = slice(row * PODS, (row + 1) * PODS)
        counted = batch_columns.pods.phase[here] == 2  # old pods: one that is not ready was ready once
        assert result.utilization[row] == batch_columns.samples.value[here][counted].sum() * 100 // (
            1000 * counted.sum()
        )


@pytest.mark.parametrize("order", ["listed", "shuffled"])
def test_kernel_join_samples_by_name(benchmark: Any, world: dict[str, Any], order: str) -> None:
    """Target: 60 ms in full, in the order in which APIs list (by name), pods' index included."""
    keys = world["keys"]
    chosen = np.arange(len(keys)) if order == "listed" else np.random.default_rng(3).permutation(len(keys))
    names = [keys[i] for i in chosen]
    usage = world["usage"][chosen]

    def join() -> NDArray[np.int64]:
        rows = NameTable(keys).rows(names)
        value = np.zeros(len(keys), np.int64)
        value[rows] = usage
        return value

    assert np.array_equal(benchmark(join), world["usage"])


def test_kernel_full_reconcile(benchmark: Any, world: dict[str, Any]) -> None:
    """Target: 20 ms."""
    batch_columns: BatchColumns = world["encoded"]
    result = benchmark(decide_columns, batch_columns, world["memory"], now=NOW, options=OPTIONS, threads=THREADS)
    assert len(result) == HPAS
    single = decide_columns(batch_columns, world["memory"], now=NOW, options=OPTIONS, threads=1)
    assert np.array_equal(result.desired, single.desired)
    assert result.rescaled.sum() > 0
    assert result.memory.histories.past.size.max() in (21, 22)


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
    result = benchmark(replay, hpa, Load(time, load), Plant(request=Quantity("1")))
    assert len(result.time) == (week - 60) // 15 + 1
    # Afloat at the crest: what 35 cores need at 60 %, within the tolerance.
    assert 35 / 0.6 / 1.1 - 1 <= result.replicas.max() <= 35 / 0.6 * 1.1 + 1
