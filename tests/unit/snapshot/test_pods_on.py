"""The pods of some nodes, without a look at those of others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kscale.snapshot.cluster import Cluster, load
from kscale.snapshot.pods.record import PodRecord


def pod(name: str, node: str = "", phase: str = "Running", nominated: str = "") -> dict[str, Any]:
    status = {"phase": phase} | ({"nominatedNodeName": nominated} if nominated else {})
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"nodeName": node, "containers": [{"name": "c"}]}, "status": status,
    }  # fmt: skip


PODS = [
    pod("on-b", "b"),
    pod("on-a", "a"),
    pod("waits", phase="Pending"),
    pod("nominated", phase="Pending", nominated="a"),
    pod("elsewhere", "c"),
    pod("ended", "a", phase="Succeeded"),
    pod("of-no-node", "gone"),
]


def of_text() -> Cluster:
    return load(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": PODS}))


def of_dicts() -> Cluster:
    return load(PODS)


@pytest.mark.parametrize("cluster", [of_text(), of_dicts()], ids=["text", "dicts"])
@pytest.mark.parametrize("nodes", [{"a", "b"}, {"a"}, {"gone", "unknown"}, {"unknown"}, set()])
def test_pods_on_equals_a_scan_of_all_pods(cluster: Cluster, nodes: set[str]) -> None:
    there = [each for each in cluster.pods() if each.spec.node_name in nodes]
    assert list(cluster.pods_on(nodes)) == there
    cluster = cluster.copy()
    for each in there[:1]:
        cluster.remove(each)
    assert list(cluster.pods_on(nodes)) == there[1:]


def test_pods_of_other_nodes_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    decode = PodRecord._decode

    def decoded(record: PodRecord) -> Any:
        read.append(record.key)
        return decode(record)

    monkeypatch.setattr(PodRecord, "_decode", decoded)
    assert [each.name for each in of_text().pods_on(["b"])] == ["on-b"]
    assert read == ["shop/on-b"]
