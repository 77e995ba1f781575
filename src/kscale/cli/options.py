"""Declare options: by the fields of option groups, or by the parameters of a command's function.

The name, the type and the default of an option are those of the field or parameter: ``max_types: int | None = None``
is ``--max-types``. Its help text, and how the help names the value, come from the section Parameters or Attributes of
the NumPy docstring::

    max_types : K
        Maximum number of different instance types.

A ``typer.Option(...)`` in the annotation adds what these cannot say: other names, a range, completion. A parameter
before the ``*`` is an argument. A ``bool`` is switched on by ``--name``; a :data:`Switch` has ``--no-name``, too, which
Go's ``--name=false`` needs.

``--help`` shows ten common options: those that are required, those that option groups name as ``common``, the
command's own in their order, and then others. ``--help-all`` shows all options, below the ``title`` of their group.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import typer

from kscale.imports import lazy_pattern

if TYPE_CHECKING:
    from kscale.cli.terminal import Terminal

__all__ = [
    "COMMON",
    "OptionGroup",
    "Switch",
    "command_parameters",
    "fields",
    "flag_of",
    "group_parameters",
    "option_errors",
    "split_docstring",
]

_SWITCH: Final = "--[no-]"
_HEADING: Final = lazy_pattern(r"(?:\A|\n\n)([A-Z][A-Za-z ]+)\n-{3,}\n")

COMMON: Final = "Common options"
"""Title of the options that ``--help`` shows."""
_OWN: Final = "Other options"
_MAX_COMMON: Final = 10
_MAX_UNDIVIDED: Final = 12
"""Number of options up to which ``--help`` shows all."""

Switch = Annotated[bool, _SWITCH]
"""A boolean option with the names ``--name`` and ``--no-name``."""


class OptionGroup:
    """Base of the option groups: dataclasses whose fields are options that commands share.

    They share this class's ``__init__`` (``init=False``): generating one for each takes a tenth of a command's start.
    """

    documented: ClassVar[tuple[type[Any], ...]] = ()
    """Other classes whose docstrings describe options."""
    listed_last: ClassVar[frozenset[str]] = frozenset()
    """Options that the help lists after all others."""
    title: ClassVar[str] = _OWN
    """Heading of the options that the class adds, in ``--help-all``."""
    common: ClassVar[Sequence[str]] = ()
    """Names of options that ``--help`` shows, the most important first; with those of the base classes."""

    def __init__(self, **values: Any) -> None:
        """Set the fields to ``values``, by default to their defaults. Raises TypeError for an unknown or absent one."""
        for field in dataclasses.fields(cast("Any", self)):
            if field.init and field.name in values:
                value = values.pop(field.name)
            elif field.default_factory is not dataclasses.MISSING:
                value = field.default_factory()
            else:
                value = field.default
            if value is dataclasses.MISSING:
                raise TypeError(f"{type(self).__name__} needs {field.name}")
            setattr(self, field.name, value)
        if values:
            raise TypeError(f"{type(self).__name__} has no {', '.join(values)}")

    def prepare(self, terminal: Terminal) -> None:
        """Complete the options before the command runs; the base class does nothing.

        Raises InputError if this fails.
        """

    @property
    def inputs(self) -> list[str]:
        """Return the names of the files and clusters that are read, for the header of a page; none by default."""
        return []

    def split_by_context(self) -> dict[str, OptionGroup]:
        """Return the options for each cluster by its name if they name several clusters; else empty."""
        return {}


class OptionDoc(NamedTuple):
    """Documentation of an option: the help text, and the name of its value."""

    help: str
    metavar: str | None


def split_docstring(docstring: str | None) -> tuple[str, dict[str, OptionDoc]]:
    """Return a NumPy docstring's text before its sections, and the entries of Parameters and Attributes by name."""
    text, *sections = _HEADING.split(inspect.cleandoc(docstring or ""))
    docs = {}
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        for entry in re.split(r"\n(?=\S)", body) if title in ("Parameters", "Attributes") else ():
            head, *lines = entry.split("\n")
            name, _, metavar = head.partition(" : ")
            docs[name] = OptionDoc(" ".join(line.strip() for line in lines if line.strip()), metavar or None)
    return text, docs


