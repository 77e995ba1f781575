"""``kscale.diff``: nodes, workloads, pods, cost and verdicts that differ between two dumps."""

from __future__ import annotations

import copy
from typing import Any

import kscale
from kscale.capacity.diff import ClusterDiff, FieldChange
from kscale.capacity.groups import groups_from
from unit.capacity.disruptable_clusters import cluster, node, pod

GI = 2**30


def diff_of(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> ClusterDiff:
    groups = groups_from([{"id": "g", "nodeSelector": {"pool": "g"}, "price": 0.5}])
    return kscale.diff(cluster(*before), cluster(*after), groups)


def worker(name: str, cpu: str = "4", **more: Any) -> dict[str, Any]:
    return node(name, cpu, labels={"pool": "g"}, **more)


def test_equal_dumps_do_not_differ() -> None:
    items = [worker("n1"), pod("a", "n1"), pod("waits", cpu="9")]
    report = diff_of(items, copy.deepcopy(items))
    assert (report.nodes, report.workloads, report.pods, report.verdicts) == ([], [], [], [])
    assert report.before == report.after
    assert report.newly_pending == 0


def test_nodes_are_added_removed_and_changed() -> None:
    after = [worker("n2", "8", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]), worker("n3")]
    report = diff_of([worker("n1"), worker("n2"), pod("a", "n2")], [*after, pod("a", "n2")])
    assert [(row.node, row.change) for row in report.nodes] == [("n2", "changed"), ("n3", "added"), ("n1", "removed")]
    assert (report.nodes[0].pods_before, report.nodes[0].pods_after) == (1, 1)
    assert report.nodes[0].fields == [
        FieldChange(field="allocatable.cpu", before="4", after="8"),
        FieldChange(field="taints.k:NoSchedule", before=None, after="v"),
    ]
    assert (report.before.cost, report.after.cost) == (1.0, 1.0)


def test_annotations_of_nodes_are_not_compared() -> None:
    assert diff_of([worker("n1", annotations={"secret": "a"})], [worker("n1", annotations={"secret": "b"})]).nodes == []


def test_a_new_price_changes_the_cost_and_the_node() -> None:
    first, second = node("n1"), worker("n1")
    report = diff_of([first], [second])
    assert [(each.field, each.before, each.after) for each in report.nodes[0].fields] == [
        ("price", None, "0.5"),
        ("labels.pool", None, "g"),
    ]
    assert (report.before.cost, report.before.unpriced, report.after.cost) == (None, 1, 0.5)


def test_pods_move_and_are_bound_unbound_resized_added_and_removed() -> None:
    nodes = [worker("n1"), worker("n2")]
    before = [
        pod("moves", "n1", "100m"),
        pod("binds"),
        pod("leaves", "n1"),
        pod("grows", "n2", "100m"),
        pod("old", "n1"),
    ]
    after = [
        pod("moves", "n2", "100m"),
        pod("binds", "n1"),
        pod("leaves"),
        pod("grows", "n2", "200m"),
        pod("new", "n1"),
    ]
    report = diff_of([*nodes, *before], [*nodes, *after])
    assert {(row.pod, row.change, row.node_before, row.node_after) for row in report.pods} == {
        ("shop/moves", "moved", "n1", "n2"),
        ("shop/binds", "bound", None, "n1"),
        ("shop/leaves", "unbound", "n1", None),
        ("shop/grows", "resized", "n2", "n2"),
        ("shop/new", "added", None, "n1"),
        ("shop/old", "removed", "n1", None),
    }
    sizes = {row.pod: (row.cpu_before, row.cpu_after, row.memory_before) for row in report.pods}
    assert sizes["shop/grows"] == (100, 200, GI)
    assert sizes["shop/new"] == (None, 1000, None)
    assert report.newly_pending == 1


def test_workloads_have_their_pods_and_requests_in_both_dumps() -> None:
    nodes = [worker("n1")]
    report = diff_of([*nodes, pod("a", "n1")], [*nodes, pod("a2", "n1"), pod("b"), pod("c", "n1", app="other")])
    rows = {row.workload: row for row in report.workloads}
    web = rows["shop/ReplicaSet/web"]
    assert (web.change, web.pods_before, web.pods_after, web.pending_after) == ("changed", 1, 2, 1)
    assert (web.cpu_before, web.cpu_after, web.memory_after) == (1000, 2000, 2 * GI)
    (other,) = [row for name, row in rows.items() if name != "shop/ReplicaSet/web"]
    assert (other.change, other.pods_before, other.pods_after) == ("added", 0, 1)


def test_a_workload_whose_pods_were_only_created_again_does_not_differ() -> None:
    report = diff_of([worker("n1"), pod("a", "n1")], [worker("n1"), pod("b", "n1")])
    assert report.workloads == []
    assert [row.change for row in report.pods] == ["added", "removed"]


def test_verdicts_on_pending_pods_are_compared_by_their_reasons() -> None:
    tainted = worker("n1", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    report = diff_of([worker("n1"), pod("waits", cpu="9")], [tainted, pod("waits", cpu="9")])
    (row,) = report.verdicts
    assert row.before == "1 Insufficient cpu"
    assert "untolerated taint" in row.after
    more = diff_of([worker("n1"), pod("waits", cpu="9")], [worker("n1"), worker("n2"), pod("waits", cpu="9")])
    assert more.verdicts == [], "the same reason on more nodes"


def test_verdicts_say_where_a_pod_is_that_no_longer_waits() -> None:
    report = diff_of([worker("n1"), pod("a", cpu="9"), pod("b")], [worker("n1", "16"), pod("a", "n1", "9")])
    assert [(row.pod, row.before, row.after) for row in report.verdicts] == [
        ("shop/a", "1 Insufficient cpu", "on n1"),
        ("shop/b", "fits 1 node", "absent"),
    ]
