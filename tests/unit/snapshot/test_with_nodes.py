"""Nodes put on top of a snapshot, and taken out of it: as if they had come and gone in the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
import pytest
from msgspec.structs import replace

import kscale
from builders import container, node, pod
from kscale.errors import InputError
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.api.storage import CSINode, CSINodeDriver, CSINodeSpec
from kscale.objects.nodegroup import NodeTemplate


@dataclass
class Change:
    """Some nodes go, some are others, some come."""

    without: list[str]
    replaced: list[Node]
    fresh: list[NodeTemplate]


def _cluster(random: Random) -> kscale.Cluster:
    nodes = [node(f"n{i}", 4000, 4000, labels={"zone": f"z{i % 2}"}) for i in range(8)]
    pods = [
        pod(
            f"p{i}",
            random.choice((100, 500, 900)),
            100,
            spec={"node_name": f"n{random.randrange(8)}"} if random.random() < 0.7 else {},
            labels={"app": random.choice("ab")},
        )
        for i in range(30)
    ]
    return kscale.Cluster([*nodes, *pods])


def _change(random: Random) -> Change:
    names = [f"n{i}" for i in range(8)]
    random.shuffle(names)
    fresh = []
    for i in range(random.randrange(4)):
        name = f"new-{i}"
        come = [
            pod(f"{name}-{k}", 300, 10, namespace="kube-system", spec={"node_name": name})
            for k in range(random.randrange(3))
        ]
        fresh.append(NodeTemplate(node=node(name, 2000, 2000, labels={"zone": "z1"}), pods=come))
    replaced = [node(name, 1000, 4000, labels={"zone": "z9"}) for name in names[2:4]]
    return Change(names[: random.randrange(3)], replaced, fresh)


def _rebuilt(cluster: kscale.Cluster, change: Change) -> kscale.Snapshot:
    created = cluster.copy()
    for name in change.without:
        for each in list(created.pods()):
            if each.spec.node_name == name:
                created.remove(each)
        created.remove(Node(metadata=ObjectMeta(name=name)))
    for each in change.replaced:
        created.apply(replace(each, kind="Node", api_version="v1"))
    for item in change.fresh:
        created.apply(replace(item.node, kind="Node", api_version="v1"))
        for each in item.pods:
            created.apply(replace(each, kind="Pod", api_version="v1"))
    return created.snapshot()


def _where(snapshot: kscale.Snapshot) -> dict[str, str]:
    return {key: snapshot.nodes[n] for key, n in zip(snapshot.pods, snapshot.placed_node.tolist(), strict=True)}


@pytest.mark.parametrize("seed", range(30))
def test_with_nodes_equals_a_rebuilt_cluster(seed: int) -> None:
    random = Random(seed)
    cluster, change = _cluster(random), _change(random)
    before = cluster.snapshot()
    original_places = _where(before)
    created = before.with_nodes(change.fresh, without=change.without, replaced=change.replaced)
    want = _rebuilt(cluster, change)
    assert created.nodes == want.nodes
    assert _where(created) == _where(want)
    assert created.pending == want.pending
    assert created.pod_count.tolist() == want.pod_count.tolist()
    for name in want.used:
        assert created.used[name].tolist() == want.used[name].tolist(), name
    for name, column in want.columns.allocatable.items():
        assert created.columns.allocatable[name].tolist() == column.tolist(), name
    assert np.array_equal(kscale.fit(created).ok, kscale.fit(want).ok)
    assert {kind: created.counts[kind] for kind in ("placed", "pending")} == {
        kind: want.counts[kind] for kind in ("placed", "pending")
    }
    assert _where(before) == original_places  # what was handed out does not change


def test_pods_of_new_nodes_of_one_name_are_all_there() -> None:
    """Copies of two templates may bring pods of the same name: each takes its room."""
    fresh = [NodeTemplate(node=node(name, 1000, 1000), pods=[pod("agent-0", 400, 1)]) for name in ("a", "b")]
    created = kscale.Cluster([]).snapshot().with_nodes(fresh)
    assert created.used["cpu"].tolist() == [400, 400]
    assert created.pod_count.tolist() == [1, 1]


def test_devices_and_drivers_come_with_them() -> None:
    csi = CSINode(metadata=ObjectMeta(name="a"), spec=CSINodeSpec(drivers=[CSINodeDriver(name="d", node_id="a")]))
    created = kscale.Cluster([]).snapshot().with_nodes([NodeTemplate(node=node("a", 1, 1), csi_node=csi)])
    assert created.informers.csi_nodes == {"a": csi}


def test_duplicate_node_name_is_refused() -> None:
    snapshot = kscale.Cluster([node("a", 1, 1)]).snapshot()
    again = NodeTemplate(node=node("a", 1, 1))
    with pytest.raises(InputError, match="there are two nodes a"):
        snapshot.with_nodes([again])
    with pytest.raises(InputError, match="there are two nodes a"):
        kscale.Cluster([]).snapshot().with_nodes([again, again])
    assert snapshot.with_nodes([again], without=["a"]).nodes == ("a",)
    with pytest.raises(KeyError):
        snapshot.with_nodes(without=["b"])
    with pytest.raises(InputError, match="no node 'a'"):
        snapshot.with_nodes(without=["a"], replaced=[node("a", 2, 2)])


def test_pods_that_are_to_move_on_keep_their_containers() -> None:
    """A pod that comes with a node is placed there, whatever it says of nodes."""
    own = pod("agent", spec={"node_name": "a", "containers": [container(100, 1)]})
    created = kscale.Cluster([]).snapshot().with_nodes([NodeTemplate(node=node("a", 1000, 1000), pods=[own])])
    assert isinstance(created.pod("default/agent"), Pod)
    assert _where(created) == {"default/agent": "a"}
