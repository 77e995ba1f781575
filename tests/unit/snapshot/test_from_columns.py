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
    found = kscale.from_columns(**NODES, pods=EXAMPLES, pod_class=POD_CLASS, pod_node=POD_NODE)
    assert (found.nodes, found.pods, found.pending, found.counts) == (
        expected.nodes, expected.pods, expected.pending, expected.counts,
    )  # fmt: skip
    for resource in NODES["resources"]:
        assert found.free(resource).tolist() == expected.free(resource).tolist()
    assert found.pod_count.tolist() == expected.pod_count.tolist()
    assert found.columns.slots.tolist() == expected.columns.slots.tolist()
    assert [r.priority for r in found.pending_records] == [r.priority for r in expected.pending_records]
    pod = found.pod("shop/web-0-12")
    assert (pod.name, pod.namespace, pod.metadata.uid) == ("web-0-12", "shop", "")
    assert np.array_equal(kscale.fit(found).ok, kscale.fit(expected).ok)
    results = [kscale.estimate(each, template=TEMPLATE) for each in (found, expected)]
    assert results[0].placement == results[1].placement
    assert results[0].groups == results[1].groups
    assert results[0].node_count > 0
    again = pickle.loads(pickle.dumps(found, protocol=5))
    assert kscale.estimate(again, template=TEMPLATE).placement == results[0].placement


def test_demand() -> None:
    nodes = {key: NODES[key] for key in ("resources", "node_names", "allocatable")}
    demand = [[500, 1 << 30, 0], [1000, 1 << 20, 1]]
    names = [f"x/{i}" for i in range(6)]
    snapshot = kscale.from_columns(
        **nodes, demand=demand, pod_class=[0, 0, 1, 0, 0, 1], pod_node=[0, 0, 2, -1, -1, -1], pod_names=names
    )
    assert snapshot.pending == names[3:]
    assert snapshot.free("cpu").tolist() == [3000, 4000, 3000, 4000]
    assert snapshot.free("example.com/gpu").tolist() == [0, 0, 0, 1]
    assert kscale.estimate(snapshot, template=TEMPLATE).groups == [["x/3", "x/4"], ["x/5"]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pod_node": [4]}, "pod_node is not between"),
        ({"pod_class": [2]}, "pod_class is not between"),
        ({"pod_class": [0.5]}, "not a column of integers"),
        ({"pod_class": [0, 0]}, "differ in length"),
        ({"slots": [1]}, "slots has not one entry"),
        ({"labels": {"zone": ["a"]}}, "has not one entry"),
        ({"node_names": ["a", "a", "b", "c"]}, "occur twice"),
        ({"allocatable": [[1]]}, "allocatable is not a matrix"),
        ({"resources": ["cpu", "memory", "pods"]}, "slots"),
        ({"pods": EXAMPLES}, "either pods or demand"),
        ({"demand": None, "pods": [{"spec": {"nodeName": "n"}}]}, "has a node"),
        ({"demand": None, "pods": [{"spec": {"volumes": [{"ephemeral": {}}]}}]}, "ephemeral"),
    ],
)
def test_refused(change: dict[str, Any], message: str) -> None:
    given = {**NODES, "demand": [[1, 1, 0]], "pod_class": [0], "pod_node": [-1], **change}
    with pytest.raises(kscale.InputError, match=message):
        kscale.from_columns(**given)
