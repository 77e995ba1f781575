"""Many pods at once: the same as one by one, also when they share parts."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from kscale.capacity.losses import make_pending
from kscale.errors import InputError
from kscale.objects.api.core import Node, Pod
from kscale.objects.decode import from_dict
from kscale.snapshot.cluster import Cluster, load
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.pods.table import COLUMN, POD_COLUMNS
from kscale.snapshot.snapshot import Snapshot, without_lost_nodes

replace = msgspec.structs.replace


def pod(**fields: Any) -> Pod:
    return from_dict({"metadata": {"name": "p", "namespace": "ns"}, **fields}, Pod)


def container(cpu: str) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}}


SPECS = [
    pod(spec=spec).spec
    for spec in (
        {},
        {"containers": [container("1")]},
        {"containers": [container("1")], "hostNetwork": True},
        {"containers": [container("1")], "tolerations": [{"operator": "Exists"}]},
        {"containers": [container("1")], "initContainers": [container("2")]},
        {"containers": [container("1")], "overhead": {"cpu": "1"}},
        {"containers": [container("1")], "nodeSelector": {"zone": "a"}},
        {"containers": [container("1")], "topologySpreadConstraints": []},
        {"containers": [container("1")], "schedulingGates": [{"name": "g"}]},
        {"containers": [container("1")], "volumes": [{"name": "v", "ephemeral": {}}]},
    )
]
STATUSES = [
    pod(status=status).status
    for status in (
        {},
        {"phase": "Failed"},
        {"nominatedNodeName": "n1"},
        {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        {"conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]},
        {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "3"}}]},
        {"resources": {"requests": {"cpu": "4"}}},
    )
]
METADATA = [
    pod(metadata=metadata).metadata
    for metadata in (
        {"namespace": "ns"},
        {"namespace": "ns", "labels": {"app": "x"}, "resourceVersion": "7"},
        {"namespace": "ns", "labels": {"app": "x"}, "resourceVersion": "odd"},
        {"namespace": "other", "labels": {"app": "x"}},
        {"namespace": "ns", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"namespace": "ns", "ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}]},
        {"namespace": "ns", "ownerReferences": [{"kind": "ReplicaSet", "name": "d", "uid": "1", "controller": True}]},
    )
]


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """Made of parts that others are made of, too."""
    name = draw(st.sampled_from("abcdef"))
    return Pod(
        metadata=replace(draw(st.sampled_from(METADATA)), name=name, uid=f"uid-{name}"),
        spec=replace(draw(st.sampled_from(SPECS)), node_name=draw(st.sampled_from(["", "n0", "n1", "gone"]))),
        status=draw(st.sampled_from(STATUSES)),
    )


CHANGES = st.lists(
    st.tuples(st.lists(pods(), max_size=8), st.lists(st.sampled_from("abcdef").map("ns/{}".format), max_size=3)),
    max_size=5,
)


def meaning(snapshot: Snapshot) -> dict[str, Any]:
    table, classes = snapshot.table, snapshot.interner.classes
    alive = [row for row in range(len(table)) if table.columns["state"][row] >= 0]
    looks = []
    for row in alive:
        result = classes[int(table.columns["class_of"][row])]
        numbers = dict.fromkeys(("index", "tolerations_id", "selection_id", "identity_id"), 0)
        looks.append(msgspec.structs.asdict(replace(result, **numbers)))
    names = ("state", "bound", "priority", "started", "deleted", "since", "ready", "phase", "source", "size", "seen")
    return {
        "pods": [(table.keys[row], table.record(row).pod, table.version(row)) for row in alive],
        "looks": looks,
        "nodes": [table.nodes[at] if at >= 0 else "" for at in table.columns["at"][alive].tolist()],
        "used": {name: column.tolist() for name, column in snapshot.used.items() if column.any()},
        "counts": (snapshot.counts, snapshot.pod_count.tolist()),
        **{name: table.columns[name][alive].tolist() for name in names},
    }


def nodes() -> list[Node]:
    return [
        from_dict({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "9"}}}, Node) for name in ("n0", "n1")
    ]


@settings(max_examples=examples(2 / 3))
@given(CHANGES)
def test_batch_apply_equals_single_applies(changes: list[tuple[list[Pod], list[str]]]) -> None:
    at_once, one_by_one = Cluster(nodes()), Cluster(nodes())
    snapshots: list[tuple[Snapshot, dict[str, Any]]] = []
    for some, removed in changes:
        at_once.apply_pods(some, removed=removed)
        at_once.tidy()
        for key in removed:
            one_by_one.remove("Pod", key)
        for each in some:
            one_by_one.apply(each)
        snapshot = at_once.snapshot()
        snapshots.append((snapshot, meaning(snapshot)))
    assert meaning(at_once.snapshot()) == meaning(one_by_one.snapshot())
    for snapshot, expected in snapshots:
        assert meaning(snapshot) == expected


def test_shared_pod_parts_are_classified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    classified = []
    classify = cluster.interner.classify
    monkeypatch.setattr(cluster.interner, "classify", lambda pod, **how: classified.append(pod) or classify(pod, **how))
    for node in ("", "n0"):
        spec = replace(SPECS[1], node_name=node)
        cluster.apply_pods(Pod(metadata=replace(METADATA[1], name=f"p{i}"), spec=spec) for i in range(20))
    assert len(classified) == 2
    assert cluster.keys("Pod") == [f"ns/p{i}" for i in range(20)]


def test_invalid_time_is_refused_before_any_change() -> None:
    cluster = Cluster([pod()])
    damaged = pod(metadata={"name": "q", "namespace": "ns"}, status={"startTime": "noon"})
    with pytest.raises(InputError, match=r"status\.startTime"):
        cluster.apply_pods([pod(metadata={"name": "r", "namespace": "ns"}), damaged])
    assert cluster.keys("Pod") == ["ns/p"]


def test_removed_classes_are_not_reused() -> None:
    """What was remembered of pods goes with the interner that numbered it."""
    cluster = Cluster()
    cluster.apply_pods([Pod(metadata=replace(METADATA[1], name="first"), spec=SPECS[1])])
    keys = ["ns/first"]
    for i in range(1500):  # more classes than are kept without use
        key = f"ns{i}/p"
        pods = [Pod(metadata=replace(METADATA[1], name="p", namespace=f"ns{i}"), spec=SPECS[2])]
        cluster.apply_pods(pods, removed=keys)
        keys = [key]
        cluster.tidy()
    cluster.apply_pods([Pod(metadata=replace(METADATA[1], name="last"), spec=SPECS[1])])
    row = cluster.snapshot().table.keys.index("ns/last")
    result = cluster.interner.classes[int(cluster.snapshot().table.columns["class_of"][row])]
    assert (result.namespace, result.demand) == ("ns", {"cpu": 1000})


@settings(max_examples=50)
@given(
    st.lists(pods(), max_size=8),
    st.lists(pods(), max_size=8, unique_by=lambda each: each.key),
    st.sampled_from(("nothing", "cluster", "copy")),
)
def test_described_pods_are_those_that_are_applied(first: list[Pod], more: list[Pod], changed: str) -> None:
    """Also if the numbers in their rows do not count any more, as the cluster that they are put into has others."""
    cluster = Cluster(nodes())
    cluster.apply_pods(first)
    expected = cluster.copy()
    expected.apply_pods(more, removed=["ns/a"])
    before = meaning(cluster.snapshot())
    described = cluster.describe_pods(more)
    if changed == "cluster":
        renumber(cluster)
    for _ in range(2):  # into two copies, which share what was described
        copied = cluster.copy()
        if changed == "copy":
            renumber(copied)
        copied.apply_described(described, removed=["ns/a"])
        assert meaning(copied.snapshot()) == meaning(expected.snapshot())
        assert copied.keys("Pod") == expected.keys("Pod")
    assert meaning(cluster.snapshot()) == before


def renumber(cluster: Cluster) -> None:
    """Renumber classes and stamps, as ``tidy`` does after many pods."""
    store = cluster._contents.pods
    store._sweep()
    store.table.renew_stamps()


def test_keys_on_nodes_are_those_of_the_pods_there() -> None:
    placed = [pod(metadata={"name": f"p{i}", "namespace": "ns"}, spec={"nodeName": f"n{i % 3}"}) for i in range(9)]
    nominated = pod(metadata={"name": "q", "namespace": "ns"}, status={"nominatedNodeName": "n1"})
    cluster = Cluster([*placed, nominated])
    for names in (["n1"], ["n2", "n0"], ["n1", "n9"], []):
        assert cluster.keys_on(names) == [each.key for each in cluster.pods_on(names)]
    assert cluster.keys_on(["n1"]) == ["ns/p1", "ns/p4", "ns/p7"]


def left_out(snapshot: Snapshot) -> np.ndarray:
    """Positions of the placed pods whose names are in the first half of all."""
    return np.array([i for i, key in enumerate(snapshot.pods) if key[-1] < "d"], dtype=np.int64)


@settings(max_examples=examples(2 / 3))
@given(
    st.lists(pods(), max_size=8, unique_by=lambda each: each.key),
    st.lists(st.sampled_from(["n0", "n1"]), min_size=1, unique=True),
)
def test_a_snapshot_without_lost_nodes_is_that_of_the_changed_cluster(first: list[Pod], lost: list[str]) -> None:
    cluster = Cluster(nodes())
    cluster.apply_pods(first)
    base = cluster.snapshot(dra=True)
    before, removed = meaning(base), cluster.keys_on(lost)
    base.without_placed(left_out(base))  # what the result knows of this loss is what it would compute
    created = cluster.describe_pods([make_pending(cluster.pod(key)) for key in removed[::2]])
    rows = np.array([base.table.keys.index(key) for key in removed], dtype=np.int64)
    table, unused = base.table, created.records[:1]  # spare rows that are not used make no difference
    spare = table.with_spare_rows([*created.records, *unused], np.hstack([created.values, created.values[:, :1]]))
    fresh = np.arange(len(table), len(table) + len(created.records))
    states = created.values[COLUMN["state"]].astype(np.int8)
    after = without_lost_nodes(base, lost, spare.exchanging(rows, fresh, states))
    changed = cluster.copy()
    changed.apply_described(created, removed=removed)
    for name in lost:
        changed.remove("Node", name)
    expected = changed.snapshot(dra=True)
    assert meaning(after) == meaning(expected)
    assert (after.nodes, after.pods, after.pending) == (expected.nodes, expected.pods, expected.pending)
    assert after.placed_node.tolist() == expected.placed_node.tolist()
    fewer, expected_fewer = (each.without_placed(left_out(each)) for each in (after, expected))
    assert (fewer.nodes, fewer.pods, fewer.counts) == (expected_fewer.nodes, expected_fewer.pods, expected_fewer.counts)
    assert fewer.placed_node.tolist() == expected_fewer.placed_node.tolist()
    assert meaning(fewer) == meaning(expected_fewer)
    assert meaning(base) == before


def test_a_table_with_records_decodes_pods_once_for_all_tables_made_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    form = {"kind": "Pod", "apiVersion": "v1", "spec": {"containers": [container("1")]}}
    data = [{**form, "metadata": {"name": f"p{i}", "namespace": "ns"}} for i in range(4)]
    table = load(msgspec.json.encode({"kind": "List", "apiVersion": "v1", "items": data})).snapshot().table
    decoded = []
    decode = PodRecord._decode
    monkeypatch.setattr(PodRecord, "_decode", lambda record: decoded.append(record.key) or decode(record))
    rows, none = np.arange(4), np.zeros((len(POD_COLUMNS), 0), dtype=np.int64)
    stored = table.with_records(rows).with_spare_rows([], none)
    for removed in (rows[:0], rows[:1], rows[3:]):
        replaced = stored.exchanging(removed, rows[:0], np.zeros(0, dtype=np.int8))
        assert [replaced.record(row).pod.name for row in (1, 2)] == ["p1", "p2"]
    assert decoded == ["ns/p1", "ns/p2"]
    assert not table.records
