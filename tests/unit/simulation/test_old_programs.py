"""Scenarios in which the programs of 2018 to 2020 run, and custom resources that an HPA scales."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kscale import InputError
from kscale.drivers.cluster_autoscaler import ClusterAutoscaler
from kscale.effects import from_text
from kscale.simulation import Scenario, Simulation, build, read_scenario, simulate
from unit.world.simulated_cases import pod_template, workload

ROOM = {"cpu": "4", "memory": "16Gi", "pods": "110"}
TEMPLATE = {"status": {"allocatable": ROOM, "capacity": ROOM, "conditions": [{"type": "Ready", "status": "True"}]}}
NAMES = {"apiVersion": "kscale.dev/v1alpha1", "kind": "Simulation", "begin": "2026-05-04T00:00:00Z"}


def autoscaled(objects: list[dict[str, Any]], horizon: str, flags: dict[str, Any], **more: Any) -> dict[str, Any]:
    group = {"id": "pool", "max": 5, "target": 1, "template": TEMPLATE, **more.pop("group", {})}
    return {
        **NAMES,
        "horizon": horizon,
        "objects": objects,
        "groups": [group],
        "controllers": {"clusterAutoscaler": {"flags": {"profile": "legacy", **flags}}},
        **more,
    }


def ran(scenario: dict[str, Any]) -> Simulation:
    return simulate(build(msgspec.convert(scenario, Scenario)))


def did(run: Simulation, action: str) -> list[tuple[float, dict[str, Any]]]:
    """(minutes since the beginning, arguments) of an action that was done, in order."""
    begin = from_text(NAMES["begin"])
    return [
        ((from_text(each.at) - begin) / 60e9, each.arguments)
        for each in run.decisions.entries
        if each.action == action and each.error is None
    ]


@pytest.mark.parametrize("estimator", ["binpacking", "basic"])
def test_release_1_3_scales_up_by_either_estimator(estimator: str) -> None:
    run = ran(autoscaled([workload("Deployment", "web", 10)], "5m", {"estimator": estimator}))
    ((minute, increase),) = did(run, "IncreaseSize")
    assert (increase["group"], increase["delta"], run.report.most_nodes) == ("pool", 2, 3)
    assert 10 / 60 <= minute <= 25 / 60  # its loops are ten seconds apart, and new pods wait for one of them


def test_release_1_3_removes_a_machine_that_never_registers_after_fifteen_minutes() -> None:
    scenario = autoscaled([workload("Deployment", "web", 6)], "17m", {}, machines=[{"failures": 1}])
    setup = build(msgspec.convert(scenario, Scenario))
    run = simulate(setup)
    ((removed, deleted),) = did(run, "DeleteNodes")[:1]
    assert 15 <= removed <= 16
    assert len(deleted["nodes"]) == 1
    assert len(did(run, "IncreaseSize")) == 1  # the group backs off
    (driver,) = setup.drivers
    assert isinstance(driver, ClusterAutoscaler)
    assert driver.options.legacy


@pytest.mark.parametrize(("unready", "grown"), [(3, True), (4, False)])
def test_release_1_3_leaves_an_unhealthy_cluster_alone(unready: int, grown: bool) -> None:
    """Three nodes may be unready; four of six are too many."""

    def node(i: int) -> dict[str, Any]:
        condition = {"type": "Ready", "status": "False" if i < unready else "True"}
        created = {"creationTimestamp": "2026-05-01T00:00:00Z", "labels": {"pool": "x"}}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{i}", **created},
            "spec": {"providerID": f"sim:///n{i}"},
            "status": {
                "allocatable": ROOM,
                "capacity": ROOM,
                "conditions": [{**condition, "lastTransitionTime": "2026-05-02T00:00:00Z"}],
            },
        }

    web = workload("Deployment", "web", 10, cpu="3")
    group = {"target": None, "max": 12, "nodeSelector": {"pool": "x"}}
    scenario = autoscaled([web, *map(node, range(6))], "5m", {}, group=group)
    del scenario["groups"][0]["target"]
    run = ran(scenario)
    assert bool(did(run, "IncreaseSize")) is grown


def test_release_1_3_waits_for_empty_nodes_and_drains_one_at_a_time() -> None:
    small, large = (workload("Deployment", name, count, cpu=cpu) for name, count, cpu in (("a", 3, "1"), ("b", 3, "3")))
    flags = {"scale-down-unneeded-time": "2m", "scale-down-delay-after-add": "1m"}
    scenario = autoscaled([small, large], "20m", flags, group={"target": 5, "max": 6})
    run = ran(scenario)
    deletions = did(run, "DeleteNodes")
    assert deletions
    assert all(len(arguments["nodes"]) == 1 for _, arguments in deletions)


def test_release_1_3_goes_through_a_day_of_a_shop_beside_an_hpa() -> None:
    """Sizes by hand: cores used over 60 % of half a core a pod; a node has room for eight pods."""
    steps = [["0s", 1], ["5m", 4], ["15m", 8], ["30m", 3]]
    target = {"type": "Utilization", "averageUtilization": 60}
    web = workload("Deployment", "web", 4, cpu="500m")
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2,
            "maxReplicas": 60,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    }
    flags = {"scale-down-unneeded-time": "5m", "scale-down-delay-after-add": "5m"}
    run = ran(
        autoscaled(
            [web, hpa],
            "45m",
            flags,
            group={"min": 1, "max": 20, "target": 2},
            machines=[{"boot": "1m"}],
            pods=[{"start": "2s", "readiness": "10s"}],
            load=[{"workload": "Deployment/shop/web", "total": {"cpu": {"steps": steps}}}],
            metrics={"scrape": "15s", "window": "15s", "lag": "15s"},
            controllers={
                "horizontal": {},
                "clusterAutoscaler": {"flags": {"profile": "legacy", **flags}},
            },
        )
    )
    sizes = [put["replicas"] for _, put in did(run, "PutScale")]
    assert sizes[-3:] == [14, 27, 10]
    assert sum(each["delta"] for _, each in did(run, "IncreaseSize")) == 3
    assert run.report.most_nodes == 4  # 27 pods, eight a node
    assert {len(each["nodes"]) for _, each in did(run, "DeleteNodes")} == {1}
    assert len(did(run, "DeleteNodes")) == 3


@pytest.mark.parametrize(
    ("flags", "field", "message"),
    [
        ({"profile": "old"}, "profile", "unknown profile 'old'; there are current, legacy"),
        ({"profile": "legacy", "salvo-scale-up": True}, "salvo-scale-up", "release 1.3 has no such flag"),
        ({"profile": "legacy", "frequent-loops-enabled": True}, "frequent-loops-enabled", "has no such flag"),
        ({"max-empty-bulk-delete": 3}, "max-empty-bulk-delete", "it belongs to release 1.3 (--profile legacy)"),
    ],
)
def test_flags_of_another_release_are_refused_by_name(flags: dict[str, Any], field: str, message: str) -> None:
    scenario = autoscaled([], "5m", {})
    scenario["controllers"]["clusterAutoscaler"]["flags"] = flags
    with pytest.raises(InputError) as caught:
        build(msgspec.convert(scenario, Scenario))
    (problem,) = caught.value.problems
    assert problem.field == f"controllers.clusterAutoscaler.flags.{field}"
    assert message in problem.message


def updated(profile: str, age_hours: int = 0) -> Simulation:
    """Pods that ask for 1 core and should ask for 2, inside of what is recommended."""
    deployment = workload("Deployment", "web", 4)
    bounds = {"lowerBound": {"cpu": "1m"}, "upperBound": {"cpu": "9"}}
    recommended = {"containerName": "c", "target": {"cpu": "2"}, **bounds}
    vpa = {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "updatePolicy": {"updateMode": "Recreate"},
        },
        "status": {"recommendation": {"containerRecommendations": [recommended]}},
    }
    scenario = {
        **NAMES,
        "horizon": f"{age_hours}h20m" if age_hours else "20m",
        "sample": "10m",
        "objects": [deployment, vpa],
        "groups": [{"id": "pool", "max": 5, "target": 3, "template": TEMPLATE}],
        "controllers": {"vpaUpdater": {"flags": {"profile": profile, "updater-interval": "10m"}}},
    }
    return ran(scenario)


def test_the_updater_of_2020_runs_in_a_scenario_without_an_admission_controller() -> None:
    """It evicts after twelve hours; today's does nothing where no admission controller lives."""
    assert updated("legacy", 11).report.evictions == 0
    old = did(updated("legacy", 12), "Evict")
    assert old
    assert min(minute for minute, _ in old) >= 12 * 60
    assert updated("current", 12).report.evictions == 0


