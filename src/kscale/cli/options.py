"""Option groups: dataclasses whose fields are options that commands share."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, get_type_hints

__all__ = ["OptionGroup", "fields", "parameters"]


class OptionGroup:
    """Base of the option groups: dataclasses with fields ``Annotated[type, typer.Option(...)] = default``."""

    def split_by_context(self) -> dict[str, OptionGroup]:
        """Return the options for each cluster by its name if they name several clusters; else empty."""
        return {}


def fields(group: type[Any]) -> list[str]:
    """Return the names of a group's options."""
    return [field.name for field in dataclasses.fields(group) if field.init]


def parameters(group: type[Any]) -> list[inspect.Parameter]:
    """Return the group's options as the keyword-only parameters that typer reads."""
    hints = get_type_hints(group, include_extras=True)
    options = []
    for field in dataclasses.fields(group):
        if not field.init:
            continue
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        elif default is dataclasses.MISSING:
            default = inspect.Parameter.empty
        options.append(
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[field.name], default=default)
        )
    return options
