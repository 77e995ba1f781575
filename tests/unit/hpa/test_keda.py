"""ScaledObjects as the HPAs that KEDA generates."""

from __future__ import annotations

from typing import Any

import pytest

from kscale.errors import InputError
from kscale.hpa.api.admission import admit
from kscale.hpa.api.keda import generate_hpa, get_pause, list_guessed_metric_names, list_unmodelled_features
from kscale.hpa.dump.reader import read_dump
from kscale.hpa.dump.report import hpa_report


def scaled(**spec: Any) -> dict[str, Any]:
    triggers = [
        {"type": "rabbitmq", "metadata": {"queueLength": "30"}},
        {"type": "prometheus", "name": "rate", "metricType": "Value", "metadata": {"threshold": "5"}},
        {"type": "cpu", "metadata": {"value": "60"}},
        {"type": "memory", "metricType": "AverageValue", "metadata": {"value": "1Gi", "containerName": "app"}},
    ]
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "jobs", "namespace": "ns"},
        "spec": {"scaleTargetRef": {"name": "worker"}, "triggers": triggers, **spec},
    }


def test_triggers_become_metrics() -> None:
    document = generate_hpa(scaled(maxReplicaCount=9))
    hpa = admit(document).hpa
    assert hpa is not None
    assert (hpa.metadata.name, hpa.spec.min_replicas, hpa.spec.max_replicas) == ("keda-hpa-jobs", 1, 9)
    first, second, third, fourth = hpa.spec.metrics or []
    assert first.external is not None
    assert first.external.metric.name == "s0-rabbitmq"
    assert str(first.external.target.average_value) == "30"
    assert second.external is not None
    assert (second.external.metric.name, str(second.external.target.value)) == ("s1-prometheus", "5")
    assert third.resource is not None
    assert third.resource.target.average_utilization == 60
    assert fourth.container_resource is not None
    assert fourth.container_resource.container == "app"


def test_settings_of_the_generated_hpa() -> None:
    advanced = {"horizontalPodAutoscalerConfig": {"name": "mine", "behavior": {"scaleUp": {"tolerance": "0.2"}}}}
    document = generate_hpa(scaled(minReplicaCount=3, advanced=advanced))
    assert document["metadata"]["name"] == "mine"
    assert document["spec"]["minReplicas"] == 3
    assert document["spec"]["behavior"] == {"scaleUp": {"tolerance": "0.2"}}


def test_unmodelled_keda_features_are_listed() -> None:
    assert list_unmodelled_features(scaled(minReplicaCount=1)) == []
    assert list_unmodelled_features(scaled(idleReplicaCount=0, fallback={}, advanced={"scalingModifiers": {}})) == [
        "activation between 0 and 1 replicas (pollingInterval, cooldownPeriod)",
        "idleReplicaCount",
        "fallback",
        "advanced.scalingModifiers",
    ]


def test_an_hpa_in_the_dump_goes_before_the_generated_one() -> None:
    there = generate_hpa(scaled(maxReplicaCount=50))
    dump = read_dump(scaled(maxReplicaCount=9), there)
    assert [hpa.spec.max_replicas for hpa in dump.hpas.values()] == [50]


def test_trigger_with_unknown_target_is_skipped_and_reported() -> None:
    triggers = [
        {"type": "aws-cloudwatch", "metadata": {"targetMetricValue": "5"}},
        {"type": "kafka", "metadata": {"lagThreshold": "${LAG}"}},
        {"type": "cpu", "metadata": {}},
        {"type": "rabbitmq", "metadata": {"queueLength": "30"}},
    ]
    some = scaled(triggers=triggers, minReplicaCount=1)
    dump = read_dump(some)
    (hpa,) = dump.hpas.values()
    assert [each.external.metric.name for each in hpa.spec.metrics or () if each.external] == ["s3-rabbitmq"]
    assert dump.unmodelled["ScaledObject ns/jobs"] == [
        f"triggers[{i}] ({kind}): its target is not known, it was left out"
        for i, kind in enumerate(("aws-cloudwatch", "kafka", "cpu"))
    ] + ["triggers[3]: the name of its metric is a guess: s3-rabbitmq"]
    none = read_dump(scaled(triggers=triggers[:1]))
    assert not none.hpas
    assert hpa_report(none).unmodelled == none.unmodelled


def test_a_schedule_is_one_replica_a_pod() -> None:
    (metric,) = generate_hpa(scaled(triggers=[{"type": "cron", "metadata": {"desiredReplicas": "10"}}]))["spec"][
        "metrics"
    ]
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "1"}