def test_a_group_that_the_basic_estimator_cannot_divide_by_is_named() -> None:
    empty = {"status": {**TEMPLATE["status"], "capacity": {**ROOM, "cpu": "0"}}}
    scenario = autoscaled([workload("Deployment", "web", 9)], "3m", {"estimator": "basic"}, group={"template": empty})
    with pytest.raises(InputError) as raised:
        ran(scenario)
    assert "node group pool: the template's capacity of cpu is zero" in str(raised.value)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"expander": "least-nodes"}, "Expander least-nodes not supported (profile legacy: release 1.3)"),
        ({"expander": "cheapest", "profile": "current"}, "Expander cheapest not supported"),
    ],
)
def test_an_expander_that_the_release_does_not_have_is_an_error_of_its_field(
    flags: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as raised:
        ran(autoscaled([workload("Deployment", "web", 9)], "1m", flags))
    assert [(each.field, each.message) for each in raised.value.problems] == [
        ("controllers.clusterAutoscaler.flags.expander", message)
    ]


def test_a_flag_beside_the_flags_of_a_controller_gets_a_hint(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump({**NAMES, "controllers": {"clusterAutoscaler": {"profile": "legacy"}}}))
    with pytest.raises(InputError) as raised:
        read_scenario(file)
    (problem,) = raised.value.problems
    assert problem.field == "controllers.clusterAutoscaler"
    assert problem.message == "object contains unknown field `profile`; is flags.profile meant?"


# -- custom resources --------------------------------------------------------------------------------------------------

PATHS = {
    "specReplicasPath": ".spec.size.wanted", "statusReplicasPath": ".status.there", "labelSelectorPath": ".status.who"
}  # fmt: skip


def definition(paths: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "crontabs.stable.example.com"},
        "spec": {
            "group": "stable.example.com",
            "scope": "Namespaced",
            "names": {"plural": "crontabs", "kind": "CronTab"},
            "versions": [{"name": "v1", "subresources": {"scale": paths}}],
        },
    }


