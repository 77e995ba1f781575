"""Help of a command: ``--help`` shows the common options, ``--help-all`` shows all of them in sections."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from typer.core import TyperCommand, TyperOption

from kscale.cli.options import COMMON

__all__ = ["HelpCommand"]

_SHOW_ALL: Final = "kscale.help.all"
_HELP: Final = "Help"


def _parse_decimal(text: str) -> int:
    """Parse a decimal integer of ASCII digits with an optional sign. Raises ValueError for any other text."""
    if not text.isascii() or "_" in text or text != text.strip():
        raise ValueError("invalid syntax")
    return int(text)


class HelpCommand(TyperCommand):
    """A command with the option ``--help-all``. An option's section is its ``rich_help_panel``.

    Options with numbers refuse what Python's ``int`` and ``float`` accept besides numbers, such as ``1_0``, surrounding
    spaces and digits of other scripts. ``parse_integer`` parses integers.
    """

    parse_integer: ClassVar[Callable[[str], int]] = _parse_decimal
    _help_all: TyperOption | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for parameter in self.params:
            parameter.type = _with_parser(parameter.type, type(self).parse_integer)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with ``--help-all`` last."""
        if self._help_all is None:  # one object, as for --help: click compares parameters by identity
            self._help_all = TyperOption(
                param_decls=["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_print_all,
                help="Show all options and exit.",
            )
        return [*super().get_params(ctx), self._help_all]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, the command's common options, and how many more there are.

        With ``--help-all`` all options are written, by section.
        """
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], COMMON: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                title = "Arguments"
            else:
                title = getattr(parameter, "rich_help_panel", None) or _HELP
            sections.setdefault(title, []).append(record)
        help_options = sections.pop(_HELP, [])
        if ctx.meta.get(_SHOW_ALL):
            for title, records in {**sections, _HELP: help_options, **self.further_flags()}.items():
                _write_section(formatter, title, records)
            return
        _write_section(formatter, "Arguments", sections.pop("Arguments"))
        _write_section(formatter, "Options", [*sections.pop(COMMON), *help_options])
        if hidden := sum(map(len, sections.values())):
            options = "option" if hidden == 1 else "options"
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(f"{hidden} more {options}: {ctx.command_path} --help-all")

    def further_flags(self) -> Mapping[str, list[tuple[str, str]]]:
        """Return flags that are not parameters, with their texts, by the section in which ``--help-all`` lists them."""
        return {}


def _parse_float(text: str) -> float:
    """Parse a number as Go does. Raises ValueError for any other text."""
    from kscale.objects.go_numbers import parse_float

    return parse_float(text)


def _with_parser(kind: Any, parse_integer: Callable[[str], int]) -> Any:
    """Return an option's type, with the parser ``parse_integer`` or Go's of floats if it is a number's."""
    numbers: Mapping[str, Callable[[str], float]] = {"int": parse_integer, "float": _parse_float}
    parse = numbers.get(kind.name.removesuffix(" range"))
    if parse is None:
        return kind

    def convert(value: Any, parameter: Any, context: Any) -> Any:
        if isinstance(value, str):
            try:
                value = parse(value)
            except ValueError:
                kind.fail(f"{value!r} is not a valid {kind.name}.", parameter, context)
        return kind.convert(value, parameter, context)

    strict = copy.copy(kind)
    strict.convert = convert
    return strict


def _write_section(formatter: Any, title: str, records: list[tuple[str, str]]) -> None:
    """Write a section of the help; nothing if it has no records."""
    if records:
        with formatter.section(title):
            formatter.write_dl(records)


def _print_all(ctx: Any, _: Any, value: bool) -> None:
    """Print the help with all options and exit, if the flag ``--help-all`` is set (``value``)."""
    if value and not ctx.resilient_parsing:
        ctx.meta[_SHOW_ALL] = True
        sys.stdout.write(ctx.get_help() + "\n")
        ctx.exit()
