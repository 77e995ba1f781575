"""Mutants of a sample of the decision code (``nox -s mutants``): a text report lists those that no test notices.

Run by the interpreter of an environment with kscale, the tests' tools and cosmic-ray. What is mutated is the installed
copy of a module, never the one in the repository.

    python .ci/mutants.py [--each N] [--seed N] [--report FILE] [MODULE ...]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path
from typing import Required, TypedDict

ROOT = Path(__file__).parents[1]
INSTALLED = Path(sysconfig.get_path("purelib")) / "kscale"
TIMEOUT = 120.0
SAME = re.compile(
    r"core/(ReplaceBinaryOperator_BitOr_\w+|ReplaceComparisonOperator_(Is_Eq|Eq_Is|IsNot_NotEq|NotEq_IsNot))$"
)
"""Operators whose mutants mostly mean the same: types of annotations, comparisons with None."""

LOOSER = re.compile(r"\b(strict|kw_only)=True\b")
"""What refuses a call that nobody makes: without it every answer is the same."""


class Entry(TypedDict, total=False):
    """Of a module in mutants.toml: what should notice its mutants, and (line, mutant) pairs that mean the same."""

    tests: Required[list[str]]
    golden: list[str]
    same: list[list[str]]


CONFIGURATION = """
[cosmic-ray]
module-path = {module!r}
timeout = {timeout}
excluded-modules = []
test-command = {command!r}
[cosmic-ray.distributor]
name = "local"
"""


def means_the_same(difference: str, entry: Entry) -> bool:
    """Whether a mutant, as a difference of one line, answers as the module does: no test can notice it."""
    lines = [line for line in difference.splitlines() if re.match(r"[-+](?![-+]{2} )", line)]
    removed, added = ([line[1:].strip() for line in lines if line[0] == sign] for sign in "-+")
    if len(removed) != 1 or len(added) != 1:
        return False
    (was,), (is_now,) = removed, added
    keywords_only = was == "*,"
    return keywords_only or is_now == LOOSER.sub(r"\1=False", was) or [was, is_now] in entry.get("same", [])


def judges(entry: Entry) -> list[str]:
    """The arguments of pytest for the tests and golden answers of an entry."""
    kinds = entry.get("golden", [])
    return [
        *(f"tests/unit/{name}" for name in entry["tests"]),
        *(["tests/golden"] if kinds else []),
        *(f"--golden-kind={kind}" for kind in kinds),
    ]


def mutated(module: str, entry: Entry, each: int, chance: random.Random, room: Path) -> tuple[int, list[str]]:
    """How many mutants of a module were tried, and the differences of those that survived and should not have."""
    from cosmic_ray.work_db import WorkDB, use_db  # only the session of mutants has it
    from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkResult

    command = " ".join([sys.executable, "-m pytest -q -x -p no:cacheprovider", *judges(entry)])
    found = subprocess.run(command.split(), cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit(f"the tests of {module} fail without any mutant:\n{found.stdout}")
    text = CONFIGURATION.format(module=str(INSTALLED / module), timeout=TIMEOUT, command=command)
    (room / "conf.toml").write_text(text)
    session = room / f"{module.replace('/', '-')}.sqlite"

    def cosmic_ray(what: str) -> None:
        subprocess.run(
            [str(Path(sys.executable).parent / "cosmic-ray"), what, str(room / "conf.toml"), str(session)],
            cwd=ROOT,
            check=True,
        )

    cosmic_ray("init")
    with use_db(session, WorkDB.Mode.open) as work:
        wanted = [
            item for item in work.work_items if not any(SAME.match(each.operator_name) for each in item.mutations)
        ]
        kept = {item.job_id for item in chance.sample(wanted, min(each, len(wanted)))}
        for item in list(work.work_items):
            if item.job_id not in kept:
                work.set_result(item.job_id, WorkResult(WorkerOutcome.SKIPPED))
    cosmic_ray("exec")
    with use_db(session, WorkDB.Mode.open) as work:
        survived = [result.diff or job for job, result in work.results if result.test_outcome is TestOutcome.SURVIVED]
    return len(kept), [difference for difference in survived if not means_the_same(difference, entry)]


def main() -> None:
    table = tomllib.loads((ROOT / ".ci" / "mutants.toml").read_text())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=25, help="mutants of a module")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="which of them")
    parser.add_argument("--report", type=Path, default=ROOT / "build" / "mutants.txt")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of: {', '.join(table)}")
    given = parser.parse_args()
    if unknown := set(given.modules) - set(table):
        parser.error(f"not in .ci/mutants.toml: {', '.join(sorted(unknown))}")
    if INSTALLED.resolve().is_relative_to(ROOT / "src"):
        parser.error("kscale is installed from the repository's own files: they would be changed")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    chance = random.Random(given.seed)
    lines, tried, alive, head = [], 0, 0, ""
    given.report.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as room:
        for module, entry in table.items():
            if given.modules and module not in given.modules:
                continue
            count, survived = mutated(module, entry, given.each, chance, Path(room))
            tried, alive = tried + count, alive + len(survived)
            lines.append(f"== {module}: {len(survived)} of {count} survived\n")
            lines += [f"{difference}\n" for difference in survived]
            head = f"{alive} of {tried} mutants survived (--each {given.each} --seed {given.seed})\n"
            given.report.write_text("\n".join([head, *lines]))  # who is interrupted has those so far
    sys.stdout.write(f"{head}{given.report}\n")


if __name__ == "__main__":
    main()
