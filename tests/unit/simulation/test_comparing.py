"""The same scenario with the programs of 2018 to 2020 and with today's, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from json_schemas import validate
from kscale import InputError
from kscale.schemas import schema
from kscale.simulation import ComparedDecision, ProfileComparison, Scenario, compare_profiles, read_scenario
from kscale.simulation.compared_runs import run_scenario
from kscale.simulation.comparing import RULES, explain
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


def test_equal_decisions_name_no_rule() -> None:
    result = compared(
        {
            "horizon": "5m",
            "groups": [POOL],
            "objects": [workload("Deployment", "web", 20)],
            "controllers": {"clusterAutoscaler": {"flags": {"frequent-loops-enabled": False}}},
        }
    )
    (grown,) = rows(result, "IncreaseSize")
    assert (grown.by, grown.about, grown.legacy, grown.current) == ("cluster-autoscaler", "pool", "+3", "+3")
    assert (grown.legacy_at, grown.rule) == (grown.current_at, "")
    assert result.rules == []
    assert result.legacy.left_out == ["clusterAutoscaler.frequent-loops-enabled"]
    assert result.current.left_out == []


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
    result = compared(
        {
            "horizon": "8m",
            "groups": [POOL],
            "objects": [deployment, hpa],
            "load": [{"workload": "Deployment/shop/web", "total": {"cpu": {"steps": [["0s", 2], ["3m", 7]]}}}],
            "controllers": {"clusterAutoscaler": {"flags": {"scan-interval": "50s"}}, "horizontal": {}},
        }
    )
    (grown, *_) = rows(result, "IncreaseSize")
    assert grown.legacy_at is not None
    assert grown.current_at is not None
    assert grown.current_at != grown.legacy_at
    assert (grown.rule, grown.evidence) == (
        "loop-start",
        "Autoscaler loop triggered by unschedulable pod appearing",
    )


def test_cooldowns_of_release_1_3_begin_when_the_process_starts() -> None:
    result = compared(
        {
            "horizon": "15m",
            "groups": [{**POOL, "target": 3}],
            "objects": [workload("Deployment", "web", 3)],
            "controllers": {"clusterAutoscaler": {"flags": {"scale-down-unneeded-time": "2m"}}},
        }
    )
    first = rows(result, "DeleteNodes")[0]
    assert first.legacy_at is not None
    assert first.current_at is not None
    assert first.legacy_at >= 600 > first.current_at
    assert (first.rule, first.evidence) == ("start-cooldown", "ScaleDownInCooldown: since the process started")
    assert result.rules[0].id == "start-cooldown"


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
    result = compared(
        {
            "horizon": "5m",
            "groups": [POOL],
            "objects": [workload("Deployment", "web", 4), vpa],
            "controllers": {"vpaUpdater": {"flags": {"in-place-skip-disruption-budget": True}}},
        }
    )
    evicted = rows(result, "Evict")
    assert evicted
    assert {(each.current, each.rule) for each in evicted} == {("", "admission-status")}
    assert evicted[0].evidence.startswith("Error getting Admission Controller status")
    assert result.legacy.left_out == ["vpaUpdater.in-place-skip-disruption-budget"]


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
    result = compare_profiles(scenario, folder=folder)
    assert rows(result, "DeleteNodes")[0].rule == "start-cooldown"
    first = rows(result, "PutScale")[0]
    assert (first.legacy, first.current, first.rule) == ("7", "8", "follows")
    assert first.evidence == "beside the other programs of then, today's horizontal-pod-autoscaler decides this as then"


def test_a_size_that_the_calculator_of_then_alone_decides_names_its_rule() -> None:
    """A tenth more than the target is outside of the tolerance by its distance from 1, and inside by today's bounds."""
    result = compared(scaled([["0s", 1.1]], 50, **{"scale-down-enabled": False}))
    first = rows(result, "PutScale")[0]
    assert (first.legacy, first.current, first.rule) == ("5", "", "replica-calculator")


def test_an_empty_cluster_is_left_alone_by_release_1_3() -> None:
    result = compared(
        {
            "horizon": "3m",
            "groups": [{**POOL, "target": 0}],
            "objects": [workload("Deployment", "web", 4)],
            "controllers": {"clusterAutoscaler": {}},
        }
    )
    (grown,) = rows(result, "IncreaseSize")
    assert (grown.legacy_at, grown.current, grown.rule) == (None, "+1", "empty-cluster")
    assert grown.evidence == "Cluster has no nodes."


