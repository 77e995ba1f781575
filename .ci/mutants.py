"""Mutants of a sample of all Python modules (``nox -s mutants``): a report lists those that no test notices.

Run by the interpreter of an environment with kscale, the tests' tools, and cosmic-ray. Nothing in the
repository is mutated: a copy of the tree, with the installed kscale as its src/kscale, lies in a folder of its own.

1. Draw mutants by the seed: in proportion to each package's mutable code, at least ten of each package.
2. Order the files of tests, and the kinds of golden answers, for each mutant: by names in common with its module, and
   by how many imports lead there.
3. Run the nearest of them until a test fails: two, then four. What none of them notices has survived.
4. Run the tests that failed once more without any mutant: one that fails even then has noticed nothing.

    python .ci/mutants.py [--sample N] [--seed N] [--room DIR] [--minutes N] [--report FILE] [MODULE ...]
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import importlib
import importlib.util
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
LEAST = 10
"""Mutants of each package, however small it is."""
STAGES = (2, 4)
"""How many files of tests, or kinds of golden answers, the runs of a mutant have, one run after the other."""
CPU_SECONDS, WALL_SECONDS = 25, 240.0
"""What one run may take: a mutant that waits for ever is listed as undecided."""

PRELOADED = ("pytest", "_pytest.assertion.rewrite", "hypothesis", "numpy", "msgspec", "yaml", "click", "jsonschema")
"""What runs of pytest need and kscale is no part of: imported once."""

OPTIONS = ("-q", "-p", "no:cacheprovider", "-n", "0", "-W", "ignore::pytest.PytestAssertRewriteWarning")

SLOW = re.compile(r"\b(subprocess|multiprocessing|sys\.executable)\b|ProcessPool")
"""Tests that start programs: they are chosen where the others are further away."""

INERT = frozenset({"name", "string", "newline", "endmarker", "fstring_start", "fstring_string", "fstring_end"})
PUNCTUATION = frozenset("()[]{},:.=@") | {"->", ":=", "..."}
"""Leaves of a tree of parso that no operator of mutation changes: most of all."""

LOOSER = re.compile(r"\b(strict|kw_only)=True\b")
"""What refuses a call that nobody makes: without it every answer is the same."""


class Mutant(NamedTuple):
    """One mutant: which operator of mutation, at which of its places in a module, and the lines that must run."""

    module: str
    """Path below src/kscale."""
    operator: str
    occurrence: int
    lines: tuple[int, ...]

    @property
    def package(self) -> str:
        return package_of(self.module)


def package_of(module: str) -> str:
    """Return the package of a module by its path below src/kscale: `top` for the modules of kscale itself."""
    head, _, rest = module.partition("/")
    return head if rest and head != "_native" else "top"


def means_the_same(difference: str, same: Iterable[Sequence[str]]) -> bool:
    """Check whether a mutant, as a difference of one line, answers as the module does: no test can notice it."""
    lines = [line for line in difference.splitlines() if re.match(r"[-+](?![-+]{2} )", line)]
    removed, added = ([line[1:].strip() for line in lines if line[0] == sign] for sign in "-+")
    if len(removed) != 1 or len(added) != 1:
        return False
    (was,), (is_now,) = removed, added
    return is_now == LOOSER.sub(r"\1=False", was) or [was, is_now] in [[*pair] for pair in same]


def quotas(sizes: dict[str, int], sample: int) -> dict[str, int]:
    """Return how many mutants to draw of each package: in proportion to its size, but at least ten or all it has."""
    least = {package: min(LEAST, size) for package, size in sizes.items()}
    floors: set[str] = set()
    while True:  # who gets the least takes no part in the proportion of the others
        free = {package: size for package, size in sizes.items() if package not in floors}
        left = sample - sum(least[package] for package in floors)
        total = sum(free.values())
        shares = {package: left * size / total for package, size in free.items()}
        below = {package for package, share in shares.items() if share < least[package]}
        if not below:
            break
        floors |= below
    result = {package: least[package] if package in floors else int(shares[package]) for package in sizes}
    fractions = sorted(free, key=lambda package: (result[package] - shares[package], package))
    for package in fractions[: max(0, sample - sum(result.values()))]:
        result[package] += 1
    return result


def draw(places: dict[str, list[Mutant]], sample: int, seed: int, package: Path) -> list[Mutant]:
    """Draw mutants of all packages that compile, in an order that an interrupted run may end at any of them."""
    chance = random.Random(seed)
    number = quotas({name: len(mutants) for name, mutants in places.items()}, sample)
    drawn = []
    for name, mutants in sorted(places.items()):
        order = chance.sample(mutants, len(mutants))
        drawn += islice((mutant for mutant in order if compiles(mutant, package)), number[name])
    chance.shuffle(drawn)
    return drawn


def compiles(mutant: Mutant, package: Path) -> bool:
    """Check whether a mutant is Python: a few are not, such as a default of `*` swapped."""
    try:
        compile(mutate(mutant, (package / mutant.module).read_text()), mutant.module, "exec")
    except SyntaxError:
        return False
    return True


def mutants_of(module: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a module; annotations and what only a type checker reads have none."""
    from cosmic_ray.ast import get_ast  # only the session of mutants has it

    nodes = list(mutable_nodes(get_ast(source)))
    for name, operator in operators().items():
        places = ((node, *place) for node in nodes for place in operator.mutation_positions(node))
        for occurrence, (node, start, end) in enumerate(places):
            yield Mutant(module, name, occurrence, _lines(node, start[0], end[0]))


