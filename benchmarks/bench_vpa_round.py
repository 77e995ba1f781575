"""Rounds of the VPA recommender through the public function: 10,000 VPAs, from objects to recommendations.

Target on two cores at ``KSCALE_VPA_SCALE=1`` (the default is 0.02): a round of 10,000 VPAs with 50,000 pods of two
containers in <= 5 s of CPU, 1 GiB in all. ``first``: everything is new. ``steady``: 1 % of the pods are others since
the round before, and all 50,000 are measured anew; every status and every checkpoint is written.

The answers are asserted: each VPA has two recommendations, each a status and its checkpoints. ``extra_info`` holds the
CPU time of the fastest round; on a shared machine only that means something.
"""

from __future__ import annotations

import os
import resource
import time
from typing import Any

import pytest

from kscale.effects import SECOND, Create, Moment, Patch, to_text
from kscale.objects.api.apps import ReplicaSet
from kscale.objects.api.core import Pod
from kscale.objects.api.metrics import PodMetrics
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.decode import from_dict
from kscale.vpa import (
    Controllers,
    PodChanges,
    RecommenderResult,
    RecommenderRound,
    RecommenderState,
    convert_pod_metrics,
    run_once,
)

SCALE = float(os.environ.get("KSCALE_VPA_SCALE", "0.02"))
VPAS = max(10, int(10_000 * SCALE))
PODS = 5
CONTAINERS = ("app", "sidecar")
T0: Moment = 1_800_000_000 * SECOND


def workload(i: int) -> ReplicaSet:
    name = f"w{i}"
    selector = {"matchLabels": {"app": name}}
    metadata = {"name": name, "namespace": f"ns{i % 50}"}
    body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": {"selector": selector}}
    return from_dict(body, ReplicaSet)


def autoscaler(i: int) -> VerticalPodAutoscaler:
    target = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"w{i}"}
    body = {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": f"w{i}", "namespace": f"ns{i % 50}", "creationTimestamp": to_text(T0)},
        "spec": {"targetRef": target},
    }
    return from_dict(body, VerticalPodAutoscaler)


def pod(i: int, k: int, generation: int = 0) -> Pod:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"w{i}", "controller": True}
    resources = {"requests": {"cpu": "100m", "memory": "128Mi"}}
    metadata = {
        "name": f"w{i}-{k}-{generation}",
        "namespace": f"ns{i % 50}",
        "labels": {"app": f"w{i}"},
        "ownerReferences": [owner],
    }
    spec = {"containers": [{"name": name, "resources": resources} for name in CONTAINERS]}
    return from_dict({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}, Pod)


def measured(pods: list[Pod], at: Moment) -> list[PodMetrics]:
    """No two of 97 pods in a row use the same."""
    time_ = to_text(at)
    usages = [
        [{"name": name, "usage": {"cpu": f"{150 + 7 * i}m", "memory": f"{200 + 5 * i}Mi"}} for name in CONTAINERS]
        for i in range(97)
    ]
    return [
        from_dict(
            {
                "metadata": {"name": each.name, "namespace": each.namespace},
                "timestamp": time_,
                "window": "30s",
                "containers": usages[i % len(usages)],
            },
            PodMetrics,
        )
        for i, each in enumerate(pods)
    ]


class Cluster:
    """What the watches have brought."""

    def __init__(self) -> None:
        self.controllers = Controllers(workload(i) for i in range(VPAS))
        self.vpas = [autoscaler(i) for i in range(VPAS)]
        self.pods = [pod(i, k) for i in range(VPAS) for k in range(PODS)]
        self.state = RecommenderState()
        self.now = T0
        self.generation = 0

    def round(self, changes: PodChanges, items: list[PodMetrics]) -> RecommenderResult:
        round_inputs = RecommenderRound(
            vpas=self.vpas, pods=changes, controllers=self.controllers, usage=[convert_pod_metrics(items)]
        )
        return run_once(self.state, round_inputs, now=self.now)

    def churn(self) -> tuple[PodChanges, list[PodMetrics]]:
        """A minute later: one pod of a hundred is another."""
        self.now += 60 * SECOND
        self.generation += 1
        deleted = []
        for at in range(self.generation % 100, len(self.pods), 100):
            old = self.pods[at]
            deleted.append((old.namespace, old.name))
            self.pods[at] = pod(at // PODS, at % PODS, self.generation)
        fresh = self.pods[self.generation % 100 :: 100]
        return PodChanges(changed=fresh, deleted=deleted), measured(self.pods, self.now - 5 * SECOND)


def check(result: RecommenderResult) -> None:
    assert len(result.vpas) == VPAS
    assert not result.errors
    assert all(len(each.recommendation.container_recommendations) == 2 for each in result.vpas if each.recommendation)
    assert all(each.recommendation is not None and each.pod_count == PODS for each in result.vpas)
    statuses = [each for each in result.actions if isinstance(each, Patch) and each.subresource == "status"]
    written = [each for each in result.actions if isinstance(each, Patch | Create)]
    assert len(statuses) == sum(each.status_written for each in result.vpas)
    assert len(written) == len(statuses) + VPAS * len(CONTAINERS)


def timed(run: Any) -> tuple[Any, float]:
    begun = time.process_time()
    return run(), time.process_time() - begun


def test_a_first_round(benchmark: Any) -> None:
    cpu: list[float] = []

    def setup() -> tuple[tuple[Cluster, list[PodMetrics]], dict[str, Any]]:
        cluster = Cluster()
        return (cluster, measured(cluster.pods, T0 - 5 * SECOND)), {}

    def target(cluster: Cluster, items: list[PodMetrics]) -> RecommenderResult:
        result, took = timed(lambda: cluster.round(PodChanges(changed=cluster.pods), items))
        cpu.append(took)
        return result

    check(benchmark.pedantic(target, setup=setup, rounds=2))
    benchmark.extra_info["cpu_seconds"] = min(cpu)
    benchmark.extra_info["vpas"] = VPAS


@pytest.mark.parametrize("rounds", [3])
def test_a_steady_round(benchmark: Any, rounds: int) -> None:
    cluster = Cluster()
    check(cluster.round(PodChanges(changed=cluster.pods), measured(cluster.pods, T0 - 5 * SECOND)))
    cpu: list[float] = []

    def setup() -> tuple[tuple[PodChanges, list[PodMetrics]], dict[str, Any]]:
        return cluster.churn(), {}

    def target(changes: PodChanges, items: list[PodMetrics]) -> RecommenderResult:
        result, took = timed(lambda: cluster.round(changes, items))
        cpu.append(took)
        return result

    check(benchmark.pedantic(target, setup=setup, rounds=rounds))
    assert len(cluster.state.pods) == VPAS * PODS
    benchmark.extra_info["cpu_seconds"] = min(cpu)
    benchmark.extra_info["vpas"] = VPAS
    benchmark.extra_info["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
