"""Mutants of a sample of all Python modules (``nox -s mutants``): a report lists those that no test notices.

Run by the interpreter of an environment with kscale, the tests' tools, and cosmic-ray. Nothing in the
repository is mutated: a copy of the tree, with the installed kscale as its src/kscale, lies in a folder of its own.

1. Draw mutants by the seed: in proportion to each package's mutable code, at least ten of each package.
2. Order the files of tests, and the kinds of golden answers, for each mutant: by names in common with its module, and
   by how many imports lead there.
3. Run the ten nearest of them until a test fails. What none of them notices has survived. Tests are collected once; a
   fork of this process has the mutant instead of the function.
4. Run the tests that failed once more without any mutant: one that fails even then has noticed nothing.

    python .ci/mutants.py [--sample N] [--seed N] [--room DIR] [--minutes N] [--report FILE] [MODULE ...]
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import gc
import importlib.util
import inspect
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
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple, NoReturn

ROOT = Path(__file__).parents[1]
LEAST = 10
"""Mutants of each package, however small it is."""
NEAREST, AT_IMPORT = 10, 4
"""How many files of tests, or kinds of golden answers, judge a mutant, and one of what runs at import."""
TEST_SECONDS, CPU_SECONDS, WALL_SECONDS = 10.0, 15.0, 240.0
"""What one test may take, when no further test of a mutant begins, and what they may take together with waiting."""
OPTIONS = ("-q", "-p", "no:cacheprovider", "-n", "0")

SLOW = re.compile(r"\b(subprocess|multiprocessing|sys\.executable)\b|ProcessPool")
"""Tests that start programs: they are chosen where the others are further away."""

IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]+)|import[ \t]+([\w., \t]+))", re.MULTILINE
)

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


def imports_of(text: str, package: str) -> set[str]:
    """Return the names of the modules that a text imports, and of what it imports of them, wherever it does."""
    names: set[str] = set()
    for dots, source, imported, modules in IMPORT.findall(text):
        if modules:
            names |= {each.split()[0] for each in modules.split(",") if each.strip()}
            continue
        above = package.split(".")[: len(package.split(".")) - len(dots) + 1] if dots else []
        module = ".".join([*above, *filter(None, [source])])
        names |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", imported))}
    return names


class Choice:
    """Which tests can notice a mutant, the nearest first: files of tests, and kinds of golden answers."""

    def __init__(self, tree: Path) -> None:
        self._imports: dict[str, set[str]] = {}
        for path in sorted((tree / "src/kscale").rglob("*.py")):
            name = ".".join(path.relative_to(tree / "src").with_suffix("").parts).removesuffix(".__init__")
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            self._imports[name] = imports_of(path.read_text(), package)
        kinds = {path.name.removesuffix(".jsonl.gz") for path in (tree / "tests/golden/vectors").glob("*.gz")}
        self._tests: dict[str, Path] = {}
        for path in sorted((tree / "tests").rglob("*.py")):
            name = path.relative_to(tree).as_posix()
            dotted = ".".join(path.relative_to(tree / "tests").with_suffix("").parts)
            self._imports[dotted] = imports_of(path.read_text(), dotted.rpartition(".")[0])
            if path.name.startswith("test_") and not name.startswith("tests/golden"):
                self._tests[name] = path
            elif name.startswith("tests/golden/adapters/") and path.stem.replace("_", "-") in kinds:
                self._tests[f"--golden-kind={path.stem.replace('_', '-')}"] = path
        self._importers: dict[str, set[str]] = {}
        for name, imports in self._imports.items():
            for each in imports:
                self._importers.setdefault(each, set()).add(name)
        self._tree = tree
        self._texts = {name: path.read_text() for name, path in self._tests.items()}
        self._words = {name: {*re.findall(r"\w+", text)} for name, text in self._texts.items()}
        self._slow = {name: bool(SLOW.search(text)) for name, text in self._texts.items()}

    def tests(self, file: str, definition: str = "") -> list[str]:
        """Return files and kinds for a file below src/kscale, by points for shared names and for close imports."""
        module = ".".join(["kscale", *Path(file).with_suffix("").parts]).removesuffix(".__init__")
        points: dict[str, int] = {}
        distances = self._distances(module)
        for name, path in self._tests.items():
            dotted = ".".join(path.relative_to(self._tree / "tests").with_suffix("").parts)
            distance = distances.get(dotted, 99)
            text = self._texts[name]
            is_slow = self._slow[name]
            total = 3 * nearness(file, name) + {1: 6, 2: 4, 3: 2}.get(distance, 0)
            total += 4 * (len(definition) > 3 and definition in self._words[name]) + 4 * (module in text)
            total -= 5 * is_slow
            if total > 0 and (distance < 99 or "kscale" in text):
                points[name] = total
        return sorted(points, key=lambda name: (-points[name], len(self._texts[name]), name))

    def importers(self, module: str) -> list[str]:
        """Return files and kinds that import a module of the tests, the fewest imports first; itself included."""
        distances = self._distances(module)
        dotted = {
            name: ".".join(path.relative_to(self._tree / "tests").with_suffix("").parts)
            for name, path in self._tests.items()
        }
        names = [name for name in self._tests if dotted[name] in distances]
        return sorted(names, key=lambda name: (distances[dotted[name]], name))

    def naming(self, text: str) -> list[str]:
        """Return files and kinds whose source contains a text."""
        return [name for name, source in self._texts.items() if text in source]

    def _distances(self, module: str) -> dict[str, int]:
        """Return how many imports lead from each file to a module: those that take three at most."""
        distances = {module: 0}
        edge = {module}
        for steps in range(1, 4):
            edge = {name for each in edge for name in self._importers.get(each, ())} - distances.keys()
            distances |= dict.fromkeys(edge, steps)
        return distances


def nearness(module: str, test: str) -> int:
    """Return how many words the path of a module and that of a file of tests, or a golden kind's name, share."""
    words = re.findall(r"[a-z0-9]+", module.removesuffix(".py"))
    return len({*words} & {*re.findall(r"[a-z0-9]+", test)})


