"""Heavy scenarios in one process and then on a Dask cluster of two workers here: wall and CPU time side by side.

Each scenario loses two nodes of its own, so that next to no decision is shared.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import kscale
from kscale.ca.options import AutoscalingOptions
from kscale.capacity.generate import generate
from kscale.capacity.groups import recognise_groups
from kscale.capacity.whatif import Base, Scenario, scenarios_from
from kscale.capacity.whatif.running import SweepRow, rows_of_base
from kscale.cli.commands.sweep import workers_of

SCENARIOS = int(os.environ.get("KSCALE_SWEEP_SCENARIOS", "200"))
PARTS = 8  # as the command line cuts them for two workers


def world() -> tuple[Base, list[Scenario]]:
    dump = {"apiVersion": "v1", "kind": "List", "items": list(generate(200, 6_000).objects())}
    cluster = kscale.load(msgspec.json.encode(dump))  # as the command line reads it
    nodes = cluster.snapshot().nodes
    result = recognise_groups(cluster.nodes()).groups
    groups = [
        replace(each.group, price=0.5 + i / 10, from_node=None, target_size=None) for i, each in enumerate(result)
    ]
    base = Base(cluster, groups, datetime(2030, 1, 1, tzinfo=UTC), AutoscalingOptions(expander="price"))
    pairs = [(i % 200, (i + 1 + i // 200) % 200) for i in range(SCENARIOS)]
    edits = [[{"lose": {"node": [nodes[a], nodes[b]]}}] for a, b in pairs]
    return base, scenarios_from([{"name": f"s{i}", "edits": each} for i, each in enumerate(edits)])


def test_two_workers_beside_one_process(benchmark: Any) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra [dask] is not installed")
    base, scenarios = world()
    alone = list(rows_of_base(base, scenarios[:4]))
    local = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", host="127.0.0.1"
    )
    address = local.scheduler_address.removeprefix("tcp://")
    with local, distributed.Client(local) as looking, workers_of(f"dask://{address}", None) as (pool, count, share):

        def both(some: list[Scenario] = scenarios, parts: int = PARTS) -> list[SweepRow | None]:
            chunk = max(1, len(some) // parts)
            answers = kscale.sweep(rows_of_base, some, base=base, executor=pool, workers=count, chunk=chunk,
                                   share=share)  # fmt: skip
            return [each.value for each in sorted(answers, key=lambda each: each.index)]

        def spent() -> float:
            """CPU seconds of all processes so far."""
            return time.process_time() + sum(looking.run(time.process_time).values())

        kscale.whatif(base, scenarios[:4])  # both sides have imported and looked at what they need
        assert both(scenarios[:4], parts=2) == alone
        before, began = time.process_time(), time.perf_counter()
        one = list(rows_of_base(base, scenarios))
        cpu, wall = time.process_time() - before, time.perf_counter() - began
        before, began = spent(), time.perf_counter()
        two = benchmark.pedantic(both, rounds=1)
        cpu_of_two, wall_of_two = spent() - before, time.perf_counter() - began
    print(f"\n{len(scenarios)} scenarios: {wall:.1f} s ({cpu:.1f} s of CPU) in one process, {wall_of_two:.1f} s "
          f"({cpu_of_two:.1f}) with two: {wall / wall_of_two:.2f} times as fast")  # fmt: skip
    benchmark.extra_info.update(times_as_fast=round(wall / wall_of_two, 2), cpu_overhead=round(cpu_of_two / cpu - 1, 3))
    assert two == one
    assert one[:4] == alone
    assert len({row.row.differs for row in one if row.row is not None}) > 10
