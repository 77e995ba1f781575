"""Times on the command line."""

from __future__ import annotations

from datetime import datetime

import typer

__all__ = ["parse_moment"]


def parse_moment(text: str, option: str = "--now") -> datetime:
    """The value of an option that is a time: RFC 3339."""
    from kscale.objects.times import to_datetime

    try:
        return to_datetime(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
