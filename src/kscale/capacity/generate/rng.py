"""The generator's own random numbers: integers only, the same on every platform and Python version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

__all__ = ["SplitMix64", "child_uid"]

_MASK = (1 << 64) - 1
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"  # what Kubernetes draws name suffixes from
_PAIRS = tuple(a + b for b in _SUFFIX for a in _SUFFIX)
_TRIPLES = tuple(pair + c for c in _SUFFIX for pair in _PAIRS)
_SUFFIXES = len(_TRIPLES) * len(_PAIRS)
T = TypeVar("T")


def child_uid(uid: str, number: int) -> str:
    """A UID for each number: that of the owner but for the last twelve digits, so that large dumps compress."""
    return f"{uid[:24]}{number:012x}"


class SplitMix64:
    """Steele, Lea and Flood's SplitMix64 (OOPSLA 2014)."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def bits(self) -> int:
        """The next 64 random bits."""
        self._state = state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        return state ^ (state >> 31)

    def below(self, n: int) -> int:
        """An integer in [0, n); the bias of the multiplication is below n / 2**64."""
        return (self.bits() * n) >> 64

    def between(self, least: int, most: int) -> int:
        """An integer in [least, most]."""
        return least + self.below(most - least + 1)

    def percent(self, chance: int) -> bool:
        """True in ``chance`` of 100 draws."""
        return self.below(100) < chance

    def choice(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self.below(len(options))]

    def weighted(self, options: Sequence[tuple[T, int]]) -> T:
        """One of the options, each as often as its weight says."""
        at = self.below(sum(weight for _, weight in options))
        for option, weight in options:
            if at < weight:
                return option
            at -= weight
        raise ValueError("weights must be positive")

    def suffix(self, length: int) -> str:
        """A random part of a name, as Kubernetes makes them."""
        bits, out = self.bits(), []
        for _ in range(length):
            bits, at = divmod(bits, len(_SUFFIX))
            out.append(_SUFFIX[at])
        return "".join(out)

    def suffixes(self, n: int) -> Iterator[str]:
        """``n`` random endings of five characters, all different."""
        # An arithmetic progression modulo a power of 27 repeats itself only after all of them.
        at, step = self.below(_SUFFIXES), 3 * self.below(_SUFFIXES // 3) + 1
        for _ in range(n):
            rest, low = divmod(at, len(_TRIPLES))
            yield _TRIPLES[low] + _PAIRS[rest]
            at = (at + step) % _SUFFIXES

    def uid(self) -> str:
        """A version 4 UUID."""
        text = f"{self.bits():016x}{self.bits():016x}"
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"
