"""``kscale vpa``: what the updater and the admission webhook would do on a dump."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unit.cli.support import kscale

NOW = "2026-01-05T12:00:00Z"


def objects(
    *, mode: str = "Recreate", replicas: int = 2, requests: str = "100m", **policy: Any
) -> list[dict[str, Any]]:
    """A ReplicaSet with its pods, and a VPA that wants 300m (200m to 500m) for each."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    containers = [{"name": "app", "resources": {"requests": {"cpu": requests, "memory": "1Gi"}}}]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"web-{i}", "namespace": "shop", "labels": {"app": "web"}, "ownerReferences": [owner]},
            "spec": {"containers": containers, "nodeName": "n1"},
            "status": {"phase": "Running", "startTime": "2026-01-05T06:00:00Z"},
        }
        for i in range(replicas)
    ]
    amounts = {"target": "300m", "lowerBound": "200m", "upperBound": "500m"}
    item = {"containerName": "app", **{name: {"cpu": cpu, "memory": "1Gi"} for name, cpu in amounts.items()}}
    autoscaler = {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"},
            "updatePolicy": {"updateMode": mode, **policy},
        },
        "status": {"recommendation": {"containerRecommendations": [item]}},
    }
    return [replica_set, *pods, autoscaler]


def budget(allowed: int) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1},
        "status": {"disruptionsAllowed": allowed},
    }


def plan(tmp_path: Path, items: list[dict[str, Any]], *more: str) -> dict[str, Any]:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    run = kscale("vpa", "-f", path, "--now", NOW, "-o", "json", *more)
    assert run.code == 0, run.stderr
    document: dict[str, Any] = json.loads(run.stdout)
    assert (document["kind"], document["program"]) == ("VPARoundPlan", "vpa-updater")
    return document


TOO_FEW = "1 live pods of ReplicaSet/web, at least 2 are needed (minReplicas)"
VIOLATED = "Cannot evict pod as it would violate the pod's disruption budget (shop/web)."
RANGE = "requests are within the recommended range, and "


@pytest.mark.parametrize(
    ("items", "more", "evicted", "reasons"),
    [
        (objects(), (), 1, {"Budget": "1 of 2 replicas run, and 1 may be missing"}),
        (objects(replicas=1), (), 0, {"TooFewReplicas": TOO_FEW}),
        (objects(replicas=1), ("--min-replicas", "1"), 1, {}),
        (objects(replicas=1, minReplicas=1), (), 1, {}),
        (objects(mode="Off"), (), 0, {"Mode": "update mode Off: running pods are left as they are"}),
        (objects(mode="Initial"), (), 0, {"Mode": "update mode Initial: running pods are left as they are"}),
        (objects(requests="250m"), (), 0, {"Lifetime": f"{RANGE}the pod is younger than 12h0m0s"}),
        (
            objects(requests="290m"),
            ("--now", "2026-01-09T12:00:00Z"),
            0,
            {"InRange": f"{RANGE}the target differs by 3.4%, less than 10.0%"},
        ),
        (
            objects(evictionRequirements=[{"resources": ["cpu"], "changeRequirement": "TargetLowerThanRequests"}]),
            (),
            0,
            {"EvictionRequirements": "the VPA's evictionRequirements do not hold"},
        ),
        (
            [*objects(), budget(0)],
            (),
            0,
            {"Refused": VIOLATED},
        ),
        ([*objects(replicas=4), budget(1)], (), 1, {"Refused": VIOLATED}),
    ],
)
def test_pods_that_are_left_alone_have_a_reason(
    tmp_path: Path, items: list[dict[str, Any]], more: tuple[str, ...], evicted: int, reasons: dict[str, str]
) -> None:
    (only,) = plan(tmp_path, items, *more)["vpas"]
    assert len(only["evict"]) == evicted
    assert {each["reason"]: each["message"] for each in only["unchanged"]} == reasons
    pods = sum(item["kind"] == "Pod" for item in items)
    assert len(only["unchanged"]) + evicted == pods


def test_a_vpa_without_a_recommendation(tmp_path: Path) -> None:
    items = objects()
    del items[-1]["status"]
    (only,) = plan(tmp_path, items)["vpas"]
    assert {each["reason"] for each in only["unchanged"]} == {"NoRecommendation"}


def test_new_pods_get_the_recommendation(tmp_path: Path) -> None:
    (only,) = plan(tmp_path, objects(mode="Initial"))["vpas"]
    assert only["admission"] == [
        {
            "container": "app",
            "requests": {"cpu": "100m", "memory": "1Gi"},
            "limits": {},
            "newRequests": {"cpu": "300m", "memory": "1Gi"},
            "newLimits": {},
        }
    ]
    (off,) = plan(tmp_path, objects(mode="Off"))["vpas"]
    assert off["admission"] == []


def test_the_table_and_the_pods_of_a_name(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects()}))
    output = kscale("vpa", "-f", path, "--now", NOW).stdout
    assert output.startswith("The updater would evict 1 and resize 0 pods.\n")
    assert "1 Budget" in output
    assert "app: cpu 300m, memory 1Gi" in output
    named = kscale("vpa", "-f", path, "--now", NOW, "web", "-n", "shop").stdout
    assert "web-0  evicted" in named
    assert "1 of 2 replicas run, and 1 may be missing" in named
    unknown = kscale("vpa", "-f", path, "nosuch", "-n", "shop")
    assert (unknown.code, "no VerticalPodAutoscaler shop/nosuch in the input" in unknown.stderr) == (2, True)
