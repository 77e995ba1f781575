"""The page about the programs of 2018-2020: its places exist, its commands run and print what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from unit.cli.support import kscale

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "programs-of-2018-2020.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("| \n").split(" | ")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith("|---")
]
"""Then, what it did (not in the table of what runs as today's), the place, and what is different today."""
PLACES = [(cells[0], cells[-2]) for cells in ROWS if len(cells) in (3, 4)]
PATH = re.compile(r"[a-z_0-9]+(?:/[a-z_0-9]+)*(?:\.py|/)")


def test_the_tables_have_no_row_without_a_place() -> None:
    assert len(PLACES) > 100
    assert {len(cells) for cells in ROWS} == {3, 4}
    assert [cells[0] for cells in ROWS if not all(cells)] == []
    assert [cells[0] for cells in ROWS if "part" in cells] == []


@pytest.mark.parametrize(("name", "place"), PLACES, ids=[name for name, _ in PLACES])
def test_each_place_exists(name: str, place: str) -> None:
    """A symbol behind a path is defined there."""
    text = ""
    for token in re.findall(r"`([^`]+)`", place):
        if PATH.fullmatch(token):
            path = ROOT / "src" / "kscale" / token
            assert path.exists(), f"{name}: {token}"
            text = path.read_text() if path.is_file() else ""
        elif text and re.fullmatch(r"\w+", token):
            defined = rf"(?:def|class) {token}\b|^\s*(?:self\.)?{token}\b.*="
            assert re.search(defined, text, re.MULTILINE), f"{name}: {token} is not defined there"


def test_the_comparison_prints_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    ((command, expected),) = re.findall(r"^\$ kscale (compare .*)\n((?:.*\n)*?)```", TEXT, re.MULTILINE)
    shown = kscale(*shlex.split(command))
    assert shown.code == 0
    assert [line.rstrip() for line in shown.stdout.splitlines()] == expected.splitlines()


@pytest.mark.parametrize("command", re.findall(r"^kscale run (.*?) *(?:#.*)?$", TEXT, re.MULTILINE))
def test_the_commands_of_the_page_are_taken(command: str) -> None:
    """They get as far as the API server, which is not there."""
    run = kscale("run", *shlex.split(command), "--kubeconfig=/nowhere")
    assert run.code == 2
    assert "/nowhere" in run.stderr
    assert "profile" not in run.stderr
