"""Quantities and selectors."""

from __future__ import annotations

from random import Random
from typing import Any

from oracle import drawing
from oracle.drawing import chance, pick, some, sometimes
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


def _sets(random: Random) -> list[Json]:
    return some(random, drawing.labels, 1, 4)


def draw_label_selector(random: Random) -> Json:
    """Return an input of the kind ``label-selector``."""
    return {"selector": drawing.label_selector(random), "labels": _sets(random)}


_TOKENS = (
    "a", "b", "app", "rev", "tier", "example.com/x", "in", "notin", "exists", "(", ")", ",", "=", "==", "!=", "!", ">",
    "<", " ", " ", "\t", "5", "-3", "", "x y", "ä", "a.b", "A_b-c", "/", "=!", "<=", "&", "'", '"',
)  # fmt: skip


def _clause(random: Random) -> str:
    key = random.choice(("app", "app", "rev", "tier", "example.com/x", "in", "notin"))
    blank = pick(("", "", " ", "  "))
    values = some(random, pick(("a", "b", "1", "2", "", "y", "in", "web")), 0, 3)
    kind = random.randrange(7)
    if kind == 0:
        return f"{blank(random)}{key}{blank(random)}"
    if kind == 1:
        return f"!{blank(random)}{key}"
    if kind in (2, 3):
        operator = random.choice(("in", "notin"))
        separator = random.choice((",", ", ", " ,"))
        return f"{key} {operator}{blank(random)}({blank(random)}{separator.join(values)}{blank(random)})"
    if kind == 4:
        return (
            f"{key}{blank(random)}{random.choice('<>')}{blank(random)}{random.choice(('5', '-1', '+2', '1', 'x', ''))}"
        )
    operator = random.choice(("=", "==", "!="))
    return f"{key}{blank(random)}{operator}{blank(random)}{random.choice(values or [''])}"


def draw_selector_text(random: Random) -> Json:
    """Return an input of the kind ``selector-text``: clauses, some of them damaged, or any tokens."""
    if chance(random, 6):
        text = "".join(some(random, pick(_TOKENS), 0, 8))
    else:
        text = ",".join(some(random, _clause, 0, 3))
        if chance(random, 5):
            place = random.randint(0, len(text))
            text = text[:place] + random.choice(_TOKENS) + text[place + random.randint(0, 1) :]
    sets = _sets(random)
    for each in sets:
        sometimes(random, each, "rev", pick(("5", "-1", "6", "2", "1", "x", "+2", "9223372036854775808")), 3)
    return {"text": text, "labels": sets}


def draw_node_selector(random: Random) -> Json:
    """Return an input of the kind ``node-selector``."""
    names = some(random, pick(("n0", "n1", "n2", "")), 1, 3)
    nodes = [{"name": name, "labels": drawing.node_labels(random, name)} for name in names]
    return {"selector": {"nodeSelectorTerms": some(random, drawing.node_term, 0, 3)}, "nodes": nodes}


def draw_tolerations(random: Random) -> Json:
    """Return an input of the kind ``tolerations``; in half of them numbers decide."""
    taints = drawing.taints(random) if chance(random, 2) else some(random, drawing.taint, 9, 12)
    tolerations = drawing.tolerations(random) if chance(random, 2) else some(random, drawing.toleration, 9, 12)
    if chance(random, 2):
        tolerations = [each for each in tolerations if "key" in each and each.get("operator") != "Exists"]
        for each in tolerations:
            each |= {"operator": random.choice(("Gt", "Lt")), "value": random.choice(drawing.NUMBERS)}
        for each in taints:
            sometimes(random, each, "value", pick(drawing.NUMBERS), 2)
    return {
        "taints": taints,
        "tolerations": tolerations,
        "effects": random.choice((["NoSchedule", "NoExecute"], ["PreferNoSchedule"], ["NoExecute"])),
        "comparison_operators": not chance(random, 3),
    }


KINDS = (
    Kind("quantity", "quantities", draw_quantity, weight=4),
    Kind("label-selector", "quantities", draw_label_selector, weight=2),
    Kind("selector-text", "quantities", draw_selector_text, weight=2),
    Kind("node-selector", "quantities", draw_node_selector, weight=2),
    Kind("tolerations", "quantities", draw_tolerations),
)
