"""The same scenario and seed give the same bytes on any processor: kernels, NumPy and the C library at their lowest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from kscale.simulation import build, read_scenario, simulate
from unit.drivers.vpa_world import autoscaler
from unit.simulation.test_simulation import scenario
from unit.simulation.test_skipping import HPA, MEMORY_ONLY
from unit.world.simulated_cases import workload

RUN = """
import sys
from pathlib import Path
import kscale
from kscale.simulation import build, read_scenario, simulate
simulate(build(read_scenario(sys.argv[1])), ideal=8).write(Path(sys.argv[2]))
print(kscale.build_info()["cpu_level"])
"""


def lowest() -> dict[str, str]:
    """Variables that take the fast ways of newer processors away."""
    result = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    return {
        "KSCALE_CPU_LEVEL": "default",
        "NPY_DISABLE_CPU_FEATURES": " ".join(result),
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-FMA4",
        "OPENBLAS_CORETYPE": "Prescott",
    }


def test_lowest_and_highest_level_write_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(scenario(
        horizon="16m",
        seed=7,
        sample="30s",
        objects=[
            workload("Deployment", "web", 6), HPA, autoscaler("web", kind="Deployment", resourcePolicy=MEMORY_ONLY)
        ],
        machines=[{"boot": {"p0": "20s", "p50": "60s", "p100": "4m"}}],
        load=[{"workload": "Deployment/shop/web", "total": {
            "cpu": {"steps": [["0s", "1"], ["3m", "7300m"], ["10m", "1700m"]]},
            "memory": {"steps": [["0s", "3Gi"], ["4m", "11Gi"], ["9m", "5Gi"]]}}}],
        controllers={"clusterAutoscaler": {"flags": {"scale-down-unneeded-time": "3m"}}, "horizontal": {},
                     "vpaRecommender": {}, "vpaUpdater": {}, "vpaAdmission": {}},
    )))  # fmt: skip
    child = subprocess.Popen(
        [sys.executable, "-c", RUN, str(path), str(tmp_path / "low")],
        env={**os.environ, **lowest()},
        stdout=subprocess.PIPE,
        text=True,
    )
    # Here, meanwhile: at what the processor can do.
    simulate(build(read_scenario(path)), ideal=8).write(tmp_path / "high")
    level = child.communicate(timeout=60)[0].strip()
    assert (child.returncode, level) == (0, "default")
    low, high = ({each.name: each.read_bytes() for each in (tmp_path / name).iterdir()} for name in ("low", "high"))
    assert sorted(low) == ["decisions.jsonl", "report.json", "timeline.parquet", "workloads.parquet"]
    assert low == high
    report = json.loads(low["report.json"])
    assert report["ideal"]["moments"] == 8
    assert 0 < report["ideal"]["ideal"] <= report["ideal"]["paid"]
    actions = report["actions"]
    assert actions["IncreaseSize"] > 0
    assert actions["PutScale"] > 0
    assert actions["Evict"] > 0  # so that there were histograms, and what was recommended of them
