"""The same scenario with the programs of 2018 to 2020 and with today's, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kscale.schemas import schema
from kscale.simulation import ComparedDecision, ProfileComparison, Scenario, compare_profiles
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
    assert "start-cooldown: then the cooldowns of scale-down begin when the process starts" in shown.stdout
    printed = kscale("compare", file, "-o", "json")
    found = msgspec.json.decode(printed.stdout)
    jsonschema.validate(found, schema("ProfileComparison"))
    assert found["kind"] == "ProfileComparison"
