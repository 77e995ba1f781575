"""How many examples a property gets, as a share of what the Hypothesis profile gives: few by day, many at night."""

from __future__ import annotations

from hypothesis import settings


def examples(share: float) -> int:
    """Return a share of the profile's number of examples, at least two."""
    return max(2, round(settings().max_examples * share))
