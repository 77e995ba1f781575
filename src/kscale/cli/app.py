"""The typer application, and the conversion of a command's function to what typer runs.

Adding a command takes one file and one line:

1. A function in ``kscale/cli/commands/<name>.py`` (in its ``__all__``) whose docstring is the help. It is named
   ``command``, or by its words where one module holds several commands::

       def command(*, source: Source, show: Show, expander: str = "least-waste") -> Answer:
           '''What the command answers, in one sentence.

           More, shown by --help.

Parameters
----------
           expander : NAMES
               The help text of --expander (kscale.cli.options: how options are declared).
           '''
           cluster, snapshot = read(source, show.terminal)   # kscale.cli.inputs: -f -n -A -l --skip-invalid
           with show.terminal.step("deciding"):           # spinner after 0.5 s on a terminal, time with -v
               report = kscale.capacity.something(...)    # the rule lives below, where programs can call it
           return Answer(record=report, view=lambda: _view(report), exit_code=0 if report.ok else 1)

   ``Show`` brings ``-o -v -q --no-color``; ``Source`` what reads a cluster. Own groups derive from ``OptionGroup``.
   ``Answer.record`` is what ``-o json|yaml`` prints, whole. ``_view`` makes a ``View`` (headline, tables, footer).
   Output is never printed by the command: it returns its Answer (or None when it wrote what it writes by itself).
   A module's ``EPILOG`` ends the help of its commands (``DUMP_HELP`` for commands that read a cluster).
   Its ``COMMAND`` is the class of its commands, if it is not ``HelpCommand`` (``GoCommand`` for ``kscale run``).
   Bad input raises ``kscale.InputError``, bad usage ``typer.BadParameter``; both end with status 2 and no traceback.
2. One ``Entry`` in ``kscale/cli/registry.py``: words, function, line of help, section. A name of two words
   (``"replay hpa"``) makes a command below a group. The module is imported only when the command runs.

The record type belongs to ``kscale.records.Record`` and is listed in ``kscale.cli.commands.schema`` so that its JSON
Schema is published. Numbers given as values are formatted by the table; ``Cell`` adds a tone or the bare value for CSV.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import kscale
from kscale.cli import registry
from kscale.cli.failures import BAD_INPUT, BROKEN_PIPE, INTERRUPTED, abandon_stdout, report_interrupt, run_guarded
from kscale.cli.terminal import ARGUMENTS, Terminal, program

__all__ = ["app", "command_of", "run"]

EPILOG = (
    "Exit status: 0 answered; 1 answered, and some pod stays without a place (or a --fail-on condition holds); "
    "2 no answer."
)


class LazyGroup(TyperGroup):
    """A command group that takes its commands from the registry and imports each one when it runs."""

    words = ""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # click's signature
        """Return the names of the group's commands and subgroups, in the order of the registry."""
        return registry.children(self.words)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  # click's signature
        """Return the command or group of commands with this name, or None. Imports only the module of that command."""
        words = f"{self.words} {cmd_name}".strip()
        entry = registry.find(words)
        if entry is not None:
            return command_of(entry)
        if cmd_name in registry.children(self.words):
            return _group(words)
        return None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return (name, command, remaining arguments).

        Ends with an error for an unknown name, and suggests similar ones.
        """
        if len(args) > 1 and registry.find(f"{self.words} {args[0]}".strip()) is not None:
            # A command of two words may share its first word with another command: explain POD, explain hpa NS/NAME.
            longer = registry.find(f"{self.words} {args[0]} {args[1]}".strip())
            if longer is not None:
                return f"{args[0]} {args[1]}", command_of(longer), args[2:]
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.list_commands(ctx), n=2)
            ctx.fail(f"no command {args[0]!r}." + (f" Did you mean {' or '.join(near)}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # click's signature
        """Write the list of commands to the help, by section, in the order of the sections."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in registry.children(self.words):
            words = f"{self.words} {name}".strip()
            entry = registry.find(words)
            section = entry.section if entry is not None else _group_section(words)
            text = entry.help if entry is not None else f"{', '.join(registry.children(words))}."
            sections.setdefault(section, []).append((name, text))
        for section, rows in sorted(sections.items(), key=lambda item: registry.place(item[0])):
            with formatter.section(section):
                formatter.write_dl(rows)

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments into a context, whose ``meta`` keeps them unparsed for reports."""
        words = tuple(args)
        with _own_statuses():  # --help and --version write here
            context = super().make_context(info_name, args, parent, **extra)
        context.meta.setdefault(ARGUMENTS, words)
        return context

    def invoke(self, ctx: Any) -> Any:
        """Run the command of a parsed context; the exit statuses for Ctrl-C and a closed pipe are kscale's."""
        with _own_statuses():
            return super().invoke(ctx)

    def main(
        self,
        args: Any = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line and exit with its status; return the status instead if not ``standalone_mode``."""
        arguments = sys.argv[1:] if args is None else list(args)
        flags = set(arguments)
        terminal = Terminal(no_color="--no-color" in flags, verbose=bool({"-v", "--verbose"} & flags))
        run_typer = super().main
        code = run_guarded(
            lambda: run_typer(arguments, prog_name or program(), complete_var, False, windows_expand_args, **extra),
            terminal,
        )
        if not standalone_mode:
            return code
        sys.exit(code)


@contextmanager
def _own_statuses() -> Iterator[None]:
    """Raise typer.Exit with kscale's exit status for Ctrl-C or a closed pipe in the block.

    typer would exit with 1, which has another meaning in kscale.
    """
    try:
        yield
    except KeyboardInterrupt:
        report_interrupt(Terminal())
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        abandon_stdout()
        raise typer.Exit(BROKEN_PIPE) from None


def _group_section(words: str) -> str:
    """Return the section of the first command in the group ``words``."""
    return next(entry.section for entry in registry.COMMANDS if entry.name.startswith(f"{words} "))


@cache
def command_of(entry: registry.Entry) -> Any:
    """Return the click command for a registry entry. Imports the command's module; cached per entry."""
    from kscale.cli.command import callback
    from kscale.cli.help import HelpCommand

    app_of_command = typer.Typer(rich_markup_mode=None, add_completion=False)
    module = entry.load_module()
    name = entry.name.split()[-1]
    kind = getattr(module, "COMMAND", HelpCommand)
    app_of_command.command(name, cls=kind, short_help=entry.help, epilog=getattr(module, "EPILOG", None), **_HELP)(
        callback(entry.load())
    )
    return typer.main.get_command(app_of_command)


def _group(words: str) -> Any:
    """Build the click command of a group, whose commands begin with ``words``."""
    group = type("Group", (LazyGroup,), {"words": words})
    app_of_group = typer.Typer(cls=group, rich_markup_mode=None, add_completion=False, no_args_is_help=True, **_HELP)
    app_of_group.callback()(lambda: None)
    return typer.main.get_command(app_of_group)


def _version(value: bool) -> None:
    """Print the version and exit, if the flag is set."""
    if value:
        sys.stdout.write(f"kscale {kscale.__version__}\n")
        raise typer.Exit(0)


_HELP: dict[str, Any] = {"context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 110}}

app = typer.Typer(
    cls=LazyGroup,
    name="kscale",
    rich_markup_mode=None,  # plain help: no import of rich, and the same text in a pipe
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    epilog=EPILOG,
    **_HELP,
)


@app.callback()
def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    no_color: Annotated[
        bool, typer.Option("--no-color", help="Print no colours. The environment variable NO_COLOR=1 does the same.")
    ] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print more to stderr.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print only errors to stderr.")] = False,
) -> None:
    """Kubernetes autoscaling decisions from a dump: the same answers as upstream, explained, with no cluster."""


def run() -> None:
    """Run the command line with ``sys.argv`` and exit the process with the command's status.

    Repairs the standard streams first: UTF-8 where the locale is ASCII, buffered output, a closed stderr.
    Exits with the status of bad input if stdout is closed.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # stays open until the process ends
    if sys.stdout is None:
        Terminal(stdout=sys.stderr).error("stdout is closed: there is nowhere to write the answer")
        sys.exit(BAD_INPUT)
    raw = getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.RawIOBase):  # PYTHONUNBUFFERED: a partial write to a closed pipe would go unnoticed
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), encoding=sys.stdout.encoding)
    if hasattr(sys.stdout, "reconfigure"):
        # Characters that the terminal's encoding lacks must not cause errors. Python uses ASCII without a locale, but
        # JSON and YAML are UTF-8 anyway.
        ascii_only = codecs.lookup(sys.stdout.encoding).name == "ascii"
        sys.stdout.reconfigure(encoding="utf-8" if ascii_only else None, errors="backslashreplace")
    typer.main.get_command(app).main()
