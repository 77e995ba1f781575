"""A whole loop of the Cluster Autoscaler, again and again over one cluster of which little changes.

A generated cluster with claims, spread and affinity. ``cold``: the first loop; the others come when loops find nothing
new any more. ``changed``: 1 % of the nodes and pods are others since the last; ``same``: nothing is. The snapshot is
part of the times. ``parts``: only scale-up, only
scale-down, of a cluster in which nothing is new (builds without ``ca.run_once`` have these, too).
``KSCALE_BENCH_SCALE`` (default 1) multiplies the cluster.
"""

from __future__ import annotations

import os
import random
from functools import cache
from io import BytesIO
from typing import Any

import msgspec
import pytest

import kscale
from kscale import ca
from kscale.capacity.generate import generate
from kscale.objects.nodegroup import NodeGroup

SCALE = float(os.environ.get("KSCALE_BENCH_SCALE", "1"))
SECOND = 10**9
START = 1_800_000_000 * SECOND


@cache
def cluster(nodes: int) -> tuple[kscale.Cluster, list[NodeGroup]]:
    """``nodes`` of many kinds with 30 pods each, and a group for every hundred of them."""
    count = max(20, round(nodes * SCALE))
    with BytesIO() as file:
        generate(count, 30 * count, pending=0, seed=3, lean=True).write(file)
        created = kscale.load(file.getvalue())
    names = [node.metadata.name for node in created.nodes()]
    every = max(1, count // 100)
    return created, [NodeGroup(id=f"g{i}", max_size=1000, nodes=names[i::every]) for i in range(every)]


def change(cluster: kscale.Cluster, seed: int) -> None:
    """One percent of the nodes say something new, one percent of the pods are replaced by their like."""
    draw = random.Random(seed)
    nodes, keys = [*cluster.nodes()], cluster.keys("Pod")
    for node in draw.sample(nodes, max(1, len(nodes) // 100)):
        cluster.apply(msgspec.structs.replace(node))
    for key in draw.sample(keys, len(keys) // 100):
        pod = cluster.pod(key)
        if pod.spec.node_name:
            meta = msgspec.structs.replace(pod.metadata, name=f"{pod.metadata.name}-{seed}", uid=f"{key}-{seed}")
            cluster.remove("Pod", key)
            cluster.apply(msgspec.structs.replace(pod, metadata=meta))


class Loops:
    """One loop after the other, ten seconds apart."""

    def __init__(self, cluster: kscale.Cluster, groups: list[NodeGroup]) -> None:
        self.cluster, self.groups = cluster, groups
        self.now = START
        self.state: ca.LoopState | None = None

    def __call__(self) -> Any:
        self.now += 10 * SECOND
        report = ca.run_once(self.cluster, self.groups, now=self.now, state=self.state)
        self.state = report.state
        return report

    def at_rest(self) -> Any:
        """The first loop that finds what the one before it found: there is a limit to how many more nodes than before a
        loop finds unneeded, and those come first among its candidates."""
        before = self().scale_down
        for _ in self.cluster.nodes():
            result = self().scale_down
            if (result.candidates, result.unneeded_since) == (before.candidates, before.unneeded_since):
                return result
            before = result
        raise AssertionError("as many loops as nodes, and the last still finds what the one before it did not")


@pytest.mark.parametrize("since", ["cold", "changed", "same"])
def test_loops(benchmark: Any, since: str) -> None:
    """5,000 nodes, 150,000 pods. Targets: 150 ms with 1 % changed, 30 ms with nothing."""
    created, groups = cluster(5_000)
    loops = Loops(created, groups)
    seeds = iter(range(1, 100))
    want = None if since == "cold" else loops.at_rest()

    def before() -> None:
        if since == "changed":
            change(created, next(seeds))

    result = benchmark.pedantic(loops, setup=before, rounds=1 if since == "cold" else 3)
    assert result.error is None
    assert result.scale_up.result == "ScaleUpNotNeeded"
    assert len(result.scale_down.candidates) == len(created.snapshot().nodes)
    if since == "same":
        assert result.scale_down.candidates == want.candidates
        assert result.scale_down.unneeded_since == want.unneeded_since


@pytest.mark.parametrize("part", ["scale_up", "scale_down"])
def test_parts(benchmark: Any, part: str) -> None:
    """1,000 nodes, 30,000 pods, nothing new. Targets: 5 ms for scale-up, 10 ms for scale-down."""
    created, groups = cluster(1_000)
    snapshot = created.snapshot()
    state = getattr(kscale, part)(snapshot, groups, now=START).state
    moments = iter(range(START + SECOND, START + 1000 * SECOND, SECOND))

    def act() -> Any:
        return getattr(kscale, part)(created.snapshot(), groups, now=next(moments), state=state)

    result = benchmark.pedantic(act, rounds=5, warmup_rounds=1)
    assert result.result in ("ScaleUpNotNeeded", "ScaleDownNoNodeDeleted")