@cache
def operators() -> dict[str, Any]:
    """Return the operators of mutation by name."""
    import mutation_operators as ours
    from cosmic_ray.plugins import get_operator

    return {
        **{name: get_operator(name)() for name in ours.NAMES},
        **{f"own/{each.__name__}": each() for each in ours.OWN},
    }


def mutable_nodes(node: Any) -> Iterator[Any]:
    """Yield a node and those below it, in their order, without annotations and leaves that no operator changes."""
    if node.type in INERT or (node.type == "operator" and node.value in PUNCTUATION):
        return
    yield node
    if node.type == "if_stmt" and node.children[1].get_code().strip() == "TYPE_CHECKING":
        return
    annotation = {
        "annassign": lambda: node.children[1],
        "tfpdef": lambda: node.children[2],
        "funcdef": lambda: node.annotation,
    }.get(node.type, lambda: None)()
    for child in getattr(node, "children", ()):
        if child is not annotation:
            yield from mutable_nodes(child)


def _lines(node: Any, first: int, last: int) -> tuple[int, ...]:
    """Return the lines of the statement that a mutated node is of: of a compound one, its head's as far as the node."""
    while node.parent is not None and node.parent.type not in ("file_input", "suite", "simple_stmt"):
        node = node.parent
    start = node.start_pos[0]
    simple = node.parent is not None and node.parent.type == "simple_stmt"
    return tuple(range(start if simple else first, (node.end_pos[0] if simple else last) + 1))


def mutate(mutant: Mutant, source: str) -> str:
    """Return the source of a module with the mutant in it."""
    from cosmic_ray.ast import get_ast

    operator = operators()[mutant.operator]
    tree = get_ast(source)
    places = (
        (node, index) for node in list(mutable_nodes(tree)) for index, _ in enumerate(operator.mutation_positions(node))
    )
    node, index = next(islice(places, mutant.occurrence, None))
    mutated = operator.mutate(node, index)
    if mutated is not node:
        siblings = node.parent.children
        siblings[next(number for number, each in enumerate(siblings) if each is node)] = mutated
    return str(tree.get_code())


