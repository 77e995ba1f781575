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
    ],
)
def test_durations(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize("text", ["", "15", "s", "1.s.", "1 s", "1d", "--1s", "3000000h"])
def test_invalid_durations_are_value_errors(text: str) -> None:
    with pytest.raises(ValueError, match="time: invalid duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    "text",
    ["0s", "20ns", "1.5µs", "-3ms", "1.5ms", "999.999999ms", "1s", "59.000000001s", "3m0s", "-1h0m0.5s", "100h0m0s"],
)
def test_printed_durations(text: str) -> None:
    assert format_duration(parse_duration(text)) == text
