"""Headroom: how many more fit, and what losing nodes would do."""

from __future__ import annotations

from typing import Any

import pytest

from builders import node, owner, pod
from kscale.capacity.headroom import count_more_pods, headroom
from kscale.capacity.losses import Loss
from kscale.objects.api.core import Node, Pod
from kscale.objects.node_selectors import ZONE
from kscale.snapshot.cluster import Cluster
from unit.cli.support import kscale


def worker(name: str, zone: str, cpu: int = 1000) -> Node:
    return node(name, cpu, 1000, ready=True, labels={"kubernetes.io/hostname": name, ZONE: zone})


def placed(name: str, on: str, cpu: int, kind: str = "ReplicaSet", **more: Any) -> Pod:
    created = pod(name, cpu, 1, owner_references=owner(kind), **more)
    created.spec.node_name = on
    return created


@pytest.fixture
def objects() -> list[Any]:
    return [
        worker("a1", "a"), worker("a2", "a"), worker("b1", "b"),
        placed("p1", "a1", 600), placed("p2", "a2", 300), placed("p3", "b1", 400), placed("ds", "b1", 100, "DaemonSet"),
    ]  # fmt: skip


def test_more_replicas_are_counted(objects: list[Any]) -> None:
    assert count_more_pods(Cluster(objects).snapshot(), pod("new", 200, 1)) == 2 + 3 + 2
    apart = pod("new", 200, 1, spec={"node_selector": {ZONE: "a"}})
    assert count_more_pods(Cluster(objects).snapshot(), apart) == 5
    assert count_more_pods(Cluster(objects).snapshot(), pod("new", 5000, 1)) == 0


def test_node_and_zone_losses_count_homeless_pods(objects: list[Any]) -> None:
    report = headroom(Cluster(objects).snapshot())
    assert report.more is None
    assert report.nodes == [
        Loss(name="a1", pods=1, homeless=0),
        Loss(name="a2", pods=1, homeless=0),
        Loss(name="b1", pods=1, homeless=0),
    ]
    assert report.zones == [
        Loss(name="a", pods=2, homeless=1, first=["default/p1"]),
        Loss(name="b", pods=1, homeless=0),
    ]


def test_each_loss_is_judged_on_its_own(objects: list[Any]) -> None:
    snapshot = Cluster(objects).snapshot()
    assert headroom(snapshot) == headroom(snapshot)


def test_the_command() -> None:
    run = kscale("headroom", "-f", "examples/cluster.json.gz", "--pod", "examples/web.yaml")
    assert run.code in (0, 1), run.stderr
    assert "more fit. Losing any one node:" in run.stdout
