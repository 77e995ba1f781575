"""A pickled snapshot has what decisions read, and no more."""

from __future__ import annotations

import json
import pickle
from typing import Any

import kscale
from kscale.snapshot.snapshot import Snapshot


def pod(name: str, node: str = "", **status: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i" * 2000, "resources": {"requests": {"cpu": "500m"}}}]}
    return {
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "a", "uid": f"u-{name}", "labels": {"app": name[:1]},
                     "resourceVersion": "7"},
        "spec": spec | ({"nodeName": node} if node else {}), "status": status,
    }  # fmt: skip


def snapshot() -> Snapshot:
    nodes = [{"kind": "Node", "apiVersion": "v1", "metadata": {"name": name},
              "status": {"allocatable": {"cpu": "8", "pods": "20"}}} for name in ("n", "m")]  # fmt: skip
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    pods = [pod(f"p{i}", "nm"[i % 2], phase="Running", startTime="2026-01-01T00:00:00Z", conditions=ready)
            for i in range(20)]  # fmt: skip
    pods += [pod("w1"), pod("w2"), pod("nominated", nominatedNodeName="n"), pod("done", "n", phase="Succeeded")]
    return kscale.load(json.dumps({"kind": "List", "apiVersion": "v1", "items": [*nodes, *pods]}).encode()).snapshot()


def test_unpickled_snapshot_decides_the_same_and_is_small() -> None:
    there = snapshot()
    expected = kscale.fit(there).ok.tolist(), kscale.place(there).placed
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(there, protocol=5, buffer_callback=buffers.append)
    apart = sum(len(buffer.raw()) for buffer in buffers)
    assert len(head) < 12_000
    assert apart < 20_000  # three texts and the columns
    for back in (pickle.loads(head, buffers=buffers), pickle.loads(pickle.dumps(there))):
        assert (back.nodes, back.pods, back.pending, back.counts) == (
            there.nodes, there.pods, there.pending, there.counts
        )  # fmt: skip
        assert (kscale.fit(back).ok.tolist(), kscale.place(back).placed) == expected
        for name in ("a/w1", "a/w2", "a/nominated"):
            assert back.record(name).data() == there.record(name).data()
        for name in there.pods:
            ours, theirs = back.pod(name), there.pod(name)
            assert ours.metadata == theirs.metadata
            assert ours.spec.node_name == theirs.spec.node_name
            assert ours.status == theirs.status
            assert ours.spec.containers[0].resources == theirs.spec.containers[0].resources
        assert kscale.place(pickle.loads(pickle.dumps(back))).placed == expected[1]


def test_placed_pods_without_uid() -> None:
    """Neither their text nor a UID is copied."""
    pods = [pod(f"p{i}", "n" if i % 2 else "") for i in range(20)]
    for each in pods:
        del each["metadata"]["uid"]
    cluster = kscale.load(json.dumps({"kind": "List", "apiVersion": "v1", "items": pods}).encode())
    there = cluster.snapshot()
    copy: Snapshot = pickle.loads(pickle.dumps(there, protocol=5))
    assert (copy.pods, copy.pending) == (there.pods, there.pending)
    assert [record.data() for record in copy.pending_records] == [record.data() for record in there.pending_records]
    assert list(pickle.loads(pickle.dumps(cluster, protocol=5)).pods()) == list(cluster.pods())
