"""Quantities: parsing, adding, comparing, printing. Every field of ``want`` is compared."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kscale import Quantity
from kscale.objects.quantity import QuantityError

_FLOATS = {"+Inf": float("inf"), "-Inf": float("-inf")}


def _answer(inputs: dict[str, Any]) -> dict[str, Any]:
    if "text" in inputs:
        return _described(Quantity(inputs["text"]))
    if "json" in inputs:
        return _described(Quantity.from_json(inputs["json"]))
    if inputs["op"] == "sum":
        return _described(Quantity.sum(Quantity(item) for item in inputs["items"]))
    first = Quantity(inputs["a"])
    if inputs["op"] == "neg":
        return _described(-first)
    right = Quantity(inputs["b"])
    if inputs["op"] == "cmp":
        return {"error": None, "cmp": first.cmp(right), "equal": first == right}
    return _described(first + right if inputs["op"] == "add" else first - right)


def _described(quantity: Quantity) -> dict[str, Any]:
    return {
        "error": None,
        "value": quantity.value(),
        "milli_value": quantity.milli_value(),
        "sign": quantity.sign,
        "is_zero": quantity.is_zero,
        "format": quantity.format,
        "approximate_float": quantity.approximate_float(),
        "canonical": str(quantity),
        "decimal": quantity.as_fraction(),
        "as_int64": quantity.as_int64(),
    }


def check(case: dict[str, Any]) -> None:
    want = dict(case["want"])
    if "decimal" in want:
        want["decimal"] = Fraction(want["decimal"])
        want["approximate_float"] = _FLOATS.get(want["approximate_float"], want["approximate_float"])
    try:
        got = _answer(case["input"])
    except QuantityError as error:
        got = {"error": str(error)}
    assert got == want