def definition_of(source: str, line: int) -> str:
    """Return the name of the innermost public function or class around a line: a test may use it."""
    lines = source.split("\n")[:line]
    indent = len(lines[-1]) - len(lines[-1].lstrip()) + 1
    for text in reversed(lines):
        match = re.match(r"( *)(?:(?:async )?def|class) (\w+)", text)
        if match and len(match[1]) < indent:
            indent = len(match[1])
            if not match[2].startswith("_"):
                return match[2]
    return ""


def swaps(source: str, mutated: str, path: Path) -> list[tuple[CodeType, CodeType]] | None:
    """Return the codes of functions that a mutant changes, with the new ones: None where what runs at import does."""
    pairs: list[tuple[CodeType, CodeType]] = []

    def compare(old: CodeType, new: CodeType) -> bool:
        inner, other = ([each for each in code.co_consts if isinstance(each, CodeType)] for code in (old, new))
        own, others = (
            (code.co_code, code.co_names, [repr(each) for each in code.co_consts if not isinstance(each, CodeType)])
            for code in (old, new)
        )
        is_function = bool(old.co_flags & inspect.CO_OPTIMIZED)
        if is_function and old != new:
            pairs.append((old, new))
        if not is_function and (own != others or len(inner) != len(other)):
            return False
        return all(compare(*pair) for pair in zip(inner, other, strict=False)) or is_function

    codes = (compile(text, str(path), "exec", dont_inherit=True) for text in (source, mutated))
    same_import = compare(*codes)
    return pairs if same_import and all(old.co_freevars == new.co_freevars for old, new in pairs) else None


