"""Every pair of nodes lost: those whose pods do not meet need no simulation, the others are played through."""

from __future__ import annotations

import kscale
from kscale.capacity.generate import generate
from kscale.capacity.losses import losses, pair_losses


def test_all_pairs_of_1000_nodes(benchmark) -> None:
    """Half of the pods of 1,000 nodes, so that most nodes may be lost alone."""
    items = list(generate(1_000, 30_000, pending=0).objects())
    pods = [item for item in items if item["kind"] == "Pod"]
    removed = {id(item) for item in pods[::2]}
    snapshot = kscale.load([item for item in items if id(item) not in removed]).snapshot(dra=True)
    result = benchmark.pedantic(lambda: pair_losses(snapshot), rounds=1)
    alone = len(result.alone)
    print(f"\n{result.pairs:,} pairs, {result.simulated:,} simulated, {result.homeless:,} homeless, {alone} alone")
    assert result.pairs == (1_000 - alone) * (999 - alone) // 2
    names = [loss.name.split(" and ") for loss in result.worst]
    index = snapshot.columns.index
    again = losses(snapshot, [(" and ".join(pair), [index[name] for name in pair]) for pair in names])
    assert again == result.worst
