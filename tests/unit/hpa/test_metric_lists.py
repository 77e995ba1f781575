"""Metrics of lists: which pods' labels count."""

from __future__ import annotations

from kscale.effects import GetMetric
from kscale.hpa.batch.requests import MetricLists
from kscale.objects.api.core import Pod
from kscale.objects.api.metrics import PodMetrics, PodMetricsList
from kscale.objects.decode import from_dict


def test_labels_of_listed_pods_are_those_at_the_call() -> None:
    pod = from_dict({"metadata": {"name": "a", "namespace": "ns", "labels": {"app": "x"}}}, Pod)
    containers = [{"name": "c", "usage": {"cpu": "1"}}]
    usage = from_dict({"metadata": {"name": "a", "namespace": "ns"}, "containers": containers}, PodMetrics)
    lists = MetricLists()
    lists.add_pod_metrics([usage])
    lists.add_pod_labels([pod])
    pod.metadata.labels = {"app": "y"}
    response = lists(GetMetric(api="resource", namespace="ns", selector="app=x"))
    assert isinstance(response, PodMetricsList)
    assert [item.metadata.name for item in response.items] == ["a"]