@pytest.mark.parametrize("flags", [{}, {"expander": "most-pods"}])
def test_pods_of_a_priority_below_zero_were_expendable(flags: dict[str, Any]) -> None:
    """The expander has no part in it: there is one group, or both programs have the same expander."""
    deployment = workload("Deployment", "web", 12)
    deployment["spec"]["template"]["spec"]["priority"] = -5
    result = compared(
        {
            "horizon": "3m",
            "groups": [POOL],
            "objects": [deployment],
            "controllers": {"clusterAutoscaler": {"flags": flags}},
        }
    )
    (grown,) = rows(result, "IncreaseSize")
    assert (grown.legacy_at, grown.rule, grown.also) == (None, "expendable-cutoff", [])
    assert grown.evidence == "release 1.3 with --expendable-pods-priority-cutoff=-10 decides this as today"


def test_the_expander_is_named_where_todays_default_makes_release_1_3_choose_the_same_group() -> None:
    large = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    template = {"status": {**TEMPLATE["status"], "allocatable": large, "capacity": large}}
    result = compared(
        {
            "horizon": "2m",
            "groups": [{"id": "large", "max": 8, "target": 0, "template": template}, POOL],
            "objects": [workload("Deployment", "web", 14)],
            "controllers": {"clusterAutoscaler": {}},
        }
    )
    first = rows(result, "IncreaseSize")[0]
    assert (first.rule, first.follows) == ("expander", 0)
    assert first.evidence == "release 1.3 with --expander=least-waste decides this as today"


def test_the_first_difference_of_the_bundled_vpa_scenario_needs_two_rules() -> None:
    """A node is used by half, which is the threshold; today's program deletes it after it waited, too."""
    folder = Path(__file__).parents[3] / "examples"
    scenario = msgspec.structs.replace(read_scenario(folder / "simulate-requests.yaml"), horizon="15m")
    result = compare_profiles(scenario, folder=folder)
    (deleted,) = rows(result, "DeleteNodes")
    assert (deleted.rule, deleted.also, deleted.follows) == ("utilization-threshold", ["delete-delay"], 0)
    assert "today's cluster-autoscaler with --node-delete-delay-after-taint=0s" in deleted.evidence
    assert {rule.id for rule in result.rules} == {"utilization-threshold", "delete-delay"}


def test_machines_that_did_not_register_are_compared_one_by_one() -> None:
    """Today's program asks for two in one call."""
    result = compared(
        {
            "horizon": "4m",
            "groups": [POOL],
            "machines": [{"boot": "10m"}],
            "objects": [workload("Deployment", "web", 16)],
            "controllers": {"clusterAutoscaler": {"flags": {"max-node-provision-time": "1m"}}},
        }
    )
    first, second, *_ = rows(result, "DeleteNodes")
    for each in (first, second):
        assert (each.legacy, each.current, each.rule) == ("-1", "-1", "loop-start")
        assert each.evidence == "Autoscaler loop triggered immediately after a scale up"
    assert {each.rule for each in result.decisions} <= {"", "loop-start", "follows"}
    assert all(0 < each.follows < i for i, each in enumerate(result.decisions, 1) if each.rule == "follows")


def test_two_hpas_of_the_same_pods_name_the_check_that_todays_controller_has() -> None:
    scenario = scaled([["0s", 1], ["2m", 6]], 50)
    objects = list(scenario["objects"])
    for each in objects[:2]:
        twin = msgspec.json.decode(msgspec.json.encode(each))
        twin["metadata"]["name"] = "api"
        if "scaleTargetRef" in twin["spec"]:
            twin["spec"]["scaleTargetRef"]["name"] = "api"
        objects.append(twin)
    result = compared({**scenario, "horizon": "4m", "objects": objects, "controllers": {"horizontal": {}}})
    assert len(rows(result, "PutScale")) > 1
    for each in rows(result, "PutScale"):
        assert (each.current_at, each.rule) == (None, "ambiguous-selector")
        assert each.evidence.startswith("pods by selector app=web are controlled by more than one HPA")


