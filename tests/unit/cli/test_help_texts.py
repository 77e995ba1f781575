"""Each help text of an option stands alone: a reader of one line knows what the option does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from click import Context
from typer.main import get_command

from kscale.cli.app import app


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


@pytest.mark.parametrize(("option", "text"), TEXTS)
def test_a_help_text_stands_alone(option: str, text: str) -> None:
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