CRONTAB: dict[str, Any] = {
    "apiVersion": "stable.example.com/v1",
    "kind": "CronTab",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"size": {"wanted": 2}, "selector": {"app": "web"}, "template": pod_template("web")},
}
HALF = {"type": "Utilization", "averageUtilization": 50}
HPA: dict[str, Any] = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "stable.example.com/v1", "kind": "CronTab", "name": "web"},
        "maxReplicas": 10,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": HALF}}],
    },
}


def with_custom_resource(*objects: dict[str, Any], load: bool = True, **more: Any) -> dict[str, Any]:
    used = [{"workload": "CronTab/shop/web", "total": {"cpu": {"steps": [["0s", 1], ["5m", 3]]}}}] if load else []
    return {
        **NAMES,
        "horizon": "15m",
        "objects": list(objects),
        "groups": [{"id": "pool", "max": 5, "target": 2, "template": TEMPLATE}],
        "controllers": {"horizontal": more.pop("horizontal", {})},
        "load": used,
        **more,
    }


@pytest.mark.parametrize("profile", ["current", "legacy"])
def test_the_pods_of_a_custom_resource_follow_its_hpa(profile: str) -> None:
    scenario = with_custom_resource(definition(PATHS), CRONTAB, HPA, horizontal={"flags": {"profile": profile}})
    setup = build(msgspec.convert(scenario, Scenario))
    run = simulate(setup)
    minute, put = did(run, "PutScale")[-1]
    assert 5 < minute < 8
    assert (put["resource"], put["name"], put["replicas"]) == ("crontabs.stable.example.com", "web", 6)
    (custom,) = setup.world.api.get_all("CronTab").values()
    assert (custom.spec["size"], custom.status) == ({"wanted": 6}, {"there": 6, "who": "app=web"})
    assert len(setup.world.api.get_all("Pod")) == 6
    (hpa,) = setup.world.api.get_all("HorizontalPodAutoscaler").values()
    assert (hpa.status.current_replicas, hpa.status.desired_replicas) == (6, 6)
    assert run.report.warnings == []


def test_custom_resources_of_a_file_are_simulated(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all([definition(PATHS), CRONTAB, HPA]))
    scenario = with_custom_resource(cluster=["cluster.yaml"])
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(scenario))
    run = simulate(build(read_scenario(tmp_path / "s.yaml"), folder=tmp_path))
    assert [put["replicas"] for _, put in did(run, "PutScale")][-1] == 6


def test_the_pods_go_with_the_custom_resource() -> None:
    setup = build(msgspec.convert(with_custom_resource(definition(PATHS), CRONTAB, HPA), Scenario))
    world = setup.world
    world.time.run(until=world.time.now + 60 * 10**9)
    assert len(world.api.get_all("Pod")) == 2
    world.delete("CronTab", "shop/web")
    world.time.run(until=world.time.now + 120 * 10**9)
    assert (len(world.api.get_all("Pod")), len(world.api.get_all("ReplicaSet"))) == (0, 0)


