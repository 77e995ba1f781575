"""From a dump, or from columns, to a snapshot and an estimate.

One process, warm file cache; the answers are asserted. ``KSCALE_BENCH_SCALE`` (default 0.1) scales the cluster of
450,000 pods on 15,000 nodes; at 1 the targets are 6 s from a file to the answer on
the terminal, 1.5 s from columns to a snapshot,
50 ms for 20 estimates of 10,000 pending pods. 10,000 pods of 6 KB: at most 0.2 s and twice a bare decode of the same
bytes, and 50 MiB beside them; from columns: 1 GiB beside the columns. Memory is the peak of what Python and NumPy
allocate (tracemalloc), taken in a run of its own that is not timed. The floor that each prints is the bytes it has to
touch over the bandwidth of a copy measured in the same run.
"""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from floor import floor

import kscale
from kscale.capacity.estimate import estimate_groups
from kscale.capacity.generate import generate
from kscale.capacity.group_templates import with_templates
from kscale.capacity.groups import recognise_groups
from kscale.objects.api.core import Node, Pod
from kscale.snapshot.cluster import Cluster, load
from kscale.snapshot.loading import load_objects
from kscale.snapshot.snapshot import Snapshot

SCALE = float(os.environ.get("KSCALE_BENCH_SCALE", "0.1"))
NODES, PODS, PENDING = (max(20, round(SCALE * n)) for n in (15_000, 450_000, 10_000))


@pytest.fixture(scope="module")
def full() -> bytes:
    """10,000 pods as an API server writes them, and nothing else but their nodes."""
    file = io.BytesIO()
    generate(400, 10_000, seed=1, pending=1000).write(file)
    return file.getvalue()


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ingest") / "dump.json"
    with path.open("wb") as file:
        generate(NODES, PODS, seed=1, pending=PENDING, lean=True).write(file)
    return path


def slowly(data: bytes) -> Snapshot:
    cluster = Cluster()
    for obj, raw in load_objects(data):
        cluster.apply_decoded(obj, raw)
    return cluster.snapshot()


def same(one: Snapshot, right: Snapshot) -> bool:
    return (
        (one.nodes, one.pods, one.pending, one.counts) == (right.nodes, right.pods, right.pending, right.counts)
        and all(np.array_equal(one.free(name), right.free(name)) for name in one.columns.allocatable)
        and np.array_equal(one.placed_node, right.placed_node)
    )


def peak(benchmark: Any, build: Callable[[], Any], limit: int) -> None:
    """Print and record the most memory that a call takes beside what was there, in MiB."""
    tracemalloc.start()
    build()
    peak_mib = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    benchmark.extra_info["peak_mib"] = peak_mib
    print(f"\npeak {peak_mib:.1f} MiB (target: {limit} MiB)")
    assert peak_mib <= limit


def test_bare_decode_of_10000_pods(benchmark: Any, full: bytes) -> None:
    assert benchmark.pedantic(msgspec.json.decode, (full,), rounds=3)["kind"] == "List"


def test_10000_pods_to_columns(benchmark: Any, full: bytes) -> None:
    start = time.perf_counter()
    msgspec.json.decode(full)
    bare = time.perf_counter() - start
    snapshot = benchmark.pedantic(lambda: load(full).snapshot(), rounds=5, warmup_rounds=1)
    if benchmark.stats is not None:
        benchmark.extra_info["ratio_to_bare_decode"] = benchmark.stats.stats.min / bare
        print(f"\n{benchmark.stats.stats.min / bare:.2f} times a bare decode of the same bytes ({bare:.3f} s)")
    assert (len(snapshot.pods), len(snapshot.pending)) == (9000, 1000)
    assert same(snapshot, slowly(full))
    node = Node(metadata=snapshot.columns.objects[0].metadata, status=snapshot.columns.objects[0].status)
    expected = kscale.estimate(slowly(full), template=node)
    assert kscale.estimate(snapshot, template=node).placed == expected.placed
    peak(benchmark, lambda: load(full).snapshot(), 50)
    floor(benchmark, len(full))


