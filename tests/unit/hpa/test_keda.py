"""ScaledObjects as the HPAs that KEDA generates."""

from __future__ import annotations

from typing import Any

import pytest

from kscale.hpa.admission import admit
from kscale.hpa.dump_reading import read_dump
from kscale.hpa.keda import guessed, hpa_of, unmodelled
from kscale.hpa.report import hpa_report


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
    document = hpa_of(scaled(maxReplicaCount=9))
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
    document = hpa_of(scaled(minReplicaCount=3, advanced=advanced))
    assert document["metadata"]["name"] == "mine"
    assert document["spec"]["minReplicas"] == 3
    assert document["spec"]["behavior"] == {"scaleUp": {"tolerance": "0.2"}}


def test_what_keda_does_itself_is_listed() -> None:
    assert unmodelled(scaled(minReplicaCount=1)) == []
    assert unmodelled(scaled(idleReplicaCount=0, fallback={}, advanced={"scalingModifiers": {}})) == [
        "activation between 0 and 1 replicas (pollingInterval, cooldownPeriod)",
        "idleReplicaCount",
        "fallback",
        "advanced.scalingModifiers",
    ]


def test_an_hpa_in_the_dump_goes_before_the_generated_one() -> None:
    there = hpa_of(scaled(maxReplicaCount=50))
    dump = read_dump(scaled(maxReplicaCount=9), there)
    assert [hpa.spec.max_replicas for hpa in dump.hpas.values()] == [50]


def test_a_trigger_whose_target_cannot_be_told_is_left_out_and_said() -> None:
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
        f"triggers[{i}] ({kind}): its target cannot be told, it was left out"
        for i, kind in enumerate(("aws-cloudwatch", "kafka", "cpu"))
    ] + ["triggers[3]: the name of its metric is a guess: s3-rabbitmq"]
    none = read_dump(scaled(triggers=triggers[:1]))
    assert not none.hpas
    assert hpa_report(none).unmodelled == none.unmodelled


def test_a_schedule_is_one_replica_a_pod() -> None:
    (metric,) = hpa_of(scaled(triggers=[{"type": "cron", "metadata": {"desiredReplicas": "10"}}]))["spec"]["metrics"]
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "1"}


def test_metrics_have_the_names_of_the_status() -> None:
    some = {**scaled(), "status": {"externalMetricNames": ["s0-rabbitmq-orders", "s1-prometheus"]}}
    first, second, *_ = hpa_of(some)["spec"]["metrics"]
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
    (metric,) = hpa_of(some)["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] == name
    assert guessed(some) == [f"triggers[0]: the name of its metric is a guess: {name}"]
    assert guessed(some, [name]) == []
    (metric,) = hpa_of(some, ["s0-other", "s1-x"])["spec"]["metrics"]  # the only one that begins as it must
    assert metric["external"]["metric"]["name"] == "s0-other"
    (metric,) = hpa_of(some, ["s0-a", "s0-b"])["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] == name


def test_values_without_labels_count_for_any_and_it_is_said() -> None:
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
