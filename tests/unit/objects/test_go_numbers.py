"""Numbers and booleans are parsed as Go's strconv parses them; the expected values are those of Go 1.26."""

from __future__ import annotations

import math

import pytest

from kscale.objects.go_numbers import parse_bool, parse_float, parse_int64, parse_int_literal


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5), ("+5", 5), ("-5", -5), ("-0", 0), ("007", 7), ("0" * 60 + "7", 7), ("0" * 5000, 0),
        (str(2**63 - 1), 2**63 - 1), (str(2**63), None), (str(-(2**63)), -(2**63)), ("0" * 60 + "9" * 19, None),
        ("9" * 400, None), ("9" * 5000, None), ("", None), ("+", None), ("--1", None), ("+-5", None), ("1_0", None),
        (" 1", None), ("1 ", None), ("1\n", None), ("1.0", None), ("0x1", None), ("٣", None), ("²", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
    ],
)  # fmt: skip
def test_parse_int64(text: str, number: int | None) -> None:
    assert parse_int64(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("10", 10), ("+10", 10), ("-10", -10), ("0", 0), ("00", 0), ("010", 8), ("0_7", 7), ("0o17", 15), ("0O17", 15),
        ("0x1F", 31), ("-0X1f", -31), ("0x_1", 1), ("0b101", 5), ("1_000", 1000), ("0x7fffffffffffffff", 2**63 - 1),
        ("0x0000000000000000000000000000000000000001", 1), (str(-(2**63)), -(2**63)),
    ],
)  # fmt: skip
def test_parse_int_literal(text: str, number: int) -> None:
    assert parse_int_literal(text) == number


@pytest.mark.parametrize(
    "text", ["", "08", "0x", "0b2", "1__0", "_1", "1_", "0_", "- 1", " 1", "1.0", "٣", "1e3", "0o"]
)
def test_malformed_int_literals(text: str) -> None:
    with pytest.raises(ValueError, match="invalid syntax"):
        parse_int_literal(text)


@pytest.mark.parametrize("text", [str(2**63), "9" * 5000, "0x" + "f" * 5000, "-0x8000000000000001"])
def test_int_literals_out_of_range(text: str) -> None:
    with pytest.raises(ValueError, match="value out of range"):
        parse_int_literal(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1.0), ("+1.", 1.0), ("-.5", -0.5), ("1e-1", 0.1), ("1_0", 10.0), ("0_1", 1.0), ("1e1_0", 1e10),
        ("1_23.50_0_0e+1_2", 1.235e14), ("0x1p4", 16.0), ("0X.8p1", 1.0), ("0x_1P+1_0", 1024.0), ("1e-400", 0.0),
        ("inf", math.inf), ("+INFINITY", math.inf), ("-Inf", -math.inf),
    ],
)  # fmt: skip
def test_parse_float(text: str, number: float) -> None:
    assert parse_float(text) == number


def test_nan_has_no_sign() -> None:
    assert math.isnan(parse_float("NaN"))
    for text in ("+nan", "-nan"):
        with pytest.raises(ValueError, match="invalid syntax"):
            parse_float(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "e5",
        "1e",
        "1__0",
        "1_",
        "_1",
        "1_.5",
        "1._5",
        "1_e5",
        "0x1",
        "0x1p",
        "0x1_.8p0",
        "infi",
        " 1",
        "٣",
        "1\n",
    ],
)
def test_malformed_floats(text: str) -> None:
    with pytest.raises(ValueError, match="invalid syntax"):
        parse_float(text)


@pytest.mark.parametrize("text", ["1e400", "-1e999", "0x1p5000", "9" * 5000])
def test_floats_out_of_range(text: str) -> None:
    with pytest.raises(ValueError, match="value out of range"):
        parse_float(text)


def test_parse_bool() -> None:
    assert [parse_bool(text) for text in ("1", "t", "TRUE", "0", "f", "False")] == [True] * 3 + [False] * 3
    for text in ("", "yes", "tRue", " true"):
        with pytest.raises(ValueError, match="invalid syntax"):
            parse_bool(text)
