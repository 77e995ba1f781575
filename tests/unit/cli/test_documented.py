"""What README and docs/cli.md show was run: every ``$ kscale ...`` in a console block prints what stands below it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from unit.cli.support import kscale

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def commands() -> list[tuple[str, str]]:
    found = []
    for page in (ROOT / "README.md", ROOT / "docs" / "cli.md"):
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for part in block.split("$ ")[1:]:
                line, _, output = part.partition("\n")
                found.append((line, output))
    return found


@pytest.mark.parametrize(("line", "output"), commands(), ids=[line for line, _ in commands()])
def test_what_is_shown_was_run(line: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *arguments = shlex.split(line)
    assert program == "kscale"
    monkeypatch.chdir(ROOT)
    result = kscale(*arguments)
    assert result.stdout.rstrip("\n").splitlines() == output.rstrip("\n").splitlines()
