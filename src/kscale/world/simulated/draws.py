"""Random numbers by counter and entity: what one entity draws does not depend on who else draws.

So two runs that differ in one thing compare like with like. Of entities that have one name one after the other each has
a number of its own. Integers only: the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

__all__ = ["MILLION", "Draws", "Spread"]

MILLION: Final = 1_000_000
_BITS: Final = 64


class Spread(msgspec.Struct, frozen=True):
    """Durations by their quantiles: points (share in millionths, nanoseconds), both rising, from 0 to a million;
    between two points it is linear."""

    points: tuple[tuple[int, int], ...]

    @classmethod
    def fixed(cls, nanoseconds: int) -> Spread:
        """Always the same."""
        return cls(((0, nanoseconds), (MILLION, nanoseconds)))

    def __post_init__(self) -> None:
        shares = [share for share, _ in self.points]
        times = [time for _, time in self.points]
        if len(shares) < 2 or shares[0] != 0 or shares[-1] != MILLION or shares != sorted(set(shares)):
            raise ValueError("quantiles rise from 0 to 1, each given once")
        if times[0] < 0 or times != sorted(times):
            raise ValueError("durations are not negative, and rise with their quantiles")

    @property
    def most(self) -> int:
        """The longest."""
        return self.points[-1][1]

    def at(self, bits: int) -> int:
        """The duration at a share of ``bits / 2**64``."""
        if self.points[0][1] == self.points[-1][1]:
            return self.points[0][1]
        place = bits * MILLION
        for (share, low), (following, high) in zip(self.points, self.points[1:], strict=False):
            if place < following << _BITS:
                width = (following - share) << _BITS
                return low + (high - low) * (place - (share << _BITS)) // width
        return self.most


class Draws:
    """What a seed comes to."""

    __slots__ = ("_key", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._key = str(seed).encode()[:64]

    def bits(self, purpose: str, entity: str, number: int = 0) -> int:
        """64 bits, the same whenever they are asked for."""
        text = f"{purpose}\0{entity}\0{number}".encode()
        return int.from_bytes(blake2b(text, digest_size=8, key=self._key).digest(), "big")

    def below(self, bound: int, purpose: str, entity: str, number: int = 0) -> int:
        """A number from 0 up to ``bound``."""
        return self.bits(purpose, entity, number) * bound >> _BITS

    def happens(self, millionths: int, purpose: str, entity: str, number: int = 0) -> bool:
        """Whether what has this chance comes about."""
        return millionths > 0 and self.below(MILLION, purpose, entity, number) < millionths

    def duration(self, spread: Spread, purpose: str, entity: str, number: int = 0) -> int:
        """How long something takes."""
        points = spread.points
        if points[0][1] == points[-1][1]:
            return points[0][1]
        return spread.at(self.bits(purpose, entity, number))

    def one_of(self, choices: Sequence[str], purpose: str, entity: str, number: int = 0) -> str:
        """One of several."""
        return choices[self.below(len(choices), purpose, entity, number)]