def test_dump_to_snapshot(benchmark: Any, dump: Path) -> None:
    snapshot = benchmark.pedantic(lambda: load(dump).snapshot(), rounds=1)
    used = sum(snapshot.interner.classes[i].occupancy.get("cpu", 0) for i in snapshot.placed_class.tolist())
    assert int(snapshot.used["cpu"].sum()) == used
    assert len(snapshot.pods) + len(snapshot.pending) <= PODS  # a few names collide: the last one counts
    assert len(snapshot.pods) + len(snapshot.pending) >= PODS * 0.999
    floor(benchmark, dump.stat().st_size)


def test_dump_to_terminal(benchmark: Any, dump: Path) -> None:
    """The whole command, from its start to its end, for the groups that the nodes' labels tell."""
    command = [sys.executable, "-m", "kscale", "estimate", "-q", "-f", str(dump), "-o", "json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = benchmark.pedantic(lambda: subprocess.run(command, capture_output=True, check=False), rounds=1)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = msgspec.json.decode(done.stdout)
    assert done.returncode == (1 if answer["unschedulableCount"] else 0), done.stderr
    parts = ("onExisting", "needNew", "unschedulableCount", "daemonSet")
    assert answer["pendingCount"] == sum(answer[part] for part in parts)
    cluster = load(dump)
    snapshot = cluster.snapshot()
    result = [each.group for each in recognise_groups(snapshot.columns.objects).groups]
    expected = estimate_groups(snapshot, with_templates(cluster, snapshot, result))
    assert answer["pendingCount"] == len(snapshot.pending)
    assert [line["nodes"] for line in answer["groups"]] == [line.nodes for line in expected.groups]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    benchmark.extra_info |= {"cpu_seconds": cpu, "peak_rss_mib_with_file": after.ru_maxrss / 1024}
    print(f"\n{cpu:.2f} s of CPU; peak {after.ru_maxrss / 1024:.0f} MiB, the mapped file included")
    floor(benchmark, dump.stat().st_size)


def columns() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    pod_node = rng.integers(0, NODES, PODS)
    pod_node[-PENDING:] = -1
    return {
        "resources": ["cpu", "memory"],
        "node_names": [f"node-{i}" for i in range(NODES)],
        "allocatable": np.stack([np.full(NODES, 64_000), np.full(NODES, 256 << 30)]),
        "slots": np.full(NODES, 250),
        "demand": np.stack([rng.integers(1, 40, 150) * 50, rng.integers(1, 40, 150) * (64 << 20)], axis=1),
        "pod_class": rng.integers(0, 150, PODS),
        "pod_node": pod_node,
    }


def template(i: int) -> dict[str, Any]:
    return {
        "metadata": {"name": f"t{i}"},
        "status": {"allocatable": {"cpu": str(4 + 4 * i), "memory": f"{16 + 16 * i}Gi", "pods": "110"}},
    }


def test_columns_to_snapshot(benchmark: Any) -> None:
    columns_ = columns()
    snapshot = benchmark.pedantic(lambda: kscale.from_columns(**columns_), rounds=3)
    placed = columns_["pod_node"] >= 0
    expected = np.bincount(columns_["pod_node"][placed], columns_["demand"][columns_["pod_class"][placed], 0], NODES)
    assert snapshot.used["cpu"].tolist() == expected.astype(np.int64).tolist()
    assert (len(snapshot.placed_node), len(snapshot.pending_records)) == (PODS - PENDING, PENDING)
    peak(benchmark, lambda: kscale.from_columns(**columns_), 1024)
    floor(benchmark, PODS * 16 + NODES * 24)


def test_20_estimates_from_columns(benchmark: Any) -> None:
    columns_ = columns()
    snapshot = kscale.from_columns(**columns_)
    templates = [template(i) for i in range(20)]

    def fresh() -> tuple[tuple[Snapshot], dict[str, Any]]:
        snapshot.memo.clear()
        return (snapshot,), {"templates": templates}

    results = benchmark.pedantic(kscale.estimate_many, setup=fresh, rounds=5)
    # The same pods as structs of their own, in the order they have: the slow way.
    pods: list[Pod] = [record.pod for record in snapshot.pending_records]
    slow = kscale.estimate_many(snapshot, pods, templates=templates)
    assert [r.node_count for r in results] == [r.node_count for r in slow]
    assert all(np.array_equal(r.placement_numbers, s.placement_numbers) for r, s in zip(results, slow, strict=True))
    floor(benchmark, PENDING * 12 * 20 + NODES * 24)
