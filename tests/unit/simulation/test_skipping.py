"""Rounds that are left out change nothing but the time that a run takes."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kscale.simulation import Scenario, Simulation, build, simulate
from unit.drivers.vpa_world import autoscaler
from unit.simulation.test_simulation import scenario
from unit.world.simulated_cases import workload


def comparable_bytes(run: Simulation) -> bytes:
    """All of a run, but how many rounds were left out."""
    report = replace(run.report, controllers=[replace(each, skipped=0) for each in run.report.controllers])
    columns = [
        {name: list(values) for name, values in each.columns().items()} for each in (run.timeline, run.workloads)
    ]
    return report.to_json() + run.decisions.to_bytes() + repr(columns).encode()


def skipped(run: Simulation, name: str = "cluster-autoscaler") -> float:
    """The share of the rounds of an autoscaler that were left out."""
    use = next(each for each in run.report.controllers if each.name == name)
    return use.skipped / use.rounds


FLAGS = {"scale-down-unneeded-time": "3m", "scale-down-delay-after-add": "2m", "max-node-provision-time": "4m"}
SPREAD = {"p0": "20s", "p50": "60s", "p100": "4m"}
STEPS = {"steps": [["0s", 1], ["4m", 6], ["9m", 2]]}
HPA = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 20,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
            }
        ],
    },
}
MEMORY_ONLY = {"containerPolicies": [{"containerName": "*", "controlledResources": ["memory"]}]}
BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"minAvailable": 3, "selector": {"matchLabels": {"app": "web"}}},
}
WEB = workload("Deployment", "web", 4)
CASES: dict[str, tuple[dict[str, Any], float]] = {
    "nothing happens": ({}, 0.6),
    "a node is not needed": (
        {
            "objects": [WEB],
            "controllers": {"clusterAutoscaler": {"flags": {**FLAGS, "max-bulk-soft-taint-count": "1"}}},
        },
        0.25,
    ),
    "load that changes": (
        {
            "objects": [WEB, HPA, BUDGET],
            "load": [{"workload": "Deployment/shop/web", "total": {"cpu": STEPS}}],
            "controllers": {"horizontal": {}, "clusterAutoscaler": {"flags": FLAGS}},
            "pods": [{"readiness": SPREAD}],
            "horizon": "13m",
        },
        0.3,
    ),
    "machines that fail": (
        {
            "objects": [workload("Deployment", "web", 14)],
            "machines": [{"boot": SPREAD, "ready": "20s", "failures": 0.5, "lifetime": {"p0": "2m", "p100": "20m"}}],
            "controllers": {"clusterAutoscaler": {"flags": FLAGS}},
            "horizon": "8m",
        },
        0.0,
    ),
}


def test_any_number_of_threads_is_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    fields, _ = CASES["load that changes"]
    created = msgspec.convert(scenario(**{**fields, "horizon": "5m"}), Scenario)
    runs = []
    for count in (1, 7):
        monkeypatch.setattr(os, "cpu_count", lambda count=count: count)
        runs.append(comparable_bytes(simulate(build(created))))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("name", CASES)
def test_skipping_changes_nothing(name: str) -> None:
    fields, share = CASES[name]
    data = {"horizon": "8m", "objects": [WEB], **fields}
    groups = scenario()["groups"]
    groups[0]["target"] = 3 if "not needed" in name else 1
    created = msgspec.convert(scenario(**data, groups=groups), Scenario)
    fast, slow = simulate(build(created)), simulate(build(created), skip=False)
    assert comparable_bytes(fast) == comparable_bytes(slow)
    assert skipped(slow) == 0
    assert skipped(fast) >= share


@pytest.mark.parametrize(("mode", "share"), [("Off", 0.8), ("Recreate", 0.0)])
def test_rounds_of_hpa_and_updater_are_left_out(mode: str, share: float) -> None:
    """Load changes every five minutes, a sync period is fifteen seconds; an updater has work only where a VPA acts."""
    vpa = autoscaler("web", kind="Deployment", updatePolicy={"updateMode": mode}, resourcePolicy=MEMORY_ONLY)
    created = scenario(
        horizon="12m",
        objects=[WEB, HPA, vpa],
        load=[{"workload": "Deployment/shop/web", "total": {"cpu": {"steps": [["0s", 2], ["5m", 3]]}}}],
        controllers={"horizontal": {}, "vpaRecommender": {}, "vpaUpdater": {}, "vpaAdmission": {}},
    )
    fast, slow = (simulate(build(msgspec.convert(created, Scenario)), skip=skip) for skip in (True, False))
    assert comparable_bytes(fast) == comparable_bytes(slow)
    assert skipped(fast, "horizontal-pod-autoscaler") >= 0.75
    assert share <= skipped(fast, "vpa-updater") <= (share and 1)
    assert skipped(fast, "vpa-recommender") == 0
