"""API data as plain data: as it was written, and changed as a struct was."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale.objects.decode import decode_plain, with_changes


def test_numbers_keep_their_text() -> None:
    result = decode_plain(msgspec.Raw(b'{"a": 1e3, "b": 0.50, "c": 7, "d": "0.50"}'))
    assert result == {"a": "1e3", "b": "0.50", "c": 7, "d": "0.50"}
    assert [type(value) is str for value in result.values()] == [False, False, False, True]


@pytest.mark.parametrize(
    ("data", "before", "after", "changed"),
    [
        ({"x": 1, "own": 2}, {"x": 1}, {"x": 3}, {"x": 3, "own": 2}),
        ({"x": 1, "own": 2}, {"x": 1}, {}, {"own": 2}),
        ({"own": 2}, {}, {"x": 1}, {"own": 2, "x": 1}),
        ({"x": "1000m"}, {"x": "1"}, {"x": "1"}, {"x": "1000m"}),
        ({"l": [{"a": 1, "own": 1}, {"a": 2}]}, {"l": [{"a": 1}, {"a": 2}]}, {"l": [{"a": 1}, {"a": 5}]},
         {"l": [{"a": 1, "own": 1}, {"a": 5}]}),
        ({"l": [{"a": 1, "own": 1}]}, {"l": [{"a": 1}]}, {"l": []}, {"l": []}),
        ({"m": {"k": {"own": 1, "a": 1}}}, {"m": {"k": {"a": 1}}}, {"m": {"k": {"a": 2}}},
         {"m": {"k": {"own": 1, "a": 2}}}),
        ({"x": None}, {}, {"x": {"a": 1}}, {"x": {"a": 1}}),
    ],
)  # fmt: skip
def test_changes(data: Any, before: Any, after: Any, changed: Any) -> None:
    assert with_changes(data, before, after) == changed


_TREES = st.recursive(
    st.integers(0, 3), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner)
)
_OBJECTS = st.dictionaries(st.sampled_from("abc"), _TREES)


@given(_OBJECTS, _OBJECTS)
def test_where_nothing_is_unknown_the_change_is_the_whole(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert with_changes(before, before, after) == after
