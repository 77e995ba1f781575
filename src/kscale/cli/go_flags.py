"""Flags in the syntax of Go programs (``--leader-elect=false``), flags that have no effect, and flags made from the
fields of an option struct.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeVar

import msgspec
import typer

from kscale.cli.help import HelpCommand
from kscale.cli.options import OptionGroup, Switch, fields, flag_of
from kscale.effects import duration, timedelta_of
from kscale.errors import InputError, Problem
from kscale.objects.go_numbers import FALSE_TEXTS, TRUE_TEXTS, parse_bool, parse_int64, parse_int_literal
from kscale.objects.quantity import Quantity, QuantityError
from kscale.objects.times import format_duration, parse_duration

__all__ = [
    "DURATION_FORM",
    "KLOG_IDLE",
    "REPEATABLE",
    "Form",
    "GoCommand",
    "Idle",
    "StructFlags",
    "flags_given_of",
    "given_flags",
    "go_duration",
    "idle_flags",
    "idle_switches",
    "idle_texts",
    "positive_seconds",
    "read_int",
    "struct_flags",
    "struct_of",
]

_SECRET: Final = ("password", "token", "secret")
_typed: ContextVar[Mapping[str, str]] = ContextVar("typed", default=MappingProxyType({}))
_flags: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("flags", default=())
_idle: ContextVar[Mapping[str, str]] = ContextVar("idle", default=MappingProxyType({}))


class Idle(msgspec.Struct, frozen=True):
    """A flag of upstream that has no effect here, so that a stock Deployment with it starts.

    ``why``: the reason, for the log; ``read``: raises ValueError for a value that upstream refuses; ``switch``: whether
    the flag is boolean, so that no value follows it.
    """

    why: str
    read: Callable[[str], object]
    switch: bool = False


def read_switch(text: str) -> bool:
    """Return whether a boolean flag's value is true. Raises ValueError for a text that is neither true nor false."""
    try:
        return parse_bool(text)
    except ValueError:
        raise ValueError("true or false is expected") from None


def idle_switches(why: str, *names: str) -> dict[str, Idle]:
    """Return boolean flags that have no effect, for the reason ``why``, by name."""
    return {name: Idle(why, read_switch, switch=True) for name in names}


def idle_texts(why: str, *names: str) -> dict[str, Idle]:
    """Return flags that take any value and have no effect, for the reason ``why``, by name."""
    return {name: Idle(why, str) for name in names}


def _read_count(text: str) -> int:
    """Parse the value of an integer flag that is 0 or more. Raises ValueError for other texts."""
    if (count := read_int(text)) < 0:
        raise ValueError("it is negative")
    return count


def _read_modules(text: str) -> None:
    """Check a ``moduleSpec`` of klog (``filename=N,...``). Raises ValueError if it is malformed."""
    for part in filter(None, text.split(",")):
        pattern, _, level = part.partition("=")
        if not pattern or parse_int64(level) is None:
            raise ValueError("syntax error: expect comma-separated list of filename=N")


_ONE_STREAM: Final = "logs are written to stderr only; see -v, --stderrthreshold and --log-format"
_ONE_FORM: Final = "--log-format sets the format of log lines"
_WRITTEN_AT_ONCE: Final = "log lines are not buffered"

KLOG_IDLE: Final[Mapping[str, Idle]] = {
    **idle_switches(_ONE_STREAM, "alsologtostderr", "one-output", "skip-log-headers"),
    **idle_switches(_ONE_STREAM, "log-json-split-stream", "log-text-split-stream"),
    **idle_switches("--stderrthreshold always applies, as in upstream", "legacy-stderr-threshold-behavior"),
    **idle_switches(_ONE_FORM, "skip-headers", "add-dir-header"),
    **idle_texts(_ONE_STREAM, "alsologtostderrthreshold", "log-dir", "log-file"),
    **idle_texts(_ONE_FORM, "logging-format"),
    **idle_texts("log lines do not contain positions in Go source files", "log-backtrace-at"),
    **idle_texts(_WRITTEN_AT_ONCE, "log-flush-frequency", "log-json-info-buffer-size", "log-text-info-buffer-size"),
    "log-file-max-size": Idle(_ONE_STREAM, _read_count),
    "vmodule": Idle("-v applies to all modules; each line names its module", _read_modules),
}
"""Flags of klog and of component-base's logs that have no effect here; ``--v``, ``--logtostderr`` and
``--stderrthreshold`` are taken."""


