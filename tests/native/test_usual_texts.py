"""Names and times by the hundred thousand: the kernel against the slow way, and its doors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale._native import _projection
from kscale.errors import NativeError
from reference.usual_texts import ABSENT, is_plain_name, printed_moment, printed_number

NAMES = st.one_of(
    st.text("abyz0189-.", max_size=12),
    st.text("ab-.A_\xe9 ", max_size=6),
    st.integers(250, 256).map(lambda n: "a" * n),
).map(str.encode)
TIMES = st.one_of(
    st.datetimes().map(lambda t: f"{t.year:04}-{t.month:02}-{t.day:02}T{t.hour:02}:{t.minute:02}:{t.second:02}Z"),
    st.tuples(*[st.integers(0, 99)] * 7).map(lambda n: "{:02}{:02}-{:02}-{:02}T{:02}:{:02}:{:02}Z".format(*n)),
    st.text("0129-:TZ+.", min_size=19, max_size=21),
).map(str.encode)

NUMBERS = st.one_of(
    st.integers(0, 10**20).map(str), st.integers(0, 99).map("{:03}".format), st.text("0123456789+-. x", max_size=5)
).map(str.encode)


def laid_out(texts: list[bytes | None]) -> tuple[bytes, Any, Any]:
    """(one text, where each of the texts is in it, how long it is)."""
    data, at, length = b"#", [], []
    for text in texts:
        at.append(len(data))
        length.append(-1 if text is None else len(text))
        data += text or b""
    return data, np.array(at, dtype=np.int64), np.array(length, dtype=np.int64)


@given(st.lists(st.none() | NAMES, max_size=20))
def test_plain_names(texts: list[bytes | None]) -> None:
    found = _projection.plain_names(*laid_out(texts)).tolist()
    assert found == [text is not None and is_plain_name(text) for text in texts]


@given(st.lists(st.none() | TIMES, max_size=20))
def test_printed_moments(texts: list[bytes | None]) -> None:
    found = _projection.printed_moments(*laid_out(texts)).tolist()
    assert found == [ABSENT if text is None else printed_moment(text) for text in texts]


@given(st.lists(st.none() | NUMBERS, max_size=20))
def test_printed_numbers(texts: list[bytes | None]) -> None:
    found = _projection.printed_numbers(*laid_out(texts)).tolist()
    assert found == [-1 if text is None else printed_number(text) for text in texts]


@given(st.lists(st.tuples(st.none() | st.text(max_size=5), st.none() | st.text(max_size=6)), max_size=12))
def test_object_keys(texts: list[tuple[str | None, str | None]]) -> None:
    data, at, length = laid_out([None if text is None else text.encode() for pair in texts for text in pair])
    columns = (at[::2].copy(), length[::2].copy(), at[1::2].copy(), length[1::2].copy())
    expected = [f"{space or 'default'}/{name or ''}" for space, name in texts]
    assert _projection.object_keys(data, *columns, "default") == expected


def test_keys_that_are_not_utf8() -> None:
    data, at, length = laid_out([b"\xff"])
    nothing = np.full(1, -1, np.int64)
    for columns in ((at, length, at, nothing), (at, nothing, at, length)):
        with pytest.raises(UnicodeDecodeError):
            _projection.object_keys(data, *columns, "a")


@pytest.mark.parametrize(
    "function", [_projection.plain_names, _projection.printed_moments, _projection.printed_numbers]
)
@pytest.mark.parametrize(("at", "length"), [([5], [1]), ([-1], [1]), ([0], [5]), ([0, 1], [1])])
def test_outside_the_buffer(function: Any, at: list[int], length: list[int]) -> None:
    with pytest.raises(NativeError):
        function(b"abcd", np.array(at, np.int64), np.array(length, np.int64))


@pytest.mark.parametrize(("space", "at"), [([9], [0]), ([0], [9]), ([0, 0], [0]), ([-1], [0])])
def test_keys_outside(space: list[int], at: list[int]) -> None:
    ones = np.ones(len(space), np.int64), np.ones(len(at), np.int64)
    with pytest.raises(NativeError):
        _projection.object_keys(b"abcd", np.array(space, np.int64), ones[0], np.array(at, np.int64), ones[1], "a")
