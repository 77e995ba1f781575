"""The cheapest mix for a production trace out of a cloud's whole catalogue, proven.

Data: ``openb_pod_list_default.csv.gz`` and ``aws_instance_types.csv.gz``, ``azure_instance_types.csv.gz``. Pods that no
type holds are left out and counted. Opt-in: ``--data DIR``.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from bench_openb import MIB, rows

import kscale
from kscale.capacity.catalogue import InstanceType, read_catalogue
from kscale.objects.core import Pod
from kscale.objects.decode import from_dict
from kscale.scheduling.bounds.master import have_solver

FAMILIES = re.compile(r"[mcr][5-7][a-z]*\.")
GPU = "nvidia.com/gpu"


class Case(NamedTuple):
    """``gpus``: pods ask for whole GPUs, otherwise for none; ``gap``: what is proven at least."""

    catalogue: str
    chosen: Callable[[InstanceType], bool]
    gpus: bool
    gap: float


def of_m_c_and_r(kind: InstanceType) -> bool:
    return FAMILIES.match(kind.name) is not None and kind.capacity["cpu"].value() <= 64


CASES = {
    "aws m c r": Case("aws", of_m_c_and_r, False, 0.001),
    "aws": Case("aws", lambda kind: kind.arch == "amd64" and not kind.gpu_name, False, 0.003),
    "azure": Case("azure", lambda kind: kind.arch == "amd64" and not kind.gpu_name, False, 0.003),
    "aws whole gpus": Case("aws", lambda kind: kind.arch == "amd64", True, 0.003),
}


def pods_of(given: list[dict[str, str]], gpus: bool) -> list[Pod]:
    """One ReplicaSet for each shape, so that equal pods are one equivalence group."""
    shapes = Counter((int(row["cpu_milli"]), int(row["memory_mib"]), int(row["num_gpu"]) * gpus) for row in given)
    pods = []
    for k, ((cpu, memory, gpu), count) in enumerate(shapes.items()):
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"rs-{k}", "uid": f"rs-{k}", "controller": True}
        requests = {"cpu": f"{cpu}m", "memory": str(memory * MIB), **({GPU: str(gpu)} if gpu else {})}
        exemplar = from_dict(
            {
                "metadata": {"name": f"rs-{k}", "namespace": "openb", "ownerReferences": [owner]},
                "spec": {"containers": [{"name": "app", "resources": {"requests": requests}}]},
            },
            Pod,
        )
        for i in range(count):
            metadata = msgspec.structs.replace(exemplar.metadata, name=f"rs-{k}-{i}", uid=f"rs-{k}-{i}")
            pods.append(msgspec.structs.replace(exemplar, metadata=metadata))
    return pods


@pytest.mark.parametrize("name", CASES)
def test_mix_of_a_trace(benchmark: Any, data_dir: Path, name: str) -> None:
    case = CASES[name]
    catalogue = data_dir / f"{case.catalogue}_instance_types.csv.gz"
    if not catalogue.exists() or not have_solver():
        pytest.skip(f"{catalogue} or the extra [solver] is missing")
    offers = [
        kscale.Offer(name=kind.name, type=kind.name, template=kind.template(), price=price)
        for kind in read_catalogue(catalogue).values()
        if case.chosen(kind) and (price := kind.price())
    ]
    snapshot = kscale.load(pods_of(rows(data_dir / "openb_pod_list_default.csv.gz"), case.gpus)).snapshot()
    nowhere = kscale.mix(snapshot, offers, options=kscale.MixOptions(plan_effort=0, bound_effort=0)).nowhere_pods
    names = sorted({*snapshot.pending} - {*nowhere})

    def decide() -> kscale.MixPlan:
        began = time.process_time()
        plan = kscale.mix(snapshot, offers, pods=names)
        benchmark.extra_info["cpu_seconds"] = round(time.process_time() - began, 2)
        return plan

    plan = benchmark.pedantic(decide, rounds=1)
    gap = plan.bound.gap
    print(f"\n{name}: {plan.pods} pods ({len(nowhere)} fit no type), {len(offers)} types: ${plan.cost:.3f}/h, at least "
          f"${plan.bound.cost}, gap {gap}, {plan.stopped}, {benchmark.extra_info}")  # fmt: skip
    assert plan.nowhere == 0
    assert plan.repairs.moved == 0
    assert gap is not None
    assert 0 <= gap <= case.gap
