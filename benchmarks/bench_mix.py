"""The cheapest mix for a production trace out of a cloud's whole catalogue, proven.

Data: ``openb_pod_list_default.csv.gz`` (GPU demand ignored) and ``aws_instance_types.csv.gz``: m, c and r of the
generations 5 to 7 with up to 64 cores. Opt-in: ``--data DIR``.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from bench_openb import MIB, Trace, pods_of, rows

import kscale
from kscale.capacity.catalogue import read_catalogue
from kscale.scheduling.bounds.master import have_solver

FAMILIES = re.compile(r"[mcr][5-7][a-z]*\.")


def test_mix_of_m_c_and_r(benchmark, data_dir: Path) -> None:
    import numpy as np

    catalogue = data_dir / "aws_instance_types.csv.gz"
    if not catalogue.exists() or not have_solver():
        pytest.skip(f"{catalogue} or the extra [solver] is missing")
    kinds = [kind for name, kind in read_catalogue(catalogue).items() if FAMILIES.match(name)]
    offers = [
        kscale.Offer(name=kind.name, type=kind.name, template=kind.template(), price=kind.price() or 0.0)
        for kind in kinds
        if kind.price() and kind.capacity["cpu"].value() <= 64
    ]
    pods = Counter(
        (int(pod["cpu_milli"]), int(pod["memory_mib"]) * MIB, 1)
        for pod in rows(data_dir / "openb_pod_list_default.csv.gz")
        if int(pod["cpu_milli"]) <= 60_000
    )
    trace = Trace(np.array(list(pods)), np.array(list(pods.values())), np.zeros(3, dtype=np.int64))
    snapshot = kscale.load(pods_of(trace)).snapshot()
    plan = benchmark.pedantic(lambda: kscale.mix(snapshot, offers), rounds=1)
    print(f"\n{plan.pods} pods, {len(offers)} types: ${plan.cost}/h, at least ${plan.bound.cost}, {plan.stopped}")
    assert plan.nowhere == 0
    assert plan.repairs.moved == 0
    assert plan.bound.gap is not None
    assert 0 <= plan.bound.gap <= 0.01
