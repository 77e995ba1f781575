"""kscale.from_columns gives the snapshot that the same objects give."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import kscale
from kscale.snapshot.cluster import Cluster

EXAMPLES: list[dict[str, Any]] = [
    {
        "metadata": {
            "name": f"web-{i}",
            "namespace": "shop",
            "labels": {"app": f"web-{i}"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": f"web-{i}", "uid": f"u{i}", "controller": True}],
        },
        "spec": {
            "priority": i,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": f"{300 * (i + 1)}m", "memory": "1Gi"}}}],
            "tolerations": [{"key": "gpu", "operator": "Exists"}] if i else [],
        },
    }
    for i in range(3)
]
TEMPLATE = {"metadata": {"name": "t"}, "status": {"allocatable": {"cpu": "2", "memory": "8Gi", "pods": "10"}}}
POD_CLASS = np.arange(40, dtype=np.int32) % 3
POD_NODE = np.where(np.arange(40) < 12, np.arange(40) % 4, -1).astype(np.int32)
NODES: dict[str, Any] = {
    "resources": ["cpu", "memory", "example.com/gpu"],
    "node_names": [f"n{i}" for i in range(4)],
    "allocatable": np.array([[4000] * 4, [16 << 30] * 4, [0, 0, 1, 1]]),
    "slots": [10, 10, 10, 5],
    "labels": {"zone": ["a", "b", None, "a"]},
    "taints": [[], [], [{"key": "gpu", "effect": "NoSchedule"}], []],
    "unschedulable": [False, True, False, False],
}


def same_objects() -> Cluster:
    cluster = Cluster()
    for i in range(4):
        zone = NODES["labels"]["zone"][i]
        labels = {"kubernetes.io/hostname": f"n{i}", **({"zone": zone} if zone else {})}
        amounts = {"cpu": "4", "memory": "16Gi", "example.com/gpu": str(i // 2), "pods": str(NODES["slots"][i])}
        spec = {"taints": NODES["taints"][i], "unschedulable": NODES["unschedulable"][i]}
        status = {"allocatable": amounts}
        cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{i}", "labels": labels},
                       "spec": spec, "status": status})  # fmt: skip
    for i in range(40):
        example = EXAMPLES[POD_CLASS[i]]
        metadata = {**example["metadata"], "name": f"{example['metadata']['name']}-{i}"}
        node = f"n{POD_NODE[i]}" if POD_NODE[i] >= 0 else ""
        spec = {**example["spec"], "nodeName": node}
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return cluster


def test_same_as_from_objects() -> None:
    expected = same_objects().snapshot()
    result = kscale.from_columns(**NODES, pods=EXAMPLES, pod_class=POD_CLASS, pod_node=POD_NODE)
    assert (result.nodes, result.pods, result.pending, result.counts) == (
        expected.nodes, expected.pods, expected.pending, expected.counts,
    )  # fmt: skip
    for resource in NODES["resources"]:
        assert result.free(resource).tolist() == expected.free(resource).tolist()
    assert result.pod_count.tolist() == expected.pod_count.tolist()
    assert result.columns.slots.tolist() == expected.columns.slots.tolist()
    assert [r.priority for r in result.pending_records] == [r.priority for r in expected.pending_records]
    pod = result.pod("shop/web-0-12")
    assert (pod.name, pod.namespace, pod.metadata.uid) == ("web-0-12", "shop", "")
    assert np.array_equal(kscale.fit(result).ok, kscale.fit(expected).ok)
    results = [kscale.estimate(each, template=TEMPLATE) for each in (result, expected)]
    assert results[0].placed == results[1].placed
    assert results[0].pod_groups == results[1].pod_groups
    assert results[0].node_count > 0
    again = pickle.loads(pickle.dumps(result, protocol=5))
    assert kscale.estimate(again, template=TEMPLATE).placed == results[0].placed


def test_demand() -> None:
    nodes = {key: NODES[key] for key in ("resources", "node_names", "allocatable")}
    demand = [[500, 1 << 30, 0], [1000, 1 << 20, 1]]
    names = [f"x/{i}" for i in range(6)]
    snapshot = kscale.from_columns(
        **nodes, demand=demand, pod_class=[0, 0, 1, 0, 0, 1], pod_node=[0, 0, 2, -1, -1, -1], pod_names=names
    )
    assert snapshot.pending == tuple(names[3:])
    assert snapshot.free("cpu").tolist() == [3000, 4000, 3000, 4000]
    assert snapshot.free("example.com/gpu").tolist() == [0, 0, 0, 1]
    assert kscale.estimate(snapshot, template=TEMPLATE).pod_groups == [["x/3", "x/4"], ["x/5"]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pod_node": [4]}, r"pod_node\[0\] is 4"),
        ({"pod_class": [2]}, r"pod_class\[0\] is 2"),
        ({"pod_class": [0.5]}, "not a column of integers"),
        ({"pod_class": [0, 0]}, "differ in length"),
        ({"slots": [1]}, "slots does not have one entry"),
        ({"labels": {"zone": ["a"]}}, "does not have one entry"),
        ({"node_names": ["a", "a", "b", "c"]}, "again"),
        ({"allocatable": [[1]]}, "allocatable is not a matrix"),
        ({"resources": ["cpu", "memory", "pods"]}, "slots"),
        ({"pods": EXAMPLES}, "either pods or demand"),
        ({"demand": None, "pods": [{"spec": {"nodeName": "n"}}]}, "has a node"),
        ({"demand": None, "pods": [{"spec": {"volumes": [{"ephemeral": {}}]}}]}, "ephemeral"),
    ],
)
def test_refused(change: dict[str, Any], message: str) -> None:
    arguments = {**NODES, "demand": [[1, 1, 0]], "pod_class": [0], "pod_node": [-1], **change}
    with pytest.raises(kscale.InputError, match=message):
        kscale.from_columns(**arguments)


TWO: dict[str, Any] = {
    "resources": ["cpu", "memory"],
    "node_names": ["a", "b"],
    "allocatable": np.array([[4000, 4000], [1 << 33, 1 << 33]]),
    "demand": np.array([[100, 1 << 20], [200, 1 << 20]]),
    "pod_class": np.array([0, 1, 1]),
    "pod_node": np.array([-1, 0, -1]),
}
DAMAGED: list[tuple[dict[str, Any], str]] = [
    (
        {"allocatable": np.array([[2**63 + 5, 1], [1, 1]], np.uint64)},
        r"allocatable\[0, 0\] is 9223372036854775813, not",
    ),
    ({"allocatable": np.array([[1, 1], [1, -4]])}, r"allocatable\[1, 1\] is -4, not between 0 and"),
    ({"allocatable": np.array([[10**30, 1], [1, 1]], object)}, "allocatable is not a matrix, 2 x 2, of integers"),
    ({"allocatable": [[1, 1], [1]]}, "allocatable is not a matrix"),
    ({"demand": np.array([[100, 1], [-200, 1]])}, r"demand\[1, 0\] is -200"),
    ({"demand": np.array([[100, 2**64 - 1], [200, 1]], np.uint64)}, r"demand\[0, 1\] is 18446744073709551615"),
    ({"demand": 3}, "demand is not a matrix, 0 x 2, of integers"),
    ({"slots": [3, -1]}, r"slots\[1\] is -1"),
    ({"slots": np.array([2**63, 1], np.uint64)}, r"slots\[0\] is 9223372036854775808"),
    ({"pod_node": np.array([2**64 - 1, 0, 0], np.uint64)}, r"pod_node\[0\] is 18446744073709551615"),
    ({"pod_node": [0, 0, -2]}, r"pod_node\[2\] is -2, not between -1"),
    ({"pod_node": [0, 2, 0]}, r"pod_node\[1\] is 2, not between -1 and 1"),
    ({"pod_class": [0, -1, 0]}, r"pod_class\[1\] is -1, not between 0"),
    ({"pod_class": [0, 0, 2]}, r"pod_class\[2\] is 2, not between 0 and 1"),
    (
        {"demand": np.array([[2**62, 1]] * 2), "pod_class": [0, 1, 1], "pod_node": [1, 1, 0]},
        r"pod_node: the pods on node 1 \('b'\) take 9223372036854775808 of cpu, more than 9223372036854775807",
    ),
    ({"pod_names": ["d/a", "d/b", "d/a"]}, r"pod_names\[2\] is 'd/a' again"),
    ({"pod_names": ["d/a", "b", "d/c"]}, r"pod_names\[1\] is 'b', not namespace/name"),
    ({"pod_names": ["d/a", "d/b/c", "d/c"]}, r"pod_names\[1\] is 'd/b/c', not namespace/name"),
    ({"pod_names": ["d/a", 2, "d/c"]}, r"pod_names\[1\] is 2, not a string"),
    ({"node_names": ["a", "a"]}, r"node_names\[1\] is 'a' again"),
    ({"node_names": ["a", 2]}, r"node_names\[1\] is 2, not a string"),
    ({"node_names": ["", "b"]}, r"node_names\[0\] is '', not a string"),
    ({"node_names": "ab"}, "node_names is 'ab', not a list of strings"),
    ({"resources": ["cpu", 1]}, r"resources\[1\] is 1, not a string"),
    ({"resources": ["cpu", "cpu"]}, r"resources\[1\] is 'cpu' again"),
    ({"resources": ["cpu", "pods"]}, r"resources\[1\] is 'pods': use slots"),
    ({"labels": {"zone": ["a", 3]}}, r"labels\['zone'\]\[1\] is 3, not a string"),
    ({"labels": {"zone": ["a"]}}, r"labels\['zone'\] does not have one entry per node"),
    ({"taints": [[], [3]]}, r"taints\[1\]\[0\] is 3, not a taint"),
    ({"taints": [[], [{"key": 1}]]}, r"taints\[1\]\[0\]"),
    ({"unschedulable": [2, 0]}, r"unschedulable\[0\] is 2, not between 0 and 1"),
    ({"unschedulable": ["", "x"]}, "unschedulable is not a column of truth values"),
    ({"demand": None, "pods": [{}, 3]}, r"pods\[1\] is 3, not a Pod or a mapping"),
]


@pytest.mark.parametrize(("changed", "message"), DAMAGED, ids=[message for _, message in DAMAGED])
def test_damaged_columns_are_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(kscale.InputError, match=message):
        kscale.from_columns(**{**TWO, **changed})


def test_sums_up_to_the_end_of_int64() -> None:
    amounts = np.array([[2**62, 1], [2**62 - 1, 1]])
    snapshot = kscale.from_columns(**{**TWO, "demand": amounts, "pod_class": [0, 1], "pod_node": [1, 1]})
    assert snapshot.used["cpu"].tolist() == [0, 2**63 - 1]


def test_unsigned_columns_that_fit() -> None:
    columns = {name: TWO[name].astype(np.uint64) for name in ("allocatable", "demand", "pod_class")}
    assert kscale.from_columns(**{**TWO, **columns}).free("cpu").tolist() == [3800, 4000]