class Server:
    """A plugin of pytest that collects tests once, and then runs some of them in forks, each with a mutant.

    A fork exchanges the code of a function, so that nothing is imported or collected for a mutant. The mutant is on
    disk, too: for modules that a test imports first, and for programs that it starts.
    """

    def __init__(self, tree: Path, room: Path, work: Callable[[Server], None]) -> None:
        self._tree, self._room, self._work = tree, room, work
        self._items: dict[str, list[Any]] = {}
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = {}

    def pytest_runtestloop(self, session: Any) -> bool:
        for item in session.items:
            cases = getattr(item, "callspec", None) and item.callspec.params.get("golden_cases")
            name = f"--golden-kind={cases[0].kind}" if cases else item.nodeid.partition("::")[0]
            self._items.setdefault(name, []).append(item)
        for each in gc.get_objects():
            if type(each) is FunctionType and each.__code__.co_filename.startswith(str(self._tree / "src")):
                self._functions.setdefault(_place(each.__code__), []).append(each)
        gc.freeze()  # forks share what is there
        self._work(self)
        return True

    def broken(self, tests: Collection[str]) -> set[str]:
        """Return which tests fail without any mutant."""
        items = [item for file in self._items.values() for item in file if item.nodeid in tests]
        self._fork((), items, stop=False)
        return {*(self._room / "failed.txt").read_text().splitlines()} & {*tests}

    def run(self, pairs: Sequence[tuple[CodeType, CodeType]], files: Sequence[str], skip: Container[str]) -> str | None:
        """Return the first test that notices a mutant, if any does."""
        items = [item for file in files for item in self._items.get(file, ()) if item.nodeid not in skip]
        self._fork(pairs, items, stop=True)
        return next(iter((self._room / "failed.txt").read_text().splitlines()), None)

    def _fork(self, pairs: Sequence[tuple[CodeType, CodeType]], items: Sequence[Any], *, stop: bool) -> None:
        (self._room / "failed.txt").write_text("")
        child = os.fork()
        if not child:
            self._child(pairs, items, stop)
        until = time.monotonic() + WALL_SECONDS * (1 if stop else 10)
        try:
            while time.monotonic() < until:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended and os.WIFEXITED(status):
                    return
                if ended:
                    break
                time.sleep(0.02)
            with (self._room / "failed.txt").open("a") as failed:  # it crashed, or waits for ever
                failed.write((self._room / "now.txt").read_text())
        finally:  # also what its tests left running
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)

    def _child(self, pairs: Sequence[tuple[CodeType, CodeType]], items: Sequence[Any], stop: bool) -> NoReturn:
        failed, current = (self._room / "failed.txt").open("a"), ""

        def fails(test: str) -> None:
            failed.write(f"{test}\n")
            failed.flush()
            if stop:
                os._exit(1)

        class Reports:
            def pytest_runtest_logreport(self, report: Any) -> None:
                if report.failed:
                    fails(report.nodeid)

        try:
            os.setsid()
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGVTALRM, lambda *_: fails(current))
            output = (self._room / "output.txt").open("w")
            for number in (1, 2):
                os.dup2(output.fileno(), number)
            for old, new in pairs:
                for function in self._functions.get(_place(old), ()):
                    function.__code__ = new
            for item in items[:1]:
                item.config.pluginmanager.register(Reports())
            begun = time.process_time()
            for item, following in zip(items, [*items[1:], None], strict=True):
                if stop and time.process_time() - begun > CPU_SECONDS:
                    break
                current = item.nodeid
                (self._room / "now.txt").write_text(f"{current}\n")
                signal.setitimer(signal.ITIMER_VIRTUAL, TEST_SECONDS)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except BaseException:  # noqa: BLE001  # the forked process must not return to its parent's code
            traceback.print_exc()
            fails(current)
        os._exit(0)


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def run_apart(tree: Path, files: Sequence[str], skip: Iterable[str], output: Path) -> str | None:
    """Return the first test that fails in a pytest of its own: for a mutant of what runs at import."""
    paths = [each for each in files if not each.startswith("--")]
    kinds = [each for each in files if each.startswith("--")]
    for arguments in filter(None, (paths, kinds and ["tests/golden", *kinds])):
        command = [sys.executable, "-m", "pytest", "-x", *OPTIONS, *(f"--deselect={test}" for test in skip), *arguments]
        variables = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            run = subprocess.run(
                command, cwd=tree, env=variables, capture_output=True, text=True, timeout=WALL_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            continue
        output.write_text(run.stdout + run.stderr)
        if run.returncode not in (0, 5):
            failed = re.findall(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", run.stdout, re.MULTILINE)
            return str(failed[0]) if failed else (run.stdout + run.stderr)[-300:]
    return None


def judge(server: Server, tree: Path, mutant: Mutant, files: Sequence[str], skip: Collection[str]) -> dict[str, Any]:
    """Run the tests of a mutant, and return what they say: `killed` by which of them, or `survived`."""
    path = tree / "src/kscale" / mutant.module
    source = path.read_text()
    mutated = mutate(mutant, source)
    name = f"src/kscale/{mutant.module}"
    difference = "\n".join(difflib.unified_diff(source.split("\n"), mutated.split("\n"), name, name, lineterm="", n=2))
    pairs = swaps(source, mutated, path)
    try:
        path.write_text(mutated)
        if pairs is None:
            by = run_apart(tree, files[:AT_IMPORT], skip, tree.parent / "output.txt")
        else:
            by = server.run(pairs, files, skip)
    finally:
        path.write_text(source)
    outcome = "survived" if by is None else "killed"
    return {**mutant._asdict(), "difference": difference, "outcome": outcome, "by": by, "files": [*files]}


def report_of(results: Sequence[dict[str, Any]], same: dict[str, list[list[str]]], head: str) -> str:
    """Return the report: numbers by package, then the differences of mutants that no test notices."""
    counts: dict[str, Counter[str]] = {}
    lines = []
    for number, result in enumerate(results):
        outcome = result["outcome"]
        if outcome != "killed" and means_the_same(result["difference"], same.get(result["module"], [])):
            outcome = "same"
        counts.setdefault(package_of(result["module"]), Counter())[outcome] += 1
        if outcome == "survived":
            lines.append(f"== {number} {result['module']} {result['operator']}: {outcome}\n{result['difference']}\n")
    columns = ("killed", "survived", "same")
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
    parser.add_argument("--minutes", type=float, default=float("inf"), help="minutes after which no mutant is begun")
    parser.add_argument("--report", type=Path, default=ROOT / "build" / "mutants.txt")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="file or folder below src/kscale (default: all)")
    inputs = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the module that is a mutant just now becomes itself again
    with tempfile.TemporaryDirectory() as temporary:
        room = (inputs.room or Path(temporary)).resolve()
        room.mkdir(parents=True, exist_ok=True)
        tree, sample, done = room / "tree", room / f"drawn-{inputs.sample}-{inputs.seed}.json", room / "results.jsonl"
        if not tree.exists():
            copy_tree(tree)
        package = tree / "src/kscale"
        if not sample.exists():
            drawn = draw(all_mutants(package, inputs.modules), inputs.sample, inputs.seed, package)
            sample.write_text(json.dumps([mutant._asdict() for mutant in drawn]))
        drawn = [Mutant(**{**each, "lines": tuple(each["lines"])}) for each in json.loads(sample.read_text())]
        operators()  # before the tests' sys.path
        choice = Choice(tree)
        files = []
        for mutant in drawn:
            definition = definition_of((package / mutant.module).read_text(), mutant.lines[0])
            files.append(choice.tests(mutant.module, definition)[:NEAREST])
        results = [json.loads(line) for line in done.read_text().splitlines()] if done.exists() else []

        def report() -> None:
            done.write_text("".join(f"{json.dumps(result)}\n" for result in results))
            head = f"{len(results)} of {len(drawn)} drawn mutants tried (--sample {inputs.sample} --seed {inputs.seed})"
            inputs.report.parent.mkdir(exist_ok=True)
            inputs.report.write_text(report_of(results, table, head))  # who is interrupted has those so far

        def work(server: Server) -> None:
            begun = time.monotonic()
            for number in range(len(results), len(drawn)):
                if time.monotonic() - begun > inputs.minutes * 60:
                    break
                results.append(judge(server, tree, drawn[number], files[number], ()))
                report()
            skip: set[str] = set()
            while broken := server.broken({result["by"] for result in results if result["by"]} - skip):
                skip |= broken
                for number, result in enumerate(results):
                    if result["by"] in broken:
                        results[number] = judge(server, tree, drawn[number], files[number], skip)
            report()

        chosen = sorted({name for each in files[len(results) :] for name in each})
        if any(name.startswith("--") for name in chosen):
            chosen.append("tests/golden")
        run_server(tree, Server(tree, room, work), chosen)
        usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        sys.stdout.write(f"{sum(each.ru_utime + each.ru_stime for each in usage) / 60:.1f} CPU minutes\n")
    sys.stdout.write(f"{inputs.report.read_text().partition('==')[0]}{inputs.report}\n")


def run_server(tree: Path, server: Server, arguments: Sequence[str]) -> None:
    """Collect tests of the copy in this process, and let the server run them."""
    import pytest

    os.chdir(tree)
    os.environ.update(PYTHONPATH=str(tree / "src"), PYTHONDONTWRITEBYTECODE="1")
    sys.dont_write_bytecode = True
    sys.path[:] = [str(tree / "src"), *(each for each in sys.path if Path(each) != ROOT / ".ci")]
    status = pytest.main([*OPTIONS, *arguments], plugins=[server])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(f"pytest ended with {status!r}")


if __name__ == "__main__":
    main()
