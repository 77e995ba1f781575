"""A copy of a cluster goes its own way."""

from __future__ import annotations

from typing import Any

import numpy as np

from builders import T0, at, node, owner, pod
from kscale.objects.api.core import Node, Pod
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot


def _facts(snapshot: Snapshot) -> Any:
    rows = snapshot.pending_records
    return (
        snapshot.nodes,
        snapshot.pods,
        snapshot.pending,
        snapshot.pod_count.tolist(),
        {name: column.tolist() for name, column in snapshot.used.items()},
        [record.uid for record in rows] == list(rows.uids()),
    )


def _machine(name: str) -> Node:
    created = node(name, 1000, 1000)
    created.api_version, created.kind = "v1", "Node"
    return created


def _replica(name: str, controller: str, cpu: int = 100, **spec: Any) -> Pod:
    return pod(name, cpu, 10, spec=spec, owner_references=owner("ReplicaSet", controller), creation_timestamp=at())


def test_copies_change_independently() -> None:
    assert T0.year == 2020
    first = Cluster([_machine("n1"), _machine("n2"), _replica("run", "rs", node_name="n1"), _replica("wait", "rs")])
    before = _facts(first.snapshot())
    other = first.copy()
    assert _facts(other.snapshot()) == before
    other.remove(_machine("n1"))
    other.remove(pod("wait"))
    other.apply(_machine("n3"))
    other.apply(_replica("more", "other-rs", node_name="n3"))
    assert _facts(first.snapshot()) == before
    assert other.snapshot().nodes == ("n2", "n3")
    assert other.snapshot().pods == ("default/more",)
    first.apply(_replica("new", "third-rs"))
    assert "default/new" not in other.snapshot().pending
    assert _facts(first.snapshot()) == _facts(Cluster(first).snapshot())
    assert _facts(other.snapshot()) == _facts(Cluster(other).snapshot())


def test_replicas_are_not_mixed_up_between_copies() -> None:
    """Controllers that each copy met on its own get the same number there."""
    from kscale.scheduling.equivalent_pods import equivalence_groups, number_controllers_and_shapes

    first = Cluster([_replica("a0", "a"), _replica("a1", "a")])
    other = first.copy()
    for cluster, name in ((first, "b"), (other, "c")):
        for i in range(2):
            cluster.apply(_replica(f"{name}{i}", name))
        cluster.apply(_replica(f"{name}-large", name, 500))
    for cluster in (first, other, first, other):
        members, starts = equivalence_groups(*number_controllers_and_shapes(cluster.snapshot().pending_records))
        assert np.diff(starts).tolist() == [2, 2, 1]
        assert members.tolist() == [0, 1, 2, 3, 4]
