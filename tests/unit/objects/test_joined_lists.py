"""Joined lists are what one list of all their items would be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale.objects.pod_metrics import JoinedLists


@given(st.lists(st.lists(st.integers(), max_size=4), max_size=4), st.slices(12))
def test_items(parts: list[list[int]], part: slice) -> None:
    joined, plain = JoinedLists(parts), [item for each in parts for item in each]
    assert list(joined) == plain
    assert len(joined) == len(plain)
    assert [joined[i] for i in range(-len(plain), len(plain))] == plain + plain
    assert joined[part] == plain[part]
    with pytest.raises(IndexError):
        joined[len(plain)]
