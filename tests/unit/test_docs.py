"""Every ```python block of every documentation page and of the README runs, page by page, in one namespace."""

from __future__ import annotations

import ast
import contextlib
import doctest
import gzip
import importlib
import inspect
import pkgutil
import re
import runpy
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

import kscale
from kscale.cli import registry

kscale.build_info()  # an editable install compiles at its first use: here, not inside an example
ROOT = Path(__file__).parents[2]
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in TEXTS if "```python" in page.read_text()]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def run_session(block: str, names: dict[str, Any], page: Path, line: int) -> None:
    """A block with prompts: what follows a statement is what it prints."""
    test = doctest.DocTestParser().get_doctest(block, names, page.name, str(page), line)
    output: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(test, out=output.append, clear_globs=False)
    names.update(test.globs)
    assert not runner.failures, "".join(output)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_examples(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    text = page.read_text()
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start(1))
        block = match[1]
        if ">>>" in block:
            run_session(block, names, page, line)
        else:
            exec(compile("\n" * line + block, str(page), "exec"), names)


REFERENCE = sorted(page.stem for page in (ROOT / "docs" / "reference").glob("*.md"))


@pytest.mark.parametrize("module", REFERENCE)
def test_every_public_name_has_a_docstring_of_its_own(module: str) -> None:
    """What the reference is made of. A name that is data has a text behind it, or its module's docstring names it."""
    result = importlib.import_module(module)
    missing = []
    for name in result.__all__:
        value = getattr(result, name)
        if inspect.isroutine(value) or inspect.isclass(value):
            inherited = inspect.isclass(value) and value.__doc__ in {base.__doc__ for base in value.__mro__[1:]}
            if not value.__doc__ or inherited:
                missing.append(name)
    assert missing == []


