"""``python -m e2e.duel`` (from ``tests``): runs cases, and compares the logs of runs. ``docs/duel.md`` says more."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from e2e.duel.case import read_case
from e2e.duel.compare import compared
from e2e.duel.facts import read_logs, write_logs
from e2e.duel.run import run_case


def main() -> int:
    """Ends with 1 if there is a difference that nobody has explained."""
    parser = argparse.ArgumentParser(prog="python -m e2e.duel")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a case, and write the log of its runs")
    run.add_argument("case", help="the case file")
    run.add_argument("log", type=Path, help="where the log goes; .gz: zipped")
    run.add_argument("--upstream", type=Path, help="the folder of upstream's binaries (default: kscale)")
    run.add_argument("--times", type=int, default=1)
    run.add_argument("--directory", type=Path, required=True, help="for the logs of all programs")
    compare = commands.add_parser("compare", help="hold a log against upstream's")
    compare.add_argument("case", help="the case file")
    compare.add_argument("log", help="kscale's")
    compare.add_argument("upstream", help="upstream's")
    arguments = parser.parse_args()
    case = read_case(arguments.case)
    if arguments.command == "run":
        names = [arguments.directory / f"{case.name}-{i}" for i in range(arguments.times)]
        write_logs(arguments.log, [run_case(case, name, arguments.upstream) for name in names])
        return 0
    worst = 0
    for ours in read_logs(arguments.log):
        result = compared(case, ours, read_logs(arguments.upstream))
        print("\n".join(result.lines()))
        worst |= bool(result.differences)
    return worst


if __name__ == "__main__":
    sys.exit(main())
