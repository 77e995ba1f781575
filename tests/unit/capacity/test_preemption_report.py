"""``kscale.preempt``: the victims, the criterion that decides, and why preemption does not help."""

from __future__ import annotations

from typing import Any

import pytest

import kscale
from kscale.capacity.preemption import PreemptionReport
from kscale.errors import InputError
from unit.capacity.disruptable_clusters import budget, cluster, node, pod


def running(name: str, on: str, cpu: str = "4", priority: int = 0, **more: Any) -> dict[str, Any]:
    return pod(name, on, cpu, spec={"priority": priority}, **more)


def vip(cpu: str = "1", priority: int = 100, **spec: Any) -> dict[str, Any]:
    return pod("vip", cpu=cpu, spec={"priority": priority, **spec}, labels={"app": "vip"})


def report_of(*items: dict[str, Any], **options: Any) -> PreemptionReport:
    return kscale.preempt(cluster(*items), "shop/vip", **options)


TWO = (node("n1"), node("n2"))


def test_the_chosen_node_and_its_victims_are_named() -> None:
    report = report_of(node("n1"), running("a", "n1", "2", 5), running("b", "n1", "2", 7), vip("2"))
    assert (report.result, report.node, report.criterion, report.message) == ("preempts", "n1", "", "")
    (victim,) = report.victims
    assert (victim.pod, victim.priority, victim.started, victim.violates) == (
        "shop/a",
        5,
        "2026-07-01T00:00:00Z",
        False,
    )
    assert [row.outcome for row in report.nodes] == ["chosen"]


@pytest.mark.parametrize(
    ("first", "second", "criterion"),
    [
        (
            [running("a", "n1", app="web")],
            [running("b", "n2", app="")],
            "fewest violations of disruption budgets",
        ),
        (
            [running("a", "n1", priority=2)],
            [running("b", "n2", priority=1)],
            "lowest priority of the most important victim",
        ),
        (
            [running("a", "n1", "2", 1, app=""), running("c", "n1", "2", 1, app="")],
            [running("b", "n2", "4", 1, app="")],
            "lowest sum of the victims' priorities",
        ),
        (
            [running("a", "n1", app="", started="2026-07-01T00:00:00Z")],
            [running("b", "n2", app="", started="2026-07-01T01:00:00Z")],
            "latest start of the most important victims",
        ),
    ],
)
def test_the_deciding_criterion_is_named(
    first: list[dict[str, Any]], second: list[dict[str, Any]], criterion: str
) -> None:
    protect = [budget("web", 0)] if "violations" in criterion else []
    report = report_of(*TWO, *first, *second, *protect, vip("4"))
    assert (report.node, report.criterion) == ("n2", criterion)
    assert [row.outcome for row in report.nodes] == ["chosen", "candidate"]


def test_equal_candidates_are_decided_by_the_order_of_the_nodes() -> None:
    report = report_of(*TWO, running("a", "n1"), running("b", "n2"), vip("4"))
    assert (report.node, report.criterion) == ("n1", "first node in list order")


def test_a_sum_of_priorities_counts_every_victim_so_that_fewer_victims_of_no_priority_win() -> None:
    report = report_of(*TWO, running("a", "n1", "2"), running("c", "n1", "2"), running("b", "n2", "4"), vip("4"))
    assert report.node == "n2"
    assert [(row.node, row.priority_sum) for row in report.nodes] == [("n2", 0), ("n1", 0)]


def test_a_violated_budget_is_counted() -> None:
    report = report_of(node("n1"), running("a", "n1"), budget("web", 0), vip())
    assert (report.violations, report.victims[0].violates, report.nodes[0].violations) == (1, True, 1)


def test_pod_that_fits_evicts_no_pod() -> None:
    report = report_of(*TWO, running("a", "n1"), vip())
    assert (report.result, report.victims, report.node) == ("fits", [], None)
    assert [(row.node, row.outcome) for row in report.nodes] == [("n1", "candidate"), ("n2", "fits")]


def test_a_pod_that_never_preempts_says_so() -> None:
    report = report_of(node("n1"), running("a", "n1"), vip(preemptionPolicy="Never"))
    assert (report.result, report.nodes) == ("never", [])
    assert report.message == "preemption: not eligible due to preemptionPolicy=Never."


def test_each_node_says_why_preemption_does_not_help() -> None:
    items = [
        node("n1"), node("n2"), node("n3", taints=[{"key": "k", "effect": "NoSchedule"}]), node("n4", "2"),
        running("a", "n1", priority=100), running("b", "n2", "1"), running("d", "n2", "2", priority=100),
        running("c", "n3"), running("e", "n4", "1"),
    ]  # fmt: skip
    report = report_of(*items, vip("3"))
    assert report.result == "does-not-help"
    assert [(row.node, row.outcome, row.reasons) for row in report.nodes] == [
        ("n1", "no-victims", ["No preemption victims found for incoming pod"]),
        ("n2", "not-enough", ["Insufficient cpu"]),
        ("n3", "not-helpful", ["Preemption is not helpful for scheduling"]),
        ("n4", "not-helpful", ["Preemption is not helpful for scheduling"]),  # the pod is larger than the node
    ]
    assert [row.causes for row in report.nodes if row.causes] == [
        ["node(s) had untolerated taint(s)"],
        ["Insufficient cpu"],
    ]
    assert report.message == (
        "preemption: 0/4 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )


def test_nodes_beyond_enough_candidates_are_not_tried() -> None:
    items = [*TWO, running("a", "n1", priority=2), running("b", "n2", priority=1), vip()]
    report = report_of(*items, least_percentage=0, least_candidates=1)
    assert [(row.node, row.outcome) for row in report.nodes] == [("n1", "chosen"), ("n2", "not-tried")]


def test_a_pod_that_is_not_pending_is_refused() -> None:
    with pytest.raises(InputError, match="no pending pod 'shop/vip'"):
        report_of(node("n1"), running("vip", "n1"))
