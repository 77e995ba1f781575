"""Times on the command line."""

from __future__ import annotations

from datetime import datetime

import typer

__all__ = ["parse_moment"]


def parse_moment(text: str, option: str = "--now") -> datetime:
    """The value of an option that is a time: RFC 3339."""
    from kscale.objects.times import nanoseconds, to_datetime

    try:
        if not -(1 << 63) < nanoseconds(text) < 1 << 63:
            raise ValueError(f"{text} is not between the years 1678 and 2262")
        return to_datetime(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