def all_mutants(package: Path, chosen: Sequence[str]) -> dict[str, list[Mutant]]:
    """Return the mutants of all modules, or of those chosen, by package."""
    places: dict[str, list[Mutant]] = {}
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package).as_posix()
        if not chosen or any(module == each or module.startswith(f"{each.rstrip('/')}/") for each in chosen):
            places.setdefault(package_of(module), []).extend(mutants_of(module, path.read_text()))
    return {name: mutants for name, mutants in places.items() if mutants}


def copy_tree(tree: Path) -> None:
    """Copy the repository's files and the kscale that this interpreter imports to a folder of their own."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if not name.startswith("src/kscale/") and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    spec = importlib.util.find_spec("kscale")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("kscale is not installed here")
    installed = spec.submodule_search_locations[0]
    shutil.copytree(installed, tree / "src/kscale", ignore=shutil.ignore_patterns("__pycache__"))
    # By hashes: a mutant of the same size and second would pass for the module that it is of.
    compiling = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "src"]
    subprocess.run(compiling, cwd=tree, check=True)


def imports_of(path: Path, package: str) -> set[str]:
    """Return the names of the modules that a file imports, and of what it imports of them, wherever it does."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*above, *filter(None, [node.module])])
            names |= {source, *(f"{source}.{each.name}" for each in node.names)}
    return names


class Choice:
    """Which tests can notice a mutant, the nearest first: files of tests, and kinds of golden answers."""

    def __init__(self, tree: Path) -> None:
        self._imports: dict[str, set[str]] = {}
        for path in sorted((tree / "src/kscale").rglob("*.py")):
            name = ".".join(path.relative_to(tree / "src").with_suffix("").parts).removesuffix(".__init__")
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            self._imports[name] = imports_of(path, package)
        self._tests: dict[str, Path] = {}
        for path in sorted((tree / "tests").rglob("*.py")):
            name = path.relative_to(tree).as_posix()
            dotted = ".".join(path.relative_to(tree / "tests").with_suffix("").parts)
            self._imports[dotted] = imports_of(path, dotted.rpartition(".")[0])
            if path.name.startswith("test_") and not name.startswith("tests/golden"):
                self._tests[name] = path
            elif name.startswith("tests/golden/adapters/") and path.name != "__init__.py":
                self._tests[f"--golden-kind={path.stem.replace('_', '-')}"] = path
        self._tree = tree
        self._kinds = {path.name.removesuffix(".jsonl.gz") for path in (tree / "tests/golden/vectors").glob("*.gz")}
        self._texts = {name: path.read_text() for name, path in self._tests.items()}

    def tests(self, mutant: Mutant, definition: str) -> list[str]:
        """Return files and kinds by how many points they have: the names they share, and how far an import is."""
        module = ".".join(["kscale", *Path(mutant.module).with_suffix("").parts]).removesuffix(".__init__")
        points: dict[str, int] = {}
        defined = re.compile(rf"\b{re.escape(definition)}\b") if len(definition) > 3 else None
        for name, path in self._tests.items():
            if name.startswith("--golden-kind=") and name.partition("=")[2] not in self._kinds:
                continue
            dotted = ".".join(path.relative_to(self._tree / "tests").with_suffix("").parts)
            distance = self._distance(dotted, module)
            text = self._texts[name]
            total = 3 * nearness(mutant.module, name) + {1: 6, 2: 4, 3: 2}.get(distance, 0)
            total += 4 * bool(defined and defined.search(text)) + 4 * (module in text)
            total -= 5 * bool(SLOW.search(text))
            if total > 0 and (distance < 99 or "kscale" in text):
                points[name] = total
        return sorted(points, key=lambda name: (-points[name], len(self._texts[name]), name))

    def _distance(self, start: str, wanted: str) -> int:
        """Return how many imports lead from a file to a module: 99 without a way."""
        seen, edge = {start}, {start}
        for steps in range(1, 5):
            edge = {name for each in edge for name in self._imports.get(each, ())} - seen
            if wanted in edge:
                return steps
            seen |= edge
        return 99