def given_flags() -> tuple[tuple[str, str], ...]:
    """Return all flags of the running command as pairs of name and text of the value.

    Values of flags that may contain a secret are replaced by ``<hidden>``.
    """
    return _flags.get()


def read_int(text: str) -> int:
    """Parse the value of an integer flag. Raises ValueError if the text is no 64-bit integer."""
    try:
        return parse_int_literal(text)
    except ValueError:
        raise ValueError("a whole number is expected") from None


def idle_flags() -> Mapping[str, str]:
    """Return the :class:`Idle` flags that the user set on the running command, with the reason why each has no
    effect.
    """
    return _idle.get()


def flags_given_of(group: OptionGroup) -> list[str]:
    """Return the flags of an option group that the user set on the running command."""
    typed = _typed.get()
    return [typed[name] for name in fields(type(group)) if name in typed]


class GoCommand(HelpCommand):
    """A command with flags in the syntax of Go programs.

    ``refused``: upstream's flags that this program does not take, with the reason; ``off``: switches among them that
    may be set as ``--NAME=false``, which is upstream's default; ``idle``: flags that are accepted without effect.
    """

    refused: ClassVar[Mapping[str, str]] = {}
    off: ClassVar[frozenset[str]] = frozenset()
    idle: ClassVar[Mapping[str, Idle]] = {}
    parse_integer = parse_int_literal

    def further_flags(self) -> Mapping[str, list[tuple[str, str]]]:
        """Return upstream's flags without effect here, and those that are refused, as (flag, reason) by section."""
        return {
            "Accepted without effect": [(f"--{name}", flag.why) for name, flag in sorted(self.idle.items())],
            "Refused": [(f"--{name}", why) for name, why in sorted(self.refused.items())],
        }

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments in the syntax of Go's flags, and record which flags the user set."""
        switches = {name: no for parameter in self.params for name, no in _switches(parameter)}
        rest: list[str] = super().parse_args(ctx, self._without_idle(self._translate_all(args, switches, ctx), ctx))
        _flags.set(tuple(_shown(self.params, ctx.params)))
        _typed.set(
            {
                each.name: max(each.opts, key=len)
                for each in self.params
                if each.name and (source := ctx.get_parameter_source(each.name)) and source.name == "COMMANDLINE"
            }
        )
        return rest

    def _translate_all(self, args: list[str], switches: Mapping[str, str], ctx: Any) -> list[str]:
        """Translate all arguments from Go's syntax, without those that :meth:`_translate` drops."""
        translated = (self._translate(each, switches, ctx) for each in args)
        return [each for each in translated if each is not None]

    def _without_idle(self, args: list[str], ctx: Any) -> list[str]:
        """Return the arguments without flags that have no effect, and record these for :func:`idle_flags`.

        A value that upstream refuses is a usage error.
        """
        left: list[str] = []
        idle: dict[str, str] = {}
        rest = iter(args)
        for argument in rest:
            name, is_given, value = argument.partition("=")
            flag = self.idle.get(name.removeprefix("--")) if name.startswith("--") else None
            if flag is None:
                left.append(argument)
                continue
            if not is_given:
                value = "true" if flag.switch else next(rest, "")
            try:
                read = flag.read(value)
            except ValueError as error:
                ctx.fail(f'invalid argument "{value}" for {name}: {error}')
            if read is not False:  # a switch that is off requests nothing
                idle[name] = flag.why
        _idle.set(MappingProxyType(idle))
        return left

    def _translate(self, argument: str, switches: Mapping[str, str], ctx: Any) -> str | None:
        """Translate one argument from Go's syntax; None for a refused switch that is set to false.

        ``switches``: name of each boolean flag -> name that switches it off. A refused flag is a usage error.
        """
        name, is_given, value = argument.partition("=")
        if name.startswith("--") and "_" in name:  # pflag treats underscores as dashes
            name = name.replace("_", "-")
            argument = f"{name}{is_given}{value}"
        if is_given and len(name) == 2 and name[0] == "-" and name[1].isalpha():
            return name + value  # -v=4
        why = self.refused.get(name.removeprefix("--")) if name.startswith("--") else None
        if why is not None:
            if value in FALSE_TEXTS and name.removeprefix("--") in self.off:
                return None
            ctx.fail(f"{name} is not taken: {why}")
        if not is_given or name not in switches:
            return argument
        if value not in TRUE_TEXTS | FALSE_TEXTS:
            ctx.fail(f'invalid argument "{value}" for {name}: true or false is expected')
        return name if value in TRUE_TEXTS else switches[name]


