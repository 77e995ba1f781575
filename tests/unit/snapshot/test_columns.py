"""Columns of numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kscale.snapshot.columns import distinct


@given(st.lists(st.integers(-3, 9)))
def test_distinct_numbers(numbers: list[int]) -> None:
    column = np.array(numbers, dtype=np.int32)
    found = distinct(column)
    assert found.tolist() == sorted(set(numbers))
    assert found.dtype == column.dtype
    assert column.tolist() == numbers
