"""Flags as Go's programs take them, made of an options struct: a field ``checkpoints_timeout`` is
``--checkpoints-timeout``, and its default the flag's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Annotated, Any, Final, TypeVar

import msgspec
import typer

from kscale.cli.options import OptionGroup
from kscale.cli.process_flags import go_duration
from kscale.effects import duration
from kscale.errors import InputError, Problem
from kscale.objects.durations import format_duration
from kscale.objects.quantity import Quantity, QuantityError

__all__ = ["flag_of", "flags_of", "struct_of"]

_T = TypeVar("_T", bound=msgspec.Struct)
_BOOLS: Final = {text: text[0] in "1tT" for text in ("1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false",
    "FALSE", "False")}  # fmt: skip


def flag_of(field: str) -> str:
    """The flag of a field."""
    return f"--{field.replace('_', '-')}"


def flags_of(name: str, struct: type[msgspec.Struct], helps: Mapping[str, str], *, panel: str) -> type[OptionGroup]:
    """A group of options named ``name``, one for each field that ``helps`` has a text for. :func:`struct_of` gives the
    struct that they say."""
    made: list[tuple[str, Any, Any]] = []
    known = {field.name: field for field in msgspec.structs.fields(struct)}
    for field, text in helps.items():
        default = known[field].default
        if default is msgspec.NODEFAULT:
            default = known[field].default_factory()
        shown, type_, metavar = _as_flag(default)
        words = f"{flag_of(field)}/--no-{flag_of(field)[2:]}" if type_ is bool else flag_of(field)
        option = typer.Option(words, help=text, metavar=metavar, rich_help_panel=panel)
        made.append((field, Annotated[type_, option], dataclasses.field(default=shown)))
    return dataclasses.make_dataclass(name, made, bases=(OptionGroup,))


def struct_of(flags: OptionGroup, struct: type[_T]) -> _T:
    """What flags say, as a struct; raises :class:`~kscale.InputError`, naming the flag."""
    given: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        if not hasattr(flags, field.name):
            continue
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        value = getattr(flags, field.name)
        read = next((read for type_, read in _READERS if isinstance(default, type_)), None)
        given[field.name] = value if read is None else read(value, flag_of(field.name))
    made = struct(**given)
    problems: list[Problem] = getattr(made, "problems", list)()
    if problems:
        raise InputError([dataclasses.replace(each, field=flag_of(each.field)) for each in problems])
    return made


def _as_flag(default: Any) -> tuple[Any, type[Any], str | None]:
    """The default as a flag shows it, the flag's type, and what stands for its value."""
    match default:
        case bool() | int() | float():
            return default, type(default), None
        case timedelta():
            return format_duration(duration(default)), str, "DURATION"
        case Quantity():
            return "" if default.is_zero else str(default), str, "QUANTITY"
        case list():
            return ",".join(default), str, "A,B,..."
        case dict():
            return "", str, "NAME=true|false,..."
    return default, str, "TEXT"


def _quantity(text: str, flag: str) -> Quantity:
    if not text:
        return Quantity.zero()
    try:
        return Quantity(text)
    except QuantityError as error:
        raise InputError(Problem(f'invalid argument "{text}": {error}', field=flag)) from None


def _list(text: str, _flag: str) -> list[str]:
    return [each for each in text.split(",") if each]


def _gates(text: str, flag: str) -> dict[str, bool]:
    found = {}
    for part in filter(None, text.split(",")):
        name, equal, value = part.partition("=")
        if not equal or value.strip() not in _BOOLS:
            raise InputError(Problem(f"invalid value {part!r}: NAME=true or NAME=false is expected", field=flag))
        found[name.strip()] = _BOOLS[value.strip()]
    return found


_READERS: Final[tuple[tuple[type[Any], Callable[[str, str], Any]], ...]] = (
    (timedelta, go_duration),
    (Quantity, _quantity),
    (list, _list),
    (dict, _gates),
)
