"""Which kinds are served, asked for no longer than one can wait."""

from __future__ import annotations

from kscale.effects import Discover, Moment, Outcome, Progress, StepsOf, Within

__all__ = ["discover_steps"]


def discover_steps(progress: Progress, longest: int) -> StepsOf[Within, Outcome]:
    """The answer to :class:`~kscale.effects.Discover`; an error where it takes longer (nanoseconds)."""

    def discover(now: Moment) -> StepsOf[Discover, Outcome]:
        return (yield from Progress(now).act(Discover()))

    found: Outcome = yield from progress.within(longest, discover)
    return found
