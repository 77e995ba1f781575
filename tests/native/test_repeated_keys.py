"""Keys that come twice in a JSON text: the kernel against the slow way."""

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