def nearness(module: str, test: str) -> int:
    """Return how many words the path of a module and that of a file of tests, or a golden kind's name, share."""
    words = re.findall(r"[a-z0-9]+", module.removesuffix(".py"))
    return len({*words} & {*re.findall(r"[a-z0-9]+", test)})


def stages(tests: Sequence[str]) -> Iterator[list[str]]:
    """Yield the arguments of pytest for one run after the other: each has more files than the one before."""
    begin = 0
    for size in STAGES:
        part = tests[begin : begin + size]
        files = [each for each in part if not each.startswith("--")]
        kinds = [each for each in part if each.startswith("--")]
        if files:
            yield files
        if kinds:
            yield ["tests/golden", *kinds]
        begin += size


def definition_of(source: str, line: int) -> str:
    """Return the name of the innermost public function or class around a line: a test may use it."""
    around = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    public = [node.name for node in around if not node.name.startswith("_")]
    return public[-1] if public else ""


def run_pytest(tree: Path, arguments: Sequence[str], output: Path) -> int | None:
    """Run pytest in a fork of this process, which has imported all but kscale; None where it is not done in time."""
    child = os.fork()
    if not child:
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.chdir(tree)
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
            with output.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            os.environ.update(PYTHONPATH=str(tree / "src"), PYTHONDONTWRITEBYTECODE="1")
            sys.dont_write_bytecode = True
            sys.path[:] = [str(tree / "src"), *(each for each in sys.path if Path(each) != ROOT / ".ci")]
            import pytest

            status = int(pytest.main([*OPTIONS, *arguments]))
            sys.stdout.flush()
        except BaseException:  # noqa: BLE001 - a fork never returns to its caller's frames
            traceback.print_exc()
            status = 70
        os._exit(status)
    until = time.monotonic() + WALL_SECONDS
    try:
        while time.monotonic() < until:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else None
            time.sleep(0.05)
        return None
    finally:  # also what its tests left running
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)