def _switches(parameter: Any) -> list[tuple[str, str]]:
    """Return (name, name that switches it off) for each name of a boolean flag; empty for other flags."""
    off = [name for name in parameter.secondary_opts if name.startswith("--")]
    return [(name, off[0]) for name in parameter.opts] if off else []


def _shown(parameters: Any, values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (name, text of the value) of the flags in ``values``, with secrets replaced by ``<hidden>``."""
    shown = []
    for parameter in parameters:
        names = [name for name in parameter.opts if name.startswith("--")]
        if not names or names[0] == "--help" or parameter.name not in values:
            continue
        name, value = names[0], values[parameter.name]
        secret = any(word in name for word in _SECRET) and not name.endswith("-file")
        shown.append((name, "<hidden>" if secret and value else _text(value)))
    return shown


def _text(value: Any) -> str:
    """Format a flag's value as Go does: ``true``, ``a,b``; empty for None."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return ""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


_T = TypeVar("_T")
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def go_duration(text: str, flag: str) -> timedelta:
    """Parse a duration in Go's syntax. Raises InputError, with the flag's name, if it is malformed."""
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
    """Parse a quantity; an empty text is 0. Raises InputError, with the flag's name, if it is malformed."""
    try:
        return Quantity(text) if text else Quantity.zero()
    except QuantityError as error:
        raise InputError(Problem(f'invalid argument "{text}": {error}', field=flag)) from None


def _read_gates(text: str, flag: str) -> dict[str, bool]:
    """Parse ``NAME=true,NAME=false``. Raises InputError, with the flag's name, if it is malformed."""
    gates = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        try:
            gates[name.strip()] = read_switch(value.strip())
        except ValueError:
            problem = Problem(f"invalid value {part!r}: NAME=true or NAME=false is expected", field=flag)
            raise InputError(problem) from None
    return gates


class Form(msgspec.Struct, frozen=True):
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
        """Return the values of the flags that are not None, by field.

        Raises InputError, which names the flag, for a bad one.
        """
        flags = {name: getattr(self, name) for name in self.forms}
        return {name: self.forms[name].read(value, flag_of(name)) for name, value in flags.items() if value is not None}


def _show_default(default: Any) -> str | bool:
    """Return the text of a field's default for the help; True, which shows none, for an empty default."""
    if isinstance(default, bool):
        return "on" if default else "off"
    return str(default) if isinstance(default, int | float) or default else True


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
        Use None as the default of every flag, not the default of its field. The help shows the default of the field.
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
            shown = _show_default(form.show(default)) if optional else True
            if optional and kind is Switch:
                declared = typer.Option(f"{flag_of(name)}/--no-{flag_of(name)[2:]}", show_default=shown)
                kind = Annotated[bool | None, declared]
            elif kind is not Switch:
                declared = typer.Option(metavar=form.metavar, min=(minimum or {}).get(name), show_default=shown)
                kind = Annotated[kind | None if optional else kind, declared]
            cls.__annotations__[name] = kind
            setattr(cls, name, None if optional else form.show(default))
        cls.forms, cls.documented = chosen, (struct,)  # type: ignore[attr-defined]  # attributes of StructFlags
        return dataclasses.dataclass(eq=False, repr=False, init=False)(cls)

    return decorate


def struct_of(flags: OptionGroup, struct: type[_Struct], **more: Any) -> _Struct:
    """Build a struct from the flags that have the names of its fields, and from ``more`` fields.

    Raises InputError with the flag's name for a bad value.
    """
    values = flags.values() if isinstance(flags, StructFlags) else {n: getattr(flags, n) for n in fields(type(flags))}
    names = {field.name for field in msgspec.structs.fields(struct)}
    result = struct(**{name: value for name, value in values.items() if name in names} | more)
    problems: list[Problem] = getattr(result, "problems", list)()
    if problems:
        raise InputError([dataclasses.replace(each, field=flag_of(each.field)) for each in problems])
    return result