def test_metrics_have_the_names_of_the_status() -> None:
    some = {**scaled(), "status": {"externalMetricNames": ["s0-rabbitmq-orders", "s1-prometheus"]}}
    first, second, *_ = generate_hpa(some)["spec"]["metrics"]
    assert first["external"]["metric"]["name"] == "s0-rabbitmq-orders"
    assert second["external"]["metric"]["name"] == "s1-prometheus"


@pytest.mark.parametrize(
    ("kind", "settings", "name"),
    [
        ("rabbitmq", {"queueName": "jobs.in/eu"}, "s0-rabbitmq-eu"),
        ("rabbitmq", {"queueName": "jobs.in"}, "s0-rabbitmq-jobs-in"),
        ("kafka", {"topic": "orders"}, "s0-kafka-orders"),
        ("aws-sqs-queue", {"queueURL": "https://sqs.eu-1.amazonaws.com/12/jobs"}, "s0-aws-sqs-jobs"),
        ("azure-servicebus", {"topicName": "t"}, "s0-azure-servicebus-t"),
        ("redis-cluster", {"listName": "l"}, "s0-redis-l"),
        ("prometheus", {"query": "up"}, "s0-prometheus"),
    ],
)
def test_names_without_a_status_are_those_that_scalers_give(kind: str, settings: dict[str, str], name: str) -> None:
    some = scaled(triggers=[{"type": kind, "name": "mine", "metadata": {**settings, "value": "5"}}])
    (metric,) = generate_hpa(some)["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] == name
    assert list_guessed_metric_names(some) == [f"triggers[0]: the name of its metric is a guess: {name}"]
    assert list_guessed_metric_names(some, [name]) == []
    (metric,) = generate_hpa(some, ["s0-other", "s1-x"])["spec"]["metrics"]  # the only one that begins as it must
    assert metric["external"]["metric"]["name"] == "s0-other"
    (metric,) = generate_hpa(some, ["s0-a", "s0-b"])["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] == name


def test_values_without_labels_match_any_selector_and_are_reported() -> None:
    """What KEDA's server answers: ``metricLabels`` is null, although the HPA asks for those of its ScaledObject."""
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "worker", "namespace": "ns"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "worker"}}},
        "status": {"replicas": 1},
    }
    value = {"metricName": "s0-rabbitmq-jobs", "metricLabels": None, "timestamp": "2026-03-02T12:00:00Z", "value": "90"}
    values = {"apiVersion": "external.metrics.k8s.io/v1beta1", "kind": "ExternalMetricValueList", "items": [value]}
    trigger = {"type": "rabbitmq", "metadata": {"queueName": "jobs", "queueLength": "30"}}
    some = scaled(triggers=[trigger], minReplicaCount=1)
    report = hpa_report(read_dump(some, deployment, values))
    assert [each.desired_replicas for each in report.hpas] == [3]
    assert report.unmodelled["HorizontalPodAutoscaler ns/keda-hpa-jobs"] == [
        "the values of s0-rabbitmq-jobs do not say their labels: taken to match scaledobject.keda.sh/name=jobs"
    ]
    assert "ScaledObject ns/jobs" not in report.unmodelled


# -- pauses ----------------------------------------------------------------------------------------------------


def annotated(**annotations: str) -> dict[str, Any]:
    some = scaled(triggers=[{"type": "cpu", "metadata": {"value": "60"}}], minReplicaCount=1)
    names = {f"autoscaling.keda.sh/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return {**some, "metadata": {**some["metadata"], "annotations": names}}


@pytest.mark.parametrize(
    ("annotations", "replicas", "error"),
    [
        ({"paused": "true"}, None, ""),
        ({"paused": "yes"}, None, ""),  # what is no boolean counts as true
        ({"paused": "false", "paused_replicas": "7"}, 7, ""),
        ({"paused_replicas": "many"}, None, "autoscaling.keda.sh/paused-replicas is not a whole number: 'many'"),
    ],
)
def test_a_paused_object_has_no_hpa(annotations: dict[str, str], replicas: int | None, error: str) -> None:
    some = annotated(**annotations)
    for there in ([], [generate_hpa(some)]):  # KEDA may not have deleted it yet
        dump = read_dump([some, *there])
        assert not dump.hpas
        (pause,) = hpa_report(dump).paused
        assert (pause.name, pause.hpa, pause.target) == ("jobs", "keda-hpa-jobs", "Deployment/worker")
        assert (pause.replicas, pause.error) == (replicas, error)


@pytest.mark.parametrize("text", ["false", "0", "F"])
def test_false_pause_annotation_does_not_pause(text: str) -> None:
    dump = read_dump(annotated(paused=text))
    assert list(dump.hpas) == ["ns/keda-hpa-jobs"]
    assert hpa_report(dump).paused == []


def test_a_pause_of_one_direction_disables_it() -> None:
    behavior = generate_hpa(annotated(paused_scale_in="true", paused_scale_out="false"))["spec"]["behavior"]
    assert behavior == {"scaleDown": {"selectPolicy": "Disabled"}}
    (hpa,) = read_dump(annotated(paused_scale_out="true")).hpas.values()
    assert hpa.spec.behavior is not None
    assert hpa.spec.behavior.scale_up is not None
    assert hpa.spec.behavior.scale_up.select_policy == "Disabled"


# -- lists without labels --------------------------------------------------------------------------------------


def two_objects() -> list[dict[str, Any]]:
    """Two ScaledObjects of one namespace, whose metrics have the same name."""
    trigger = {"type": "prometheus", "metadata": {"query": "up", "threshold": "10"}}
    objects: list[dict[str, Any]] = []
    for name in ("a", "b"):
        some = scaled(triggers=[trigger], minReplicaCount=1, scaleTargetRef={"name": name})
        objects.append({**some, "metadata": {"name": name, "namespace": "ns"}})
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": name}}}
        deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "ns"}}
        objects.append({**deployment, "spec": spec, "status": {"replicas": 2}})
    return objects


