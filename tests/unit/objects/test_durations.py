"""Go's durations."""

from __future__ import annotations

import pytest

from kscale.objects.times import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("15s", 15 * 10**9),
        ("15.1s", 15_100_000_000),
        ("1m30s", 90 * 10**9),
        ("-1.5h", -5400 * 10**9),
        (".5ms", 500_000),
        ("3us", 3000),
        ("3µs", 3000),
        ("1.9ns", 1),
        ("+2m", 120 * 10**9),
        ("-9223372036854775808ns", -(2**63)),
        ("0.3333333333333333333h", 1200 * 10**9),  # Go multiplies a fraction as a float64
        ("0." + "0" * 400 + "1h", 0),
        ("0" * 5000 + "1h", 3600 * 10**9),
    ],
)
def test_durations(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "invalid duration"),
        ("15", "missing unit in duration"),
        ("s", "invalid duration"),
        (".s", "invalid duration"),
        ("1.s.", "invalid duration"),
        ("1 s", 'unknown unit " s" in duration'),
        ("1d", 'unknown unit "d" in duration'),
        ("--1s", "invalid duration"),
        ("3000000h", "invalid duration"),
        ("9223372036854775808ns", "invalid duration"),
        ("9" * 5000 + "s", "invalid duration"),
        ("\u0663s", "invalid duration"),  # an Arabic digit
    ],
)
def test_invalid_durations_have_go_texts(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r"^time: ") as caught:
        parse_duration(text)
    assert str(caught.value) == f'time: {problem} "{text}"'


@pytest.mark.parametrize(
    "text",
    ["0s", "20ns", "1.5µs", "-3ms", "1.5ms", "999.999999ms", "1s", "59.000000001s", "3m0s", "-1h0m0.5s", "100h0m0s"],
)
def test_printed_durations(text: str) -> None:
    assert format_duration(parse_duration(text)) == text
