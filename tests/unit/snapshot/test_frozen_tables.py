"""What a snapshot has stays what it was, whatever becomes of pods: all columns, of rows that are written to too."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.pods.table import PodTable

MANY = 20  # so that one of them is few
names = st.sampled_from([f"p{i}" for i in range(MANY + 3)])
ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-05T00:00:00Z"}]


def pod(name: str, node: str, app: str, phase: str) -> Pod:
    """A pod that is waiting, or runs on a node."""
    spec = {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    status: dict[str, Any] = {"phase": phase, "conditions": ready if phase == "Running" else []}
    meta = {"name": name, "namespace": "shop", "labels": {"app": app}, "resourceVersion": f"{app}{phase}"}
    return from_dict({"metadata": meta, "spec": spec, "status": status}, Pod)


pods = st.builds(
    pod, names, st.sampled_from(["", "n0", "n1"]), st.sampled_from(["1", "2"]), st.sampled_from(["Pending", "Running"])
)


def table_contents(table: PodTable) -> dict[str, Any]:
    """All that a table says, but for what is learned of pods later."""
    rows = range(len(table))
    columns = {name: column.tolist() for name, column in table.columns.items() if name not in ("shape", "seen")}
    there = [row for row in rows if columns["source"][row] < 0 and row in table.records]
    return columns | {"records": {row: table.record(row) for row in there}, "keys": [table.keys[row] for row in rows]}


@given(st.lists(st.tuples(st.lists(pods, max_size=3), st.sets(names, max_size=2), st.booleans()), max_size=6))
def test_frozen_tables_never_change(what: list[tuple[list[Pod], set[str], bool]]) -> None:
    cluster = Cluster(texts="pending")
    cluster.apply_pods(pod(f"p{i}", "n0", "1", "Running") for i in range(MANY))
    snapshots: list[tuple[PodTable, dict[str, Any]]] = []
    for changed, removed, learns in what:
        snapshot = cluster.snapshot()
        snapshots.append((snapshot.table, table_contents(snapshot.table)))
        cluster.apply_pods(changed, removed=[f"shop/{name}" for name in removed])
        cluster.tidy()
        if learns:  # of the pods as they were
            assert len(snapshot.pod_index.pods.shapes) == len(snapshot.pod_index.pods)
        for table, before in snapshots:
            assert table_contents(table) == before
    fresh = Cluster(texts="pending")
    fresh.apply_pods(cluster.pods())
    mine, theirs = cluster.pod_index().pods, fresh.pod_index().pods
    assert mine.keys == theirs.keys
    for index in (mine, theirs):
        exemplars = [index.exemplar(each) for each in index.shapes.tolist()]
        assert [each.metadata.labels for each in exemplars] == [
            index.pod(i).metadata.labels for i in range(len(exemplars))
        ]
    for name in ("phase", "ready", "since", "started", "deleted"):
        assert getattr(mine, name).tolist() == getattr(theirs, name).tolist()
