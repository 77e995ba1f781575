"""Columns of numbers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import copy, deepcopy

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kscale.snapshot.columns import Growing, distinct, median


@given(st.lists(st.integers(-3, 9)))
def test_distinct_numbers(numbers: list[int]) -> None:
    column = np.array(numbers, dtype=np.int32)
    found = distinct(column)
    assert found.tolist() == sorted(set(numbers))
    assert found.dtype == column.dtype
    assert column.tolist() == numbers


@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_the_middle_of_numbers(numbers: list[float]) -> None:
    assert median(np.array(numbers)) == np.median(np.array(numbers))


@given(st.lists(st.integers(-40, 40)), st.sampled_from((lambda each: pickle.loads(pickle.dumps(each)), deepcopy, copy)))
def test_what_grows_is_a_list(steps: list[int], another: Callable[[Growing], Growing]) -> None:
    """As a list that is filled with zeros, also after it came from elsewhere."""
    column, expected = Growing(np.int64), list[int]()
    for step in steps:
        if step < 0:
            column.extend_to(len(expected) - step)
            expected += [0] * -step
        elif step % 3 == 0:
            column.append(step)
            expected.append(step)
        elif step % 3 == 1:
            size = min(step, len(expected))
            column.truncate(size)
            del expected[size:]
        else:
            column = another(column)
        if expected:
            column.array[-1] = expected[-1] = step
        assert (column.array.tolist(), column.size) == (expected, len(expected))
