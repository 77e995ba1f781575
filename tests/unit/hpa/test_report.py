"""What is told of the HPAs of a dump: over all of them, whichever are shown."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kscale.effects import from_text
from kscale.errors import InputError
from kscale.hpa.batch.decisions import Decisions
from kscale.hpa.controller.state import ControllerState, HPAState
from kscale.hpa.dump.dump import Dump
from kscale.hpa.dump.reader import read_dump
from kscale.hpa.dump.report import HPAReport, hpa_report
from kscale.objects.api.autoscaling import Scale

NOW = "2026-03-02T12:00:00Z"


def hpa(name: str = "web", target: str = "web", metrics: Any = None, **spec: Any) -> dict[str, Any]:
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "minReplicas": 1,
            "maxReplicas": 10,
            "metrics": [cpu] if metrics is None else metrics,
            **spec,
        },
    }


def deployment(replicas: int, name: str = "web") -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}},
        "status": {"replicas": replicas},
    }


def pod(name: str, app: str = "web", start: str | None = "2026-03-02T10:00:00Z", **labels: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", **({"lastTransitionTime": start} if start else {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": app, **labels}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]},
        "status": {"phase": "Running", **({"startTime": start} if start else {}), "conditions": [ready]},
    }


def usage(*values: tuple[str, str], time: str | None = NOW) -> dict[str, Any]:
    items = [
        {
            "metadata": {"name": name, "namespace": "shop"},
            **({"timestamp": time} if time else {}),
            "window": "15s",
            "containers": [{"name": "c", "usage": {"cpu": value}}],
        }
        for name, value in values
    ]
    return {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": items}


def external(name: str, **target: str) -> dict[str, Any]:
    type_ = "Value" if "value" in target else "AverageValue"
    return {"type": "External", "external": {"metric": {"name": name}, "target": {"type": type_, **target}}}


def external_list(**values: str) -> dict[str, Any]:
    items = [{"metricName": name, "timestamp": NOW, "value": value} for name, value in values.items()]
    return {"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "items": items}


def rivals() -> Dump:
    pods = [pod(f"web-{i}") for i in range(3)]
    return read_dump([hpa("web"), hpa("rival"), deployment(3), *pods, usage(*((f"web-{i}", "90m") for i in range(3)))])


def test_an_hpa_decides_as_it_does_among_all() -> None:
    dump = rivals()
    full_report = hpa_report(dump)
    assert [each.conditions[1].reason for each in full_report.hpas] == ["AmbiguousSelector", "AmbiguousSelector"]
    alone = hpa_report(dump, [dump.hpas["shop/web"]])
    assert list(alone.hpas) == [full_report.hpas[0]]
    assert alone.state == full_report.state


def test_hidden_hpas_are_not_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    dump, explained = rivals(), []
    summarize = Decisions.summarize

    def counting(decisions: Decisions, rows: list[int]) -> Any:
        explained.extend(decisions.keys[row] for row in rows)
        return summarize(decisions, rows)

    monkeypatch.setattr(Decisions, "summarize", counting)
    hpa_report(dump, [dump.hpas["shop/rival"]])
    assert explained == ["shop/rival"]


def test_objects_without_namespace_are_in_default() -> None:
    named = [hpa("web"), deployment(2), *(pod(f"web-{i}") for i in range(2)), usage(("web-0", "90m"), ("web-1", "90m"))]
    bare = json.loads(json.dumps(named).replace('"namespace": "shop"', '"labels_of": ""'))
    dump = read_dump(bare)
    assert list(dump.hpas) == ["default/web"]
    assert dump.pods.namespaces == {"default"}
    (implicit,), (meant,) = hpa_report(dump).hpas, hpa_report(read_dump(named)).hpas
    assert (implicit.namespace, implicit.desired_replicas, implicit.metrics) == (
        "default",
        meant.desired_replicas,
        meant.metrics,
    )
    text = io.BytesIO(json.dumps({"apiVersion": "v1", "kind": "List", "items": bare}).encode())
    assert hpa_report(read_dump(text)).hpas == hpa_report(dump).hpas
    assert not dump.duplicates


def test_a_given_state_is_carried_over() -> None:
    dump = rivals()
    deleted_state = HPAState(recommendations=())
    before = ControllerState(hpas={"shop/gone": deleted_state, "shop/web": deleted_state})
    report = hpa_report(dump, [dump.hpas["shop/web"]], state=before)
    assert set(report.state.hpas) == {"shop/gone", "shop/web", "shop/rival"}
    assert report.state.hpas["shop/gone"] == deleted_state
    assert report.without_state == ["shop/rival"]


def of_two(first: str, second: str) -> HPAReport:
    metrics = [external("a", value="10"), external("b", value="10")]
    pods = [pod(f"web-{i}") for i in range(3)]
    return hpa_report(read_dump([hpa(metrics=metrics), deployment(3), *pods, external_list(a=first, b=second)]))


@pytest.mark.parametrize(
    ("first", "second", "decided"), [("0", "0", "b 0"), ("0", "-5", "b -5"), ("9", "0", "a 9"), ("90", "95", "b 95")]
)
def test_a_proposal_of_zero_gives_way_to_every_later_one(first: str, second: str, decided: str) -> None:
    (row,) = of_two(first, second).hpas
    assert row.decided_by.startswith(decided)


def test_a_held_direction_is_not_called_tolerance() -> None:
    # Two pods at 65 % of what they request, target 50 %: more. With two that are not measured, at 0: fewer.
    pods = [pod("web-0"), pod("web-1"), pod("web-2"), pod("web-3")]
    listed = [hpa(), deployment(4), *pods, usage(("web-0", "65m"), ("web-1", "65m"))]
    (row,) = hpa_report(read_dump(listed)).hpas
    assert row.metrics[0].path == ("second_pass", "hold_second_pass")
    assert row.metrics[0].ratio == 1.3
    assert row.metrics[0].second_ratio == 0.64  # whole percents
    assert not row.metrics[0].tolerated
    assert row.metrics[0].direction_held
    assert "tolerance" not in row.decided_by
    assert row.held_back_by == "pods not ready or not measured: with them cpu asks for the other direction"


def test_the_newest_time_is_found_wherever_it_is() -> None:
    status = {"lastScaleTime": "2026-03-02T12:05:00Z"}
    assert hpa_report(read_dump([{**hpa(), "status": status}])).now == "2026-03-02T12:05:00Z"
    created = hpa()
    created["metadata"]["creationTimestamp"] = NOW
    assert hpa_report(read_dump([created])).now == NOW
    assert hpa_report(read_dump([hpa(), pod("web-0")])).now == "2026-03-02T10:00:00Z"


def test_without_any_time_now_is_not_known() -> None:
    dump = read_dump([hpa(), deployment(1), pod("web-0", start=None), usage(("web-0", "90m"), time=None)])
    report = hpa_report(dump)
    assert report.now is None
    assert all(each.time >= 0 for each in report.state.hpas["shop/web"].recommendations or ())
    before = ControllerState(hpas={"shop/web": HPAState(recommendations=())})
    with pytest.raises(InputError, match="the input contains no time"):
        hpa_report(dump, state=before)
    assert hpa_report(dump, state=before, now=from_text(NOW)).now == NOW


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"names": "x"}, "spec.names"),
        ({"group": {}}, "spec.group"),
        ({"versions": [1]}, "spec.versions[0]"),
        ({"versions": {}}, "spec.versions"),
        ({"versions": [{"subresources": {"scale": 5}}]}, "spec.versions[0].subresources.scale"),
    ],
)
def test_odd_definitions_are_named(spec: dict[str, Any], field: str) -> None:
    odd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
    with pytest.raises(InputError) as error:
        read_dump([{**odd, "metadata": {"name": "odd"}}])
    assert [each.field for each in error.value.problems] == [field]


@pytest.mark.parametrize(
    ("listed", "metric", "text"),
    [
        (external_list(), external("q", value="1"), "no metrics returned from external metrics API"),
        (usage(), None, "no metrics returned from resource metrics API"),
        (
            {"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta1", "items": []},
            {
                "type": "Pods",
                "pods": {"metric": {"name": "qps"}, "target": {"type": "AverageValue", "averageValue": "1"}},
            },
            "no metrics returned from custom metrics API",
        ),
    ],
)
def test_an_empty_list_is_an_answer(listed: dict[str, Any], metric: dict[str, Any] | None, text: str) -> None:
    objects = [hpa(metrics=None if metric is None else [metric]), deployment(1), pod("web-0")]
    for source in (listed, msgspec.json.encode(listed)):
        dump = read_dump(objects, source)
        (row,) = hpa_report(dump).hpas
        assert text in (row.error or "")
        assert dump.missing() == []


def test_a_list_given_twice_counts_once(tmp_path: Path) -> None:
    values = external_list(q="30")
    values["items"] *= 2  # an adapter that answers two series without labels: they add up
    values["items"].append({"metricName": "q", "metricLabels": {"a": "b"}, "value": "5"})
    objects = [hpa(metrics=[external("q", averageValue="10")]), deployment(3), pod("web-0"), usage(("web-0", "1m"))]
    (tmp_path / "values.json").write_bytes(msgspec.json.encode(values))
    once = hpa_report(read_dump(objects, tmp_path / "values.json"))
    twice = hpa_report(read_dump(objects, objects, tmp_path / "values.json", tmp_path / "values.json"))
    assert [each.desired_replicas for each in once.hpas] == [6]  # 65 of 10 a pod is 7, the limit 4 or twice
    assert [each.proposal for each in once.hpas] == [7]
    assert twice.hpas == once.hpas
    assert once.duplicates == []
    assert sorted(twice.duplicates) == [
        "Deployment shop/web",
        "ExternalMetricValue shop/q",
        "ExternalMetricValue shop/q",
        "HorizontalPodAutoscaler shop/web",
        "Pod shop/web-0",
        "PodMetrics shop/web-0",
    ]


def object_value(value: str, selector: Any = None, group: str = "v1", v1: bool = False) -> dict[str, Any]:
    item: dict[str, Any] = {
        "describedObject": {"kind": "Service", "namespace": "shop", "name": "front", "apiVersion": group},
        "timestamp": NOW,
        "value": value,
    }
    if v1:
        return {**item, "metricName": "hits"}
    return {**item, "metric": {"name": "hits", "selector": selector}}


def with_object(*items: dict[str, Any], selector: Any = None, group: str = "v1") -> Dump:
    metric = {
        "type": "Object",
        "object": {
            "metric": {"name": "hits", **({"selector": selector} if selector else {})},
            "describedObject": {"kind": "Service", "name": "front", "apiVersion": group},
            "target": {"type": "Value", "value": "10"},
        },
    }
    listed = {"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2", "items": list(items)}
    return read_dump([hpa(metrics=[metric]), deployment(1), pod("web-0"), listed])


def test_custom_metrics_match_their_labels_and_groups() -> None:
    good, bad = {"matchLabels": {"code": "200"}}, {"matchLabels": {"code": "500"}}
    items = (object_value("20", bad), object_value("40", good), object_value("30"))
    for selector, current in ((good, "40"), (bad, "20"), (None, "30")):
        (row,) = hpa_report(with_object(*items, selector=selector)).hpas
        assert row.metrics[0].current == current
    (row,) = hpa_report(with_object(object_value("20", bad), selector=good)).hpas
    assert "the server could not find the metric hits" in (row.error or "")
    mixed = with_object(object_value("20", group="v1"), object_value("50", group="x.io/v1"), group="x.io/v1")
    assert hpa_report(mixed).hpas[0].metrics[0].current == "50"


def test_values_without_labels_are_reported() -> None:
    dump = with_object(object_value("20", v1=True), selector={"matchLabels": {"code": "200"}})
    report = hpa_report(dump)
    assert report.hpas[0].metrics[0].current == "20"
    text = "the values of hits do not say their labels: taken to match code=200"
    assert report.unmodelled == {"HorizontalPodAutoscaler shop/web": [text]}


def test_missing_metrics_message_names_both_directions() -> None:
    (alone,) = read_dump([hpa(), deployment(1), pod("web-0")]).missing()
    assert alone.endswith("which forbids scaling down, and scaling up too where an HPA has no other metrics")


# -- scales of custom kinds ------------------------------------------------------------------------------------


def custom(api_version: str, kind: str, spec: dict[str, Any], status: dict[str, Any]) -> list[dict[str, Any]]:
    """A target of 10 replicas, its pods, and an HPA that wants one pod for 10 jobs of 104."""
    target = {"apiVersion": api_version, "kind": kind, "name": "web"}
    scaled = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "web", "namespace": "shop"}}
    return [
        hpa(metrics=[external("jobs", averageValue="10")], scaleTargetRef=target, maxReplicas=40),
        {**scaled, "spec": {"replicas": 10, **spec}, "status": status},
        *(pod(f"web-{i}") for i in range(10)),
        external_list(jobs="104"),
    ]


def definition(group: str, kind: str, version: str, scale: dict[str, str] | None) -> dict[str, Any]:
    subresources = {} if scale is None else {"scale": scale}
    names = {"kind": kind, "plural": f"{kind.lower()}s"}
    versions = [{"name": version, "subresources": subresources}]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{group}"},
        "spec": {"group": group, "names": names, "versions": versions},
    }


ROLLOUT = ("argoproj.io/v1alpha1", "Rollout", {}, {"HPAReplicas": 10, "replicas": 20, "selector": "app=web"})


@pytest.mark.parametrize(
    ("target", "paths"),
    [
        (ROLLOUT, ".spec.replicas, .status.HPAReplicas, .status.selector"),
        (
            ("apps.kruise.io/v1alpha1", "CloneSet", {}, {"replicas": 10, "labelSelector": "app=web"}),
            ".spec.replicas, .status.replicas, .status.labelSelector",
        ),
        (
            ("kibana.k8s.elastic.co/v1", "Kibana", {"count": 10}, {"count": 10, "selector": "app=web"}),
            ".spec.count, .status.count, .status.selector",
        ),
    ],
)
def test_scale_of_a_known_kind_needs_no_definition_and_is_noted(
    target: tuple[str, str, dict[str, Any], dict[str, Any]], paths: str
) -> None:
    report = hpa_report(read_dump(custom(*target)))
    assert [(each.current_replicas, each.desired_replicas) for each in report.hpas] == [(10, 10)]
    group = target[0].partition("/")[0]
    text = f"the input has no CustomResourceDefinition of {target[1]}.{group}: its scale is read as it usually is for"
    assert report.assumed == {"shop/web": f"{text} this kind ({paths})"}


def test_the_scale_of_a_deployment_config_selects_its_name_too() -> None:
    objects = custom("apps.openshift.io/v1", "DeploymentConfig", {"selector": {"app": "web"}}, {"replicas": 10})
    dump = read_dump(objects)
    scale = dump.scales()["shop/web"]
    assert isinstance(scale, Scale)
    assert scale.status.selector == "app=web,deploymentconfig=web"
    report = hpa_report(dump)
    assert [(each.desired_replicas, each.error) for each in report.hpas] == [(10, None)]
    assert report.assumed == {}  # OpenShift serves the kind without a definition


def test_definition_gives_the_scale_paths() -> None:
    paths = {
        "specReplicasPath": ".spec.size",
        "statusReplicasPath": ".status.ready",
        "labelSelectorPath": ".status.pods",
    }
    objects = custom("x.io/v1", "Widget", {"size": 8}, {"ready": 8, "pods": "app=web"})
    report = hpa_report(read_dump([*objects, definition("x.io", "Widget", "v1", paths)]))
    assert [(each.current_replicas, each.desired_replicas) for each in report.hpas] == [(8, 11)]
    assert report.assumed == {}


def test_kind_without_scale_subresource_has_no_scale() -> None:
    objects = custom("x.io/v1", "Widget", {}, {"replicas": 10, "selector": "app=web"})
    (only,) = hpa_report(read_dump([*objects, definition("x.io", "Widget", "v1", None)])).hpas
    assert only.desired_replicas is None
    assert only.error is not None
    assert only.error.endswith("the server could not find the requested resource")


def test_a_kind_without_a_definition_is_read_with_a_warning() -> None:
    report = hpa_report(read_dump(custom("x.io/v1", "Widget", {}, {"replicas": 10, "selector": "app=web"})))
    text = "the input has no CustomResourceDefinition of Widget.x.io: its scale is read as most kinds have it, "
    text += "which may be wrong (.spec.replicas, .status.replicas, .status.selector)"
    assert report.assumed == {"shop/web": text}
    missing = hpa_report(read_dump(custom(*ROLLOUT)[:1]))
    assert missing.assumed == {"shop/web": "the input has no Rollout.argoproj.io shop/web"}


# -- pods of others --------------------------------------------------------------------------------------------


def owned(number: int, kind: str, name: str, api_version: str = "apps/v1", **labels: str) -> dict[str, Any]:
    reference = {"apiVersion": api_version, "kind": kind, "name": name, "uid": "u", "controller": True}
    item = pod(f"{name}-{number}", **labels)
    item["metadata"]["ownerReferences"] = [reference]
    return item


def test_pods_of_others_that_the_selector_counts_are_named() -> None:
    replicas = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "other-1", "namespace": "shop"}}
    replicas["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "canary", "uid": "u", "controller": True}
    ]
    pods = [
        *(owned(i, "ReplicaSet", "web-7f9", **{"pod-template-hash": "7f9"}) for i in range(2)),
        *(owned(i, "ReplicaSet", "other-1") for i in range(3)),
        *(owned(i, "Job", "import", "batch/v1") for i in range(2)),
        pod("alone"),
    ]
    failed = owned(9, "Job", "failed", "batch/v1")
    failed["status"]["phase"] = "Failed"
    (only,) = hpa_report(read_dump([hpa(), deployment(2), replicas, *pods, failed])).hpas
    assert list(only.pod_owners.items()) == [
        ("Deployment/web", 2),
        ("Deployment/canary", 3),
        ("Job/import", 2),
        ("", 1),
    ]
    text = "6 of the 8 pods that the selector counts do not belong to Deployment/web: "
    assert only.warnings == [f"{text}3 of Deployment/canary, 2 of Job/import, 1 of no owner"]


def test_pods_of_the_target_need_no_warning() -> None:
    own = [owned(i, "ReplicaSet", "web-7f9") for i in range(3)]  # neither the ReplicaSet nor its hash is in the input
    for pods in (own, [pod(f"web-{i}") for i in range(3)]):
        (only,) = hpa_report(read_dump([hpa(), deployment(3), *pods])).hpas
        assert (only.warnings, only.pod_owners) == ([], {})


def test_a_metric_that_counts_no_pods_needs_no_warning() -> None:
    pods = [owned(0, "ReplicaSet", "web-7f9"), owned(0, "Job", "import", "batch/v1")]
    metrics = [external("jobs", averageValue="10")]
    (only,) = hpa_report(read_dump([hpa(metrics=metrics), deployment(1), *pods, external_list(jobs="5")])).hpas
    assert only.warnings == []
    metrics = [external("jobs", value="10")]
    (only,) = hpa_report(read_dump([hpa(metrics=metrics), deployment(1), *pods, external_list(jobs="5")])).hpas
    assert len(only.warnings) == 1


# -- what explains a size --------------------------------------------------------------------------------------


def test_rounding_up_explains_a_size_that_stays() -> None:
    pods = [pod(f"web-{i}") for i in range(4)]
    used = usage(*((f"web-{i}", "42m") for i in range(4)))
    (only,) = hpa_report(read_dump([hpa(), deployment(4), *pods, used])).hpas
    assert (only.current_replicas, only.desired_replicas) == (4, 4)
    assert only.decided_by == "cpu 42% of 50% (4 pods x 0.84 = 3.36, rounded up to 4)"


def test_a_value_per_pod_within_tolerance_keeps_the_size_of_the_status() -> None:
    target = deployment(10)
    target["status"]["replicas"] = 12
    objects = [hpa(metrics=[external("jobs", averageValue="10")], maxReplicas=30), target, pod("web-0")]
    (only,) = hpa_report(read_dump([*objects, external_list(jobs="110")])).hpas
    assert (only.current_replicas, only.desired_replicas) == (10, 12)
    assert only.decided_by == (
        "jobs 9167m of 10 a pod (within tolerance; a value a pod keeps the 12 replicas of the target's status, "
        "its spec has 10)"
    )


def test_a_value_per_pod_without_pods_is_no_number() -> None:
    zero = hpa(metrics=[external("lag", averageValue="5")], minReplicas=0)
    marked = {"type": "ScaledToZero", "status": "True", "reason": "ScaledToZero", "message": "m"}
    zero["status"] = {"currentReplicas": 0, "desiredReplicas": 0, "conditions": [marked]}
    (only,) = hpa_report(read_dump([zero, deployment(0), external_list(lag="23")])).hpas
    assert (only.current_replicas, only.desired_replicas) == (0, 4)
    assert only.metrics[0].overflows
    assert only.decided_by == (
        "lag ? of 5 a pod (the target has 0 replicas, so there is no value a pod; "
        "the status shows -9223372036854775808m)"
    )


LATE = {"type": "B", "status": "True", "lastTransitionTime": "noon"}
TWO = {"conditions": [{"type": "A", "status": "True"}, LATE]}


@pytest.mark.parametrize(
    ("kind", "field", "more"),
    [
        ("Node", "metadata.creationTimestamp", {}),
        ("Pod", "status.startTime", {"status": {"startTime": "noon"}}),
        ("Pod", "status.conditions[1].lastTransitionTime", {"status": TWO}),
        (
            "HorizontalPodAutoscaler",
            "status.lastScaleTime",
            {"status": {"desiredReplicas": 1, "lastScaleTime": "noon"}},
        ),
        ("HorizontalPodAutoscaler", "status.conditions[0].lastTransitionTime", {"status": {"conditions": [LATE]}}),
    ],
)
def test_a_malformed_time_is_named_by_its_field(tmp_path: Path, kind: str, field: str, more: dict[str, Any]) -> None:
    data: dict[str, Any] = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}, **more}
    if kind == "Node":
        data["metadata"]["creationTimestamp"] = "noon"
    if kind == "HorizontalPodAutoscaler":
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        data |= {"apiVersion": "autoscaling/v2", "spec": {"scaleTargetRef": target, "maxReplicas": 3}}
    (tmp_path / "dump.json").write_text(json.dumps(data))
    with pytest.raises(InputError) as caught:
        read_dump(str(tmp_path / "dump.json"))
    (problem,) = caught.value.problems
    assert (problem.field, problem.message) == (field, '"noon" is not an RFC 3339 time')
