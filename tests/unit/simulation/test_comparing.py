"""The same scenario with the programs of 2018 to 2020 and with today's, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kscale.schemas import schema
from kscale.simulation import ComparedDecision, ProfileComparison, Scenario, compare_profiles, read_scenario
from kscale.simulation.release_rules import RULES
from unit.cli.support import kscale
from unit.simulation.test_old_programs import HALF, NAMES, TEMPLATE
from unit.world.simulated_cases import workload

BOUNDED = {
    "containerName": "c", "target": {"cpu": "2"}, "lowerBound": {"cpu": "2"}, "upperBound": {"cpu": "3"}
}  # fmt: skip
POOL = {"id": "pool", "max": 8, "target": 2, "template": TEMPLATE}


def compared(scenario: dict[str, Any]) -> ProfileComparison:
    return compare_profiles(msgspec.convert({**NAMES, **scenario}, Scenario))


def rows(comparison: ProfileComparison, action: str) -> list[ComparedDecision]:
    return [each for each in comparison.decisions if each.action == action]


def test_what_is_decided_alike_names_no_rule() -> None:
    found = compared(
        {
            "horizon": "5m",
            "groups": [POOL],
            "objects": [workload("Deployment", "web", 20)],
            "controllers": {"clusterAutoscaler": {"flags": {"frequent-loops-enabled": False}}},
        }
    )
    (grown,) = rows(found, "IncreaseSize")
    assert (grown.by, grown.about, grown.legacy, grown.current) == ("cluster-autoscaler", "pool", "+3", "+3")
    assert (grown.legacy_at, grown.rule) == (grown.current_at, "")
    assert found.rules == []
    assert found.legacy.left_out == ["clusterAutoscaler.frequent-loops-enabled"]
    assert found.current.left_out == []


def test_a_pod_that_becomes_unschedulable_starts_a_loop_today() -> None:
    """Which finds the pod too new, and leaves it to the loop after."""
    deployment = workload("Deployment", "web", 4)
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 20,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": HALF}}],
        },
    }
    found = compared(
        {
            "horizon": "8m",
            "groups": [POOL],
            "objects": [deployment, hpa],
            "load": [{"workload": "Deployment/shop/web", "total": {"cpu": {"steps": [["0s", 2], ["3m", 7]]}}}],
            "controllers": {"clusterAutoscaler": {"flags": {"scan-interval": "50s"}}, "horizontal": {}},
        }
    )
    (grown, *_) = rows(found, "IncreaseSize")
    assert grown.legacy_at is not None
    assert grown.current_at is not None
    assert grown.current_at != grown.legacy_at
    assert (grown.rule, grown.evidence) == (
        "loop-start",
        "Autoscaler loop triggered by unschedulable pod appearing",
    )


def test_cooldowns_of_release_1_3_begin_when_the_process_starts() -> None:
    found = compared(
        {
            "horizon": "15m",
            "groups": [{**POOL, "target": 3}],
            "objects": [workload("Deployment", "web", 3)],
            "controllers": {"clusterAutoscaler": {"flags": {"scale-down-unneeded-time": "2m"}}},
        }
    )
    first = rows(found, "DeleteNodes")[0]
    assert first.legacy_at is not None
    assert first.current_at is not None
    assert first.legacy_at >= 600 > first.current_at
    assert (first.rule, first.evidence) == ("start-cooldown", "ScaleDownInCooldown: since the process started")
    assert found.rules[0].id == "start-cooldown"


def test_the_updater_of_2020_does_not_look_for_the_admission_controller() -> None:
    vpa = {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "updatePolicy": {"updateMode": "Recreate"},
        },
        "status": {
            "recommendation": {
                "containerRecommendations": [
                    {
                        "containerName": "c",
                        "target": {"cpu": "2"},
                        "lowerBound": {"cpu": "2"},
                        "upperBound": {"cpu": "3"},
                    }
                ]
            }
        },
    }
    found = compared(
        {
            "horizon": "5m",
            "groups": [POOL],
            "objects": [workload("Deployment", "web", 4), vpa],
            "controllers": {"vpaUpdater": {"flags": {"in-place-skip-disruption-budget": True}}},
        }
    )
    evicted = rows(found, "Evict")
    assert evicted
    assert {(each.current, each.rule) for each in evicted} == {("", "admission-status")}
    assert evicted[0].evidence.startswith("Error getting Admission Controller status")
    assert found.legacy.left_out == ["vpaUpdater.in-place-skip-disruption-budget"]


def scaled(load: list[list[Any]], percent: int, **flags: Any) -> dict[str, Any]:
    """A workload of four pods of half a core, an HPA and a Cluster Autoscaler."""
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 60,
            "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {**HALF, "averageUtilization": percent}}}
            ],
        },
    }
    return {
        "horizon": "12m",
        "groups": [POOL],
        "objects": [workload("Deployment", "web", 4, cpu="500m"), hpa],
        "load": [{"workload": "Deployment/shop/web", "total": {"cpu": {"steps": load}}}],
        "controllers": {"horizontal": {}, "clusterAutoscaler": {"flags": flags}},
    }


def test_a_size_that_differs_because_pods_were_moved_earlier_names_no_rule_of_the_calculator() -> None:
    """Today's autoscaler has drained a node by then, so that other pods are ready when the HPA looks."""
    folder = Path(__file__).parents[3] / "examples"
    scenario = msgspec.structs.replace(read_scenario(folder / "compare-then-and-now.yaml"), horizon="6m")
    found = compare_profiles(scenario, folder=folder)
    assert rows(found, "DeleteNodes")[0].rule == "start-cooldown"
    first = rows(found, "PutScale")[0]
    assert (first.legacy, first.current, first.rule) == ("7", "8", "follows")
    assert first.evidence == "beside the other programs of then, today's horizontal-pod-autoscaler decides this as then"


def test_a_size_that_the_calculator_of_then_alone_decides_names_its_rule() -> None:
    """A tenth more than the target is outside of the tolerance by its distance from 1, and inside by today's bounds."""
    found = compared(scaled([["0s", 1.1]], 50, **{"scale-down-enabled": False}))
    first = rows(found, "PutScale")[0]
    assert (first.legacy, first.current, first.rule) == ("5", "", "replica-calculator")


def test_every_rule_names_both_sources() -> None:
    for name, rule in RULES.items():
        assert rule.id == name
        assert all((rule.legacy, rule.current, rule.legacy_source, rule.current_source))


def test_the_command_shows_both_runs_and_prints_the_record(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    scenario = {
        **NAMES,
        "name": "day",
        "horizon": "15m",
        "groups": [{**POOL, "target": 3}],
        "objects": [workload("Deployment", "web", 3)],
        "controllers": {"clusterAutoscaler": {"flags": {"scale-down-unneeded-time": "2m"}}},
    }
    file = tmp_path / "day.yaml"
    file.write_text(yaml.safe_dump(scenario))
    shown = kscale("compare", file)
    assert shown.code == 0
    assert "day: " in shown.stdout
    assert "start-cooldown:\n  then   the cooldowns of scale-down begin when the process starts (" in shown.stdout
    assert "\n  today  a process starts as if everything had happened an hour ago (" in shown.stdout
    printed = kscale("compare", file, "-o", "json")
    found = msgspec.json.decode(printed.stdout)
    jsonschema.validate(found, schema("ProfileComparison"))
    assert found["kind"] == "ProfileComparison"
