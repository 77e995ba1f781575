"""What commands say about manifests: every workload is judged, and what cannot be judged is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unit.cli.support import kscale

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "n"}},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
}
KAFKA = {"apiVersion": "kafka.strimzi.io/v1", "kind": "Kafka", "metadata": {"name": "k", "namespace": "shop"}}


def deployment(name: str, cpu: str) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers}}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": spec,
    }


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps(NODE))
    return path


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    path = tmp_path / "manifests.json"
    items = [KAFKA, deployment("small", "100m"), deployment("large", "3"), deployment("huge", "30")]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return path


@pytest.mark.parametrize("command", ["fit", "estimate", "headroom"])
def test_custom_resources_are_named(command: str, dump: Path, manifests: Path) -> None:
    got = kscale(command, "-f", dump, "--pod", manifests)
    assert "1 Kafka.kafka.strimzi.io (custom resource: which pods it makes is not known)" in got.stdout
    assert "not modelled: 1 Kafka.kafka.strimzi.io" in got.stderr


@pytest.mark.parametrize("command", ["fit", "estimate", "headroom"])
@pytest.mark.parametrize("defined", [False, True])
def test_custom_workloads_beside_others_are_named(command: str, defined: bool, dump: Path, tmp_path: Path) -> None:
    """Kinds that kscale reads for their scale are custom resources here, too."""
    items = [
        {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "r"}, "spec": {"replicas": 2}},
        {"apiVersion": "apps.example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"replicas": 2}},
        deployment("small", "100m"),
    ]
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    spec = {
        "group": "apps.example.com",
        "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [{"name": "v1", "subresources": {"scale": scale}}],
    }
    definition = {"kind": "CustomResourceDefinition", "metadata": {"name": "widgets.apps.example.com"}, "spec": spec}
    path = tmp_path / "manifests.json"
    items += [{"apiVersion": "apiextensions.k8s.io/v1", **definition}] if defined else []
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    got = kscale(command, "-q", "-f", dump, "--pod", path)
    for name in ("Rollout.argoproj.io", "Widget.apps.example.com"):
        assert f"1 {name} (custom resource: which pods it makes is not known)" in got.stdout


@pytest.mark.parametrize("command", ["fit", "estimate", "headroom"])
def test_classes_and_quotas_that_are_not_judged_are_named(command: str, dump: Path, tmp_path: Path) -> None:
    workload = deployment("small", "100m")
    workload["spec"]["template"]["spec"] |= {"runtimeClassName": "kata", "priorityClassName": "high"}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "shop"},
        "spec": {"hard": {"requests.cpu": "50m"}},
    }
    path = tmp_path / "manifests.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [quota, workload]}))
    got = kscale(command, "-q", "-f", dump, "--pod", path)
    for name in ("RuntimeClass kata (not in the input)", "PriorityClass high (not in the input)"):
        assert name in got.stdout
    assert "ResourceQuota shop/q (whether its namespace may create the pods)" in got.stdout


@pytest.mark.parametrize("command", ["fit", "estimate", "headroom"])
def test_quotas_of_the_cluster_are_named_if_they_count_pods_of_the_namespace(
    command: str, dump: Path, tmp_path: Path
) -> None:
    hard = {"pods": {"pods": "0"}, "other": {"pods": "0"}, "services": {"services": "1", "requests.storage": "1Gi"}}
    quotas = [
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": name, "namespace": "other" if name == "other" else "shop"},
            "spec": {"hard": amounts},
        }
        for name, amounts in hard.items()
    ]
    quotas_file, workload = tmp_path / "quotas.json", tmp_path / "workload.json"
    quotas_file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": quotas}))
    workload.write_text(json.dumps(deployment("small", "100m")))
    got = kscale(command, "-q", "-f", dump, "-f", quotas_file, "--pod", workload)
    assert "ResourceQuota shop/pods (whether its namespace may create the pods)" in got.stdout
    assert "other/other" not in got.stdout
    assert "shop/services" not in got.stdout


def test_estimate_of_a_daemon_set_says_that_it_needs_no_nodes(dump: Path, tmp_path: Path) -> None:
    workload = {**deployment("agent", "100m"), "kind": "DaemonSet"}
    path = tmp_path / "manifests.json"
    path.write_text(json.dumps(workload))
    got = kscale("estimate", "-q", "-f", dump, "--node", "n", "--pod", path)
    assert "every new node carries them" in got.stdout


def test_headroom_answers_for_each_workload(dump: Path, manifests: Path) -> None:
    got = kscale("headroom", "-q", "-f", dump, "--pod", manifests)
    assert got.stdout.startswith("3 workloads: 1 of them has no room for one more pod.")
    answer = json.loads(kscale("headroom", "-q", "-f", dump, "--pod", manifests, "-o", "json").stdout)
    assert [(item["name"], item["more"]) for item in answer["pods"]] == [("small", 40), ("large", 1), ("huge", 0)]


def test_estimate_of_workloads_without_pods_says_how_to_ask(manifests: Path) -> None:
    got = kscale("estimate", "-q", "-f", manifests)
    assert "The input has 3 Deployments, but no Pods. --pod FILE asks about the pods" in got.stdout


@pytest.mark.parametrize("command", ["mix", "scale-up", "headroom"])
def test_an_input_of_workloads_without_pods_says_how_to_ask(command: str, manifests: Path, tmp_path: Path) -> None:
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    group = {"id": "g", "max": 9, "price": 1.0, "template": {"status": {"capacity": room, "allocatable": room}}}
    groups = tmp_path / "groups.json"
    groups.write_text(json.dumps([group]))
    words = [] if command == "headroom" else ["-g", groups]
    got = kscale(command, "-q", "-f", manifests, *words)
    assert "The input has 3 Deployments, but no Pods." in got.stdout
    assert "--pod FILE asks about the pods" in got.stdout
    assert "extra [solver]" not in got.stdout
    assert "all fit again" not in got.stdout


@pytest.mark.parametrize("command", ["fit", "headroom", "estimate"])
def test_of_manifests_of_one_name_the_last_counts(command: str, dump: Path, tmp_path: Path) -> None:
    path = tmp_path / "manifests.json"
    path.write_text(json.dumps([deployment("web", "9"), deployment("web", "100m")]))
    words = ["--node", "n"] if command == "estimate" else []
    got = kscale(command, "-f", dump, "--pod", path, *words, "-o", "json")
    answer = json.loads(got.stdout)
    field, expected = {"fit": ("fit", 1), "headroom": ("more", 40), "estimate": ("pendingCount", 1)}[command]
    assert answer[field] == expected
    assert "(Deployment shop/web): comes twice; the last one counts" in got.stderr


def test_fit_takes_the_scores_of_kube_scheduler(dump: Path, manifests: Path) -> None:
    for words in ((), ("--scheduler-scores",)):
        answer = json.loads(kscale("fit", "-q", "-f", dump, "--pod", manifests, *words, "-o", "json").stdout)
        assert [item["fit"] for item in answer["workloads"]] == [1, 1, 0]
