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

    def renumbered(self, numbers: NDArray[np.int32], texts: Sequence[str]) -> NDArray[np.int32]:
        """Numbers of ``texts`` as places here."""
        return np.array([self.number(text) for text in texts], np.int32)[numbers] if len(texts) else numbers
