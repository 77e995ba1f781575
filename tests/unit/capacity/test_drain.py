"""``kscale.drain``: the fate of each pod of the drained nodes."""

from __future__ import annotations

from typing import Any

import pytest

import kscale
from kscale.capacity.drain import DrainReport
from kscale.objects.times import nanoseconds
from unit.capacity.disruptable_clusters import NOW, budget, cluster, node, pod


def drained(*items: dict[str, Any], nodes: tuple[str, ...] = ("n1",)) -> DrainReport:
    return kscale.drain(cluster(*items), list(nodes), now=nanoseconds(NOW))


def fates(report: DrainReport) -> dict[str, tuple[str, int | None, str | None]]:
    return {pod.pod.removeprefix("shop/"): (pod.fate, pod.wave, pod.to) for pod in report.pods}


def test_every_pod_of_the_nodes_has_a_fate() -> None:
    mirror = pod("static", "n1", app="", annotations={"kubernetes.io/config.mirror": "x"})
    report = drained(
        node("n1"), node("n2", "2"),
        pod("a", "n1"), pod("b", "n1"), pod("big", "n1", "1500m"),
        pod("ds", "n1", "100m", app="ds", owner="DaemonSet"), mirror,
        pod("alone", "n1", "10m", app=""), pod("other", "n2", "10m"), budget("web", 2),
    )  # fmt: skip
    # The DaemonSet is not in the input, so that the first rule keeps its pod.
    assert fates(report) == {
        "ds": ("blocked", None, None),
        "alone": ("blocked", None, None),
        "a": ("evicted", 1, "n2"),
        "b": ("pending", 1, None),
        "big": ("pending", 2, None),
        "static": ("ends", None, None),
    }
    assert (report.evicted, report.pending_count, report.blocked, report.ending) == (1, 2, 2, 1)
    assert not report.complete
    assert report.waves == 2
    assert "Insufficient cpu" in next(pod.why for pod in report.pods if pod.fate == "pending")


def test_nodes_that_are_drained_together_take_no_pods_of_each_other() -> None:
    items = [node("n1"), node("n2"), node("n3"), pod("a", "n1"), pod("b", "n2")]
    report = drained(*items, nodes=("n1", "n2", "n1"))
    assert report.complete
    assert report.nodes == ["n1", "n2"]
    assert {pod.to for pod in report.pods} == {"n3"}


def test_a_pod_that_tolerates_the_cordon_does_not_come_back() -> None:
    tolerant = pod("a", "n1", spec={"tolerations": [{"operator": "Exists"}]})
    report = drained(node("n1"), tolerant)
    assert fates(report) == {"a": ("pending", 1, None)}


def test_an_exhausted_budget_is_named() -> None:
    report = drained(node("n1"), node("n2"), pod("a", "n1"), budget("web", 0))
    (blocked,) = report.pods
    assert (blocked.fate, blocked.rule, blocked.reason, blocked.budget) == (
        "blocked",
        "PDB",
        "NotEnoughPdb",
        "shop/web",
    )


def test_pending_pods_that_fit_take_their_room_first() -> None:
    items = [node("n1"), node("n2", "1"), pod("a", "n1"), pod("early")]
    assert drained(*items).pending_count == 1
    assert drained(*items[:3]).pending_count == 0


def test_spread_counts_the_cordoned_node_while_its_pods_leave() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    spec = {"topologySpreadConstraints": [constraint]}
    items = [node("n1"), node("n2"), pod("a", "n1", spec=spec), pod("b", "n2", spec=spec)]
    assert drained(*items).pending_count == 1, "a second pod on n2 would be two more than on the empty, cordoned node"
    tolerant = {"topologySpreadConstraints": [{**constraint, "nodeTaintsPolicy": "Honor"}]}
    items[0] = node("n1", taints=[{"key": "leaves", "effect": "NoSchedule"}])
    items[2:] = [pod("a", "n1", spec=tolerant), pod("b", "n2", spec=tolerant)]
    assert drained(*items).pending_count == 0, "a node that the pod does not tolerate is no domain"


def test_unknown_nodes_are_all_named() -> None:
    with pytest.raises(kscale.InputError, match=r'(?s)there is no node "x".*there is no node "y"'):
        drained(node("n1"), nodes=("x", "n1", "y"))
    with pytest.raises(kscale.InputError, match="no node is named"):
        drained(node("n1"), nodes=())


def test_an_empty_node_is_drained_at_once() -> None:
    report = drained(node("n1"), nodes=("n1",))
    assert (report.complete, report.waves, report.pods) == (True, 0, [])