def test_unproven_difference_shows_the_messages_of_both_programs() -> None:
    """Without other flags to try, the only evidence is what the loops said."""
    scenario = {"horizon": "3m", "groups": [POOL], "controllers": {"clusterAutoscaler": {}}}
    deployment = workload("Deployment", "web", 12)
    deployment["spec"]["template"]["spec"]["priority"] = -5
    parsed = msgspec.convert({**NAMES, **scenario, "objects": [deployment]}, Scenario)
    old, new = (run_scenario(parsed, {"cluster_autoscaler": profile}) for profile in ("legacy", "current"))
    ((name, cause),) = explain("cluster-autoscaler", old, new, [], lambda changes, until: (old, new)).items()
    assert name == (("cluster-autoscaler", "IncreaseSize", "pool"), 0)
    assert cause.rule == "not-explained"
    assert cause.evidence.startswith("then: ScaleDownInCooldown: since the process started; today: ")


@pytest.mark.parametrize(
    ("flags", "legacy", "current"),
    [
        ({"estimator": "basic"}, [], ["clusterAutoscaler.estimator=basic"]),
        ({"expander": "least-nodes"}, ["clusterAutoscaler.expander=least-nodes"], []),
        ({"expander": "priority,least-waste"}, ["clusterAutoscaler.expander=priority,least-waste"], []),
    ],
)
def test_a_value_that_one_program_refuses_is_left_out_of_its_run(
    flags: dict[str, Any], legacy: list[str], current: list[str]
) -> None:
    result = compared(
        {
            "horizon": "2m",
            "groups": [POOL],
            "objects": [workload("Deployment", "web", 12)],
            "controllers": {"clusterAutoscaler": {"flags": flags}},
        }
    )
    assert (result.legacy.left_out, result.current.left_out) == (legacy, current)
    assert rows(result, "IncreaseSize")


def test_gates_that_one_controller_does_not_know_are_left_out_one_by_one() -> None:
    scenario = scaled([["0s", 1]], 50)
    gates = "HPAContainerMetrics=true,HPAScaleToZero=false,HPAGeneration=true"
    controllers = {"horizontal": {"flags": {"feature-gates": gates}}}
    result = compared({**scenario, "horizon": "1m", "controllers": controllers})
    assert result.legacy.left_out == ["horizontal.feature-gates=HPAGeneration=true"]
    assert result.current.left_out == ["horizontal.feature-gates=HPAContainerMetrics=true"]


def test_a_value_that_both_programs_refuse_is_an_error_with_its_field() -> None:
    with pytest.raises(InputError) as raised:
        compared({"horizon": "2m", "controllers": {"clusterAutoscaler": {"flags": {"estimator": "guess"}}}})
    assert "controllers.clusterAutoscaler.flags.estimator" in str(raised.value)


def test_the_legacy_run_has_the_old_profile_of_the_hpa_that_the_scenario_names() -> None:
    scenario = scaled([["0s", 1]], 50)
    controllers = {"horizontal": {"flags": {"profile": "legacy-1.18"}}}
    result = compared({**scenario, "horizon": "1m", "controllers": controllers})
    assert result.legacy.profiles == {"horizontal-pod-autoscaler": "legacy-1.18"}
    assert result.current.profiles == {"horizontal-pod-autoscaler": "current"}


def test_a_profile_that_a_program_does_not_have_is_an_error() -> None:
    with pytest.raises(InputError) as raised:
        compared({"horizon": "1m", "controllers": {"clusterAutoscaler": {"flags": {"profile": "legacy-1.18"}}}})
    (problem,) = raised.value.problems
    assert problem.field == "controllers.clusterAutoscaler.flags.profile"


def test_a_scenario_without_a_program_that_has_a_profile_says_so(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump({**NAMES, "horizon": "1m", "controllers": {}}))
    completed = kscale("compare", file)
    assert completed.code == 0
    assert "The scenario runs no program that has a profile: both runs are the same." in completed.stdout


def test_every_rule_names_both_sources() -> None:
    for name, rule in RULES.items():
        assert rule.id == name
        assert all((rule.legacy, rule.current, rule.legacy_source, rule.current_source))


def test_the_command_shows_both_runs_and_prints_the_record(tmp_path: Path) -> None:
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
    completed = kscale("compare", file)
    assert completed.code == 0
    assert "day: " in completed.stdout
    assert "start-cooldown:\n  then   the cooldowns of scale-down begin when the process starts (" in completed.stdout
    assert "\n  today  a process starts as if everything had happened an hour ago (" in completed.stdout
    printed = kscale("compare", file, "-o", "json")
    result = msgspec.json.decode(printed.stdout)
    validate(result, schema("ProfileComparison"))
    assert result["kind"] == "ProfileComparison"