def test_objects_that_do_nothing_are_warnings() -> None:
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly", "namespace": "shop"}}
    cron["spec"] = {"schedule": "0 1 * * *", "jobTemplate": {"spec": {"template": {"spec": {"containers": []}}}}}
    paused = {**cron, "metadata": {"name": "paused", "namespace": "shop"}, "spec": {**cron["spec"], "suspend": True}}
    run = ran(with_custom_resource(CRONTAB, cron, paused, load=False))
    group = CRONTAB["apiVersion"].partition("/")[0]
    assert run.report.warnings == [
        "CronJob shop/nightly: no Jobs are made on a schedule",
        f"CronTab.{group}: its objects make no pods here, since no HPA scales one",
    ]


@pytest.mark.parametrize(
    ("paths", "size", "problem"),
    [
        (
            {**PATHS, "specReplicasPath": ".spec.sizes[0].wanted"},
            {"wanted": 2},
            'cannot be scaled: the spec replicas field ".spec.sizes[0].wanted" does not exist',
        ),
        (PATHS, {}, 'cannot be scaled: the spec replicas field ".spec.size.wanted" does not exist'),
        (PATHS, {"wanted": "two"}, "cannot be scaled: replicas must be a whole number, not 'two'"),
        (PATHS, {"wanted": -3}, "has a negative size: .spec.size.wanted is -3"),
        (
            {name: path for name, path in PATHS.items() if name != "labelSelectorPath"},
            {"wanted": 2},
            "cannot be scaled: its CustomResourceDefinition has no labelSelectorPath, by which an HPA finds the pods",
        ),
    ],
)
def test_a_scale_that_no_hpa_can_use_is_a_warning(paths: dict[str, str], size: dict[str, Any], problem: str) -> None:
    crontab = {**CRONTAB, "spec": {**CRONTAB["spec"], "size": size}}
    run = ran(with_custom_resource(definition(paths), crontab, HPA, load=False, horizon="1m"))
    assert run.report.warnings == [f"HorizontalPodAutoscaler shop/web: its target CronTab web {problem}"]


@pytest.mark.parametrize(
    ("paths", "problems"),
    [
        (
            {},
            {"specReplicasPath": "Required value", "statusReplicasPath": "Required value"},
        ),
        (
            {**PATHS, "specReplicasPath": "spec.size"},
            {"specReplicasPath": 'Invalid value: "spec.size": must be a simple json path starting with .'},
        ),
        (
            {**PATHS, "statusReplicasPath": ".spec.there"},
            {"statusReplicasPath": 'Invalid value: ".spec.there": should be a json path under .status'},
        ),
        (
            {**PATHS, "labelSelectorPath": ".metadata.labels"},
            {
                "labelSelectorPath": (
                    'Invalid value: ".metadata.labels": should be a json path under either .spec or .status'
                )
            },
        ),
    ],
)
def test_paths_that_the_api_server_refuses_are_errors(paths: dict[str, str], problems: dict[str, str]) -> None:
    with pytest.raises(InputError) as raised:
        ran(with_custom_resource(definition(paths), CRONTAB, HPA))
    assert {each.field: each.message for each in raised.value.problems} == {
        f"spec.versions[0].subresources.scale.{name}": message for name, message in problems.items()
    }


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ([CRONTAB, HPA], "there is no CustomResourceDefinition of CronTab with a scale"),
        ([definition(PATHS), CRONTAB], "no HPA scales it, or it has no CustomResourceDefinition with a scale"),
    ],
)
def test_load_of_a_custom_resource_says_why_there_are_no_pods(objects: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(InputError) as raised:
        ran(with_custom_resource(*objects))
    (problem,) = raised.value.problems
    assert (problem.field, problem.message) == ("load[0].workload", f"CronTab/shop/web makes no pods: {why}")


WITHOUT_TEMPLATE = {**CRONTAB, "spec": {"size": {"wanted": 2}}}


def _crontab(**spec: Any) -> dict[str, Any]:
    return {**CRONTAB, "spec": {**CRONTAB["spec"], **spec}}


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ([CRONTAB, HPA], "there is no CustomResourceDefinition of CronTab with a scale"),
        ([definition(PATHS), HPA], "it is not there"),
        ([definition(PATHS), WITHOUT_TEMPLATE, HPA], "it has no spec.template that says what its pods are"),
        ([definition(PATHS), _crontab(selector={"a/b/c": "x"}), HPA], "spec.selector: "),
        ([definition(PATHS), _crontab(template={"metadata": ["a"]}), HPA], "spec.template.metadata: expected"),
    ],
)
def test_a_target_that_cannot_be_simulated_is_a_warning(objects: list[dict[str, Any]], why: str) -> None:
    run = ran(with_custom_resource(*objects, load=False))
    (warning,) = run.report.warnings
    assert warning.startswith(f"HorizontalPodAutoscaler shop/web: its target CronTab web is not simulated: {why}")
