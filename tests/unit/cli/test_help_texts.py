"""Each help text of an option stands alone: a reader of one line knows what the option does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click import Context
from typer.main import get_command

from kscale.cli.app import app
from rows import each_row
from unit.cli.support import kscale


def options(command: Any, name: str = "kscale") -> Iterator[tuple[str, str, str]]:
    """(command, option or argument, help text) of all commands."""
    if hasattr(command, "list_commands"):
        context = Context(command, info_name=name)
        for sub in command.list_commands(context):
            yield from options(command.get_command(context, sub), f"{name} {sub}")
        return
    for parameter in command.params:
        yield name, parameter.opts[-1], getattr(parameter, "help", None) or ""


TEXTS: dict[tuple[str, str], str] = {(option, text): command for command, option, text in options(get_command(app))}
CONTINUES = re.compile(r"^(\.\.\.|[a-z]+ (?!\(|and |or )|and |or |but |also )")
"""Begins as the end of another sentence; values of the option may come first, as in "least-cost, least-waste, ..."."""
POINTS_BACK = re.compile(
    r"^(The same|Its|Their|These|Those|That|This|It|They|Of|Where|Who|Whose|Which|What|So|Else|At|By|From|Between|Until"
    r"|Without|Besides)\b"
)
"""Begins with a word whose noun stands in the text of another option, or nowhere."""


def is_riddle(text: str) -> bool:
    words = re.findall(r"[A-Za-z][\w'-]*", text.removesuffix("Repeatable.").strip())
    return len(words) < 2


@each_row(TEXTS)
def test_a_help_text_stands_alone(described: tuple[str, str]) -> None:
    option, text = described
    where = f"{TEXTS[option, text]} {option}: {text!r}"
    if option in ("--help", "--install-completion", "--show-completion"):
        return
    assert text, where
    assert not CONTINUES.match(text), f"{where} continues another text"
    assert not POINTS_BACK.match(text), f"{where} does not name its subject"
    assert not is_riddle(text), f"{where} says nothing"
    assert text.rstrip().endswith((".", ")")), f"{where} is no sentence"


def test_all_commands_are_read() -> None:
    commands = {command for command, _, _ in options(get_command(app))}
    assert len(TEXTS) > 400
    assert {"kscale run cluster-autoscaler", "kscale catalogue import", "kscale manifests reader"} <= commands


def commands(command: Any, words: str = "") -> Iterator[tuple[str, Any]]:
    """Each command with its words."""
    if not hasattr(command, "list_commands"):
        yield words, command
        return
    context = Context(command, info_name="kscale")
    for sub in command.list_commands(context):
        yield from commands(command.get_command(context, sub), f"{words} {sub}".strip())


COMMANDS = dict(commands(get_command(app)))
LISTED = re.compile(r"^  (-.*?)(?:  |$)", re.MULTILINE)
"""The names of an option's entry in a help text."""


def listed(section: str) -> set[str]:
    return {name for names in LISTED.findall(section) for name in re.findall(r"--[\w-]+", names)}


def long_names(command: Any, *, required: bool = False) -> set[str]:
    options = (each for each in command.params if each.param_type_name == "option")
    return {max(each.opts, key=len) for each in options if each.required or not required}


@pytest.mark.parametrize("words", COMMANDS)
def test_help_shows_the_common_options_and_says_where_all_are(words: str) -> None:
    total = long_names(COMMANDS[words])
    text = kscale(*words.split(), "--help").stdout
    listed_options = listed(text.partition("Options:\n")[2].partition("\n\n")[0]) & total
    assert listed_options == total or 5 < len(listed_options) <= 10
    assert long_names(COMMANDS[words], required=True) <= listed_options
    rest = len(total) - len(listed_options)
    assert (f"\n  {rest} more options: kscale {words} --help-all\n" in text) == (rest > 0)
    full = kscale(*words.split(), "--help-all").stdout
    assert total <= listed(full)
    assert "more options: " not in full


def test_all_options_stand_below_headings_with_the_common_ones_first() -> None:
    text = kscale("estimate", "--help-all").stdout
    headings = re.findall(r"^([A-Z].*):$", text, re.MULTILINE)
    assert headings[:2] == ["Common options", "Input"]
    assert {"Node groups", "Output", "Limits on an API server"} <= set(headings)
    section = text.partition("Node groups:\n")[2].partition("\n\n")[0]
    assert {"--node", "--instance-type", "--arch", "--region", "--zone", "--spot"} <= listed(section)


def test_help_of_a_program_lists_all_flags_of_upstream() -> None:
    """With those that have no effect here, and why."""
    text = kscale("run", "cluster-autoscaler", "--help-all").stdout
    flags = (Path(__file__).parent / "upstream_flags.txt").read_text().split()
    missing = {flag for flag in flags if not re.search(rf"--{re.escape(flag.removeprefix('--'))}\b", text)}
    assert not missing
    assert "Accepted without effect:" in text
