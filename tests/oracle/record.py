"""Renew recorded answers: ``python tests/oracle/record.py --kind K [--kubernetes VERSION] [--write]``.

Asks upstream for the input of every recorded case of the kinds, and prints which answers are others than recorded.
``--write`` renews them in place; ``--draw N`` adds cases that are drawn by ``--seed``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import golden_support
from oracle.build import build_programs, default_version, upstream_of
from oracle.families import Kind, find_kinds
from oracle.process import Oracle

Json = dict[str, Any]
_MAX_SHOWN = 5
OLDER = "older"
"""Tag of answers of an older release, which kscale gives by a profile. Nobody is asked again."""


def main() -> int:
    kinds = find_kinds()
    parser = argparse.ArgumentParser(prog="nox -s record --", description=__doc__)
    parser.add_argument("--kind", action="append", choices=sorted(kinds), help="only this kind (repeatable)")
    parser.add_argument("--kubernetes", default="", metavar="VERSION", help=f"default: {default_version()}")
    parser.add_argument("--directory", type=Path, default=golden_support.VECTORS, help="of recorded answers")
    parser.add_argument("--write", action="store_true", help="renew the recorded answers")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="ask so often: each answer must be the same")
    parser.add_argument("--draw", type=int, default=0, metavar="N", help="number of drawn cases to add for each kind")
    parser.add_argument("--seed", type=int, default=1, help="of drawn cases")
    options = parser.parse_args()
    version = options.kubernetes or default_version()
    chosen = [kind for kind in kinds.values() if not options.kind or kind.name in options.kind]
    programs = build_programs({kind.program for kind in chosen}, version)
    changed = 0
    for kind in chosen:
        path = options.directory / f"{kind.name}.jsonl.gz"
        cases = list(golden_support.cases(options.directory, [kind.name])) if path.exists() else []
        drawn = list(_drawn(kind, options.draw, options.seed))
        if not cases and not drawn:
            continue
        upstream = upstream_of(kind.program, version)
        changed += renew(
            kind, [*cases, *drawn], programs[kind.program], upstream, known=len(cases), times=options.times
        )
        if options.write:
            _write(path, [*cases, *(case for case in drawn if case["want"] is not None)])
    return 1 if changed and not options.write else 0


def _drawn(kind: Kind, count: int, seed: int) -> Iterator[Json]:
    for index in range(count):
        name = f"{kind.name}-{seed}-{index:04}"
        inputs = kind.draw(Random(f"{seed}/{kind.name}/{index}"))
        yield {"name": name, "kind": kind.name, "tags": ["drawn"], "upstream": "", "input": inputs, "want": None}


def renew(kind: Kind, cases: Sequence[Json], program: Path, upstream: str, *, known: int, times: int = 1) -> int:
    """Set the answers of cases to upstream's; returns how many of the first ``known`` were others, and prints them.

    With ``times`` each is asked so often. An answer that is not always the same counts as another one: something of
    upstream that is left to chance was not put into one order. Of drawn cases, such an answer stays None.
    """
    recorded = [(index, case) for index, case in enumerate(cases) if OLDER not in case.get("tags", ())]
    with Oracle(program) as oracle:
        replies = oracle.ask([(kind.name, case["input"]) for _, case in recorded])
        unstable: set[int] = set()
        for _ in range(1, times):
            again = oracle.ask([(kind.name, case["input"]) for _, case in recorded])
            unstable |= {i for i, (a, b) in enumerate(zip(replies, again, strict=True)) if a.output != b.output}
    outcomes: Counter[str] = Counter({"of an older release": len(cases) - len(recorded)})
    for i in sorted(unstable):
        if recorded[i][0] >= known:
            outcomes["left to chance"] += 1
            continue
        outcomes["not always the same"] += 1
        print(f"  {recorded[i][1]['name']}: not always the same answer")
    for i, ((index, case), reply) in enumerate(zip(recorded, replies, strict=True)):
        if reply.error:
            outcomes["cannot be asked"] += 1
            print(f"  {case['name']}: {reply.error.partition(chr(10))[0]}")
            continue
        if index >= known and i in unstable:
            continue
        if index >= known:
            outcomes["added"] += 1
        elif kind.comparable(case["want"]) == kind.comparable(reply.output):
            outcomes["as recorded"] += 1
            continue
        else:
            outcomes["changed"] += 1
            if outcomes["changed"] <= _MAX_SHOWN:
                before = json.dumps(kind.comparable(case["want"]), sort_keys=True)
                after = json.dumps(kind.comparable(reply.output), sort_keys=True)
                print(
                    f"  {case['name']}\n    recorded {_excerpt(before, after)}\n    now      {_excerpt(after, before)}"
                )
        case["want"], case["upstream"] = reply.output, upstream
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items() if count)
    print(f"{kind.name}, {upstream}: {counts}", flush=True)
    return outcomes["changed"] + outcomes["cannot be asked"] + outcomes["not always the same"]


def _excerpt(text: str, other: str) -> str:
    """Return the part of a text where it begins to differ from another."""
    start = next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))
    return "..." * (start > 60) + text[max(0, start - 60) : start + 140]


def _write(path: Path, cases: Sequence[Json]) -> None:
    lines = "".join(json.dumps(case, sort_keys=True, ensure_ascii=False) + "\n" for case in cases)
    path.write_bytes(gzip.compress(lines.encode(), mtime=0))


if __name__ == "__main__":
    sys.exit(main())
