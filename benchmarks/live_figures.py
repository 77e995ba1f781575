"""Every figure of the live programs that the README of the benchmarks and ``docs/`` name, one run after the other.

``nox -s live -- --upstream FOLDER``: upstream's binaries beside them; ``--only TEXT``: the runs whose command has it.
A control plane is built once (needs Go); all of them take more than an hour on two processors.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
RUNS: Final = (
    "webhook_load.py --rounds 2",
    "live_scale.py --nodes 5000 --pods 60000",
    "live_scale.py --synthetic --nodes 5000 --pods 150000",
    "live_scale.py --synthetic --nodes 15000 --pods 450000",
    "live_autoscalers.py --workloads 1000",
    "live_autoscalers.py --workloads 10000 --program horizontal --synthetic",
    "live_autoscalers.py --workloads 10000 --program horizontal --without-http",
    "live_autoscalers.py --workloads 10000 --pods 5 --program vpa-recommender --synthetic --qps 100000 --most 180",
    "live_autoscalers.py --workloads 1000 --program horizontal --without-http --turns",
)
ALONE: Final = ("--without-http", "live_scale.py --synthetic")
"""What upstream cannot take part in."""


def main() -> None:
    parser = argparse.ArgumentParser(description="The figures of the live programs.")
    parser.add_argument("--upstream", type=Path, help="the folder of upstream's binaries, to be measured beside")
    parser.add_argument("--only", default="", metavar="TEXT", help="the runs whose command has it")
    arguments = parser.parse_args()
    chosen = [run for run in RUNS if arguments.only in run]
    if not chosen:
        parser.error(f"no run has {arguments.only!r}; there are: {'; '.join(RUNS)}")
    environment = os.environ | {"PYTHONPATH": str(HERE.parent / "tests")}
    for run in chosen:
        script, *options = shlex.split(run)
        if arguments.upstream is not None and not any(each in run for each in ALONE):
            options += ["--upstream", str(arguments.upstream)]
        print(f"\n{script} {shlex.join(options)}", flush=True)
        subprocess.run([sys.executable, str(HERE / script), *options], env=environment, check=True)


if __name__ == "__main__":
    main()
