"""Options that share the smallest score, with upstream's treatment of scores that are not numbers."""

from __future__ import annotations

from kscale.ca.expander.types import Option

__all__ = ["Minimum"]


class Minimum:
    """Offer options one after the other; ``options`` are those whose scores equal the smallest one exactly.

    Comparisons with NaN are false: a first score that is NaN stays and nothing joins or beats it.
    """

    def __init__(self) -> None:
        self.options: list[Option] = []
        self.score = 0.0

    def offer(self, option: Option, score: float) -> None:
        if self.options and score == self.score:
            self.options.append(option)
        elif not self.options or score < self.score:
            self.options = [option]
            self.score = score
