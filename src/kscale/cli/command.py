"""From a command's function to what typer runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import typer

from kscale.cli.options import OptionGroup, fields, parameters
from kscale.cli.output import Answer, Show

__all__ = ["callback"]


def callback(function: Callable[..., Answer | None]) -> Callable[..., int]:
    """What typer runs for a command: option groups flattened to options, the answer shown, the exit status returned."""
    flat: list[inspect.Parameter] = []
    groups: dict[str, type[Any]] = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        kind = parameter.annotation
        if isinstance(kind, type) and issubclass(kind, OptionGroup):
            groups[parameter.name] = kind
            flat += parameters(kind)
        else:
            flat.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def run(typer_context: typer.Context, **values: Any) -> int:
        arguments: dict[str, Any] = {
            name: group(**{option: values.pop(option) for option in fields(group)}) for name, group in groups.items()
        }
        show = next((value for value in arguments.values() if isinstance(value, Show)), Show())
        show.adopt(typer_context.find_root().params)
        answer = function(**arguments, **values)
        return show.emit(answer) if answer is not None else 0

    context = inspect.Parameter("typer_context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    run.__signature__ = inspect.Signature([context, *flat])  # type: ignore[attr-defined]  # read by inspect
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in [context, *flat]}
    run.__doc__ = function.__doc__
    run.__name__ = function.__name__
    return run
