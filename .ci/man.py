"""Man pages of ``kscale``, of its groups of commands and of each command, from their help.

python .ci/man.py FOLDER            # nox -s man
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import click
from click_man.man import ManPage
from typer.main import get_command

import kscale
from kscale.cli import registry
from kscale.cli.app import app


def commands(name: str) -> list[tuple[str, str]]:
    """What may follow the words of a group, each with its line."""
    entries = [(word, registry.find(f"{name} {word}".strip())) for word in registry.children(name)]
    return [(word, "commands" if entry is None else entry.help) for word, entry in entries]


def page(name: str, command: Any, context: click.Context) -> str:
    """The page of the command of these words; the empty ones are the program."""
    entry = registry.find(name)
    made = ManPage(context.command_path)
    made.version = kscale.__version__
    made.short_help = entry.help if entry else inspect.cleandoc(command.help or "commands")
    made.description = "\n\n".join(filter(None, (command.help and inspect.cleandoc(command.help), command.epilog)))
    made.synopsis = " ".join(command.collect_usage_pieces(context))
    made.options = [
        record for option in command.get_params(context) if (record := option.get_help_record(context)) is not None
    ]
    if entry is None:
        made.commands = commands(name)
    return str(made)


def write(folder: Path) -> None:
    """Writes all pages."""
    names = {" ".join(entry.name.split()[:depth]) for entry in registry.COMMANDS for depth in (0, 1, 2)}
    for name in sorted(names):
        command: Any = get_command(app)
        context = click.Context(command, info_name="kscale")
        words = name.split()
        while words:
            word, command, words = command.resolve_command(context, words)
            context = click.Context(command, info_name=word, parent=context)
        (folder / f"{'-'.join(['kscale', *name.split()])}.1").write_text(page(name, command, context))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    write(target)
