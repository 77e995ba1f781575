"""Ask upstream's Go packages and kscale the same: ``python tests/oracle [--minutes N] [--kind K] [--seed S]``.

Cases are drawn by seed. Where the answers differ, the case is made small and written to ``--output`` as a recorded
answer: ``pytest tests/golden --golden-dir build/oracle`` shows it again.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from oracle.build import build_programs, default_version, upstream_of
from oracle.campaign import Campaign, write_reproducer
from oracle.families import find_kinds


def main() -> int:
    kinds = find_kinds()
    families = sorted({kind.family for kind in kinds.values()})
    parser = argparse.ArgumentParser(prog="python tests/oracle", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.0, help="minutes after which to stop")
    parser.add_argument(
        "--cases", type=int, default=0, help="number of cases after which to stop (without --minutes: 2000)"
    )
    parser.add_argument("--kind", action="append", choices=sorted(kinds), help="only this kind (repeatable)")
    parser.add_argument("--family", action="append", choices=families, help="only this family (repeatable)")
    parser.add_argument("--seed", type=int, default=None, help="where cases come from (default: another each time)")
    parser.add_argument("--kubernetes", default="", metavar="VERSION", help=f"default: {default_version()}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--stop-at-first", action="store_true", help="stop at the first difference")
    parser.add_argument("--shrink-seconds", type=float, default=30.0, help="for each difference")
    parser.add_argument("--output", type=Path, default=Path("build/oracle"), metavar="DIR", help="of reproducers")
    options = parser.parse_args()

    chosen = [
        kind
        for kind in kinds.values()
        if (not options.kind or kind.name in options.kind) and (not options.family or kind.family in options.family)
    ]
    if not chosen:
        parser.error("no kind belongs to the family")
    version = options.kubernetes or default_version()
    programs = build_programs({kind.program for kind in chosen}, version)
    upstream = {name: upstream_of(name, version) for name in programs}
    seed = random.SystemRandom().randrange(1, 10**6) if options.seed is None else options.seed
    cases = options.cases or (0 if options.minutes else 2000)
    print(f"seed {seed}, {', '.join(upstream.values())}, kinds {', '.join(kind.name for kind in chosen)}", flush=True)

    campaign = Campaign(chosen, programs, seed=seed, jobs=options.jobs)
    report = campaign.run(cases=cases, seconds=options.minutes * 60, stop_at_first=options.stop_at_first)
    for small in campaign.shrunk(report, seconds=options.shrink_seconds):
        path = write_reproducer(small, options.output, seed=seed, upstream=upstream[kinds[small.kind].program])
        print(f"\n{small.kind} {small.index}: {small.where} -> {path}\n{small.details}\n  input = {small.input}")
    rate = report.cases.total() / max(report.seconds, 1e-9)
    print(f"\n{'KIND':20} {'CASES':>9} {'DIFFERENT':>9}")
    for kind in chosen:
        print(f"{kind.name:20} {report.cases[kind.name]:9} {report.differing[kind.name]:9}")
    for reason, count in report.left_out.items():
        print(f"left out: {reason}: {count}")
    first = "" if report.first is None else f", the first difference after {report.first:.1f} s"
    print(f"{report.cases.total()} cases in {report.seconds:.0f} s ({rate:.0f}/s), seed {seed}{first}")
    return 1 if report.differing else 0


if __name__ == "__main__":
    sys.exit(main())
