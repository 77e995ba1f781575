"""Named losses, pairs of nodes, and what would repair them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from builders import node, owner, pod
from kscale import InputError
from kscale.capacity.generate import generate
from kscale.capacity.group_templates import with_templates
from kscale.capacity.groups import groups_from
from kscale.capacity.headroom import HeadroomReport, headroom, report_losses
from kscale.capacity.losses import Loss, Repair, losses, named_losses, pair_losses
from kscale.cli.commands.headroom import headroom_view
from kscale.objects.api.core import Node, Pod
from kscale.objects.node_selectors import ZONE
from kscale.snapshot.cluster import Cluster, load


def worker(name: str, zone: str, cpu: int = 1000) -> Node:
    return node(name, cpu, 1000, ready=True, labels={"kubernetes.io/hostname": name, ZONE: zone, "pool": zone})


def placed(name: str, on: str, cpu: int, kind: str = "ReplicaSet", **more: Any) -> Pod:
    created = pod(name, cpu, 1, owner_references=owner(kind), **more)
    created.spec.node_name = on
    return created


def cluster() -> Cluster:
    return Cluster([
        worker("a1", "a"), worker("a2", "a"), worker("b1", "b"), worker("b2", "b"),
        placed("p1", "a1", 600), placed("p2", "a2", 700), placed("p3", "b1", 400), placed("p4", "b2", 300),
        placed("ds", "b1", 100, "DaemonSet"),
    ])  # fmt: skip


GROUPS = [
    {"id": "a", "max": 4, "nodeSelector": {"pool": "a"}, "price": 0.2},
    {"id": "b", "max": 4, "nodeSelector": {"pool": "b"}, "price": 0.3},
]


def test_named_losses_and_their_repair() -> None:
    original = cluster()
    groups = with_templates(original, original.snapshot(), groups_from(GROUPS))
    report = report_losses(original, ["node=a1", "node=a1,a2", "zone=a", "pool=b"], groups, repair=True)
    assert [(loss.name, loss.pods, loss.homeless) for loss in report.lost] == [
        ("node=a1", 1, 0),
        ("node=a1,a2", 2, 1),
        ("zone=a", 2, 1),
        ("pool=b", 2, 0),
    ]
    none, both, zone, pool = (loss.repair for loss in report.lost)
    assert none is None
    assert pool is None
    assert both is not None
    assert zone is not None
    assert (zone.offers, zone.cost, zone.unschedulable_count) == ({"b": 1}, 0.3, 0), "the lost zone offers no node"
    assert both == zone


def test_loss_without_repair_is_reported() -> None:
    original = cluster()
    (one,) = with_templates(original, original.snapshot(), groups_from(GROUPS[:1]))
    (loss,) = report_losses(original, ["zone=a"], [one], repair=True).lost
    assert loss.repair is not None
    assert (loss.repair.nodes, loss.repair.unschedulable_count) == (0, 1)


@pytest.mark.parametrize(
    ("repair", "text"),
    [
        (Repair(cost=0.0, nodes=0, offers={}, unschedulable_count=2), "2 pods fit on no new node"),
        (
            Repair(cost=0.0, nodes=0, offers={}, unschedulable_count=1, limits_reached=["a", "b"]),
            "1 pod fits on no new node (at their limit: a, b)",
        ),
        (
            Repair(cost=0.0, nodes=0, offers={}, unschedulable_count=0),
            "no new nodes: in another order the pods fit on the nodes that are left",
        ),
        (
            Repair(cost=0.5, nodes=2, offers={"a": 2}, unschedulable_count=1),
            "2 x a, $0.500/h; 1 pod fits on no new node",
        ),
    ],
)
def test_a_repair_without_nodes_says_why(repair: Repair, text: str) -> None:
    loss = Loss(name="node=a", pods=3, homeless=3, repair=repair)
    view = headroom_view(HeadroomReport(pod=None, more=None, nodes=[], zones=[], lost=[loss]))
    assert view.tables[0].rows[0][-1] == text


def test_groups_at_their_maximum_are_named() -> None:
    original = cluster()
    full = with_templates(original, original.snapshot(), groups_from([{**GROUPS[1], "max": 2}]))
    (loss,) = report_losses(original, ["zone=a"], full, repair=True).lost
    assert loss.repair is not None
    assert (loss.repair.offers, loss.repair.unschedulable_count, loss.repair.limits_reached) == ({}, 1, ["b"])


@pytest.mark.parametrize(
    "items",
    [
        list(cluster()),
        [*cluster(), placed("p5", "b1", 300), placed("p6", "b2", 500)],
        [worker(f"n{i}", "a") for i in range(30)] + [placed(f"p{i}", f"n{i}", 400) for i in range(30)],
        list(generate(24, 120, seed=5, pending=0).objects()),
        list(generate(30, 90, seed=7, pending=0).objects()),
    ],
    ids=["small", "full", "loose", "generated", "generated loose"],
)
def test_pair_losses_agree_with_single_simulations(items: list[Any]) -> None:
    """Pods look for a place in some order: a pair that a simulation finds homeless may hold in another one, so what is
    found without one is never less than what simulations find."""
    snapshot = load(items).snapshot(dra=True)
    result = pair_losses(snapshot)
    count = len(snapshot.nodes)
    alone = [loss.homeless > 0 for loss in losses(snapshot, [(str(n), [n]) for n in range(count)])]
    pairs = [pair for pair in itertools.combinations(range(count), 2) if not (alone[pair[0]] or alone[pair[1]])]
    all_of_them = losses(snapshot, [(" and ".join(snapshot.nodes[n] for n in pair), pair) for pair in pairs])
    bad = {loss.name: loss for loss in all_of_them if loss.homeless}
    on_node = dict(zip(snapshot.pods, snapshot.placed_node.tolist(), strict=True))
    for loss in result.alone:
        assert 0 < len(loss.first) == min(3, loss.homeless) <= loss.homeless <= loss.pods
        assert {snapshot.nodes[on_node[pod]] for pod in loss.first} == {loss.name}
    assert result.simulated <= result.pairs
    assert result.homeless <= len(bad) + result.pairs - len(pairs)
    if result.pairs == len(pairs):
        assert all(bad[loss.name] == loss for loss in result.worst)


def test_pairs_that_do_not_meet_are_not_simulated() -> None:
    snapshot = load([worker(f"n{i:02}", "a") for i in range(40)]
                    + [placed(f"p{i}", f"n{i:02}", 400) for i in range(40)]).snapshot()  # fmt: skip
    result = pair_losses(snapshot)
    assert (result.pairs, result.homeless, result.alone) == (780, 0, [])
    assert result.simulated <= 2 * 40, "a pod goes to the next node"


def test_a_zone_label_that_no_node_has() -> None:
    there = cluster()
    for ask in (
        lambda: headroom(there.snapshot(), zone_label="nope"),
        lambda: report_losses(there, ["pairs"], zone_label="x"),
    ):
        with pytest.raises(InputError, match=r'^zone_label: no node has the label "(nope|x)"$'):
            ask()
    assert headroom(load([]).snapshot(), zone_label="nope").zones == []
    assert headroom(load([node("n", 1000, 1000)]).snapshot()).zones == [], "zones are not everywhere"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node=x", 'there is no node "x"'),
        ("zone=x", 'there is no zone "x" with nodes'),
        ("pool=x", 'there is no pool "x" with nodes'),
        ("rack=1", "what is lost is node=NAME"),
        ("node=", "what is lost is node=NAME"),
        ("everything", "what is lost is node=NAME"),
    ],
)
def test_unknown_losses_are_an_input_error(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        named_losses(cluster().snapshot(), [text])
    assert message in str(error.value)