@contextmanager
def option_errors(option: str, kind: type[Exception] = ValueError) -> Iterator[None]:
    """Raise typer.BadParameter about an option instead of errors of this kind."""
    try:
        yield
    except kind as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def flag_of(name: str) -> str:
    """Return the flag of a field: ``some_field`` is ``--some-field``."""
    return f"--{name.replace('_', '-')}"


def fields(group: type[Any]) -> list[str]:
    """Return the names of a group's options."""
    return [field.name for field in dataclasses.fields(group) if field.init]


def group_parameters(group: type[Any]) -> list[inspect.Parameter]:
    """Return the group's options as the keyword-only parameters that typer reads."""
    hints = get_type_hints(group, include_extras=True)
    docs: dict[str, OptionDoc] = {}
    for base in (*group.documented, *reversed(group.__mro__)):
        docs |= split_docstring(base.__doc__)[1]
    titles: dict[str, str] = {}
    for base in group.__mro__:  # the class that adds an option comes after those that change it
        titles |= dict.fromkeys(inspect.get_annotations(base), getattr(base, "title", _OWN))
    options = []
    for field in dataclasses.fields(group):
        if not field.init:
            continue
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        elif default is dataclasses.MISSING:
            default = inspect.Parameter.empty
        parameter = inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[field.name], default=default
        )
        options.append(_declare(parameter, docs, titles[field.name]))
    return options


def command_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the arguments and options of a command's function, with those of its groups, as typer reads them.

    They are in the order of the signature, except for those that a group lists last.
    """
    docs = split_docstring(function.__doc__)[1]
    declared: list[inspect.Parameter] = []
    common: list[str] = []
    own: list[str] = []
    last: frozenset[str] = frozenset()
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        group = parameter.annotation
        if isinstance(group, type) and issubclass(group, OptionGroup):
            declared += group_parameters(group)
            common += [name for base in group.__mro__ for name in base.__dict__.get("common", ())]
            last |= group.listed_last
        else:
            declared.append(_declare(parameter, docs))
            own.append(parameter.name)
    declared.sort(key=lambda option: option.name in last)
    _mark_common(declared, (*common, *own, *(option.name for option in declared)))
    return declared


def _mark_common(declared: Sequence[inspect.Parameter], names: Iterable[str]) -> None:
    """Move the common options to the help's common section, by changing their declarations.

    Common are the required options, then those of ``names``, up to a maximum; all options if they are few.
    """
    options = {each.name: get_args(each.annotation)[1] for each in declared}
    options = {name: option for name, option in options.items() if isinstance(option, typer.models.OptionInfo)}
    required = [each.name for each in declared if each.default is inspect.Parameter.empty]
    chosen = [name for name in dict.fromkeys((*required, *names)) if name in options][:_MAX_COMMON]
    for name in options if len(options) <= _MAX_UNDIVIDED else chosen:
        options[name].rich_help_panel = COMMON


def _declare(parameter: inspect.Parameter, docs: Mapping[str, OptionDoc], title: str = _OWN) -> inspect.Parameter:
    """Return the parameter as a keyword-only one, annotated with its whole declaration for typer.

    Help text and value name come from ``docs``, by name. ``title``: the section of the help that lists the option.
    """
    kind, declaration = parameter.annotation, None
    if get_origin(kind) is Annotated:
        kind, declaration = get_args(kind)
    name = parameter.name.replace("_", "-")
    if declaration is None and kind is bool:
        option: Any = typer.Option(f"--{name}")
    elif declaration == _SWITCH:
        option = typer.Option(f"--{name}/--no-{name}")
    elif declaration is not None:
        option = copy.copy(declaration)
    else:
        option = typer.Option() if parameter.kind is inspect.Parameter.KEYWORD_ONLY else typer.Argument()
    option.rich_help_panel = title
    if (doc := docs.get(parameter.name)) is not None:
        option.help = option.help or doc.help
        option.metavar = option.metavar or doc.metavar
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, option])
