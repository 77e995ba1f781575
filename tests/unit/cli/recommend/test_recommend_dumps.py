"""``kscale recommend``: what of a dump counts, and dumps that are not as they should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import kscale.vpa
from unit.cli.recommend.support import (
    MIB,
    answer,
    at_least,
    dump,
    recommend,
    rows,
    vpa,
    with_items,
)
from unit.cli.support import kscale


def test_compare_and_hpa(cluster: Path) -> None:
    document = dump()
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    recommendation = {"containerName": "app", "target": {"cpu": "200m", "memory": "500Mi"}}
    document["items"] += [
        {
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": {"name": "own", "namespace": "shop"}, "spec": {"targetRef": target},
            "status": {"recommendation": {"containerRecommendations": [recommendation]}},
        },
        {
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "scaleTargetRef": target, "maxReplicas": 3,
                "metrics": [{"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}],
            },
        },
    ]  # fmt: skip
    cluster.write_text(json.dumps(document))
    run = recommend(cluster, rows(200))
    header = next(line for line in run.stdout.splitlines() if line.startswith("NAMESPACE"))
    assert "MEMORY COMPARE SEVERITY" in " ".join(header.split())
    assert "200m, 500Mi" in run.stdout
    assert "HPA detected" in run.stdout
    assert "an HPA scales by a resource that these requests are of: shop/Deployment/web" in run.stderr
    (one,) = answer(recommend(cluster, rows(200), "-o", "json"))["containers"]
    assert (one["vpa"], one["implied"]) == ("own", False)
    assert (one["cpu"]["compare"], one["memory"]["compare"]) == (200, 500 * MIB)


def test_out_of_memory_in_the_dump(cluster: Path) -> None:
    document = dump()
    document["items"][2]["status"]["containerStatuses"] = [{
        "name": "app", "restartCount": 1, "state": {"running": {}},
        "lastState": {"terminated": {"reason": "OOMKilled", "finishedAt": "2026-01-05T03:00:00Z"}},
    }]  # fmt: skip
    calm = answer(recommend(cluster, rows(200), "-o", "json"))["containers"][0]
    cluster.write_text(json.dumps(document))
    run = recommend(cluster, rows(200), "-o", "json")
    (one,) = answer(run)["containers"]
    assert one["info"] == ["OOM"]
    assert one["memory"]["target"] > calm["memory"]["target"]


def test_from_checkpoints_alone(cluster: Path) -> None:
    document = dump()
    histogram = {"referenceTimestamp": "2026-01-05T00:00:00Z", "bucketWeights": {"8": 10000}, "totalWeight": 50.0}
    status = {
        "version": "v3",
        "firstSampleStart": "2026-01-01T00:00:00Z",
        "lastSampleStart": "2026-01-05T00:00:00Z",
        "totalSamplesCount": 5000,
        "cpuHistogram": histogram,
        "memoryHistogram": {**histogram, "bucketWeights": {"19": 1}},
    }
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    version = "autoscaling.k8s.io/v1"
    document["items"] += [
        {"apiVersion": version, "kind": "VerticalPodAutoscaler", "metadata": {"name": "own", "namespace": "shop"},
         "spec": {"targetRef": target}},
        *(
            {"apiVersion": version, "kind": "VerticalPodAutoscalerCheckpoint",
             "metadata": {"name": f"{name}-app", "namespace": "shop"},
             "spec": {"vpaObjectName": name, "containerName": "app"}, "status": status}
            for name in ("own", "gone")
        ),
    ]  # fmt: skip
    cluster.write_text(json.dumps(document))
    run = kscale("recommend", "-f", cluster, "-o", "json")
    (one,) = answer(run)["containers"]
    assert (one["samples"], one["cpu"]["target"], one["memory"]["target"]) == (5000, 126, 380258472)
    assert "cannot load checkpoint to missing VPA object shop/gone" in run.stderr
    run = kscale("recommend", "-f", cluster, "--no-checkpoints")
    assert run.code == 2
    assert "nothing to recommend from" in run.stderr


def test_a_vpa_of_another_recommender(cluster: Path) -> None:
    plain = answer(recommend(cluster, rows(200), "-o", "json"))["containers"]
    with_items(cluster, vpa("deployment-web", recommenders=[{"name": "custom"}], **at_least("7")))
    run = recommend(cluster, rows(200), "-o", "json")
    (one,) = answer(run)["containers"]
    assert (one["vpa"], one["implied"]) == ("deployment-web-2", True)  # under a name of its own
    assert [{**one, "vpa": "deployment-web"}] == plain
    assert "1 VPAs of another recommender, not taken" in run.stderr


def test_the_oldest_of_two_vpas_wins(cluster: Path) -> None:
    with_items(
        cluster, vpa("a", "2026-01-02T00:00:00Z", **at_least("7")), vpa("b", "2025-01-01T00:00:00Z", **at_least("3"))
    )
    run = recommend(cluster, rows(200), "-o", "json")
    (one,) = answer(run)["containers"]
    assert (one["vpa"], one["cpu"]["target"], one["cpu"]["uncappedTarget"]) == ("b", 3000, 126)
    assert "1 VPAs on a workload that an older VPA is for" in run.stderr


def test_a_vpa_object_keeps_its_spec(cluster: Path) -> None:
    other = dump()["items"][0]
    other["metadata"]["name"] = "db"
    own = vpa("own", updatePolicy={"updateMode": "Recreate"}, **at_least("3"))
    with_items(cluster, own, {**other, "spec": {**other["spec"], "selector": {"matchLabels": {"app": "db"}}}})
    (result,) = yaml.safe_load_all(recommend(cluster, rows(200), "-o", "vpa").stdout)  # none for db: no advice
    assert (result["metadata"]["name"], result["spec"]) == ("own", own["spec"])
    (item,) = result["status"]["recommendation"]["containerRecommendations"]
    assert (item["target"]["cpu"], item["uncappedTarget"]["cpu"]) == ("3", "126m")
    (patch,) = yaml.safe_load_all(recommend(cluster, rows(200), "-o", "patch").stdout)
    assert patch["metadata"]["name"] == "web"
    small = yaml.safe_load(recommend(cluster, rows(200, memory=MIB), "-o", "vpa").stdout)
    (item,) = small["status"]["recommendation"]["containerRecommendations"]
    assert item["target"]["memory"] == "250Mi"


def test_pods_with_different_requests(cluster: Path) -> None:
    document = dump()
    pod = document["items"].pop()
    for i, cpu in enumerate(("500m", "2", "3")):
        resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
        spec = {**pod["spec"], "containers": [{"name": "app", "resources": resources}]}
        status = {**pod["status"]}
        if cpu == "3":  # resized in place: what the status reports counts
            status["containerStatuses"] = [{"name": "app", "resources": {"requests": {"cpu": "1", "memory": "2Gi"}}}]
        document["items"].append(
            {**pod, "metadata": {**pod["metadata"], "name": f"p{i}"}, "spec": spec, "status": status}
        )
    cluster.write_text(json.dumps(document))
    record = answer(recommend(cluster, rows(200, pod="p0"), "-o", "json"))
    (one,) = record["containers"]
    assert (record["requestedMillicores"], record["requestedBytes"]) == (3500, 4 << 30)
    assert record["changeMillicores"] == 3 * 126 - 3500
    assert one["info"] == ["requests differ"]
    assert (one["cpu"]["request"], one["cpu"]["requests"]) == (500, [500, 1000, 2000])
    assert one["memory"]["requests"] == [1 << 30, 2 << 30]
    assert one["cpu"]["severity"] == "critical"  # of the pod that asks for 2, which is farthest
    same = answer(recommend(cluster, rows(200, pod="p0"), "--qos", "guaranteed", "-o", "json"))
    assert same["changeMillicores"] == record["changeMillicores"]


def test_finished_pods_belong_to_their_owner(cluster: Path) -> None:
    document = dump()
    pod = document["items"].pop()
    finished = {**pod, "metadata": {**pod["metadata"], "name": "oddly-named"}, "status": {"phase": "Failed"}}
    cron = {
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tidy", "namespace": "shop"},
        "spec": {"jobTemplate": {"spec": {"template": {
            "metadata": {"labels": {"app": "tidy"}}, "spec": {"containers": [{"name": "app"}]}}}}},
    }  # fmt: skip
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "tidy", "uid": "u", "controller": True}
    job = {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "by-hand", "namespace": "shop", "ownerReferences": [owner]}, "spec": {},
    }  # fmt: skip
    cluster.write_text(json.dumps({**document, "items": [*document["items"], finished, cron, job]}))
    lines = rows(200, pod="oddly-named") + rows(200, pod="by-hand-bcdfg", cpu=0.3)
    run = recommend(cluster, lines, "-o", "json")
    tidy, web = answer(run)["containers"]
    assert (web["workload"], web["cpu"]["target"], web["pods"]) == ("Deployment/web", 126, 0)
    assert (tidy["workload"], tidy["samples"]) == ("CronJob/tidy", 200)
    assert "no known workload" not in run.stderr


@pytest.mark.parametrize(
    "spec",
    [
        {"apiVersion": "autoscaling/v2", "metrics": [{"type": "Resource", "resource": {
            "name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}]},
        {"apiVersion": "autoscaling/v2"},
        {"apiVersion": "autoscaling/v1", "targetCPUUtilizationPercentage": 50},
        {"apiVersion": "autoscaling/v2", "metrics": [{"type": "ContainerResource", "containerResource": {
            "name": "cpu", "container": "app", "target": {"type": "Utilization", "averageUtilization": 50}}}]},
    ],
)  # fmt: skip
def test_hpas_of_every_form(cluster: Path, spec: dict[str, Any]) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    hpa = {
        "apiVersion": spec["apiVersion"], "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3, **spec},
    }  # fmt: skip
    del hpa["spec"]["apiVersion"]
    with_items(cluster, hpa)
    (one,) = answer(recommend(cluster, rows(200), "-o", "json"))["containers"]
    assert one["info"] == ["HPA detected"]


def test_evictions_for_memory_and_kills_of_long_ago(cluster: Path) -> None:
    calm = answer(recommend(cluster, rows(200), "-o", "json"))["containers"][0]
    event = {
        "apiVersion": "v1", "kind": "Event", "reason": "Evicted",
        "metadata": {
            "name": "e", "namespace": "shop", "creationTimestamp": "2026-01-05T03:00:00Z",
            "annotations": {"offending_containers": "app", "offending_containers_usage": "3Gi",
                            "starved_resource": "memory"},
        },
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-5d4f8-qwrtz"},
    }  # fmt: skip
    with_items(cluster, event)
    run = recommend(cluster, rows(200), "-o", "json")
    (one,) = answer(run)["containers"]
    assert one["info"] == ["OOM"]
    assert one["memory"]["target"] > 3 << 30
    event["metadata"]["creationTimestamp"] = "2025-01-05T03:00:00Z"
    with_items(cluster, event)
    lines = rows(200) + rows(200, pod="web-5d4f8-qwrtz")
    run = recommend(cluster, lines, "-o", "json")
    assert answer(run)["containers"][0]["memory"]["target"] <= calm["memory"]["target"]
    assert "1 containers killed for memory too long ago" in run.stderr


def test_a_kill_at_no_time(cluster: Path) -> None:
    document = dump()
    document["items"][2]["status"]["containerStatuses"] = [
        {"name": "app", "lastState": {"terminated": {"reason": "OOMKilled", "finishedAt": "lately"}}}
    ]
    cluster.write_text(json.dumps(document))
    run = recommend(cluster, rows(200))
    assert run.code == 2
    assert "Pod shop/web-5d4f8-abcde: status.containerStatuses[app]" in run.stderr
    assert '"lately" is not an RFC 3339 time' in run.stderr


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (("cpuHistogram", "bucketWeights"), {"20": 2**32}, "bucketWeights[20]: 4294967296 is no uint32"),
        (("cpuHistogram", "bucketWeights"), {"20": -5}, "bucketWeights[20]: -5 is no uint32"),
        (("cpuHistogram", "bucketWeights"), {"20": "many"}, "bucketWeights[20]: 'many' is no uint32"),
        (("cpuHistogram", "bucketWeights"), {"twenty": 5}, "bucketWeights: 'twenty' is no bucket"),
        (("memoryHistogram", "referenceTimestamp"), "2500-06-01T00:00:00Z", "memoryHistogram.referenceTimestamp: "),
        (("cpuHistogram", "referenceTimestamp"), "0001-06-01T00:00:00Z", "is out of range"),
        (("lastSampleStart",), "lately", 'status.lastSampleStart: "lately" is not an RFC 3339 time'),
    ],
)
def test_checkpoints_that_no_server_holds(cluster: Path, where: tuple[str, ...], value: object, message: str) -> None:
    moment = "2026-01-05T00:00:00Z"
    histogram = {"referenceTimestamp": moment, "bucketWeights": {"20": 10000}, "totalWeight": 8.0}
    status: dict[str, Any] = {
        "version": "v3", "firstSampleStart": "2026-01-01T00:00:00Z", "lastSampleStart": moment,
        "totalSamplesCount": 9000, "cpuHistogram": {**histogram}, "memoryHistogram": {**histogram},
    }  # fmt: skip
    checkpoint = {
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscalerCheckpoint",
        "metadata": {"name": "own-app", "namespace": "shop"},
        "spec": {"vpaObjectName": "own", "containerName": "app"}, "status": status,
    }  # fmt: skip
    with_items(cluster, vpa("own"), checkpoint)
    assert answer(kscale("recommend", "-f", cluster, "-o", "json"))["containers"][0]["cpu"]["target"] > 0
    inner = status
    for name in where[:-1]:
        inner = inner[name]
    inner[where[-1]] = value
    with_items(cluster, vpa("own"), checkpoint)
    run = kscale("recommend", "-f", cluster)
    assert run.code == 2
    assert "VerticalPodAutoscalerCheckpoint shop/own-app: " in run.stderr
    assert message in run.stderr
