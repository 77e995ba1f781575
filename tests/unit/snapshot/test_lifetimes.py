"""What no pod uses any more goes: a cluster under a watch holds what exists now, not what ever existed."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest

from examples import is_nightly
from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict
from kscale.snapshot.cluster import Cluster

ALIVE, COMING, AT_ONCE = 60, 4000 if is_nightly() else 2000, 200


def job_pod(number: int) -> dict[str, Any]:
    """A pod with labels, a controller, a request and a node of its own."""
    return {
        "metadata": {
            "labels": {"job": f"j{number}"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": f"j{number}", "uid": f"o{number}",
                                 "controller": True}],
        },
        "spec": {"nodeName": f"n{number // 4}",
                 "containers": [{"name": "c", "resources": {"requests": {"cpu": f"{number % 997}m"}}}]},
    }  # fmt: skip


def daemon_pod(number: int) -> dict[str, Any]:
    """A pod of one DaemonSet: only its affinity says on which of many nodes it is to be."""
    names = [{"key": "metadata.name", "operator": "In", "values": [f"n{number}"]}]
    required = {"nodeSelectorTerms": [{"matchFields": names}]}
    return {
        "metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d",
                                          "controller": True}]},
        "spec": {"nodeName": f"n{number}", "containers": [{"name": "c"}],
                 "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}},
    }  # fmt: skip


def odd_pod(number: int) -> dict[str, Any]:
    """A pod that is read the slow way: with claims its name is part of its class."""
    return {"spec": {"containers": [{"name": "c"}], "resourceClaims": [{"name": "r", "resourceClaimName": "r"}]},
            "metadata": {"labels": {"n": f"{number}"}}}  # fmt: skip


def line(type_: str, obj: dict[str, Any], number: int) -> str:
    metadata = {"name": f"p{number}", "namespace": "a", "uid": f"u{number}", "resourceVersion": str(number + 1)}
    item = {"kind": "Pod", "apiVersion": "v1", **obj, "metadata": {**obj["metadata"], **metadata}}
    return json.dumps({"type": type_, "object": item})


@pytest.mark.parametrize("texts", ["all", "pending"])
@pytest.mark.parametrize("make", [job_pod, daemon_pod, odd_pod])
def test_pods_that_come_and_go_leave_nothing(make: Any, texts: Any) -> None:
    coming = min(COMING, 2000) if make is odd_pod else COMING
    cluster = Cluster(texts=texts)
    snapshots = []
    for first in range(0, coming, AT_ONCE):
        lines = [line("ADDED", make(number), number) for number in range(first, first + AT_ONCE)]
        lines += [line("DELETED", make(number), number) for number in range(first - ALIVE, first + AT_ONCE - ALIVE)
                  if number >= 0]  # fmt: skip
        assert not cluster.watched("\n".join([*lines, ""]).encode()).problems
        if first % 1000 == 0:
            snapshots.append((cluster.snapshot(), first + AT_ONCE))
    assert cluster.keys("Pod") == [f"a/p{number}" for number in range(coming - ALIVE, coming)]
    pods, interner = cluster._contents.pods, cluster.interner
    known = pods.reader.classes
    most = 1300
    for what in (pods.table, pods.table.nodes, interner.classes, interner.identities, interner.shapes,
                 interner.controllers, interner._base_of_frame, known):  # fmt: skip
        assert len(what) < most
    assert pods.table.memo.stamps < most
    assert known.size < most
    assert pods.table.texts.size < 3 << 20
    for snapshot, until in snapshots:  # what was handed out is as it was
        expected = [f"a/p{number}" for number in range(until - ALIVE, until)]
        assert [
            *snapshot.pending,
            *(row.key for row in snapshot.pod_index.pods.records() if row.pod.spec.node_name),
        ] == (expected)
        if make is job_pod:
            selected = snapshot.pod_index.select("a", f"job=j{until - 1}").keys
            assert selected == [f"a/p{until - 1}"]


def test_one_pod_leaves_the_text_of_its_neighbours() -> None:
    """What one batch brought goes with most of its pods, though a few stay."""
    cluster = Cluster()
    created = {**job_pod(1), "status": {"message": "x" * 10_000}}
    for first in range(0, 4000, 100):
        lines = [line("ADDED", created, number) for number in range(first, first + 100)]
        lines += [line("DELETED", created, number) for number in range(first, first + 100) if number % 100]
        assert not cluster.watched("\n".join([*lines, ""]).encode()).problems
    assert len(cluster.keys("Pod")) == 40
    assert cluster._contents.pods.table.texts.size < 4 << 20
    assert {cluster.pod(f"a/p{first}").metadata.uid for first in range(0, 4000, 100)} == {
        f"u{first}" for first in range(0, 4000, 100)
    }


@pytest.mark.usefixtures("own_collector")
def test_distinct_pods_add_no_objects_to_the_garbage_collector() -> None:
    """It walks all that it tracks, again and again: with thousands of classes that would be most of what they cost."""
    cluster = Cluster()
    spec = {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}]}
    pods = [
        from_dict(
            {
                "metadata": {"name": "p", "namespace": "a", "labels": {"n": f"{n}"}},
                "spec": {**spec, "containers": [{"name": "c", "resources": {"requests": {"cpu": f"{n}m"}}}]},
            },
            Pod,
        )
        for n in range(1, 1001)
    ]
    gc.collect()
    before = len(gc.get_objects())
    classes = {cluster.interner.classify(pod, placed=False).index for pod in pods}
    assert len(classes) == 1000
    for _ in range(3):  # each time it lets go of tuples that hold nothing but what it let go of before
        gc.collect()
    assert len(gc.get_objects()) - before < 200
