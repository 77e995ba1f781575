"""What the README and some pages of the docs show was run: every ``$ kscale ...`` in a console block prints what stands
below it.

After a change of the output or of the example, ``PYTHONPATH=tests python tests/unit/cli/test_documented.py`` writes the
blocks anew; read the difference before you commit it.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from unit.cli.support import kscale

ROOT = Path(__file__).parents[3]
SHOWING = ("cli", "cost", "mix", "simulate", "sweep", "tutorial", "tutorial-simulation", "whatif")
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in SHOWING))
BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)


def commands(block: str) -> list[tuple[str, str]]:
    """(command line, output) of a block."""
    found = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        found.append((line, output))
    return found


def run(line: str) -> str:
    program, *arguments = shlex.split(line)
    assert program == "kscale"
    return kscale(*arguments).stdout


SHOWN = [
    each for page in PAGES for block in BLOCK.findall(page.read_text(encoding="utf-8")) for each in commands(block)
]


@pytest.mark.parametrize(("line", "output"), SHOWN, ids=[line for line, _ in SHOWN])
def test_what_is_shown_was_run(line: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert run(line).rstrip("\n").splitlines() == output.rstrip("\n").splitlines()


def test_the_demo_installs_what_the_answer_in_the_readme_takes() -> None:
    """Bounds are weaker without the solver: `nox -s demo` would print others than the README says."""
    demo = (ROOT / "noxfile.py").read_text().partition("def demo(")[2].partition("\n@nox")[0]
    (extras,) = re.findall(r"session\.install\(.*\[([a-z,]+)\]", demo)
    assert {"cli", "solver"} <= set(extras.split(","))


if __name__ == "__main__":
    os.chdir(ROOT)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(
            BLOCK.sub(lambda match: "\n".join(f"$ {line}\n{run(line)}" for line, _ in commands(match[0])), text),
            encoding="utf-8",
        )