def listed(value: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    item = {"metricName": "s0-prometheus", "metricLabels": labels, "timestamp": "2026-03-02T12:00:00Z", "value": value}
    return {"apiVersion": "external.metrics.k8s.io/v1beta1", "kind": "ExternalMetricValueList", "items": [item]}


def proposals(*metrics: tuple[str | None, Any]) -> list[int | None]:
    report = hpa_report(read_dump(two_objects(), metrics=metrics))
    assert report.unmodelled == {}
    return [each.proposal for each in report.hpas]


def test_lists_are_given_by_hpa_by_object_or_by_selector() -> None:
    assert proposals(("ns/keda-hpa-a", listed("100")), ("ns/keda-hpa-b", listed("30"))) == [10, 3]
    assert proposals(("ns/keda-hpa-b", listed("30")), ("ns/a", listed("100"))) == [10, 3]
    selected = "ns:scaledobject.keda.sh/name="
    assert proposals((f"{selected}b", listed("30")), (f"{selected}a", listed("100"))) == [10, 3]
    # What an API answered to a selector is its answer, whatever labels it says.
    assert proposals(("ns/a", listed("100", {})), ("ns/b", listed("30", {"x": "y"}))) == [10, 3]


@pytest.mark.parametrize("values", [["100"], ["100", "30"]])
def test_a_list_that_may_be_for_several_is_refused(values: list[str]) -> None:
    with pytest.raises(InputError, match="several HorizontalPodAutoscalers select the metric") as error:
        read_dump(two_objects(), metrics=[("ns", listed(each)) for each in values])
    assert "keda-hpa-a by scaledobject.keda.sh/name=a" in str(error.value)
    assert "such as ns/keda-hpa-a=FILE" in str(error.value)
    dump = read_dump(two_objects(), metrics=[("ns", listed(each)) for each in values], strict=False)
    assert len(dump.problems) == 1
    assert [each.desired_replicas for each in hpa_report(dump).hpas] == [None, None]


def test_one_list_without_a_scope_is_for_the_only_hpa_that_is_left() -> None:
    report = hpa_report(read_dump(two_objects(), metrics=[("ns/a", listed("100")), ("ns", listed("30"))]))
    assert [each.proposal for each in report.hpas] == [10, 3]


def test_values_with_labels_need_no_scope() -> None:
    label = "scaledobject.keda.sh/name"
    assert proposals(("ns", listed("100", {label: "a"})), ("ns", listed("30", {label: "b"}))) == [10, 3]


@pytest.mark.parametrize(
    ("scope", "text"),
    [
        ("ns/nobody", "no HorizontalPodAutoscaler ns/nobody in the input"),
        ("ns:x=y", "no HorizontalPodAutoscaler of ns selects s0-prometheus by x=y"),
        ("ns:x in", "is not a label selector"),
        ("NS", "is none of NS, NS/HPA and NS:SELECTOR"),
    ],
)
def test_unknown_scope_is_refused(scope: str, text: str) -> None:
    with pytest.raises(InputError, match=text):
        read_dump(two_objects(), metrics=[(scope, listed("1"))])


def test_different_lists_for_the_same_selector_are_refused() -> None:
    with pytest.raises(InputError, match="lists with different values and no labels"):
        read_dump(two_objects(), metrics=[("ns/a", listed("1")), ("ns/a", listed("2"))])
    assert proposals(("ns/a", listed("100")), ("ns/a", listed("100")), ("ns/b", listed("30"))) == [10, 3]


def deployment(**resources: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "app", "resources": resources}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "w"}}, "template": template}
    metadata = {"name": "worker", "namespace": "ns"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": spec,
        "status": {"replicas": 2},
    }


