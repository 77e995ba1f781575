"""A cluster that was changed equals one that is made from what is left; snapshots handed out never change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kscale
from kscale.errors import InputError
from kscale.objects.api.core import Namespace, Node, Pod
from kscale.objects.decode import from_dict
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

NODES = [f"n{i}" for i in range(4)]


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    name = draw(st.sampled_from(NODES))
    amounts = {"cpu": draw(st.sampled_from("24")), "pods": "5"}
    if draw(st.booleans()):
        amounts["example.com/gpu"] = "1"
    labels = draw(st.none() | st.dictionaries(st.sampled_from(["zone", "disk"]), st.sampled_from("abc")))
    taints = [{"key": "t", "value": draw(st.sampled_from("xy")), "effect": "NoSchedule"}] if draw(st.booleans()) else []
    spec = {"unschedulable": draw(st.booleans()), "taints": taints}
    return from_dict(
        {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": amounts}}, Node
    )


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    metadata = {"name": draw(st.sampled_from("abcdefgh")), "namespace": "ns", "uid": draw(st.sampled_from("12")),
                "labels": {"app": draw(st.sampled_from("xy"))}}  # fmt: skip
    spec: dict[str, Any] = {
        "nodeName": draw(st.sampled_from(["", "", *NODES, "gone"])),
        "containers": [{"name": "c", "resources": {"requests": {"cpu": draw(st.sampled_from(["500m", "1"]))}}}],
    }
    if draw(st.booleans()):
        spec["nodeSelector"] = {"zone": draw(st.sampled_from("ab"))}
    if draw(st.booleans()):
        spec["topologySpreadConstraints"] = [
            {"maxSkew": 1, "topologyKey": draw(st.sampled_from(["zone", "disk"])), "whenUnsatisfiable": "DoNotSchedule",
             "labelSelector": {"matchLabels": {"app": "x"}}}
        ]  # fmt: skip
    return from_dict(
        {"metadata": metadata, "spec": spec, "status": {"phase": draw(st.sampled_from(["", "Failed"]))}}, Pod
    )


STEPS = st.lists(
    st.tuples(st.sampled_from(["apply", "apply", "apply", "remove", "snapshot"]), nodes() | pods()), max_size=30
)


def meaning(snapshot: Snapshot) -> dict[str, Any]:
    columns = snapshot.columns
    labels = {}
    for key in ("zone", "disk"):
        column = columns.label(key)
        labels[key] = [None if i < 0 else column.values[i] for i in column.ids.tolist()]
        assert sorted(column.values) == sorted({value for value in labels[key] if value is not None})
    classes = [snapshot.interner.classes[i] for i in snapshot.placed_class.tolist()]
    return {
        "nodes": (snapshot.nodes, [node.metadata.labels for node in columns.objects], columns.index),
        "labels": labels,
        "taints": [[(t.key, t.value) for t in columns.taints[i]] for i in columns.taint_ids.tolist()],
        "unschedulable": columns.unschedulable.tolist(),
        "slots": columns.slots.tolist(),
        "allocatable": {name: column.tolist() for name, column in columns.allocatable.items() if column.any()},
        "used": {name: column.tolist() for name, column in snapshot.used.items() if column.any()},
        "pod_count": snapshot.pod_count.tolist(),
        "placed": (snapshot.pods, snapshot.placed_node.tolist()),
        "classes": [(c.labels, c.demand, c.occupancy, c.node_selector, c.spread) for c in classes],
        "pending": (snapshot.pending, [record.uid for record in snapshot.pending_records]),
        "counts": snapshot.counts,
        "namespaces": snapshot.informers.namespaces,
        "ok": kscale.fit(snapshot).ok.tolist() if snapshot.nodes and snapshot.pending else [],
    }


@given(STEPS)
def test_incremental_changes_equal_a_rebuild(steps: list[tuple[str, Node | Pod]]) -> None:
    cluster = Cluster()
    remaining: dict[tuple[type, str], Node | Pod] = {}
    snapshots: list[tuple[Snapshot, dict[str, Any]]] = []
    for what, item in steps:
        key = type(item), item.key
        if what == "apply":
            cluster.apply(item)
            remaining[key] = item
        elif what == "remove":
            stored = remaining.get(key)
            there = stored is not None and stored.metadata.uid == item.metadata.uid
            assert cluster.remove(item) == there
            if there:
                del remaining[key]
        else:
            snapshot = cluster.snapshot()
            snapshots.append((snapshot, meaning(snapshot)))
    assert meaning(cluster.snapshot()) == meaning(Cluster(remaining.values()).snapshot())
    assert list(cluster.pods()) == [item for item in remaining.values() if isinstance(item, Pod)]
    for snapshot, expected in snapshots:
        assert meaning(snapshot) == expected


def test_rows_of_removed_pods_are_given_back() -> None:
    cluster = Cluster()
    every = [from_dict({"metadata": {"name": f"p{i}", "namespace": "ns"}}, Pod) for i in range(200)]
    for pod in every:
        cluster.apply(pod)
    before = cluster.snapshot()
    for pod in every[:150]:
        cluster.remove(pod)
    assert cluster.snapshot().pending == tuple(pod.key for pod in every[150:])
    assert len(cluster.snapshot().table) < 120
    assert before.pending == tuple(pod.key for pod in every)
    assert before.record("ns/p3").pod == every[3]


def test_only_kinds_that_changed_are_indexed_again() -> None:
    cluster = Cluster([Namespace(metadata=from_dict({"name": "a"}, type(Namespace().metadata)))])
    first = cluster.snapshot().informers
    assert cluster.snapshot().informers is first
    cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "a"}})
    second = cluster.snapshot().informers
    assert second.namespaces is first.namespaces
    assert list(second.services) == ["a"]
    assert first.services == {}


@pytest.mark.parametrize("kind", ["Pod", "Node", "Service"])
def test_late_delete_of_an_old_object_removes_nothing(kind: str) -> None:
    def item(uid: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", "namespace": "ns", "uid": uid}}

    def uids() -> list[str]:
        return [each.metadata.uid for each in cluster.all(kind)]

    cluster = Cluster([item("old")])
    cluster.apply(item("new"))
    before = cluster.snapshot()
    assert cluster.remove(item("old")) is False
    assert uids() == ["new"]
    assert cluster.snapshot().informers is before.informers
    assert cluster.remove(item("new")) is True
    for stored_uid, given_uid in (("held", ""), ("", "given"), ("", "")):
        cluster.apply(item(stored_uid))
        assert cluster.remove(item(given_uid)) is True
        assert uids() == []


def test_late_delete_of_an_old_pod_read_from_text_removes_nothing() -> None:
    old = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "ns", "uid": "old"}}
    new = {**old, "metadata": {**old["metadata"], "uid": "new"}}
    cluster = kscale.load(msgspec.json.encode({"kind": "List", "items": [old, new]}))
    assert cluster.remove(old) is False
    assert [pod.metadata.uid for pod in cluster.pods()] == ["new"]
    assert cluster.remove(new) is True


@pytest.mark.parametrize("item", ["n1", Path("n1"), None])
def test_remove_refuses_a_name_without_kind(item: Any) -> None:
    cluster = Cluster()
    for act in (cluster.remove, cluster.apply):
        with pytest.raises(InputError, match="is not an object: give a struct, or a dict with kind and metadata"):
            act(item)
