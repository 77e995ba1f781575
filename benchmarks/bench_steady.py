"""What predicates cost from loop to loop: snapshots of one cluster of which little changes.

A generated cluster with claims, spread and affinity. ``cold``: the first snapshot's answers; ``changed``: 1 % of the
nodes and pods are others since the last; ``same``: nothing is. In the times: the snapshot, and placing its pending pods
(the public function), or only the session that scale-down begins with: all running pods, ready to move.
``KSCALE_BENCH_SCALE`` (default 1) multiplies the cluster.
"""

from __future__ import annotations

import os
import random
from functools import cache
from io import BytesIO

import msgspec
import pytest

import kscale
from kscale.capacity.generate import generate
from kscale.scheduling.session import Session

SCALE = float(os.environ.get("KSCALE_BENCH_SCALE", "1"))
NODES, PODS, PENDING = (max(20, round(count * SCALE)) for count in (5_000, 151_000, 1_000))


@cache
def cluster() -> kscale.Cluster:
    with BytesIO() as file:
        generate(NODES, PODS, pending=PENDING, seed=3, lean=True).write(file)
        return kscale.load(file.getvalue())


def change(cluster: kscale.Cluster, seed: int) -> None:
    """One percent of the nodes say something new, one percent of the pods are replaced by their like."""
    draw = random.Random(seed)
    for node in draw.sample([*cluster.nodes()], NODES // 100):
        cluster.apply(msgspec.structs.replace(node))
    keys = cluster.keys("Pod")
    for key in draw.sample(keys, len(keys) // 100):
        pod = cluster.pod(key)
        if pod.spec.node_name:
            meta = msgspec.structs.replace(pod.metadata, name=f"{pod.metadata.name}-{seed}", uid=f"{key}-{seed}")
            cluster.remove("Pod", key)
            cluster.apply(msgspec.structs.replace(pod, metadata=meta))


def session(cluster: kscale.Cluster) -> int:
    snapshot = cluster.snapshot()
    return Session(snapshot, snapshot.placed_classes, moving=True).checked_count


def place(cluster: kscale.Cluster) -> int:
    return len(kscale.place(cluster.snapshot()).placed)


@pytest.mark.parametrize("act", [session, place])
@pytest.mark.parametrize("since", ["cold", "changed", "same"])
def test_steady(benchmark, act, since: str) -> None:
    seeds = iter(range(1, 100))
    want = act(cluster())
    act(kscale.Cluster([]))  # what is imported at first use

    def before() -> tuple[tuple[kscale.Cluster], dict[str, object]]:
        created = cluster()
        if since == "cold":
            created = kscale.Cluster(created)
        elif since == "changed":
            change(created, next(seeds))
        return (created,), {}

    result = benchmark.pedantic(act, setup=before, rounds=1 if since == "cold" else 5)
    assert result > 0
    assert since == "changed" or result == want