def warnings_of(*items: dict[str, Any]) -> dict[str, list[str]]:
    return {each.name: list(each.warnings) for each in hpa_report(read_dump(list(items))).hpas}


def test_webhook_refusals_are_warnings_of_the_hpa() -> None:
    refuses = "KEDA's webhook refuses ScaledObject ns/jobs:"
    request = "the scaledobject has a cpu trigger but the container app doesn't have the cpu request defined"
    never_zero = (
        "scaledobject has only cpu/memory triggers AND minReplica is 0 (scale to zero doesn't work in this case)"
    )
    triggers = [{"type": "cpu", "metadata": {"value": "60"}}]
    item = scaled(triggers=triggers, minReplicaCount=1)
    assert warnings_of(item, deployment()) == {
        "keda-hpa-jobs": [f"{refuses} {request} (no LimitRange in the input gives it one)"]
    }
    limits = [{"type": "Container", "defaultRequest": {"cpu": "1"}}]
    limit_range = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": "ns"}}
    assert warnings_of(item, deployment(), {**limit_range, "spec": {"limits": limits}}) == {"keda-hpa-jobs": []}
    assert warnings_of(item, deployment(requests={"cpu": "1"})) == {"keda-hpa-jobs": []}
    assert warnings_of(scaled(triggers=triggers), deployment(requests={"cpu": "1"})) == {
        "keda-hpa-jobs": [f"{refuses} {never_zero}"]
    }


def test_two_scaled_objects_of_one_target_are_named_and_block_each_other() -> None:
    first, second = scaled(minReplicaCount=1), scaled(minReplicaCount=1)
    second["metadata"] = {"name": "more", "namespace": "ns"}
    managed = "the workload 'worker' of type 'apps/v1.Deployment' is already managed by the ScaledObject 'jobs'"
    resources = {"requests": {"cpu": "1", "memory": "1"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns", "labels": {"app": "w"}}}
    report = hpa_report(read_dump([first, second, deployment(**resources), {**pod, "spec": {}}]))
    assert {each.name: list(each.warnings) for each in report.hpas} == {
        "keda-hpa-jobs": [],
        "keda-hpa-more": [f"KEDA's webhook refuses ScaledObject ns/more: {managed}"],
    }
    assert all("AmbiguousSelector" in str(each.conditions) for each in report.hpas)


def test_an_hpa_that_scales_the_target_already_is_named() -> None:
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}]
    metrics[0]["resource"]["target"]["averageUtilization"] = 50
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "worker"}
    mine = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "mine", "namespace": "ns"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 3, "metrics": metrics},
    }
    result = warnings_of(scaled(minReplicaCount=1), deployment(requests={"cpu": "1", "memory": "1"}), mine)
    managed = "the workload 'worker' of type 'apps/v1.Deployment' is already managed by the hpa 'mine'"
    assert result == {"mine": [], "keda-hpa-jobs": [f"KEDA's webhook refuses ScaledObject ns/jobs: {managed}"]}


NINES = "9" * 5_000


@pytest.mark.parametrize(
    ("text", "replicas", "error"),
    [
        ("3", 3, ""),
        ("+3", 3, ""),
        ("000000000003", 3, ""),
        ("-1", None, "autoscaling.keda.sh/paused-replicas is negative, which the API server refuses: '-1'"),
        ("3.0", None, "autoscaling.keda.sh/paused-replicas is not a whole number: '3.0'"),
        ("2147483648", None, "autoscaling.keda.sh/paused-replicas is not a whole number: '2147483648'"),
        (NINES, None, f"autoscaling.keda.sh/paused-replicas is not a whole number: '{NINES}'"),
        ("0" * 5_000, 0, ""),
    ],
    ids=range(8),
)
@pytest.mark.parametrize("recorded", [None, 7])
def test_paused_replicas_annotation_sets_the_replicas(
    recorded: int | None, text: str, replicas: int | None, error: str
) -> None:
    """KEDA writes ``status.pausedReplicaCount`` after the annotation, and pauses by the annotation alone."""
    item = scaled()
    item["metadata"]["annotations"] = {
        "autoscaling.keda.sh/paused": "false",
        "autoscaling.keda.sh/paused-replicas": text,
    }
    item["status"] = {"pausedReplicaCount": recorded}
    pause = get_pause(item)
    assert pause is not None
    assert (pause.replicas, pause.error) == (replicas, error)
    del item["metadata"]["annotations"]
    assert get_pause(item) is None  # KEDA clears the status
