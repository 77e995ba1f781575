"""Start-up: the CPU time of a process that imports what a program or command needs, beside ``import numpy``.

    python -m pytest benchmarks/bench_startup.py --benchmark-enable -s

The environment must allow bytecode to be cached: with PYTHONDONTWRITEBYTECODE every start compiles all modules.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from typing import Any

import pytest

PROGRAMS = {
    "cluster-autoscaler": "kscale.drivers.cluster_autoscaler",
    "horizontal": "kscale.drivers.horizontal_autoscaler",
    "vpa-recommender": "kscale.drivers.vpa_recommender",
    "vpa-updater": "kscale.drivers.vpa_updater",
    "vpa-admission": "kscale.drivers.vpa_admission",
}
FOREIGN = {
    "cluster-autoscaler": ("kscale.hpa.", "kscale.vpa.", "kscale.capacity.", "kscale.ca.legacy."),
    "horizontal": ("kscale.vpa.", "kscale.ca.", "kscale.capacity."),
    "vpa-recommender": ("kscale.hpa.", "kscale.ca.", "kscale.capacity."),
    "vpa-updater": ("kscale.hpa.", "kscale.ca.", "kscale.capacity.", "kscale.vpa.recommender."),
    "vpa-admission": ("kscale.hpa.", "kscale.ca.", "kscale.capacity.", "kscale.vpa.recommender."),
}
"""Modules that a program has no use for."""


def run(code: str) -> tuple[str, float]:
    """Run code in a new process, and return its output and CPU time."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("program", PROGRAMS)
def test_imports_of_a_program(benchmark: Any, program: str) -> None:
    code = (
        "import gc; gc.disable()\n"
        f"import kscale.cli.commands.run.{program.replace('-', '_')}, kscale.cli.app, kscale.cli.command\n"
        f"import kscale.drivers.process, kscale.world.kubernetes.aiohttp_transport, {PROGRAMS[program]}\n"
        "import sys; print(*sys.modules)"
    )
    run(code)  # bytecode is cached
    times, numpy_times = [], []

    def start() -> str:
        output, seconds = run(code)
        times.append(seconds)
        numpy_times.append(run("import numpy")[1])
        return output

    modules = benchmark.pedantic(start, rounds=5).split()
    assert PROGRAMS[program] in modules
    assert [name for name in modules if name.startswith(FOREIGN[program])] == []
    benchmark.extra_info |= {"cpu_seconds": min(times), "numpy_cpu_seconds": min(numpy_times)}
    print(f"\n{program}: {len(modules)} modules, {min(times):.2f} s of CPU; import numpy: {min(numpy_times):.2f} s")
