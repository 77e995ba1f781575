"""Quantities and selectors."""

from __future__ import annotations

from random import Random
from typing import Any

from oracle.families import Kind

__all__ = ["KINDS"]

Json = dict[str, Any]

_SUFFIXES = ("", "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_ODD = ("K", "mi", "e", "E+", "ee3", "e3.5", " ", "Zi", "i", "kk", "e+", "E-", "d", "%", "µ", "１")
_MISSHAPEN = (
    "",
    "+",
    "-",
    ".",
    "+.",
    "1.2.3",
    "--1",
    "0x10",
    "1_000",
    "1,5",
    "NaN",
    "Inf",
    " 1",
    "1 ",
    "1\n",
    "m",
    "Ki",
)


def _digits(random: Random) -> str:
    kind = random.random()
    if kind < 0.45:
        return str(random.getrandbits(random.randint(1, 12)))
    if kind < 0.7:
        return str(random.getrandbits(random.randint(1, 63)))
    if kind < 0.8:  # at the edges of int64
        return str(random.choice((2**63, 2**62, 10**18, 10**19, 2**64, 2**53)) + random.randint(-2, 2))
    if kind < 0.9:
        return "0" * random.randint(1, 4) + str(random.getrandbits(8)) + "0" * random.randint(0, 6)
    return "".join(random.choice("0123456789") for _ in range(random.randint(1, 30)))


def literal(random: Random) -> str:
    """Return a quantity as text: mostly well formed, in every suffix, and of any length."""
    if random.random() < 0.03:
        return random.choice(_MISSHAPEN)
    text = random.choice(("", "", "", "", "-", "+")) + _digits(random)
    kind = random.random()
    if kind < 0.4:
        places = random.choice((1, 1, 2, 3, 3, 4, 9, 10, 12, 20))
        text += "." + "".join(random.choice("0000123456789") for _ in range(random.randint(0, places)))
    elif kind < 0.43:
        text = text.lstrip("+-0123456789") + "." + _digits(random)
    if random.random() < 0.2:
        exponent = random.choice((0, 1, 2, 3, 3, 6, 9, 12, 17, 18, 19, 20, 30, 100, -1, -3, -6, -9, -10, -12, -20))
        text += random.choice("eE") + random.choice(("", "+") if exponent >= 0 else ("",)) + str(exponent)
    else:
        text += random.choice(_SUFFIXES)
    if random.random() < 0.03:
        text += random.choice(_ODD)
    if random.random() < 0.02:
        place = random.randint(0, len(text))
        odd = random.choice(".kKiIm+- ")  # a long exponent would keep upstream busy for hours
        text = text[:place] + odd + text[place:]
    return text


def draw_quantity(random: Random) -> Json:
    """Return an input of the kind ``quantity``."""
    kind = random.random()
    if kind < 0.5:
        return {"text": literal(random)}
    if kind < 0.6:
        return {"op": "sum", "items": [literal(random) for _ in range(random.randint(0, 5))]}
    if kind < 0.65:
        return {"op": "neg", "a": literal(random)}
    if kind < 0.7:
        text = literal(random)
        quoted = text.replace("\\", "\\\\").replace("\n", "\\n")
        return {"json": random.choice((f'"{quoted}"', f'"{quoted}"', text, "null", "true", f' "{quoted}" '))}
    a, b = literal(random), literal(random)
    if random.random() < 0.2:
        b = a if random.random() < 0.5 else a + "0" if "." in a and a[-1:].isdigit() else a
    return {"op": random.choice(("add", "sub", "cmp")), "a": a, "b": b}


KINDS = (Kind("quantity", "quantities", draw_quantity, weight=2),)
