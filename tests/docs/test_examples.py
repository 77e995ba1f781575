"""Every ``>>>`` example in docs/*.md is run, each page as one session."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

# An editable install rebuilds, and says so on stdout, at the first import of a compiled module: not in an example.
import kscale._native._build  # noqa: F401

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md") if ">>>" in page.read_text())


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str) -> None:
    text = (DOCS / page).read_text()
    # Everything outside a fence is blanked, so that line numbers stay right and a fence ends an expected output.
    kept, inside = [], False
    for line in text.splitlines():
        if re.match(r"\s*```", line):
            inside = not inside
            kept.append("")
        else:
            kept.append(line if inside else "")
    test = doctest.DocTestParser().get_doctest("\n".join(kept), {}, page, str(DOCS / page), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    output: list[str] = []
    runner.run(test, out=output.append)
    assert runner.failures == 0, "".join(output)
    assert test.examples
