"""``kscale.node_usage``: requests, limits and usage of nodes, and what keeps them."""

from __future__ import annotations

from typing import Any

import kscale
from kscale.capacity.groups import groups_from
from kscale.capacity.node_usage import NodeUsage, NodeUsageReport
from kscale.objects.times import nanoseconds
from unit.capacity.disruptable_clusters import NOW, budget, cluster, node, pod

GI = 2**30


def report_of(*items: dict[str, Any], groups: list[dict[str, Any]] | None = None) -> NodeUsageReport:
    return kscale.node_usage(cluster(*items), groups_from(groups) if groups else [], now=nanoseconds(NOW), threads=1)


def rows_of(report: NodeUsageReport) -> dict[str, NodeUsage]:
    return {row.node: row for row in report.nodes}


def metrics(kind: str, name: str, cpu: str, memory: str) -> dict[str, Any]:
    usage = {"cpu": cpu, "memory": memory}
    body = {"usage": usage} if kind == "NodeMetrics" else {"containers": [{"name": "c", "usage": usage}]}
    metadata = {"name": name} if kind == "NodeMetrics" else {"name": name, "namespace": "shop"}
    return {"apiVersion": "metrics.k8s.io/v1beta1", "kind": kind, "metadata": metadata, **body}


def test_requests_limits_and_usage_are_summed_by_node() -> None:
    report = report_of(
        node("n1"), node("n2"),
        pod("a", "n1", "500m", limits={"cpu": "1", "memory": "2Gi"}), pod("b", "n1", "250m"), pod("c", "n2"), pod("d"),
        metrics("NodeMetrics", "n1", "750m", "3Gi"),
        metrics("PodMetrics", "a", "9", "9Gi"), metrics("PodMetrics", "c", "200m", "1Gi"),
    )  # fmt: skip
    rows = rows_of(report)
    assert [row.node for row in report.nodes] == ["n2", "n1"], "the fullest first"
    cpu = rows["n1"].cpu
    assert (cpu.allocatable, cpu.requests, cpu.limits, cpu.unlimited, cpu.usage) == (4000, 750, 1000, 1, 750)
    memory = rows["n1"].memory
    assert (memory.requests, memory.limits, memory.unlimited, memory.usage) == (2 * GI, 2 * GI, 1, 3 * GI)
    assert rows["n2"].cpu.usage == 200, "without NodeMetrics the metrics of its pods"
    assert (report.totals.cpu.requests, report.totals.cpu.usage, report.totals.measured) == (1750, 950, 2)
    assert (report.totals.pods, report.pending_count) == (3, 1)
    assert (rows["n1"].pods, rows["n1"].pod_slots) == (2, 20)


def test_without_metrics_there_is_no_usage() -> None:
    report = report_of(node("n1"), node("n2"), pod("a", "n1"), metrics("NodeMetrics", "n2", "1", "1Gi"))
    rows = rows_of(report)
    assert rows["n1"].cpu.usage is None
    assert (report.totals.measured, report.totals.cpu.usage) == (1, 1000)


def test_limits_of_the_pod_replace_those_of_containers_and_overhead_counts_for_limits_only_once() -> None:
    both = {"limits": {"cpu": "1"}, "spec": {"resources": {"limits": {"cpu": "3"}}, "overhead": {"cpu": "100m"}}}
    cpu = rows_of(report_of(node("n1"), pod("a", "n1", **both)))["n1"].cpu
    assert (cpu.limits, cpu.unlimited) == (3100, 0)


def test_extended_resources_are_listed_where_a_node_has_them() -> None:
    gpu = node("n1")
    gpu["status"]["allocatable"]["nvidia.com/gpu"] = "2"
    user = pod("a", "n1")
    user["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "1"
    report = report_of(gpu, node("n2"), user)
    assert {name: use.requests for name, use in rows_of(report)["n1"].others.items()} == {"nvidia.com/gpu": 1}
    assert rows_of(report)["n2"].others == {}
    assert report.totals.others["nvidia.com/gpu"].allocatable == 2


def test_a_node_names_every_pod_that_keeps_it() -> None:
    local = {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}
    report = report_of(
        node("n1"), node("n2"), pod("a", "n1", **local), pod("b", "n1", app=""), pod("c", "n1"), pod("d", "n2")
    )
    rows = rows_of(report)
    assert [hold.pod for hold in rows["n1"].held_by] == ["shop/a", "shop/b"]
    assert (rows["n1"].removable, rows["n1"].reason) == (False, "BlockedByPod")
    assert rows["n1"].why == rows["n1"].held_by[0].why
    assert (rows["n2"].removable, rows["n2"].why, rows["n2"].held_by) == (True, "", [])
    assert report.totals.removable == 1


def test_a_node_whose_pods_fit_nowhere_says_which_and_why() -> None:
    row = rows_of(report_of(node("n1"), node("n2", "1"), pod("a", "n1", "2")))["n1"]
    assert row.reason == "NoPlaceToMovePods"
    assert row.why == "shop/a fits on no other node: 1 Insufficient cpu"


def test_expendable_pods_keep_no_node() -> None:
    """Their priority is below that of pods that the autoscaler moves, so a scale-down ignores them."""
    expendable = pod("a", "n1", "2")
    expendable["spec"]["priority"] = -100
    row = rows_of(report_of(node("n1"), node("n2", "1"), expendable))["n1"]
    assert (row.removable, row.reason, row.pods) == (True, None, 1)


def test_budgets_annotations_and_groups_keep_nodes() -> None:
    disabled = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    items = [node("n1", annotations=disabled), node("n2"), node("n3"), node("n4"), pod("a", "n2"), budget("web", 0)]
    groups = [
        {"id": "g", "min": 0, "nodes": ["n1", "n2"], "price": 0.5},
        {"id": "full", "min": 1, "nodes": ["n3"], "price": 0.25},
    ]
    report = report_of(*items, groups=groups)
    reasons = {row.node: row.reason for row in report.nodes}
    assert reasons == {
        "n1": "ScaleDownDisabledAnnotation",
        "n2": "BlockedByPod",
        "n3": "NodeGroupMinSizeReached",
        "n4": "NotAutoscaled",
    }
    assert rows_of(report)["n2"].held_by[0].budget == "shop/web"
    assert (report.totals.price, report.totals.unpriced) == (1.25, 1)
    assert {row.node: row.group for row in report.nodes}["n3"] == "full"
    without = report_of(*items)
    assert rows_of(without)["n4"].removable, "without groups their checks are left out"