def judge(tree: Path, mutant: Mutant, choice: Choice, room: Path, broken: Iterable[str]) -> dict[str, Any]:
    """Run the tests of a mutant, and return what they say: `killed` by which test, `survived`, or not done in time."""
    path = tree / "src/kscale" / mutant.module
    source = path.read_text()
    mutated = mutate(mutant, source)
    name = f"src/kscale/{mutant.module}"
    difference = "\n".join(difflib.unified_diff(source.split("\n"), mutated.split("\n"), name, name, lineterm="", n=2))
    tests = choice.tests(mutant, definition_of(source, mutant.lines[0]))
    result: dict[str, Any] = {**mutant._asdict(), "difference": difference, "tests": [], "outcome": "survived"}
    output = room / "output.txt"
    deselected = [f"--deselect={test}" for test in broken]
    for arguments in stages(tests):
        result["tests"] += arguments
        try:
            path.write_text(mutated)
            status = run_pytest(tree, ["-x", *deselected, *arguments], output)
        finally:
            path.write_text(source)
        if status is None:
            result["outcome"] = "undecided"
            continue
        if status not in (0, 1, 5) and run_pytest(tree, arguments, room / "without.txt") not in (0, 1, 5):
            raise SystemExit(f"pytest {' '.join(arguments)} fails without any mutant:\n{output.read_text()}")
        if status not in (0, 5):
            failed = re.findall(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", output.read_text(), re.MULTILINE)
            return {**result, "outcome": "killed", "by": failed[0] if failed else output.read_text()[-300:]}
    return result


def broken_tests(tree: Path, results: Sequence[dict[str, Any]], room: Path) -> set[str]:
    """Return which of the tests that killed mutants fail without any, which says nothing of a mutant."""
    tests = sorted({result["by"] for result in results if "::" in result.get("by", "")})
    if not tests:
        return set()
    (room / "arguments").write_text("".join(f"{test}\n" for test in tests))
    run_pytest(tree, [f"@{room / 'arguments'}"], room / "verified.txt")
    failed = re.findall(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", (room / "verified.txt").read_text(), re.MULTILINE)
    return {*failed} & {*tests}


def report_of(results: Sequence[dict[str, Any]], same: dict[str, list[list[str]]], head: str) -> str:
    """Return the report: numbers by package, then the differences of mutants that no test notices."""
    counts: dict[str, Counter[str]] = {}
    lines = []
    for number, result in enumerate(results):
        outcome = result["outcome"]
        if outcome != "killed" and means_the_same(result["difference"], same.get(result["module"], [])):
            outcome = "same"
        counts.setdefault(package_of(result["module"]), Counter())[outcome] += 1
        if outcome in ("survived", "undecided"):
            lines.append(f"== {number} {result['module']} {result['operator']}: {outcome}\n{result['difference']}\n")
    columns = ("killed", "survived", "undecided", "same")
    table = [f"{'package':12}{'drawn':>8}" + "".join(f"{column:>11}" for column in columns)]
    total = Counter[str]()
    for package in sorted(counts):
        total += counts[package]
    for package, count in [*sorted(counts.items()), ("all", total)]:
        table.append(f"{package:12}{count.total():8}" + "".join(f"{count[column]:11}" for column in columns))
    return "\n".join([head, "", *table, "", *lines])


def main() -> None:
    table = tomllib.loads((ROOT / ".ci" / "mutants.toml").read_text())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=300, help="how many mutants to draw")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="which of them")
    parser.add_argument("--room", type=Path, help="where to keep the copy and what is recorded: a second run goes on")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no mutant after so many minutes")
    parser.add_argument("--report", type=Path, default=ROOT / "build" / "mutants.txt")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="file or folder below src/kscale (default: all)")
    inputs = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the module that is a mutant just now becomes itself again
    with tempfile.TemporaryDirectory() as temporary:
        room = inputs.room or Path(temporary)
        room.mkdir(parents=True, exist_ok=True)
        begun = time.monotonic()
        known: set[str] = set()
        head = ""
        tree, done = room / "tree", room / "results.jsonl"
        if not tree.exists():
            copy_tree(tree)
        sample = room / f"drawn-{inputs.sample}-{inputs.seed}.json"
        if not sample.exists():
            places = all_mutants(tree / "src/kscale", inputs.modules)
            drawn = draw(places, inputs.sample, inputs.seed, tree / "src/kscale")
            sample.write_text(json.dumps([mutant._asdict() for mutant in drawn]))
        drawn = [Mutant(**{**each, "lines": tuple(each["lines"])}) for each in json.loads(sample.read_text())]
        choice = Choice(tree)
        results = [json.loads(line) for line in done.read_text().splitlines()] if done.exists() else []
        inputs.report.parent.mkdir(exist_ok=True)
        for module in PRELOADED:
            importlib.import_module(module)
        for mutant in drawn[len(results) :]:
            if time.monotonic() - begun > inputs.minutes * 60:
                break
            results.append(judge(tree, mutant, choice, room, ()))
            with done.open("a") as file:
                file.write(json.dumps(results[-1]) + "\n")
            head = f"{len(results)} of {len(drawn)} drawn mutants tried (--sample {inputs.sample} --seed {inputs.seed})"
            inputs.report.write_text(report_of(results, table, head))  # who is interrupted has those so far
        while broken := broken_tests(tree, results, room) - known:
            known |= broken
            for number, (mutant, result) in enumerate(zip(drawn, results, strict=False)):
                if result.get("by") in broken:
                    results[number] = judge(tree, mutant, choice, room, known)
        inputs.report.write_text(report_of(results, table, head))
        usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        sys.stdout.write(f"{sum(each.ru_utime + each.ru_stime for each in usage) / 60:.1f} CPU minutes\n")
    sys.stdout.write(f"{inputs.report.read_text().partition('==')[0]}{inputs.report}\n")


if __name__ == "__main__":
    main()
