"""From a command's function to what typer runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import typer

from kscale.cli.collector import started
from kscale.cli.options import OptionGroup, fields, parameters
from kscale.cli.output import Answer, Show

__all__ = ["callback", "option_groups"]


def callback(function: Callable[..., Answer | None]) -> Callable[..., int]:
    """What typer runs for a command: option groups flattened to options, the answer shown, the exit status returned."""
    flat: list[inspect.Parameter] = []
    taken = _taken(function)
    groups = _groups_of(taken)
    for parameter in taken:
        if parameter.name in groups:
            flat += parameters(groups[parameter.name])
        else:
            flat.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def run(typer_context: typer.Context, **values: Any) -> int:
        arguments = _filled(groups, values)
        show = next((value for value in arguments.values() if isinstance(value, Show)), Show())
        show.adopt(typer_context.find_root().params)
        started()
        answer = _answer(function, arguments | values, show)
        return show.emit(answer) if answer is not None else 0

    context = inspect.Parameter("typer_context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    run.__signature__ = inspect.Signature([context, *flat])  # type: ignore[attr-defined]  # read by inspect
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in [context, *flat]}
    run.__doc__ = function.__doc__
    run.__name__ = function.__name__
    return run


def _answer(function: Callable[..., Answer | None], arguments: dict[str, Any], show: Show) -> Answer | None:
    """What the command says; of several clusters, where its options name them."""
    for name, value in arguments.items():
        if isinstance(value, OptionGroup) and (parts := value.apart()):
            from kscale.cli.clusters import of_all

            answering = cast("Callable[..., Answer]", function)  # who asks about clusters answers
            commands = {each: partial(answering, **(arguments | {name: part})) for each, part in parts.items()}
            return of_all(commands, show.terminal)
    return function(**arguments)


def option_groups(function: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """The option groups that a command's function takes, by parameter, with the ``values`` of its flat options."""
    return _filled(_groups_of(_taken(function)), dict(values))


def _taken(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function, eval_str=True).parameters.values())


def _groups_of(taken: list[inspect.Parameter]) -> dict[str, type[Any]]:
    kinds = {each.name: each.annotation for each in taken}
    return {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, OptionGroup)}


def _filled(groups: dict[str, type[Any]], values: dict[str, Any]) -> dict[str, Any]:
    """Takes out of ``values`` what belongs to the groups."""
    return {name: kind(**{option: values.pop(option) for option in fields(kind)}) for name, kind in groups.items()}
