"""How many examples a property gets, as a share of what the Hypothesis profile gives: few by day, many at night."""

from __future__ import annotations

from hypothesis import settings


def examples(share: float) -> int:
    """Return a share of the profile's number of examples, at least two."""
    return max(2, round(settings().max_examples * share))


def is_nightly() -> bool:
    """Return whether the profile is that of the nightly run, which runs the long form of a test that has two."""
    return settings().max_examples >= 1000
