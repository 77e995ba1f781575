"""Counts the instructions of the benchmarks in ``instructions.json`` and holds them against the counts there.

    python benchmarks/count_instructions.py [--update] [BENCHMARK ...]

Needs valgrind with its headers, and a C compiler. ``--update`` writes what was counted as the new measure of this
Python; named benchmarks are then added. Ends with status 1 where a count is above the measure by more than ``limit``.
Named benchmarks alone are shown, judged and written, but all that are kept run, in one order in one process: Python
runs a function that it has run often with fewer instructions, so that one benchmark by itself counts up to 1.1 times.
A count depends on the Python, its libraries and the compiler: those of another Python minor are kept apart.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MEASURE = HERE / "instructions.json"


def counted(benchmarks: list[str], environment: dict[str, str], folder: Path) -> dict[str, int]:
    """The instructions of each benchmark, in one process."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder / 'counts'}"]
    plugins = ["-p", "no:cacheprovider", "-p", "no:benchmark", "-p", "instructions"]
    options = ["-o", "addopts=--import-mode=importlib", "-o", "required_plugins=", f"--instructions={folder}"]
    # The caller's path comes after this folder: its kscale is counted, not another one that is installed.
    path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    subprocess.run(
        [
            *valgrind,
            f"--log-file={folder / 'valgrind.log'}",
            sys.executable,
            "-m",
            "pytest",
            "-q",
            *plugins,
            *options,
            *benchmarks,
        ],
        cwd=HERE.parent,
        env={**os.environ, **environment, "PYTHONHASHSEED": "0", "PYTHONPATH": path},
        check=True,
    )
    result: dict[str, int] = json.loads((folder / "instructions.json").read_text())
    return result


def company(measured_names: list[str], named: list[str]) -> list[str]:
    """The benchmarks that run in one process so that counts of ``named`` compare with those kept: all."""
    return sorted({*measured_names, *named})


def select_counts(every: dict[str, int], named: list[str]) -> dict[str, int]:
    """The counts that ``named`` are of: benchmarks, or files and functions that hold several."""
    return {
        name: count
        for name, count in every.items()
        if any(name == each or name.startswith((f"{each}::", f"{each}[")) for each in named)
    }


def judged(counts: dict[str, int], measure: dict[str, int], limit: float) -> list[str]:
    """Prints every count beside its measure; the benchmarks above the limit."""
    above = []
    for name, count in sorted(counts.items()):
        ratio = count / measure[name] if name in measure else float("nan")
        print(f"{count:>15,}  {ratio:6.3f}  {name}")
        if ratio > limit:
            above.append(name)
    return above


def main() -> None:
    stored: dict[str, Any] = json.loads(MEASURE.read_text())
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    measure: dict[str, int] = stored["counts"].setdefault(python, {})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="make what is counted the measure")
    parser.add_argument("benchmarks", nargs="*", metavar="BENCHMARK", help="as pytest names them; default: all there")
    arguments = parser.parse_args()
    names = arguments.benchmarks or stored["benchmarks"]
    if not arguments.update and (unmeasured := [name for name in names if name not in measure]):
        parser.error(f"no count for {python} of {', '.join(unmeasured)}: take one with --update")
    every = counted(company(stored["benchmarks"], names), stored["environment"], HERE.parent / "build" / "instructions")
    result = select_counts(every, names)
    above = judged(result, measure, stored["limit"])
    if arguments.update:
        measure.update(result)
        stored["benchmarks"] = sorted({*stored["benchmarks"], *result})
        MEASURE.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n")
    elif above:
        sys.exit(f"more than {stored['limit']} times the instructions: {', '.join(above)}")


if __name__ == "__main__":
    main()
