"""Every ```python block of every documentation page and of the README runs, page by page, in one namespace."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import kscale

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
    found = importlib.import_module(module)
    missing = []
    for name in found.__all__:
        value = getattr(found, name)
        if inspect.isroutine(value) or inspect.isclass(value):
            inherited = inspect.isclass(value) and value.__doc__ in {base.__doc__ for base in value.__mro__[1:]}
            if not value.__doc__ or inherited:
                missing.append(name)
    assert missing == []


def test_every_page_is_in_the_table_of_contents() -> None:
    index = (ROOT / "docs" / "index.md").read_text().split()
    pages = [str(page.relative_to(ROOT / "docs").with_suffix("")) for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if page not in (*index, "index")] == []


def test_every_benchmark_is_in_the_table() -> None:
    folder = ROOT / "benchmarks"
    named = set(re.findall(r"^\| `(bench_\w+)`", (folder / "README.md").read_text(), re.MULTILINE))
    assert named == {each.stem for each in folder.glob("bench_*.py")}


FIGURE = re.compile(r"\d (?:ms|us|µs)\b|\bCPU (?:time|second)|written within \d+ MiB")
FIGURES = [page for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")) if FIGURE.search(page.read_text())]


@pytest.mark.parametrize("page", FIGURES, ids=[str(page.relative_to(ROOT)) for page in FIGURES])
def test_pages_with_figures_name_what_measures_them(page: Path) -> None:
    found = re.findall(r"\bbenchmarks/\w+\.py", page.read_text())
    assert found
    assert [each for each in found if not (ROOT / each).exists()] == []


LINKS = re.compile(r"\]\((?!https?:|mailto:|#)([^()\s#]+)(?:#[^()\s]*)?\)")
LINKED = [
    *ROOT.glob("*.md"),
    *(path for name in ("docs", "benchmarks", "tests") for path in (ROOT / name).rglob("*.md")),
]


@pytest.mark.parametrize("page", LINKED, ids=[str(page.relative_to(ROOT)) for page in LINKED])
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert [link for link in LINKS.findall(text) if not (page.parent / link).exists()] == []