def callables(module: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions of a module."""
    result = importlib.import_module(module)
    for name in result.__all__:
        value = getattr(result, name)
        if inspect.isroutine(value):
            yield name, value


def methods(module: str) -> Iterator[tuple[str, Callable[..., Any], str]]:
    """The public methods of a module's public classes, with what the classes say that they come from."""
    result = importlib.import_module(module)
    for name in result.__all__:
        value = getattr(result, name)
        if not inspect.isclass(value):
            continue
        own = [base for base in value.__mro__ if base.__module__.startswith("kscale")]
        text = "\n".join(base.__doc__ or "" for base in own)
        for method, attribute in (pair for base in own for pair in vars(base).items()):
            call = getattr(attribute, "__func__", attribute)
            if not method.startswith("_") and inspect.isfunction(call):
                yield f"{name}.{method}", call, text


def arguments(call: Callable[..., Any]) -> list[str]:
    return [each for each in inspect.signature(call).parameters if each not in ("self", "cls")]


REFERENCES = re.compile(r":(?:func|meth|class):`~?([\w.]+)`")
SHARED = {
    name
    for row in re.findall(r"^\| (`.*?`) \|", (ROOT / "docs" / "arguments.md").read_text(), re.MULTILINE)
    for name in re.findall(r"\w+", row)
}


def described(call: Callable[..., Any]) -> str:
    """What is said of the arguments of a call: its docstring, and those that this one refers to."""
    own = call.__doc__ or ""
    home = sys.modules[call.__module__]
    texts = [own]
    for reference in REFERENCES.findall(own):
        value: Any = None
        for start in (reference, f"{home.__name__}.{reference}"):
            with contextlib.suppress(AttributeError, ImportError, ValueError):
                value = pkgutil.resolve_name(start)
        texts.append(getattr(value, "__doc__", None) or "")
    return "\n".join(texts)


@pytest.mark.parametrize("module", REFERENCE)
def test_every_argument_of_a_public_function_is_described(module: str) -> None:
    """By its name in the docstring, in one that this refers to, or in the table of what means the same everywhere."""
    missing = [
        f"{name}({argument}=)"
        for name, call in callables(module)
        for text in [described(call)]
        for argument in inspect.signature(call).parameters
        if argument not in SHARED and not re.search(rf"\b{argument}\b", text)
    ]
    assert missing == []


@pytest.mark.parametrize("module", REFERENCE)
def test_every_argument_of_a_public_method_is_described(module: str) -> None:
    """As those of functions are, or by its name in the docstring of the class."""
    missing = [
        f"{name}({argument}=)"
        for name, call, of_class in methods(module)
        for text in [f"{described(call)}\n{of_class}"]
        for argument in arguments(call)
        if argument not in SHARED and not re.search(rf"\b{argument}\b", text)
    ]
    assert missing == []


OF_UPSTREAM = "upstream's flags of the same names"


@cache
def classes_of(module: str) -> dict[str, tuple[ast.ClassDef, list[str]]]:
    """The classes of a module by their qualified names, with the lines of the module: parsed once for all tests."""
    source = inspect.getsource(sys.modules[module])
    lines = source.split("\n")
    classes = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                classes[f"{prefix}{child.name}"] = child, lines
                visit(child, f"{prefix}{child.name}.")
            elif not isinstance(child, ast.expr):
                visit(child, prefix)

    visit(ast.parse(source), "")
    return classes


def source_of(base: type) -> str:
    node, lines = classes_of(base.__module__)[base.__qualname__]
    first = min(each.lineno for each in (node, *node.decorator_list))
    return "\n".join(lines[first - 1 : node.end_lineno])


def field_docs(base: type) -> Iterator[tuple[str, str]]:
    """The fields that a class declares, each with what stands beneath it or behind it."""
    result, lines = classes_of(base.__module__)[base.__qualname__]
    for each, following in zip_longest(result.body, result.body[1:]):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            beneath = str(following.value.value) if is_text else ""
            yield each.target.id, beneath or lines[(each.end_lineno or 1) - 1].partition("#")[2]


SEPARATE_CLASSES = [
    pkgutil.resolve_name(name)
    for page in sorted((ROOT / "docs" / "reference").glob("*.md"))
    for name in re.findall(r"^\.\. autoclass:: (\S+)", page.read_text(), re.MULTILINE)
]
"""Classes that are in the reference and in no ``__all__`` of its modules."""


def undocumented_fields(values: Iterable[type]) -> set[str]:
    """Fields that are described neither beneath them, nor in the docstring of the class or module, nor as flags."""
    missing = set()
    for value in values:
        own = [base for base in inspect.getmro(value) if base.__module__.startswith("kscale")]
        text = "\n".join(f"{base.__doc__}\n{sys.modules[base.__module__].__doc__}" for base in own)
        for field, doc in (pair for base in own for pair in field_docs(base)):
            known = doc or field.startswith("_") or field in SHARED or re.search(rf"\b{field}\b", text)
            if not known and OF_UPSTREAM not in " ".join(text.split()):
                missing.add(f"{value.__name__}.{field}")
    return missing


@pytest.mark.parametrize("module", REFERENCE)
def test_every_field_of_a_public_record_is_described(module: str) -> None:
    result = importlib.import_module(module)
    assert undocumented_fields(filter(inspect.isclass, (getattr(result, name) for name in result.__all__))) == set()


def test_every_field_of_separately_documented_classes_is_described() -> None:
    assert len(SEPARATE_CLASSES) > 5
    assert undocumented_fields(SEPARATE_CLASSES) == set()


QUANTITY = re.compile(
    r"(timeout|delay|duration|interval|period|window|latency|lag|age|elapsed|startup|backoff|horizon|memory|cpu|cores"
    r"|storage|cost|price|request)(?=_|$)"
)
UNIT = re.compile(
    r"second|milli|\bn?s\b|minute|hour|bytes|GiB|MiB|cores|count|samples|ratio|percent|fraction|factor|[Qq]uantit"
)


def numbers(value: Any) -> Iterator[tuple[str, str]]:
    """The arguments or fields of a public name that are numbers, with all that is said of them."""
    if inspect.isclass(value):
        own = [base for base in value.__mro__ if base.__module__.startswith("kscale")]
        fields = {name: kind for base in own for name, kind in inspect.get_annotations(base).items()}
        text = "\n".join(map(source_of, own))
    else:
        fields = {name: each.annotation for name, each in inspect.signature(value).parameters.items()}
        text = described(value)
    for name, kind in fields.items():
        if not name.startswith("_") and re.search(r"\b(int|float|NDArray)\b", str(kind)):
            yield name, text


@pytest.mark.parametrize("module", REFERENCE)
def test_quantities_have_units(module: str) -> None:
    """A number that is a time, an amount or a price: the unit is in its name, or beside its name in the docstring."""
    result = importlib.import_module(module)
    missing = [
        f"{name}.{field}"
        for name in result.__all__
        for value in [getattr(result, name)]
        if inspect.isclass(value) or inspect.isroutine(value)
        for field, text in numbers(value)
        if QUANTITY.search(field) and not UNIT.search(field)
        if not any(re.search(rf"\b{field}\b", part) and UNIT.search(part) for part in re.split(r"\n\n|\. |; ", text))
    ]
    assert missing == []


def raised(call: Callable[..., Any]) -> set[str]:
    """The errors that a function raises itself, and does not catch."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(call)))).body
    caught = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.Try) and block.handlers
        for part in block.body
        for node in ast.walk(part)
    }
    result = (
        node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise) and node.exc is not None and id(node) not in caught
    )
    return {ast.unparse(each).rpartition(".")[2] for each in result}


@pytest.mark.parametrize("module", REFERENCE)
def test_every_error_of_a_public_function_is_named(module: str) -> None:
    missing = [
        f"{name}: {error}"
        for name, call in callables(module)
        if inspect.isfunction(call)
        for error in sorted(raised(call))
        if error[:1].isupper() and error not in (call.__doc__ or "")
    ]
    assert missing == []


SOURCE = re.compile(
    r"``(core|processors|simulator|estimator|expander|utils|clusterstate|observers|provisioningrequest|pkg|apimachinery"
    r"|admission-controller|cloudprovider|drainability|input|logic|routines)/[^`]+``"
    r"|\b\w+\.go\b|\bKEP-\d+|\bkscale's own\b|\b[Nn]ot in\s+upstream\b"
)


@pytest.mark.parametrize("module", REFERENCE)
def test_every_public_function_names_its_source(module: str) -> None:
    """It or the head of its module: upstream's file or package, a KEP, or that it is kscale's own."""
    missing = [
        name
        for name, call in callables(module)
        if not SOURCE.search(f"{call.__doc__}\n{sys.modules[call.__module__].__doc__}")
    ]
    assert missing == []


FULL = re.compile(r":(?:func|meth|class|mod|data|attr|exc):`~?(kscale(?:\.\w+)+)`")


def leads_nowhere(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError):
        return True
    return False


def test_names_that_docstrings_refer_to_are_there() -> None:
    sources = sorted(Path(kscale.__file__).parent.rglob("*.py"))
    named = {name for path in sources for name in FULL.findall(path.read_text())}
    assert len(named) > 100
    assert sorted(filter(leads_nowhere, named)) == []


def texts(module: str) -> Iterator[tuple[str, str]]:
    """The docstrings of a module, and of its public names and their methods."""
    result = importlib.import_module(module)
    yield module, result.__doc__ or ""
    for name, value in ((name, getattr(result, name)) for name in result.__all__):
        if not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        yield name, inspect.getdoc(value) or ""
        if inspect.isclass(value):
            members = ((each, attribute) for each, attribute in vars(value).items() if not each.startswith("_"))
            yield from (
                (f"{name}.{each}", inspect.getdoc(attribute) or "")
                for each, attribute in members
                if callable(attribute)
            )


INDENTED = re.compile(r"^(?! )(.+)\n\n {4}(?![-*] )", re.MULTILINE)


@pytest.mark.parametrize("module", REFERENCE)
def test_examples_in_docstrings_are_shown_as_they_stand(module: str) -> None:
    """What is indented is code behind a double colon: anything else would be run together to one paragraph."""
    run_together = [
        name
        for name, text in texts(module)
        for before in INDENTED.findall(inspect.cleandoc(text))
        if not before.endswith("::")
    ]
    assert run_together == []


# What a page takes from one of these packages are objects of the API, or inner parts of a decision that the page itself
# describes.
BY_THEMSELVES = (
    "kscale.objects.",
    "kscale.ca.capacity_buffers.",
    "kscale.ca.cluster_state.",
    "kscale.ca.quota.",
    "kscale.ca.scale_down.actuation.",
    "kscale.cli.",
    "kscale.drivers.horizontal_autoscaler.",
    "kscale.hpa.replay.",
    "kscale.scheduling.bounds.",
)


def imported(page: Path) -> Iterator[str]:
    """The full names of what the examples of a page import."""
    for block in BLOCK.findall(page.read_text()):
        code = re.sub(r"^(>>>|\.\.\.) ?", "", block, flags=re.MULTILINE)
        for home, names in re.findall(r"^ *from (kscale[\w.]*) import ([\w, ]+)", code, re.MULTILINE):
            yield from (f"{home}.{name.strip()}" for name in names.split(","))


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_names_imported_by_examples_are_in_the_reference(page: Path) -> None:
    known = public_names() | {id(importlib.import_module(module)) for module in REFERENCE}
    names = {name for name in imported(page) if not name.startswith(BY_THEMSELVES)}
    assert [name for name in sorted(names) if id(pkgutil.resolve_name(name)) not in known] == []


def home_of(name: str, module: str) -> Any:
    """What a name of an annotation is, also where the module imports it for annotations only."""
    result = getattr(sys.modules[module], name, None)
    home = imports_of(module).get(name)
    return getattr(importlib.import_module(home), name) if result is None and home is not None else result


@cache
def imports_of(module: str) -> dict[str, str]:
    """The names that a module imports from others, each with the module that it comes from."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {each.name: str(node.module) for node in reversed(nodes) for each in node.names}


@cache
def public_names() -> set[int]:
    """The identities of all names in the reference."""
    modules = [importlib.import_module(module) for module in REFERENCE]
    return {id(getattr(module, name)) for module in modules for name in module.__all__}


@pytest.mark.parametrize("module", REFERENCE)
def test_result_types_of_functions_are_in_the_reference(module: str) -> None:
    """Who reads of `kscale.estimate` wants to know next what an EstimateResult has."""
    known = public_names() | {*map(id, SEPARATE_CLASSES)}
    missing = {
        f"{name} -> {answer}"
        for name, call in callables(module)
        for answer in re.findall(r"\b[A-Z]\w+", str(inspect.get_annotations(call).get("return", "")))
        for value in [home_of(answer, call.__module__)]
        if inspect.isclass(value) and value.__module__.startswith("kscale") and id(value) not in known
        if not value.__module__.startswith("kscale.objects.")  # the API's own
    }
    assert missing == set()


def test_the_table_of_arguments_has_no_idle_rows() -> None:
    names = {
        argument
        for module in REFERENCE
        for call in (*(call for _, call in callables(module)), *(call for _, call, _ in methods(module)))
        for argument in arguments(call)
    }
    assert sorted(SHARED - names) == []


def test_every_page_is_in_the_table_of_contents() -> None:
    index = (ROOT / "docs" / "index.md").read_text().split()
    pages = [str(page.relative_to(ROOT / "docs").with_suffix("")) for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if page not in (*index, "index")] == []


def test_recorded_answers_are_as_many_as_the_page_says() -> None:
    text = (ROOT / "docs" / "beside-upstream.md").read_text()
    documented = {kind: int(count.replace(",", "")) for kind, count in re.findall(r"([a-z-]+) \(([\d,]+)\)", text)}
    there = {}
    for path in (ROOT / "tests" / "golden" / "vectors").glob("*.jsonl.gz"):
        with gzip.open(path) as lines:
            there[path.name.removesuffix(".jsonl.gz")] = sum(1 for line in lines if line.strip())
    assert documented == there
    assert f"holds {sum(there.values()):,} inputs" in text


def test_the_readme_names_every_command() -> None:
    status = (ROOT / "README.md").read_text().partition("## Status")[2]
    named = set(re.findall(r"`([a-z-]+)", status))
    assert {entry.name.split()[0] for entry in registry.COMMANDS} - named - {"example", "schema"} == set()


def test_every_benchmark_is_in_the_table() -> None:
    folder = ROOT / "benchmarks"
    named = set(re.findall(r"^\| `(bench_\w+)`", (folder / "README.md").read_text(), re.MULTILINE))
    assert named == {each.stem for each in folder.glob("bench_*.py")}


FIGURE = re.compile(r"\d (?:ms|us|µs)\b|\bCPU (?:time|second)|written within \d+ MiB")
FIGURES = [page for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")) if FIGURE.search(page.read_text())]


@pytest.mark.parametrize("page", FIGURES, ids=[str(page.relative_to(ROOT)) for page in FIGURES])
def test_pages_with_figures_name_their_benchmarks(page: Path) -> None:
    result = re.findall(r"\bbenchmarks/\w+\.py", page.read_text())
    assert result
    assert [each for each in result if not (ROOT / each).exists()] == []


LINKS = re.compile(r"\]\((?!https?:|mailto:|#)([^()\s#]+)(?:#[^()\s]*)?\)")
LINKED = [
    *ROOT.glob("*.md"),
    *(path for name in ("docs", "benchmarks", "tests") for path in (ROOT / name).rglob("*.md")),
]


@pytest.mark.parametrize("page", LINKED, ids=[str(page.relative_to(ROOT)) for page in LINKED])
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert [link for link in LINKS.findall(text) if not (page.parent / link).exists()] == []


def test_a_reference_page_begins_with_its_functions() -> None:
    nodes = pytest.importorskip("docutils.nodes")
    addnodes = pytest.importorskip("sphinx.addnodes")

    def described(kind: str, name: str) -> list[Any]:
        return [addnodes.index(entries=[]), addnodes.desc("", nodes.paragraph("", name), objtype=kind)]

    later = nodes.section("", nodes.title("", "later"), *described("class", "Last"))
    entries = [
        *described("data", "A"),
        *described("class", "B"),
        *described("function", "f"),
        *described("function", "g"),
    ]
    document = nodes.document(None, None)
    document += nodes.section("", nodes.title("", "title"), nodes.paragraph("", "text"), *entries, later)
    runpy.run_path(str(ROOT / "docs" / "conf.py"))["put_functions_first"](None, document)
    assert [node["objtype"] for node in document[0].children if isinstance(node, addnodes.desc)] == [
        "function", "function", "data", "class",
    ]  # fmt: skip
    kinds = [type(node).__name__ for node in document[0].children]
    assert kinds == ["title", "paragraph", *["index", "desc"] * 4, "section"]
