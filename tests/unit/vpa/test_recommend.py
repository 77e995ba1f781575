"""``vpa.recommend``: requests for workloads, from objects and usage to a report."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import kscale
from kscale import vpa
from kscale.errors import InputError
from kscale.objects.api.vpa import VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint
from kscale.objects.decode import from_dict
from kscale.series.columns import SeriesKey
from kscale.series.usage_reader import UsageBatch
from kscale.vpa.advice.records import build_patch
from kscale.vpa.strategies import find_strategy
from unit.cli.recommend.support import MIB, START, dump, rows

SECOND = 10**9


def items() -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = dump()["items"]
    return result


def batch(count: int = 200, cpu: float = 0.1, pod: str = "web-5d4f8-abcde") -> UsageBatch:
    return UsageBatch(
        [SeriesKey("shop", pod, "app")],
        [""],
        np.zeros(count, np.int32),
        (START + 60 * np.arange(count)) * SECOND,
        np.full(count, cpu),
        np.full(count, 300.0 * MIB),
    )


def test_objects_and_batches() -> None:
    report = vpa.recommend(items(), [batch()])
    (one,) = report.containers
    assert (one.workload, one.container, one.cpu.target, one.memory.target) == ("Deployment/web", "app", 126, 380258472)
    assert report.now == "2026-01-05T03:19:00Z"
    assert report.change_millicores == -374
    assert pickle.loads(pickle.dumps(report)) == report
    assert msgspec.json.decode(msgspec.json.encode(report))["containers"][0]["samples"] == 200


def test_a_cluster_and_a_file(tmp_path: Path) -> None:
    path = tmp_path / "usage.csv"
    path.write_text("time,namespace,pod,container,cpu_cores,memory_bytes\n" + "".join(rows(200)))
    cluster = kscale.load(items())
    assert vpa.recommend(cluster, path) == vpa.recommend(cluster, str(path)) == vpa.recommend(items(), [batch()])


def test_saved_warnings_are_reported_once(tmp_path: Path) -> None:
    labels = {"namespace": "shop", "pod": "web-5d4f8-abcde", "container": "app", "resource": "cpu"}
    result = [{"metric": labels, "values": [[START + 60 * i, "0.1"] for i in range(200)]}]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}, "warnings": ["a store is away"]}
    path = tmp_path / "usage.json"
    path.write_bytes(msgspec.json.encode(answer))
    counts = vpa.recommend(items(), path).counts
    assert (counts["samples"], counts["warnings of the source: a store is away"]) == (200, 1)


@pytest.mark.parametrize("now", [datetime(2026, 1, 5, 4, tzinfo=UTC), (START + 4 * 3600) * SECOND])
def test_now_argument_is_in_the_report(now: datetime | int) -> None:
    assert vpa.recommend(items(), [batch()], now=now).now == "2026-01-05T04:00:00Z"


@pytest.mark.parametrize("now", [datetime(2026, 1, 5, 4), 2**63, 1.5])  # noqa: DTZ001  # a time without a zone is refused
def test_invalid_now_is_an_input_error(now: Any) -> None:
    with pytest.raises(InputError, match="now: "):
        vpa.recommend(items(), [batch()], now=now)


@pytest.mark.parametrize(
    ("chosen", "count", "note"),
    [
        ({"namespaces": ["shop"], "kinds": ["deployment"], "selector": "app=web"}, 1, ""),
        ({"namespaces": ["shop", "bakery"]}, 1, "no workload in the namespace bakery"),
        ({"kinds": ["DaemonSet"]}, 0, "no workload of the kind DaemonSet"),
        ({"selector": "app!=web"}, 0, "no workload with the pod labels app!=web"),
    ],
)
def test_workloads_are_chosen(chosen: dict[str, Any], count: int, note: str) -> None:
    report = vpa.recommend(items(), [batch()], **chosen)
    assert len(report.containers) == count
    assert report.notes == ([note] if note else [])


def test_invalid_selector_is_an_input_error() -> None:
    with pytest.raises(InputError, match="selector 'app in': "):
        vpa.recommend(items(), [batch()], selector="app in")


def test_malformed_creation_time_of_two_vpas_of_one_target_is_an_input_error() -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    vpas = [
        {
            "apiVersion": "autoscaling.k8s.io/v1",
            "kind": "VerticalPodAutoscaler",
            "metadata": {"name": name, "namespace": "shop", "creationTimestamp": created},
            "spec": {"targetRef": target},
        }
        for name, created in (("one", "2024-01-01T00:00:00Z"), ("two", "yesterday"))
    ]
    with pytest.raises(InputError, match=r'VerticalPodAutoscaler shop/two.*creationTimestamp.*"yesterday"'):
        vpa.recommend([*items(), *vpas], [batch()])


def test_strategies_and_options() -> None:
    (one,) = vpa.recommend(items(), [batch()], strategy=find_strategy("percentile")).containers
    assert one.cpu.target == 100
    options = vpa.RecommenderOptions(recommendation_margin_fraction=1.0)
    (one,) = vpa.recommend(items(), [batch()], options=options).containers
    assert one.cpu.target == 220
    (one,) = vpa.recommend(items(), [batch(50)], points_required=51).containers
    assert (one.cpu.target, one.info) == (None, ["not enough data"])


def test_checkpoints_are_taken_in() -> None:
    body = {
        "metadata": {"name": "deployment-web-app", "namespace": "shop"},
        "spec": {"vpaObjectName": "deployment-web", "containerName": "app"},
        "status": {
            "version": "v3",
            "cpuHistogram": {
                "referenceTimestamp": "2026-01-05T00:00:00Z", "bucketWeights": {"60": 10000}, "totalWeight": 1000.0,
            },
            "firstSampleStart": "2026-01-01T00:00:00Z",
            "lastSampleStart": "2026-01-05T00:00:00Z",
            "totalSamplesCount": 5000,
        },
    }  # fmt: skip
    checkpoint = from_dict(body, VerticalPodAutoscalerCheckpoint)
    (one,) = vpa.recommend(items(), [batch()], checkpoints=[checkpoint]).containers
    assert one.samples == 5200
    assert one.cpu.target is not None
    assert one.cpu.target > 1000
    (alone,) = vpa.recommend(items(), [], checkpoints=[checkpoint], now=START * SECOND).containers
    assert (alone.memory.target, alone.info) == (None, ["no memory data"])


def test_threads_and_progress() -> None:
    progress: list[int] = []
    report = vpa.recommend(items(), [batch(), batch(pod="web-5d4f8-other")], progress=progress.append, threads=3)
    assert progress == [200, 400]
    assert report == vpa.recommend(items(), [batch(), batch(pod="web-5d4f8-other")])


# -- owners of custom kinds ------------------------------------------------------------------------------------


def owned_by(api_version: str, kind: str, *, direct: bool = False) -> list[dict[str, Any]]:
    """The dump, with its Deployment owned by a custom resource, or (``direct``) the ReplicaSet in its place."""
    objects = items()
    reference = {"apiVersion": api_version, "kind": kind, "name": "top", "uid": "u", "controller": True}
    if direct:
        objects = objects[1:]
    objects[0]["metadata"]["ownerReferences"] = [reference]
    return objects


def definition(group: str, kind: str, scale: dict[str, str] | None) -> dict[str, Any]:
    versions = [{"name": "v1", "subresources": {} if scale is None else {"scale": scale}}]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.lower()}s.{group}"},
        "spec": {"group": group, "names": {"kind": kind, "plural": f"{kind.lower()}s"}, "versions": versions},
    }


SELECTING = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}
PATHS = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


def test_an_owner_without_a_scale_leaves_the_deployment_topmost() -> None:
    objects = owned_by("example.com/v1", "Gateway")
    report = vpa.recommend(objects, [batch()])
    (one,) = report.containers
    assert (one.workload, one.cpu.target) == ("Deployment/web", 126)
    assert report.notes == ["the input has no CustomResourceDefinition of Gateway.example.com: taken to have no scale"]
    report = vpa.recommend([*objects, definition("example.com", "Gateway", None)], [batch()])
    assert [(each.workload, each.cpu.target) for each in report.containers] == [("Deployment/web", 126)]
    assert report.notes == []


def test_an_owner_with_a_scale_is_the_workload() -> None:
    objects = [*owned_by("example.com/v1", "Gateway"), definition("example.com", "Gateway", PATHS)]
    report = vpa.recommend(objects, [batch()])
    assert [(each.workload, each.cpu.target, each.pods) for each in report.containers] == [("Gateway/top", 126, 1)]
    assert report.notes == ["the input has no Gateway.example.com shop/top, which owns others"]


ROLLOUT = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Rollout",
    "metadata": {"name": "top", "namespace": "shop"},
    "spec": {"replicas": 1, "template": dump()["items"][0]["spec"]["template"]},
    "status": {"selector": "app=web"},
}


def test_a_rollout_is_a_workload() -> None:
    objects = owned_by("argoproj.io/v1alpha1", "Rollout", direct=True)
    for more in ([], [ROLLOUT]):
        report = vpa.recommend([*objects, *more], [batch(), batch(pod="web-5d4f8-bcdfg")])
        assert [(each.workload, each.pods, each.samples) for each in report.containers] == [("Rollout/top", 1, 400)]
    target = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "top"}
    body = {"metadata": {"name": "mine", "namespace": "shop"}, "spec": {"targetRef": target}}
    own = {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", **body}
    (one,) = vpa.recommend([*objects, ROLLOUT, own], [batch()]).containers
    assert (one.vpa, one.implied, one.cpu.target) == ("mine", False, 126)
    broken = {**ROLLOUT, "status": {}}
    report = vpa.recommend([*objects, broken, own], [batch()])
    assert report.containers == []
    assert any("has an empty selector for scale sub-resource" in note for note in report.notes)


GATEWAY = {**ROLLOUT, "apiVersion": "example.com/v1", "kind": "Gateway"}
TARGET = {"apiVersion": "example.com/v1", "kind": "Gateway", "name": "top"}


def test_a_workload_of_any_kind_with_a_scale_is_read() -> None:
    objects = owned_by("example.com/v1", "Gateway", direct=True)
    for order in ([GATEWAY, definition("example.com", "Gateway", SELECTING)],
                  [definition("example.com", "Gateway", SELECTING), GATEWAY]):  # fmt: skip
        report = vpa.recommend(kscale.load([*objects, *order]), [batch()])
        assert [(each.workload, each.cpu.target, each.pods) for each in report.containers] == [("Gateway/top", 126, 1)]
        assert report.notes == []
    without = kscale.load([*objects, GATEWAY, definition("example.com", "Gateway", None)])
    assert without.report is not None
    assert without.report.skipped == {"Gateway.example.com": 1}
    assert [each.workload for each in vpa.recommend(without, [batch()]).containers] == ["ReplicaSet/web-5d4f8"]


@pytest.mark.parametrize("scaler", ["VerticalPodAutoscaler", "HorizontalPodAutoscaler", "ScaledObject"])
def test_target_of_an_autoscaler_is_assumed_to_have_a_scale(scaler: str) -> None:
    """The definition is not in the dump, but an autoscaler of the dump has the kind as its target."""
    version, field = {
        "VerticalPodAutoscaler": ("autoscaling.k8s.io/v1", "targetRef"),
        "HorizontalPodAutoscaler": ("autoscaling/v2", "scaleTargetRef"),
        "ScaledObject": ("keda.sh/v1alpha1", "scaleTargetRef"),
    }[scaler]
    spec = {field: TARGET, **({"maxReplicas": 3} if scaler == "HorizontalPodAutoscaler" else {})}
    metadata = {"name": "mine", "namespace": "shop"}
    own = {"apiVersion": version, "kind": scaler, "metadata": metadata, "spec": spec}
    objects = [*owned_by("example.com/v1", "Gateway", direct=True), own]
    report = vpa.recommend(kscale.load([*objects, GATEWAY]), [batch()])
    assert [(each.workload, each.cpu.target) for each in report.containers] == [("Gateway/top", 126)]
    missing = "the input has no CustomResourceDefinition of Gateway.example.com"
    reason = f"as {scaler} shop/mine scales one"
    assert report.notes == [f"{missing}: its selector is read from .status.selector, {reason}"]
    report = vpa.recommend(kscale.load(objects), [batch()])
    assert [(each.workload, each.cpu.target) for each in report.containers] == [("Gateway/top", 126)]
    assert report.notes[0] == f"{missing}: taken to have a scale, {reason}"


def test_a_target_that_a_vpa_reports_as_not_supported_shows_no_scale() -> None:
    status = {"conditions": [{"type": "ConfigUnsupported", "status": "True"}]}
    body = {"metadata": {"name": "mine", "namespace": "shop"}, "spec": {"targetRef": TARGET}, "status": status}
    own = {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", **body}
    report = vpa.recommend(kscale.load([*owned_by("example.com/v1", "Gateway"), GATEWAY, own]), [batch()])
    assert [each.workload for each in report.containers] == ["Deployment/web"]
    assert "the input has no CustomResourceDefinition of Gateway.example.com: taken to have no scale" in report.notes


def test_a_custom_object_that_cannot_be_read_is_left_out_with_a_warning() -> None:
    odd = {**GATEWAY, "status": []}
    cluster = kscale.load([odd, definition("example.com", "Gateway", SELECTING)])
    assert cluster.report is not None
    assert cluster.report.skipped == {"Gateway.example.com": 1}
    assert [(each.message.split(":")[0], each.object) for each in cluster.report.warnings] == [
        ("not read", "Gateway shop/top")
    ]


def test_pods_of_a_clone_set_belong_to_it() -> None:
    (pod,) = items()[2:]
    reference = {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "top", "controller": True}
    pod["metadata"]["ownerReferences"] = [{**reference, "uid": "u"}]
    (one,) = vpa.recommend([pod], [batch()]).containers
    assert (one.workload, one.container, one.cpu.target) == ("CloneSet/top", "app", 126)


def test_new_pod_of_a_custom_owner_is_patched_or_the_reason_is_reported() -> None:
    objects = [*owned_by("example.com/v1", "Gateway")]
    cluster = kscale.load(objects)
    body = {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
        "status": {"recommendation": {"containerRecommendations": [{"containerName": "app", "target": {"cpu": "2"}}]}},
    }
    (pod,) = cluster.pods()
    own = from_dict(body, VerticalPodAutoscaler)
    admitted = vpa.admit_pod(pod, [own], controllers=vpa.read_controllers(cluster))
    assert [each.value for each in admitted.patches if each.path.endswith("requests/cpu")] == ["2"]
    assert admitted.diagnostics == []
    unknown = vpa.admit_pod(pod, [own], controllers=vpa.Controllers(cluster))
    assert unknown.patches == []
    text = "Failed to get parent controller for pod shop/web-5d4f8-abcde: unhandled targetRef example.com/v1 / Gateway"
    assert unknown.diagnostics == [f'{text} / top, last error no matches for kind "Gateway" in group "example.com"']


# -- patches ---------------------------------------------------------------------------------------------------


def limited(limits: dict[str, str], policy: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    objects = items()
    for item in objects:
        spec = item["spec"].get("template", item)["spec"]
        spec["containers"][0]["resources"] = {"requests": {"cpu": "50m", "memory": "100Mi"}, "limits": limits}
    if policy is not None:
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        policies = {"containerPolicies": [{"containerName": "*", **policy}]}
        body = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"targetRef": target}}
        body["spec"]["resourcePolicy"] = policies
        objects.append({"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", **body})
    return objects


def patch(objects: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    document = build_patch(vpa.recommend(objects, [batch()], **more).containers)
    assert document is not None
    (container,) = document["spec"]["template"]["spec"]["containers"]
    resources: dict[str, Any] = container["resources"]
    return resources


def test_limits_of_a_patch_follow_requests() -> None:
    assert patch(limited({"cpu": "100m", "memory": "100Mi"})) == {
        "requests": {"cpu": "126m", "memory": "380258472"},
        "limits": {"cpu": "252m", "memory": "380258472"},
    }
    assert patch(limited({})) == {"requests": {"cpu": "126m", "memory": "380258472"}}


def test_a_patch_of_requests_only_keeps_below_limits() -> None:
    only = {"controlledValues": "RequestsOnly"}
    assert patch(limited({"cpu": "100m", "memory": "1Gi"}, only)) == {
        "requests": {"cpu": "100m", "memory": "380258472"}
    }


def test_a_default_limit_counts_as_the_pods() -> None:
    limits = {"type": "Container", "default": {"cpu": "100m"}}
    ranged = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": "shop"}}
    ranged["spec"] = {"limits": [limits]}
    assert patch([*limited({}), ranged])["limits"] == {"cpu": "252m"}
    only = {"controlledValues": "RequestsOnly"}
    assert patch([*limited({}, only), ranged])["requests"]["cpu"] == "100m"


@pytest.mark.parametrize(
    ("limit_range", "limits", "expected"),
    [
        (
            {"type": "Container", "max": {"cpu": "80m"}},
            {"cpu": "100m"},
            {"requests": {"cpu": "40m", "memory": "380258472"}, "limits": {"cpu": "80m"}},
        ),
        (
            {"type": "Container", "max": {"cpu": "80m"}, "default": {"cpu": "80m"}},
            {},
            {"requests": {"cpu": "50m", "memory": "380258472"}, "limits": {"cpu": "80m"}},
        ),
        (
            {"type": "Container", "min": {"memory": "1Gi"}},
            {},
            {"requests": {"cpu": "126m", "memory": "1Gi"}},
        ),
        (
            {"type": "Pod", "max": {"memory": "200Mi"}},
            {"memory": "200Mi"},
            {"requests": {"cpu": "126m", "memory": "100Mi"}, "limits": {"memory": "200Mi"}},
        ),
    ],
)
def test_a_patch_keeps_to_limit_ranges(
    limit_range: dict[str, Any], limits: dict[str, str], expected: dict[str, Any]
) -> None:
    ranged = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": "shop"}}
    ranged["spec"] = {"limits": [limit_range]}
    objects = [*limited(limits), ranged]
    assert patch(objects) == expected
    (advice,) = vpa.recommend(objects, [batch()]).containers
    assert advice.info == ["LimitRange"]


def test_a_request_that_its_limit_holds_down_is_named() -> None:
    objects = limited({"cpu": "100m", "memory": "1Gi"}, {"controlledValues": "RequestsOnly"})
    (advice,) = vpa.recommend(objects, [batch()]).containers
    assert advice.info == ["at its limit"]


def test_limits_of_a_strategy_are_not_below_requests() -> None:
    resources = patch(limited({"cpu": "60m", "memory": "100Mi"}), strategy=find_strategy("percentile"))
    assert resources["requests"]["cpu"] == "100m"
    assert resources["limits"]["cpu"] == "120m"  # the strategy has none: in proportion


def test_a_custom_workload_has_no_patch() -> None:
    report = vpa.recommend([*owned_by("argoproj.io/v1alpha1", "Rollout", direct=True), ROLLOUT], [batch()])
    assert build_patch(report.containers) is None


# -- what is said of a container -------------------------------------------------------------------------------


def scaled_by(cpu_or_memory: str, *, keda: bool, paused: bool = False) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    metadata: dict[str, Any] = {"name": "web", "namespace": "shop"}
    if keda:
        if paused:
            metadata["annotations"] = {"autoscaling.keda.sh/paused": "true"}
        triggers = [{"type": cpu_or_memory, "metricType": "Utilization", "metadata": {"value": "60"}}]
        spec: dict[str, Any] = {"scaleTargetRef": {"name": "web"}, "triggers": triggers}
        return {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": metadata, "spec": spec}
    resource = {"name": cpu_or_memory, "target": {"type": "Utilization", "averageUtilization": 60}}
    spec = {"scaleTargetRef": target, "maxReplicas": 5, "metrics": [{"type": "Resource", "resource": resource}]}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("keda", [False, True])
def test_an_hpa_is_detected_for_the_resources_that_change(keda: bool) -> None:
    memory_only = {"controlledResources": ["memory"]}
    for resource, detected in (("cpu", []), ("memory", ["HPA detected"])):
        (one,) = vpa.recommend([*limited({}, memory_only), scaled_by(resource, keda=keda)], [batch()]).containers
        assert one.info == detected
    (one,) = vpa.recommend([*items(), scaled_by("cpu", keda=keda)], [batch()]).containers
    assert one.info == ["HPA detected"]


def test_a_paused_object_scales_nothing() -> None:
    (one,) = vpa.recommend([*items(), scaled_by("cpu", keda=True, paused=True)], [batch()]).containers
    assert one.info == []


def test_a_container_that_was_killed_is_not_well_with_less_memory() -> None:
    objects = items()
    ended = {"reason": "OOMKilled", "finishedAt": "2026-01-05T01:00:00Z", "startedAt": "2026-01-05T00:00:00Z"}
    objects[2]["status"]["containerStatuses"] = [{"name": "app", "lastState": {"terminated": ended}}]
    objects[2]["spec"]["containers"][0]["resources"]["requests"]["memory"] = "60Mi"
    small = batch()
    small.memory[:] = 10 * MIB
    options = vpa.RecommenderOptions(pod_recommendation_min_memory_mb=50)
    (one,) = vpa.recommend(objects, [small], options=options).containers
    assert one.memory.target is not None
    assert one.memory.target > 60 * MIB  # upstream counts the kill as a peak above the request
    assert one.memory.severity == "ok"
    policy = {"maxAllowed": {"memory": "55Mi"}}
    (one,) = vpa.recommend([*objects, *limited({}, policy)[3:]], [small], options=options).containers
    assert (one.memory.severity, one.severity) == ("critical", "critical")
    assert one.info == ["OOM", "memory capped", "less memory than when killed"]


def test_target_below_the_usage_is_flagged() -> None:
    (one,) = vpa.recommend(limited({}, {"maxAllowed": {"cpu": "60m"}}), [batch()]).containers
    assert (one.cpu.target, one.cpu.uncapped_target) == (60, 126)
    assert one.cpu.severity == "warning"  # 10 millicores more than today would be good
    assert one.info == ["CPU capped"]
    quality = vpa.advice.with_quality(
        vpa.recommend(limited({}, {"maxAllowed": {"cpu": "60m"}}), [batch()]), "burstable"
    )
    assert quality.containers[0].cpu.severity == "warning"


def test_vpa_without_target_is_reported() -> None:
    body = {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "gone"}},
    }
    own = {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", **body}
    saved = {
        "metadata": {"name": "web-app", "namespace": "shop"},
        "spec": {"vpaObjectName": "web", "containerName": "app"},
        "status": {"version": "v3"},
    }
    checkpoint = from_dict(saved, VerticalPodAutoscalerCheckpoint)
    report = vpa.recommend([*items(), own], [batch()], checkpoints=[checkpoint])
    text = "VerticalPodAutoscaler shop/web: its target Deployment/gone is no workload of the input"
    assert report.notes == [text]
    report = vpa.recommend(items(), [batch()], checkpoints=[checkpoint])
    assert report.notes == ["cannot load checkpoint to missing VPA object shop/web"]
