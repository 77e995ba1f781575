"""random: any option, each with the same chance (``expander/random``)."""

from __future__ import annotations

from collections.abc import Sequence

from kscale.ca.expander.types import Option, Rng

__all__ = ["choose"]


def choose(options: Sequence[Option], rng: Rng | None) -> Option | None:
    """One of the options, by ``rng``; without one the first, so that an answer can be repeated. None for no options."""
    if not options:
        return None
    return options[rng.randrange(len(options)) if rng is not None else 0]
