"""Texts as they are usually written, read natively: against a regular expression, and the reader of any RFC 3339."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale._native import _projection
from kscale.effects import from_text
from kscale.errors import NativeError

NAME = "[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
PLAIN = re.compile(f"({NAME})=({NAME})")

names = st.text("aZ0._-", max_size=4) | st.sampled_from(["in", "notin", "a" * 63, "a" * 64, "a\ud800", "ä"])
selectors = st.builds(lambda key, sign, value: key + sign + value, names, st.sampled_from(["=", "==", "", "!="]), names)


@given(selectors)
def test_plain_label(text: str) -> None:
    result = PLAIN.fullmatch(text)
    plain = None if result is None or {"in", "notin"} & set(result.groups()) else result.groups()
    assert _projection.plain_label(text) == plain


dates = st.builds(
    "{:04}-{:02}-{:02}{}{:02}:{:02}:{:02}{}{}".format,
    st.sampled_from([0, 1677, 1678, 1900, 1970, 2000, 2024, 2026, 2261, 2262, 9999]),
    st.integers(0, 13),
    st.integers(0, 32),
    st.sampled_from(["T", "T", "T", "t", " "]),
    st.integers(0, 25),
    st.integers(0, 61),
    st.integers(0, 61),
    st.sampled_from(["", "", ".", ".5", ".123456789", ".1234567891"]),
    st.sampled_from(["Z", "Z", "Z", "z", "+01:00", ""]),
)


@given(st.lists(dates | st.none() | st.just("2026-03-01T12:00:0٠Z"), max_size=4))
def test_moments(texts: list[str | None]) -> None:
    result, odd = _projection.moments(texts)
    assert result.dtype == np.int64
    assert len(result) == len(texts)
    for place, text in enumerate(texts):
        if place in odd:
            assert result[place] == 0
        else:
            assert result[place] == from_text(text)


def test_usual_moments_are_read() -> None:
    result, odd = _projection.moments(["2026-03-01T12:00:00Z", None, "2024-02-29T23:59:59.5Z", "1969-12-31T23:59:59Z"])
    assert odd == [1]
    assert result.tolist() == [1772366400 * 10**9, 0, 1709251199 * 10**9 + 5 * 10**8, -(10**9)]


def test_non_text_arguments_are_refused() -> None:
    assert _projection.moments([5, b"2026-03-01T12:00:00Z"])[1] == [0, 1]
    with pytest.raises(TypeError):
        _projection.plain_label(None)


@given(st.text("aZ0.-_", max_size=8) | st.sampled_from(["a" * 253, "a" * 254, "ä", "a.b\n", "a\ud800"]))
def test_is_plain_name(text: str) -> None:
    label = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
    expected = len(text) <= 253 and re.fullmatch(rf"{label}(?:\.{label})*", text) is not None
    assert _projection.is_plain_name(text) == expected


def test_cached_conversion() -> None:
    calls: list[object] = []

    def convert(type_: type, value: object) -> object:
        calls.append(value)
        if value in ("bad", ["bad"]):
            raise ValueError(value)
        return [type_, value]

    convert_once = _projection.cached_conversion(int, convert, 3)
    first = convert_once(int, "7")
    assert convert_once(int, "7") is first
    assert convert_once(int, 1) is not convert_once(int, 1.0)  # equal, but written differently
    assert calls == ["7", 1, 1.0]
    assert convert_once(str, "7") == [str, "7"]  # another type is not cached
    assert convert_once(int, "8") == [int, "8"]  # the fourth: the cache is cleared
    assert convert_once(int, "7") is not first
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            convert_once(int, "bad")
    assert calls[-2:] == ["bad", "bad"]
    with pytest.raises(ValueError, match="bad"):
        convert_once(int, ["bad"])  # its own error, although a list is not hashable
    with pytest.raises(TypeError):
        convert_once(int, [])


TIMES = re.compile(
    rb'Time(?:stamp)?(?:(?<="creationTimestamp)|(?<="startTime)|(?<="lastTransitionTime))"\s*:\s*"([^"]*)"'
)
parts = st.sampled_from(
    ['"creationTimestamp"', '"startTime"', '"lastTransitionTime"', '"lastProbeTime"', '"creationTime"', '"Time"',
     "Time", "T", ":", " : ", "\n", '"', ",", "null", '"2026-03-01T12:00:00Z"', '"2026-03-01T12:00:00+01:00"', '"x"']
)  # fmt: skip


@given(st.lists(st.lists(parts | dates.map('"{}"'.format), max_size=12).map("".join), max_size=3))
def test_newest_time(objects: list[str]) -> None:
    texts = [each.encode() for each in objects]
    size = np.array([len(each) for each in texts], np.int64)
    newest, odd = _projection.newest_time(b"".join(texts), np.cumsum(size) - size, size)
    result = [time.decode() for text in texts for time in TIMES.findall(text)]
    values, places = _projection.moments([*result])
    usual = [value for place, value in enumerate(values.tolist()) if place not in places]
    assert newest == max(usual, default=-(2**63))
    assert odd == [result[place].encode() for place in places]


def test_objects_lie_inside_the_text() -> None:
    text, one = b'{"startTime": "2026-03-01T12:00:00Z"}', np.array([1], np.int64)
    assert _projection.newest_time(text, one, np.array([len(text) - 1], np.int64)) == (1772366400 * 10**9, [])
    assert _projection.newest_time(b"", one[:0], one[:0]) == (-(2**63), [])
    for begin, size in ((1, len(text)), (-1, 3), (3, -1), (2**63 - 1, 2**63 - 1)):
        with pytest.raises(NativeError):
            _projection.newest_time(text, np.array([begin], np.int64), np.array([size], np.int64))
    with pytest.raises(NativeError):
        _projection.newest_time(text, one, one[:0])
