"""Flags made from the fields of an option struct: their names, types, defaults, and help texts from its docstring."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, NamedTuple, TypeVar

import msgspec
import typer

from kscale.cli.go_flags import read_switch
from kscale.cli.options import OptionGroup, Switch, fields, flag_of
from kscale.effects import duration, timedelta_of
from kscale.errors import InputError, Problem
from kscale.objects.quantity import Quantity, QuantityError
from kscale.objects.times import format_duration, parse_duration

__all__ = [
    "DURATION_FORM",
    "REPEATABLE",
    "Form",
    "StructFlags",
    "go_duration",
    "positive_seconds",
    "struct_flags",
    "struct_of",
]

_T = TypeVar("_T")
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def go_duration(text: str, flag: str) -> timedelta:
    """Parse a duration in Go's syntax. Raises InputError with the flag's name."""
    try:
        return timedelta_of(parse_duration(text))
    except ValueError as error:
        raise InputError(Problem(f'invalid argument "{text}": {error}', field=flag)) from None


def positive_seconds(text: str, flag: str) -> float:
    """Parse a duration in Go's syntax as seconds. Raises InputError unless it is above zero."""
    seconds = go_duration(text, flag).total_seconds()
    if seconds <= 0:
        raise InputError(Problem(f'invalid argument "{text}": a time above zero is expected', field=flag))
    return seconds


def _read_quantity(text: str, flag: str) -> Quantity:
    """Parse a quantity; an empty text is 0. Raises InputError with the flag's name."""
    try:
        return Quantity(text) if text else Quantity.zero()
    except QuantityError as error:
        raise InputError(Problem(f'invalid argument "{text}": {error}', field=flag)) from None


def _read_gates(text: str, flag: str) -> dict[str, bool]:
    """Parse ``NAME=true,NAME=false``. Raises InputError with the flag's name."""
    gates = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        try:
            gates[name.strip()] = read_switch(value.strip())
        except ValueError:
            problem = Problem(f"invalid value {part!r}: NAME=true or NAME=false is expected", field=flag)
            raise InputError(problem) from None
    return gates


class Form(NamedTuple):
    """How a flag takes the values of a field.

    ``show`` returns the flag's default for the field's default; ``read`` returns the field's value for the flag's
    value, and raises InputError with the flag's name.
    """

    type: Any
    metavar: str | None = None
    show: Callable[[Any], Any] = lambda default: default
    read: Callable[[Any, str], Any] = lambda value, _: value


REPEATABLE: Final = Form(list[str] | None, None, lambda _: None, lambda texts, _: list(texts))
"""A list whose flag is repeated for each item."""
DURATION_FORM: Final = Form(str, "DURATION", lambda default: format_duration(duration(default)), go_duration)
_FORMS: Final[Mapping[type[Any], Form]] = {
    bool: Form(Switch),
    int: Form(int),
    float: Form(float),
    str: Form(str, "TEXT"),
    timedelta: DURATION_FORM,
    Quantity: Form(str, "QUANTITY", lambda default: "" if default.is_zero else str(default), _read_quantity),
    list: Form(str, "A,B,...", ",".join, lambda text, _: [each for each in text.split(",") if each]),
    dict: Form(str, "NAME=true|false,...", lambda _: "", _read_gates),
}


class StructFlags(OptionGroup):
    """Base of the groups that :func:`struct_flags` completes."""

    forms: ClassVar[Mapping[str, Form]]
    """Form of each flag that is made from a field."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def values(self) -> dict[str, Any]:
        """Return the value of each field whose flag is not None. Raises InputError with the flag's name."""
        flags = {name: getattr(self, name) for name in self.forms}
        return {name: self.forms[name].read(value, flag_of(name)) for name, value in flags.items() if value is not None}


def struct_flags(
    struct: type[msgspec.Struct],
    *names: str,
    without: Collection[str] = (),
    forms: Mapping[str, Form] | None = None,
    minimum: Mapping[str, float] | None = None,
    optional: bool = False,
) -> Callable[[type[_T]], type[_T]]:
    """Return a class decorator that adds a command-line flag for each selected field of ``struct``.

    Parameters
    ----------
    struct : type
        Options to offer. Its docstring provides the help texts; the docstring of the decorated class overrides them.
    names : str
        Fields to offer. Default: all except ``without``.
    without : collection of str
        Fields to leave out if no ``names`` are given.
    forms : mapping of str to Form
        Form of single fields. Default: the form of the field's type.
    minimum : mapping of str to float
        Smallest accepted value of numeric fields.
    optional : bool
        Use None as the default of every flag, not the default of its field.
    """

    def decorate(cls: type[_T]) -> type[_T]:
        chosen = {}
        by_name = {field.name: field for field in msgspec.structs.fields(struct)}
        for name in names or [name for name in by_name if name not in without]:
            field = by_name[name]
            default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            form = (forms or {}).get(name) or next(form for kind, form in _FORMS.items() if isinstance(default, kind))
            chosen[name] = form
            kind = form.type
            if optional and kind is Switch:
                kind = Annotated[bool | None, typer.Option(f"{flag_of(name)}/--no-{flag_of(name)[2:]}")]
            elif kind is not Switch:
                declared = typer.Option(metavar=form.metavar, min=(minimum or {}).get(name))
                kind = Annotated[kind | None if optional else kind, declared]
            cls.__annotations__[name] = kind
            setattr(cls, name, None if optional else form.show(default))
        cls.forms, cls.documented = chosen, (struct,)  # type: ignore[attr-defined]  # of a StructFlags
        return dataclasses.dataclass(eq=False, repr=False)(cls)

    return decorate


def struct_of(flags: OptionGroup, struct: type[_Struct], **more: Any) -> _Struct:
    """Return a struct with the values of the flags that have the names of its fields, and with ``more``.

    Raises InputError with the flag's name for a bad value.
    """
    values = flags.values() if isinstance(flags, StructFlags) else {n: getattr(flags, n) for n in fields(type(flags))}
    names = {field.name for field in msgspec.structs.fields(struct)}
    result = struct(**{name: value for name, value in values.items() if name in names} | more)
    problems: list[Problem] = getattr(result, "problems", list)()
    if problems:
        raise InputError([dataclasses.replace(each, field=flag_of(each.field)) for each in problems])
    return result
