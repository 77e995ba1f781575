"""Sets of characters as sorted, disjoint ranges of code points (both ends included)."""

from __future__ import annotations

import sys
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import cache

from kscale.ca.expander.re2.errors import RE2Error

__all__ = ["PERL", "POSIX", "Ranges", "category", "clean", "contains", "fold", "negate"]

MAX_CHAR = sys.maxunicode

Ranges = tuple[tuple[int, int], ...]

_DIGIT: Ranges = ((48, 57),)
_SPACE: Ranges = ((9, 10), (12, 13), (32, 32))
_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
PERL = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
POSIX: dict[str, Ranges] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_CATEGORIES = frozenset(
    ("C", "Cc", "Cf", "Cn", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No")
) | frozenset(("P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs"))


def clean(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same characters, sorted, in as few ranges as can be."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    return tuple(out)


def negate(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Every other character."""
    out = []
    following = 0
    for low, high in clean(ranges):
        if low > following:
            out.append((following, low - 1))
        following = high + 1
    if following <= MAX_CHAR:
        out.append((following, MAX_CHAR))
    return tuple(out)


def contains(ranges: Ranges, code: int) -> bool:
    """Whether a character is among them."""
    at = bisect_right(ranges, (code, MAX_CHAR)) - 1
    return at >= 0 and code <= ranges[at][1]


@cache
def category(name: str, text: str) -> Ranges:
    """The characters of a Unicode general category (``L``, ``Lu``, ...); ``text`` is how the pattern writes it."""
    if name == "Any":
        return ((0, MAX_CHAR),)
    if name == "ASCII":
        return ((0, 127),)
    if name == "Assigned":
        return negate(category("Cn", text))
    if name == "LC":
        return clean([*category("Lu", text), *category("Ll", text), *category("Lt", text)])
    if name not in _CATEGORIES:
        raise RE2Error("invalid character class range", text)
    of = unicodedata.category
    return clean((code, code) for code in range(MAX_CHAR + 1) if of(chr(code)).startswith(name))


def _simple_fold(char: str) -> str:
    """One character for all that differ in case only (``CaseFolding.txt``, the lines C and S)."""
    folded = char.casefold()
    if len(folded) != 1:
        folded = char.lower()
    return folded if len(folded) == 1 else char


@cache
def _orbits() -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """The characters that have others of the same fold, sorted, and for each all of them."""
    members: dict[str, list[int]] = {}
    for code in range(MAX_CHAR + 1):
        folded = _simple_fold(chr(code))
        if ord(folded) != code:
            members.setdefault(folded, []).append(code)
    orbits = {}
    for folded, codes in members.items():
        orbit = (*codes, ord(folded))
        orbits.update(dict.fromkeys(orbit, orbit))
    return sorted(orbits), orbits


def fold(ranges: Ranges) -> Ranges:
    """With the characters that differ from one of them in case only."""
    cased, orbits = _orbits()
    added = []
    for low, high in ranges:
        for code in cased[bisect_left(cased, low) : bisect_right(cased, high)]:
            added += [(other, other) for other in orbits[code]]
    return clean((*ranges, *added))
