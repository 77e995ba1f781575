"""Texts by number, as columns hold them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["NumberedTexts"]


class NumberedTexts:
    """``texts`` in order of first appearance; it grows."""

    __slots__ = ("_numbers", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The place of a text, which is added if it is new."""
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return found

    def joined(self, parts: Sequence[tuple[NDArray[np.int32], Sequence[str]]]) -> NDArray[np.int32]:
        """Numbers of several columns, one after the other, each of its own texts, as places here: int32."""
        places = np.array([self.number(text) for _, texts in parts for text in texts], np.int32)
        numbers = np.concatenate([np.empty(0, np.int32), *(numbers for numbers, _ in parts)])
        lengths = [len(texts) for _, texts in parts]
        begins = np.cumsum([0, *lengths])[:-1]
        if np.array_equal(places, np.arange(len(places)) - np.repeat(begins, lengths)):
            return numbers  # each has its texts where they are here
        found: NDArray[np.int32] = places[numbers + np.repeat(begins, [len(numbers) for numbers, _ in parts])]
        return found
