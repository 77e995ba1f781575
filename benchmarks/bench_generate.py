"""How fast a generated cluster is made and written: what every large benchmark waits for first."""

from __future__ import annotations

import io

import pytest

from kscale.capacity.generate import generate

NODES, PODS = 500, 10_000


@pytest.mark.parametrize("lean", [True, False], ids=["lean", "full"])
def test_write(benchmark, lean: bool) -> None:
    """10,000 pods on 500 nodes, with everything around them, to memory: below a second."""

    def run() -> int:
        cluster = generate(NODES, PODS, seed=1, lean=lean)
        file = io.BytesIO()
        size = cluster.write(file)
        assert cluster.counts["running"] + cluster.counts["pending"] == PODS
        return size

    size = benchmark(run)
    print(f"\n{PODS:,} pods, {size / 1e6:.1f} MB")
    assert size > PODS * (1_400 if lean else 5_000)
