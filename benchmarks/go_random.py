"""Random numbers as Go's ``math/rand`` draws them from a seed: published runs of a Go program can be done again.

Its generator is an additive lagged Fibonacci one (lags 607 and 273, modulo 2^64): from the first 607 numbers follow all
others. Those of the seeds 42 to 51 are in ``go_random.npy`` (uint64, one row a seed), as
``rand.New(rand.NewSource(seed)).Uint64()`` gave them with Go 1.26.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

__all__ = ["SEEDS", "GoRandom"]

SEEDS: Final = range(42, 52)
LONG, SHORT = 607, 273
FIRST = Path(__file__).with_name("go_random.npy")


class GoRandom:
    """``rand.Rand`` of one of the seeds: the methods that are needed here, named as there."""

    def __init__(self, seed: int) -> None:
        self._state = np.load(FIRST)[SEEDS.index(seed)]
        self._at = 0

    def int63(self) -> int:
        """The next number, of 63 bits."""
        if self._at == LONG:
            state = self._state
            for begin in range(0, LONG, SHORT):  # no more at once, since what is added must be there
                end = min(begin + SHORT, LONG)
                ago = np.arange(begin, end) - SHORT
                state[begin:end] += state[ago]
            self._at = 0
        self._at += 1
        return int(self._state[self._at - 1]) & (1 << 63) - 1

    def intn(self, n: int) -> int:
        """A number under ``n`` (at most 2^31 - 1)."""
        if n & n - 1 == 0:
            return self.int63() >> 32 & n - 1
        most = (1 << 31) - 1 - (1 << 31) % n
        while (drawn := self.int63() >> 32) > most:
            pass
        return drawn % n

    def shuffle(self, items: list[int]) -> None:
        """In place."""
        for i in range(len(items) - 1, 0, -1):
            n = i + 1
            product = (self.int63() >> 31) * n
            while (product & 0xFFFFFFFF) < (1 << 32) % n:
                product = (self.int63() >> 31) * n
            j = product >> 32
            items[i], items[j] = items[j], items[i]

    def perm(self, n: int) -> list[int]:
        """The numbers under ``n`` in a random order."""
        result = [0] * n
        for i in range(n):
            j = self.intn(i + 1)
            result[i] = result[j]
            result[j] = i
        return result
