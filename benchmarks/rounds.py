"""Cold and warm, told apart: what a round of a benchmark may know of the one before."""

from __future__ import annotations

import gc
import pickle
from itertools import count
from typing import Any

import pytest

import kscale

__all__ = ["WHEN", "timed"]

WHEN = pytest.mark.parametrize("when", ["warm", "first", "cold"])


def timed(benchmark: Any, decide: Any, *, when: str, cluster: kscale.Cluster) -> Any:
    """Runs ``decide(snapshot)``: ``warm``, again on one snapshot; ``first``, each time on a new one of one cluster, as
    the loops of an autoscaler do; ``cold``, once for pods that nobody has looked at, as a single command does."""
    if when == "cold":
        cluster = pickle.loads(pickle.dumps(cluster))  # without what was found out about its pods
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}}
        decide(kscale.Cluster([node]).snapshot())  # what is imported and compiled once
        snapshot = cluster.snapshot()
        gc.collect()
        return benchmark.pedantic(decide, (snapshot,), rounds=1)
    decide(cluster.snapshot())
    gc.collect()  # what was made to set this up is not looked through on the clock
    if when == "first":
        names = count()

        def new() -> tuple[tuple[kscale.Snapshot], dict[str, Any]]:
            cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"other-{next(names)}"}})
            return (cluster.snapshot(),), {}  # of a cluster in which nothing changed it would be the same one

        return benchmark.pedantic(decide, setup=new, rounds=5)
    return benchmark.pedantic(decide, (cluster.snapshot(),), rounds=7, warmup_rounds=1)
