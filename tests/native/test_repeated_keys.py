"""JSON texts without their values, keys that come twice and parts: the kernel against the slow way."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kscale._native import _projection


class Written(list[tuple[str, Any]]):
    """An object as it is written."""


def written(value: Any) -> str:
    if isinstance(value, Written):
        return "{" + ",".join(f"{json.dumps(key)}: {written(item)}" for key, item in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return json.dumps(value)


def repeats(value: Any, levels: int = 1000) -> bool:
    if not isinstance(value, list) or not levels:
        return False
    if not isinstance(value, Written):
        return any(repeats(item, levels - 1) for item in value)
    keys = [key for key, _ in value]
    return len(set(keys)) < len(keys) or any(repeats(item, levels - 1) for _, item in value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(st.tuples(st.text("ab", max_size=4) | st.integers(0, 40).map(str), inner), max_size=24).map(Written)
    ),
    max_leaves=30,
)


@given(JSON, st.integers(1, 6))
def test_repeats_a_key(value: Any, levels: int) -> None:
    text = written(value).encode()
    assert _projection.repeats_a_key(text) == repeats(value)
    assert _projection.repeats_a_key(text, levels) == repeats(value, levels)


def test_damaged_text_repeats_nothing() -> None:
    for text in (b"", b"{", b'{"a":1', b'{"a":1,"b"}', b"[" * 2000, b'{"a"'):
        assert not _projection.repeats_a_key(text)


@given(JSON)
def test_parts_of_a_text(value: Any) -> None:
    text = f" {written(value)} ".encode()
    members, elements = _projection.json_members(text), _projection.json_elements(text)
    assert (members is not None) == isinstance(value, Written)
    assert (elements is not None) == (isinstance(value, list) and not isinstance(value, Written))
    if members is not None:
        parts = [(text[a : a + b], text[c : c + d]) for a, b, c, d in members.tolist()]
        assert parts == [(json.dumps(key).encode(), written(item).encode()) for key, item in value]
    if elements is not None:
        assert [text[at : at + size] for at, size in elements.tolist()] == [written(item).encode() for item in value]
    assert _projection.json_extent(text) == (len(text) - 1, nesting(value))
    assert [_projection.exceeds_depth(text, levels) for levels in range(8)] == [
        nesting(value) > levels for levels in range(8)
    ]


@given(st.lists(st.text(" \t\r\n", max_size=40), min_size=6, max_size=6))
def test_white_space_of_any_length_is_skipped(spaces: list[str]) -> None:
    text = "".join(map("".join, zip(spaces, ("{", '"a"', ":", "[1", "]", "}"), strict=True))).encode()
    (member,) = _projection.json_members(text).tolist()
    assert [text[member[0] :][:3], text[member[2] : member[2] + 2]] == [b'"a"', b"[1"]
    assert _projection.json_extent(text) == (len(text), 2)
    for wrong in (b"\x0b", b"\xa0", b"\0"):
        assert _projection.json_extent(text[:-1] + wrong + b"}") == (-1, 0)


def nesting(value: Any) -> int:
    if not isinstance(value, list):
        return 0
    items = [item for _, item in value] if isinstance(value, Written) else value
    return 1 + max(map(nesting, items), default=0)


def test_parts_of_a_deep_text() -> None:
    for levels in (999, 1000, 1001, 100_000):
        text = b'{"a":' * levels + b"[]" + b"}" * levels
        assert _projection.json_extent(text) == (len(text), levels + 1)
        assert _projection.exceeds_depth(text, levels)
        assert not _projection.exceeds_depth(text, levels + 1)
        assert not _projection.exceeds_depth(text[:-1], levels)  # damaged
        (member,) = _projection.json_members(text).tolist()
        assert member == [1, 3, 5, len(text) - 6]
        assert _projection.json_members(text[:-1]) is None


def test_damaged_text_has_no_parts() -> None:
    for text in (
        b"",
        b"{",
        b'{"a":1',
        b'{"a":1,"b"}',
        b'{"a":1}x',
        b"{'a':1}",
        b'{"a":1,}',
        b"[1,]",
        b"[1] 2",
        b"[1 2]",
    ):
        assert _projection.json_members(text) is None
        assert _projection.json_elements(text) is None
    assert _projection.json_extent(b'{"a":1} x') == (7, 1)
    assert _projection.json_extent(b'{"a":1') == (-1, 0)
