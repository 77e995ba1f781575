"""Every ```python block of every documentation page and of the README runs, page by page, in one namespace."""

from __future__ import annotations

import doctest
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
