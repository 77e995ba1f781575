"""A production trace on one instance type: how many nodes, and how few could it be?

Data: ``openb_pod_list_default.csv.gz`` (8,152 pods of a GPU cluster; Weng et al., USENIX ATC 2023) seen as CPU pods
(GPU demand ignored), and m5.4xlarge of ``aws_instance_types.csv.gz``; 6,730 pods fit one node. Opt-in: ``--data DIR``.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

import kscale
from kscale.capacity.catalogue import read_catalogue
from kscale.capacity.estimate import BOUND_EFFORT
from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict
from kscale.scheduling import bounds

INSTANCE_TYPE = "m5.4xlarge"
MIB = 2**20


class Trace(NamedTuple):
    demand: NDArray[np.int64]  # [classes, (milli-cpu, bytes, pods)]
    count: NDArray[np.int64]
    capacity: NDArray[np.int64]


def rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        pytest.skip(f"{path} is missing")
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def trace(data_dir: Path) -> Trace:
    return trace_of(data_dir, "openb_pod_list_default", INSTANCE_TYPE)


def trace_of(data_dir: Path, pod_list: str, instance_type: str) -> Trace:
    catalogue = data_dir / "aws_instance_types.csv.gz"
    if not catalogue.exists():
        pytest.skip(f"{catalogue} is missing")
    node = read_catalogue(catalogue)[instance_type].allocatable
    capacity = np.array([node["cpu"].milli_value(), node["memory"].value(), node["pods"].value()])
    pods = Counter(
        (int(pod["cpu_milli"]), int(pod["memory_mib"]) * MIB, 1) for pod in rows(data_dir / f"{pod_list}.csv.gz")
    )
    demand, count = np.array(list(pods)), np.array(list(pods.values()))
    fits = (demand <= capacity).all(axis=1)
    return Trace(demand[fits], count[fits], capacity)


def first_fit_decreasing(trace: Trace) -> int:
    """Nodes of a first-fit in order of decreasing share of CPU plus share of memory.

    Not what the autoscaler does: its scan goes round robin over the nodes. It shows that the best bound is the optimum.
    """
    share = (trace.demand[:, :2] / trace.capacity[:2]).sum(axis=1)
    free = np.empty((0, 3), dtype=np.int64)
    for k in np.argsort(-share, kind="stable"):
        size, remaining = trace.demand[k], int(trace.count[k])
        room = np.minimum.reduce([free[:, r] // size[r] for r in range(3) if size[r]])
        take = np.minimum(room, np.maximum(0, remaining - (np.cumsum(room) - room)))
        free -= take[:, None] * size
        remaining -= int(take.sum())
        per_node = int(min(trace.capacity[r] // size[r] for r in range(3) if size[r]))
        while remaining:
            free = np.vstack([free, trace.capacity - min(remaining, per_node) * size])
            remaining -= min(remaining, per_node)
    return len(free)


def pods_of(trace: Trace) -> list[Pod]:
    """The pods as objects: one ReplicaSet for each shape, so that equal pods are one equivalence group."""
    pods = []
    for k, (cpu, memory, _) in enumerate(trace.demand.tolist()):
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"rs-{k}", "uid": f"rs-{k}", "controller": True}
        requests = {"cpu": f"{cpu}m", "memory": str(memory)}
        exemplar = from_dict(
            {
                "metadata": {"name": f"rs-{k}", "namespace": "openb", "ownerReferences": [owner]},
                "spec": {"containers": [{"name": "app", "resources": {"requests": requests}}]},
            },
            Pod,
        )
        for i in range(int(trace.count[k])):
            metadata = msgspec.structs.replace(exemplar.metadata, name=f"rs-{k}-{i}", uid=f"rs-{k}-{i}")
            pods.append(msgspec.structs.replace(exemplar, metadata=metadata))
    return pods


def test_the_trace_is_the_one_we_know(trace: Trace) -> None:
    assert trace.count.sum() == 6730
    assert trace.capacity.tolist() == [15890, 57691 * MIB, 234]


def test_first_fit_decreasing(benchmark, trace: Trace) -> None:
    assert benchmark(first_fit_decreasing, trace) == 4174


def test_estimate(benchmark, trace: Trace, data_dir: Path) -> None:
    """The packing of record: from a snapshot with 6,730 pending pods to the number of nodes."""
    template = read_catalogue(data_dir / "aws_instance_types.csv.gz")[INSTANCE_TYPE].template()
    snapshot = kscale.load(pods_of(trace)).snapshot()

    def run() -> kscale.EstimateResult:
        return kscale.estimate(snapshot, template=template)

    estimate = benchmark(run)
    bound = bounds.best_bound(*trace, methods=["volume", "l2", "column_generation"], upper=estimate.node_count)
    print(f"\n{trace.count.sum()} pods: {estimate.node_count} nodes, at least {bound.value} ({bound.method})")
    assert len(estimate.placed_pods) == 6730
    assert (estimate.node_count, bound.value, bound.method) == (4183, 4174, "column_generation")
    assert estimate.lower_bound.value == 4099
    assert estimate.bound(effort=BOUND_EFFORT).value == 4174


def test_printed_bound(benchmark, data_dir: Path) -> None:
    """What ``--bound lp`` adds to an estimate, with its budget. Target: <= 50 ms."""
    trace = trace_of(data_dir, "openb_pod_list_cpu300", "m5.8xlarge")
    template = read_catalogue(data_dir / "aws_instance_types.csv.gz")["m5.8xlarge"].template()
    estimate = kscale.estimate(kscale.load(pods_of(trace)).snapshot(), template=template)
    bound = benchmark(lambda: estimate.bound(effort=BOUND_EFFORT, threads=2))
    print(f"\n{estimate.node_count} nodes, at least {bound.value} ({bound.method})")
    assert (estimate.node_count, estimate.lower_bound.value) == (3054, 2849)
    assert (bound.value, bound.method) == (2927, "column_generation")


@pytest.mark.parametrize(("method", "nodes"), [("volume", 3513), ("l2", 4099), ("column_generation", 4174)])
def test_bound(benchmark, trace: Trace, method: str, nodes: int) -> None:
    bound = benchmark(lambda: bounds.best_bound(*trace, methods=[method]))
    pods, classes = trace.count.sum(), len(trace.count)
    print(f"\n{pods} pods in {classes} classes on {INSTANCE_TYPE}: at least {bound.value} nodes ({bound.method})")
    assert (bound.value, bound.method) == (nodes, method)


def test_bounds_of_fifty_thousand_pods(benchmark) -> None:
    """Volume and L2 where next to no pod shares its shape: 50,000 pods in 50,000 classes."""
    rng = np.random.default_rng(7)
    demand = np.column_stack([rng.integers(1, 8000, 50_000), rng.integers(1, 2**34, 50_000), np.ones(50_000, np.int64)])
    count, capacity = np.ones(50_000, dtype=np.int64), np.array([16_000, 2**36, 110])
    bound = benchmark(lambda: bounds.best_bound(demand, count, capacity))
    assert bound.value >= -(-int(demand[:, 0].sum()) // 16_000)
