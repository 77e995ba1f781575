"""``kscale manifests``: what is printed can be applied, and fits what the program does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kscale.ca.metrics import METRICS
from kscale.ca.options import AutoscalingOptions
from kscale.drivers.cluster_autoscaler import AutoscalerProcess, ClusterAutoscaler, NodeBoard
from kscale.drivers.health import HealthCheck, HealthCheckOptions
from kscale.drivers.leader_election import LEADER_METRICS
from kscale.drivers.manifests import cluster_autoscaler_roles
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.informer import WATCH_METRICS
from kscale.world.kubernetes.resources import EVERYWHERE
from unit.cli.support import kscale as run

COMMAND = ("manifests", "cluster-autoscaler", "--image", "example.org/kscale:1")


def printed(*arguments: str) -> dict[str, Any]:
    found = run(*COMMAND, *arguments)
    assert found.code == 0, found.stderr
    assert "&id" not in found.stdout
    return {each["kind"]: each for each in yaml.safe_load_all(found.stdout)}


def test_what_is_printed() -> None:
    found = printed("-n", "autoscaling", "--cloud-config", "cloud", "--flag=--expander=least-nodes", "--replicas=3")
    assert list(found) == [
        "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Deployment",
        "PodDisruptionBudget", "NetworkPolicy",
    ]  # fmt: skip
    deployment = found["Deployment"]
    assert deployment["spec"]["replicas"] == 3
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"] == [
        "run", "cluster-autoscaler", "--cloud-provider=externalgrpc", "--namespace=autoscaling", "--log-format=json",
        "--expander=least-nodes", "--cloud-config=/etc/kscale/config",
    ]  # fmt: skip
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["volumes"] == [{"name": "config", "secret": {"secretName": "cloud"}}]
    spaces = {kind: each["metadata"].get("namespace") for kind, each in found.items()}
    assert {kind for kind, space in spaces.items() if space is None} == {"ClusterRole", "ClusterRoleBinding"}
    assert set(spaces.values()) == {None, "autoscaling"}


@pytest.mark.parametrize("cloud", ["externalgrpc", "kwok", "clusterapi"])
def test_its_flags_are_flags_of_the_program(cloud: str) -> None:
    (container,) = printed("--cloud-provider", cloud)["Deployment"]["spec"]["template"]["spec"]["containers"]
    help_ = run("run", "cluster-autoscaler", "--help").stdout
    for argument in container["args"][2:]:
        assert argument.partition("=")[0] in help_


def test_it_may_see_what_it_watches() -> None:
    clock = SystemClock()
    health = HealthCheck(HealthCheckOptions(), clock.now())
    options = AutoscalingOptions(expander="priority", capacity_quotas_enabled=True)
    driver = ClusterAutoscaler(options, AutoscalerProcess(), clock, health, NodeBoard())
    wide, own = cluster_autoscaler_roles()
    plurals = {(each.api_version, each.kind): each.group_resource.partition(".")[0] for each in EVERYWHERE}
    plurals["autoscaling.x-k8s.io/v1beta1", "CapacityQuota"] = "capacityquotas"
    for watch in driver.watches:
        group = watch.api_version.rpartition("/")[0]
        plural = plurals[watch.api_version, watch.kind]
        rules = own if watch.namespace else wide
        fitting = [rule for rule in rules if group in rule["apiGroups"] and plural in rule["resources"]]
        granted = {verb for rule in fitting for verb in rule["verbs"]}
        assert {"list", "watch"} <= granted, watch


def test_a_cloud_that_there_is_not() -> None:
    found = run(*COMMAND, "--cloud-provider", "gce")
    assert found.code == 2
    assert "there is no cloud provider 'gce' here" in found.stderr


def test_rules_and_dashboard_ask_for_metrics_that_there_are() -> None:
    assert "PrometheusRule" not in printed()
    found = [*yaml.safe_load_all(run(*COMMAND, "-n", "autoscaling", "--monitoring").stdout)]
    kinds = {each["kind"]: each for each in found}
    assert {each["metadata"].get("namespace", "autoscaling") for each in found} == {"autoscaling"}
    monitor = kinds["PodMonitor"]["spec"]
    pod = kinds["Deployment"]["spec"]["template"]
    assert monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
    assert {each["port"] for each in monitor["podMetricsEndpoints"]} <= ports
    (group,) = kinds["PrometheusRule"]["spec"]["groups"]
    dashboard = json.loads(kinds["ConfigMap"]["data"]["cluster-autoscaler.json"])
    asked = [rule["expr"] for rule in group["rules"]]
    asked += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    known = {metric.name: metric for metric in (*METRICS.values(), *WATCH_METRICS, *LEADER_METRICS)}
    for text in asked:
        for name, _, labels in re.findall(r"((?:cluster_autoscaler|kscale|leader_election)_\w+)(\{(.*?)\})?", text):
            metric = known[name.removesuffix("_bucket")]
            assert name.endswith("_bucket") == (metric.kind == "histogram"), text
            assert {each.partition("=")[0] for each in labels.split(",") if each} <= {*metric.labels}, text
    names = [rule["alert"] for rule in group["rules"]]
    assert len({*names}) == len(names) >= 10
    places = [tuple(panel["gridPos"].values()) for panel in dashboard["panels"]]
    assert len({*places}) == len(places)


def test_the_image_is_not_root_and_has_what_it_copies() -> None:
    root = Path(__file__).parents[3]
    lines = (root / "Containerfile").read_text().splitlines()
    assert "USER 65532:65532" in lines
    assert lines[-1] == 'ENTRYPOINT ["kscale"]'
    kept = [line[1:] for line in (root / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert [name for name in kept if not (root / name).exists()] == []
    project = (root / "pyproject.toml").read_text()
    (extras,) = re.findall(r"/src\[(.*?)\]", "\n".join(lines))
    assert all(f"\n{extra} = [" in project for extra in extras.split(","))
