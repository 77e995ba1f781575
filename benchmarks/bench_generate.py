"""How fast a generated cluster is made and written, what every large benchmark waits for first, and in what memory.

``KSCALE_BENCH_SCALE`` (default 0.1) scales the one whose memory is measured: 450,000 pods on 15,000 nodes.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from kscale.capacity.generate import generate

NODES, PODS = 500, 10_000
SCALE = float(os.environ.get("KSCALE_BENCH_SCALE", "0.1"))


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


WRITING = """
import re, sys
from kscale.capacity.generate import generate
with open("/dev/null", "wb") as file:
    generate(int(sys.argv[1]), int(sys.argv[2])).write(file)
# not ru_maxrss: that of a child begins with what its parent had
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""


def test_memory_of_writing(benchmark) -> None:
    """A process of its own that writes a large cluster: at most 100 MiB resident, whatever the size."""
    sizes = [str(round(SCALE * 15_000)), str(round(SCALE * 450_000))]

    def run() -> int:
        done = subprocess.run([sys.executable, "-c", WRITING, *sizes], capture_output=True, text=True, check=True)
        return int(done.stdout.splitlines()[-1]) * 1024

    most = benchmark.pedantic(run, rounds=1)
    print(f"\n{sizes[1]} pods, at most {most / 2**20:.0f} MiB resident")
    assert most <= 100 << 20
