"""Nothing of a snapshot can be written to: what was worked out of it is kept with it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
}


def pod(name: str, node: str | None, **more: Any) -> dict[str, Any]:
    container = {"name": "a", "resources": {"requests": {"cpu": "1"}}}
    spec = {"containers": [container], **({"nodeName": node} if node else {}), **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def make_snapshot() -> Snapshot:
    return Cluster([NODE, pod("runs", "n1"), pod("waits", None)]).snapshot()


def others(snapshot: Snapshot) -> list[Snapshot]:
    """Every way there is to get a snapshot from another."""
    record = snapshot.record("default/waits")
    return [
        snapshot,
        copy.deepcopy(snapshot),
        pickle.loads(pickle.dumps(snapshot)),
        snapshot.with_placed([record], [0]),
        snapshot.with_nodes(without=["n1"]),
        snapshot.keeping(snapshot.placed_class < 0),
    ]


@pytest.mark.parametrize("which", range(6))
def test_arrays_are_read_only(which: int) -> None:
    snapshot = others(make_snapshot())[which]
    arrays = [*snapshot.used.values(), snapshot.pod_count, snapshot.placed_class, snapshot.placed_node]
    columns = snapshot.columns
    arrays += [snapshot.placed.priorities, columns.slots, columns.unschedulable, columns.taint_ids]
    arrays += [*columns.allocatable.values(), columns.label("zone").ids]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0


@pytest.mark.parametrize("which", range(6))
def test_names_and_counts(which: int) -> None:
    snapshot = others(make_snapshot())[which]
    assert all(isinstance(names, tuple) for names in (snapshot.nodes, snapshot.pods, snapshot.pending))
    for mapping in (snapshot.used, snapshot.counts):
        with pytest.raises(TypeError, match="does not support item assignment"):
            mapping["cpu"] = None


def test_free_returns_a_copy() -> None:
    snapshot = make_snapshot()
    free = snapshot.free("cpu")
    free[:] = 0
    assert snapshot.free("cpu").tolist() == [3000]


def test_repr_summarizes_the_snapshot() -> None:
    gated = pod("gated", None, schedulingGates=[{"name": "g"}])
    snapshot = Cluster([NODE, pod("runs", "n1"), pod("waits", None), gated]).snapshot()
    assert repr(snapshot) == "<Snapshot: 1 nodes, 1 placed pods, 1 pending (1 gated)>"
    assert repr(make_snapshot()) == "<Snapshot: 1 nodes, 1 placed pods, 1 pending>"
