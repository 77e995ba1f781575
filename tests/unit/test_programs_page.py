"""The page about the programs of 2018-2020: its places and flags exist (``test_documented.py`` runs its comparison)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kscale.ca.options import LEGACY_FLAGS, LEGACY_ONLY_OPTIONS, AutoscalingOptions, ResourceRange
from kscale.effects import duration
from kscale.objects.times import format_duration
from kscale.vpa.options import LEGACY_UPDATER_FLAGS, UpdaterOptions
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


def listed(program: str) -> list[str]:
    (block,) = re.findall(rf"^```text\n# {program}\n((?:.*\n)*?)```", TEXT, re.MULTILINE)
    return block.splitlines()


def flag_value(value: Any) -> str:
    """A value as a flag has it."""
    if isinstance(value, timedelta):
        return format_duration(duration(value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, ResourceRange):
        return f"{value.min}:{value.max}"
    return "(none)" if value in ("", []) else str(value)


def flag_lines(names: Iterable[str], then: Any, today: Any, only_then: Collection[str] = ()) -> list[str]:
    """Each flag with its default, and with today's if it is another one."""
    lines = []
    for name in sorted(names):
        old, new = getattr(then, name), getattr(today, name)
        note = "  # no flag today" if name in only_then else f"  # today {flag_value(new)}" if new != old else ""
        lines.append(f"--{name.replace('_', '-')}={flag_value(old)}{note}")
    return lines


def test_the_page_lists_the_flags_and_defaults_of_release_1_3() -> None:
    then, today = AutoscalingOptions.for_profile("legacy"), AutoscalingOptions()
    assert listed("cluster-autoscaler --profile legacy") == flag_lines(LEGACY_FLAGS, then, today, LEGACY_ONLY_OPTIONS)


def test_the_page_lists_the_flags_and_defaults_of_the_updater_of_2020() -> None:
    names = LEGACY_UPDATER_FLAGS - {"profile"}
    lines = flag_lines(names, UpdaterOptions(profile="legacy"), UpdaterOptions())
    assert listed("vpa-updater --profile legacy") == lines


def test_the_help_of_the_profiles_names_the_page() -> None:
    for command in ("cluster-autoscaler", "vpa-updater"):
        text = "".join(
            kscale("run", command, "--help-all").stdout.replace("│", " ").split()
        )  # lines are broken anywhere
        assert "docs/programs-of-2018-2020.md" in text


@pytest.mark.parametrize("command", re.findall(r"^kscale run (.*?) *(?:#.*)?$", TEXT, re.MULTILINE))
def test_the_commands_of_the_page_are_taken(command: str) -> None:
    """They get as far as the API server, which is not there."""
    run = kscale("run", *shlex.split(command), "--kubeconfig=/nowhere")
    assert run.code == 2
    assert "/nowhere" in run.stderr
    assert "profile" not in run.stderr
